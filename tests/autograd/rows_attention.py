"""The table of primitives, continued: attention, plain and tiled, and rotary positions."""

import numpy as np
from table import real, row

from chainrule import nn
from chainrule.nn.attention import attention, tiled_attention
from chainrule.nn.positions import Rope, rope

MASK = np.array([[True, False, True, True, False], [False] * 5, [True, True, False, True, True]])  # the second reads nothing
PLACES = np.array([3, 0, 7])


def attending(**options):
    """attention on (Q, K, V) or (Q, K, V, bias), and its definition."""

    def of(f, Q, K, V, bias=None):
        return f(Q, K, V, options.get("mask"), bias, causal=options.get("causal", False), scale=options.get("scale"))

    return of


def attention_row(id, *domains, **options):
    of = attending(**options)
    return row(
        f"attention {id}",
        lambda *xs: of(attention, *xs),
        *domains,
        reference=lambda *xs: of(attention.definition, *xs),
    )


def tiled_row(id, *domains, **options):
    of = attending(**options)
    return row(
        f"tiled_attention {id}",
        lambda *xs: of(lambda *inputs, **more: tiled_attention(*inputs, **more, block=2), *xs),
        *domains,
        reference=lambda *xs: of(attention.definition, *xs),
    )


def rotated(x, positions, halves=False):
    """Pairs of features as complex numbers, which rotate by multiplication."""
    d = x.shape[-1]
    a, b = (x[..., : d // 2], x[..., d // 2 :]) if halves else (x[..., 0::2], x[..., 1::2])
    turned = (a + 1j * b) * np.exp(1j * positions[:, None] / 10000 ** (np.arange(0, d, 2) / d))
    parts = turned.real, turned.imag
    return (np.concatenate(parts, -1) if halves else np.stack(parts, -1).reshape(x.shape)).astype(x.dtype)


ROWS = [
    row(
        "softmax wide",
        lambda S: nn.softmax(S, MASK),
        real(2, 3, 5),
        reference=lambda S: nn.softmax.definition(S, MASK),
    ),
    attention_row("causal", real(2, 4, 2), real(2, 4, 2), real(2, 4, 3), causal=True),
    attention_row("causal, more keys", real(2, 2), real(5, 2), real(5, 3), causal=True),
    attention_row("causal, more queries", real(4, 2), real(2, 2), real(2, 3), causal=True),
    attention_row("causal and masked", real(2, 3, 2), real(5, 2), real(2, 5, 1), causal=True, mask=MASK),
    attention_row("scale", real(3, 2), real(5, 2), real(5, 1), scale=2.0),
    attention_row("bias", real(2, 1, 3, 2), real(2, 2, 5, 2), real(5, 2), real(2, 3, 5), mask=MASK),
    attention_row("bias of keys", real(2, 2, 3, 2), real(2, 2, 5, 2), real(2, 2, 5, 2), real(5), causal=True),
    attention_row("bias of queries", real(2, 3, 2), real(2, 5, 2), real(2, 5, 2), real(2, 3, 1)),
    attention_row("bias, five axes", real(2, 1, 2, 3, 2), real(2, 2, 3, 2), real(2, 1, 3, 2), real(2, 1, 3, 3)),
    tiled_row("plain", real(3, 2), real(5, 2), real(5, 3)),
    tiled_row("causal heads", real(2, 2, 5, 2), real(2, 1, 5, 2), real(5, 3), causal=True),
    tiled_row("masked, biased", real(2, 3, 2), real(2, 5, 2), real(2, 5, 2), real(3, 1), mask=MASK),
    row("rope", lambda x: rope(x, PLACES), real(2, 3, 4), reference=lambda x: rotated(x, PLACES)),
    row(
        "rope halves",
        lambda x: rope(x, PLACES, halves=True),
        real(3, 6),
        reference=lambda x: rotated(x, PLACES, halves=True),
    ),
    row("Rope", lambda x: Rope()(x, 2), real(3, 2), reference=lambda x: rotated(x, np.arange(2, 5))),
]
