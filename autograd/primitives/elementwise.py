"""Elementwise operations: entry i of the output depends on entry i of the (broadcast) inputs.

Each rule is the line of the table of derivatives, times g = ∂L/∂y. It may return the shape of the output: the chain rule
sums it down to the input's shape, and keeps a zero adjoint's contribution zero where the derivative is infinite.

Conventions at kinks and poles: |x|'(0) = 0; equal arguments of maximum and minimum share evenly; x**0 has derivative 0;
0**b has derivative 0 in b.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.rules import elementwise, implements

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
    return np.power(a, b)


@power.rule("a", "∂L/∂{a} = ∂L/∂{y} · {b} · {a}^({b} - 1)")
def power_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)):
        return g * (2 * a) if b == 2 else g * 0 if b == 0 else g * (b * a ** (b - 1))
    return g * np.where(b == 0, 0, b * a ** np.where(b == 0, 1, b - 1))


@power.rule("b", "∂L/∂{b} = ∂L/∂{y} · {y} · log {a}")
def power_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * y * np.log(np.where(a == 0, 1, a))


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


# Exponentials and logarithms


@elementwise(np.exp)
def exp(x: Any) -> Any:
    """y = eˣ"""
    return np.exp(x)


@exp.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y}")
def exp_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * y


@elementwise(np.expm1)
def expm1(x: Any) -> Any:
    """y = eˣ - 1"""
    return np.expm1(x)


@expm1.rule("x", "∂L/∂{x} = ∂L/∂{y} · ({y} + 1)")
def expm1_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g * (y + 1)


@elementwise(np.log)
def log(x: Any) -> Any:
    """y = ln x"""
    return np.log(x)


@log.rule("x", "∂L/∂{x} = ∂L/∂{y} / {x}")
def log_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / x


@elementwise(np.log1p)
def log1p(x: Any) -> Any:
    """y = ln(1 + x)"""
    return np.log1p(x)


@log1p.rule("x", "∂L/∂{x} = ∂L/∂{y} / (1 + {x})")
def log1p_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g / (1 + x)


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


@elementwise(np.tanh)
def tanh(x: Any) -> Any:
    """y = tanh x"""
    return np.tanh(x)


@tanh.rule("x", "∂L/∂{x} = ∂L/∂{y} · (1 - {y}²)")
def tanh_wrt_x(g: Any, y: Any, x: Any) -> Any:
    return g - g * y * y  # with array operands only: quicker than 1 - y * y


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


# The same value


@elementwise(np.copy, np.positive)
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
