"""The debugger without its prompt: positions, stops, entries, expressions."""

import json
from pathlib import Path

import numpy as np
import pytest

from chainrule import Tensor, models, named
from chainrule.autograd import Scope, open_fused, primitive
from chainrule.autograd.debugger import Debugger, DebuggerError, rule_source
from chainrule.autograd.reverse import backward_steps
from chainrule.nn import attention

NOTES = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text())["grads"]


def worked_example():
    model = models.WorkedExample()
    return Debugger(model()), model


def used_three_times():
    """L = x·x + x at x = 3: the contributions to x are 1, from the sum, then 3 and 3, from the product."""
    x = Tensor(3.0, requires_grad=True, name="x")
    square = named("square", x * x)
    return Debugger(named("L", square + x)), x


# Walking


def test_the_steps_are_the_engines_own_in_their_order():
    d, _ = worked_example()
    expected = list(backward_steps(d.loss))
    assert [step.node.index for step in expected] == [node.index for node in d.order]
    for step in expected:
        assert d.step().reason == "step"
        assert d.here.node is step.node
        np.testing.assert_array_equal(d.here.adjoint, step.adjoint)
    assert d.at_end
    assert d.step().reason == "end"


def test_position_zero_is_before_the_first_step():
    d, _ = worked_example()
    assert (d.position, d.here, d.path(), d.path_count()) == (0, None, [], 0)
    assert d.so_far("loss") == 1
    with pytest.raises(DebuggerError, match="Before the first step there is no adjoint"):
        d.evaluate("adjoint")
    d.step()
    assert d.back().reason == "start"
    assert d.back().reason == "start"
    assert d.here is None


def test_going_back_finds_the_very_same_steps():
    d, _ = worked_example()
    forward = []
    while d.step().reason != "end":
        forward.append(d.here)
    for step in reversed(forward):
        assert d.here is step
        d.back()
    assert d.position == 0


def test_several_steps_at_once_stop_at_a_breakpoint_on_the_way():
    d, _ = worked_example()
    assert d.step(3).reason == "step"
    assert d.position == 3
    d.break_at("A")
    assert d.step(100).reason == "breakpoint"
    assert d.here.node.name == "A"
    assert d.step(100).reason == "end"
    assert d.back(2).reason == "step"
    assert d.position == len(d.order) - 2


def test_no_gradient_is_touched_and_backward_gives_what_it_gives_without_a_debugger():
    d, model = worked_example()
    d.run()
    assert all(parameter.grad is None for parameter in model.parameters())
    d.loss.backward()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.grad, NOTES[name], rtol=1e-13, atol=1e-15)


def test_the_adjoints_that_are_kept_cannot_be_written():
    d, _ = worked_example()
    d.step(2)
    for expression in ("adjoint.fill(9)", "contribution.fill(9)", "contributions[1].fill(9)"):
        with pytest.raises(ValueError, match="read-only"):
            d.evaluate(expression)


def test_what_has_no_gradient_is_refused_as_by_backward():
    with pytest.raises(ValueError, match="requires a gradient"):
        Debugger(Tensor(1.0))
    with pytest.raises(ValueError, match="single number"):
        Debugger(Tensor([1.0, 2.0], requires_grad=True))
    d = Debugger(Tensor([1.0, 2.0], requires_grad=True, name="x"), gradient=[5.0, 7.0])
    d.step()
    assert d.here.adjoint.tolist() == [5, 7]
    assert d.at_end


def test_with_create_graph_the_walk_is_that_of_the_opened_graph_and_its_adjoints_are_tensors():
    model = models.WorkedExample()
    d = Debugger(model(), create_graph=True)
    assert not any(node.primitive and node.primitive.definition for node in d.order)
    d.break_at("S")
    d.watch("WQ[1, 0]")
    assert d.run().reason == "breakpoint"
    assert isinstance(d.here.adjoint, Tensor)
    np.testing.assert_allclose(d.here.adjoint.data, NOTES["S"], atol=1e-15)
    (arrival,) = d.run().arrivals
    assert arrival.after.item() == pytest.approx(NOTES["WQ"][1][0], abs=1e-15)


