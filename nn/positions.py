"""Positions: what tells attention in which order the tokens come (notes 7.2, 15.6; brief, 位置编码).

Without them, and without a causal mask, attention does not know: a permutation of its input permutes its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from chainrule.autograd import primitive
from chainrule.autograd.modes import MODE
from chainrule.nn import init
from chainrule.nn.checks import broadcasts, came, check_number, check_size
from chainrule.nn.init import Seed
from chainrule.nn.module import Module


def sinusoidal(length: int, d: int, dtype: Any = None, *, offset: int = 0) -> Any:
    """Table (length, d) of positions offset, offset+1, …: P[p, 2i] = sin(p / 10000^(2i/d)), P[p, 2i+1] = cos(the same).

    Vaswani et al. 2017, 3.5. Added to the embeddings; not trained. The dtype is the mode's default unless given.
    Raises ValueError for sizes that are not whole numbers.
    """
    check_size("length", length, 0)
    check_size("d", d)
    p = np.arange(offset, offset + length)[:, None]  # (length, 1)
    angle = p / 10000.0 ** (np.arange(0, d, 2) / d)  # (length, ⌈d/2⌉)
    table = np.empty((length, d), MODE.get().dtype if dtype is None else dtype)
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle[:, : d // 2])
    return table


class LearnedPositions(Module):
    """A trained vector P[p] for each position p < context, added to the embeddings (GPT-2, BERT).

    Args:
        context: the number of positions. d: features. seed: see `nn.init`. std: of the numbers P begins as.
    """

    def __init__(self, context: int, d: int, *, seed: Seed = None, std: float = 0.02) -> None:
        check_size("context", context)
        check_size("d", d)
        self.P = init.normal((context, d), std, seed)

    def forward(self, length: int, offset: int = 0) -> Any:
        """(length, d): the vectors of positions offset … offset + length - 1. Raises ValueError past the last one."""
        if getattr(length, "ndim", 0):
            raise ValueError(f"LearnedPositions takes how many positions, such as ids.shape[-1]; got {came(length)}.")
        check_size("length", length, 0)
        check_size("offset", offset, 0)
        if offset + length > len(self.P):
            raise ValueError(
                f"There are {len(self.P)} positions; asked for {offset}..{offset + length - 1}. "
                "Shorten the input, or make the model with a longer context."
            )
        return self.P[offset : offset + length]


# Rotations


def rope(x: Any, positions: Any, *, base: float = 10000.0, halves: bool = False) -> Any:
    """Rotary positions (Su et al. 2021; notes 15.6): rotate the i-th pair of features of position p by p / base^(2i/d).

    Queries and keys so rotated have scores q_p · k_r that depend on their positions by r - p only.

    Args:
        x: (…, n, d), d even. positions: (n,), or any shape that broadcasts to x's without the last axis.
        base: the larger, the longer the slowest wave. halves: pair feature i with i + d/2 (Llama, Hugging Face) instead of
            2i with 2i + 1 (the paper).
    Raises:
        ValueError: if d is odd, the base not positive and finite, or the positions are other than x's.
    """
    check_number("base", base, ends="()")
    _check_pairs(x)
    positions = np.asarray(positions)
    if positions.dtype.kind not in "iuf" or not broadcasts(positions.shape, x.shape[:-1]) or not np.isfinite(positions).all():
        raise ValueError(f"Positions are finite numbers, one for each row of x {x.shape}; got {came(positions)}.")
    cos, sin = _rotations(positions, x.shape[-1], base, x.dtype)
    return rotate(x, cos, sin, halves=halves)


def _check_pairs(x: Any) -> None:
    if not x.ndim or x.shape[-1] % 2:
        raise ValueError(f"Rotations take rows with pairs of features, x (…, n, d) with d even; got x {x.shape}.")


def _rotations(positions: Any, d: int, base: float, dtype: Any) -> tuple[Any, Any]:
    """cos and sin of the angles (…, d/2), read-only. Computed in float64: far positions have large angles."""
    angle = positions[..., None] / base ** (np.arange(0, d, 2) / d)
    real = dtype if np.dtype(dtype).kind == "f" else float  # also for complex numbers and Values
    cos, sin = np.cos(angle).astype(real), np.sin(angle).astype(real)
    cos.flags.writeable = sin.flags.writeable = False
    return cos, sin


@primitive(linear="each")
def rotate(x: Any, cos: Any, sin: Any, *, halves: bool = False) -> Any:
    """Each pair (a, b) of x's features becomes (a cos - b sin, a sin + b cos).

    x (…, d); cos and sin broadcast to (…, d/2). The pairs are (2i, 2i + 1), or (i, i + d/2) if `halves`.
    """
    a, b = _pairs(x.shape[-1], halves)
    y = np.empty_like(x, np.result_type(x, cos))
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., a] * sin + x[..., b] * cos
    return y


@rotate.rule("x", "∂L/∂{x} = ∂L/∂{y}, rotated back")
def rotate_wrt_x(g: Any, y: Any, x: Any, cos: Any, sin: Any, halves: bool = False) -> Any:
    return rotate(g, cos, -sin, halves=halves)


@rotate.defined_by
def rotate_definition(x: Any, cos: Any, sin: Any, *, halves: bool = False) -> Any:
    pairs = _pairs(x.shape[-1], halves)
    a, b = (x[..., part] for part in pairs)
    turned = (a * cos - b * sin, a * sin + b * cos)
    return np.concatenate(turned, axis=-1) if halves else np.stack(turned, axis=-1).reshape(x.shape)


def _pairs(d: int, halves: bool) -> tuple[slice, slice]:
    return (slice(0, d // 2), slice(d // 2, d)) if halves else (slice(0, d, 2), slice(1, d, 2))


@dataclass(frozen=True)
class Rope:
    """Rotary positions, as `Attention(rope=…)` takes them: `rope` from one position on, with tables that are kept."""

    base: float = 10000.0
    halves: bool = False

    def __post_init__(self) -> None:
        check_number("base", self.base, ends="()")

    def __call__(self, x: Any, offset: int = 0) -> Any:
        """x (…, n, d), rotated: its rows stand at the positions offset, offset + 1, …"""
        _check_pairs(x)
        check_size("offset", offset, 0)
        n, d = x.shape[-2:]
        room = 1 << (offset + n).bit_length()  # so that a new table is rarely needed
        cos, sin = _table(room, d, self.base, x.dtype)
        return rotate(x, cos[offset : offset + n], sin[offset : offset + n], halves=self.halves)


@lru_cache(maxsize=32)
def _table(length: int, d: int, base: float, dtype: Any) -> tuple[Any, Any]:
    return _rotations(np.arange(length), d, base, dtype)


def alibi(n_head: int, queries: int, keys: int | None = None, dtype: Any = None) -> Any:
    """Biases (n_head, queries, keys) for the scores: -slope · distance, so that far keys are read less (Press et al. 2022).

    The slopes of the heads are 2^(-8/H), 2^(-16/H), …, 2^-8 if H is a power of 2; else those of the power below, then every
    other one of the power above. The last query stands at the last key, as in `causal_mask`.
    Raises ValueError for sizes that are not whole numbers, or no head.
    """
    keys = queries if keys is None else keys
    check_size("n_head", n_head)
    check_size("queries", queries, 0)
    check_size("keys", keys, 0)
    below = 1 << (n_head.bit_length() - 1)
    slopes = np.concatenate([_slopes(below), _slopes(2 * below)[::2][: n_head - below]])
    distance = abs(np.arange(keys - queries, keys)[:, None] - np.arange(keys))  # (queries, keys)
    return (-slopes[:, None, None] * distance).astype(MODE.get().dtype if dtype is None else dtype)


def _slopes(n_head: int) -> Any:
    return 2.0 ** (-8.0 * np.arange(1, n_head + 1) / n_head)
