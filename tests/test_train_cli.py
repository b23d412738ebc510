"""`chainrule train` and `chainrule sample`, as a user types them."""

import dataclasses
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chainrule import train_cli
from chainrule.cli import main
from chainrule.models import checkpoints
from chainrule.models.gpt import GPTConfig
from chainrule.models.mlp import MLPConfig
from chainrule.models.training import CHECKPOINT, Trainer, TrainingConfig

TEXT = "the cat sat on the mat. the dog sat on the log.\n" * 6
TINY = ["--layers=1", "--heads=2", "--width=8", "--context=5", "--steps=6", "--batch=3", "--eval-every=3", "--sample-every=0"]


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    return "book.txt"


def failure(arguments, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("chainrule: ")
    return printed


def test_train_then_sample(book, capsys):
    assert main(["train", book, *TINY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("GPT of ")
    assert lines[0].endswith("in 6 steps; runs/book")
    assert [line.split()[:2] for line in lines[1:-1]] == [["step", "0"], ["step", "3"], ["step", "6"]]
    assert "validation 2." in lines[1]
    assert "training" not in lines[1]
    assert "training 2." in lines[2]
    assert "tokens/s" in lines[2]
    assert lines[-1] == f"wrote runs/book/{CHECKPOINT}, runs/book/loss.svg"
    assert Path("runs/book/loss.svg").read_text(encoding="utf-8").endswith("</svg>\n")
    assert main(["sample", "runs/book", "--prompt", "the c", "--max-new-tokens", "7"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("the c")
    assert len(said) == len("the c") + 7 + len("\n")
    assert main(["sample", f"runs/book/{CHECKPOINT}", "--prompt", "the c", "--max-new-tokens", "7"]) == 0
    assert capsys.readouterr().out == said
    assert main(["sample", "runs/book", "--temperature=0", "--count=2", "--max-new-tokens=3"]) == 0
    said = capsys.readouterr().out
    first, second = said.split("---\n")
    assert first == second  # at temperature 0 the seed does not matter
    assert "Did you mean runs/book?" in failure(["sample", "book"], capsys)


def test_the_checkpoint_records_every_option(book):
    assert main(["train", book, *TINY, "--norm", "rms", "--no-tied", "--betas", "0.8,0.9", "--dtype", "float64"]) == 0
    model, _, metadata = checkpoints.load_model(f"runs/book/{CHECKPOINT}")
    options = metadata["about"]["options"]
    assert set(options) == {"source", *train_cli.A_TEXT}
    assert (options["source"], options["norm"], options["tied"], options["betas"]) == (book, "rms", False, [0.8, 0.9])
    assert (options["eval_every"], options["checkpoint_every"], options["warmup"]) == (
        3,
        3,
        0,
    )  # what was left open is filled in
    assert model.config.norm == "rms"
    assert not model.config.tied
    assert model.E.dtype == "float64"


def test_every_field_of_the_configs_is_an_option(book):
    def fields_of(config):
        return {train_cli.SHORT.get(field.name, field.name) for field in dataclasses.fields(config)}

    assert fields_of(GPTConfig) | fields_of(MLPConfig) == set(train_cli.MODEL) | {"vocab_size"}
    assert fields_of(TrainingConfig) == set(train_cli.TRAINING) - {"dtype"}
    model = [
        "--no-pre-norm",
        "--tiled",
        "--positions=rope",
        "--rope-base=500",
        "--rope-halves",
        "--d-head=6",
        "--norm-eps=0.01",
    ]
    training = ["--optimizer=sgd", "--momentum=0.5", "--nesterov", "--accumulate=2"]
    assert main(["train", book, *TINY, *model, *training]) == 0
    trainer = Trainer.resume("runs/book")
    config, config_t = trainer.model.config, trainer.config
    assert (config.pre_norm, config.tiled, config.rope_base, config.rope_halves) == (False, True, 500.0, True)
    assert (config.d_head, config.norm_eps) == (6, 0.01)
    assert (config_t.momentum, config_t.nesterov, config_t.accumulate) == (0.5, True, 2)
    assert trainer.optimizer.momentum == 0.5


def test_names_are_documents(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "names", "--out", out, "--steps=2", "--sample-every=2", "--width=8"]) == 0
    printed = capsys.readouterr().out
    assert sum(line.startswith("    ") for line in printed.splitlines()) == 5  # five made-up names
    assert main(["sample", out, "--count=3", "--prompt=an"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert len(names) == 3
    assert all(name.startswith("an") for name in names)
    assert len(set(names)) == 3  # each by a seed of its own


def test_digits(tmp_path, capsys):
    assert main(["train", "digits", "--out", str(tmp_path / "run"), "--steps=50"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("MLP of 13,002 parameters")
    assert "right " in printed
    assert "examples/s" in printed
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
    assert "of the kind MLP, which writes no text; a GPT does" in failure(["sample", str(tmp_path / "run")], capsys)


def test_a_file_of_options(book, capsys):
    Path("run.toml").write_text(
        'source = "book.txt"\nout = "here"\nlayers = 1\nheads = 2\nwidth = 8\ncontext = 5\nsteps = 99\ntied = false\n'
        "betas = [0.5, 0.6]\nweight-decay = 0\n",
        encoding="utf-8",
    )
    assert main(["train", "--config=run.toml", "--steps=2"]) == 0
    options = checkpoints.load_model(f"here/{CHECKPOINT}")[2]["about"]["options"]
    assert options["steps"] == 2  # the command line wins
    assert (options["width"], options["tied"], options["betas"], options["weight_decay"]) == (8, False, [0.5, 0.6], 0.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("wieght_decay = 0.1", "there is no option 'wieght_decay'. Did you mean weight_decay?"),
        ("xyzzy = 1", "there is no option 'xyzzy'. There are: context, "),
        ("steps = 1.5", "steps does not take 1.5"),
        ("tied = 1", "tied does not take 1; it is true or false"),
        ('tied = "True"', "tied does not take 'True'; it is true or false"),
        ("lr = [0.1]", "lr does not take [0.1]; it is a number"),
        ('lr = "0.1"', "lr does not take '0.1'; it is a number"),
        ("steps = [3]", "steps does not take [3]; it is a whole number"),
        ('norm = ["rms"]', "norm does not take ['rms']; it is a text"),
        ('betas = "0.9,0.99"', "betas does not take '0.9,0.99'; it is a list of numbers"),
        ('betas = ["0.9", "0.99"]', "betas does not take ['0.9', '0.99']; it is a list of numbers"),
        ('norm = "batch"', "norm is one of layer, rms; got 'batch'"),
        ("betas = [0.9]", "betas does not take [0.9]"),
        ("steps 3", "is not TOML"),
        ("steps = 3\0", "is not TOML"),
        ("steps = " + "[" * 5000, "is nested too deeply"),
        ('out = "a\\u0000b"', "out is the name of a file or folder, as text; got 'a\\x00b'"),
        ("source = 3", "source is the name of a file or folder, as text; got 3"),
    ],
)
def test_files_of_options_that_make_no_sense(content, said, book, capsys):
    Path("run.toml").write_text(content, encoding="utf-8")
    assert said in failure(["train", book, "--config=run.toml"], capsys)


def test_a_file_of_options_that_is_missing(book, capsys):
    assert "cannot read run.toml: No such file" in failure(["train", book, "--config=run.toml"], capsys)
    Path("run.toml").mkdir()
    assert "cannot read run.toml: Is a directory" in failure(["train", book, "--config=run.toml"], capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train"], "say what to train on: a text file, or one of names, "),
        (["train", "shakespear"], "there is no file 'shakespear'. Did you mean shakespeare?"),
        (["train", "missing.txt"], "there is no file 'missing.txt'. The shipped sets are names"),
        (["train", "empty.txt"], "empty.txt is empty"),
        (["train", "latin.txt"], "latin.txt is not UTF-8: byte 0xe9 at 1"),
        (["train", "book.txt", "--context=400"], "has 288 tokens; with a context of 400 it takes at least 446"),
        (["train", "book.txt", "--lines", "--steps=0"], "chainrule: --steps is a whole number from 1; got 0"),
        (["train", "book.txt", "--heads=3"], "--heads must divide --width"),
        (["train", "book.txt", "--vocab-size=-5", "--tokenizer=word"], "--vocab-size is a positive whole number; got -5"),
        (["train", "book.txt", "--vocab-size=300"], "--vocab-size goes with --tokenizer bpe or word; got char"),
        (["train", "book.txt", "--betas=2,3"], "--betas are two numbers in [0, 1)"),
        (["train", "book.txt", "--weight-decay=inf"], "--weight-decay is not negative and finite"),
        (["train", "book.txt", "--lr=nan"], "--lr is the learning rate, positive and finite; got nan"),
        (["train", "book.txt", "--dropout=2"], "--dropout is a number in [0, 1); got 2.0"),
        (["train", "missing.txt", "--kv-heads=0"], "there is no file"),
        (["train", "latin.txt", "--kv-heads=0"], "--kv-heads is a positive whole number; got 0"),  # before it is read
        (["train", "book.txt", "--momentum=0.9"], "--momentum goes with --optimizer sgd; got adamw"),
        (["train", "digits", "--weight-decay=0.5"], "--weight-decay goes with --optimizer adamw; got sgd"),
        (["train", "book.txt", "--rope-base=5"], "--rope-base goes with --positions rope; got learned"),
        (["train", "book.txt", "--schedule=constant", "--final=0.5"], "--final goes with --schedule cosine or linear"),
        (["train", "book.txt", "--sizes=784,10"], "--sizes does not apply to book.txt"),
        (["train", "digits", "--heads=3"], "--heads does not apply to digits"),
        (["train", "digits", "--sizes=784,5"], "sizes are 784, …, 10; got 784,5"),
        (["train", "book.txt", "--resume"], "There is no checkpoint runs/book"),
        (["train", "book.txt", "--out", "book.txt"], "cannot write book.txt"),
        (["sample", "runs/book"], "There is no checkpoint runs/book"),
        (["sample", "book.txt"], "book.txt is not a safetensors file"),
    ],
)
def test_mistakes_are_named(arguments, said, book, capsys):
    Path("empty.txt").write_bytes(b"")
    Path("latin.txt").write_bytes("né".encode("latin-1"))
    assert said in failure(arguments, capsys)


@pytest.mark.parametrize("wrong", ["--steps=many", "--norm=batch", "--betas=0.9", "--sizes=a,b"])
def test_values_that_make_no_sense(wrong, book, capsys):
    with pytest.raises(SystemExit) as left:
        main(["train", book, wrong])
    assert left.value.code == 2
    assert wrong.split("=")[0] in capsys.readouterr().err


def test_a_run_is_not_overwritten(book, capsys):
    assert main(["train", book, *TINY]) == 0
    before = Path("runs/book", CHECKPOINT).read_bytes()
    assert "runs/book holds a run. Go on with it by --resume" in failure(["train", book, *TINY], capsys)
    said = failure(["train", book, "--resume", "--width=16", "--lr=0.5", "--steps=60"], capsys)
    assert "has width 8, not 16; lr 0.001, not 0.5. Leave these out" in said
    assert Path("runs/book", CHECKPOINT).read_bytes() == before
    assert main(["train", "--resume", "--out=runs/book"]) == 0  # nothing is left to do
    assert Path("runs/book", CHECKPOINT).read_bytes() == before


def test_a_run_is_lengthened(book, capsys):
    constant = [*TINY, "--schedule=constant"]
    assert main(["train", book, *constant]) == 0
    assert "has done 6 steps; it can do more" in failure(["train", book, "--resume", "--steps=3"], capsys)
    assert main(["train", book, "--resume", "--steps=9"]) == 0
    printed = capsys.readouterr().out
    assert "from step 6 to 9 steps" in printed
    assert "learning rate goes on" not in printed
    assert main(["train", book, *constant, "--steps=9", "--out=whole"]) == 0
    assert Path("runs/book", CHECKPOINT).read_bytes() == Path("whole", CHECKPOINT).read_bytes()
    assert main(["train", book, "--resume", "--steps=9"]) == 0  # it is recorded
    assert main(["train", book, *TINY, "--out=cosine"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", "--out=cosine", "--steps=12"]) == 0
    assert "the cosine is now that of 12 steps, and the learning rate goes on from 0.00055\n" in capsys.readouterr().out


def test_a_text_that_has_changed_is_named(book, capsys):
    assert main(["train", book, *TINY]) == 0
    for other in (TEXT + "the", TEXT + "é"):
        Path(book).write_text(other, encoding="utf-8")
        said = failure(["train", "--resume", "--out=runs/book"], capsys)
        assert "book.txt has other data now than runs/book was trained on" in said


def test_two_runs_in_a_folder(book, capsys, monkeypatch):
    def step(report, trainer):
        if trainer.step_count == 4:
            assert "Another run is writing into runs/book now" in failure(["train", "--resume", "--out=runs/book"], capsys)

    monkeypatch.setattr(train_cli.Lines, "step", step)
    assert main(["train", book, *TINY]) == 0


@pytest.mark.parametrize("name", ["[bold]a[/b]:smile:", "a\udce9"])
def test_names_that_mean_something_elsewhere(name, tmp_path):
    """In another process: what is printed depends on the terminal's encoding."""
    book = tmp_path / f"{name}.txt"
    book.parent.mkdir(exist_ok=True)
    book.write_text(TEXT, encoding="utf-8")
    code = f"import sys; from chainrule.cli import main; sys.exit(main({['train', str(book), *TINY, '--out', name]!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    assert f"wrote {name.encode('utf-8', 'backslashreplace').decode()}/{CHECKPOINT}" in run.stdout.decode()
    assert (tmp_path / name / CHECKPOINT).exists()


@pytest.mark.parametrize("folder", ["loss.svg", "log.jsonl"])
def test_a_folder_where_a_file_should_be(folder, book, capsys):
    Path("runs/book", folder).mkdir(parents=True)
    said = failure(["train", book, *TINY], capsys)
    assert f"runs/book/{folder}" in said
    assert "Is a directory" in said
    assert Path("runs/book", CHECKPOINT).exists() == (folder == "loss.svg")


def test_sampling_ends_at_special_tokens(book, capsys):
    assert main(["train", book, *TINY, "--tokenizer=bpe", "--vocab-size=260"]) == 0
    model, tokenizer, _ = checkpoints.load_model(f"runs/book/{CHECKPOINT}")
    (end,) = tokenizer.special.values()
    model.E.data = np.float32(np.arange(260) == end)[:, None] * np.ones(8, np.float32)
    model.norm.beta.data = np.ones(8, np.float32)  # so that the logit of the special token is the largest
    checkpoints.save_model("end.safetensors", model, tokenizer)
    capsys.readouterr()
    assert main(["sample", "end.safetensors", "--prompt=the cat", "--temperature=0", "--max-new-tokens=3"]) == 0
    assert capsys.readouterr().out == "the cat\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt=thé"], "--prompt: 'é' at position 2 is not in the text that this model was trained on. Leave it out; or"),
        (["--max-new-tokens=-1"], "max_new_tokens"),
        (["--temperature=nan"], "temperature"),
        (["--top-k=0"], "top_k"),
        (["--top-p=2"], "top_p"),
        (["--seed=-1"], "seed is a whole number from 0"),
    ],
)
def test_samples_that_make_no_sense(arguments, said, book, capsys):
    main(["train", book, *TINY])
    capsys.readouterr()
    assert main(["sample", "runs/book", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_records_that_make_no_sense(book, capsys):
    main(["train", book, *TINY])
    path = Path("runs/book", CHECKPOINT)
    arrays, header = checkpoints.load(path)
    said = json.loads(header[checkpoints.KEY])
    for entry in ("about", "task"):
        checkpoints.save(path, arrays, {checkpoints.KEY: json.dumps(said | {entry: [3]})})
        for command in (["sample", "runs/book"], ["train", "--resume", "--out=runs/book"]):
            assert f"{entry} in the metadata is " in failure(command, capsys)
    checkpoints.save(path, arrays, {checkpoints.KEY: json.dumps(said | {"about": {"options": "mine"}})})
    assert main(["train", "--resume", "--out=runs/book"]) == 0
    said["task"]["lines"] = True
    checkpoints.save(path, arrays, {checkpoints.KEY: json.dumps(said)})
    assert "has no <|endoftext|> to begin one with" in failure(["sample", "runs/book"], capsys)


def test_a_reader_that_has_seen_enough(book):
    """As `chainrule … | head -c 5`: no error, no traceback."""
    main(["train", book, *TINY])
    for command in (["sample", "runs/book", "--max-new-tokens=3000"], ["train", book, *TINY, "--out=other"], ["trace"]):
        run = [sys.executable, "-c", f"import sys; from chainrule.cli import main; sys.exit(main({command!r}))"]
        with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 0


@pytest.mark.parametrize("wrong", ["--count=0", "--count=-3", "--count=1.5", "--max-new-tokens=2.5"])
def test_numbers_of_samples(wrong, capsys):
    with pytest.raises(SystemExit) as left:
        main(["sample", "runs/book", wrong])
    assert left.value.code == 2
    assert wrong.split("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_and_resume(number, book, capsys, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(train_cli.Lines, "step", lambda _, trainer: trainer.step_count == 4 and signal.raise_signal(number))
        assert main(["train", book, *TINY, "--out=a run"]) == 128 + number
    said, resume = capsys.readouterr().err.splitlines()[-2:]
    assert said == "Stopped after step 4 of 6; a run has the checkpoint to resume from."
    assert shlex.split(resume) == ["chainrule", "train", "--resume", "--out", "a run"]
    assert main(shlex.split(resume)[1:]) == 0
    assert "from step 4 to 6 steps" in capsys.readouterr().out
    assert main(["train", book, *TINY, "--out=whole"]) == 0
    assert Path("a run", CHECKPOINT).read_bytes() == Path("whole", CHECKPOINT).read_bytes()


def test_a_run_that_diverges(book, capsys):
    assert main(["train", book, *TINY, "--optimizer=sgd", "--lr=1e30", "--clip=0", "--schedule=constant"]) == 1
    printed = capsys.readouterr().err
    assert "chainrule: Step " in printed
    assert "The last checkpoint in runs/book is kept." in printed
    assert checkpoints.load_model(f"runs/book/{CHECKPOINT}")[2]["step"] == 0


def test_the_help_says_each_default(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "--layers N blocks (default: 4; names: 1)" in printed
    assert "learning rate, at its highest (default: 0.001; names: 0.01; digits: 2)" in printed


def test_on_a_terminal_a_bar_moves(book):
    """In a terminal of its own, which a pseudo-terminal is."""
    pty = pytest.importorskip("pty")
    written = []

    def read(descriptor):
        import os

        data = os.read(descriptor, 1024)
        written.append(data)
        return data

    code = f"import sys; from chainrule.cli import main; sys.exit(main({['train', book, *TINY]!r}))"
    assert pty.spawn([sys.executable, "-c", code], read) == 0
    printed = b"".join(written).decode()
    assert "step 1 of 6" in printed
    assert "validation" in printed


def test_kills_at_random_moments():
    """Two of those that `python tests/kill_training.py` makes."""
    command = [sys.executable, str(Path(__file__).with_name("kill_training.py")), "--kills=2", "--steps=20"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == {"kills": 2, "damaged": 0, "same bytes": True}
