"""Elementwise operations: entry i of the output depends on entry i of the (broadcast) inputs.

Each rule is the line of the table of derivatives, times g = ∂L/∂y. It may return the shape of the output: the chain rule
sums it down to the input's shape, and keeps a zero adjoint's contribution zero where the derivative is infinite.

Conventions at kinks and poles: |x|'(0) = 0; equal arguments of maximum, minimum and clip share evenly; x**0 has
derivative 0; 0**b has derivative 0 in b for b ≥ 0; hypot and arctan2 have derivative 0 at the origin; sign, heaviside and
the like have derivative 0 also where they jump, remainder and fmod the one beside the jump.
"""

from __future__ import annotations

from math import factorial, pi
from math import log as ln
from typing import Any

import numpy as np

from chainrule.autograd.rules import elementwise, implements
from chainrule.autograd.tensor import Tensor

LN2, LN10 = ln(2), ln(10)


def over(a: Any, r: Any) -> Any:
    """a / r, and 0 where r = 0: the convention at the origin, where a / r has no limit."""
    return np.where(r == 0, 0, a / np.where(r == 0, 1, r))


# Arithmetic


@elementwise(np.add)
def add(a: Any, b: Any) -> Any:
    """y = a + b"""
    return np.add(a, b)


@add.rule("a", "∂L/∂{a} = ∂L/∂{y}")
def add_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g


@add.rule("b", "∂L/∂{b} = ∂L/∂{y}")
def add_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g


@elementwise(np.subtract)
def subtract(a: Any, b: Any) -> Any:
    """y = a - b"""
    return np.subtract(a, b)


@subtract.rule("a", "∂L/∂{a} = ∂L/∂{y}")
def subtract_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g


@subtract.rule("b", "∂L/∂{b} = -∂L/∂{y}")
def subtract_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return -g


@elementwise(np.multiply)
def multiply(a: Any, b: Any) -> Any:
    """y = a · b"""
    return np.multiply(a, b)


@multiply.rule("a", "∂L/∂{a} = ∂L/∂{y} · {b}")
def multiply_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * b


@multiply.rule("b", "∂L/∂{b} = ∂L/∂{y} · {a}")
def multiply_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * a


@elementwise(np.divide)
def divide(a: Any, b: Any) -> Any:
    """y = a / b"""
    return np.divide(a, b)


@divide.rule("a", "∂L/∂{a} = ∂L/∂{y} / {b}")
def divide_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g / b


@divide.rule("b", "∂L/∂{b} = -∂L/∂{y} · {y} / {b}")
def divide_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return -g * y / b


@elementwise(np.power)
def power(a: Any, b: Any) -> Any:
    """y = aᵇ"""
    if type(b) in (int, float) and b == 3 and getattr(a, "dtype", np.dtype(float)).kind in "fcO":
        return a * a * a  # twenty times as quick as NumPy's power
    return a**b  # the operator, unlike np.power, has quick ways for the exponents 2, 0.5 and -1


@power.rule("a", "∂L/∂{a} = ∂L/∂{y} · {b} · {a}^({b} - 1)")
def power_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)):
        return g * (2 * a) if b == 2 else g * 0 if b == 0 else g * (b * a ** (b - 1))
    undefined = (b == 0) & ~np.isfinite(1 / a)  # 0 · ∞: 0 by convention
    return g * np.where(undefined, 0, b * a ** np.where(undefined, 1, b - 1))


@power.rule("b", "∂L/∂{b} = ∂L/∂{y} · {y} · log {a}")
def power_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * y * np.log(np.where((a == 0) & (b >= 0), 1, a))


