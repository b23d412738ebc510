"""Forward mode: tangents, and how each kind of operation passes them on. (Its agreement with reverse: test_primitives.)"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp, named, nn
from chainrule.autograd import elementwise, primitive
from chainrule.autograd.forward import push_forward
from chainrule.autograd.graph import ancestors


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def test_tangents_of_every_node():
    x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    product = x * z
    shifted = product + z
    y = np.sum(shifted)
    tangents = push_forward(ancestors(y), {x: np.array([1.0, 10.0])})
    assert tangents.keys() == {x, product, shifted, y}
    assert_array_equal(tangents[product], [3, 40])
    assert_array_equal(tangents[shifted], [3, 40])
    assert_array_equal(tangents[y], 43)


def test_a_tangent_can_start_at_an_interior_node():
    x = leaf([1.0, 2.0])
    middle = np.exp(x)
    y = np.sum(middle * middle)
    tangents = push_forward(ancestors(y), {middle: np.array([1.0, 0.0])})
    assert x not in tangents
    assert_allclose(tangents[y], 2 * np.e, rtol=1e-15)


def test_a_seeded_node_keeps_its_seed():
    x = leaf(1.0)
    middle = x * 2
    y = middle * 3
    assert push_forward(ancestors(y), {x: np.array(1.0), middle: np.array(10.0)})[y] == 30


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_tangents_have_the_dtype_of_their_node(dtype):
    x = leaf(np.array([0.5, 2.0], dtype))
    for f in [
        lambda x: x * np.float64(2),
        np.exp,
        np.max,
        lambda x: x.astype(float) * 1,
        nn.softmax,
        lambda x: np.stack([x, x]),
    ]:
        y = f(x)
        tangents = push_forward(ancestors(y), {x: np.ones(2, dtype)})
        for node in ancestors(y):
            assert tangents[node].dtype == node.dtype
            assert tangents[node].shape == node.shape


def test_a_zero_tangent_stays_zero_where_the_derivative_is_infinite():
    x = leaf([0.0, 4.0])
    y = np.sqrt(x)
    assert_array_equal(push_forward(ancestors(y), {x: np.array([0.0, 1.0])})[y], [0, 0.25])
    assert_array_equal(push_forward(ancestors(y), {x: np.array([1.0, 1.0])})[y], [np.inf, 0.25])


def test_one_leaf_many_times():
    x = leaf([[0.1, 0.2], [0.3, 0.4]])
    for f in [lambda x: x @ x @ x, lambda x: np.concatenate([x, x * x]), lambda x: nn.attention(x, x, x)]:
        y = f(x)
        v, h = np.array([[1.0, 2.0], [3.0, 4.0]]), 1e-6
        differences = (f(leaf(x.data + h * v)).data - f(leaf(x.data - h * v)).data) / (2 * h)
        assert_allclose(push_forward(ancestors(y), {x: v})[y], differences, rtol=1e-8)


def test_fused_nodes_pass_tangents_through_their_definition():
    S = leaf(np.log([1.0, 2.0, 5.0]))
    A = nn.softmax(S)
    assert len(ancestors(A)) == 2
    p, v = A.data, np.array([1.0, 0.0, -1.0])
    assert_allclose(push_forward(ancestors(A), {S: v})[A], p * (v - p @ v), rtol=1e-14)


def test_recorded_tangents_differentiate_again():
    def directional(x):
        return jvp(lambda x: np.sum(np.tanh(x) * x), [x], [[1.0, 2.0]])[1]

    x = np.array([0.3, -0.7])
    t = np.tanh(x)
    assert_allclose(directional(x), np.sum((t + x * (1 - t * t)) * [1, 2]), rtol=1e-14)
    assert_allclose(grad(directional)(x), (2 * (1 - t * t) - 2 * x * t * (1 - t * t)) * [1, 2], rtol=1e-14)
    assert_allclose(jvp(directional, [x], [[1.0, 0.0]])[1], (2 - 2 * x[0] * t[0]) * (1 - t[0] ** 2), rtol=1e-14)


# Operations of one's own


def cube_primitives():
    """x³, told to the engine with nothing but a rule, and as elementwise."""
    for declare in (primitive(), elementwise()):

        @declare
        def cube(x):
            return x * x * x

        @cube.rule("x", "∂L/∂{x} = ∂L/∂{y} · 3{x}²")
        def cube_wrt_x(g, y, x):
            return g * 3 * x * x

        yield cube


@pytest.mark.parametrize("cube", list(cube_primitives()), ids=["plain", "elementwise"])
def test_a_rule_is_all_that_forward_mode_needs(cube):
    x, v = np.array([1.0, -2.0]), np.array([1.0, 10.0])
    y, tangent = jvp(cube, [x], [v])
    assert_array_equal(y, [1, -8])
    assert_array_equal(tangent, [3, 120])
    assert_array_equal(grad(lambda x: np.sum(jvp(cube, [x], [v])[1]))(x), 6 * x * v)


def test_a_rule_that_ignores_its_adjoint_gives_a_zero_tangent():
    @primitive()
    def step(x):
        return np.floor(x)

    @step.rule("x", "∂L/∂{x} = 0")
    def step_wrt_x(g, y, x):
        return np.zeros_like(x)

    assert_array_equal(jvp(step, [[1.5, 2.5]], [[1.0, 1.0]])[1], [0, 0])


def test_a_missing_rule_is_named():
    for declare in (primitive(), elementwise()):

        @declare
        def opaque(x):
            return x + 0

        with pytest.raises(TypeError, match="opaque has no derivative with respect to 'x', yet theta requires a gradient"):
            jvp(lambda x: opaque(named("theta", x * 1)), [1.0], [1.0])
