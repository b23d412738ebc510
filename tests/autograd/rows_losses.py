"""The table of primitives, continued: losses."""

import numpy as np
from table import real, row

from chainrule import nn

TARGETS = np.array([[0, 2], [2, 1], [0, 0]])
SCORED = np.array([[True, False], [True, True], [False, True]])
SHARES = np.array([[0.0, 1.0, 0.25], [0.5, 0.875, 1.0]])


def cross_entropy_row(id, *shape, target=TARGETS, **options):
    return row(
        id,
        lambda logits: nn.cross_entropy(logits, target, **options),
        real(*shape),
        reference=lambda logits: nn.cross_entropy.definition(logits, target, **options),
    )


ROWS = [
    cross_entropy_row("cross_entropy ignore_index", 3, 2, 3, ignore_index=2),
    cross_entropy_row("cross_entropy loss_mask", 3, 2, 3, loss_mask=SCORED),
    cross_entropy_row("cross_entropy ignore_index sum", 3, 2, 3, target=np.where(SCORED, TARGETS, -100), ignore_index=-100,
                      reduction="sum"),
    cross_entropy_row("cross_entropy smoothed", 3, 2, 3, label_smoothing=0.1),
    cross_entropy_row("cross_entropy none", 3, 2, 3, reduction="none"),
    cross_entropy_row("cross_entropy everything", 3, 2, 3, ignore_index=1, loss_mask=SCORED, label_smoothing=0.25,
                      reduction="none"),
    cross_entropy_row("cross_entropy smoothed mean", 3, 2, 3, ignore_index=0, label_smoothing=0.3),
    row("squared_cost", nn.squared_cost, real(2, 3), real(2, 3), reference=lambda a, y: np.mean(np.sum((a - y) ** 2, axis=-1))),
    row(
        "binary_cross_entropy",
        lambda z: nn.binary_cross_entropy(z, SHARES),
        real(2, 3),
        reference=lambda z: np.mean(SHARES * np.log(1 + np.exp(-z)) + (1 - SHARES) * np.log(1 + np.exp(z))).astype(z.dtype),
    ),
    row(
        "negative_sampling",
        nn.negative_sampling,
        real(3),
        real(3, 2),
        reference=lambda s, k: np.mean(np.log(1 + np.exp(-s)) + np.log(1 + np.exp(k)).sum(axis=-1)),
    ),
]  # fmt: skip