@implements(np.float_power)
def float_power(a: Any, b: Any) -> Any:
    """np.float_power: the power, in float64 whatever the inputs are."""

    def float64(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return float(x) if isinstance(x, (int, float)) else np.asarray(x, float)
        return x if x.dtype == float else x.astype(float)

    return power(float64(a), float64(b))


@elementwise(np.negative)
def negative(x: Any) -> Any:
    """y = -x"""
    return np.negative(x)


@negative.rule("x", "∂L/∂{x} = -∂L/∂{y}")
def negative_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return -g


@elementwise(np.reciprocal)
def reciprocal(x: Any) -> Any:
    """y = 1 / x"""
    return np.reciprocal(x)


@reciprocal.rule("x", "∂L/∂{x} = -∂L/∂{y} · {y}²")
def reciprocal_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return -g * y * y


@elementwise(np.square)
def square(x: Any) -> Any:
    """y = x²"""
    return np.square(x)


@square.rule("x", "∂L/∂{x} = ∂L/∂{y} · 2{x}")
def square_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * (2 * x)


@elementwise(np.sqrt)
def sqrt(x: Any) -> Any:
    """y = √x"""
    return np.sqrt(x)


@sqrt.rule("x", "∂L/∂{x} = ∂L/∂{y} / (2{y})")
def sqrt_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (2 * y)


@elementwise(np.cbrt, analytic=False)
def cbrt(x: Any) -> Any:
    """y = ∛x"""
    return np.cbrt(x)


@cbrt.rule("x", "∂L/∂{x} = ∂L/∂{y} / (3{y}²)")
def cbrt_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (3 * y * y)


@elementwise(np.hypot, analytic=False)
def hypot(a: Any, b: Any) -> Any:
    """y = √(a² + b²)"""
    return np.hypot(a, b)


@hypot.rule("a", "∂L/∂{a} = ∂L/∂{y} · {a} / {y}")
def hypot_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * over(a, y)


@hypot.rule("b", "∂L/∂{b} = ∂L/∂{y} · {b} / {y}")
def hypot_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * over(b, y)


@elementwise(np.absolute, np.fabs, analytic=False)
def absolute(x: Any) -> Any:
    """y = |x|"""
    return np.absolute(x)


@absolute.rule("x", "∂L/∂{x} = ∂L/∂{y} · sign {x}")
def absolute_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * np.sign(x)


@elementwise(np.sign, analytic=False)
def sign(x: Any) -> Any:
    """y = sign x, of derivative 0 everywhere (also at 0, where it jumps)"""
    return np.sign(x)


@sign.rule("x", "∂L/∂{x} = 0")
def sign_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * 0


@elementwise(np.copysign, analytic=False)
def copysign(a: Any, b: Any) -> Any:
    """y = |a| with the sign of b"""
    return np.copysign(a, b)


@copysign.rule("a", "∂L/∂{a} = ∂L/∂{y} · sign {a} · sign {b}")
def copysign_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * np.sign(a) * np.copysign(1, b)


@copysign.rule("b", "∂L/∂{b} = 0")
def copysign_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * 0


@elementwise(np.heaviside, analytic=False)
def heaviside(x: Any, h: Any) -> Any:
    """y = 0 where x < 0, h where x = 0, 1 where x > 0"""
    return np.heaviside(x, h)


@heaviside.rule("x", "∂L/∂{x} = 0")
def heaviside_wrt_x(g: Any, y: Any, x: Any, h: Any) -> Any:
    return g * 0


@heaviside.rule("h", "∂L/∂{h} = ∂L/∂{y} where {x} = 0")
def heaviside_wrt_h(g: Any, y: Any, x: Any, h: Any) -> Any:
    return np.where(x == 0, g, 0)


# Division with a remainder. The quotient is a whole number, so its derivative is 0


@elementwise(np.remainder, analytic=False)
def remainder(a: Any, b: Any) -> Any:
    """y = a - ⌊a / b⌋ · b, of the sign of b"""
    return np.remainder(a, b)


@remainder.rule("a", "∂L/∂{a} = ∂L/∂{y}")
def remainder_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g


@remainder.rule("b", "∂L/∂{b} = -∂L/∂{y} · ⌊{a} / {b}⌋")
def remainder_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return -g * np.floor_divide(a, b)


@elementwise(np.fmod, analytic=False)
def fmod(a: Any, b: Any) -> Any:
    """y = a - q · b with q = a / b rounded towards 0; y has the sign of a"""
    return np.fmod(a, b)


@fmod.rule("a", "∂L/∂{a} = ∂L/∂{y}")
def fmod_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g


@fmod.rule("b", "∂L/∂{b} = -∂L/∂{y} · ({a} / {b} rounded towards 0)")
def fmod_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return -g * np.rint((a - y) / b)  # a whole number but for rounding; a / b itself may round up to the next


@implements(np.divmod)
def divmod_(a: Any, b: Any) -> tuple[Any, Any]:
    """np.divmod: the quotient, a plain array, and the remainder."""
    return np.floor_divide(a, b), remainder(a, b)


@elementwise(analytic=False)
def fraction(x: Any) -> Any:
    """y = x without its whole part, of the sign of x"""
    return np.modf(x)[0]


@fraction.rule("x", "∂L/∂{x} = ∂L/∂{y}")
def fraction_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g


@implements(np.modf)
def modf(x: Any) -> tuple[Any, Any]:
    """np.modf: the fraction, and the whole part as a plain array."""
    return fraction(x), np.trunc(x)


# Floating-point parts


@elementwise(np.ldexp, analytic=False)
def ldexp(x: Any, n: Any) -> Any:
    """y = x · 2ⁿ, n integers"""
    return np.ldexp(x, n)


@ldexp.rule("x", "∂L/∂{x} = ∂L/∂{y} · 2^{n}")
def ldexp_wrt_x(g: Any, y: Any, x: Any, n: Any) -> Any:
    return np.ldexp(g, n)


@implements(np.frexp)
def frexp(x: Any) -> tuple[Any, Any]:
    """np.frexp: the mantissa m, and the exponents n as a plain array; x = m · 2ⁿ."""
    n = np.frexp(x.data)[1]
    return ldexp(x, -n), n


# Exponentials and logarithms


@elementwise(np.exp)
def exp(x: Any) -> Any:
    """y = eˣ"""
    return np.exp(x)


@exp.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y}")
def exp_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * y


