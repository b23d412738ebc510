"""Attention: each position reads the others, as much as its query asks of their keys (notes 5, 6, 8).

Masks are boolean, and True is what counts. There are two kinds:

- attention's, broadcast to (…, n, m): True where a query may read a key, as `causal_mask` and `padding_mask` make it;
- a model's, of the shape of its ids, (B, T): True at tokens, False at padding, such as `ids != pad`. No position reads
  padding: the model makes it attention's by `padding_mask`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf, prod, sqrt
from threading import get_ident
from typing import Any

import numpy as np

from chainrule.autograd import named, primitive
from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.products import transposed
from chainrule.autograd.tensor import frozen, value_of
from chainrule.nn import init
from chainrule.nn.cache import AllOrNothing, LayerCache
from chainrule.nn.checks import broadcasts, check_number, check_size
from chainrule.nn.dropout import Dropout
from chainrule.nn.init import Seed
from chainrule.nn.kernels import over_blocks, working_dtype
from chainrule.nn.linear import affine
from chainrule.nn.module import Module
from chainrule.nn.positions import Rope
from chainrule.nn.softmax import checked_mask, softmax, softmax_kernel


def causal_mask(queries: int, keys: int) -> Any:
    """Boolean (queries, keys): True where a query may read. The last query reads all keys, also when keys outnumber."""
    check_size("queries", queries, 0)
    check_size("keys", keys, 0)
    return np.tri(queries, keys, keys - queries, dtype=bool)


def padding_mask(tokens: Any, length: int | None = None) -> Any:
    """Boolean (B, 1, 1, m), or (1, 1, m): True where every head and query may read the key, which is where a token is.

    `tokens` is either boolean (B, m) or (m,), True at tokens, False at padding, such as `ids != pad`; or integers (B,), the
    lengths of the sentences, which are followed by padding up to `length` (by default the longest). Raises TypeError for
    anything else, ValueError for lengths that are negative or more than `length`.
    """
    tokens = np.asarray(tokens)
    if tokens.dtype == bool and tokens.ndim in (1, 2):
        return tokens[..., None, None, :]
    if tokens.dtype.kind in "iu" and tokens.ndim == 1:
        longest = int(tokens.max(initial=0))
        length = longest if length is None else length
        check_size("length", length, longest)
        check_size("The shortest length", int(tokens.min(initial=0)), 0)
        return np.arange(length) < tokens[:, None, None, None]
    raise TypeError(
        f"padding_mask takes booleans (B, m), such as ids != pad, or lengths (B,); got {tokens.dtype} {tokens.shape}."
    )


def mask_of_tokens(mask: Any, shape: tuple[int, ...]) -> Any:
    """What a model makes of the mask that it is given: attention's, as `padding_mask` has it; None stays None.

    `shape` is that of the ids, together with those in a cache. Raises TypeError for a mask that is not boolean, ValueError
    for another shape.
    """
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"A model's mask is boolean, True at tokens, such as ids != pad; got dtype {mask.dtype}.")
    if mask.shape != shape:
        raise ValueError(
            f"A model's mask has the shape of the ids, with those in a cache, {shape}: True at tokens, such as ids != pad; "
            f"got {mask.shape}. Which query may read which key, (…, n, m), is said to nn.Attention."
        )
    return padding_mask(mask)


def readable(mask: Any, causal: bool, queries: int, keys: int) -> Any:
    """`mask`, and causal if that is asked for; None if every query may read every key."""
    if not causal:
        return mask
    return causal_mask(queries, keys) if mask is None else mask & causal_mask(queries, keys)


# One primitive: softmax(Q Kᵀ / √d_k) V


@primitive(saves=True, named_inside=True)
def attention(
    Q: Any, K: Any, V: Any, mask: Any = None, bias: Any = None, *, causal: bool = False, scale: float | None = None
) -> Any:
    """Z = A V, A = softmax(S), S = Q Kᵀ / √d_k (notes 5.12, 6.2).

    Q (…, n, d_k), K (…, m, d_k), V (…, m, d_v) -> Z (…, n, d_v); the leading axes broadcast, the dtype is kept.

    Args:
        mask: boolean, broadcast to (…, n, m): True where a query may read a key. One that reads nothing gets zeros.
        bias: broadcast to (…, n, m), added to S.
        causal: a query reads itself and what came before, as `causal_mask(n, m)` says; where there is a mask, both hold.
        scale: in place of 1/√d_k.
    Raises:
        ValueError: for shapes that do not fit, and a scale that is not finite. TypeError: for a mask that is not boolean.
    """
    if mask is None and bias is None and _is_one_block(Q, K, V):  # small, as in generation: without the machinery
        _check_attention(Q, K, V, mask, bias)
        n, m = Q.shape[-2], K.shape[-2]
        read = triangle(n, m, m - n) if causal and n > 1 else None
        A = softmax_kernel(np.matmul(Q * Q.dtype.type(_scale(Q, scale)), transposed(K)), read)
        return np.matmul(A, V), [A.reshape((1,) * (4 - A.ndim) + A.shape)]
    call = Blocks(Q, K, V, mask, bias, causal, scale)
    Z = call.zeros(call.n, V.shape[-1])
    blocks = list(call.blocks())
    patterns: list[Any] = [None] * len(blocks)  # A, block by block

    def work(i: int) -> None:
        heads, rows, keys = blocks[i]
        A = patterns[i] = softmax_kernel(call.scores(heads, rows, keys), call.readable(heads, rows, keys))
        np.matmul(A, call.V[(*heads, keys)], out=Z[(*heads, rows)])

    over_blocks(work, range(len(blocks)), call.bytes)
    return call.result(Z), patterns


@attention.joint_rule({
    "Q": "∂L/∂{Q} = ∂L/∂S @ {K} / √d_k,  ∂L/∂S = A · (∂L/∂A - Σ A · ∂L/∂A),  ∂L/∂A = ∂L/∂{y} @ {V}ᵀ",
    "K": "∂L/∂{K} = (∂L/∂S)ᵀ @ {Q} / √d_k",
    "V": "∂L/∂{V} = Aᵀ @ ∂L/∂{y}",
    "bias": "∂L/∂{bias} = ∂L/∂S",
})  # fmt: skip
def attention_wrt_inputs(
    g: Any, y: Any, Q: Any, K: Any, V: Any, mask: Any, bias: Any, saved: Any, causal: bool = False, scale: float | None = None
) -> Any:
    call = Blocks(Q, K, V, mask, bias, causal, scale)
    return call.contributions(g, lambda i, block: saved[i])


@attention.defined_by
def attention_definition(
    Q: Any, K: Any, V: Any, mask: Any = None, bias: Any = None, *, causal: bool = False, scale: float | None = None
) -> Any:
    _check_attention(Q, K, V, mask, bias)
    return attention_pattern(Q, K, mask, bias, causal=causal, scale=scale) @ V


def attention_pattern(
    Q: Any, K: Any, mask: Any = None, bias: Any = None, *, causal: bool = False, scale: float | None = None
) -> Any:
    """A = softmax(Q Kᵀ / √d_k + bias) (…, n, m): how much each query reads of each key."""
    S = Q @ transposed(K) * _scale(Q, scale)  # (…, n, m)
    S = named("S", S if bias is None else S + bias)
    return named("A", softmax(S, readable(mask, causal, Q.shape[-2], K.shape[-2])))


def _scale(Q: Any, scale: float | None) -> float:
    if scale is not None:
        check_number("scale", scale, -inf, ends="()")
        return scale
    if not Q.shape[-1]:
        raise ValueError(f"Without features, Q {Q.shape}, there is no 1/√d_k; give a scale.")
    return 1 / sqrt(Q.shape[-1])


def _check_attention(Q: Any, K: Any, V: Any, mask: Any, bias: Any) -> None:
    if Q.ndim < 2 or K.ndim < 2 or V.ndim < 2 or Q.shape[-1] != K.shape[-1] or K.shape[-2] != V.shape[-2]:
        raise ValueError(
            f"attention takes Q (…, n, d_k), K (…, m, d_k), V (…, m, d_v); got {Q.shape}, {K.shape} and {V.shape}."
        )
    if not Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]:
        try:
            np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
        except ValueError:
            shapes = f"{Q.shape}, {K.shape} and {V.shape}"
            raise ValueError(f"The axes before the last two of Q, K, V must broadcast to each other; got {shapes}.") from None
    if mask is None and bias is None:
        return
    scores = (*np.broadcast_shapes(Q.shape[:-2], K.shape[:-2]), Q.shape[-2], K.shape[-2])
    checked_mask(mask, scores)
    if bias is None:
        return
    dtype = bias.dtype if hasattr(bias, "dtype") else np.asarray(bias).dtype
    if dtype.kind not in "iufcO":
        raise TypeError(f"A bias is numbers, added to the scores; got dtype {dtype}. Booleans are a mask.")
    if not broadcasts(np.shape(bias), scores):
        raise ValueError(f"A bias must broadcast to the scores' shape {scores}; got {np.shape(bias)}.")


# The kernel: a few heads and queries at a time, so that their scores stay in the processor's cache

BLOCK = 256 * 1024  # bytes of scores in a block
QUERIES = 128  # in a block of causal attention: what lies right of it is not computed at all

Block = tuple[tuple[slice, slice], slice, slice]


def _is_one_block(Q: Any, K: Any, V: Any) -> bool:
    """Whether `Blocks` would make just one of it, of the inputs as they are."""
    if not (2 <= Q.ndim <= 4 and Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]):
        return False
    n, m = Q.shape[-2], K.shape[-2]
    size = prod(Q.shape[:-1]) * m * Q.itemsize
    floats = Q.dtype.kind == "f" and Q.itemsize >= 4 and Q.dtype is K.dtype is V.dtype
    return floats and n <= min(m, QUERIES) and 0 < size <= BLOCK


class Blocks:
    """One call of attention, cut into blocks. All arrays are brought to four axes: (B, H, n, d_k) and so on.

    A block is (heads, rows, keys): `heads` are slices of B and H, `rows` of the queries, and `keys` of the keys that these
    read: all of them, or with `tile` so many at a time.
    """

    def __init__(
        self, Q: Any, K: Any, V: Any, mask: Any, bias: Any, causal: bool, scale: float | None, tile: int | None = None
    ) -> None:
        _check_attention(Q, K, V, mask, bias)
        self.shapes = Q.shape, K.shape, V.shape
        self.lead = Q.shape[:-2]
        if not self.lead == K.shape[:-2] == V.shape[:-2]:
            self.lead = np.broadcast_shapes(self.lead, K.shape[:-2], V.shape[:-2])
        self.n, self.m, self.causal, self.tile = Q.shape[-2], K.shape[-2], causal, tile
        self.dtype, self.working = working_dtype(Q, K, V, None if bias is None else np.asarray(bias))
        self.scale = self.working.type(_scale(Q, scale))
        self.Q, self.K, self.V = self.four(Q), self.four(K), self.four(V)
        self.B, self.H = self.Q.shape[:2]
        scores = (*self.lead, self.n, self.m)
        self.mask = None if mask is None else self._on_four_axes(np.broadcast_to(mask, scores))
        self.bias = None
        if bias is not None:
            self.bias = self._on_four_axes(np.broadcast_to(bias, scores))
            self.bias_shape = np.shape(bias)
            repeated = (1,) * (4 - len(self.bias_shape)) + self.bias_shape
            self.bias_four = repeated if len(self.lead) <= 2 else self.bias.shape  # shape on four axes
        width = max(1, tile or self.m)
        self.step = tile or max(QUERIES, BLOCK // (width * self.working.itemsize))  # queries in a block
        if causal:
            self.step = min(self.step, QUERIES)
        scores_of_a_head = max(1, min(self.step, self.n) * width)
        self.together = max(1, BLOCK // (scores_of_a_head * self.working.itemsize))  # heads in a block
        self.bytes = self.B * self.H * self.n * self.m * self.working.itemsize // (2 if causal else 1)  # of all scores
        self.largest = min(self.together, self.B * self.H) * scores_of_a_head
        self.scratch: dict[tuple[str, int], Any] = {}  # of each thread

    def four(self, x: Any) -> Any:
        """x (…, rows, columns) as (B, H, rows, columns), in the dtype to compute in."""
        if x.shape[:-2] != self.lead:
            x = np.broadcast_to(x, (*self.lead, *x.shape[-2:]))
        return self._on_four_axes(x).astype(self.working, copy=False)

    def _on_four_axes(self, x: Any) -> Any:
        lead = self.lead
        return x if x.ndim == 4 else x.reshape(prod(lead[:-1]), lead[-1] if lead else 1, *x.shape[-2:])

    def zeros(self, rows: int, columns: int) -> Any:
        """Zeros (B, H, rows, columns), in memory (B, rows, H, columns): joining the heads need not move anything."""
        return np.swapaxes(np.zeros((self.B, rows, self.H, columns), self.working), 1, 2)

    def blocks(self) -> Iterator[Block]:
        """The blocks. The last queries, which read all keys, come first."""
        past = self.m - self.n  # the i-th query stands at key i + past
        batches, heads = max(1, self.together // max(1, self.H)), max(1, min(self.together, self.H))
        for stop in range(self.n, 0, -self.step):
            rows = slice(max(0, stop - self.step), stop)
            end = min(self.m, stop + past) if self.causal else self.m
            if end <= 0:
                continue
            for b in range(0, self.B, batches):
                for h in range(0, self.H, heads):
                    for key in range(0, end, self.tile or end):
                        keys = slice(key, min(key + (self.tile or end), end))
                        yield (slice(b, b + batches), slice(h, h + heads)), rows, keys

    def product(self, name: str, a: Any, b: Any) -> Any:
        """a bᵀ of a block, in memory that the next block uses again: new memory costs as much as the product."""
        mine = (name, get_ident())
        if mine not in self.scratch:
            self.scratch[mine] = np.empty(self.largest, self.working)
        shape = (*a.shape[:-1], b.shape[-2])
        return np.matmul(a, transposed(b), out=self.scratch[mine][: prod(shape)].reshape(shape))

    def scores(self, heads: tuple[slice, slice], rows: slice, keys: slice) -> Any:
        """S of the block; good until the next."""
        S = self.product("S", self.Q[(*heads, rows)] * self.scale, self.K[(*heads, keys)])
        if self.bias is not None:
            S += self.bias[(*heads, rows, keys)]
        return S

    def readable(self, heads: tuple[slice, slice], rows: slice, keys: slice) -> Any:
        """The mask of the block; None if all of it may be read."""
        mask = None if self.mask is None else self.mask[(*heads, rows, keys)]
        first = rows.start + self.m - self.n  # the key at which the block's first query stands
        if not self.causal or keys.stop <= first + 1:
            return mask
        causal = triangle(rows.stop - rows.start, keys.stop - keys.start, first - keys.start)
        return causal if mask is None else mask & causal

    def over_heads(self, work: Callable[[int, Block], None], alone: bool = False) -> None:
        """work(i, block) for every block, those of the same heads in order; other heads on other threads, unless `alone`.

        Heads that fit in one block stay together: few heads, however long, may be for one thread.
        """
        of_heads: dict[tuple[int, int], list[tuple[int, Block]]] = {}
        for i, block in enumerate(self.blocks()):
            of_heads.setdefault((block[0][0].start, block[0][1].start), []).append((i, block))

        def in_order(blocks: list[tuple[int, Block]]) -> None:
            for i, block in blocks:
                work(i, block)

        over_blocks(in_order, of_heads.values(), 0 if alone else self.bytes)

    def contributions(self, g: Any, pattern: Callable[[int, Block], Any], means: Any = None) -> Any:
        """∂L/∂Q, ∂L/∂K, ∂L/∂V, None for the mask, and ∂L/∂bias, from each block and its A, which is `pattern(i, block)`.

        `means` (B, H, n, 1) is Σ A · ∂L/∂A over all keys, where a block has not all of them.
        """
        g = self.four(g)
        g_Q, g_K, g_V = (self.zeros(*x.shape[-2:]) for x in (self.Q, self.K, self.V))
        g_bias = None if self.bias is None else np.zeros(self.bias_four, self.working)

        def work(i: int, block: Block) -> None:
            (heads, rows, keys), A = block, pattern(i, block)
            at_rows, at_keys = (*heads, rows), (*heads, keys)
            g_S = self.product("∂L/∂S", g[at_rows], self.V[at_keys])  # ∂L/∂A, for now
            g_S -= np.vecdot(A, g_S)[..., None] if means is None else means[at_rows]
            g_S *= A
            for total, at, a, b, is_first in (
                (g_Q, at_rows, g_S, self.K[at_keys], keys.start == 0),
                (g_K, at_keys, transposed(g_S), self.Q[at_rows] * self.scale, rows.stop == self.n),
                (g_V, at_keys, transposed(A), g[at_rows], rows.stop == self.n),
            ):
                if is_first:
                    np.matmul(a, b, out=total[at])
                else:
                    total[at] += np.matmul(a, b)
            if g_bias is not None:
                axes = zip((*heads, rows, keys), g_bias.shape, strict=True)
                of_bias = g_bias[tuple(i if size > 1 else slice(None) for i, size in axes)]
                of_bias += unbroadcast(g_S, of_bias.shape)

        self.over_heads(work, alone=g_bias is not None)  # different heads may add to one bias
        g_Q *= self.scale
        to_Q, to_K, to_V = (unbroadcast(self.result(x), shape) for x, shape in zip((g_Q, g_K, g_V), self.shapes, strict=True))
        if g_bias is not None:
            g_bias = g_bias.astype(self.dtype, copy=False) if len(self.lead) <= 2 else self.result(g_bias)
            g_bias = unbroadcast(g_bias, self.bias_shape)
        return to_Q, to_K, to_V, None, g_bias

    def result(self, x: Any) -> Any:
        """x (B, H, rows, columns) with the call's own leading axes and dtype."""
        x = x.astype(self.dtype, copy=False)
        return x if len(self.lead) == 2 else x.reshape(*self.lead, *x.shape[-2:])


