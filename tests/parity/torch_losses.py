"""The calls of PyTorch for the rows of rows_losses, by the row's id."""

import pytest
from rows_losses import SCORED, SHARES, TARGETS

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
F = torch.nn.functional
TARGET, MASK = torch.from_numpy(TARGETS), torch.from_numpy(SCORED)


def cross_entropy(logits, target=TARGET, **options):
    losses = F.cross_entropy(logits.reshape(-1, 3), target.reshape(-1), **options)
    return losses.reshape(target.shape) if losses.ndim else losses


TORCH = {
    "cross_entropy ignore_index": lambda x: cross_entropy(x, ignore_index=2),
    "cross_entropy loss_mask": lambda x: cross_entropy(x, TARGET.masked_fill(~MASK, -100)),
    "cross_entropy ignore_index sum": lambda x: cross_entropy(x, TARGET.masked_fill(~MASK, -100), reduction="sum"),
    "cross_entropy smoothed": lambda x: cross_entropy(x, label_smoothing=0.1),
    "cross_entropy none": lambda x: cross_entropy(x, reduction="none"),
    "cross_entropy everything": lambda x: cross_entropy(
        x, TARGET.masked_fill(~MASK, 1), ignore_index=1, label_smoothing=0.25, reduction="none"
    ),
    "cross_entropy smoothed mean": lambda x: cross_entropy(x, ignore_index=0, label_smoothing=0.3),
    "squared_cost": lambda a, y: F.mse_loss(a, y, reduction="sum") / 2,
    "binary_cross_entropy": lambda z: F.binary_cross_entropy_with_logits(z, torch.from_numpy(SHARES)),
    "negative_sampling": lambda s, k: -torch.mean(F.logsigmoid(s) + F.logsigmoid(-k).sum(-1)),
}
