"""The Value: its arithmetic, its chain rule, and that it holds what NumPy would."""

import copy
import gc
import math
import operator
import pickle
import tracemalloc

import numpy as np
import pytest
from differences import ridders
from numpy.testing import assert_allclose

from chainrule import Tensor, Value
from chainrule.autograd.value import ancestors, zero_grad

inf, nan = math.inf, math.nan

BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "pow": operator.pow,
}
UNARY = {
    "neg": (operator.neg, [-1.5, 2.0]),
    "abs": (abs, [-1.5, 2.0]),
    "relu": (Value.relu, [-1.5, 2.0]),
    "tanh": (Value.tanh, [-1.5, 0.3]),
    "sigmoid": (Value.sigmoid, [-1.5, 0.0, 0.3]),
    "exp": (Value.exp, [-1.5, 0.3]),
    "log": (Value.log, [0.3, 2.0]),
    "sqrt": (Value.sqrt, [0.3, 2.0]),
    "sin": (Value.sin, [-1.5, 0.3]),
    "cos": (Value.cos, [-1.5, 0.3]),
}


def slope(f, x):
    v = Value(x)
    f(v).backward()
    return v.grad


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [3, 2.5, np.float64(2.5), np.float32(1.5), np.int64(3), np.array(2.5)], ids=repr)
def test_operators_with_numbers_on_either_side(name, number):
    f, same = BINARY[name], float(number)
    for call, expected in (
        (lambda x: f(x, number), lambda x: f(x, same)),
        (lambda x: f(number, x), lambda x: f(same, x)),
    ):
        assert isinstance(call(Value(1.7)), Value)
        assert_allclose(call(Value(1.7)).data, expected(1.7), rtol=1e-15)
        assert_allclose(slope(call, 1.7), ridders(lambda t, expected=expected: expected(1.7 + t)), rtol=1e-9)


@pytest.mark.parametrize("name", BINARY)
def test_operators_of_two_values(name):
    f = BINARY[name]
    a, b = Value(1.7), Value(-2.3)
    y = f(a, b)
    y.backward()
    assert_allclose(y.data, f(1.7, -2.3), rtol=1e-15)
    assert_allclose(a.grad, ridders(lambda t: f(1.7 + t, -2.3)), rtol=1e-9)
    assert_allclose(b.grad, ridders(lambda t: f(1.7, -2.3 + t)), rtol=1e-9)


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    f, numbers = UNARY[name]
    for x in numbers:
        assert_allclose(slope(f, x), ridders(lambda t, x=x: f(Value(x + t)).data), rtol=1e-9)


def test_an_array_times_a_value_is_an_array_of_values():
    v = Value(3.0)
    for y in (np.array([1.0, 2.0]) * v, v * np.array([1.0, 2.0])):
        assert y.dtype == object
        assert [entry.data for entry in y] == [3.0, 6.0]
    (np.array([1.0, 2.0]) @ np.array([v, v])).backward()
    assert v.grad == 3.0


def test_what_is_no_number_is_refused():
    with pytest.raises(TypeError):
        Value(1.0) + "1"
    with pytest.raises(TypeError):
        Value(1j)
    with pytest.raises(TypeError):
        [] * Value(1.0)


def test_the_example_of_micrograds_readme():
    a, b = Value(-4.0), Value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    assert f"{g.data:.4f}" == "24.7041"
    assert f"{a.grad:.4f}" == "138.8338"
    assert f"{b.grad:.4f}" == "645.5773"


# The chain rule


def test_leaves_accumulate_interior_nodes_are_fresh_and_the_graph_survives():
    x = Value(3.0)
    y = x * x
    z = y + y
    z.backward()
    z.backward()
    assert (x.grad, y.grad, z.grad) == (24.0, 2.0, 1.0)
    zero_grad([x])
    y.backward()
    assert (x.grad, y.grad) == (6.0, 1.0)
    x.backward()
    assert x.grad == 7.0


def test_a_gradient_that_is_zero_is_fresh_too():
    x, w = Value(1.0), Value(1.0)
    y = x * 1
    z = y * w
    z.backward()
    assert y.grad == 1.0
    (z * 0).backward()
    assert (y.grad, z.grad) == (0.0, 0.0)


def test_changing_data_changes_nothing_computed_before():
    x = Value(3.0)
    y = x * x
    x.data = 5.0
    y.backward()
    assert (y.data, x.grad) == (9.0, 6.0)


def test_a_chain_of_100_000():
    x = y = Value(1.0)
    for _ in range(100_000):
        y = y * 1.0
    y.backward()
    assert x.grad == 1.0
    assert sum(1 for _ in y.backward_steps()) == len(ancestors(y)) == 100_001
    del y