@lru_cache(maxsize=16)
def triangle(queries: int, keys: int, first: int) -> Any:
    """Boolean (queries, keys): True where key ≤ first + query."""
    return frozen(np.tri(queries, keys, first, dtype=bool))


@primitive(saves=True, named_inside=True)
def tiled_attention(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    bias: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    block: int = 128,
) -> Any:
    """The same as `attention`, in memory that grows with n + m, not n · m (Dao et al. 2022).

    It never holds more than `block` × `block` scores of a few heads. The softmax of a row is put together tile by tile: when
    a larger score comes, what was summed so far is scaled down. Backward computes the tiles anew. Raises as `attention` does,
    and ValueError for a block that is no size.
    """
    check_size("block", block)
    call = Blocks(Q, K, V, mask, bias, causal, scale, block)
    Z = call.zeros(call.n, V.shape[-1])
    total = np.zeros((*Z.shape[:-1], 1), call.working)  # Σ e^(s - top) of each row so far
    top = np.full_like(total, -np.inf)

    def work(i: int, block: Block) -> None:
        heads, rows, keys = block
        at = (*heads, rows)
        S = call.scores(heads, rows, keys)
        allowed = call.readable(heads, rows, keys)
        if allowed is not None:
            S = np.where(allowed, S, S.dtype.type(-np.inf))
        higher = np.maximum(top[at], np.max(S, axis=-1, keepdims=True))
        shift = np.where(higher == -np.inf, S.dtype.type(0), higher)
        E = np.exp(np.subtract(S, shift, out=S), out=S)
        fade = np.exp(top[at] - shift)
        total[at] = total[at] * fade + np.matmul(E, np.ones((E.shape[-1], 1), E.dtype))  # BLAS sums rows faster
        Z[at] = Z[at] * fade + np.matmul(E, call.V[(*heads, keys)])
        top[at] = higher

    call.over_heads(work)
    nothing = total == 0  # rows that read nothing: their A is e^(s - ∞) / 1
    total[nothing], top[nothing] = 1, np.inf
    Z /= total
    return call.result(Z), (top, total)


