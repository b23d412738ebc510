"""What several models ask of their configurations and of what they are given."""

from __future__ import annotations

from typing import Any


def check_sizes(config: Any, *names: str) -> None:
    """Raise ValueError unless these fields are positive whole numbers; one that may be None, by its default, passes as None."""
    for name in names:
        size = getattr(config, name)
        if size is None and getattr(type(config), name, 0) is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is a positive whole number; got {size!r}.")


def check_sequences(ids: Any) -> None:
    """Raise ValueError for a single id: a model reads sequences."""
    if not ids.ndim:
        raise ValueError("A model reads sequences, ids (B, T) or (T,); got one number. Put it in a list.")
