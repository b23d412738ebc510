"""LayerNorm and RMSNorm: by hand, at the extremes, kernel and definition. Derivatives: tests/autograd/test_primitives.py."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, default_dtype, grad, gradcheck
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.scalar import scalar_mode
from chainrule.nn.kernels import BLOCK
from chainrule.nn.norms import LayerNorm, RMSNorm, layer_norm, rms_norm

RNG = np.random.default_rng(0)
D = 96
MANY = RNG.normal(3.0, 2.0, (4 * BLOCK // (8 * D) * 2 + 5, D))  # two blocks of float64 and five rows


def leaves_of(*arrays):
    return [Tensor(x, requires_grad=True) for x in arrays]


def test_layer_norm_of_1_2_3():
    """Centred it is (-1, 0, 1), of biased variance 2/3, and ε stands inside the root (notes 7.7)."""
    expected = np.array([-1, 0, 1]) / np.sqrt(2 / 3 + 1e-5)
    assert_allclose(layer_norm(np.array([1.0, 2.0, 3.0])), expected, rtol=1e-15)
    y = layer_norm(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0]), eps=1 / 3)
    assert_allclose(y, [9, 20, 33], rtol=1e-15)


def test_gradients_of_layer_norm_by_hand():
    """notes 15.5: γ and β get sums over positions; x gets (u - mean u - x̂ mean(u x̂)) / √(σ² + ε), u = γ ∂L/∂y."""
    x = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 2.0]])  # with ε = 1/3 and 1/4: x̂ = (-1, 0, 1) and (2, 2, -4) / 3
    g, gamma = np.array([[1.0, 0.0, 0.0], [0.0, 3.0, 0.0]]), np.array([2.0, 1.0, 1.0])
    leaves = leaves_of(x[:1], gamma, np.zeros(3))
    by_x, by_gamma, by_beta = gradients(layer_norm(*leaves, eps=1 / 3), leaves, g[:1])
    assert_allclose(by_x, [[2 - 2 / 3 - 2 / 3, -2 / 3, -2 / 3 + 2 / 3]], atol=1e-15)
    assert_allclose(by_gamma, [-1, 0, 0], atol=1e-15)
    assert_allclose(by_beta, [1, 0, 0])
    leaves = leaves_of(x, gamma, np.zeros(3))
    _, by_gamma, by_beta = gradients(layer_norm(*leaves, eps=1 / 4), leaves, g)
    assert_allclose(by_gamma, [-1 / np.sqrt(2 / 3 + 1 / 4), 3 * 2 / 3, 0], atol=1e-15)
    assert_allclose(by_beta, [1, 3, 0])


def test_rms_norm_by_hand():
    x, gamma = leaves_of([[3.0, 4.0]], [2.0, 1.0])
    y = rms_norm(x, gamma, eps=12.5)  # mean square 12.5: √25
    assert_allclose(y.data, [[1.2, 0.8]], rtol=1e-15)
    by_x, by_gamma = gradients(y, [x, gamma], [[1.0, 0.0]])
    assert_allclose(by_x, [[(2 - 0.6 * 0.6) / 5, -0.8 * 0.6 / 5]], rtol=1e-15)  # x̂ = (0.6, 0.8), mean(u x̂) = 0.6
    assert_allclose(by_gamma, [0.6, 0], rtol=1e-15)


CASES = {
    "layer_norm": (layer_norm, [MANY, RNG.normal(size=D), RNG.normal(size=D)]),
    "layer_norm without beta": (layer_norm, [MANY, RNG.normal(size=D)]),
    "layer_norm alone": (layer_norm, [MANY.reshape(1, 1, *MANY.shape)]),
    "rms_norm": (rms_norm, [MANY, RNG.normal(size=D)]),
    "rms_norm alone": (rms_norm, [MANY[:1]]),
}
each_case = pytest.mark.parametrize(("f", "arrays"), CASES.values(), ids=CASES.keys())


@each_case
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_kernel_equals_definition(f, arrays, dtype):
    """Also over the edges of blocks. Narrow dtypes against the definition in float64, from the same numbers."""
    leaves = leaves_of(*(x.astype(dtype) for x in arrays))
    exact = leaves_of(*(x.data.astype(float) for x in leaves))
    y = f(*leaves)
    with open_fused():
        expected = f(*exact)
    assert y.dtype == dtype
    tolerance = 16 * np.finfo(dtype).eps
    assert_allclose(y.data, expected.data, rtol=tolerance, atol=tolerance)
    u = np.random.default_rng(1).normal(size=y.shape).astype(dtype)
    wanted = gradients(expected, exact, u.astype(float))
    for x, found, right in zip(leaves, gradients(y, leaves, u), wanted, strict=True):
        assert found.dtype == dtype
        size = np.abs(right).max()  # sums over thousands of rows
        assert_allclose(found, right, rtol=tolerance, atol=tolerance * max(size, 1), err_msg=str(x.shape))


@pytest.mark.parametrize(
    "x",
    [
        np.array([[3, 2, 1], [0, 0, 9]], np.uint8),
        np.array([[100, -100, 0], [1, 2, 3]], np.int8),
        np.array([[6e4, -6e4, 0], [1e3, 1, 2]], np.float16),
    ],
    ids=["uint8", "int8", "float16"],
)
def test_differences_that_the_dtype_of_x_has_not(x):
    """They are taken in a wider one: 2 - 3 is -1, and 60000 + 60000 is no infinity."""
    expected = layer_norm.definition(x.astype(float))
    assert_allclose(layer_norm(x), expected, rtol=2e-3 if x.dtype == np.float16 else 1e-12, atol=1e-15)


def test_mixed_dtypes_give_what_the_definition_gives():
    x, gamma, beta = leaves_of(np.ones((2, 3), np.float16), np.ones(3, np.float32), np.ones(3, np.float16))
    y = layer_norm(x, gamma, beta)
    assert y.dtype == layer_norm.definition(x, gamma, beta).dtype == np.float32
    assert [g.dtype for g in gradients(y, [x, gamma, beta], np.ones((2, 3)))] == [np.float16, np.float32, np.float16]
    assert layer_norm(np.array([1, 2, 3])).dtype == np.float64


@pytest.mark.parametrize("value", [0.1, -7.3, 1e20, 123456789.1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_constant_row_gives_exactly_beta(value, dtype):
    x, gamma, beta = leaves_of(np.full((2, 7), value, dtype), np.full(7, 3.0, dtype), np.arange(7.0).astype(dtype))
    y = layer_norm(x, gamma, beta)
    assert_array_equal(y.data, [beta.data, beta.data])
    by_x, by_gamma, by_beta = gradients(y, [x, gamma, beta], np.eye(2, 7))
    assert_allclose(by_x[0], (np.eye(7)[0] - 1 / 7) * 3 / np.sqrt(1e-5), rtol=1e-5)
    assert_array_equal(by_gamma, 0)
    assert_array_equal(by_beta, [1, 1, 0, 0, 0, 0, 0])


def test_zeros_and_one_feature():
    x, gamma = leaves_of(np.zeros((2, 3)), np.ones(3))
    y = rms_norm(x, gamma)
    assert_array_equal(y.data, 0)
    assert_allclose(gradients(y, [x], np.ones((2, 3)))[0], 1 / np.sqrt(1e-5))
    x, gamma, beta = leaves_of([[4.0], [-2.0]], [3.0], [5.0])
    y = layer_norm(x, gamma, beta)
    assert_array_equal(y.data, [[5], [5]])
    assert_array_equal(gradients(y, [x], np.ones((2, 1)))[0], 0)


def test_a_large_mean_costs_no_digits_of_the_variance():
    """In float32, 1e4 + (0, 1, 2) is exact, and so is what lies around its mean; the mean of squares would have no digits."""
    x = np.array([10000.0, 10001.0, 10002.0], np.float32)
    assert_allclose(layer_norm(x), np.array([-1, 0, 1]) / np.sqrt(2 / 3 + 1e-5), rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("f", [layer_norm, rms_norm], ids=lambda f: f.name)
def test_huge_numbers(f):
    x = np.array([[1.0, -2.0, 3.0]])
    for dtype, factor in [(np.float64, 1e150), (np.float32, 1e18), (np.float16, 2e4)]:
        big = (x * factor).astype(dtype)
        expected = f(big.astype(float))
        found = f(big)
        assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)
        (slope,) = gradients(f(leaf := Tensor(big, requires_grad=True)), [leaf], np.eye(1, 3))
        assert np.isfinite(slope).all()
    with pytest.warns(RuntimeWarning, match="overflow"):
        f(x * 1e200)


@pytest.mark.parametrize("f", [layer_norm, rms_norm], ids=lambda f: f.name)
def test_no_positions(f):
    x, gamma = leaves_of(np.zeros((2, 0, 3)), np.ones(3))
    y = f(x, gamma)
    assert y.shape == (2, 0, 3)
    by_x, by_gamma = gradients(y, [x, gamma], np.zeros((2, 0, 3)))
    assert by_x.shape == (2, 0, 3)
    assert_array_equal(by_gamma, [0, 0, 0])


@pytest.mark.parametrize("f", [layer_norm, rms_norm], ids=lambda f: f.name)
def test_shapes_that_do_not_fit(f):
    for call in (f, f.definition):
        for x in (np.float64(1.0), np.zeros((2, 0))):
            with pytest.raises(ValueError, match=rf"{f.name} normalises the last axis of x \(…, d\), with d at least 1; got"):
                call(x)
        with pytest.raises(ValueError, match=r"takes gamma of the shape \(3,\) of x's last axis; got \(2,\) for x \(2, 3\)"):
            call(Tensor(np.zeros((2, 3))), np.ones(2))
    with pytest.raises(ValueError, match=r"takes beta of the shape \(3,\) of x's last axis; got \(2, 3\)"):
        layer_norm(Tensor(np.zeros((2, 3))), None, np.ones((2, 3)))


def test_adjoints_that_are_not_contiguous():
    x, gamma, beta = leaves_of(RNG.normal(size=(4, 3)), np.ones(3), np.zeros(3))
    y = layer_norm(x, gamma, beta)
    u = np.asfortranarray(RNG.normal(size=(4, 3)))
    for found, wanted in zip(
        gradients(y, [x, gamma, beta], u), gradients(y, [x, gamma, beta], np.ascontiguousarray(u)), strict=True
    ):
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-15)
    np.sum(layer_norm(x, gamma, beta).T).backward()  # the adjoint of a sum is one number, spread
    assert_allclose(beta.grad, [4, 4, 4])


def test_second_order_and_complex_step():
    x, gamma, beta = RNG.normal(size=(3, 4)), RNG.normal(size=4), RNG.normal(size=4)
    weight, along = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    slope = grad(lambda x: np.sum(weight * layer_norm(x, gamma, beta) ** 2))
    found = grad(lambda x: np.sum(slope(x) * along))(x)
    step = 1e-5
    assert_allclose(found, (slope(x + step * along) - slope(x - step * along)) / (2 * step), atol=1e-7)
    for method in ("ridders", "complex"):
        assert gradcheck(layer_norm, x, gamma, beta, method=method).ok
        assert gradcheck(rms_norm, x, gamma, method=method).ok


# Modules


@pytest.mark.parametrize("module", [LayerNorm(3), RMSNorm(3), LayerNorm(3, bias=False)], ids=lambda m: type(m).__name__)
def test_scalar_mode(module):
    x = np.array([[1.0, 2.0, 4.0], [0.0, -1.0, 5.0]])
    weight = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 2.0]])
    with scalar_mode(module) as parameters:
        loss = np.sum(module(x) * weight)
        loss.backward()
    same = np.sum(module(x) * weight)
    same.backward()
    assert loss.data == pytest.approx(same.item(), rel=1e-14)
    for path, parameter in module.named_parameters():
        assert_allclose(parameters[path].grad, parameter.grad, rtol=1e-13, atol=1e-15)


def test_modules():
    norm = LayerNorm(4)
    assert [(path, p.shape) for path, p in norm.named_parameters()] == [("gamma", (4,)), ("beta", (4,))]
    assert [path for path, _ in LayerNorm(4, bias=False).named_parameters()] == ["gamma"]
    assert [path for path, _ in RMSNorm(4).named_parameters()] == ["gamma"]
    x = RNG.normal(size=(2, 4))
    assert_array_equal(norm(x).data, layer_norm(x))
    assert_array_equal(LayerNorm(4, eps=1.0, bias=False)(x).data, layer_norm(x, eps=1.0))
    assert_array_equal(RMSNorm(4, eps=1.0)(x).data, rms_norm(x, eps=1.0))
    with default_dtype(np.float32):
        assert {p.dtype for p in (*LayerNorm(4).parameters(), *RMSNorm(4).parameters())} == {np.dtype(np.float32)}
    assert norm.gamma.dtype == np.float64
    twin = copy.deepcopy(norm)
    twin.gamma.data = np.full(4, 2.0)
    assert_array_equal(norm.gamma.data, 1)
