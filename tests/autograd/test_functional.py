"""grad, value_and_grad, vjp and jvp."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp, nn, no_grad, value_and_grad, vjp


def cubes(x, z):
    return np.sum(x**3 * z)


def test_grad_and_value_and_grad():
    x, z = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    value, slope = value_and_grad(cubes)(x, z)
    assert value == 35
    assert type(slope) is np.ndarray
    assert_array_equal(slope, 3 * x**2 * z)
    assert_array_equal(grad(cubes)(x, z), slope)
    assert_array_equal(grad(cubes, 1)(x, z), x**3)
    by_x, by_z = grad(cubes, (0, 1))(x, z)
    assert_array_equal(by_x, slope)
    assert_array_equal(by_z, x**3)
    assert isinstance(grad(cubes, [1])(x, z), tuple)


def test_numbers_and_lists_are_floats():
    assert grad(lambda x: x**2)(3) == 6.0
    assert_array_equal(grad(lambda x: np.sum(x**2))([1, 2]), [2.0, 4.0])
    assert jvp(lambda x: x**2, [3], [1]) == (9.0, 6.0)


def test_dtype_is_that_of_the_argument():
    x = np.array([1.0, 2.0], np.float32)
    assert grad(lambda x: np.sum(x * np.arange(2.0)))(x).dtype == np.float32
    assert jvp(np.exp, [x], [[1.0, 1.0]])[1].dtype == np.float32


def test_other_arguments_pass_through():
    def f(x, power, *, scale):
        return np.sum(x**power) * scale

    assert_array_equal(grad(f)(np.array([1.0, 2.0]), 2, scale=10.0), [20, 40])


def test_tensors_are_arguments_too():
    x = Tensor([1.0, 2.0], name="x")
    assert type(grad(lambda x: np.sum(x * x))(x)) is np.ndarray
    seen = []
    grad(lambda x: np.sum(seen.append(x.name) or x))(x)
    assert seen == ["x"]
    tracked = Tensor([1.0, 2.0], requires_grad=True)
    slope = grad(lambda x: np.sum(x**3))(tracked)
    assert isinstance(slope, Tensor)
    np.sum(slope).backward()
    assert_array_equal(tracked.grad, [6, 12])


OVER_A_CLOSURE = [  # d/dy (x y) at y = 5 is x; the value there is 5x
    lambda x: grad(lambda y: x * y)(5.0),
    lambda x: value_and_grad(lambda y: x * y)(5.0)[1],
    lambda x: value_and_grad(lambda y: x * y)(5.0)[0] / 5,
    lambda x: jvp(lambda y: x * y, [5.0], [1.0])[1],
    lambda x: jvp(lambda y: x * y, [5.0], [1.0])[0] / 5,
    lambda x: jvp(lambda y: 5 * y, [1.0], [x])[1] / 5,
    lambda x: vjp(lambda y: x * y, 5.0)[1](1.0)[0],
    lambda x: vjp(lambda y: x * y, 5.0)[0] / 5,
    lambda x: vjp(lambda y: 5 * y, 1.0)[1](x)[0] / 5,
]


@pytest.mark.parametrize("f", OVER_A_CLOSURE)
def test_what_a_function_reads_from_outside_differentiates_too(f):
    """Each f is the identity, so x · f(x) = x²."""
    assert grad(lambda x: x * f(x))(3.0) == 6.0
    assert jvp(lambda x: x * f(x), [3.0], [1.0])[1] == 6.0
    assert grad(grad(lambda x: x * f(x)))(3.0) == 2.0
    x = Tensor(3.0, requires_grad=True)
    (x * f(x)).backward()
    assert x.grad == 6.0


def test_inside_no_grad_what_a_function_reads_is_constant():
    w = nn.Parameter([2.0])
    with no_grad():
        assert type(grad(lambda x: np.sum(w * x))([3.0])) is np.ndarray
    assert isinstance(grad(lambda x: np.sum(w * x))([3.0]), Tensor)


def test_perturbations_are_not_confused():
    """Siskind and Pearlmutter's example: d/dx [x · d/dy (x + y)] = 1."""
    one = Tensor(1.0)
    assert grad(lambda x: x * grad(lambda y: x + y)(one))(1.0) == 1.0
    assert jvp(lambda x: x * jvp(lambda y: x + y, [1.0], [1.0])[1], [1.0], [1.0])[1] == 1.0