@elementwise(np.exp2)
def exp2(x: Any) -> Any:
    """y = 2ˣ"""
    return np.exp2(x)


@exp2.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y} · ln 2")
def exp2_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * y * LN2


@elementwise(np.expm1)
def expm1(x: Any) -> Any:
    """y = eˣ - 1"""
    return np.expm1(x)


@expm1.rule("x", "∂L/∂{x} = ∂L/∂{y} · e^{x}")
def expm1_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * np.exp(x)  # y + 1 is the same, but has no digits left where eˣ is small


@elementwise(np.log)
def log(x: Any) -> Any:
    """y = ln x"""
    return np.log(x)


@log.rule("x", "∂L/∂{x} = ∂L/∂{y} / {x}")
def log_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / x


@elementwise(np.log2)
def log2(x: Any) -> Any:
    """y = log₂ x"""
    return np.log2(x)


@log2.rule("x", "∂L/∂{x} = ∂L/∂{y} / ({x} · ln 2)")
def log2_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (x * LN2)


@elementwise(np.log10)
def log10(x: Any) -> Any:
    """y = log₁₀ x"""
    return np.log10(x)


@log10.rule("x", "∂L/∂{x} = ∂L/∂{y} / ({x} · ln 10)")
def log10_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (x * LN10)


@elementwise(np.log1p)
def log1p(x: Any) -> Any:
    """y = ln(1 + x)"""
    return np.log1p(x)


@log1p.rule("x", "∂L/∂{x} = ∂L/∂{y} / (1 + {x})")
def log1p_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (1 + x)


@elementwise(np.logaddexp, analytic=False)
def logaddexp(a: Any, b: Any) -> Any:
    """y = ln(eᵃ + eᵇ)"""
    return np.logaddexp(a, b)


@logaddexp.rule("a", "∂L/∂{a} = ∂L/∂{y} · e^({a} - {y})")
def logaddexp_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * np.exp(_below(a, y))


@logaddexp.rule("b", "∂L/∂{b} = ∂L/∂{y} · e^({b} - {y})")
def logaddexp_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * np.exp(_below(b, y))


@elementwise(np.logaddexp2, analytic=False)
def logaddexp2(a: Any, b: Any) -> Any:
    """y = log₂(2ᵃ + 2ᵇ)"""
    return np.logaddexp2(a, b)


