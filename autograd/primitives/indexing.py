"""Indexing: a gather, whose rule is a scatter that adds, whose rule is the gather. And x.at[...], a changed copy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.rules import implements, primitive, tracked
from chainrule.autograd.tensor import Tensor, frozen, value_of


def frozen_key(key: Any) -> Any:
    """The index with its arrays read-only, so that the graph cannot change under it; lists become arrays."""
    if isinstance(key, tuple):
        return tuple(map(frozen_key, key))
    if isinstance(key, list):
        return frozen_key(np.asarray(key, dtype=None if key else int))
    return frozen(key) if isinstance(key, np.ndarray) else key


def picks_each_once(key: Any) -> bool:
    """True if the index picks no entry twice by construction: integers, slices, ellipsis, None and masks."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice)) or np.asarray(part).dtype == bool
        for part in parts
    )


# Taking


@primitive(linear="each")
def getitem(x: Any, *, key: Any) -> Any:
    """y = x[key], by any index of NumPy's"""
    return x[key]


@implements(operator.getitem)
def tensor_getitem(x: Any, key: Any) -> Any:
    """x[key]"""
    return getitem(x, key=frozen_key(key))


@getitem.rule("x", "∂L/∂{x} = ∂L/∂{y} at [{key}], 0 elsewhere")
def getitem_wrt_x(g: Any, y: Any, x: Any, key: Any) -> Any:
    return scatter_add(g, key=key, shape=x.shape)


@primitive(linear="each")
def scatter_add(g: Any, *, key: Any, shape: Any) -> Any:
    """y = zeros of this shape with g added at y[key]; entries picked several times add up"""
    y = np.zeros(shape, g.dtype)
    if picks_each_once(key):
        y[key] = g
    elif g.size > 1000 and (places := _flat_places(key, shape)) is not None:
        np.add.at(y.reshape(-1), places.reshape(-1), g.reshape(-1))  # several times faster than by rows
    else:
        np.add.at(y, key, g)
    return y


@scatter_add.rule("g", "∂L/∂{g} = ∂L/∂{y}[{key}]")
def scatter_add_wrt_g(g: Any, y: Any, values: Any, key: Any, shape: Any) -> Any:
    return g[key]


def _flat_places(key: Any, shape: tuple[int, ...]) -> Any:
    """Where key picks from the flat array, if it is integer arrays on the first axes (an embedding's ids, rows and
    columns); None for other keys."""
    row: Any = 0
    parts = key if isinstance(key, tuple) else (key,)
    for part, n in zip(parts, shape, strict=False):
        if not isinstance(part, (int, np.integer, np.ndarray)):
            return None
        part = np.asarray(part)
        if part.dtype.kind not in "iu":
            return None
        row = row * n + part.astype(np.intp) % n  # -1 is the last
    width = prod(shape[len(parts) :])
    return row[..., None] * width + np.arange(width)


@implements(np.take)
def take(x: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """np.take: x[indices], along one axis or of the flat array; indices out of range raise, "wrap" or "clip"."""
    if out is not None:
        raise TypeError("np.take(..., out=...) would overwrite values that a graph may need. Use the returned tensor.")
    if axis is None:
        x, axis = np.ravel(x), 0
    n, indices = x.shape[axis], np.asarray(value_of(indices))
    if indices.dtype.kind not in "iu" and indices.size:
        raise TypeError(f"np.take needs whole numbers as indices; got dtype {indices.dtype}. For a mask use x[mask].")
    indices = indices.astype(np.intp)
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"np.take has the modes 'raise', 'wrap' and 'clip'; got {mode!r}.")
    if mode != "raise" and n:
        indices = indices % n if mode == "wrap" else np.clip(indices, 0, n - 1)
    return x[(*(slice(None),) * (axis % x.ndim), indices)] if x.ndim else np.reshape(x, 1)[indices]


@implements(np.take_along_axis)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """np.take_along_axis: y[…, i, …] = x[…, indices[…, i, …], …], as argsort and argmax give indices."""
    if axis is None:
        x, axis = np.ravel(x), 0
    indices = value_of(indices)
    if indices.ndim != x.ndim:
        raise ValueError(f"indices have as many axes as the array; got shapes {indices.shape} and {x.shape}.")
    axis = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    key: list[Any] = list(np.ix_(*map(np.arange, x.shape)))
    key[axis] = indices
    return x[tuple(key)]


@implements(np.compress)
def compress(condition: Any, x: Any, axis: int | None = None, out: Any = None) -> Any:
    """np.compress: the slices where the vector `condition` holds."""
    return take(x, np.flatnonzero(value_of(condition)), axis, out)


