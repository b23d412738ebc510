"""Activations: what bends a layer's output, entry by entry, so that two layers are more than one matrix (notes 7.1, 15.5)."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from chainrule.autograd import elementwise
from chainrule.autograd.primitives.elementwise import relu, sigmoid
from chainrule.nn.kernels import BLOCK, entry_by_entry, product, row_blocks

__all__ = ["ACTIVATIONS", "erf", "gelu", "gelu_tanh", "relu", "sigmoid", "silu"]

SQRT2, SQRT_2PI = sqrt(2), sqrt(2 * pi)
ROOT, CUBIC = sqrt(2 / pi), 0.044715  # of gelu_tanh
TAIL = (-0.105808474, 0.38987495, -0.236994981, 0.268911364, 0.0674962777, 0.116520854)  # fitted: see _tail

# Of erf below 1, and of (1 - erf) · e^(x²) above: rational, highest powers first (S. L. Moshier's Cephes library, ndtr.c)
NEAR = (
    (
        9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
        7.00332514112805075473e3, 5.55923013010394962768e4,
    ),
    (
        1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
        2.26290000613890934246e4, 4.92673942608635921086e4,
    ),
)  # fmt: skip
FAR = (
    (
        2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
        4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
        9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2,
    ),
    (
        1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
        9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
        1.65666309194161350182e3, 5.57535340817727675546e2,
    ),
)  # fmt: skip


@elementwise()
def erf(x: Any) -> Any:
    """y = 2/√π ∫₀ˣ e^(-t²) dt, the error function, to the last digits of the dtype"""
    x = np.asarray(x)
    if x.dtype.kind == "c":  # the complex step
        return _erf(x.reshape(-1)).reshape(x.shape)
    y = np.empty(x.size, x.dtype if x.dtype.kind == "f" else float)
    for block in row_blocks(x.size, 8, BLOCK // 2):
        y[block] = _erf(x.reshape(-1)[block].astype(np.float64, copy=False))
    return y.reshape(x.shape)


def _erf(x: Any) -> Any:
    """Of float64, or of complex numbers near the real axis: each piece is an analytic function, chosen by the real part."""
    sign = np.where(x.real < 0, -1.0, 1.0)
    z = sign * x
    z = np.where(z.real > 6, 6, z)  # where it is 1
    square = z * z
    y = z * _polynomial(NEAR[0], square) / _polynomial(NEAR[1], square)
    beyond = z.real > 1
    z = z[beyond]
    y[beyond] = 1 - np.exp(-z * z) * _polynomial(FAR[0], z) / _polynomial(FAR[1], z)
    return sign * y


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Σ coefficients · powers of x, the highest first, by Horner's scheme."""
    total = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= x
    total += coefficients[-1]
    return total


@erf.rule("x", "∂L/∂{x} = ∂L/∂{y} · 2/√π · e^(-{x}²)")
def erf_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * (2 / sqrt(pi) * np.exp(-x * x))


# Fused activations: the kernel computes the derivative beside the value, so that the rule is one multiplication


@elementwise(saves=True)
def gelu(x: Any) -> Any:
    """y = x · Φ(x), where Φ(x) is the share of the standard normal distribution below x (Hendrycks and Gimpel 2016; notes 7.1)

    In float32 and float16, Φ is good to 2e-7.
    """
    return entry_by_entry(_gelu, x)


def _gelu(x: Any, y: Any, slope: Any) -> None:
    density = np.multiply(x, x, out=slope)
    density *= -0.5
    np.exp(density, out=density)  # φ(x) · √(2π)
    half = _half_narrow(x, density) if x.dtype == np.float32 else _half(x, density)
    phi = np.add(half, 0.5, out=half)
    np.multiply(x, phi, out=y)
    density *= x
    density *= 1 / SQRT_2PI
    slope += phi


