"""The model behind the drawings: its numbers are the engine's, the unknown stays unknown, and folding keeps the graph true."""

import json
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import Tensor, named
from chainrule.autograd import Scope, record_sources
from chainrule.autograd.graph import ancestors
from chainrule.autograd.ledger import trace
from chainrule.models import WorkedExample
from chainrule.nn import Module, Parameter, causal_mask, softmax
from chainrule.viz.folding import boxes, fold
from chainrule.viz.graph_model import clean, graph_model, number, view

NOTES = json.loads((Path(__file__).parent.parent / "data" / "worked_example.json").read_text())


def by_label(model):
    return {node.label: node for node in model.nodes}


def array(shown):
    assert shown.whole
    return np.array(shown.rows, dtype=float).reshape(shown.shape)


@pytest.fixture
def example():
    return WorkedExample()


# Numbers


def test_values_and_adjoints_are_those_of_the_notes(example):
    nodes = by_label(graph_model(example()))
    for name, expected in NOTES["forward"].items():
        if name != "p":  # inside the fused loss
            np.testing.assert_allclose(array(nodes[name].value), expected, rtol=1e-12, err_msg=name)
    for name, expected in NOTES["grads"].items():
        np.testing.assert_allclose(array(nodes[name].adjoint), expected, rtol=1e-12, atol=1e-15, err_msg=name)


def test_contributions_sum_to_the_adjoint(example):
    model = graph_model(example())
    for node in model.nodes:
        arriving = [array(edge.contribution) for edge in model.edges if edge.tail == node.id and edge.contribution]
        if node.kind not in ("output", "constant"):
            np.testing.assert_allclose(sum(arriving), array(node.adjoint), rtol=1e-12, atol=1e-15, err_msg=node.label)
    into_x = [edge for edge in model.edges if edge.tail == by_label(model)["X"].id]
    assert len(into_x) == 4  # Q, K, V and the residual


def test_no_grad_is_touched(example):
    example.WQ.grad = None
    loss = example()
    graph_model(loss)
    assert all(parameter.grad is None for parameter in example.parameters())
    assert loss.grad is None


def test_what_is_not_computed_is_none_and_not_zero(example):
    model = graph_model(example(), adjoints=False)
    assert all(node.adjoint is None for node in model.nodes)
    assert all(edge.contribution is None and edge.flow is None for edge in model.edges)
    assert all(node.tangent is None and node.flow is None and node.total is None for node in model.nodes)

    vector = graph_model(Tensor([1.0, 2.0], requires_grad=True) * 3.0)
    assert all(node.adjoint is None for node in vector.nodes)


def test_constants_have_no_adjoint_and_zero_adjoints_are_zero(example):
    nodes = by_label(graph_model(example()))
    assert nodes["mask"].adjoint is None
    assert array(nodes["Q"].adjoint)[0, 0] == 0.0


def test_rules_and_sources_are_told(example):
    with record_sources():
        loss = example()
    node = by_label(graph_model(loss))["Q"]
    assert node.rules == ["∂L/∂X = ∂L/∂Q @ WQᵀ", "∂L/∂WQ = Xᵀ @ ∂L/∂Q"]
    assert node.forward == "Q = matmul(X, WQ)"
    assert node.source.file == "worked_example.py"  # the name alone: a page is passed on, the folder is not
    assert 'named("Q", X @ self.WQ)' in node.source.text


def test_kinds(example):
    nodes = by_label(graph_model(example()))
    kinds = {name: nodes[name].kind for name in ("WQ", "X", "mask", "target = 2", "loss")}
    assert kinds == {"WQ": "parameter", "X": "operation", "mask": "constant", "target = 2": "constant", "loss": "output"}
    assert by_label(graph_model(Tensor(1.0, requires_grad=True, name="x") * 2.0))["x"].kind == "leaf"


def test_each_user_has_its_own_copy_of_a_constant():
    mask = Tensor(causal_mask(2, 2), name="mask")
    x = Tensor(np.eye(2), requires_grad=True)
    model = graph_model(np.sum(softmax(softmax(x, mask), mask)))
    copies = [node for node in model.nodes if node.label == "mask"]
    assert len(copies) == 2
    assert [sum(edge.tail == copy.id for edge in model.edges) for copy in copies] == [1, 1]


def test_an_input_used_twice_has_two_edges():
    x = Tensor(3.0, requires_grad=True)
    model = graph_model(x * x)
    assert [(edge.position, array(edge.contribution)) for edge in model.edges] == [(0, 3.0), (1, 3.0)]