@logaddexp2.rule("a", "∂L/∂{a} = ∂L/∂{y} · 2^({a} - {y})")
def logaddexp2_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * np.exp2(_below(a, y))


@logaddexp2.rule("b", "∂L/∂{b} = ∂L/∂{y} · 2^({b} - {y})")
def logaddexp2_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * np.exp2(_below(b, y))


def _below(a: Any, y: Any) -> Any:
    """a - y, by which a lies below the sum; where both are -∞ (nothing was added), -∞ too, so that a's share is 0."""
    return a - np.where(y == -np.inf, 0, y)


# Trigonometric and hyperbolic


@elementwise(np.sin)
def sin(x: Any) -> Any:
    """y = sin x"""
    return np.sin(x)


@sin.rule("x", "∂L/∂{x} = ∂L/∂{y} · cos {x}")
def sin_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * np.cos(x)


@elementwise(np.cos)
def cos(x: Any) -> Any:
    """y = cos x"""
    return np.cos(x)


@cos.rule("x", "∂L/∂{x} = -∂L/∂{y} · sin {x}")
def cos_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return -g * np.sin(x)


@elementwise(np.tan)
def tan(x: Any) -> Any:
    """y = tan x"""
    return np.tan(x)


@tan.rule("x", "∂L/∂{x} = ∂L/∂{y} · (1 + {y}²)")
def tan_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g + g * y * y


@elementwise(np.arcsin)
def arcsin(x: Any) -> Any:
    """y = arcsin x"""
    return np.arcsin(x)


@arcsin.rule("x", "∂L/∂{x} = ∂L/∂{y} / √(1 - {x}²)")
def arcsin_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / np.sqrt((1 - x) * (1 + x))  # exact near ±1, where 1 - x² has lost its digits


@elementwise(np.arccos)
def arccos(x: Any) -> Any:
    """y = arccos x"""
    return np.arccos(x)


@arccos.rule("x", "∂L/∂{x} = -∂L/∂{y} / √(1 - {x}²)")
def arccos_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return -g / np.sqrt((1 - x) * (1 + x))


@elementwise(np.arctan)
def arctan(x: Any) -> Any:
    """y = arctan x"""
    return np.arctan(x)


@arctan.rule("x", "∂L/∂{x} = ∂L/∂{y} / (1 + {x}²)")
def arctan_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (1 + x * x)


@elementwise(np.arctan2, analytic=False)
def arctan2(a: Any, b: Any) -> Any:
    """y = the angle of the point (b, a), from -π to π"""
    return np.arctan2(a, b)


@arctan2.rule("a", "∂L/∂{a} = ∂L/∂{y} · {b} / ({a}² + {b}²)")
def arctan2_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    r = np.hypot(a, b)
    return g * over(over(b, r), r)  # one r at a time: r² may overflow, or vanish


@arctan2.rule("b", "∂L/∂{b} = -∂L/∂{y} · {a} / ({a}² + {b}²)")
def arctan2_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    r = np.hypot(a, b)
    return -g * over(over(a, r), r)


@elementwise(np.sinh)
def sinh(x: Any) -> Any:
    """y = sinh x"""
    return np.sinh(x)


@sinh.rule("x", "∂L/∂{x} = ∂L/∂{y} · cosh {x}")
def sinh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * np.cosh(x)


@elementwise(np.cosh)
def cosh(x: Any) -> Any:
    """y = cosh x"""
    return np.cosh(x)


@cosh.rule("x", "∂L/∂{x} = ∂L/∂{y} · sinh {x}")
def cosh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * np.sinh(x)


@elementwise(np.tanh)
def tanh(x: Any) -> Any:
    """y = tanh x"""
    return np.tanh(x)


@tanh.rule("x", "∂L/∂{x} = ∂L/∂{y} · (1 - {y}²)")
def tanh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g - g * y * y  # with array operands only: quicker than 1 - y * y


@elementwise(np.arcsinh)
def arcsinh(x: Any) -> Any:
    """y = arcsinh x"""
    return np.arcsinh(x)


