"""Schedules: the learning rate as a function of the step.

    schedule = cosine(lr=3e-4, warmup=100, steps=5000)
    for step in range(5000):
        optimizer.lr = schedule(step)
        ...

Each warms up along a line that reaches `lr` at step == warmup, lr · (step + 1) / (warmup + 1): large steps from random
parameters would go astray, and no step is lost to a rate of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

from chainrule.nn.checks import check_number, check_size

Schedule = Callable[[int], float]


def constant(lr: float) -> Schedule:
    """The same rate at every step. Raises ValueError for a rate that is not positive."""
    _check(lr, 0, 1, 0.0)

    def schedule(step: int) -> float:
        _check_step(step)
        return lr

    return schedule


def cosine(lr: float, warmup: int, steps: int, final: float | None = None) -> Schedule:
    """Warm-up, then half a cosine from `lr` down to `final` at step == steps, where it stays (Loshchilov & Hutter 2017).

    With t = (step - warmup) / (steps - warmup), the rate is final + (lr - final) · (1 + cos πt) / 2. `final` is lr / 10
    unless given. Raises ValueError unless 0 <= final <= lr, lr > 0 and 0 <= warmup < steps; for a negative step too.
    """
    end = lr / 10 if final is None else final
    return _decaying(lr, warmup, steps, end, lambda t: (1 + cos(pi * t)) / 2)


def linear(lr: float, warmup: int, steps: int, final: float = 0.0) -> Schedule:
    """Warm-up, then a line from `lr` down to `final` at step == steps, where it stays.

    With t = (step - warmup) / (steps - warmup), the rate is final + (lr - final) · (1 - t). Raises as `cosine`.
    """
    return _decaying(lr, warmup, steps, final, lambda t: 1 - t)


def _decaying(lr: float, warmup: int, steps: int, final: float, share: Callable[[float], float]) -> Schedule:
    _check(lr, warmup, steps, final)

    def schedule(step: int) -> float:
        _check_step(step)
        if step <= warmup:
            return lr * (step + 1) / (warmup + 1)
        if step >= steps:
            return final
        return final + (lr - final) * share((step - warmup) / (steps - warmup))

    return schedule


def _check(lr: float, warmup: int, steps: int, final: float) -> None:
    check_number("lr", lr, ends="()")
    check_number("final", final, high=lr, ends="[]")
    check_size("warmup", warmup, 0)
    check_size("steps", steps)
    if not warmup < steps:
        raise ValueError(f"The warm-up ends before the last step, warmup < steps; got warmup {warmup} and steps {steps}.")


def _check_step(step: int) -> None:
    if step < 0:
        raise ValueError(f"Steps count from 0; got {step}.")