def test_inputs_stand_before_their_users(example):
    model = graph_model(example())
    place = {node.id: i for i, node in enumerate(model.nodes)}
    assert all(place[edge.tail] < place[edge.head] for edge in model.edges)
    assert len(place) == len(model.nodes)


# Views


def test_small_arrays_are_whole_and_large_ones_a_corner_with_a_summary():
    small = view(np.arange(64.0).reshape(4, 4, 4))
    assert small.whole
    assert np.shape(small.rows) == (16, 4)
    large = np.random.default_rng(0).normal(size=(3, 20, 30))
    shown = view(large)
    assert not shown.whole
    np.testing.assert_array_equal(shown.rows, large.reshape(60, 30)[:6, :6])
    expected = {"min": large.min(), "max": large.max(), "mean": large.mean(), "norm": np.linalg.norm(large)}
    assert shown.summary == pytest.approx(expected, rel=1e-12)


def test_numbers_vectors_and_empty_arrays():
    assert view(2.5).rows == [[2.5]]
    assert view(np.array([1, 2])).rows == [[1, 2]]
    assert view(np.zeros((0, 3))).rows == []
    assert view(np.zeros((3, 0))).summary is None
    assert view(np.array([True, False])).rows == [[True, False]]


def test_the_model_is_strict_json_even_with_nan_and_infinity():
    x = Tensor([np.nan, np.inf, -np.inf, 1.0], requires_grad=True)
    model = graph_model(np.sum(x * 2.0))
    restored = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    assert restored["nodes"][0]["value"]["rows"] == [["NaN", "Infinity", "-Infinity", 1.0]]
    assert number(np.float32(0.5)) == 0.5


def test_text_is_cleaned():
    assert clean("a\nb\tc") == "a b c"
    assert clean("\x00\x1b\u202e\ud800\ufffe") == "�����"
    assert clean("患者 שלום ᵀ∂ 👩‍👩‍👧") == "患者 שלום ᵀ∂ 👩‍👩‍👧"


# Traces


def test_in_a_trace_what_flows_in_flows_out(example):
    account = trace(example(), example.E[0, 0])
    model = graph_model(None, trace=account)
    assert model.entry.total == account.total
    for node in model.nodes:
        if not node.traced:
            continue
        ins = [edge.flow for edge in model.edges if edge.head == node.id and edge.flow is not None]
        outs = [edge.flow for edge in model.edges if edge.tail == node.id and edge.flow is not None]
        if node.id != model.entry.node:
            assert fsum(ins) == pytest.approx(node.total, abs=1e-14)
        if node.id != model.output:
            assert fsum(outs) == pytest.approx(node.total, abs=1e-14)
        product = array(node.adjoint) * array(node.tangent)
        np.testing.assert_allclose(array(node.flow), product, rtol=1e-12, atol=0)


def test_a_trace_shows_the_entry_the_loss_and_what_lies_beside(example):
    model = graph_model(None, trace=trace(example(), example.WQ[1, 0]))
    nodes = by_label(model)
    assert nodes["WQ"].id == model.entry.node
    assert model.entry.index == (1, 0)
    assert {label for label, node in nodes.items() if not node.traced} == {
        "X", "Kᵀ", "V", "WO", "U", "mask", "target = 2",
    }  # fmt: skip
    assert "E" not in nodes  # what these are made of is not part of the account
    edge = next(edge for edge in model.edges if edge.tail == nodes["Kᵀ"].id)
    assert edge.flow is None  # WQ does not feed it: no flow, rather than a flow of 0


def test_what_an_interior_entry_is_made_of_is_not_shown(example):
    model = graph_model(None, trace=trace(example(), "S", (1, 0)))
    assert by_label(model)["S"].id == model.entry.node
    assert {edge.tail for edge in model.edges} == {node.id for node in model.nodes} - {model.output}
    assert not {"Q", "Kᵀ"} & set(by_label(model))


def test_cuts_name_the_nodes_and_edges_they_go_through(example):
    account = trace(example(), example.E[0, 0])
    model = graph_model(None, trace=account)
    nodes = by_label(model)
    ends = {edge.id: (edge.tail, edge.head) for edge in model.edges}
    cuts = {cut.name: cut for cut in model.cuts}
    assert list(cuts) == [cut.name for cut in account.cuts()]
    assert cuts["S"].nodes == [nodes["S"].id]
    assert sorted(ends[edge] for edge in cuts["S"].edges) == sorted(
        (nodes[tail].id, nodes[head].id) for tail, head in [("V", "Z"), ("X", "R")]
    )
    for cut in model.cuts:
        assert fsum(value for _, value in cut.terms) + cut.rest == pytest.approx(account.total, abs=1e-14)