@arcsinh.rule("x", "∂L/∂{x} = ∂L/∂{y} / √(1 + {x}²)")
def arcsinh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / np.hypot(1, x)


@elementwise(np.arccosh)
def arccosh(x: Any) -> Any:
    """y = arccosh x"""
    return np.arccosh(x)


@arccosh.rule("x", "∂L/∂{x} = ∂L/∂{y} / √({x}² - 1)")
def arccosh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (np.sqrt(x - 1) * np.sqrt(x + 1))


@elementwise(np.arctanh)
def arctanh(x: Any) -> Any:
    """y = arctanh x"""
    return np.arctanh(x)


@arctanh.rule("x", "∂L/∂{x} = ∂L/∂{y} / (1 - {x}²)")
def arctanh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / ((1 - x) * (1 + x))


@elementwise(np.sinc)
def sinc(x: Any) -> Any:
    """y = sin(πx) / (πx), 1 at 0"""
    return np.sinc(x)


@sinc.rule("x", "∂L/∂{x} = ∂L/∂{y} · (cos π{x} - {y}) / {x}")
def sinc_wrt_x(g: Any, y: Any, x: Any) -> Any:
    # Near 0 the difference cancels; there the Taylor series Σ (-1)ⁿ 2n / (2n + 1)! · (πx)^(2n - 1) · π, by Horner's scheme.
    near = np.abs(x) < 0.16
    square_ = np.where(near, pi * x, 0) ** 2
    series = square_ * 0
    for n in range(7, 0, -1):
        series = 2 * n / factorial(2 * n + 1) - square_ * series
    return g * np.where(near, -pi * pi * x * series, (np.cos(pi * x) - y) / np.where(near, 1, x))


@elementwise(np.deg2rad, np.radians, analytic=False)
def deg2rad(x: Any) -> Any:
    """y = x · π / 180"""
    return np.deg2rad(x)


@deg2rad.rule("x", "∂L/∂{x} = ∂L/∂{y} · π / 180")
def deg2rad_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return np.deg2rad(g)


@elementwise(np.rad2deg, np.degrees, analytic=False)
def rad2deg(x: Any) -> Any:
    """y = x · 180 / π"""
    return np.rad2deg(x)


@rad2deg.rule("x", "∂L/∂{x} = ∂L/∂{y} · 180 / π")
def rad2deg_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return np.rad2deg(g)


# Choosing


@elementwise(np.maximum, analytic=False)
def maximum(a: Any, b: Any) -> Any:
    """y = max(a, b)"""
    return np.maximum(a, b)


@maximum.rule("a", "∂L/∂{a} = ∂L/∂{y} where {a} > {b}, half of it where equal")
def maximum_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where(a > b, g, 0))


@maximum.rule("b", "∂L/∂{b} = ∂L/∂{y} where {b} > {a}, half of it where equal")
def maximum_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where(b > a, g, 0))


@elementwise(np.minimum, analytic=False)
def minimum(a: Any, b: Any) -> Any:
    """y = min(a, b)"""
    return np.minimum(a, b)


@minimum.rule("a", "∂L/∂{a} = ∂L/∂{y} where {a} < {b}, half of it where equal")
def minimum_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where(a < b, g, 0))


@minimum.rule("b", "∂L/∂{b} = ∂L/∂{y} where {b} < {a}, half of it where equal")
def minimum_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where(b < a, g, 0))


@elementwise(np.fmax, analytic=False)
def fmax(a: Any, b: Any) -> Any:
    """y = max(a, b), or the other one where one is NaN"""
    return np.fmax(a, b)


@fmax.rule("a", "∂L/∂{a} = ∂L/∂{y} where {a} > {b} or {b} is NaN, half of it where equal")
def fmax_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where((a > b) | np.isnan(b), g, 0))


@fmax.rule("b", "∂L/∂{b} = ∂L/∂{y} where {b} > {a} or {a} is NaN, half of it where equal")
def fmax_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where((b > a) | np.isnan(a), g, 0))


