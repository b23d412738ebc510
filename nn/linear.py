"""Linear maps of rows, and the lookup of rows: Linear and Embedding."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from chainrule.autograd import primitive
from chainrule.autograd.reverse import all_finite
from chainrule.nn import init
from chainrule.nn.checks import check_size
from chainrule.nn.init import Seed
from chainrule.nn.module import Module


def rows_of(x: Any) -> Any:
    """x (…, d) as a matrix (positions, d)."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _check_linear(x: Any, W: Any, b: Any) -> None:
    if x.ndim < 1 or W.ndim != 2 or x.shape[-1] != W.shape[0] or b.shape != W.shape[1:]:
        raise ValueError(f"linear takes x (…, d_in), W (d_in, d_out), b (d_out,); got {x.shape}, {W.shape} and {b.shape}.")


@primitive()
def linear(x: Any, W: Any, b: Any) -> Any:
    """y = x W + b, row by row.  x (…, d_in), W (d_in, d_out), b (d_out,) -> y (…, d_out) (notes 7.1).

    Raises ValueError for shapes that do not fit.
    """
    _check_linear(x, W, b)
    y = rows_of(x).dot(W)
    y = np.add(y, b, out=y) if y.dtype == b.dtype else y + b
    return y.reshape(*x.shape[:-1], W.shape[1])


@linear.rule("x", "∂L/∂{x} = ∂L/∂{y} @ {W}ᵀ")
def linear_wrt_x(g: Any, y: Any, x: Any, W: Any, b: Any) -> Any:
    return rows_of(g).dot(W.T).reshape(x.shape)


@linear.rule("W", "∂L/∂{W} = {x}ᵀ @ ∂L/∂{y}")
def linear_wrt_W(g: Any, y: Any, x: Any, W: Any, b: Any) -> Any:
    return rows_of(x).T.dot(rows_of(g))


@linear.rule("b", "∂L/∂{b} = Σ ∂L/∂{y}, over the positions")
def linear_wrt_b(g: Any, y: Any, x: Any, W: Any, b: Any) -> Any:
    g = rows_of(g)
    return np.ones(len(g), g.dtype).dot(g)  # BLAS sums columns faster than np.sum


@linear.pushed_by
def linear_tangent(tangents: Any, y: Any, x: Any, W: Any, b: Any) -> Any:
    dx, dW, db = tangents
    parts = [] if dx is None else [rows_of(dx).dot(W)]
    parts += [] if dW is None else [rows_of(x).dot(dW)]
    parts += [] if db is None else [np.broadcast_to(db, (y.size // len(b), len(b)))]
    return sum(parts).reshape(y.shape)


@linear.defined_by
def linear_definition(x: Any, W: Any, b: Any) -> Any:
    _check_linear(x, W, b)
    return x @ W + b


def affine(x: Any, W: Any, b: Any) -> Any:
    """x W + b, or x W where b is None. Raises ValueError for shapes that do not fit."""
    if b is not None:
        return linear(x, W, b)
    if np.shape(x)[-1:] != W.shape[:1]:
        raise ValueError(f"A linear map takes x (…, d_in), W (d_in, d_out); got {np.shape(x)} and {W.shape}.")
    return x @ W


class Linear(Module):
    """y = x W + b.  x (…, d_in) -> y (…, d_out).

    Args:
        bias: False leaves out b. std: of the draws W starts from; 1/√d_in if not given, so that y has about the variance of x.
        seed: see `nn.init`.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True, *, std: float | None = None, seed: Seed = None) -> None:
        check_size("d_in", d_in)
        check_size("d_out", d_out)
        self.W = init.normal((d_in, d_out), 1 / sqrt(d_in) if std is None else std, seed)
        self.b = init.constant((d_out,), 0) if bias else None

    def forward(self, x: Any) -> Any:
        return affine(x, self.W, self.b)


def checked_ids(ids: Any, vocab_size: int) -> Any:
    """Ids as an array. Raises TypeError unless they are integers, IndexError unless they lie in 0..vocab_size-1."""
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"Token ids are integers; got dtype {ids.dtype}. Encode the text first.")
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        raise IndexError(f"Token ids lie in 0..{vocab_size - 1}; got {ids.min()}..{ids.max()}. Is this the model's tokenizer?")
    return ids


@primitive()
def embedding(E: Any, ids: Any) -> Any:
    """X[t] = E[ids[t]]: the rows of E that the ids select, the same as one-hot rows @ E (notes 1.2).

    E (vocabulary, d), ids (…) integers -> X (…, d). Raises TypeError for ids that are not integers, IndexError for ids that
    are not rows of E.
    """
    return np.take(E, checked_ids(ids, len(E)), axis=0)


@embedding.rule("E", "∂L/∂{E}[v] = Σ ∂L/∂{y}[t], over the positions t whose id is v")
def embedding_wrt_E(g: Any, y: Any, E: Any, ids: Any) -> Any:
    rows, ids = rows_of(g), np.asarray(ids).reshape(-1)
    if len(E) <= 512 and len(ids) and all_finite(rows):  # a small vocabulary: one-hot rows, transposed, times the adjoint
        one_hot = np.zeros((len(ids), len(E)), g.dtype)
        one_hot[np.arange(len(ids)), ids] = 1
        return one_hot.T.dot(rows)
    total = np.zeros(E.shape, g.dtype)
    if len(ids):
        order = np.argsort(ids, kind="stable")  # equal ids side by side, so that each row is one sum
        first = np.flatnonzero(np.diff(ids[order], prepend=-1))
        total[ids[order[first]]] = np.add.reduceat(rows[order], first, axis=0)
    return total


@embedding.defined_by
def embedding_definition(E: Any, ids: Any) -> Any:
    return E[checked_ids(ids, len(E))]


class Embedding(Module):
    """A vector for every token: ids (…) -> (…, d). Its parameter is E (vocabulary, d)."""

    def __init__(self, vocab_size: int, d: int, *, std: float = 0.02, seed: Seed = None) -> None:
        check_size("vocab_size", vocab_size)
        check_size("d", d)
        self.E = init.normal((vocab_size, d), std, seed)

    def forward(self, ids: Any) -> Any:
        return embedding(self.E, ids)
