"""Shape: the same numbers, arranged otherwise. Each rule arranges the adjoint back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.indexing import scatter_add
from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import Tensor, value_of


def shape_after(function: Any, x: Any, *args: Any) -> Any:
    """The shape that a NumPy function would give `x`, with NumPy's own checks; nothing of the size of x is made."""
    return function(np.broadcast_to(False, x.shape), *args).shape


def flat_if_no_axis(x: Any, axis: int | None) -> tuple[Any, int]:
    """What NumPy means by `axis=None` in many functions: the flat array, along its only axis. Otherwise axis >= 0."""
    if axis is None:
        return np.ravel(x), 0
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    return x, axis % x.ndim


# The same numbers in another shape


@primitive(linear="each")
def reshape(x: Any, *, shape: Any) -> Any:
    """y = x in another shape of the same size"""
    return np.reshape(x, shape)


@reshape.rule("x", "∂L/∂{x} = ∂L/∂{y} in the shape of {x}")
def reshape_wrt_x(g: Any, y: Any, x: Any, shape: Any) -> Any:
    return np.reshape(g, x.shape)


@implements(np.reshape)
def numpy_reshape(x: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """np.reshape, in C or Fortran order. `copy` changes nothing: no node is ever written to."""
    if order == "C":
        return reshape(x, shape=shape)
    if order == "F":  # the first axis runs fastest: the C order of the reversed axes
        backwards = tuple(np.atleast_1d(shape)[::-1].tolist())
        return np.transpose(reshape(np.transpose(x), shape=backwards))
    raise TypeError(f"reshape on Tensors takes order 'C' or 'F', not one that depends on memory; got order={order!r}.")


@implements(np.ravel)
def ravel(x: Any, order: str = "C") -> Any:
    """np.ravel, in C or Fortran order."""
    return numpy_reshape(x, -1, order)


@implements(np.expand_dims)
def expand_dims(x: Any, axis: Any) -> Any:
    """np.expand_dims"""
    return reshape(x, shape=shape_after(np.expand_dims, x, axis))


@implements(np.squeeze)
def squeeze(x: Any, axis: Any = None) -> Any:
    """np.squeeze"""
    return reshape(x, shape=shape_after(np.squeeze, x, axis))


def _at_least(function: Any, arrays: Sequence[Any]) -> Any:
    """What atleast_1d and its like do: the shape is their own doing."""
    grown = tuple(np.reshape(x, shape_after(function, x)) if isinstance(x, Tensor) else function(x) for x in arrays)
    return grown[0] if len(grown) == 1 else grown


@implements(np.atleast_1d)
def atleast_1d(*arrays: Any) -> Any:
    """np.atleast_1d: a number becomes (1,). Several arrays give a tuple."""
    return _at_least(np.atleast_1d, arrays)


@implements(np.atleast_2d)
def atleast_2d(*arrays: Any) -> Any:
    """np.atleast_2d: a vector (n,) becomes a row (1, n)."""
    return _at_least(np.atleast_2d, arrays)


@implements(np.atleast_3d)
def atleast_3d(*arrays: Any) -> Any:
    """np.atleast_3d: (n,) becomes (1, n, 1), and (m, n) becomes (m, n, 1)."""
    return _at_least(np.atleast_3d, arrays)


# The axes in another order


@primitive(np.transpose, linear="each")
def transpose(x: Any, *, axes: Any = None) -> Any:
    """y = x with its axes permuted; reversed if `axes` is None"""
    return np.transpose(x, axes)


@transpose.rule("x", "∂L/∂{x} = (∂L/∂{y})ᵀ")
def transpose_wrt_x(g: Any, y: Any, x: Any, axes: Any = None) -> Any:
    if axes is None:
        return np.transpose(g)
    return np.transpose(g, tuple(np.argsort([axis % x.ndim for axis in np.atleast_1d(axes)])))


@primitive(np.swapaxes, linear="each")
def swapaxes(x: Any, *, axis1: int, axis2: int) -> Any:
    """y = x with two axes exchanged"""
    return np.swapaxes(x, axis1, axis2)


@swapaxes.rule("x", "∂L/∂{x} = (∂L/∂{y})ᵀ in these two axes")
def swapaxes_wrt_x(g: Any, y: Any, x: Any, axis1: int, axis2: int) -> Any:
    return np.swapaxes(g, axis1, axis2)


@implements(np.matrix_transpose)
def matrix_transpose(x: Any) -> Any:
    """np.matrix_transpose: xᵀ in the last two axes."""
    if x.ndim < 2:
        raise ValueError(f"A matrix transpose needs at least two axes; got shape {x.shape}. A vector has none: use x[:, None].")
    return np.swapaxes(x, -1, -2)


@implements(np.moveaxis)
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """np.moveaxis"""
    shape_after(np.moveaxis, x, source, destination)  # checks the axes
    sources = [axis % x.ndim for axis in np.atleast_1d(source)]
    destinations = [axis % x.ndim for axis in np.atleast_1d(destination)]
    axes = [axis for axis in range(x.ndim) if axis not in sources]
    for to, axis in sorted(zip(destinations, sources, strict=True)):
        axes.insert(to, axis)
    return transpose(x, axes=tuple(axes))


@implements(np.rollaxis)
def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    """np.rollaxis: the axis moves to before where `start` is now."""
    shape_after(np.rollaxis, x, axis, start)  # checks the axes
    axis, start = axis % x.ndim, start + x.ndim if start < 0 else start
    return np.moveaxis(x, axis, start - 1 if axis < start else start)


# The axes run the other way


@primitive(np.flip, linear="each")
def flip(x: Any, *, axis: Any = None) -> Any:
    """y = x in reversed order along the axes; along all of them if None"""
    return np.flip(x, axis)


@flip.rule("x", "∂L/∂{x} = ∂L/∂{y}, flipped back")
def flip_wrt_x(g: Any, y: Any, x: Any, axis: Any = None) -> Any:
    return np.flip(g, axis)


@implements(np.flipud)
def flipud(x: Any) -> Any:
    """np.flipud: the rows in reversed order."""
    return flip(x, axis=0)


@implements(np.fliplr)
def fliplr(x: Any) -> Any:
    """np.fliplr: the columns in reversed order."""
    return flip(x, axis=1)


@primitive(np.rot90, linear="each")
def rot90(x: Any, *, k: int = 1, axes: Any = (0, 1)) -> Any:
    """y = x turned k times by 90° in the plane of two axes"""
    return np.rot90(x, k, axes)


@rot90.rule("x", "∂L/∂{x} = ∂L/∂{y}, turned back")
def rot90_wrt_x(g: Any, y: Any, x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    return np.rot90(g, -k, axes)


@primitive(np.roll, linear="each")
def roll(x: Any, *, shift: Any, axis: Any = None) -> Any:
    """y = x moved along the axes; what leaves at one end enters at the other"""
    return np.roll(x, shift, axis)


@roll.rule("x", "∂L/∂{x} = ∂L/∂{y}, rolled back")
def roll_wrt_x(g: Any, y: Any, x: Any, shift: Any, axis: Any = None) -> Any:
    return np.roll(g, np.negative(shift), axis)


# Copies of the same numbers


@primitive(np.broadcast_to, linear="each")
def broadcast_to(x: Any, *, shape: Any) -> Any:
    """y = x repeated to a larger shape"""
    return np.broadcast_to(x, shape)


@broadcast_to.rule("x", "∂L/∂{x} = ∂L/∂{y} summed over the repeats")
def broadcast_to_wrt_x(g: Any, y: Any, x: Any, shape: Any) -> Any:
    return unbroadcast(g, x.shape)


@implements(np.broadcast_arrays)
def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """np.broadcast_arrays"""
    shape = np.broadcast_shapes(*map(np.shape, arrays))
    return tuple(np.broadcast_to(x, shape) for x in arrays)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """np.meshgrid: each vector along an axis of its own, repeated along the others unless `sparse`."""
    shapes = [grid.shape for grid in np.meshgrid(*map(value_of, xi), sparse=True, indexing=indexing)]  # type: ignore[call-overload]
    grids = tuple(np.reshape(x, shape) for x, shape in zip(xi, shapes, strict=True))
    return grids if sparse else broadcast_arrays(*grids)


@primitive(linear="each")
def tile(x: Any, *, reps: tuple[int, ...]) -> Any:
    """y = copies of x laid like tiles, this many along each axis"""
    return np.tile(x, reps)


@implements(np.tile)
def numpy_tile(x: Any, reps: Any) -> Any:
    """np.tile"""
    return tile(x, reps=tuple(np.atleast_1d(reps).tolist()))


@tile.rule("x", "∂L/∂{x} = ∂L/∂{y} summed over the tiles")
def tile_wrt_x(g: Any, y: Any, x: Any, reps: tuple[int, ...]) -> Any:
    lengths = (1,) * (y.ndim - x.ndim) + x.shape
    repeats = (1,) * (y.ndim - len(reps)) + reps
    tiles = np.reshape(g, [n for pair in zip(repeats, lengths, strict=True) for n in pair])  # (repeats, length, …) by axis
    return np.reshape(np.sum(tiles, axis=tuple(range(0, 2 * y.ndim, 2))), x.shape)


@primitive(linear="each")
def repeat(x: Any, *, repeats: Any, axis: int) -> Any:
    """y = each slice of x along the axis this many times, a number for all or one for each"""
    return np.repeat(x, repeats, axis)


@implements(np.repeat)
def numpy_repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """np.repeat; of the flat array if there is no axis."""
    counts = np.ravel(value_of(repeats)).tolist()
    x, axis = flat_if_no_axis(x, axis)
    return repeat(x, repeats=counts[0] if len(counts) == 1 else tuple(counts), axis=axis)


@repeat.rule("x", "∂L/∂{x} = ∂L/∂{y} summed over the repeats")
def repeat_wrt_x(g: Any, y: Any, x: Any, repeats: Any, axis: int) -> Any:
    n = x.shape[axis]
    if isinstance(repeats, int):
        return np.sum(np.reshape(g, (*x.shape[:axis], n, repeats, *x.shape[axis + 1 :])), axis=axis + 1)
    key = (*(slice(None),) * axis, np.repeat(np.arange(n), repeats))
    return scatter_add(g, key=key, shape=x.shape)


@implements(np.resize)
def resize(x: Any, new_shape: Any) -> Any:
    """np.resize: the flat array, repeated as often as the new shape needs."""
    count = np.prod(new_shape, dtype=int)
    if not x.size:
        return np.zeros(new_shape, x.dtype)
    return np.reshape(np.ravel(x)[np.arange(count) % x.size], new_shape)


def numpy_astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """np.astype (NumPy 2.1): x.astype(dtype). `copy` changes nothing, and there is one device."""
    return x.astype(dtype)


if hasattr(np, "astype"):
    implements(np.astype)(numpy_astype)


# Joining


@primitive(linear="all")
def concatenate(*arrays: Any, axis: int = 0) -> Any:
    """y = the arrays one after another along an axis"""
    return np.concatenate(arrays, axis=axis)


@concatenate.joint_rule({"arrays": "∂L/∂{arrays} = the part of ∂L/∂{y} at its place"})
def concatenate_wrt_arrays(g: Any, y: Any, *arrays: Any, axis: int = 0) -> Sequence[Any]:
    ends = np.cumsum([np.shape(array)[axis] for array in arrays])
    before = (slice(None),) * (axis % y.ndim)
    return [g[(*before, slice(end - np.shape(array)[axis], end))] for array, end in zip(arrays, ends, strict=True)]


@implements(np.concatenate)
def numpy_concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    """np.concatenate"""
    if axis is None:
        return concatenate(*(np.ravel(array) for array in arrays), axis=0)
    return concatenate(*arrays, axis=axis)


@primitive(linear="all")
def stack(*arrays: Any, axis: int = 0) -> Any:
    """y = the arrays side by side along a new axis"""
    return np.stack(arrays, axis=axis)


@stack.joint_rule({"arrays": "∂L/∂{arrays} = its slice of ∂L/∂{y}"})
def stack_wrt_arrays(g: Any, y: Any, *arrays: Any, axis: int = 0) -> Sequence[Any]:
    before = (slice(None),) * (axis % y.ndim)
    return [g[(*before, i)] for i in range(len(arrays))]


@implements(np.stack)
def numpy_stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """np.stack"""
    return stack(*arrays, axis=axis)


@implements(np.vstack)
def vstack(tup: Sequence[Any]) -> Any:
    """np.vstack: on top of each other; vectors are rows."""
    return concatenate(*map(np.atleast_2d, tup), axis=0)


@implements(np.hstack)
def hstack(tup: Sequence[Any]) -> Any:
    """np.hstack: next to each other; vectors one after another."""
    arrays = list(map(np.atleast_1d, tup))
    return concatenate(*arrays, axis=0 if arrays[0].ndim == 1 else 1)


@implements(np.dstack)
def dstack(tup: Sequence[Any]) -> Any:
    """np.dstack: behind each other, along the third axis."""
    return concatenate(*map(np.atleast_3d, tup), axis=2)


@implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Any:
    """np.column_stack: next to each other; vectors are columns."""
    return concatenate(*(x if np.ndim(x) > 1 else np.reshape(x, (-1, 1)) for x in tup), axis=1)


@implements(np.block)
def block(arrays: Any) -> Any:
    """np.block: nested lists of blocks, joined along the last axis, those along the one before, and so on outwards."""
    ndim = np.block(value_of(arrays)).ndim  # with NumPy's own checks
    depth, part = 0, arrays
    while isinstance(part, list):
        depth, part = depth + 1, part[0]

    def joined(part: Any, level: int) -> Any:
        if isinstance(part, list):
            return concatenate(*(joined(inner, level + 1) for inner in part), axis=level - depth)
        return np.reshape(part, (1,) * (ndim - np.ndim(part)) + np.shape(part))

    return joined(arrays, 0)


@implements(np.append)
def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """np.append: a longer copy; both flat if there is no axis."""
    return numpy_concatenate([x, values], axis)


# Parting


@implements(np.array_split)
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """np.array_split: slices, as views, of lengths that differ by one at most, or between the given indices."""
    x, axis = flat_if_no_axis(x, axis)
    before = (slice(None),) * axis
    parts = np.array_split(np.arange(x.shape[axis]), value_of(indices_or_sections))
    return [x[(*before, slice(part[0], part[-1] + 1) if part.size else slice(0, 0))] for part in parts]


@implements(np.split)
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """np.split: as array_split, into equal sections. Raises ValueError if they cannot be equal."""
    np.split(np.broadcast_to(False, x.shape), value_of(indices_or_sections), axis)  # checks
    return array_split(x, indices_or_sections, axis)


@implements(np.hsplit)
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """np.hsplit: along the second axis, of a vector along the first."""
    if x.ndim == 0:
        raise ValueError("hsplit parts vectors and arrays of more axes; got a single number.")
    return split(x, indices_or_sections, axis=1 if x.ndim > 1 else 0)


@implements(np.vsplit)
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """np.vsplit: along the first axis, of two at least."""
    if x.ndim < 2:
        raise ValueError(f"vsplit parts arrays of two or more axes; got shape {x.shape}. Use np.split.")
    return split(x, indices_or_sections, axis=0)


@implements(np.dsplit)
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """np.dsplit: along the third axis."""
    if x.ndim < 3:
        raise ValueError(f"dsplit parts arrays of three or more axes; got shape {x.shape}. Use np.split with an axis.")
    return split(x, indices_or_sections, axis=2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """np.unstack (NumPy 2.1): the slices along an axis, which stack would join again."""
    if x.ndim == 0:
        raise ValueError("unstack parts arrays of one or more axes; got a single number.")
    x, axis = flat_if_no_axis(x, axis)
    before = (slice(None),) * axis
    return tuple(x[(*before, i)] for i in range(x.shape[axis]))


if hasattr(np, "unstack"):
    implements(np.unstack)(unstack)


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, x: Any, *args: Any, **kwargs: Any) -> Any:
    """np.apply_along_axis: func1d of each vector along the axis; the axes of its result stand where the axis stood."""
    x, axis = flat_if_no_axis(x, axis)
    vectors = np.moveaxis(x, axis, -1)
    others = vectors.shape[:-1]
    if not np.prod(others, dtype=int):
        raise ValueError(f"apply_along_axis cannot tell the result's shape without a vector; got shape {x.shape}.")
    y = np.stack([func1d(vectors[i], *args, **kwargs) for i in np.ndindex(others)])
    y = np.reshape(y, others + y.shape[1:])
    new = range(len(others), y.ndim)
    return np.moveaxis(y, tuple(new), tuple(range(axis, axis + len(new)))) if len(new) else y


@implements(np.apply_over_axes)
def apply_over_axes(func: Any, x: Any, axes: Any) -> Any:
    """np.apply_over_axes: func(x, axis) for one axis after another, each kept as an axis of length 1."""
    for axis in np.atleast_1d(axes).tolist():
        y = func(x, axis)
        x = y if y.ndim == x.ndim else np.expand_dims(y, axis)
    return x