@elementwise(np.fmin, analytic=False)
def fmin(a: Any, b: Any) -> Any:
    """y = min(a, b), or the other one where one is NaN"""
    return np.fmin(a, b)


@fmin.rule("a", "∂L/∂{a} = ∂L/∂{y} where {a} < {b} or {b} is NaN, half of it where equal")
def fmin_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where((a < b) | np.isnan(b), g, 0))


@fmin.rule("b", "∂L/∂{b} = ∂L/∂{y} where {b} < {a} or {a} is NaN, half of it where equal")
def fmin_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where(a == b, g / 2, np.where((b < a) | np.isnan(a), g, 0))


@implements(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip: min(max(a, a_min), a_max), where None is no bound. The bounds may be Tensors, too.

    Raises TypeError for `out`, ValueError for a bound given under both of its names.
    """
    if out is not None:
        raise TypeError("np.clip(..., out=...) would overwrite values that a graph may need. Use the returned tensor.")
    bounds = []
    for name, by_position, by_keyword in (("min", a_min, min), ("max", a_max, max)):
        given = [bound for bound in (by_position, by_keyword) if bound is not None and bound is not np._NoValue]
        if len(given) == 2:
            raise ValueError(f"np.clip takes one lower and one upper bound; got both a_{name} and {name}.")
        bounds += given or [None]
    low, high = bounds
    if low is not None:
        a = maximum(a, low)
    if high is not None:
        a = minimum(a, high)
    return copy(a) if low is None and high is None else a


@elementwise(np.nan_to_num, analytic=False)
def nan_to_num(x: Any, *, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """y = x, with these numbers in place of NaN, ∞ and -∞"""
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@nan_to_num.rule("x", "∂L/∂{x} = ∂L/∂{y} where {x} is finite")
def nan_to_num_wrt_x(g: Any, y: Any, x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return np.where(np.isfinite(x), g, 0)


@elementwise()
def where(condition: Any, x: Any, z: Any) -> Any:
    """y = x where condition, else z"""
    return np.where(condition, x, z)


@where.rule("x", "∂L/∂{x} = ∂L/∂{y} where {condition}")
def where_wrt_x(g: Any, y: Any, condition: Any, x: Any, z: Any) -> Any:
    return np.where(condition, g, 0)


@where.rule("z", "∂L/∂{z} = ∂L/∂{y} where not {condition}")
def where_wrt_z(g: Any, y: Any, condition: Any, x: Any, z: Any) -> Any:
    return np.where(condition, 0, g)


@implements(np.where)
def numpy_where(condition: Any, *choices: Any) -> Any:
    """np.where; with the condition alone, the indices where it holds."""
    return where(condition, *choices) if choices else np.nonzero(condition)


# Activations


@elementwise(analytic=False)
def relu(x: Any) -> Any:
    """y = max(x, 0), of derivative 0 at 0"""
    return np.maximum(x, 0)


@relu.rule("x", "∂L/∂{x} = ∂L/∂{y} where {x} > 0")
def relu_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return np.where(x > 0, g, 0)


@elementwise()
def sigmoid(x: Any) -> Any:
    """y = 1 / (1 + e⁻ˣ), without overflow"""
    if np.iscomplexobj(x):  # the complex step
        return 1 / (1 + np.exp(-x))
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, z) / (1 + z)


@sigmoid.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y} · (1 - {y})")
def sigmoid_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * y * (1 - y)


# The same value


@elementwise(np.copy, np.positive, np.conjugate, np.real, np.real_if_close)
def copy(x: Any) -> Any:
    """y = x"""
    return np.array(x)


@copy.rule("x", "∂L/∂{x} = ∂L/∂{y}")
def copy_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g


@elementwise(np.ndarray.astype, analytic=False)
def astype(x: Any, *, dtype: Any) -> Any:
    """y = x in another dtype. The contribution returns in the dtype of x."""
    return x.astype(dtype)


@astype.rule("x", "∂L/∂{x} = ∂L/∂{y}, in the dtype of {x}")
def astype_wrt_x(g: Any, y: Any, x: Any, dtype: Any) -> Any:
    return g
