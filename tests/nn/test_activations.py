"""erf, GELU, SiLU: right to the last digits, at the extremes too. Derivatives: tests/autograd/test_primitives.py."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, gradcheck, nn
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.scalar import values
from chainrule.nn.activations import ACTIVATIONS, erf, gelu, gelu_tanh, silu

FUSED = [gelu, gelu_tanh, silu]
each_fused = pytest.mark.parametrize("f", FUSED, ids=lambda f: f.name)
SWEEP = np.concatenate([np.linspace(-30, 30, 50_001), [0.0, 1e-300, -1e-8, 200.0, -200.0]])  # several blocks, the last short


def slope_of(f, x):
    """∂(sum of f)/∂x, an array."""
    x = Tensor(x, requires_grad=True)
    return gradients(f(x), [x], np.ones(x.shape))[0]


def test_erf_is_pythons():
    x = np.concatenate([np.linspace(-7, 7, 20_001), np.logspace(-300, 0, 301), [0.0, np.inf, -np.inf]])
    expected = np.vectorize(math.erf)(x)
    assert_allclose(erf(x), expected, rtol=5e-16, atol=0)
    for dtype in (np.float32, np.float16):
        assert_array_equal(erf(x.astype(dtype)), np.vectorize(math.erf)(x.astype(dtype).astype(float)).astype(dtype))
    assert np.isnan(erf(np.nan))
    assert np.signbit(erf(-0.0))
    assert_array_equal(erf([[-1e300, 1e300]]), [[-1, 1]])


def test_erf_beside_the_real_axis():
    """The complex step sees its slope, 2/√π e^(-x²), on both sides of where its two formulas meet."""
    x = np.linspace(-4, 4, 4001)
    assert_allclose(erf(x + 1e-100j).imag / 1e-100, 2 / math.sqrt(math.pi) * np.exp(-x * x), rtol=1e-12, atol=1e-15)


def test_gelu_by_hand():
    """Φ(1) = 0.8413447460685429, φ(1) = 0.24197072451914337."""
    assert_allclose(gelu(np.array([1.0, -1.0, 0.0])), [0.8413447460685429, -0.15865525393145705, 0], rtol=1e-15)
    assert_allclose(slope_of(gelu, [1.0, 0.0]), [0.8413447460685429 + 0.24197072451914337, 0.5], rtol=1e-15)


def test_gelu_tanh_by_hand():
    u = math.sqrt(2 / math.pi) * 1.044715
    assert_allclose(gelu_tanh(np.array([1.0, -1.0])), [(1 + math.tanh(u)) / 2, -(1 - math.tanh(u)) / 2], rtol=1e-15)
    slope = (1 + math.tanh(u)) / 2 + 0.5 / math.cosh(u) ** 2 * math.sqrt(2 / math.pi) * 1.134145
    assert_allclose(slope_of(gelu_tanh, [1.0, 0.0]), [slope, 0.5], rtol=1e-15)


def test_silu_by_hand():
    """σ(log 3) = 3/4, of slope 3/16."""
    assert_allclose(silu(np.log([3.0, 1 / 3])), [0.75 * math.log(3), -0.25 * math.log(3)], rtol=1e-15)
    assert_allclose(slope_of(silu, np.log([3.0])), [0.75 + math.log(3) * 3 / 16], rtol=1e-15)


@each_fused
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_kernel_equals_definition(f, dtype):
    x = SWEEP.astype(dtype)
    exact = x.astype(float)  # in float64 the definition overflows nowhere
    tolerance = {np.float64: 1e-14, np.float32: 2.5e-6, np.float16: 1e-3}[dtype]
    assert f(x).dtype == slope_of(f, x).dtype == dtype
    assert_allclose(f(x), f.definition(exact), rtol=tolerance, atol=tolerance)
    with open_fused():
        slope = slope_of(f, exact)
    assert_allclose(slope_of(f, x), slope, rtol=tolerance, atol=tolerance)


@each_fused
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extremes(f, dtype):
    """No warning, no NaN: far out these are max(x, 0)."""
    big = [1e3, 1e30, float(np.finfo(dtype).max)]
    x = np.array([*big, *np.negative(big)], dtype)
    assert_array_equal(f(x), np.maximum(x, 0))
    assert_array_equal(slope_of(f, x), [1, 1, 1, 0, 0, 0])


@each_fused
def test_float16_extremes(f):
    x = np.array([65504, 300, -300, -65504], np.float16)
    assert_array_equal(f(x), np.maximum(x, 0))
    assert_array_equal(slope_of(f, x), [1, 1, 0, 0])


@each_fused
def test_definition_at_1e30(f):
    x = Tensor([1e30, -1e30], requires_grad=True)
    with open_fused():
        y = f(x)
        assert_array_equal(y.data, [1e30, 0])
        assert_array_equal(gradients(y, [x], np.ones(2))[0], [1, 0])


@each_fused
def test_shapes_and_inputs_of_other_kinds(f):
    assert f(np.zeros((2, 0, 3))).shape == (2, 0, 3)
    assert f(2.0) == f(np.array([2.0]))[0] == f([2])[0] == f(np.array(2))
    x = np.arange(12.0).reshape(3, 4)
    assert_array_equal(f(x.T), f(x).T)
    assert_array_equal(f(np.broadcast_to(x[0], (5, 4))), np.tile(f(x[0]), (5, 1)))


@each_fused
def test_scalar_mode_and_second_order(f):
    v = values(np.array([0.5, -2.0, 8.0]))
    y = np.sum(f(v))
    y.backward()
    x = np.array([0.5, -2.0, 8.0])
    assert y.data == pytest.approx(np.sum(f(x)), rel=1e-15)
    assert_allclose(v.grad, slope_of(f, x), rtol=1e-14, atol=1e-15)
    step = 1e-5
    second = grad(lambda x: np.sum(grad(lambda x: np.sum(f(x)))(x)))(x)
    assert_allclose(second, (slope_of(f, x + step) - slope_of(f, x - step)) / (2 * step), atol=1e-9)
    assert gradcheck(f, x, method="complex").ok


@each_fused
def test_scalar_mode_far_out(f):
    v = values(np.array([100.0, -100.0]))
    np.sum(f(v)).backward()
    assert_array_equal(v.grad, [1, np.exp(-100) * -99 if f is silu else 0])


def test_activations_by_name():
    assert list(ACTIVATIONS) == ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]
    expected = [0.5, 0.34573123063700656, 0.3457140111, 0.3112296656, 0.6224593312, 0.4621171573]
    for f, y in zip(ACTIVATIONS.values(), expected, strict=True):
        assert f(Tensor([0.5])).data[0] == pytest.approx(y, rel=1e-8)
    assert ACTIVATIONS["relu"] is nn.relu