# Breakpoints


def test_a_breakpoint_stops_where_the_nodes_adjoint_is_complete_going_on_and_going_back():
    d, _ = worked_example()
    made = d.break_at("S")
    stop = d.run()
    assert (stop.reason, list(stop.breakpoints)) == ("breakpoint", [made])
    np.testing.assert_allclose(d.here.adjoint, NOTES["S"], atol=1e-15)
    assert d.run().reason == "end"
    assert d.run_back().breakpoints == [made]
    assert d.here.node.name == "S"
    assert d.run_back().reason == "start"
    assert made.hits == 2


def test_a_condition_stops_at_the_steps_where_it_is_true():
    d, _ = worked_example()
    d.break_at("np.abs(adjoint).max() > 1")
    stopped = []
    while d.run().reason == "breakpoint":
        stopped.append(d.here.node.name)
    assert stopped == [step.node.name for step in backward_steps(d.loss) if np.abs(step.adjoint).max() > 1]
    assert "X" in stopped
    assert "S" not in stopped


@pytest.mark.parametrize(
    ("condition", "first"),
    [
        ("node.is_leaf", "U"),
        ("output.shape == (2, 1)", "K"),
        ("len(inputs) == 1", "h"),
        ("any(earlier is not None for earlier in before)", "V"),
        ("node is S", "S"),
        ("not node.is_leaf and (contribution == 0).all()", None),
    ],
)
def test_conditions_see_the_step_and_the_named_nodes(condition, first):
    d, _ = worked_example()
    d.break_at(condition)
    stop = d.run()
    assert not stop.problems
    assert (d.here.node.name if stop.reason == "breakpoint" else None) == first


def test_a_temporary_breakpoint_stops_once():
    d, _ = worked_example()
    d.break_at("S", temporary=True)
    assert d.run().reason == "breakpoint"
    assert d.breakpoints == []
    d.run_back()
    assert d.run().reason == "end"


def test_a_condition_that_raises_stops_and_says_why_and_the_walk_goes_on():
    d, _ = worked_example()
    d.break_at("adjoint > 1")  # a whole array is neither true nor false; the loss is one number
    stop = d.run()
    assert d.position == 2
    assert len(stop.problems) == 1
    assert "adjoint > 1 raised ValueError: The truth value" in stop.problems[0]
    d.clear()
    assert d.run().reason == "end"


def test_a_wrong_name_lists_the_names_there_are():
    d, _ = worked_example()
    with pytest.raises(DebuggerError, match=r"No node is called 'logit'. Did you mean logits\?"):
        d.break_at("logit")
    with pytest.raises(DebuggerError, match="The names are: E, WQ, WK"):
        d.watch("W[1, 0]")
    with pytest.raises(DebuggerError, match="neither a node's name nor an expression"):
        d.break_at("S and")
    assert d.breakpoints == d.watches == []


def test_a_name_that_several_nodes_have_is_refused_with_a_condition_that_stops_at_all():
    h = Tensor(0.5, requires_grad=True, name="h0")
    for _ in range(3):
        h = named("h", np.tanh(h))
    d = Debugger(h)
    with pytest.raises(DebuggerError, match=r"name of 3 nodes.*node\.label == 'h'"):
        d.break_at("h")
    with pytest.raises(DebuggerError, match="name of 3 nodes"):
        d.evaluate("h")
    d.break_at("node.label == 'h'")
    assert [d.run().reason for _ in range(4)] == ["breakpoint"] * 3 + ["end"]


def test_a_name_inside_a_fused_node_says_how_to_see_it():
    x = Tensor(np.eye(2), requires_grad=True, name="x")
    with pytest.raises(DebuggerError, match=r"^S ran inside a fused step.*open_fused"):
        Debugger(np.sum(attention(x, x, x))).break_at("S")
    with pytest.raises(DebuggerError, match=r"^No node is called 'Sx'.*names are: x\.$"):
        Debugger(np.sum(attention(x, x, x))).break_at("Sx")
    with open_fused():
        d = Debugger(np.sum(attention(x, x, x)))
    d.break_at("S")
    assert d.run().reason == "breakpoint"