@tiled_attention.joint_rule(dict(zip(("Q", "K", "V", "bias"), (attention.formulas[i] for i in (0, 1, 2, 4)), strict=True)))
def tiled_attention_wrt_inputs(
    g: Any,
    y: Any,
    Q: Any,
    K: Any,
    V: Any,
    mask: Any,
    bias: Any,
    saved: Any,
    causal: bool = False,
    scale: float | None = None,
    block: int = 128,
) -> Any:
    top, total = saved  # kept apart: in their sum, log Σ e^s, a large top would swallow the rest
    call = Blocks(Q, K, V, mask, bias, causal, scale, block)

    def pattern(i: int, block: Block) -> Any:
        heads, rows, keys = block
        at = (*heads, rows)
        A = call.scores(heads, rows, keys)
        np.exp(np.subtract(A, top[at], out=A), out=A)
        A /= total[at]
        allowed = call.readable(heads, rows, keys)
        return A if allowed is None else np.where(allowed, A, A.dtype.type(0))

    return call.contributions(g, pattern, np.vecdot(call.four(g), call.four(y))[..., None])  # Σ A · ∂L/∂A = ∂L/∂Z · Z


@tiled_attention.defined_by
def tiled_attention_definition(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    bias: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    block: int = 128,
) -> Any:
    check_size("block", block)
    return attention_definition(Q, K, V, mask, bias, causal=causal, scale=scale)