def test_a_function_that_ignores_its_argument_has_zero_gradient():
    outer = Tensor(2.0, requires_grad=True)
    assert_array_equal(grad(lambda x: outer * outer)([1.0, 2.0]), [0, 0])
    assert_array_equal(grad(lambda x: Tensor(1.0))([1.0, 2.0]), [0, 0])
    assert jvp(lambda x: outer * outer, [1.0], [1.0]) == (4.0, 0.0)
    assert jvp(lambda x: Tensor(1.0), [1.0], [1.0]) == (1.0, 0.0)
    assert vjp(lambda x: Tensor(1.0), 1.0)[1](1.0) == (0.0,)


def test_identity():
    x = np.array([1.0, 2.0])
    y, pullback = vjp(lambda x: x, x)
    assert_array_equal(y, x)
    assert_array_equal(pullback([3.0, 4.0])[0], [3, 4])
    _, tangent = jvp(lambda x: x, [x], [x])
    assert_array_equal(tangent, x)
    assert not np.shares_memory(tangent, x)


def test_results_belong_to_the_caller():
    x = np.ones((2, 2))
    for gradient in [grad(np.sum)(x), *grad(lambda a, b: np.sum(a + b), (0, 1))(x, x), grad(lambda x: np.sum(x.T))(x)]:
        gradient *= 2
        assert_array_equal(gradient, np.full((2, 2), 2.0))
    for f in [lambda x: x, lambda x: np.broadcast_to(x, (3, 2, 2)), lambda x: x.T]:
        tangent = jvp(f, [x], [x])[1]
        tangent *= 2
        assert_array_equal(tangent, np.full(tangent.shape, 2.0))
    assert_array_equal(x, np.ones((2, 2)))


def test_vjp_pulls_back_as_often_as_asked():
    A = np.array([[1.0, 2.0], [3.0, 4.0]])
    y, pullback = vjp(lambda x: A @ x, np.ones(2))
    assert_array_equal(y, [3, 7])
    assert_array_equal(np.stack([pullback(e)[0] for e in np.eye(2)]), A)
    assert_array_equal(pullback([1, 1])[0], A.sum(0))


def test_jvp_of_several_inputs():
    y, tangent = jvp(lambda x, z: x * z, [2.0, 3.0], [1.0, 10.0])
    assert (y, tangent) == (6.0, 23.0)


def test_hessian_products_by_all_modes():
    def f(x):
        return np.sum(nn.softmax(x) ** 2) + x[0] * x[1] ** 2

    x, v = np.array([0.1, 0.2, 0.3]), np.array([1.0, -2.0, 0.5])
    over_reverse = grad(lambda x: np.sum(grad(f)(x) * v))(x)
    assert_allclose(jvp(grad(f), [x], [v])[1], over_reverse, rtol=1e-13, atol=1e-15)
    assert_allclose(grad(lambda x: jvp(f, [x], [v])[1])(x), over_reverse, rtol=1e-13, atol=1e-15)
    assert_allclose(vjp(grad(f), x)[1](v)[0], over_reverse, rtol=1e-13, atol=1e-15)


def test_recording_is_on_inside_even_under_no_grad():
    with no_grad():
        assert grad(lambda x: x**2)(3.0) == 6.0
        assert grad(grad(lambda x: x**3))(2.0) == 12.0
        assert jvp(np.exp, [0.0], [1.0])[1] == 1.0
        assert vjp(np.exp, 0.0)[1](2.0) == (2.0,)


def test_arguments_are_left_without_grad():
    x = Tensor([1.0, 2.0], requires_grad=True)
    grad(lambda x: np.sum(x * x))(x)
    jvp(np.exp, [x], [[1.0, 1.0]])
    assert x.grad is None


def test_errors():
    with pytest.raises(ValueError, match=r"returns a single number; exp returned shape \(2,\)"):
        grad(np.exp)([1.0, 2.0])
    with pytest.raises(TypeError, match=r"returned float, not a Tensor.*Did it use \.data"):
        grad(lambda x: float(x))(1.0)
    with pytest.raises(TypeError, match="Only floating-point tensors can have a gradient; got dtype int64"):
        grad(np.sum)(np.array([1, 2]))
    with pytest.raises(ValueError, match="one tangent for each primal; got 1 primals and 2 tangents"):
        jvp(np.exp, [1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"Tangent 0 must have the shape \(2,\) of its primal; got \(\)"):
        jvp(np.exp, [[1.0, 2.0]], [1.0])
    with pytest.raises(ValueError, match=r"gradient must have the shape \(2,\)"):
        vjp(np.exp, [1.0, 2.0])[1]([1.0, 2.0, 3.0])
