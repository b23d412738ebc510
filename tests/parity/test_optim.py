"""Optimisers step for step as PyTorch's, in float64: 20 steps of each. Run with `pytest -m parity`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule import nn

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")

PAIRS = {
    "SGD": (lambda p: nn.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (lambda p: nn.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "Nesterov": (
        lambda p: nn.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    ),
    "Adam": (lambda p: nn.Adam(p, 0.02), lambda p: torch.optim.Adam(p, 0.02)),
    "Adam betas": (
        lambda p: nn.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-3),
        lambda p: torch.optim.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-3),
    ),
    "AdamW": (
        lambda p: nn.AdamW(p, 0.02, weight_decay=0.1),
        lambda p: torch.optim.AdamW(
            [{"params": [x for x in p if x.ndim >= 2]}, {"params": [x for x in p if x.ndim < 2], "weight_decay": 0.0}],
            0.02,
            weight_decay=0.1,
        ),
    ),
}


@pytest.mark.parametrize(("make", "make_torch"), PAIRS.values(), ids=PAIRS.keys())
def test_twenty_steps(make, make_torch):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in [(5,), (4, 5), (), (3, 2, 2), (130, 140)]]
    ours, theirs = [nn.Parameter(x) for x in arrays], [torch.nn.Parameter(torch.tensor(x)) for x in arrays]
    optimizer, torch_optimizer = make(ours), make_torch(theirs)
    for step in range(20):
        for i, (x, z) in enumerate(zip(ours, theirs, strict=True)):
            g = None if i == 1 and step % 3 == 0 else rng.standard_normal(x.shape)  # one has no gradient at every third step
            x.grad, z.grad = g, None if g is None else torch.tensor(g)
        optimizer.step()
        torch_optimizer.step()
        for x, z in zip(ours, theirs, strict=True):
            assert_allclose(x.data, z.detach(), rtol=1e-12, atol=1e-12)


def test_clipping():
    """PyTorch divides by ‖g‖ + 1e-6."""
    rng = np.random.default_rng(0)
    slopes = [rng.standard_normal(shape) for shape in [(5,), (4, 5), ()]]
    ours, theirs = [nn.Parameter(g) for g in slopes], [torch.nn.Parameter(torch.tensor(g)) for g in slopes]
    for x, z, g in zip(ours, theirs, slopes, strict=True):
        x.grad, z.grad = np.array(g), torch.tensor(g)
    norm = nn.clip_grad_norm(ours, 0.5)
    assert_allclose(norm, torch.nn.utils.clip_grad_norm_(theirs, 0.5), rtol=1e-14)
    for x, z in zip(ours, theirs, strict=True):
        assert_allclose(x.grad, z.grad * (norm + 1e-6) / norm, rtol=1e-12)