class Attention(Module):
    """Multi-head attention: Concat(Z¹ … Z^H) WO + bO, with Z^h = attention(Q^h, K^h, V^h) (notes 6.4, 6.5).

    Q^h, K^h, V^h are slices of x WQ, x WK, x WV. The nodes are called Q, K, V, Z (…, H, n, d), and S and A (…, H, n, m), which
    are inside `attention` and show when a trace opens it. With `attn.keep_pattern = True`, `attn.pattern` is the array A of
    the last call; it is then computed node by node, as it is when entries of A are dropped.

    Args:
        d_model: features of x. n_head: H. n_kv_head: heads of K and V, each read by H / n_kv_head query heads (grouped-query
            attention, Ainslie et al. 2023); by default H.
        d_head: d_k, by default d_model / H. d_value: d_v, by default d_k.
        d_context: features of the context that is read, if not d_model.
        bias: add bQ, bK, bV. out_bias: add bO; by default as `bias`.
        causal: a query reads itself and what came before.
        rope: a `Rope` that rotates queries and keys by their positions.
        dropout: the rate at which entries of A are dropped in training (Vaswani et al. 2017).
        tiled: use `tiled_attention`, whose memory is linear in the length: it never holds A, of which no entry can then be
            dropped or kept.
        seed: see `nn.init`. std: of the normal numbers the weights begin as; biases begin as 0. out_std: of WO's,
            if another.
    Raises:
        ValueError: if H does not divide d_model (and no d_head is given), or n_kv_head does not divide H; for sizes that are
            not positive; for `tiled` with dropout, and in a call with keep_pattern.
    """

    def __init__(
        self,
        d_model: int,
        n_head: int = 1,
        *,
        n_kv_head: int | None = None,
        d_head: int | None = None,
        d_value: int | None = None,
        d_context: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        causal: bool = False,
        rope: Rope | None = None,
        dropout: float = 0.0,
        tiled: bool = False,
        seed: Seed = None,
        std: float = 0.02,
        out_std: float | None = None,
    ) -> None:
        n_kv_head = n_head if n_kv_head is None else n_kv_head
        sizes = {"d_model": d_model, "n_head": n_head, "n_kv_head": n_kv_head, "d_head": d_head, "d_value": d_value}
        for name, size in {**sizes, "d_context": d_context}.items():
            if size is not None:
                check_size(name, size)
        if d_head is None and d_model % n_head:
            raise ValueError(f"{n_head} heads must divide d_model = {d_model}; or say how wide a head is, with d_head.")
        if n_head % n_kv_head:
            raise ValueError(f"Every key head is read by as many query heads: {n_kv_head} must divide n_head = {n_head}.")
        d_k = d_model // n_head if d_head is None else d_head
        d_v = d_k if d_value is None else d_value
        d_context = d_model if d_context is None else d_context
        rng = init.generator(seed)
        self.WQ = init.normal((d_model, n_head * d_k), std, rng)
        self.WK = init.normal((d_context, n_kv_head * d_k), std, rng)
        self.WV = init.normal((d_context, n_kv_head * d_v), std, rng)
        self.WO = init.normal((n_head * d_v, d_model), std if out_std is None else out_std, rng)
        self.bQ = init.constant((n_head * d_k,), 0) if bias else None
        self.bK = init.constant((n_kv_head * d_k,), 0) if bias else None
        self.bV = init.constant((n_kv_head * d_v,), 0) if bias else None
        self.bO = init.constant((d_model,), 0) if (bias if out_bias is None else out_bias) else None
        self.n_head, self.n_kv_head, self.d_head, self.d_value = n_head, n_kv_head, d_k, d_v
        self.causal, self.rope, self.tiled = causal, rope, tiled
        self.dropout = Dropout(dropout, None if seed is None else 0)
        self.keep_pattern = False
        self.pattern: Any = None
        self._check_tiled()

    def _check_tiled(self) -> None:
        if self.tiled and (self.keep_pattern or self.dropout.rate > 0):
            wish = "keep_pattern" if self.keep_pattern else f"dropout={self.dropout.rate}"
            raise ValueError(f"{wish} needs the whole pattern A, which tiled attention never holds. Use tiled=False.")

    def forward(
        self, x: Any, context: Any = None, *, mask: Any = None, bias: Any = None, cache: LayerCache | None = None
    ) -> Any:
        """x (…, n, d_model) -> (…, n, d_model).

        Args:
            context: (…, m, d_context), what is read instead of x (cross-attention).
            mask: boolean, broadcast to (…, H, n, m), True where a query may read a key; such as (n, m), or (B, 1, 1, m) from
                `padding_mask`. If the module is causal, both hold.
            bias: added to the scores, broadcast to (…, H, n, m); such as (H, n, m) from `alibi`.
            cache: this layer's part of a `KVCache`. The keys and values of x are appended to it, and all of it is read; those
                of a context are kept at the first call, and read again in later ones. A call that raises leaves it as it was.
        """
        with AllOrNothing(cache):
            Z = self._read(x, context, mask, bias, cache)  # (…, H, n, d_v)
            return affine(joined_heads(Z), self.WO, self.bO)

    def head_outputs(self, x: Any, context: Any = None, *, mask: Any = None, bias: Any = None) -> Any:
        """Z^h WO^h (…, H, n, d_model): what each head adds. Their sum over heads, plus bO, is the output (notes 6.5)."""
        return self._read(x, context, mask, bias, None) @ self.WO.reshape(self.n_head, self.d_value, -1)

    def value_factors(self, head: int) -> tuple[Any, Any]:
        """(down (d_context, d_v), up (d_v, d_model)): what the head passes on of a position x is x @ down @ up.

        Source: brief, Value 与嵌入更新.
        `down` is the head's slice of WV, `up` its slice of WO: a d×d map of rank d_v at most. (bV, if there is one, adds
        the same to every position.) Raises ValueError for a head that is not there.
        """
        if head not in range(self.n_head):
            raise ValueError(f"Heads are counted from 0 to {self.n_head - 1}; got {head!r}.")
        d_v, of_group = self.d_value, head // (self.n_head // self.n_kv_head)
        return self.WV[:, of_group * d_v : (of_group + 1) * d_v], self.WO[head * d_v : (head + 1) * d_v]

    def _read(self, x: Any, context: Any, mask: Any, bias: Any, cache: LayerCache | None) -> Any:
        """Z (…, H, n, d_v): what each head reads."""
        if context is not None and self.rope is not None:
            raise ValueError(
                "Rotations tell how far apart two positions of one sequence are; got a context, which is another. "
                "Make the module that reads it without rope."
            )
        self._check_tiled()
        source = x if context is None else context
        start = 0 if cache is None or context is not None else cache.length
        Q = split_heads(affine(x, self.WQ, self.bQ), self.n_head)  # (…, H, n, d_k)
        Q = named("Q", Q if self.rope is None else self.rope(Q, start))
        if cache is not None and context is not None and cache.length:
            K, V = cache.all()
        else:
            K = split_heads(affine(source, self.WK, self.bK), self.n_kv_head)  # (…, H_kv, m, d_k)
            K = named("K", K if self.rope is None else self.rope(K, start))
            V = named("V", split_heads(affine(source, self.WV, self.bV), self.n_kv_head))  # (…, H_kv, m, d_v)
            if cache is not None:
                K, V = cache.append(K, V)
        if self.n_kv_head != self.n_head:
            K, V = (np.repeat(part, self.n_head // self.n_kv_head, axis=-3) for part in (K, V))
        if self.keep_pattern or (self.training and self.dropout.rate > 0):
            A = attention_pattern(Q, K, mask, bias, causal=self.causal)  # (…, H, n, m)
            self.pattern = value_of(A) if self.keep_pattern else None
            return named("Z", self.dropout(A) @ V)
        read = tiled_attention if self.tiled else attention
        return named("Z", read(Q, K, V, mask, bias, causal=self.causal))


def split_heads(x: Any, n_head: int) -> Any:
    """(…, n, H·d) -> (…, H, n, d)."""
    if x.ndim < 2:
        raise ValueError("Attention reads rows, x (…, n, d_model); got one alone. Make it x[None].")
    *lead, n, width = x.shape
    return np.swapaxes(x.reshape(*lead, n, n_head, width // n_head), -3, -2)


def joined_heads(Z: Any) -> Any:
    """(…, H, n, d) -> (…, n, H·d): Concat(Z¹ … Z^H)."""
    *lead, n_head, n, width = Z.shape
    return np.swapaxes(Z, -3, -2).reshape(*lead, n, n_head * width)