@implements(np.extract)
def extract(condition: Any, x: Any) -> Any:
    """np.extract: the entries where `condition` holds, as a vector."""
    return take(x, np.flatnonzero(value_of(condition)))


@implements(np.delete)
def delete(x: Any, obj: Any, axis: int | None = None) -> Any:
    """np.delete: what is left without these indices."""
    if axis is None:
        x, axis = np.ravel(x), 0
    return take(x, np.delete(np.arange(x.shape[axis]), value_of(obj)), axis)


@implements(np.insert)
def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """np.insert: a longer copy, with `values` before these indices."""
    if axis is None:
        x, axis = np.ravel(x), 0
    x = x if isinstance(x, Tensor) else np.asarray(x)
    n, axis = x.shape[axis], axis % x.ndim
    obj = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(value_of(obj))
    obj = np.flatnonzero(obj) if obj.dtype == bool else obj if obj.size else obj.astype(int)
    count = obj.size
    if count == 1:  # one place may take several slices
        values = np.reshape(values, (1,) * (x.ndim - np.ndim(values)) + np.shape(values))
        values = np.moveaxis(values, 0, axis) if obj.ndim == 0 else values
        count = values.shape[axis]
    new = np.broadcast_to(values, (*x.shape[:axis], count, *x.shape[axis + 1 :])).astype(x.dtype)
    order = np.insert(np.arange(n), obj, n + np.arange(count))
    return take(np.concatenate([x, new], axis), order, axis)


