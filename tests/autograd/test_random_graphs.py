"""Random expression graphs: reverse mode, forward mode, scalar mode and the complex step agree on all of them.

An ordinary run tries some hundreds. For more, always new ones:
CHAINRULE_GRAPHS=100000 python -m pytest tests/autograd/test_random_graphs.py -k scalar
"""

import os

import numpy as np
from differences import complex_step, numerical_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chainrule import Tensor, grad, jvp, values
from chainrule.autograd import gradients
from chainrule.autograd.graph import replay
from chainrule.autograd.scalar import scalar_nodes

SHAPES = [(), (3,), (1,), (2, 1), (2, 3)]  # any two of them broadcast
UNARY = [
    np.sin,
    np.cos,
    np.tanh,
    np.negative,
    np.square,
    lambda x: np.exp(-x * x),
    lambda x: np.sqrt(1 + x * x),
    lambda x: np.log1p(x * x),
    lambda x: np.sum(x, axis=-1, keepdims=True) if x.ndim else x * 1,
    lambda x: np.mean(x),
    lambda x: np.concatenate([x, x], axis=-1)[..., ::2] if x.ndim else x + 0,
    lambda x: x[[0, 0]] * 0.5 if x.ndim == 2 else x,
]
BINARY = [
    np.add,
    np.subtract,
    np.multiply,
    lambda x, z: x / (1.5 + z * z),
    lambda x, z: (1.5 + np.cos(x)) ** np.sin(z),
    lambda x, z: np.where(np.ones(3) > [0, 1, 2], x, z),
]

GRAPHS = os.environ.get("CHAINRULE_GRAPHS")

numbers = st.integers(-20, 20).map(lambda n: n / 10)
leaf_shapes = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)
instructions = st.lists(
    st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=8
)


def run(program, leaves):
    """Each instruction applies an operation to values computed before, counted from the newest; the result is their sum."""
    values = list(leaves)
    for operation, first, second in program:
        x, z = values[-1 - first % len(values)], values[-1 - second % len(values)]
        values.append(operation(x, z) if operation in BINARY else operation(x))
    return sum(np.sum(np.tanh(value)) for value in values)


@given(shapes=leaf_shapes, program=instructions, data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_three_witnesses_agree(shapes, program, data):
    arrays = [np.array(data.draw(st.lists(numbers, min_size=(n := int(np.prod(s))), max_size=n))).reshape(s) for s in shapes]
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = run(program, leaves)
    found = gradients(y, leaves)

    assert_allclose(y.data, run(program, arrays), rtol=1e-13, atol=1e-13)
    expected = numerical_gradient(lambda *values: replay(y, dict(zip(leaves, values, strict=True))), arrays, complex_step)
    for g, wanted in zip(found, expected, strict=True):
        assert_allclose(g, wanted, rtol=1e-10, atol=1e-10)

    directions = [np.cos(np.arange(x.size)).reshape(x.shape) for x in arrays]
    _, tangent = jvp(lambda *xs: run(program, xs), arrays, directions)
    assert_allclose(tangent, sum(map(np.vdot, found, directions)), rtol=1e-10, atol=1e-10)

    everything = tuple(range(len(arrays)))

    def slope(*xs):
        return sum(np.sum(g * v) for g, v in zip(grad(lambda *xs: run(program, xs), everything)(*xs), directions, strict=True))

    second = grad(slope, everything)(*arrays)
    _, forward = jvp(slope, arrays, directions)
    assert_allclose(forward, sum(map(np.vdot, second, directions)), rtol=1e-9, atol=1e-9)


@given(shapes=leaf_shapes, program=instructions, data=st.data())
@settings(max_examples=int(GRAPHS or 150), deadline=None, derandomize=GRAPHS is None, database=None)
def test_scalar_mode_agrees(shapes, program, data):
    arrays = [np.array(data.draw(st.lists(numbers, min_size=(n := int(np.prod(s))), max_size=n))).reshape(s) for s in shapes]
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    y = run(program, leaves)
    by_tensors = gradients(y, leaves)

    entries = [values(x) for x in arrays]
    run(program, entries).backward()
    recorded = scalar_nodes(y)
    recorded[y].item().backward()
    moved = numerical_gradient(lambda *xs: replay(y, dict(zip(leaves, xs, strict=True))), arrays, complex_step)
    for leaf, wanted, array, expected in zip(leaves, by_tensors, entries, moved, strict=True):
        assert_allclose(array.grad, wanted, rtol=1e-12, atol=1e-12)
        assert_allclose(recorded[leaf].grad, wanted, rtol=1e-12, atol=1e-12)
        assert_allclose(array.grad, expected, rtol=1e-10, atol=1e-10)
