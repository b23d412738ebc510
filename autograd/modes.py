"""Modes: whether operations are recorded, under which scope, with or without their source line.

One immutable `Mode` lives in one context variable, so an operation asks once, and modes are safe across threads,
async tasks and exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from inspect import isgeneratorfunction
from threading import local
from typing import Any, Self

import numpy as np

FLOAT64: np.dtype[Any] = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)  # every operation reads four of its fields: slots are read quickest
class Mode:
    """What the library does with the next operation."""

    record: bool = True  # make graph nodes
    sources: bool = False  # note the line of user code that made each node
    open_fused: bool = False  # run the definitions of fused primitives instead of their kernels
    scope: str = ""  # dotted path of the module being run, such as "blocks.0.attn"
    dtype: np.dtype[Any] = FLOAT64  # what Python numbers become
    anomaly: str = ""  # "nan": raise where a NaN is first made; "inf": also where an infinity is


MODE: ContextVar[Mode] = ContextVar("chainrule.mode", default=Mode())  # noqa: B039 (a Mode is immutable)


@contextmanager
def mode_set_to(mode: Mode) -> Iterator[None]:
    """Inside, the mode is this one, whatever it was outside: for what is computed again, or by the library itself."""
    token = MODE.set(mode)
    try:
        yield
    finally:
        MODE.reset(token)


class ModeChange(ContextDecorator):
    """Context manager, and decorator, that changes some fields of the mode and puts the old mode back."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.entered = local()  # one manager may be entered in several threads, each of which has its own mode

    def _recreate_cm(self) -> Self:  # a decorated function may run in several threads: one manager per call
        return type(self)(**self.changes)

    def __enter__(self) -> None:
        tokens: list[Token[Mode]] = self.entered.__dict__.setdefault("tokens", [])
        tokens.append(MODE.set(replace(MODE.get(), **self.changes)))

    def __exit__(self, *exc_info: object) -> None:
        MODE.reset(self.entered.tokens.pop())

    def __call__(self, func: Any) -> Any:
        if isgeneratorfunction(func):
            raise TypeError(f"{func.__name__} is a generator, which a decorator would not reach into; use `with` inside it.")
        return super().__call__(func)


def no_grad() -> ModeChange:
    """Inside, operations compute values and record nothing. Also a decorator: `@no_grad()`."""
    return ModeChange(record=False)


def enable_grad() -> ModeChange:
    """Inside, operations are recorded, even within an outer `no_grad`."""
    return ModeChange(record=True)


def record_sources(on: bool = True) -> ModeChange:
    """Inside, every node remembers the file and line of the code that made it (`node.source`). Costs about 1 µs a node."""
    return ModeChange(sources=on)


def open_fused(on: bool = True) -> ModeChange:
    """Inside, fused primitives (softmax, attention, …) run their definition, node by node, instead of their kernel."""
    return ModeChange(open_fused=on)


def detect_anomaly(inf: bool = True) -> ModeChange:
    """Inside, the operation that first makes a NaN, forward or backward, raises an `AnomalyError` that names it.

    Args:
        inf: raise for infinities too. Say False where they are meant, as -inf is in a mask of one's own.
    """
    return ModeChange(anomaly="inf" if inf else "nan", sources=True)


def default_dtype(dtype: Any) -> ModeChange:
    """Inside, Python numbers and lists of them become tensors of this floating dtype (outside: float64).

    Raises TypeError for a dtype that is not floating.
    """
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"The default dtype must be a floating dtype; got {np.dtype(dtype)}. Use np.float32 or np.float64.")
    return ModeChange(dtype=np.dtype(dtype))


class Scope:
    """Context manager: nodes made inside belong to the module `name`, nested in the scope outside."""

    __slots__ = ("name", "token")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        mode = MODE.get()
        path = f"{mode.scope}.{self.name}" if mode.scope and self.name else mode.scope or self.name
        self.token = MODE.set(Mode(mode.record, mode.sources, mode.open_fused, path, mode.dtype, mode.anomaly))

    def __exit__(self, *exc_info: object) -> None:
        MODE.reset(self.token)


def is_recording() -> bool:
    """True unless inside `no_grad`."""
    return MODE.get().record