def test_of_many_terms_the_strongest_are_kept_and_the_rest_summed():
    x = Tensor(2.0, requires_grad=True, name="x")
    y = named("y", x * np.arange(1.0, 101.0))
    model = graph_model(None, trace=trace(np.sum(y), x, ()))
    (cut,) = [cut for cut in model.cuts if cut.name == "y"]
    assert [value for _, value in cut.terms] == [2.0 * 0.5 * k for k in range(100, 76, -1)]
    assert cut.more == 76
    assert cut.rest == sum(range(1, 77))


# Folding


def chain(length):
    y = Tensor([0.5], requires_grad=True, name="x")
    for _ in range(length):
        y = np.tanh(y)
    return np.sum(y)


def check_is_true(model, graph, limit):
    """Every node of the graph is in one box, the boxes and edges make no cycle, and no box stands without its edges."""
    ids = [node.id for node in model.nodes]
    assert len(ids) == len(set(ids))
    place = {id_: i for i, id_ in enumerate(ids)}
    assert all(place[edge.tail] < place[edge.head] for edge in model.edges)
    shown = [node for node in model.nodes if node.kind not in ("fold", "constant")]
    assert len(shown) + model.hidden == len(ancestors(graph)) == model.size
    assert sum(node.hidden for node in model.nodes) == model.hidden
    assert {edge.tail for edge in model.edges} == set(ids) - {model.output}
    assert len(ids) <= limit


def test_long_chains_are_folded_but_for_their_ends():
    loss = chain(5000)  # deeper than Python's recursion limit
    model = graph_model(loss)
    check_is_true(model, loss, 300)
    assert [node.hidden for node in model.nodes if node.kind == "fold"] == [4994]
    assert model.nodes[0].label == "x"


def test_where_a_chain_forks_it_stays_in_sight():
    y = Tensor([0.5], requires_grad=True)
    for i in range(600):
        y = np.tanh(y)
        if i == 299:
            fork = named("fork", y)
    loss = np.sum(y * fork)
    model = graph_model(loss)
    check_is_true(model, loss, 300)
    assert [node.hidden for node in model.nodes if node.kind == "fold"] == [294, 294]
    assert by_label(model)["fork"].kind == "operation"


def test_a_leaf_that_others_use_too_stays_out_of_a_fold():
    W = Tensor(np.eye(2), requires_grad=True, name="W")
    b = Tensor(np.ones(2), requires_grad=True, name="b")
    h = np.tanh(np.tanh(np.tanh(Tensor(np.ones(2), requires_grad=True))))
    for _ in range(200):
        h = np.tanh(h @ W + b)
    loss = np.sum(np.tanh(np.tanh(h))) + np.sum(W)
    model = graph_model(loss)
    check_is_true(model, loss, 300)
    assert by_label(model)["W"].kind == "leaf"
    assert "b" not in by_label(model)  # all its users are in the fold


def test_entry_and_loss_are_never_folded():
    x = Tensor([0.5], requires_grad=True, name="x")
    with Scope("inner"):
        inside = named("inside", np.tanh(np.tanh(x)))
        loss = named("loss", np.sum(np.sin(np.exp(inside))))
    nodes = by_label(graph_model(None, trace=trace(loss, inside, (0,)), zoom="module"))
    assert (nodes["inside"].kind, nodes["loss"].kind) == ("operation", "output")
    assert by_label(graph_model(loss, zoom="module"))["loss"].kind == "output"


def test_small_graphs_are_not_folded(example):
    loss = example()
    for zoom in ("tensor", "module"):
        model = graph_model(loss, zoom=zoom)
        assert model.hidden == 0
        assert model.size == len(ancestors(loss)) == 19


def test_no_limit_folds_nothing():
    assert graph_model(chain(400), limit=None, adjoints=False).hidden == 0


class Inner(Module):
    def __init__(self):
        self.W = Parameter(np.eye(3))

    def forward(self, x):
        return np.tanh(x @ self.W)


class Block(Module):
    def __init__(self):
        self.first, self.second = Inner(), Inner()

    def forward(self, x):
        return x + self.second(self.first(x))


