"""softmax: scores to weights that sum to 1 (notes 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd import primitive, stop_gradient
from chainrule.nn.checks import broadcasts
from chainrule.nn.kernels import BLOCK, over_rows, working_dtype

# A sum of exponentials is usual if it lies between this and its inverse.
LEAST = {np.dtype(t): np.finfo(t).tiny ** 0.5 for t in (np.float16, np.float32, np.float64, np.longdouble)}


def checked_mask(mask: Any, shape: tuple[int, ...]) -> Any:
    """`mask`, which is None or boolean and broadcasts to `shape`."""
    if mask is None:
        return None
    if np.asarray(mask).dtype != bool:
        raise TypeError(f"A mask is boolean, True where a query may read a key; got dtype {np.asarray(mask).dtype}.")
    if not broadcasts(np.shape(mask), shape):
        raise ValueError(f"A mask must broadcast to the scores' shape {shape}; got {np.shape(mask)}.")
    return mask


@primitive(symmetric=True)
def softmax(S: Any, mask: Any = None, *, axis: int = -1) -> Any:
    """a_j = e^(s_j) / Σ_k e^(s_k) along `axis` (notes 3.3, 15.1).

    S of any shape and dtype; the result has the same, float64 for integers. Where the boolean `mask` (broadcast to S) is
    False, a_j is exactly 0 and s_j gets gradient 0; a slice with no True gives zeros. Raises TypeError for a mask that is not
    boolean, ValueError for one that does not broadcast.
    """
    mask = checked_mask(mask, np.shape(S))
    S = np.asarray(S)
    dtype, working = working_dtype(S)
    if S.dtype != working:  # integers; and float16, in which a sum of many is infinite
        return softmax.forward(S.astype(working), mask, axis=axis).astype(dtype)
    if S.ndim == 0 or axis not in (-1, S.ndim - 1):
        return softmax_of_any_scores(S, mask, axis)
    if S.nbytes <= 2 * BLOCK or S.shape[-1] == 0:
        return softmax_kernel(S, mask)
    a = np.empty(S.shape, S.dtype)
    rows = S.size // S.shape[-1]
    mask = None if mask is None else np.broadcast_to(mask, S.shape).reshape(rows, -1)
    S_rows, a_rows = S.reshape(rows, -1), a.reshape(rows, -1)

    def work(block: slice) -> None:
        softmax_kernel(S_rows[block], None if mask is None else mask[block], out=a_rows[block])

    over_rows(work, a_rows)
    return a


def softmax_kernel(S: Any, mask: Any, out: Any = None) -> Any:
    """softmax of the last axis of S, in few passes; into `out`, if given.

    e^s is taken of the scores as they stand, which for usual ones loses nothing. Where the sums say that they are not usual,
    or that a row reads nothing, the scores are shifted first.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        a = np.exp(S, out=out)
        if mask is not None:
            np.multiply(a, mask, out=a)
        total = np.matmul(a, np.ones(a.shape[-1:], a.dtype))[..., None]
    least = LEAST[a.dtype]
    if total.size and not (least < total.min() and total.max() < 1 / least):  # a NaN is neither
        a[...] = softmax_of_any_scores(S, mask, -1)
        return a
    return np.divide(a, total, out=a)


def softmax_of_any_scores(S: Any, mask: Any, axis: int) -> Any:
    """softmax of scores of any size: shifted so that the largest becomes 0, no exponential overflows."""
    allowed = S if mask is None else np.where(mask, S, -np.inf)
    top = np.max(allowed, axis=axis, keepdims=True, initial=-np.inf)
    a = np.exp(allowed - np.where(np.isfinite(top), top, 0))
    total = np.sum(a, axis=axis, keepdims=True)
    return np.divide(a, np.where(total == 0, 1, total), dtype=S.dtype)


@softmax.rule("S", "∂L/∂{S} = {y} · (∂L/∂{y} - Σ {y} · ∂L/∂{y})")
def softmax_wrt_S(g: Any, y: Any, S: Any, mask: Any, axis: int = -1) -> Any:
    if axis not in (-1, y.ndim - 1) or y.ndim == 0 or y.size == 0:
        return y * (g - np.sum(y * g, axis=axis, keepdims=True))
    g_S = np.empty(y.shape, np.result_type(y, g))
    y_rows, g_rows, out = (x.reshape(-1, y.shape[-1]) for x in (y, g, g_S))

    def work(block: slice) -> None:
        np.subtract(g_rows[block], np.vecdot(y_rows[block], g_rows[block])[:, None], out=out[block])
        out[block] *= y_rows[block]

    over_rows(work, out)
    return g_S


@softmax.defined_by
def softmax_definition(S: Any, mask: Any = None, *, axis: int = -1) -> Any:
    constant = stop_gradient(S)  # shifting all scores changes nothing; the largest becomes 0, so no exponential overflows
    mask = checked_mask(mask, S.shape)
    top = np.max(constant if mask is None else np.where(mask, constant, -np.inf), axis=axis, keepdims=True)
    nothing = top == -np.inf  # slices that read nothing
    shifted = S - np.where(np.isfinite(top), top, 0)
    e = np.exp(shifted if mask is None else np.where(mask, shifted, -np.inf))
    total = np.sum(e, axis=axis, keepdims=True)
    return e / (np.where(nothing, 1, total) if nothing.any() else total)
