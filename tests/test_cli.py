"""The command line, as a user types it."""

import json
import re
import subprocess
import sys

import pytest

from chainrule.cli import main

SCRIPT = """
import sys
import numpy as np
from chainrule import Tensor
W = Tensor(np.ones((2, 1)), requires_grad=True, name="W")
loss = np.sum(np.tanh(np.array([[1.0, 0.5]]) @ W))
plain = 3
arguments = sys.argv[1:]
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def test_trace_of_the_worked_example(tmp_path, capsys):
    files = {kind: tmp_path / f"wq.{kind}" for kind in ("svg", "html", "json")}
    assert main(["trace", *(f"--{kind}={path}" for kind, path in files.items())]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("∂loss/∂WQ[1,0] = 0.1335623199591")
    assert ": ok\n" in printed
    assert "∂L/∂logits = p - 1[target]" in printed
    assert files["svg"].read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert "<html" in files["html"].read_text(encoding="utf-8")
    assert json.loads(files["json"].read_text(encoding="utf-8"))["check"]["verdict"] == "ok"


def test_trace_of_a_script(script, capsys):
    assert main(["trace", script, "--to", "W[1,0]"]) == 0
    printed = capsys.readouterr().out
    assert "∂L/∂W" in printed
    assert "my_model.py:6" in printed  # the source line
    assert main(["trace", script, "--to", "W"]) == 0


def test_the_script_gets_what_follows_two_dashes(tmp_path, capsys):
    path = tmp_path / "asks.py"
    path.write_text(SCRIPT + "print(sys.argv[1:], __name__)\n", encoding="utf-8")
    assert main(["trace", str(path), "--to", "W[0,0]", "--", "--steps", "3"]) == 0
    assert "['--steps', '3'] __main__" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "V[0]"], "No node is called 'V'. The names are: W"),
        (["--to", "W[7,0]"], "W has shape (2, 1)"),
        (["--to", "W[a]"], "made of integers and slices"),
        ([], "say which entry to follow, with --to"),
        (["--loss", "cost", "--to", "W"], "no variable called 'cost'. Its Tensors are: W, loss"),
        (["--loss", "plain", "--to", "W"], "has a int, not a Tensor, called 'plain'"),
        (["--loss", "W", "--to", "W"], "starts from a single number"),
        (["--to", "W", "--svg", "/no/such/folder/x.svg"], "cannot write /no/such/folder/x.svg"),
    ],
)
def test_mistakes_say_what_there_is(script, capsys, arguments, said):
    assert main(["trace", script, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_script_that_is_not_there(capsys):
    for command in ("trace", "draw", "check", "debug"):
        assert main([command, "nowhere.py"]) == 2
        assert "there is no file 'nowhere.py'" in capsys.readouterr().err


def test_an_error_in_the_script_is_the_scripts_own(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("raise ZeroDivisionError('mine')", encoding="utf-8")
    with pytest.raises(ZeroDivisionError, match="mine"):
        main(["trace", str(path), "--to", "W"])


def test_draw(script, tmp_path, capsys):
    out = tmp_path / "g.svg"
    assert main(["draw", script, "--svg", str(out)]) == 0
    assert "wrote" in capsys.readouterr().out
    assert "tanh" in out.read_text(encoding="utf-8")


def test_drawings_that_cannot_be(tmp_path, monkeypatch, capsys):
    path = tmp_path / "large.py"
    path.write_text(
        "import numpy as np\nfrom chainrule import Tensor\n"
        "W = Tensor(np.ones((60, 60)), requires_grad=True)\nloss = np.sum(np.ones((40, 60)) @ W)\n",
        encoding="utf-8",
    )
    assert main(["draw", str(path), "--zoom", "scalar"]) == 2
    assert 'or all of it with zoom="tensor"' in capsys.readouterr().err
    monkeypatch.setattr("chainrule.viz.svg.engines", list)
    assert main(["draw", str(path), "--svg", str(tmp_path / "g.svg")]) == 2
    assert "chainrule: Drawing needs a Graphviz engine" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["ridders", "complex", "central"])
def test_check(method, capsys):
    assert main(["check", "--method", method]) == 0
    assert "24 ok" in capsys.readouterr().out


def test_check_of_one_entry_and_of_a_wrong_rule(tmp_path, capsys):
    assert main(["check", "--to", "WQ[1,0]"]) == 0
    assert "1 ok" in capsys.readouterr().out
    assert main(["check", "--to", "nothing"]) == 2
    path = tmp_path / "wrong.py"
    path.write_text(
        SCRIPT
        + "from chainrule import primitive\n"
        + "@primitive()\ndef double(x):\n    return 2 * x\n"
        + "@double.rule('x', '∂L/∂{x} = 3 ∂L/∂{y}')\ndef double_wrt_x(g, y, x):\n    return 3 * g\n"
        + "loss = double(loss)\n",
        encoding="utf-8",
    )
    capsys.readouterr()
    assert main(["check", str(path)]) == 1
    assert "2 wrong" in capsys.readouterr().out
    assert main(["trace", str(path), "--to", "W[0,0]"]) == 1
    assert ": wrong" in capsys.readouterr().out


def test_debug_from_a_pipe(script):
    with open(script, "a", encoding="utf-8") as file:
        file.write("loss.backward()\nprint('after', W.grad.shape)\n")
    done = subprocess.run(
        [sys.executable, "-m", "chainrule", "debug", script],
        input="break W\ncontinue\np adjoint.shape\ncontinue\ncontinue\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "(2, 1)" in done.stdout
    assert "after (2, 1)" in done.stdout


def test_output_may_end_early_and_terminals_may_lack_utf8():
    program = "import sys; from chainrule.cli import main; sys.exit(main(['trace']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=60,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "∂loss/∂WQ[1,0]" in done.stdout.decode("utf-8")


def test_an_account_fits_a_narrow_terminal(monkeypatch, capsys):
    for name, value in (("COLUMNS", "60"), ("NO_COLOR", "1"), ("FORCE_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert main(["trace"]) == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 60
    assert "  │              value   adjoint   tangent      flow" in lines
    assert "  │    A[0,0]          1         0         0         0" in lines
    assert any(line.startswith("  │   ") and "(T, T): how much it reads" in line for line in lines)  # of the line of code
    monkeypatch.delenv("FORCE_COLOR")  # to a file, whole lines
    main(["trace"])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) > 80


def test_version_and_help(capsys):
    for arguments in (["--version"], ["--help"], ["trace", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
    assert "--to" in capsys.readouterr().out
