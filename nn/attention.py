"""Attention: each position reads the others, as much as its query asks of their keys (notes 5, 6, 8)."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from chainrule.autograd import named, primitive
from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.products import transposed
from chainrule.nn.softmax import softmax, softmax_wrt_S


def causal_mask(queries: int, keys: int) -> Any:
    """Boolean (queries, keys): True where a query may read. The last query reads all keys, also when keys outnumber."""
    return np.tri(queries, keys, keys - queries, dtype=bool)


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