class Model(Module):
    def __init__(self, blocks):
        self.blocks = [Block() for _ in range(blocks)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return np.sum(x)


def test_zoom_module_makes_a_box_of_each_innermost_module():
    x = Tensor(np.ones((1, 3)), requires_grad=True, name="x")
    loss = Model(2)(x)
    model = graph_model(loss, zoom="module")
    check_is_true(model, loss, 300)
    folds = [(node.path, node.label, node.scope, node.operation) for node in model.nodes if node.kind == "fold"]
    assert folds == [
        (f"blocks.{i}.{part}", part, f"blocks.{i}", "2 operations, 1 parameter") for i in (0, 1) for part in ("first", "second")
    ]
    assert {(scope.path, scope.parent) for scope in model.scopes} == {("blocks.0", ""), ("blocks.1", "")}
    assert "x" in by_label(model)  # the input belongs to no module


def test_a_module_called_twice_is_two_boxes():
    inner = Inner()
    inner._label = "shared"
    between = np.exp(inner(Tensor(np.ones((1, 3)), requires_grad=True)))
    loss = np.sum(inner(between))
    model = graph_model(loss, zoom="module")
    check_is_true(model, loss, 300)
    assert [node.label for node in model.nodes if node.kind == "fold"] == ["shared", "shared"]


def test_deep_models_fold_by_module_then_by_block():
    x = Tensor(np.ones((1, 3)), requires_grad=True, name="x")
    for count, deepest in ((30, "blocks.7.first"), (80, "blocks.7"), (400, "blocks.3 … blocks.396")):
        loss = Model(count)(x)
        model = graph_model(loss, limit=200)
        check_is_true(model, loss, 200)
        assert deepest in [node.path for node in model.nodes if node.kind == "fold"]


def test_many_leaves_of_one_node_are_one_fold():
    loss = np.sum(np.stack([Tensor(float(i), requires_grad=True) for i in range(500)]))
    model = graph_model(loss)
    check_is_true(model, loss, 300)
    assert [node.operation for node in model.nodes if node.kind == "fold"] == ["500 leaves"]


def test_many_constants_of_one_node_are_not_all_drawn():
    x = Tensor(1.0, requires_grad=True)
    assert len(graph_model(np.sum(np.stack([x, *range(500)]))).nodes) <= 20


def test_edges_between_the_same_two_boxes_are_one_with_the_sum_of_their_flows():
    x = Tensor([0.3], requires_grad=True, name="x")
    with Scope("inner"):
        left, right = np.sin(x), np.cos(x)
    account = trace(np.sum(left * right), x, (0,))
    model = graph_model(None, trace=account, zoom="module")
    (fold,) = [node for node in model.nodes if node.kind == "fold"]
    (edge,) = [edge for edge in model.edges if edge.tail == fold.id]
    assert edge.flow == pytest.approx(account.total, rel=1e-14)


def test_folds_carry_the_flow_between_them():
    x = Tensor([0.3, 0.4], requires_grad=True, name="x")
    y = np.tanh(x)
    for _ in range(400):
        y = np.sin(y) + 0.1 * y
    account = trace(np.sum(y), x, (0,))
    model = graph_model(None, trace=account)
    assert model.hidden > 0
    for node in model.nodes:
        outs = [edge.flow for edge in model.edges if edge.tail == node.id and edge.flow is not None]
        if outs:
            assert fsum(outs) == pytest.approx(account.total, rel=1e-9)


@st.composite
def graphs(draw):
    """Random graphs whose nodes come from random modules, some of them called again and again."""
    nodes = [Tensor(1.0, requires_grad=True) for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(1, 40))):
        scope = draw(st.sampled_from(["", "a", "a.b", "a.b.c", "layers.0", "layers.1", "layers.1.d"]))
        left, right = (draw(st.sampled_from(nodes[-8:])) for _ in range(2))
        with Scope(scope):
            nodes.append(draw(st.sampled_from([np.add, np.multiply]))(left, right) if draw(st.booleans()) else np.tanh(left))
    return nodes[-1]


@given(graph=graphs(), zoom=st.sampled_from(["tensor", "module"]), limit=st.sampled_from([4, 10, 25, None]))
@settings(max_examples=60, deadline=None)
def test_any_graph_at_any_zoom_stays_true(graph, zoom, limit):
    model = graph_model(graph, zoom=zoom, limit=limit)
    check_is_true(model, graph, 10_000)
    groups = fold(ancestors(graph), zoom, limit, {graph})
    members = [node for group in groups for node in group.members]
    assert len(members) == len(set(members)) == model.size
    assert boxes(groups) == len(model.nodes)


# Refusals


def test_what_cannot_be_drawn_is_refused_with_a_reason(example):
    loss = example()
    with pytest.raises(ValueError, match=r"zoom is .*; got 'scalar'"):
        graph_model(loss, zoom="scalar")
    with pytest.raises(ValueError, match=r"zoom is .*; got 'atoms'"):
        graph_model(loss, zoom="atoms")
    with pytest.raises(TypeError, match="starts from a Tensor or a Trace; got float"):
        graph_model(2.0)
    with pytest.raises(ValueError, match="requires a gradient"):
        graph_model(Tensor(1.0))
