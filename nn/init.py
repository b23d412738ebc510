"""How parameters start: small random numbers, in the dtype that `default_dtype` says.

A seed is an integer, which always gives the same numbers; a Generator, which goes on; or None, for the generator that all
layers without a seed share (see `manual_seed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from chainrule.autograd.modes import MODE
from chainrule.nn.checks import check_number
from chainrule.nn.module import Parameter

Seed = int | np.random.Generator | None

_unseeded = np.random.default_rng(0)  # what layers draw from that are made without a seed

_SHAPES_ONLY: ContextVar[bool] = ContextVar("chainrule.shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Inside, a model is built without its numbers: each parameter is one zero, seen in the right shape.

    For counting the parameters of a configuration that no memory would hold, and before loading values from a file.
    """
    token = _SHAPES_ONLY.set(True)
    try:
        yield
    finally:
        _SHAPES_ONLY.reset(token)


def draws_nothing() -> bool:
    """True inside `shapes_only`."""
    return _SHAPES_ONLY.get()


def constant(shape: tuple[int, ...], value: float) -> Parameter:
    """A Parameter whose entries all start at `value`."""
    dtype = MODE.get().dtype
    if _SHAPES_ONLY.get():
        parameter = Parameter(np.zeros((), dtype))
        parameter._array = np.broadcast_to(parameter._array, shape)
        return parameter
    return Parameter(np.full(shape, value, dtype))


def normal(shape: tuple[int, ...], std: float, seed: Seed) -> Parameter:
    """A Parameter of independent draws from N(0, std²). The same seed gives the same numbers; a Generator goes on."""
    check_number("std", std)
    if _SHAPES_ONLY.get():
        return constant(shape, 0)
    return Parameter((generator(seed).standard_normal(shape) * std).astype(MODE.get().dtype))


def uniform(shape: tuple[int, ...], bound: float, seed: Seed) -> Parameter:
    """A Parameter of independent draws from [-bound, bound)."""
    check_number("bound", bound)
    if _SHAPES_ONLY.get():
        return constant(shape, 0)
    return Parameter(generator(seed).uniform(-bound, bound, shape).astype(MODE.get().dtype))


def generator(seed: Seed | Sequence[int]) -> np.random.Generator:
    """One generator for all the parts of a model, so that no two start alike; None: the one that `manual_seed` sets."""
    return _unseeded if seed is None else _seeded(seed)


def _seeded(seed: Seed | Sequence[int]) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:  # NumPy's words do not say of what
        raise type(error)(f"seed is a whole number from 0, or a Generator; got {seed!r}.") from None


def manual_seed(seed: int) -> None:
    """Set what layers draw from that are made without a seed of their own.

    It is one generator for all of them, so that no two start alike, and it starts the same in every run, so that a script
    repeats itself. Threads share it: which of them draws first is then chance, unless their layers have seeds.
    """
    global _unseeded
    _unseeded = _seeded(seed)
