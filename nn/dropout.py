"""Dropout: while training, some entries are left out at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.nn import init
from chainrule.nn.checks import check_number
from chainrule.nn.module import Module

RATE = "The rate, the share of entries that dropout leaves out,"


def dropout(x: Any, rate: float, rng: np.random.Generator) -> Any:
    """y = x · keep / (1 - rate), where keep is 0 with probability `rate`, else 1 (Srivastava and others 2014).

    Scaled so, y has the mean of x. x and y are of any shape and floating dtype; at rate 0, y is x itself. `keep` is drawn
    from `rng` and a constant of the graph: the same seed drops the same entries in every dtype. Raises ValueError for a rate
    outside [0, 1).
    """
    check_number(RATE, rate, high=1)
    if rate == 0:
        return x
    keep = rng.random(np.shape(x), dtype=np.float32) >= rate
    dtype = getattr(x, "dtype", None)
    factor = np.array(keep, dtype if getattr(dtype, "kind", "") == "f" else float)
    factor /= 1 - rate
    factor.flags.writeable = False  # the graph may hold it as it is
    return x * factor


class Dropout(Module):
    """`dropout(x, rate)` while training, from a random generator of its own; in evaluation mode, or at rate 0, x itself.

    Two modules of the same seed drop the same entries; without one, each drops others (see `nn.manual_seed`).
    `reseed(model, seed)` tells all in a model apart.
    """

    def __init__(self, rate: float, seed: int | Sequence[int] | None = None) -> None:
        check_number(RATE, rate, high=1)
        self.rate = rate
        self.rng = init.generator(int(init.generator(None).integers(2**63)) if seed is None else seed)

    def forward(self, x: Any) -> Any:
        return dropout(x, self.rate, self.rng) if self.training else x


def reseed(module: Module, seed: int | Sequence[int]) -> None:
    """Give the i-th Dropout inside `module` a fresh generator, of the seed (*seed, i).

    Called with the same seed before a training step, as with (seed, step), it makes the step repeatable.
    """
    seeds = [seed] if isinstance(seed, (int, np.integer)) else [*seed]
    dropouts = [part for _, part in module.named_modules() if isinstance(part, Dropout)]
    for i, part in enumerate(dropouts):
        part.rng = np.random.default_rng([*seeds, i])
