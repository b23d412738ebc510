"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.rules import implements, primitive


def transposed(a: Any) -> Any:
    """aᵀ in the last two axes."""
    return a.T if a.ndim == 2 else np.swapaxes(a, -1, -2)


@primitive(np.matmul, linear="each")
def matmul(a: Any, b: Any) -> Any:
    """y = a @ b.  a (…, n, k), b (…, k, m) -> y (…, n, m); vectors as in np.matmul"""
    if a.ndim == b.ndim == 2:
        return a.dot(b)  # the same product as np.matmul's, which takes longer to start
    if a.ndim > 2 and b.ndim == 2:  # one large product instead of many small ones
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1]) if a.size else np.matmul(a, b)
    return np.matmul(a, b)


@matmul.rule("a", "∂L/∂{a} = ∂L/∂{y} @ {b}ᵀ")
def matmul_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    if a.ndim == b.ndim == 2:
        return g.dot(b.T)
    if b.ndim == 1:
        return unbroadcast(np.expand_dims(g, -1) * b, a.shape)
    if a.ndim == 1:
        return unbroadcast(np.sum(b * np.expand_dims(g, -2), axis=-1), a.shape)
    return unbroadcast(g @ transposed(b), a.shape)


@matmul.rule("b", "∂L/∂{b} = {a}ᵀ @ ∂L/∂{y}")
def matmul_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    if a.ndim == b.ndim == 2:
        return a.T.dot(g)
    if a.ndim == 1 and b.ndim == 1:
        return g * a
    if a.ndim == 1:
        return unbroadcast(np.expand_dims(a, -1) * np.expand_dims(g, -2), b.shape)
    if b.ndim == 1:
        return unbroadcast(np.sum(a * np.expand_dims(g, -1), axis=-2), b.shape)
    if b.ndim == 2 and a.size:  # the sum over the batch is part of the product
        return np.reshape(a, (-1, a.shape[-1])).T @ np.reshape(g, (-1, g.shape[-1]))
    return unbroadcast(transposed(a) @ g, b.shape)


@implements(np.dot)
def dot(a: Any, b: Any) -> Any:
    """np.dot, for numbers, vectors and matrices."""
    if a.ndim > 2 or b.ndim > 2:
        raise TypeError("np.dot of Tensors with more than two axes is not covered yet; say which product you mean with @.")
    return matmul(a, b) if a.ndim and b.ndim else a * b