def test_steps_are_what_backward_does():
    a, b = Value(2.0, "a"), Value(-3.0, "b")
    c = a * b
    y = (c + a).tanh() - c**2
    steps = list(y.backward_steps())
    assert [step.node for step in steps] == sorted(ancestors(y), key=lambda v: -v.index)
    assert a.grad == 0.0
    y.backward()
    for step in steps:
        assert step.adjoint == step.node.grad
        assert all((x is None) == (slope is None) for x, slope in zip(step.contributions, step.node.slopes, strict=True))
    received = [after for step in steps for x, after in zip(step.node.inputs, step.after, strict=True) if x is a]
    assert received[-1] == a.grad


def test_a_loop_leaves_nothing_behind():
    x = Value(0.5)

    def step():
        y = x
        for _ in range(200):
            y = (y * x + 1.0).tanh()
        y.backward()

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        step()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            step()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
        assert gc.collect() == 0
    finally:
        tracemalloc.stop()
        gc.enable()


# Conventions


@pytest.mark.parametrize(
    ("f", "x", "value", "wanted"),
    [
        (Value.relu, 0.0, 0.0, 0.0),
        (abs, 0.0, 0.0, 0.0),
        (lambda v: v**0, 0.0, 1.0, 0.0),
        (lambda v: v**0, 2.0, 1.0, 0.0),
        (lambda v: 0.0**v, 1.0, 0.0, 0.0),
        (lambda v: v**3, -2.0, -8.0, 12.0),
        (lambda v: v.maximum(1), 1.0, 1.0, 0.5),
        (lambda v: v.minimum(1), 1.0, 1.0, 0.5),
        (lambda v: v.maximum(v), 1.0, 1.0, 1.0),
        (lambda v: v.maximum(inf), inf, inf, 0.5),
        (lambda v: v.maximum(3), 1.0, 3.0, 0.0),
        (lambda v: v.minimum(3), 1.0, 1.0, 1.0),
        (lambda v: v.sqrt() * 0, 0.0, 0.0, 0.0),
        (Value.sqrt, 0.0, 0.0, inf),
        (Value.log, 0.0, -inf, inf),
        (Value.exp, 1000.0, inf, inf),
        (Value.sigmoid, -1000.0, 0.0, 0.0),
        (Value.sigmoid, 1000.0, 1.0, 0.0),
        (Value.tanh, 1000.0, 1.0, 0.0),
        (lambda v: 1 / v, 0.0, inf, -inf),
    ],
)
def test_conventions(f, x, value, wanted):
    assert f(Value(x)).data == value
    assert slope(f, x) == wanted


@pytest.mark.parametrize("f", [Value.log, Value.sqrt, lambda v: v**0.5], ids=["log", "sqrt", "power"])
def test_outside_the_domain_there_is_nan(f):
    y = f(Value(-1.0))
    assert math.isnan(y.data)


def test_relu_and_maximum_of_nan():
    assert math.isnan(Value(nan).relu().data)
    assert math.isnan(Value(nan).maximum(1).data)
    assert math.isnan(Value(1.0).minimum(nan).data)


# What it is


def test_it_compares_by_number_and_hashes_by_identity():
    a, b = Value(1.0), Value(1.0)
    assert a == b == 1.0
    assert a != 2
    assert a < 2 <= Value(2.0)
    assert 3 > a >= b
    assert len({a, b}) == 2
    assert not Value(0.0)
    assert float(a) == 1.0
    assert a != "a"


def test_inputs_and_slopes():
    v = Value(3.0, "v")
    y = 2 - v
    assert (y.inputs, y.slopes, y.op) == ((2, v), (None, -1.0), "subtract")
    assert ((-v).inputs, (-v).slopes) == ((v,), (-1.0,))
    assert (v.inputs, v.slopes, v.op) == ((), (), "")


def test_labels_and_text():
    v = Value(3.0, "v")
    y = v * 2
    assert (v.label, y.label, repr(v)) == ("v", f"multiply#{y.index}", "Value(3.0, label='v')")
    assert repr(y) == "Value(6.0, from multiply)"
    assert f"{y:.2f}" == "6.00"
    y.label = "y"
    assert repr(y) == "Value(6.0, label='y', from multiply)"


@pytest.mark.parametrize("f", [np.exp, np.tanh, np.sqrt, np.square, np.arctan, np.log1p, np.absolute, np.cbrt])
def test_functions_of_numpy(f):
    v, t = Value(0.7), Tensor(0.7, requires_grad=True)
    y = f(v)
    y.backward()
    f(t).backward()
    assert isinstance(y, Value)
    assert_allclose((y.data, v.grad), (f(0.7), t.grad), rtol=1e-15)


def test_leaves_can_be_copied_and_interior_nodes_refuse():
    a = Value(2.0, "a")
    (a * a).backward()
    for twin in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert twin is not a
        assert (twin.data, twin.label, twin.grad) == (2.0, "a", 4.0)
    for twin_of in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="interior node"):
            twin_of(a * a)
    with pytest.raises(TypeError, match="made of a number; got a Value"):
        Value(a)
