"""Elementwise operations and reductions: what the table of primitives cannot say."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp, logsumexp
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.graph import ancestors
from chainrule.autograd.tensor import PLAIN


def slopes(f, *xs):
    """The derivative of the sum of f by each input."""
    with np.errstate(all="ignore"):
        found = grad(lambda *xs: np.sum(f(*xs)), tuple(range(len(xs))))(*(np.array(x, float) for x in xs))
    return found[0] if len(xs) == 1 else found


def second(f, x):
    """The second derivative of f, elementwise, at each of x."""
    return slopes(grad(lambda x: np.sum(f(x))), x)


# Numbers at which a careless rule overflows, cancels or divides by zero


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (np.expm1, -40.0, math.exp(-40)),
        (np.arcsin, 1 - 2**-50, 1 / math.sqrt(2**-50 * (2 - 2**-50))),
        (np.arccos, 2**-50 - 1, -1 / math.sqrt(2**-50 * (2 - 2**-50))),
        (np.arccosh, 1 + 2**-50, 1 / math.sqrt(2**-50 * (2 + 2**-50))),
        (np.arccosh, 1e200, 1e-200),
        (np.arctanh, 1 - 2**-50, 1 / (2**-50 * (2 - 2**-50))),
        (np.arcsinh, 1e200, 1e-200),
        (np.arctan, 1e200, 0.0),
        (np.tanh, 1000.0, 0.0),
        (np.tanh, -1000.0, 0.0),
        (lambda x: np.logaddexp(x, 0), 800.0, 1.0),
        (lambda x: np.logaddexp(x, 0), -800.0, 0.0),
        (lambda x: np.logaddexp(x, 0), -40.0, math.exp(-40)),
        (lambda x: np.hypot(x, 4e200), 3e200, 0.6),
        (lambda x: np.hypot(x, 4e-200), 3e-200, 0.6),
        (lambda x: np.arctan2(x, 4e200), 3e200, 1.6e-201),
        (lambda x: np.arctan2(4e-200, x), 3e-200, -1.6e199),
        (np.sinc, 1e-9, -(math.pi**2) * 1e-9 / 3),
        (np.sinc, 1e-4, -(math.pi**2) * 1e-4 / 3 + math.pi**4 * 1e-12 / 30),
        (lambda x: np.fmod(x, 3), 1e300, 1.0),
    ],
)
def test_slope_is_exact(f, x, expected):
    assert_allclose(slopes(f, x), expected, rtol=1e-14, atol=1e-320)


def test_fmod_counts_whole_divisors_that_the_quotient_rounds_away():
    a = np.nextafter(3.5, 0)
    assert a / 0.7 == 5  # rounded up: only 4 fit
    assert slopes(lambda b: np.fmod(a, b), 0.7) == -4


def sinc_second(x):
    """sinc''(x), by its Taylor series."""
    u = math.pi * x
    terms = [(-1) ** n * 2 * n * (2 * n - 1) * u ** (2 * n - 2) / math.factorial(2 * n + 1) for n in range(1, 20)]
    return math.pi**2 * math.fsum(terms)


@pytest.mark.parametrize("x", [0.0, 1e-9, 1e-3, 0.1599, 0.16, 0.1601, 0.5])
def test_second_derivative_of_sinc(x):
    assert_allclose(second(np.sinc, [x, -x]), sinc_second(x), rtol=1e-13)


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (np.absolute, 0.0, 0.0),
        (lambda x: np.hypot(x, 0.0), 0.0, 0.0),
        (lambda x: np.arctan2(x, 0.0), 0.0, 0.0),
        (lambda x: np.logaddexp(x, x), -np.inf, 0.0),
        (lambda x: x**0, 0.0, 0.0),
        (lambda x: x**1, 0.0, 0.0),
        (lambda x: x**2, 0.0, 2.0),
        (lambda x: x**3, [0.0, -2.0], [0.0, -12.0]),
        (lambda x: x ** np.array([0.0, 1.0, 2.0, 3.0]), [0.0] * 4, [0.0, 0.0, 2.0, 0.0]),
        (lambda x: x ** np.array([2, 3, -1]), [-2.0] * 3, [2.0, -12.0, -0.25]),
        (lambda b: 0.0**b, [1.0, 2.0], [0.0, 0.0]),
        (np.std, [0.1, 0.1, 0.1], [0.0] * 3),
        (np.max, [1.0, 1.0], [0.0] * 2),
        (np.median, [1.0, 1.0, 1.0], [0.0] * 3),
    ],
)
def test_second_derivative_at_special_points(f, x, expected):
    assert_allclose(second(f, x), expected, rtol=1e-15)


def test_mixed_derivative_of_a_power_whose_exponent_is_0():
    """∂²(aᵇ)/∂a∂b = a^(b-1) (1 + b ln a), also at b = 0, and in either order."""
    a, b = Tensor([2.0], requires_grad=True), Tensor([0.0], requires_grad=True)
    by_a, by_b = gradients(a**b, [a, b], [1.0], create_graph=True)
    assert_allclose(gradients(by_a, [b], [1.0])[0], 0.5, rtol=1e-15)
    assert_allclose(gradients(by_b, [a], [1.0])[0], 0.5, rtol=1e-15)


@pytest.mark.parametrize("a", [0.0, 1e-310, np.inf, -np.inf, np.nan])
def test_power_0_has_derivative_0_wherever(a):
    assert_array_equal(slopes(lambda x: x ** np.array([0.0, 0.0]), [a, a]), [0, 0])
    assert_array_equal(slopes(lambda x: x**0, [a]), [0])


def test_zero_adjoint_at_poles_of_two_inputs():
    x = np.array([0.0, 4.0])
    assert_array_equal(slopes(lambda x: np.where(x > 0, np.cbrt(x) + np.log2(x) + np.arctanh(x / 8), 0), x)[0], 0)


# Products with zeros


def hessian_by_hand(x):
    """∂²Π/∂x_i∂x_j: the product of the others, 0 on the diagonal."""
    n = len(x)
    return np.array([[0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2), (0, 1, 3), (0, 1, 2, 3)])
def test_second_derivatives_of_a_product_with_zeros(zeros):
    x = np.array([2.0, -3.0, 0.5, 4.0])
    x[list(zeros)] = 0
    rows = [grad(lambda x: grad(np.prod)(x)[i])(x) for i in range(4)]  # noqa: B023
    assert_allclose(rows, hessian_by_hand(x), rtol=1e-15)


def test_third_derivative_of_a_product_of_zeros():
    third = grad(lambda x: grad(lambda x: grad(np.prod)(x)[0])(x)[1])(np.zeros(3))
    assert_array_equal(third, [0, 0, 1])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9])
def test_running_products_with_zeros(n):
    """Against the Jacobian by hand: ∂y_k/∂x_i is the product of the others up to k."""
    x = np.random.default_rng(n).standard_normal(n)
    x[:: max(n // 2, 1)] = 0
    u = np.random.default_rng(1).standard_normal(n)
    expected = [sum(u[k] * np.prod(np.delete(x[: k + 1], i)) for k in range(i, n)) for i in range(n)]
    assert_allclose(slopes(lambda x: u * np.cumprod(x), x), expected, rtol=1e-13, atol=1e-16)


def test_long_running_product_takes_few_nodes():
    x = Tensor(np.ones(10_000), requires_grad=True)
    np.cumprod(x)[-1].backward(create_graph=True)
    assert len(ancestors(x.grad)) < 200
    assert_array_equal(x.grad.data, 1)


# Reductions


def test_logsumexp_fused_is_its_definition():
    x = np.random.default_rng(0).standard_normal((3, 4))
    x[1] = -np.inf
    x[2, 1] = -np.inf
    for axis, keepdims in [(None, False), (1, False), (0, True), ((0, 1), True)]:
        fused = Tensor(x, requires_grad=True)
        opened = Tensor(x, requires_grad=True)
        y = logsumexp(fused, axis, keepdims)
        with open_fused():
            z = logsumexp(opened, axis, keepdims)
        assert y.primitive.name == "logsumexp"
        assert z.primitive.name != "logsumexp"
        assert_allclose(y.data, z.data, rtol=1e-15)
        assert_array_equal(logsumexp(x, axis, keepdims), y.data)
        with np.errstate(all="ignore"):
            np.sum(y).backward(), np.sum(z).backward()
        assert_allclose(fused.grad, opened.grad, rtol=1e-14)
        assert np.isfinite(fused.grad).all()


def test_logsumexp_of_large_numbers_keeps_its_digits():
    assert_array_equal(slopes(logsumexp, [1e9, 1e9, 1e9, 1e9]), 0.25)


def test_no_degrees_of_freedom():
    """As in NumPy: a warning, and NaN."""
    for f in (np.var, np.std):
        x = Tensor([2.0], requires_grad=True)
        with pytest.warns(RuntimeWarning, match="Degrees of freedom"), np.errstate(invalid="ignore"):
            y = f(x, ddof=1)
        y.backward()
        assert np.isnan(y.data)
        assert np.isnan(x.grad).all()


@pytest.mark.parametrize("f", [np.mean, np.var, np.std, np.nanmean, np.nanvar, np.nanstd])
def test_float16_counts_more_entries_than_it_has_numbers(f):
    """By 70,000 it cannot be divided: that is ∞ in float16, and the gradient would be 0."""
    x = np.linspace(-1, 1, 70_000)
    found, exact = (Tensor(x.astype(dtype), requires_grad=True) for dtype in (np.float16, np.float64))
    for leaf in (found, exact):
        f(leaf).backward()
    assert found.grad.dtype == np.float16
    assert_allclose(found.grad, exact.grad, rtol=2e-2, atol=6e-8)  # numbers of 1e-5 have few digits in float16


@pytest.mark.parametrize("f", [np.prod, np.cumprod, np.cumsum, np.var, np.std, np.mean, np.max, np.ptp, np.median, logsumexp])
@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan])
def test_zero_adjoint_contributes_zero_through_reductions(f, value):
    x = Tensor([value, 2.0, 0.0, value], requires_grad=True)
    with np.errstate(all="ignore"):
        y = f(x)
        assert_array_equal(gradients(y, [x], np.zeros(y.shape))[0], 0)
        assert_array_equal(gradients(y, [x], np.zeros(y.shape), create_graph=True)[0].data, 0)


def test_the_tail_of_a_running_product_may_be_infinite_where_it_is_not_used():
    x = np.array([2.0, 3.0, np.inf, np.inf])
    assert_array_equal(slopes(lambda x: np.cumprod(x)[1], x), [3, 2, 0, 0])


def test_logsumexp_of_plain_numbers():
    assert_allclose(logsumexp([1, 1]), 1 + math.log(2), rtol=1e-15)
    assert logsumexp(3.0) == 3


def test_nan_functions_give_nan_no_gradient():
    x = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, -1.0]])
    functions = [np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanmedian]
    for f in functions:
        for axis in (None, 0, 1, (0, 1)):
            if axis == 0 and f is np.nanvar:
                continue
            g = slopes(lambda x: f(x, axis=axis), x)  # noqa: B023
            assert_array_equal(g[np.isnan(x)], 0)
            assert np.isfinite(g).all()


def test_the_forms_of_clip():
    x = np.array([-2.0, 0.5, 3.0])
    low = Tensor(-1.0, requires_grad=True)
    high = Tensor(2.0, requires_grad=True)
    np.sum(np.clip(x, low, high) * np.array([1.0, 10.0, 100.0])).backward()
    assert (low.grad, high.grad) == (1, 100)
    t = Tensor(x, requires_grad=True)
    for clipped in [np.clip(t, -1, 2), np.clip(t, a_max=2, a_min=-1), t.clip(-1, 2), t.clip(min=-1, max=2)]:
        assert_array_equal(clipped.data, [-1, 0.5, 2])
    with pytest.raises(ValueError, match="both a_min and min"):
        np.clip(t, -1, 2, min=0)


def test_average_refuses_weights_that_do_not_fit():
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    with pytest.raises(TypeError, match=r"got \(3,\) and axis=None"):
        np.average(x, weights=np.ones(3))
    with pytest.raises(ValueError, match=r"got \(2,\) and axis=1"):
        np.average(x, axis=1, weights=np.ones(2))
    with pytest.raises(ZeroDivisionError, match="sum to 0"):
        np.average(x, axis=1, weights=np.array([1.0, -1.0, 0.0]))


def test_average_returned():
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    for weights in (None, [1.0, 2.0, 3.0]):
        y, total = np.average(x, axis=1, weights=weights, returned=True)
        expected, expected_total = np.average(x.data, axis=1, weights=weights, returned=True)
        assert_allclose(y.data, expected, rtol=1e-15)
        assert_array_equal(total, expected_total)


# What is refused, and by name


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda x: np.sum(x, where=np.array(True)), "where"),
        (lambda x: np.sum(x, initial=1.0), "initial"),
        (lambda x: np.sum(x, dtype=np.float32), "dtype"),
        (lambda x: np.mean(x, where=np.array([True, False])), "where"),
        (lambda x: np.prod(x, initial=2), "initial"),
        (lambda x: np.max(x, initial=2), "initial"),
        (lambda x: np.var(x, mean=0.0), "mean"),
        (lambda x: np.var(x, dtype=np.float32), "dtype"),
        (lambda x: x.std(out=np.zeros(())), "out"),
        (lambda x: x.cumsum(dtype=np.float32), "dtype"),
        (lambda x: np.cumprod(x, out=np.zeros(2)), "out"),
        (lambda x: np.ptp(x, out=np.zeros(())), "out"),
        (lambda x: np.median(x, overwrite_input=True), "overwrite_input"),
        (lambda x: np.quantile(x, 0.5, weights=np.ones(2)), "weights"),
        (lambda x: np.quantile(x, 0.5, method="hazen"), "method"),
        (lambda x: np.percentile(x, 50, out=np.zeros(())), "out"),
        (lambda x: np.nansum(x, initial=1.0), "initial"),
        (lambda x: np.clip(x, 0, 1, out=np.zeros(2)), "out"),
        (lambda x: np.nan_to_num(x, copy=False), "copy"),
        (lambda x: np.exp2(x, where=np.array([True, False])), "where"),
    ],
)
def test_arguments_that_are_not_covered_are_refused_by_name(call, argument):
    with pytest.raises(TypeError, match=argument):
        call(Tensor([1.0, 2.0], requires_grad=True))


def test_quantile_has_no_derivative_by_q():
    q = Tensor(0.3, requires_grad=True)
    with pytest.raises(TypeError, match="quantile has no derivative with respect to 'q'"):
        np.quantile(np.array([1.0, 2.0]), q).backward()


# Plain results, and operators


def test_functions_that_are_constant_in_pieces_give_plain_arrays():
    x = Tensor([[1.5, -2.5], [np.nan, 0.0]], requires_grad=True)
    for f in [np.floor, np.ceil, np.rint, np.trunc, np.round, np.around, np.isnan, np.isinf, np.isfinite, np.signbit, np.imag]:
        assert f in PLAIN
        found = f(x)
        assert type(found) is np.ndarray
        assert_array_equal(found, f(x.data))
    for found, expected in [
        (x // 2, x.data // 2),
        (2 // x[0], 2 // x.data[0]),
        (x.round(), x.data.round()),
        (x.any(), True),
        (x.all(axis=1), [True, False]),
        (np.count_nonzero(x, axis=0), [2, 1]),
        (x.imag, np.zeros((2, 2))),
    ]:
        assert not isinstance(found, Tensor)
        assert_array_equal(found, expected)


def test_parts_of_numbers():
    x = Tensor([3.75, -0.3, -np.inf, 0.0], requires_grad=True)
    for f in (np.modf, np.frexp):
        for found, expected in zip(f(x), f(x.data), strict=True):
            assert_array_equal(getattr(found, "data", found), expected)
    quotient, rest = divmod(Tensor([7.5, -7.5], requires_grad=True), 2)
    assert_array_equal(quotient, [3, -4])
    assert_array_equal(rest.data, [1.5, 0.5])
    quotient, rest = divmod(7.5, Tensor([2.0], requires_grad=True))
    rest.backward()
    assert_array_equal(quotient, [3])
    assert_array_equal(rest.inputs[1].grad, [-3])


def test_in_place_operators_make_new_nodes():
    x = first = Tensor([2.0, 3.0], requires_grad=True)
    x += 1
    x *= 2
    x **= 2
    x %= 5
    x /= 2
    x -= 1
    assert x is not first
    assert_array_equal(first.data, [2, 3])
    np.sum(x).backward()
    assert_array_equal(first.grad, 4 * (first.data + 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_numbers_and_integer_arrays_beside_a_tensor_keep_its_gradients_dtype(dtype):
    x = Tensor(np.array([0.5, 0.75], dtype), requires_grad=True)
    for y in [x**3, x ** np.array([2, 3]), np.hypot(x, 2), np.clip(x, 0, 1), np.arctan2(1, x), np.sinc(x), np.remainder(x, 2)]:
        x.grad = None
        y.backward(np.ones(2))
        assert x.grad.dtype == dtype


def test_forward_mode_through_a_running_product():
    y, slope = jvp(np.cumprod, [np.array([2.0, 0.0, 3.0])], [np.array([1.0, 1.0, 1.0])])
    assert_array_equal(y, [2, 0, 0])
    assert_array_equal(slope, [1, 2, 6])