def _half_narrow(x: Any, density: Any) -> Any:
    """Φ(x) - 1/2 in float32.

    Φ(-|x|) = φ(x) · t · P(t), t = 1 / (1 + 0.28 |x|), in the manner of Abramowitz and Stegun 26.2.17, to 1e-8.
    """
    t = np.abs(x)
    t *= 0.28
    t += 1
    np.divide(1, t, out=t)  # np.reciprocal is slower
    half = _polynomial(TAIL, t)
    half *= t
    half *= density
    np.subtract(0.5, half, out=half)
    sign = np.bitwise_and(x.view(np.int32), np.int32(-(2**31)), out=t.view(np.int32))
    half.view(np.int32)[...] |= sign  # as np.copysign, which is slower
    return half


def _half(x: Any, density: Any) -> Any:
    """Φ(x) - 1/2 = erf(x / √2) / 2, with the two formulas of `_erf`; the second has e^(-x²/2), which is there."""
    z = np.abs(x)
    z *= 1 / SQRT2
    near = np.minimum(z, 1)
    square = near * near
    half = _polynomial(NEAR[0], square)
    half *= near
    half /= _polynomial(NEAR[1], square)
    beyond = np.flatnonzero(z > 1)
    z = np.minimum(z[beyond], 40)  # where e^(-x²/2) is 0
    half[beyond] = 1 - density[beyond] * _polynomial(FAR[0], z) / _polynomial(FAR[1], z)
    half *= 0.5
    return np.copysign(half, x, out=half)


@gelu.rule("x", "∂L/∂{x} = ∂L/∂{y} · (Φ({x}) + {x} · e^(-{x}²/2) / √(2π))")
def gelu_wrt_x(g: Any, y: Any, x: Any, saved: Any) -> Any:
    return product(g, saved)


@gelu.defined_by
def gelu_definition(x: Any) -> Any:
    return x * ((1 + erf(x / SQRT2)) / 2)


@elementwise(saves=True)
def gelu_tanh(x: Any) -> Any:
    """y = x · (1 + tanh u) / 2, u = √(2/π) · (x + 0.044715 x³): GPT-2's approximation of GELU (Hendrycks and Gimpel 2016)"""
    return entry_by_entry(_gelu_tanh, x)


def _gelu_tanh(x: Any, y: Any, slope: Any) -> None:
    h = np.multiply(x, x, out=slope)
    h *= -2 * ROOT * CUBIC
    h -= 2 * ROOT
    h *= x
    np.exp(h, out=h)
    h += 1
    np.divide(1, h, out=h)  # (1 + tanh u) / 2 = 1 / (1 + e^(-2u))
    np.multiply(x, h, out=y)
    change = 1 - h
    change *= y
    bent = change * x  # not times x², which may be infinite where this is 0
    bent *= x
    bent *= 6 * ROOT * CUBIC
    change *= 2 * ROOT
    change += bent
    slope += change


@gelu_tanh.rule("x", "∂L/∂{x} = ∂L/∂{y} · (h + 2 {y} · (1 - h) · √(2/π) · (1 + 3 · 0.044715 {x}²)),  h = (1 + tanh u) / 2")
def gelu_tanh_wrt_x(g: Any, y: Any, x: Any, saved: Any) -> Any:
    return product(g, saved)


@gelu_tanh.defined_by
def gelu_tanh_definition(x: Any) -> Any:
    u = ROOT * (x + CUBIC * x * x * x)
    return x * ((1 + np.tanh(u)) / 2)


@elementwise(saves=True)
def silu(x: Any) -> Any:
    """y = x · σ(x), also called swish (Elfwing, Uchibe and Doya 2017; Ramachandran, Zoph and Le 2017)"""
    return entry_by_entry(_silu, x)


def _silu(x: Any, y: Any, slope: Any) -> None:
    s = np.negative(x, out=slope)
    np.exp(s, out=s)
    s += 1
    np.divide(1, s, out=s)
    np.multiply(x, s, out=y)
    change = 1 - s
    change *= y
    slope += change


@silu.rule("x", "∂L/∂{x} = ∂L/∂{y} · (s + {y} · (1 - s)),  s = σ({x})")
def silu_wrt_x(g: Any, y: Any, x: Any, saved: Any) -> Any:
    return product(g, saved)


@silu.defined_by
def silu_definition(x: Any) -> Any:
    return x * sigmoid(x)


ACTIVATIONS: dict[str, Any] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}
