"""softmax: scores to weights that sum to 1 (notes 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd import primitive, stop_gradient


def checked_mask(mask: Any, shape: tuple[int, ...]) -> Any:
    if mask is None:
        return None
    if np.asarray(mask).dtype != bool:
        raise TypeError(f"A mask is boolean, True where reading is allowed; got dtype {np.asarray(mask).dtype}.")
    if np.broadcast_shapes(np.shape(mask), shape) != shape:
        raise ValueError(f"A mask must broadcast to the scores' shape {shape}; got {np.shape(mask)}.")
    return mask


@primitive()
def softmax(S: Any, mask: Any = None, *, axis: int = -1) -> Any:
    """a_j = e^(s_j) / Σ_k e^(s_k) along `axis` (notes 3.3, 15.1).

    S of any shape and floating dtype; the result has the same. Where the boolean `mask` (broadcast to S) is False, a_j is
    exactly 0 and s_j gets gradient 0; a slice with no True gives zeros. Raises TypeError for a mask that is not boolean.
    """
    mask = checked_mask(mask, np.shape(S))
    allowed = S if mask is None else np.where(mask, S, -np.inf)
    top = np.max(allowed, axis=axis, keepdims=True, initial=-np.inf)
    a = np.exp(allowed - np.where(np.isfinite(top), top, 0))
    total = np.sum(a, axis=axis, keepdims=True)
    return np.divide(a, np.where(total == 0, 1, total), dtype=S.dtype)


@softmax.rule("S", "∂L/∂{S} = {y} · (∂L/∂{y} - Σ {y} · ∂L/∂{y})")
def softmax_wrt_S(g: Any, y: Any, S: Any, mask: Any, axis: int = -1) -> Any:
    return y * (g - np.sum(y * g, axis=axis, keepdims=True))


@softmax.defined_by
def softmax_definition(S: Any, mask: Any = None, *, axis: int = -1) -> Any:
    constant = stop_gradient(S)  # shifting all scores changes nothing; the largest becomes 0, so no exponential overflows
    if checked_mask(mask, S.shape) is None:
        e = np.exp(S - np.max(constant, axis=axis, keepdims=True))
        return e / np.sum(e, axis=axis, keepdims=True)
    top = np.max(np.where(mask, constant, -np.inf), axis=axis, keepdims=True)
    e = np.exp(np.where(mask, S - np.where(np.isfinite(top), top, 0), -np.inf))
    total = np.sum(e, axis=axis, keepdims=True)
    return e / np.where(np.any(mask, axis=axis, keepdims=True), total, 1)
