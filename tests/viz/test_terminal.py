"""The debugger's prompt, by scripted sessions: what is typed, and what comes back."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chainrule import Tensor, models, named
from chainrule.autograd import open_fused, primitive, record_sources
from chainrule.autograd.debugger import Debugger
from chainrule.nn import attention
from chainrule.viz.terminal import Prompt, debug, debug_script

NOTES = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text())["grads"]
PROMPT = "(chainrule) "


def session(loss, *commands):
    """What the prompt answers to each command, in a list; last, what comes at the end of input, if it gets there."""
    stdout = io.StringIO()
    debug(loss, stdin=io.StringIO("\n".join([*commands, ""])), stdout=stdout)
    return stdout.getvalue().split(PROMPT)[1:]


def worked_example():
    return models.WorkedExample()()


def used_three_times():
    x = Tensor(3.0, requires_grad=True, name="x")
    square = named("square", x * x)
    return named("L", square + x)


STORY = ["break S", "continue", "print adjoint", "watch WQ[1,0]", "continue", "back", "print so_far(WQ)", "watch", "quit"]


def check_story(answers):
    assert answers[0] == "Breakpoint 1: stops at the step of S\n"
    assert answers[1].startswith("Breakpoint 1: S\nstep 8 of 19: S = matmul(Q, Kᵀ)\n")
    assert "[[ 0.        0.      ]\n       [ 0.133562 -0.133562]]\n" in answers[1]
    assert "  to Q: ∂L/∂Q = ∂L/∂S @ K\n" in answers[1]
    assert answers[2] == "array([[ 0.        ,  0.        ],\n       [ 0.13356232, -0.13356232]])\n"
    assert answers[3] == "Watch 2: WQ[1,0], after 0 of 1 contributions:  nothing yet\n"
    assert answers[4].startswith(
        "Watch 2: WQ[1,0] receives contribution 1 of 1, from Q: ∂L/∂WQ = Xᵀ @ ∂L/∂Q\n"
        "    before        nothing yet\n"
        "    contribution  0.133562\n"
        "    after         0.133562\n"
        "step 12 of 19: Q = matmul(X, WQ)\n"
    )
    assert answers[5].startswith("step 11 of 19: K = matmul(X, WK)\n")
    assert answers[5].endswith("Watch 2: WQ[1,0], after 0 of 1 contributions:  nothing yet\n")
    assert answers[6] == "*** Nothing has reached WQ yet, after 11 of 19 steps.\n"
    assert answers[7] == "Watch 2: WQ[1,0], after 0 of 1 contributions:  nothing yet\n"
    assert answers[8] == ""


def test_the_error_on_its_way_to_WQ():
    assert NOTES["S"][1] == pytest.approx([0.133562, -0.133562], abs=5e-7)
    assert NOTES["WQ"][1][0] == pytest.approx(0.133562, abs=5e-7)
    check_story(session(worked_example(), *STORY))


def run_python(*arguments, typed="", cwd=None):
    return subprocess.run(
        [sys.executable, "-X", "utf8", *arguments], input=typed, capture_output=True, encoding="utf-8", timeout=60, cwd=cwd
    )


def test_the_same_session_through_a_pipe():
    program = "from chainrule import models; from chainrule.viz.terminal import debug; debug(models.WorkedExample()())"
    done = run_python("-c", program, typed="\n".join([*STORY, ""]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    check_story(done.stdout.split(PROMPT)[1:])


def test_the_end_of_input_quits():
    assert session(worked_example(), "step")[-1] == "\n"
    assert session(worked_example())[-1] == "\n"


def test_enter_repeats_the_last_command():
    answers = session(worked_example(), "step", "", "", "back", "")
    assert [answer.split(":")[0] for answer in answers[:5]] == [f"step {k} of 19" for k in (1, 2, 3, 2, 1)]


def test_abbreviations():
    answers = session(worked_example(), "s 3", "bk 2", "b S", "c", "c", "rc", "cl", "rc", "w", "p 1", "q")
    assert [answers[i].split(":")[0] for i in (0, 1, 3)] == ["step 3 of 19", "step 1 of 19", "Breakpoint 1"]
    assert answers[4].startswith("The end: all 19 steps are done.")
    assert answers[5].startswith("Breakpoint 1: S\nstep 8 of 19")
    assert answers[6] == "Breakpoint 1 removed: S\n"
    assert answers[7].startswith("The start: no step is done")
    assert answers[8] == "0 of 19 steps done, 19 left.\n"
    assert answers[9] == "1\n"


def test_repeated_contributions_are_shown_one_by_one():
    answers = session(used_three_times(), "watch x", "c", "c", "info x", "back", "watch")
    assert answers[2].count("receives contribution") == 2
    assert answers[2].startswith(
        "Watch 1: x receives contribution 2 of 3, from square: ∂L/∂x = ∂L/∂square · x\n"
        "    before        1\n    contribution  3\n    after         4\n"
        "Watch 1: x receives contribution 3 of 3, from square: ∂L/∂x = ∂L/∂square · x\n"
        "    before        4\n    contribution  3\n    after         7\n"
    )
    assert "∂L/∂x so far:\n    7\n  step 1, done, from L: " in answers[3]
    assert answers[5] == "Watch 1: x, after 1 of 3 contributions:  1\n"


def test_conditions_and_their_errors():
    answers = session(worked_example(), "tbreak np.abs(adjoint).max() > 1", "c", "break 1 / 0", "c", "break", "c")
    assert answers[0] == "Breakpoint 1: stops once at steps where np.abs(adjoint).max() > 1\n"
    assert answers[1].startswith("Breakpoint 1: np.abs(adjoint).max() > 1\nstep 3 of 19: h = ")
    assert answers[3].startswith(
        "Breakpoint 2: 1 / 0\n*** The condition 1 / 0 raised ZeroDivisionError: division by zero\nstep 4 of 19"
    )
    assert answers[4] == "Breakpoint 2: 1 / 0, hits: 1\n"
    assert "step 5 of 19" in answers[5]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("break logit", "*** No node is called 'logit'. Did you mean logits?"),
        ("watch logit[0]", "*** No node is called 'logit'. Did you mean logits?"),
        ("watch WQ[7,0]", "*** WQ[7,0] is not an entry of WQ, of shape (2, 1): index 7 is out of bounds"),
        ("p 1/0", "*** ZeroDivisionError: division by zero"),
        ("p S +", "*** 'S +' is not an expression: "),
        ("p", "*** Say what to print"),
        ("p adjoint", "*** Before the first step there is no adjoint."),
        ("list", "*** No step is done yet: `step` does the first."),
        ("step soon", "*** The number of steps is a whole number from 1; got 'soon'."),
        ("step 0", "*** The number of steps is a whole number from 1; got '0'."),
        ("contineu", "*** name 'contineu' is not defined. No node is called 'contineu'."),
        ("clear 5", "*** There is no breakpoint '5'; there are: none."),
        ("unwatch 5", "*** There is no watch '5'; there are: none."),
        ("help me", "*** There is no command 'me'; help lists them."),
        ("S.data", "array([[0., 0.],\n       [1., 0.]])"),
        ("!h.data", "array([0.73105858, 1.26894142])"),
        ("pp {'K': K.shape}", "{'K': (2, 1)}"),
        ("p None", "None"),
        ("1 + 1", "2"),
        ("break", "No breakpoints."),
        ("watch", "No watches."),
        ("where", "0 of 19 steps done, 19 left.\n"),
    ],
)
def test_what_is_answered_and_that_the_session_stays_usable(typed, answer):
    first, second, _ = session(worked_example(), typed, "step")
    assert first.startswith(answer)
    assert second.startswith("step 1 of 19")


def test_a_mistyped_command_is_recognised():
    assert session(worked_example(), "contineu")[0].endswith(" Or did you mean the command continue?\n")


def test_list_shows_the_line_of_code_the_operation_and_the_rules():
    with record_sources():
        loss = worked_example()
    answers = session(loss, "break Q", "c", "list", "list loss", "list WQ")
    assert ' in forward: Q = named("Q", X @ self.WQ)' in answers[1]
    lines = answers[2].splitlines()
    assert lines[0].startswith("worked_example.py:")
    assert lines[0].endswith(' in forward: Q = named("Q", X @ self.WQ)  # (T, d_k)')
    assert lines[1:3] == ["Q = matmul(X, WQ)", "to X: ∂L/∂X = ∂L/∂Q @ WQᵀ"]
    assert "    def matmul_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:" in lines
    assert "to WQ: ∂L/∂WQ = Xᵀ @ ∂L/∂Q" in lines
    assert "    def matmul_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:" in lines
    assert "def cross_entropy_wrt_logits(" in answers[3]
    assert answers[4] == "WQ, a leaf\n"
    assert "not recorded" in session(worked_example(), "list loss")[0]


def test_list_shows_a_rule_for_all_inputs_once_and_says_when_there_is_no_source():
    x = Tensor(np.eye(2), requires_grad=True, name="x")
    answer = session(np.sum(attention(x, x, x)), "step 2", "list")[1]
    assert answer.count("to x: ") == 3
    assert answer.count("def attention_wrt_inputs(") == 1

    @primitive()
    def twice(x):
        return x + x

    twice.rules[0] = eval("lambda g, y, x: g + g")
    assert "The source of this rule cannot be read." in session(np.sum(twice(x)), "s 2", "list")[1]


def test_where_shows_the_path_and_what_is_left():
    lines = session(worked_example(), "b Q", "c", "where")[2].splitlines()
    assert lines[0] == "    loss = cross_entropy(logits, 2)"
    assert lines[-2:] == ["  > Q = matmul(X, WQ)", "12 of 19 steps done, 7 left; paths from the loss to here: 1."]
    assert len(lines) == 10


def test_where_is_short_in_a_long_graph_with_many_paths():
    y = Tensor(1.0, requires_grad=True, name="x")
    for _ in range(100):
        y = y * y
    lines = session(y, "c", "where")[1].splitlines()
    assert len(lines) == 18
    assert lines[4] == "    … 85 more …"
    assert lines[-2] == "  > x, a leaf"
    assert lines[-1] == "101 of 101 steps done, 0 left; paths from the loss to here: about 10^30."


def test_nodes_and_info():
    answers = session(worked_example(), "b S", "c", "nodes W", "nodes", "info WQ", "info", "info K", "info nothing")
    assert [line.split()[1] for line in answers[2].splitlines()[:-1]] == ["WO", "WV", "WK", "WQ"]
    assert answers[3].endswith("17 of 19 nodes.\n")
    assert [line.split()[2] for line in answers[3].splitlines() if line.startswith(">")] == ["S"]
    assert "WQ, a leaf, float64[2, 1]" in answers[4]
    assert "nothing yet\n  step 12, to come, from Q: ∂L/∂WQ = Xᵀ @ ∂L/∂Q\n" in answers[4]
    assert answers[5] == "8 of 19 steps done; the walk starts at loss.\nBreakpoint 1: S, hits: 1\nNo watches.\n"
    assert "step 9, to come, from Kᵀ" in answers[6]
    assert answers[7].startswith("*** No node is called 'nothing'.")


def test_help_lists_every_command_once_and_explains_each():
    prompt = Prompt(Debugger(worked_example()), io.StringIO(), io.StringIO())
    listed = session(worked_example(), "help")[0]
    names = [name.removeprefix("do_") for name in dir(Prompt) if name.startswith("do_") and name != "do_EOF"]
    assert len(listed.splitlines()) == len({getattr(prompt, f"do_{name}").__func__ for name in names}) + 1
    explained = session(worked_example(), *(f"help {name}" for name in names))
    assert all(": " in answer for answer in explained[:-1])
    assert "so_far(NODE)" in session(worked_example(), "help p")[0]


def test_names_are_completed():
    prompt = Prompt(Debugger(worked_example()), io.StringIO(), io.StringIO())
    assert prompt.completedefault("W") == ["WK", "WO", "WQ", "WV"]


def test_large_arrays_are_summarised():
    W = Tensor(np.ones((100, 50)), requires_grad=True, name="W")
    answer = session(np.sum(W * 2), "step 3")[0]
    assert "  ∂L/∂W  float64[100, 50], largest magnitude 2: 2 2 2 2 …\n" in answer
    assert len(answer) < 500


@pytest.mark.parametrize("shape", [(4, 2, 6, 8), (2, 2, 2), (64,), (8, 8), (0, 3, 2)])
def test_a_step_of_batched_arrays_is_a_line_for_each_and_print_shows_all(shape):
    X = Tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True, name="X")
    step, whole, _ = session(np.sum(named("Y", np.tanh(X))), "step 2", "p inputs[0]")
    lines = step.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith(f"  ∂L/∂Y  float64{list(shape)}")
    assert lines[3].startswith(f"    contribution  float64{list(shape)}")
    assert whole == f"{X.data!r}\n"


def test_an_error_inside_a_rule_is_shown_with_its_node():
    @primitive()
    def cube(x):
        return x**3

    @cube.rule("x", "∂L/∂{x} = 3 {x}² · ∂L/∂{y}")
    def cube_wrt_x(g, y, x):
        raise ZeroDivisionError("this rule is broken")

    x = Tensor(2.0, requires_grad=True, name="x")
    answers = session(named("L", 5 * named("y", cube(x))), "c", "where", "p float(contribution)", "back")
    assert answers[0].startswith(
        "*** The rule at y raised ZeroDivisionError: this rule is broken (in cube_wrt_x, test_terminal.py:"
    )
    assert answers[1].endswith("1 of 3 steps done, 2 left; paths from the loss to here: 1.\n")
    assert answers[2] == "5.0\n"
    assert answers[3].startswith("The start")


def test_a_gradient_of_another_shape_and_create_graph():
    x = Tensor([1.0, 2.0], requires_grad=True, name="x")
    stdout = io.StringIO()
    debug(x * x, [1.0, 10.0], create_graph=True, stdin=io.StringIO("c\np adjoint\n"), stdout=stdout)
    assert "Tensor([ 2., 40.]" in stdout.getvalue()
    with open_fused(), pytest.raises(ValueError, match="single number"):
        debug(x * x)


class FakeTerminal(io.StringIO):
    def isatty(self):
        return True


def test_colour_is_for_terminals_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    x = Tensor([1.0, 2.0], requires_grad=True, name="[red]:smile:")
    for stdout, coloured in ((FakeTerminal(), True), (io.StringIO(), False)):
        debug(np.sum(x[0:1] * 1e300), stdin=io.StringIO("step 3\nq\n"), stdout=stdout)
        assert ("\x1b[" in stdout.getvalue()) is coloured
        assert "to [red]:smile:" in stdout.getvalue()  # neither markup nor an emoji


def test_a_stream_without_the_letters_shows_others():
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    debug(worked_example(), stdin=io.StringIO("step\nq\n"), stdout=stdout)
    assert b"?L/?logits = p - 1[target]" in raw.getvalue()


# Scripts

SCRIPT = """
import sys
import numpy as np
from chainrule import Tensor, named