# Choosing among arrays


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """np.select: by entry, the choice of the first condition that holds, else the default."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ValueError(f"np.select needs one choice for each condition; got {len(condlist)} and {len(choicelist)}.")
    y = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        if np.asarray(value_of(condition)).dtype != bool:
            raise TypeError(f"Conditions are boolean; got dtype {np.asarray(value_of(condition)).dtype}.")
        y = np.where(condition, choice, y)
    return y


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """np.choose: by entry, choices[a]; numbers out of range raise, "wrap" or "clip"."""
    if out is not None:
        raise TypeError("np.choose(..., out=...) would overwrite values that a graph may need. Use the returned tensor.")
    which, *arrays = np.broadcast_arrays(value_of(a), *choices)
    np.choose(which, [False] * len(arrays), mode=mode)  # type: ignore[call-overload]  # checks the numbers and the mode
    which = which % len(arrays) if mode == "wrap" else np.clip(which, 0, len(arrays) - 1)
    return np.stack(arrays)[(which, *np.indices(which.shape, sparse=True))]


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """np.piecewise: each function (or number) on the entries where its condition holds, the last one on those left.

    The functions see only their own entries. Where several conditions hold, the last one wins.
    """
    conditions = np.asarray(value_of(condlist), dtype=bool)
    if conditions.ndim == x.ndim <= 1:  # a single condition
        conditions = conditions[None]
    if len(funclist) == len(conditions) + 1:
        conditions = np.concatenate([conditions, ~np.any(conditions, axis=0, keepdims=True)])
    if len(funclist) != len(conditions):
        raise ValueError(f"piecewise needs a function for each condition, and may have one more; got {len(funclist)}.")
    y = Tensor(np.zeros_like(x))
    for condition, function in zip(conditions, funclist, strict=True):
        if condition.any():
            y = At(y)[condition].set(function(x[condition], *args, **kw) if callable(function) else function)
    return y


@implements(np.full_like)
def full_like(x: Any, fill_value: Any, dtype: Any = None, *args: Any, shape: Any = None, **kwargs: Any) -> Any:
    """np.full_like: an array; of a value that is a Tensor, a Tensor."""
    if not isinstance(fill_value, Tensor):
        return np.full_like(value_of(x), fill_value, dtype, *args, shape=shape, **kwargs)  # type: ignore[call-overload]
    return np.broadcast_to(fill_value, x.shape if shape is None else shape).astype(dtype or x.dtype)


# A changed copy


@primitive(linear="all")
def index_set(x: Any, v: Any, *, key: Any) -> Any:
    """y = x with v at [key]; of several values for one entry the last remains"""
    y = np.array(x, dtype=_dtype_with(x, v))
    y[key] = v
    return y


def _dtype_with(x: Any, v: Any) -> Any:
    """That of x, unless v is complex or made of objects (the complex step, scalar mode)."""
    dtype = np.asarray(v).dtype
    return np.result_type(x, dtype) if dtype.kind in "cO" else None


@index_set.rule("x", "∂L/∂{x} = ∂L/∂{y}, 0 at [{key}]")
def index_set_wrt_x(g: Any, y: Any, x: Any, v: Any, key: Any) -> Any:
    return index_set(g, 0, key=key)


@index_set.rule("v", "∂L/∂{v} = ∂L/∂{y}[{key}], 0 where a later value remained")
def index_set_wrt_v(g: Any, y: Any, x: Any, v: Any, key: Any) -> Any:
    picked = g[key]
    if not picks_each_once(key):
        numbers = np.arange(picked.size).reshape(picked.shape)
        last = np.zeros(x.shape, int)
        last[key] = numbers  # by entry, the number of the value that remains
        picked = np.where(last[key] == numbers, picked, 0)
    return unbroadcast(picked, np.shape(v))


class At:
    """`x.at[key]` and its methods: copies of `x`, changed at `[key]`, with gradients to x and to the values.

    The names are JAX's; what happens at an entry picked several times is NumPy's. `set` keeps the last value; the others
    apply one after another, as `np.add.at` and its like do.

    Example: `x.at[0].set(v)`, `x.at[ids].add(v)`, `x.at[:, 1].multiply(2)`, `x.at[mask].get()`.
    """

    def __init__(self, x: Any) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> AtKey:
        return AtKey(self.x, frozen_key(value_of(key)))


class AtKey:
    """The place `[key]` of `x`, and what can be done to a copy there. See `At`."""

    def __init__(self, x: Any, key: Any) -> None:
        self.x = x
        self.key = key

    def get(self) -> Any:
        """x[key]"""
        return self.x[self.key]

    def set(self, v: Any) -> Any:
        """A copy of x with v at [key]; v broadcasts to x[key]."""
        return index_set(self.x, self._checked(v), key=self.key)

    def add(self, v: Any) -> Any:
        """A copy of x with v added at [key]."""
        v, here = self._checked(v), np.shape(self._picked())
        if np.shape(v) != here:
            v = np.broadcast_to(v, here)
        v = v if isinstance(v, Tensor) else np.asarray(v)
        if v.dtype != self.x.dtype:
            v = v.astype(self.x.dtype)
        return self.x + scatter_add(v, key=self.key, shape=self.x.shape)

    def subtract(self, v: Any) -> Any:
        """A copy of x with v subtracted at [key]."""
        return self.add(np.negative(v))

    def multiply(self, v: Any) -> Any:
        """A copy of x multiplied by v at [key]."""
        return self._one_after_another(np.multiply, v)

    def divide(self, v: Any) -> Any:
        """A copy of x divided by v at [key]."""
        return self._one_after_another(np.divide, v)

    def power(self, v: Any) -> Any:
        """A copy of x raised to the power v at [key]."""
        return self._one_after_another(np.power, v)

    def min(self, v: Any) -> Any:
        """A copy of x, at [key] the smaller of x and v."""
        return self._one_after_another(np.minimum, v)

    def max(self, v: Any) -> Any:
        """A copy of x, at [key] the larger of x and v."""
        return self._one_after_another(np.maximum, v)

    def _one_after_another(self, operation: Callable[[Any, Any], Any], v: Any) -> Any:
        """x[key] = operation(x[key], v), again and again for entries that are picked again and again."""
        v = self._checked(v)
        if picks_each_once(self.key):
            return self.set(operation(self.get(), v))
        places = np.arange(self.x.size).reshape(self.x.shape)[self.key].ravel()
        y, v = np.ravel(self.x), np.ravel(np.broadcast_to(v, np.shape(self._picked())))
        for turn in _turns(places):
            here = places[turn]
            y = At(y)[here].set(operation(y[here], v[turn]))
        return np.reshape(y, self.x.shape)

    def _picked(self) -> Any:
        """Booleans in the shape of x[key]."""
        return np.broadcast_to(False, self.x.shape)[self.key]

    def _checked(self, v: Any) -> Any:
        v = v if isinstance(v, Tensor) or np.ndim(v) == 0 else np.asarray(v)
        here = np.shape(self._picked())
        if np.broadcast_shapes(np.shape(v), here) != here:
            raise ValueError(f"The values must broadcast to the shape of x[key], {here}; got {np.shape(v)}.")
        if tracked(v) and self.x.dtype.kind != "f":
            raise TypeError(f"A gradient cannot flow into dtype {self.x.dtype}. Convert first: x.astype(float).at[...].")
        return v


def _turns(places: Any) -> list[Any]:
    """The numbers of the places by turn: first those where a place comes the first time, then the second, and so on."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: places.size]
    turn = np.empty(places.size, int)
    turn[order] = np.arange(places.size) - np.repeat(starts, np.diff(np.append(starts, places.size)))
    return [np.flatnonzero(turn == i) for i in range(turn.max(initial=-1) + 1)]
