"""Scalar mode: the same code on arrays of Values gives the same values and the same gradients, number by number."""

import io
from contextlib import suppress

import numpy as np
import pytest
from differences import complex_step, numerical_gradient
from numpy.testing import assert_allclose, assert_array_equal
from primitive_table import each_kink, each_row

from chainrule import (
    Tensor,
    Value,
    as_graph,
    debug,
    gradcheck,
    gradients,
    named,
    nn,
    scalar_graph,
    scalar_mode,
    stop_gradient,
    trace,
    values,
    viz,
)
from chainrule.autograd import Scope
from chainrule.autograd.graph import ancestors as tensors_of
from chainrule.autograd.graph import find, replay
from chainrule.autograd.scalar import ValueArray, as_array, as_tensors, scalar_nodes
from chainrule.autograd.value import ancestors, zero_grad
from chainrule.models import WorkedExample
from chainrule.nn import Module, Parameter

REFUSED = {  # by scalar mode: primitives with no definition in simpler operations so far, and rows that need the like
    "cholesky", "cofactor", "det", "eigh", "eigvalsh", "inv", "lstsq", "p_norm", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "median", "quantile", "nanmax", "nanmin", "nanmedian", "nanquantile", "nanstd", "nanvar",
    "float_power", "frexp", "full_like", "nan_to_num", "piecewise",
}  # fmt: skip


def assert_same(y, tensors, arrays, run):
    """The scalar result equals the Tensor y, and so do the gradients of a weighted sum of its entries."""
    entries = as_array(run())
    assert entries.shape == y.shape
    assert_allclose(stop_gradient(entries), y.data, rtol=1e-13, atol=1e-13)
    weights = np.cos(np.arange(y.size)).reshape(y.shape)
    total = np.sum(y * weights)
    scalar_total = np.sum(entries * weights)
    if isinstance(scalar_total, Value):
        scalar_total.backward()
    wanted = gradients(total, tensors) if total.requires_grad else [np.zeros(x.shape) for x in tensors]
    for array, gradient in zip(arrays, wanted, strict=True):
        assert_allclose(array.grad, gradient, rtol=1e-12, atol=1e-12)


def check_row(row_id, call, inputs):
    tensors = [Tensor(x, requires_grad=True) for x in inputs]
    arrays = [values(x) for x in inputs]
    y = call(*tensors)
    try:
        assert_same(y, tensors, arrays, lambda: call(*arrays))
    except TypeError as error:  # a refusal is no wrong gradient
        if {str(error).split()[0], row_id.split()[0]}.isdisjoint(REFUSED):
            raise
        return
    if y.requires_grad:
        nodes = scalar_nodes(y)
        assert_same(y, tensors, [nodes.get(x, values(x)) for x in tensors], lambda: nodes[y])


@each_row
def test_every_row_of_the_table(row):
    check_row(row.id, row.call, row.arrays())


@each_kink
def test_conventions_at_kinks(kink):
    check_row(kink.id, kink.call, [np.array(x, dtype=float) for x in kink[2]])


# The worked example


def test_the_worked_example():
    model = WorkedExample()
    loss = model()
    wanted = dict(zip(dict(model.named_parameters()), gradients(loss, model.parameters()), strict=True))
    with scalar_mode(model) as parameters:
        scalar_loss = model()
    scalar_loss.backward()
    assert parameters.keys() == wanted.keys()
    assert sum(array.size for array in parameters.values()) == 24
    for path, array in parameters.items():
        assert_allclose(array.grad, wanted[path], rtol=0, atol=4e-16)
    assert_allclose(scalar_loss.data, loss.data, rtol=0, atol=5e-16)
    by_differences = numerical_gradient(
        lambda *arrays: replay(loss, dict(zip(model.parameters(), arrays, strict=True))),
        [parameter.data for parameter in model.parameters()],
        complex_step,
    )
    for array, expected in zip(parameters.values(), by_differences, strict=True):
        assert_allclose(array.grad, expected, rtol=0, atol=1e-15)

    nodes = ancestors(scalar_loss)
    assert len(nodes) == 86  # 22 parameters (C is not read) and 64 operations
    labels = {node.label: node.data for node in nodes}
    assert labels["S[1,0]"] == find(loss, "S").data[1, 0]
    assert labels["WQ[1,0]"] == 1.0
    assert {"Q[1,0]", "A[1,0]", "A[1,1]", "Z[1,1]", "R[1,0]", "logits[2]", "loss"} <= labels.keys()


