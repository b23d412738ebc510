"""Functions of neural networks, each with a definition in plain NumPy and a fused kernel.

The definition is the truth and can be zoomed into; the kernel (the function under the decorator, and its rules) is the
speed. Tests hold the two equal.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from chainrule.autograd import named, primitive, stop_gradient
from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.products import transposed


def causal_mask(queries: int, keys: int) -> Any:
    """Boolean (queries, keys): True where a query may read. The last query reads all keys, also when keys outnumber."""
    return np.tri(queries, keys, keys - queries, dtype=bool)


def _checked_mask(mask: Any, shape: tuple[int, ...]) -> Any:
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
    mask = _checked_mask(mask, np.shape(S))
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
    if _checked_mask(mask, S.shape) is None:
        e = np.exp(S - np.max(constant, axis=axis, keepdims=True))
        return e / np.sum(e, axis=axis, keepdims=True)
    top = np.max(np.where(mask, constant, -np.inf), axis=axis, keepdims=True)
    e = np.exp(np.where(mask, S - np.where(np.isfinite(top), top, 0), -np.inf))
    total = np.sum(e, axis=axis, keepdims=True)
    return e / np.where(np.any(mask, axis=axis, keepdims=True), total, 1)


def _checked_target(logits: Any, target: Any) -> Any:
    target = np.asarray(target)
    if target.dtype.kind not in "iu":
        raise TypeError(f"Targets are integers, the index of the right class; got dtype {target.dtype}.")
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"Logits (…, classes) need targets (…); got logits {logits.shape} and targets {target.shape}: "
            f"expected {logits.shape[:-1]}."
        )
    if target.size == 0:
        raise ValueError("The mean loss over no target is undefined; got empty targets.")
    if target.min() < 0 or target.max() >= logits.shape[-1]:
        raise ValueError(f"Targets must lie in 0..{logits.shape[-1] - 1}; got {target.min()}..{target.max()}.")
    return target


@primitive(saves=True)
def cross_entropy(logits: Any, target: Any) -> Any:
    """L = mean over positions of -ln p[target], with p = softmax(logits) (notes 11.1, 15.2).

    logits (…, classes) floating, target (…) integers; the loss is a single number. It stays finite for any finite logits.
    Raises TypeError for targets that are not integers, ValueError for other shapes, indices out of range, or no target.
    """
    target = _checked_target(logits, target)[..., None]
    top = np.max(logits, axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))  # of the shifted logits
    return np.mean(log_sum - (np.take_along_axis(logits, target, axis=-1) - top)), (top, log_sum)


@cross_entropy.rule("logits", "∂L/∂{logits} = (p - 1[target]) · ∂L/∂{y} / {target.size}")
def cross_entropy_wrt_logits(g: Any, y: Any, logits: Any, target: Any, saved: Any) -> Any:
    top, log_sum = saved  # kept apart: in their sum a large top would swallow log_sum
    p = logits - top
    np.exp(np.subtract(p, log_sum, out=p), out=p)
    at_target = np.asarray(target)[..., None]
    np.put_along_axis(p, at_target, np.take_along_axis(p, at_target, axis=-1) - 1, axis=-1)
    p *= g / at_target.size
    return p


@cross_entropy.defined_by
def cross_entropy_definition(logits: Any, target: Any) -> Any:
    target = _checked_target(logits, target)
    shifted = logits - np.max(stop_gradient(logits), axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(shifted), axis=-1))
    return np.mean(log_sum - shifted[(*np.indices(target.shape, sparse=True), target)])


@primitive(saves=True, named_inside=True)
def attention(Q: Any, K: Any, V: Any, mask: Any = None) -> Any:
    """Z = A V, A = softmax(S), S = Q Kᵀ / √d_k (notes 5.12, 6.2).

    Q (…, n, d_k), K (…, m, d_k), V (…, m, d_v) -> Z (…, n, d_v). Where the boolean `mask` (broadcast to (…, n, m)) is
    False, a query does not read; `causal_mask(n, m)` lets it read itself and what came before.
    """
    _check_attention(Q, K, V)
    S = Q @ transposed(K) / sqrt(Q.shape[-1])  # (…, n, m)
    A = softmax.forward(S, mask)
    return A @ V, A


@attention.joint_rule({
    "Q": "∂L/∂{Q} = ∂L/∂S @ {K} / √d_k,  ∂L/∂S = A · (∂L/∂A - Σ A · ∂L/∂A),  ∂L/∂A = ∂L/∂{y} @ {V}ᵀ",
    "K": "∂L/∂{K} = (∂L/∂S)ᵀ @ {Q} / √d_k",
    "V": "∂L/∂{V} = Aᵀ @ ∂L/∂{y}",
})  # fmt: skip
def attention_wrt_inputs(g: Any, y: Any, Q: Any, K: Any, V: Any, mask: Any, saved: Any) -> Any:
    A = saved
    g_S = softmax_wrt_S(g @ transposed(V), A, None, None) / sqrt(Q.shape[-1])
    return (
        unbroadcast(g_S @ K, Q.shape),
        unbroadcast(transposed(g_S) @ Q, K.shape),
        unbroadcast(transposed(A) @ g, V.shape),
        None,
    )


@attention.defined_by
def attention_definition(Q: Any, K: Any, V: Any, mask: Any = None) -> Any:
    _check_attention(Q, K, V)
    S = named("S", Q @ transposed(K) / sqrt(Q.shape[-1]))
    A = named("A", softmax(S, mask))
    return A @ V


def _check_attention(Q: Any, K: Any, V: Any) -> None:
    if Q.ndim < 2 or K.ndim < 2 or V.ndim < 2 or Q.shape[-1] != K.shape[-1] or K.shape[-2] != V.shape[-2]:
        raise ValueError(
            f"attention takes Q (…, n, d_k), K (…, m, d_k), V (…, m, d_v); got {Q.shape}, {K.shape} and {V.shape}."
        )