def test_of_several_fused_nodes_the_one_meant_is_named():
    x = h = Tensor(np.eye(2), requires_grad=True, name="x")
    for block in ("blocks.0", "blocks.1"):
        with Scope(block):
            h = named("Z", attention(h, h, h))
    x.data = 2 * np.eye(2)  # as by an optimiser's step
    d = Debugger(np.sum(h))
    with pytest.raises(DebuggerError, match=r"^blocks\.0\.S ran inside"):
        d.break_at("blocks.0.S")
    with pytest.raises(DebuggerError, match=r"^blocks\.0\.S, blocks\.1\.S ran inside"):
        d.break_at("S")
    with pytest.raises(DebuggerError, match=r"^'Z' is the name of 2 nodes"):
        d.break_at("Z")


def test_breakpoints_and_watches_are_cleared_by_number_by_text_or_all():
    d, _ = worked_example()
    first, second, third = d.break_at("S"), d.break_at("A"), d.break_at("Z")
    watch = d.watch("WQ[1, 0]")
    assert d.clear("A") == [second]
    assert d.clear(str(first.number)) == [first]
    with pytest.raises(DebuggerError, match=r"no breakpoint 'A'; there are: 3 \(Z\)"):
        d.clear("A")
    assert d.clear() == [third]
    assert d.unwatch("WQ[1, 0]") == [watch]
    with pytest.raises(DebuggerError, match="there are: none"):
        d.unwatch("1")
    assert d.run().reason == "end"


def test_a_session_takes_over_what_an_earlier_one_had_set():
    earlier, _ = worked_example()
    earlier.break_at("S")
    earlier.break_at("adjoint.size > 100")
    earlier.watch("WQ[1, 0]")
    again, _ = worked_example()
    assert again.take_over(earlier) == []
    assert [b.text for b in again.breakpoints] == ["S", "adjoint.size > 100"]
    assert again.run().reason == "breakpoint"
    assert again.here.node is again.find("S")
    other, _ = used_three_times()
    lost = other.take_over(earlier)
    assert [b.text for b in other.breakpoints] == ["adjoint.size > 100"]
    assert len(lost) == 2
    assert lost[0].startswith("Breakpoint S is dropped. No node is called 'S'.")


# Watches


def test_the_one_contribution_to_an_entry_of_WQ():
    d, _ = worked_example()
    watch = d.watch("WQ[1, 0]")
    stop = d.run()
    assert stop.reason == "watch"
    (arrival,) = stop.arrivals
    assert arrival.watch is watch
    assert (arrival.user.name, arrival.position, arrival.ordinal, arrival.expected) == ("Q", 1, 1, 1)
    assert arrival.before is None
    assert arrival.contribution == arrival.after == pytest.approx(NOTES["WQ"][1][0], abs=1e-15)
    assert arrival.rule == "∂L/∂WQ = Xᵀ @ ∂L/∂Q"
    assert d.so_far("WQ")[1, 0] == arrival.after

    assert d.back().reason == "step"
    with pytest.raises(DebuggerError, match="Nothing has reached WQ yet, after 11 of 19 steps"):
        d.so_far("WQ")
    assert d.run().arrivals == [arrival]
    assert d.run().reason == "end"


def test_every_contribution_to_an_entry_adds_up_to_its_gradient():
    d, _ = worked_example()
    d.watch("X[1, 1]")  # read by Q, K, V and the residual connection
    arrivals = []
    while (stop := d.run()).reason == "watch":
        arrivals += stop.arrivals
    assert [arrival.user.name for arrival in arrivals] == ["R", "V", "K", "Q"]
    assert [arrival.ordinal for arrival in arrivals] == [1, 2, 3, 4]
    assert {arrival.expected for arrival in arrivals} == {4}
    assert [arrival.before for arrival in arrivals] == [None, *[arrival.after for arrival in arrivals[:-1]]]
    assert arrivals[-1].after == pytest.approx(NOTES["X"][1][1], abs=1e-14)
    assert sum(arrival.contribution for arrival in arrivals) == pytest.approx(NOTES["X"][1][1], abs=1e-14)