def test_the_recorded_worked_example():
    model = WorkedExample()
    loss = model()
    nodes = scalar_nodes(loss)
    nodes[loss].item().backward()
    for parameter, wanted in zip(model.parameters(), gradients(loss, model.parameters()), strict=True):
        assert_allclose(nodes[parameter].grad, wanted, rtol=0, atol=4e-16)
    assert len(ancestors(scalar_graph(loss))) == 86


def test_the_module_is_as_before_also_after_an_exception():
    model = WorkedExample()
    before = model.parameters()
    with suppress(RuntimeError), scalar_mode(model):
        assert isinstance(model.E, ValueArray)
        raise RuntimeError
    assert all(now is then for now, then in zip(model.parameters(), before, strict=True))


class Part(Module):
    def __init__(self, W):
        self.W = W

    def forward(self, x):
        return named("h", np.tanh(x @ self.W))


class Nested(Module):
    def __init__(self):
        shared = Parameter([[0.5, -0.25], [1.0, 0.75]])
        self.parts = [Part(shared), Part(Parameter([[1.5, 0.5], [-0.5, 0.25]])), Part(shared)]
        self.biases = (Parameter([0.5, 0.25]), Parameter([1.0, -1.0]))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return np.sum((x + self.biases[0]) * self.biases[1])


def test_nested_modules_lists_and_shared_parameters():
    model, x = Nested(), np.array([[1.0, -2.0]])
    model(x).backward()
    with scalar_mode(model) as parameters:
        assert model.parts[0].W is model.parts[2].W
        loss = model(x)
    loss.backward()
    for path, parameter in model.named_parameters():
        assert_allclose(parameters[path].grad, parameter.grad, rtol=1e-14, atol=1e-15)
    labels = {node.label for node in ancestors(loss)}
    assert {"parts.0.W[0,1]", "parts.1.h[0,0]", "biases.1[1]"} <= labels


def test_attention_with_a_row_that_reads_nothing():
    mask = np.array([[False, False], [True, False]])
    Q, K, V = (values(np.arange(4.0).reshape(2, 2) + i) for i in range(3))
    Z = nn.attention(Q, K, V, mask)
    assert_array_equal(stop_gradient(Z)[0], [0, 0])
    np.sum(Z * Z).backward()
    assert_array_equal(Q.grad, np.zeros((2, 2)))
    assert_array_equal(V.grad, [[4.0, 6.0], [0.0, 0.0]])


# Arrays of Values


def test_names_of_entries():
    W = values([[1.0, 2.0]], name="W")
    assert [entry.label for entry in W.flat] == ["W[0,0]", "W[0,1]"]
    with Scope("block"):
        S = named("S", W * 2)
        same = named("X", W)
    assert S[0, 1].label == "block.S[0,1]"
    assert same[0, 1].label == "W[0,1]"
    assert named("y", Value(1.0)).label == "y"
    assert values(3.0, name="t").item().label == "t"


def test_gradients_and_zero_grad():
    W = values(Tensor([[1.0, 2.0]]))
    np.sum(W * W).backward()
    assert_array_equal(W.grad, [[2.0, 4.0]])
    zero_grad(W)
    assert_array_equal(W.grad, [[0.0, 0.0]])


def test_results_stay_arrays_of_values():
    W = values(np.ones((2, 3)))
    for y in (W.T, W[0], W + 1, 1 - W, W @ np.ones(3), np.ones(2) @ W, np.where(W > 0, W, 0), np.exp(W), W.mean(0), W[[0, 0]]):
        assert isinstance(y, ValueArray)
    assert isinstance(W.sum(), Value)
    assert (W > 0).dtype == bool
    assert np.isfinite(W).dtype == bool


def test_adding_in_place_rebinds():
    W = values([1.0, 2.0])
    x = W
    x += 1.0
    assert_array_equal(stop_gradient(W), [1.0, 2.0])
    assert_array_equal(stop_gradient(x), [2.0, 3.0])


@pytest.mark.parametrize("f", [np.linalg.inv, np.linalg.det, np.float_power])
def test_what_would_lose_the_gradient_is_refused(f):
    W = values(np.eye(2))
    with pytest.raises(TypeError, match=r"no definition in simpler operations|would lose their gradient"):
        f(W, 2) if f is np.float_power else f(W)


