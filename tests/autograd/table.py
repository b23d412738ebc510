"""What the table of primitives is made of: rows, the random numbers they are tried on, and kinks."""

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np


class Domain(NamedTuple):
    """Random numbers of some kind, and the shape to draw: `positive(3, 4)`."""

    draw: Callable[[np.random.Generator, tuple[int, ...]], Any]
    shape: tuple[int, ...] = (3, 4)

    def __call__(self, *shape: int) -> "Domain":
        return self._replace(shape=shape)


real = Domain(lambda rng, shape: rng.standard_normal(shape))
positive = Domain(lambda rng, shape: rng.uniform(0.5, 2.0, shape))
nonzero = Domain(lambda rng, shape: rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape))
whole = Domain(lambda rng, shape: rng.integers(-4, 5, shape).astype(float))
halves = Domain(lambda rng, shape: rng.integers(-4, 5, shape) + 0.5)  # never equal to a whole number
distinct = Domain(lambda rng, shape: 0.5 * rng.permutation(int(np.prod(shape))).reshape(shape) - 1)


class Row(NamedTuple):
    """A function and where to try it.

    elementwise: entry i of the output depends on entry i of the broadcast inputs only, so any shapes that broadcast will do.
    reference: what it computes, where `call` on arrays is not NumPy's own function.
    half: whether NumPy has the function in float16 (np.linalg has not).
    """

    id: str
    call: Callable[..., Any]
    domains: tuple[Domain, ...]
    elementwise: bool = False
    reference: Callable[..., Any] | None = None
    half: bool = True

    def arrays(self, *shapes, dtype=float):
        """The inputs, the same on every call; of other shapes if given."""
        rng = np.random.default_rng(crc32(self.id.encode()))
        shapes = shapes or [domain.shape for domain in self.domains]
        return [np.array(domain.draw(rng, shape), dtype) for domain, shape in zip(self.domains, shapes, strict=True)]


def row(id, call, *domains, reference=None):
    return Row(id, call, domains, reference=reference)


def each(id, call, *domains):
    return Row(id, call, domains, elementwise=True)


class Kink(NamedTuple):
    """A point where there is no derivative, and the one that convention takes: of the sum of the outputs, by input."""

    id: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    gradients: tuple[Any, ...]
