"""Reductions: sums, means and extremes over axes.

`axis` is None (all), an integer or a tuple, negative ones counted from the end, as in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.rules import primitive


def with_reduced_axes(y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """`y`, a reduction of `x`, with the reduced axes back as axes of length 1, so that it broadcasts against x."""
    if keepdims or y.ndim == x.ndim:
        return y
    return np.reshape(y, (1,) * x.ndim) if axis is None else np.expand_dims(y, axis)


@primitive(np.sum, linear="each")
def sum_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = Σ x over the axes"""
    return np.add.reduce(x, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]


@sum_.rule("x", "∂L/∂{x} = ∂L/∂{y}, repeated along the summed axes")
def sum_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.broadcast_to(with_reduced_axes(g, x, axis, keepdims), x.shape)


@primitive(np.mean, linear="each")
def mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = Σ x / n over the axes"""
    return np.mean(x, axis=axis, keepdims=keepdims)


@mean.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y.size} / {x.size}, repeated along the averaged axes")
def mean_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    n = x.size / max(y.size, 1)
    return np.broadcast_to(with_reduced_axes(g / n, x, axis, keepdims), x.shape)


def _share_of_extreme(g: Any, y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """g to the entries of x equal to the extreme y, evenly where several are."""
    at_extreme = x == with_reduced_axes(y, x, axis, keepdims)
    count = np.maximum(np.sum(at_extreme, axis=axis, keepdims=True, dtype=x.dtype), 1)
    return np.where(at_extreme, with_reduced_axes(g, x, axis, keepdims) / count, 0)


@primitive(np.max, np.amax, analytic=False)
def max_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the largest x over the axes"""
    return np.max(x, axis=axis, keepdims=keepdims)


@max_.rule("x", "∂L/∂{x} = ∂L/∂{y} at the largest entry, shared evenly by equal ones")
def max_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_extreme(g, y, x, axis, keepdims)


@primitive(np.min, np.amin, analytic=False)
def min_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the smallest x over the axes"""
    return np.min(x, axis=axis, keepdims=keepdims)


@min_.rule("x", "∂L/∂{x} = ∂L/∂{y} at the smallest entry, shared evenly by equal ones")
def min_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_extreme(g, y, x, axis, keepdims)
