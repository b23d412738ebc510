"""What layers, optimisers and configurations ask of their numbers; a check raises ValueError, with the name and what came."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

NUMBERS = (float, int, np.floating, np.integer)


def check_number(name: str, value: Any, low: float = 0.0, high: float = inf, ends: str = "[)") -> None:
    """Refuse all but a real number between `low` and `high`: NaN, text, arrays, True. In `ends`, a bracket takes in its end."""
    good = isinstance(value, NUMBERS) and not isinstance(value, bool)
    good = good and (low <= value if ends[0] == "[" else low < value) and (value <= high if ends[1] == "]" else value < high)
    if not good:
        raise ValueError(f"{name} is a number in {ends[0]}{low:g}, {high:g}{ends[1]}; got {came(value)}.")


def check_size(name: str, value: Any, least: int = 1) -> None:
    """Refuse all but a whole number from `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        kind = "a positive whole number" if least == 1 else f"a whole number, at least {least}"
        raise ValueError(f"{name} is {kind}; got {came(value)}.")


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of the one shape broadcasts to the other, which stays as it is."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1], strict=False))


def came(value: Any) -> str:
    """A value in an error: of an array its dtype and shape."""
    return f"an array {value.dtype} {value.shape}" if getattr(value, "ndim", 0) else repr(value)