w = Tensor([1.0, 2.0], requires_grad=True, name="w")
for k in range(2):
    loss = named("loss", np.sum(named("y", w * w)))
    loss.backward()
    print(f"pass {k}: {w.grad.tolist()}")
print("done", sys.argv[1:], __name__)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def debug_typed(monkeypatch, capsys, path, *typed, argv=()):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*typed, ""])))
    before = Tensor.backward, list(sys.argv), list(sys.path)
    code = debug_script(path, list(argv))
    assert (Tensor.backward, sys.argv, sys.path) == before
    return code, capsys.readouterr().out


def test_a_script_stops_at_each_backward_and_goes_on(script, monkeypatch, capsys):
    code, out = debug_typed(monkeypatch, capsys, script, "c", "c", "p adjoint", "c", "c", argv=["--fast"])
    assert code == 0
    assert out.count("train.py:9 in <module>: loss.backward()\nThe chain rule from loss: 3 steps") == 2
    assert "pass 0: [2.0, 4.0]\n" in out
    assert "pass 1: [4.0, 8.0]\n" in out  # leaves accumulate, as without the debugger
    assert "done ['--fast'] __main__\n" in out


def test_breakpoints_stay_for_the_next_backward(script, monkeypatch, capsys):
    _, out = debug_typed(monkeypatch, capsys, script, "b y", "c", "c", "c", "c", "c", "c")
    assert out.count("Breakpoint 1: y\nstep 2 of 3: y = multiply(w, w)\n  train.py:8 in <module>:") == 2
    assert "done [] __main__\n" in out


