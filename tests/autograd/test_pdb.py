"""The chain rule is one plain loop: Python's own debugger stops in it, shows readable names, and steps into a rule."""

import os
import re
import subprocess
import sys
from pathlib import Path

from chainrule.autograd import reverse

SCRIPT = """
from chainrule import models

loss = models.WorkedExample()()
loss.backward()
"""


def test_a_breakpoint_in_the_loop_shows_the_adjoint_of_S_and_one_step_enters_its_rule(tmp_path):
    loop = Path(reverse.__file__)
    (line,) = [
        k for k, text in enumerate(loop.read_text().splitlines(), 1) if re.search(r"contribution = rule\(\*arguments", text)
    ]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    commands = [
        f'break {loop}:{line}, node.name == "S"',
        "continue",
        "p node.name",
        "p adjoint",
        "p x.name, earlier",
        "step",
        "where",
        "p g is not None, a.tolist(), b.tolist()",
        "clear 1",
        "quit",
    ]
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "pdb", str(script)],
        input="\n".join(commands) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},  # where there is no .pdbrc
    )
    answers = done.stdout.split("(Pdb) ")
    assert done.returncode == 0, done.stderr
    assert answers[1].startswith(f"Breakpoint 1 at {loop}:{line}")
    assert f"{loop}({line})chain_rule()" in answers[2]
    assert answers[3].strip() == "'S'"
    assert "[ 0.13356232, -0.13356232]" in answers[4]
    assert answers[5].strip() == "('Q', None)"
    assert "--Call--" in answers[6]
    assert "matmul_wrt_a()" in answers[6]
    assert answers[8].strip() == "(True, [[0.0], [1.0]], [[1.0, 0.0]])"
