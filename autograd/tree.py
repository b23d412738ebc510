"""Nested dicts, lists and tuples of arrays: the arguments and results of functions to differentiate.

A list or tuple of plain numbers, however nested, is an array, as NumPy reads it. None holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Number
from typing import Any

import numpy as np

from chainrule.autograd.tensor import Tensor


def is_branch(tree: Any) -> bool:
    """True for a dict, a named tuple, and a list or tuple that holds more than plain numbers."""
    return isinstance(tree, dict) or hasattr(tree, "_fields") or (isinstance(tree, (list, tuple)) and not _is_numbers(tree))


def _is_numbers(sequence: list[Any] | tuple[Any, ...]) -> bool:
    return bool(sequence) and all(
        _is_numbers(item) if isinstance(item, (list, tuple)) else isinstance(item, Number) for item in sequence
    )


def branches(tree: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a branch, each with how it is reached: `['W']`, `[0]`."""
    yield from ((f"[{key!r}]", part) for key, part in (tree.items() if isinstance(tree, dict) else enumerate(tree)))


def leaves_with_paths(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """The leaves, left to right, each with its path, such as `['layers'][0]['W']`.

    Raises TypeError, with the path, for what is neither an array, a number nor a Tensor.
    """
    if is_branch(tree):
        return [leaf for step, part in branches(tree) for leaf in leaves_with_paths(part, path + step)]
    if tree is None:
        return []
    if isinstance(tree, (Tensor, np.ndarray, Number, list, tuple)):
        return [(path, tree)]
    raise TypeError(
        f"Derivatives are by arrays, numbers, Tensors, and dicts, lists and tuples of them; got {type(tree).__name__}"
        f"{f' at {path}' if path else ''}. Leave it out of the arguments differentiated by (argnums), or bind it beforehand."
    )


def leaves(tree: Any) -> list[Any]:
    """The leaves, left to right."""
    return [leaf for _, leaf in leaves_with_paths(tree)]


def mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with f applied to each leaf."""
    return _like(tree, iter([f(leaf) for leaf in leaves(tree)]))


def like(tree: Any, new_leaves: list[Any]) -> Any:
    """A tree of the same form with these leaves, left to right."""
    return _like(tree, iter(new_leaves))


def like_each(trees: Sequence[Any], new_leaves: list[Any]) -> tuple[Any, ...]:
    """Several trees of the same forms, with these leaves, left to right."""
    rest = iter(new_leaves)
    return tuple(_like(tree, rest) for tree in trees)


def _like(tree: Any, new_leaves: Iterator[Any]) -> Any:
    if not is_branch(tree):
        return None if tree is None else next(new_leaves)
    if isinstance(tree, dict):
        return {key: _like(part, new_leaves) for key, part in tree.items()}
    parts = [_like(part, new_leaves) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def leaves_like(tree: Any, other: Any, what: str) -> list[Any]:
    """The leaves of `other`, taken apart in the form of `tree`. Raises ValueError, naming `what`, if it has another form."""
    if tree is None or not is_branch(tree):
        if (tree is None) != (other is None) or (other is not None and is_branch(other)):
            raise ValueError(f"{what} must nest like what it belongs to; got {type(other).__name__} for {type(tree).__name__}.")
        return [] if tree is None else [other]
    alike = isinstance(other, dict) if isinstance(tree, dict) else isinstance(other, (list, tuple))
    if not alike or len(tree) != len(other) or (isinstance(tree, dict) and tree.keys() != other.keys()):
        raise ValueError(f"{what} must nest like what it belongs to, {_form(tree)}; got {_form(other)}.")
    keys = tree if isinstance(tree, dict) else range(len(tree))
    return [leaf for key in keys for leaf in leaves_like(tree[key], other[key], what)]


def _form(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dict with the keys {list(tree)}"
    return f"a {type(tree).__name__} of {len(tree)}" if isinstance(tree, (list, tuple)) else type(tree).__name__