def test_one_operation_that_uses_a_node_twice_makes_two_contributions_in_one_step():
    d, x = used_three_times()
    d.watch("x")
    first = d.run()
    assert [(a.before, a.contribution, a.after) for a in first.arrivals] == [(None, 1, 1)]
    assert d.so_far(x) == 1
    second = d.run()
    assert d.here.node.name == "square"
    assert [(a.before, a.contribution, a.after) for a in second.arrivals] == [(1, 3, 4), (4, 3, 7)]
    assert [(a.position, a.ordinal, a.expected) for a in second.arrivals] == [(0, 2, 3), (1, 3, 3)]
    assert d.so_far(x) == 7
    assert d.contributions_to(x) == [(1, 1), (2, 0), (2, 1)]
    d.back()
    assert d.so_far(x) == 1
    d.back()
    with pytest.raises(DebuggerError, match="Nothing has reached x yet"):
        d.so_far(x)


def test_going_back_from_the_end_stops_at_the_watched_contributions_in_reverse():
    d, x = used_three_times()
    d.run()
    assert d.at_end
    d.watch("x")
    assert [a.after for a in d.run_back().arrivals] == [4, 7]
    assert [a.after for a in d.run_back().arrivals] == [1]
    assert d.run_back().reason == "start"
    d.run()
    assert d.so_far(x) == 1


def test_a_watch_can_be_a_whole_tensor_or_any_index():
    d, _ = worked_example()
    d.watch("WQ")
    d.watch("X[1, :]")
    d.watch("Kᵀ[0, -1]")
    d.break_at("Q")
    assert [a.watch.text for a in d.run().arrivals] == ["X[1, :]"]
    while d.run().reason != "breakpoint":
        pass
    arrivals = d.arrivals()
    assert [a.watch.text for a in arrivals] == ["WQ", "X[1, :]"]
    np.testing.assert_allclose(arrivals[0].after, NOTES["WQ"], atol=1e-15)
    np.testing.assert_allclose(arrivals[1].after, NOTES["X"][1], atol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("WQ[2, 0]", r"not an entry of WQ, of shape \(2, 1\)"),
        ("WQ[0, 0, 0]", r"not an entry of WQ, of shape \(2, 1\)"),
        ("WQ[1,", "not an entry of WQ"),
        ("loss", "where the walk starts"),
        ("c", "No node is called 'c'"),
    ],
)
def test_entries_that_are_not_there_are_refused(text, message):
    d, _ = worked_example()
    with pytest.raises(DebuggerError, match=message):
        d.watch(text)


# Errors inside a rule


@primitive()
def cube(x):
    return x**3


@cube.rule("x", "∂L/∂{x} = 3 {x}² · ∂L/∂{y}")
def cube_wrt_x(g, y, x):
    raise ZeroDivisionError("this rule is broken")


def test_an_error_inside_a_rule_names_its_node_and_the_session_stays_usable(monkeypatch):
    x = Tensor(2.0, requires_grad=True, name="x")
    d = Debugger(named("L", 5 * named("y", cube(x))))
    for _ in range(2):
        with pytest.raises(DebuggerError, match=r"rule at y raised ZeroDivisionError: this rule is broken \(in cube_wrt_x"):
            d.run()
        assert d.here.node.name == "L"
    assert d.evaluate("contribution") == 5
    assert d.back().reason == "start"
    monkeypatch.setattr(cube, "rules", [lambda g, y, x: 3 * x**2 * g])
    assert d.run().reason == "end"
    assert d.here.adjoint == 60


def test_an_interrupted_walk_can_go_on(monkeypatch):
    def interrupted(g, y, x):
        raise KeyboardInterrupt

    x = Tensor(2.0, requires_grad=True, name="x")
    d = Debugger(named("L", 5 * named("y", cube(x))))
    monkeypatch.setattr(cube, "rules", [interrupted])
    with pytest.raises(KeyboardInterrupt):
        d.run()
    assert d.position == 1
    monkeypatch.setattr(cube, "rules", [lambda g, y, x: 3 * x**2 * g])
    assert d.run().reason == "end"
    assert d.here.adjoint == 60


