"""The flow ledger: totals, cuts, routes and the account."""

import json
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import Tensor, grad, named, nn, record_sources, trace
from chainrule.autograd import Scope
from chainrule.autograd.describe import entry_label
from chainrule.autograd.graph import ancestors, find
from chainrule.autograd.ledger import parse_entry
from chainrule.models import WorkedExample

ULP = np.finfo(float).eps


@pytest.fixture
def example():
    with record_sources():
        model = WorkedExample()
        return model, model()


# The worked example


def test_the_total_is_the_gradient_for_all_24_parameters(example):
    model, loss = example
    loss.backward()
    entries = [(p, index) for p in model.parameters() for index in np.ndindex(p.shape)]
    assert len(entries) == 24
    for p, index in entries:
        t = trace(loss, p, index)
        assert abs(t.total - p.grad[index]) <= 4 * ULP
        assert t.residual <= 16 * ULP
        assert t.check().verdict == "ok"


def test_wq(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    assert t.total == pytest.approx(0.13356231995911, abs=1e-15)
    assert t.name == "WQ[1,0]"
    for name in ("Q", "S", "A", "Z", "R", "logits"):
        cut = t.cut(name)
        assert cut.residual <= 4 * ULP
        assert cut.total == pytest.approx(t.total, abs=4 * ULP)


def test_the_cut_at_a_has_the_two_terms_of_the_notes(example):
    model, loss = example
    cut = trace(loss, model.WQ[1, 0]).cut("A")
    (prefix, by_prefix), (itself, by_self) = cut.terms
    a = 0.7310585786300049
    g_h = [1.2609452620321295, 0.5816257631741115]
    assert (prefix, itself) == ("A[1,0]", "A[1,1]")
    assert by_prefix == pytest.approx(g_h[0] * a * (1 - a), abs=1e-15)
    assert by_self == pytest.approx(-g_h[1] * a * (1 - a), abs=1e-15)
    assert cut.cancellation == pytest.approx((by_prefix - by_self) / (by_prefix + by_self))


def test_nothing_flows_through_the_score_of_self_or_the_residual(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    assert t["S"].flow[1, 1] == 0
    assert t["S"].flow[1, 0] == pytest.approx(t.total, abs=1e-16)
    residual = next(edge for edge in t["R"].edges if edge.input.label == "X")
    assert not residual.fed
    assert residual.flow == 0
    assert residual.contribution is None
    with pytest.raises(KeyError, match=r"WQ\[1,0\] does not feed X"):
        t["X"]


def test_routes_of_the_worked_example(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    assert t.route_count == 3  # by the prefix to logits 0 and 2, by the position itself to logit 1; the other edges are 0
    routes = t.routes()
    assert fsum(route.value for route in routes) == pytest.approx(t.total, abs=1e-15)
    way = " → ".join(routes[0].path)
    assert way == "WQ[1,0] → Q[1,0] → S[1,0] → A[1,0] → Z[1,0] → (Z@WO)[1,0] → R[1,0] → h[0] → logits[2] → loss"
    assert [abs(r.value) for r in routes] == sorted((abs(r.value) for r in routes), reverse=True)
    assert len(t.routes(2)) == 2
    assert t.routes(0) == []


def test_the_account_reads_from_loss_to_entry(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    t.check()
    text = str(t)
    assert text.startswith("∂loss/∂WQ[1,0] = 0.1335623199591")
    order = [text.index(f"● {name} ") for name in ("loss", "logits", "h", "R", "Z", "A", "S", "Q")]
    assert order == sorted(order)
    assert "∂L/∂logits = p - 1[target]\n" in text
    assert "∂L/∂WQ = Xᵀ @ ∂L/∂Q\n" in text
    assert "X → R carries 0: WQ does not feed X" in text
    assert 'logits = named("logits", h @ self.U)' in text  # the source line
    assert "3 routes from WQ[1,0] to loss" in text
    assert "checked by differences: 0.13356231995" in text
    assert text.endswith(": ok")


def two_blocks(d=4):
    """Each block has an S, a Z and an R."""
    rng = np.random.default_rng(0)
    h = Tensor(rng.normal(size=(5, d)), requires_grad=True, name="X")
    for block in ("blocks.0", "blocks.1"):
        with Scope(block):
            W = Tensor(rng.normal(size=(d, d)), requires_grad=True, name="W")
            S = named("S", np.tanh(h @ W))
            h = named("R", h + named("Z", S * S))
    return named("loss", np.sum(h))


def test_a_label_that_several_nodes_have_is_told_by_its_path():
    t = trace(two_blocks(), "X[0,0]")
    inside = {"blocks.0.S", "blocks.0.Z", "blocks.0.R", "blocks.1.S", "blocks.1.Z", "blocks.1.R"}
    for route in t.routes(20):
        places = {place.partition("[")[0] for place in route.path}
        assert not places & {"S", "Z", "R"}
        assert {"X", "blocks.0.R", "blocks.1.R", "loss"} <= places <= inside | {"X", "loss", *places - {"S", "Z", "R", "W"}}
    assert {label.partition("[")[0] for label, _ in t.cut("blocks.1.Z").terms} == {"blocks.1.Z", "blocks.0.R"}
    lines = str(trace(two_blocks(1), "X[0,0]")).splitlines()
    assert [line.split()[1] for line in lines if "● " in line and "R = add" in line] == ["blocks.1.R", "blocks.0.R"]


def test_the_account_of_a_larger_graph_is_a_table():
    t = trace(two_blocks(), "blocks.0.W[0,0]")
    lines = str(t).splitlines()
    assert len(lines) < 30
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["node"])
    rows = [line.split() for line in lines[start + 1 : start + 9]]
    names = ["loss", "blocks.1.R", "blocks.1.Z", "blocks.1.S", "blocks.0.R", "blocks.0.Z", "blocks.0.S", "blocks.0.W"]
    assert [row[0] for row in rows] == names
    for row, name in zip(rows, names, strict=True):
        assert float(row[-1]) == pytest.approx(t.cut(name).cancellation, rel=1e-3)
        largest, value = max(t.cut(name).terms, key=lambda term: abs(term[1]))
        assert largest in " ".join(row)
        assert f"{value:+.7g}" in row
        assert f"{t[name].total:.7g}" in row
    assert f"8 of {len(t.nodes)} nodes are shown, those with a name." in str(t)


def test_parts_of_the_account_can_be_printed(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    assert str(t.cut("A")).splitlines() == [
        "cut A, the largest terms first",
        "  A[1,0]  +0.2479169",
        "  A[1,1]  -0.1143546",
        "  total   +0.1335623",
        f"cancellation 2.712 (Σ|term| / |Σ term|), residual {t.cut('A').residual:.1g}",
    ]
    assert repr(t.cut("A")) == "<Cut at A: 2 terms, total 0.1335623>"
    assert str(t["A"]).splitlines()[0] == "A = softmax(S, bool[2, 2])"
    assert str(t["A"]).splitlines()[-1].split() == ["A[1,1]", "0.2689414", "0.5816258", "-0.1966119", "-0.1143546"]
    assert repr(t["A"]) == "<NodeFlow of A, of shape (2, 2): 0.1335623>"
    assert [repr(edge) for edge in t["A"].edges] == ["<EdgeFlow S → A: 0.1335623>", "<EdgeFlow a constant → A: 0>"]


def test_a_long_cut_shows_its_largest_terms():
    w = Tensor(np.arange(1.0, 31.0), requires_grad=True, name="w")
    loss = np.sum(named("h", 2.0 * w))
    lines = str(trace(loss, w).cut("h")).splitlines()
    assert lines[1:3] == ["  h[0]       +4", "  h[1]       +4"]
    assert lines[-3:-1] == ["  10 more   +40", "  total    +120"]
    assert len(lines) == 1 + 20 + 3


def test_the_account_of_a_whole_tensor_says_what_its_total_is(example):
    _, loss = example
    whole, row = trace(loss, "WQ"), trace(loss, "WV[1]")
    lines = str(whole).splitlines()
    assert lines[0] == f"Σ (∂loss/∂WQ)² = {whole.total!r}"
    assert "The squared norm of the gradient of WQ: how fast loss changes along it." in lines
    assert "The squared norm of the gradient of WV, in the entries asked for: how fast loss changes along it." in str(row)
    assert repr(whole) == f"<Trace of Σ (∂loss/∂WQ)² = {whole.total!r} over 10 nodes>"


def test_as_data(example):
    model, loss = example
    t = trace(loss, model.WQ[1, 0])
    data = json.loads(t.to_json())
    assert data == json.loads(json.dumps(t.to_dict()))
    assert data["total"] == t.total
    assert data["check"] is None
    names = [node["name"] for node in data["nodes"]]
    assert names[0] == "WQ"
    assert names[-1] == "loss"
    logits = data["nodes"][names.index("logits")]
    assert logits["adjoint"] == pytest.approx([0.33965974942900906, 0.5816257631741115, -0.9212855126031205], abs=1e-15)
    assert logits["line"].startswith('logits = named("logits"')
    assert [cut["name"] for cut in data["cuts"]] == ["WQ", "Q", "S", "A", "Z", "R", "h", "logits", "loss"]
    t.check()
    assert t.to_dict()["check"]["verdict"] == "ok"


# What can be traced


def test_ways_to_say_the_target(example):
    model, loss = example
    same = [
        trace(loss, model.WQ[1, 0]),
        trace(loss, model.WQ, index=(1, 0)),
        trace(loss, "WQ[1,0]"),
        trace(loss, "WQ[ -1 , 0 ]"),
        trace(loss, model.WQ[1][0]),
        trace(loss, model.WQ[1:, 0][0]),
    ]
    assert len({t.total for t in same}) == 1
    assert {t.index for t in same} == {(1, 0)}


def test_a_whole_tensor_goes_along_its_own_gradient(example):
    model, loss = example
    loss.backward()
    for p in model.parameters():
        t = trace(loss, p)
        assert t.total == pytest.approx(np.sum(p.grad**2), rel=1e-14)
        assert t.residual <= 32 * ULP
        assert t.check().verdict == "ok"
    row = trace(loss, model.WV[1])
    assert row.total == pytest.approx(np.sum(model.WV.grad[1] ** 2), rel=1e-14)


def test_an_interior_entry_can_be_traced(example):
    _, loss = example
    loss.backward(retain_grad=True)
    s = find(loss, "S")
    t = trace(loss, s[1, 1])
    assert t.total == pytest.approx(s.grad[1, 1], abs=1e-16)
    assert t.nodes[0].node is s


def test_several_branches_meet_in_every_cut(example):
    model, loss = example
    t = trace(loss, model.E[0, 0])
    for cut in t.cuts(every=True):
        assert cut.total == pytest.approx(t.total, abs=8 * ULP)
    at_a = dict(t.cut("A").terms)
    assert "V[0,0] → Z" in at_a  # passes A by
    x = t["X"]
    assert len(x.users) == 4
    assert fsum(edge.flow for edge in x.users) == pytest.approx(x.total, abs=4 * ULP)


def test_fused_attention_is_opened():
    rng = np.random.default_rng(0)
    Q, K, V = (Tensor(rng.normal(size=(4, 3)), requires_grad=True, name=name) for name in "QKV")
    loss = named("loss", np.sum(np.sin(named("Z", nn.attention(Q, K, V, nn.causal_mask(4, 4))))))
    assert "S" not in [node.label for node in ancestors(loss)]
    t = trace(loss, Q[2, 1])
    loss.backward()
    assert t.total == pytest.approx(Q.grad[2, 1], abs=1e-15)
    assert t.cut("S").residual <= 8 * ULP
    assert t.cut("A").residual <= 8 * ULP
    assert t["Z"].node.label == "Z"


def test_twice_the_same_input():
    x = Tensor(3.0, requires_grad=True, name="x")
    t = trace(named("y", x * x), x)
    assert t.total == 6
    assert len(t["y"].edges) == 2
    assert t.route_count == 2
    assert [route.value for route in t.routes()] == [3, 3]


def test_routes_are_counted_without_listing():
    x = Tensor(1.0, requires_grad=True, name="x")
    y = x
    for _ in range(200):
        y = y + y
    t = trace(y, x)
    assert t.route_count == 2**200
    assert t.total == 2.0**200
    assert [route.value for route in t.routes(3)] == [1, 1, 1]


def test_routes_of_a_large_graph_go_from_node_to_node():
    rng = np.random.default_rng(0)
    W = Tensor(rng.normal(size=(300, 300)) / 17, requires_grad=True, name="W")
    h = np.tanh(rng.normal(size=(50, 300)) @ W)
    y = named("y", np.sum(h * h + h))
    t = trace(y, W[0, 0])
    assert t.route_count == 3
    assert fsum(route.value for route in t.routes()) == pytest.approx(t.total)
    assert all("[" not in place for route in t.routes() for place in route.path)


def test_a_chain_of_100_000_nodes():
    x = Tensor(0.5, requires_grad=True, name="x")
    y = x
    for _ in range(50_000):
        y = np.sin(y * 1.0001)
    y.backward()
    t = trace(y, x)
    assert t.total == pytest.approx(float(x.grad), rel=1e-12)
    assert t.residual < 1e-15
    assert t.route_count == 1
    assert "⋮  99,961 more nodes" in str(t)


def test_zero_flow_and_infinite_slopes():
    x = Tensor([0.0, 4.0], requires_grad=True, name="x")
    y = named("y", np.sum(np.where(x > 0, np.sqrt(x), 0)))
    t = trace(y, x[0])
    assert t.total == 0
    assert t.residual == 0
    assert trace(y, x[1]).total == 0.25
    zero = named("zero", np.sum(x - x))
    t = trace(zero, x[1])
    assert t.total == 0
    assert t.cut("x").cancellation == 1
    assert trace(zero, "x").total == 0
    assert [cut.cancellation for cut in t.cuts(every=True)][1:2] == [np.inf] or t.cut("zero").total == 0


def test_float32_graphs_are_accounted_in_float64():
    W = Tensor(np.ones((2, 2), np.float32), requires_grad=True, name="W")
    t = trace(np.sum(np.exp(W @ W)), W[0, 1])
    assert t["W"].flow.dtype == np.float64
    assert t.residual < 1e-4


# Mistakes


def test_mistakes_are_explained(example):
    model, loss = example
    with pytest.raises(KeyError, match=r"'Wq'.* Did you mean WQ"):
        trace(loss, "Wq[1,0]")
    with pytest.raises(IndexError, match=r"WQ has shape \(2, 1\)"):
        trace(loss, "WQ[2,0]")
    with pytest.raises(IndexError, match="picks no entry"):
        trace(loss, "WQ[2:]")
    with pytest.raises(ValueError, match="made of integers and slices"):
        trace(loss, "WQ[one]")
    with pytest.raises(ValueError, match=r"does not depend on other"):
        trace(loss, Tensor(1.0, requires_grad=True, name="other"))
    with pytest.raises(TypeError, match="got float"):
        trace(loss, 0.5)
    with pytest.raises(ValueError, match="starts from a single number"):
        trace(find(loss, "S"), model.WQ[1, 0])
    with pytest.raises(ValueError, match="requires a gradient"):
        trace(Tensor(1.0), model.WQ[1, 0])


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("WQ", "WQ", None),
        ("blocks.0.attn.WQ[1, 0]", "blocks.0.attn.WQ", (1, 0)),
        ("W[:, -1]", "W", (slice(None), -1)),
        ("W[1:3:2,...]", "W", (slice(1, 3, 2), Ellipsis)),
        ("b[]", "b", ()),
    ],
)
def test_parse_entry(text, name, key):
    assert parse_entry(text) == (name, key)


def test_entry_label():
    assert entry_label("S", (1, 0)) == "S[1,0]"
    assert entry_label("X → R", (0, 1)) == "X[0,1] → R"
    assert entry_label("loss", ()) == "loss"


# Any graph


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_flow_is_conserved_in_random_graphs(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    nodes = [Tensor(rng.normal(size=(2, 3)), requires_grad=True, name="θ")]
    for _ in range(data.draw(st.integers(1, 12))):
        a, b = (nodes[data.draw(st.integers(0, len(nodes) - 1))] for _ in range(2))
        make = data.draw(st.sampled_from([np.add, np.multiply, np.subtract, lambda a, b: np.tanh(a), lambda a, b: a @ b.T @ a]))
        nodes.append(np.tanh(make(a, b)))
    loss = named("loss", np.sum(nodes[-1] * nodes[data.draw(st.integers(0, len(nodes) - 1))]))
    index = (data.draw(st.integers(0, 1)), data.draw(st.integers(0, 2)))
    if nodes[0] not in ancestors(loss):
        return
    t = trace(loss, nodes[0], index)

    assert t.total == pytest.approx(grad(lambda x: _replayed(loss, nodes[0], x))(nodes[0].data)[index], abs=1e-12)
    size = max(float(np.sum(np.abs(flow.flow))) for flow in t.nodes) + 1
    assert t.residual <= 1e-13 * size
    for cut in t.cuts(every=True):
        assert abs(cut.total - t.total) <= 1e-12 * (size + sum(np.abs(flow).sum() for _, flow in cut.parts))
    assert t.route_count >= (t.total != 0)


def _replayed(loss, leaf, x):
    from chainrule.autograd.graph import replay

    return replay(loss, {leaf: x})