def test_quitting_ends_the_script(script, monkeypatch, capsys):
    for typed in ("quit", "c"):  # and so does the end of input
        code, out = debug_typed(monkeypatch, capsys, script, typed)
        assert code == 0
        assert "pass" not in out


def test_what_a_script_raises_passes_through(tmp_path, monkeypatch, capsys):
    path = tmp_path / "stop.py"
    path.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(SystemExit) as stopped:
        debug_typed(monkeypatch, capsys, path)
    assert stopped.value.code == 3
    path.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        debug_typed(monkeypatch, capsys, path)
    with pytest.raises(FileNotFoundError):
        debug_typed(monkeypatch, capsys, tmp_path / "none.py")


def test_a_script_imports_its_neighbours_and_may_open_the_prompt_itself(tmp_path, monkeypatch, capsys):
    (tmp_path / "neighbour_of_debugged.py").write_text("from chainrule import Tensor\nx = Tensor(2.0, requires_grad=True)\n")
    path = tmp_path / "main.py"
    path.write_text(
        "from neighbour_of_debugged import x\nfrom chainrule.viz.terminal import debug\n"
        "debug(x * x)\nprint('after')\n(x * x).backward()\nprint(x.grad)\n"
    )
    code, out = debug_typed(monkeypatch, capsys, path, "quit", "c", "c")
    assert code == 0
    assert f"{PROMPT}after\nmain.py:5 in <module>: (x * x).backward()\n" in out
    assert out.endswith(f"{PROMPT}4.0\n")


def test_without_a_script_it_is_the_worked_example(monkeypatch, capsys):
    code, out = debug_typed(monkeypatch, capsys, None, "b S", "c", "q")
    assert code == 0
    assert "The chain rule from loss: 19 steps" in out
    assert 'in forward: S = named("S", Q @ K.T)' in out


def test_a_script_debugged_through_a_pipe(script):
    program = "import sys; from chainrule.viz.terminal import debug_script; sys.exit(debug_script(sys.argv[1], sys.argv[2:]))"
    plain = run_python(str(script), "--fast")
    done = run_python("-c", program, str(script), "--fast", typed="c\nc\nc\nc\n")
    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in done.stdout.replace(PROMPT, "").splitlines() if line.startswith(("pass", "done"))]
    assert said == plain.stdout.splitlines()