def test_what_is_not_covered_is_refused():
    with pytest.raises(TypeError, match="not covered"):
        np.fft.fft(values([1.0, 2.0]))


@pytest.mark.parametrize("x", [Value(1.0), values([1.0, 2.0])], ids=["Value", "array"])
def test_values_and_tensors_do_not_mix(x):
    t = Tensor([1.0, 2.0], requires_grad=True)
    for f in (lambda: t * x, lambda: x * t, lambda: np.maximum(t, x)):
        with pytest.raises(TypeError, match="do not mix"):
            f()


def test_numpys_own_arrays_of_objects_do_for_simple_things():
    v, w = Value(0.5), Value(2.0)
    np.sum(np.exp(np.array([v, w])) * np.array([w, v])).backward()
    assert_allclose([v.grad, w.grad], [2 * np.exp(0.5) + np.exp(2), np.exp(0.5) + 0.5 * np.exp(2)])


def test_a_scalar_graph_needs_a_single_number():
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        scalar_graph(Tensor([1.0, 2.0], requires_grad=True) * 2)


# Back to Tensors


def test_as_graph_is_the_same_graph():
    a, b = Value(2.0, "a"), Value(-3.0, "b")
    y = (2 - a * b).relu() / 3 + (a**b).sigmoid().maximum(0.5) - abs(b) + a**2 * a.tanh()
    y.label = "y"
    y.backward()
    tensors = as_tensors(y)
    graph = tensors[y]
    assert [node.label.split("#")[0] for node in tensors_of(graph)] == [v.label.split("#")[0] for v in ancestors(y)]
    assert graph.name == "y"
    for value, tensor in tensors.items():
        assert tensor.data == value.data
    steps = {step.node: step.adjoint for step in graph.backward_steps()}
    for value, tensor in tensors.items():
        assert_allclose(steps[tensor], value.grad, rtol=1e-14)
    assert_allclose([x.data for x in graph.inputs], [x.data for x in y.inputs])


def test_a_long_chain_as_tensors():
    y = x = Value(1.0)
    for _ in range(20_000):
        y = y * 1.0
    graph = as_graph(y)
    del y, x
    assert graph.item() == 1.0


def test_trace_of_values():
    model = WorkedExample()
    total = trace(model(), "WQ[1,0]").total
    with scalar_mode(model) as parameters:
        loss = model()
    t = trace(loss, parameters["WQ"][1, 0])
    assert_allclose(t.total, total, rtol=0, atol=4e-16)
    assert t.residual < 1e-15
    assert t.route_count == 7
    assert_allclose(sum(route.value for route in t.routes(10)), total, rtol=1e-12)
    assert t.check().verdict == "ok"
    assert trace(loss, "WQ[1,0]").total == t.total
    assert t["S[1,0]"].total == trace(loss, "S[1,0]")["S[1,0]"].adjoint * t["S[1,0]"].tangent
    with pytest.raises(ValueError, match="does not depend"):
        trace(loss, Value(1.0, "other"))


# The tools that read graphs


def test_drawing_number_by_number():
    loss = WorkedExample()()
    drawing = viz.draw(loss, zoom="scalar")
    labels = {node.label for node in drawing.model.nodes}
    assert {"WQ[1,0]", "S[1,0]", "logits[2]", "loss"} <= labels
    assert drawing.to_svg().rstrip().endswith("</svg>")
    a = Value(2.0, "a")
    assert "a" in {node.label for node in viz.draw(a * a + 1).model.nodes}


def test_debugging_values():
    a = Value(2.0, "a")
    out = io.StringIO()
    debug((a * a).tanh(), stdin=io.StringIO("break a\ncontinue\np adjoint\nquit\n"), stdout=out)
    assert "0.0053" in out.getvalue()


def test_gradcheck_of_functions_of_values():
    assert gradcheck(lambda a, b: (a * b + a.relu()).tanh() / 3, Value(0.5, "a"), Value(-0.25)).ok
    report = gradcheck(lambda a: abs(a), Value(0.0, "a"))
    assert report.entries[0].verdict == "kink"
    assert report.entries[0].name == "a"
    with pytest.raises(TypeError, match="A function of Values returns a Value; got float"):
        gradcheck(lambda a: 2.0, Value(1.0))
