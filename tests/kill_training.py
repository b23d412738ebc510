"""Does a run that is killed lose anything? `python tests/kill_training.py [--kills 30]`

A small training run is killed (SIGKILL: nothing can be caught) at random moments, and resumed, over and over. After each
kill the checkpoint must load; when all steps are done its bytes must equal those of a run that was left alone. A checkpoint
is written after every step, so that many kills hit a save. The last line is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

from chainrule.models import checkpoints
from chainrule.models.training import CHECKPOINT

OPTIONS = ["--width=32", "--dropout=0.1", "--checkpoint-every=1", "--eval-every=20", "--sample-every=0"]


def start(folder: Path, steps: int) -> subprocess.Popen[str]:
    """A run in this folder, or the rest of one, that has just begun to train."""
    resumed = ["--resume"] if (folder / CHECKPOINT).exists() else []
    command = [
        sys.executable,
        "-u",
        "-m",
        "chainrule",
        "train",
        "names",
        "--out",
        str(folder),
        f"--steps={steps}",
        *OPTIONS,
        *resumed,
    ]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    line = run.stdout.readline()
    if "parameters" not in line:
        raise RuntimeError(line + run.stdout.read())
    return run


def finish(run: subprocess.Popen[str]) -> None:
    output, _ = run.communicate()
    if run.returncode:
        raise RuntimeError(output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "whole"
        run = start(whole, arguments.steps)
        began = monotonic()
        finish(run)
        duration = monotonic() - began
        expected = (whole / CHECKPOINT).read_bytes()

        kills, damaged, same, in_a_save, runs = 0, 0, True, 0, 0
        while kills < arguments.kills:
            folder, runs = Path(temporary) / f"killed {runs}", runs + 1
            while True:
                run = start(folder, arguments.steps)
                if kills < arguments.kills:
                    sleep(rng.uniform(0, duration / 2))
                if kills == arguments.kills or run.poll() is not None:
                    finish(run)
                    break
                run.kill()
                run.communicate()
                kills += 1
                in_a_save += bool(list(folder.glob(".*.tmp")))
                step = 0
                if (folder / CHECKPOINT).exists():
                    try:
                        step = checkpoints.load_model(folder / CHECKPOINT)[2]["step"]
                    except ValueError as error:
                        damaged += 1
                        print(error)
                        (folder / CHECKPOINT).unlink()
                print(f"kill {kills}: the checkpoint is of step {step} of {arguments.steps}", flush=True)
            if (folder / CHECKPOINT).read_bytes() != expected:
                same = False
                print(f"{folder.name} ended in other bytes than the run that was left alone")
    print(f"{runs} runs, {in_a_save} kills in the middle of a save")
    print(json.dumps({"kills": kills, "damaged": damaged, "same bytes": same}))
    return 0 if same and not damaged else 1


if __name__ == "__main__":
    sys.exit(main())