# Looking


def test_expressions_see_the_step_and_every_named_node():
    d, _ = worked_example()
    d.break_at("Q")
    d.run()
    assert d.evaluate("node") is d.find("Q")
    assert d.evaluate("S").data.tolist() == [[0, 0], [1, 0]]
    np.testing.assert_array_equal(d.evaluate("inputs[0] @ inputs[1]"), d.evaluate("output"))
    np.testing.assert_array_equal(d.evaluate("after[0]"), d.evaluate("before[0] + contributions[0]"))
    np.testing.assert_array_equal(d.evaluate("contribution"), d.here.contributions[0])
    d.watch("WQ[1, 0]")
    np.testing.assert_array_equal(d.evaluate("contribution"), d.here.contributions[1])
    assert d.evaluate("[so_far(S).sum() for _ in range(2)]") == pytest.approx([0, 0], abs=1e-15)
    assert d.evaluate("all(np.isfinite(c).all() for c in contributions)")
    assert d.evaluate("loss") is d.loss
    with pytest.raises(ZeroDivisionError):
        d.evaluate("1 / 0")
    with pytest.raises(SyntaxError):
        d.evaluate("S +")
    with pytest.raises(DebuggerError, match="name 'logit' is not defined"):
        d.evaluate("logit + 1")


def test_expressions_find_nodes_by_path_by_number_and_as_they_are_shown():
    with Scope("blocks.0"):
        loss = models.WorkedExample()()
    d = Debugger(np.tanh(loss))
    S = d.find("S")
    assert S.path == "blocks.0.S"
    assert d.evaluate("blocks.0.S") is S
    assert d.evaluate("find('blocks.0.S')") is S
    assert d.evaluate(d.loss.label) is d.loss
    assert d.loss.label.startswith("tanh#")
    assert d.evaluate("Kᵀ").shape == (1, 2)
    assert d.evaluate("Kᵀ.T").shape == (2, 1)
    assert d.evaluate(f"so_far({d.loss.label!r})") == 1


def test_constants_are_in_scope_though_no_gradient_reaches_them():
    X = Tensor([[1.0, 2.0]], name="X")
    d = Debugger(np.sum(X @ Tensor([[3.0], [4.0]], requires_grad=True, name="W")))
    assert d.evaluate("X") is X
    with pytest.raises(DebuggerError, match="X receives no gradient"):
        d.watch("X[0, 0]")
    with pytest.raises(DebuggerError, match="X receives no gradient"):
        d.evaluate("so_far(X)")


def test_the_path_follows_the_first_contribution_and_all_paths_are_counted():
    d, _ = worked_example()
    d.break_at("Q")
    d.run()
    assert [node.label for node in d.path()] == ["loss", "logits", "h", "R", "(Z@WO)", "Z", "A", "S", "Q"]
    d.break_at("X")
    d.run()
    assert [node.label for node in d.path()] == ["loss", "logits", "h", "R", "X"]
    assert d.path_count() == 4

    y = x = Tensor(1.0, requires_grad=True)
    for _ in range(100):
        y = y * y
    d = Debugger(y)
    d.run()
    assert d.here.node is x
    assert d.path_count() == 2**100


def test_the_python_source_of_a_rule():
    d, _ = worked_example()
    assert "def matmul_wrt_b(" in rule_source(d.find("Q"), 1)
    assert rule_source(d.find("WQ"), 0) == ""
    x = Tensor(np.eye(2), requires_grad=True)
    assert "def attention_wrt_inputs(" in rule_source(attention(x, x, x), 0)


def test_a_chain_of_ten_thousand_nodes():
    y = Tensor(0.5, requires_grad=True, name="x")
    for i in range(10_000):
        y = named(f"n{i}", y + 1.0)
    d = Debugger(y)
    d.break_at("np.abs(adjoint).max() > 1")
    d.watch("x")
    assert d.run().reason == "watch"
    assert d.position == 10_000
    assert d.so_far("x") == 1
    assert len(d.path()) == 10_000
    assert d.run().reason == "end"
    assert d.run_back().reason == "watch"
    assert d.run_back().reason == "start"
