"""Order along an axis: sorted entries, the triangles and the diagonal of a matrix, and the differences of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.indexing import scatter_add
from chainrule.autograd.primitives.shape import flat_if_no_axis
from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import Tensor

# Sorting


@primitive(analytic=False, saves=True)
def sort(x: Any, *, axis: int = -1) -> Any:
    """y = x from small to large along the axis; equal entries keep their order"""
    order = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order


@sort.rule("x", "∂L/∂{x} = ∂L/∂{y}, put back where each entry came from")
def sort_wrt_x(g: Any, y: Any, x: Any, saved: Any, axis: int = -1) -> Any:
    return np.take_along_axis(g, np.argsort(saved, axis=axis), axis)  # the inverse of the order


@implements(np.sort)
def numpy_sort(x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> Any:
    """np.sort, always stable. `order` is for records, which have no derivative."""
    if order is not None:
        raise TypeError(f"np.sort on Tensors has no argument 'order', which is for records; got {order!r}.")
    x, axis = flat_if_no_axis(x, axis)
    return sort(x, axis=axis)


@primitive(analytic=False, saves=True)
def partition(x: Any, *, kth: Any, axis: int = -1) -> Any:
    """y = x with entry kth where sorting would put it, no smaller one after it and no larger one before it"""
    order = np.argpartition(x, kth, axis)
    return np.take_along_axis(x, order, axis), order


@partition.rule("x", "∂L/∂{x} = ∂L/∂{y}, put back where each entry came from")
def partition_wrt_x(g: Any, y: Any, x: Any, kth: Any, saved: Any, axis: int = -1) -> Any:
    return np.take_along_axis(g, np.argsort(saved, axis=axis), axis)


@implements(np.partition)
def numpy_partition(x: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """np.partition. `order` is for records, which have no derivative."""
    if order is not None:
        raise TypeError(f"np.partition on Tensors has no argument 'order', which is for records; got {order!r}.")
    x, axis = flat_if_no_axis(x, axis)
    return partition(x, kth=kth, axis=axis)


# Diagonals and triangles


def _diagonal_of(shape: tuple[int, ...], offset: int) -> tuple[Any, Any]:
    """The rows and columns of a diagonal in the last two axes."""
    rows, columns = shape[-2:]
    here = np.arange(max(0, -offset), max(0, -offset, min(rows, columns - offset)))
    return here, here + offset


@primitive(np.diagonal, linear="each")
def diagonal(x: Any, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """y = the diagonal in the plane of two axes, as the last axis"""
    return np.diagonal(x, offset, axis1, axis2)


@diagonal.rule("x", "∂L/∂{x} = ∂L/∂{y} on the diagonal, 0 elsewhere")
def diagonal_wrt_x(g: Any, y: Any, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    planes = np.moveaxis(np.broadcast_to(False, x.shape), (axis1, axis2), (-2, -1)).shape
    spread = scatter_add(g, key=(..., *_diagonal_of(planes, offset)), shape=planes)
    return np.moveaxis(spread, (-2, -1), (axis1, axis2))


@primitive(linear="each")
def diag(x: Any, *, k: int = 0) -> Any:
    """y = a matrix with the vector x on its k-th diagonal, 0 elsewhere"""
    return np.diag(x, k)


@diag.rule("x", "∂L/∂{x} = the diagonal of ∂L/∂{y}")
def diag_wrt_x(g: Any, y: Any, x: Any, k: int = 0) -> Any:
    return np.diagonal(g, k)


@implements(np.diag)
def numpy_diag(x: Any, k: int = 0) -> Any:
    """np.diag: a matrix from a vector, or the diagonal of a matrix."""
    if x.ndim not in (1, 2):
        raise ValueError(f"np.diag takes a vector or a matrix; got shape {x.shape}. Use np.diagonal or np.diagflat.")
    return diag(x, k=k) if x.ndim == 1 else np.diagonal(x, k)


@implements(np.diagflat)
def diagflat(x: Any, k: int = 0) -> Any:
    """np.diagflat: the flat array on a diagonal."""
    return diag(np.ravel(x), k=k)


@primitive(np.tril, linear="each")
def tril(x: Any, *, k: int = 0) -> Any:
    """y = x on and below the k-th diagonal, 0 above"""
    return np.tril(x, k)


@tril.rule("x", "∂L/∂{x} = ∂L/∂{y} on and below the diagonal, 0 above")
def tril_wrt_x(g: Any, y: Any, x: Any, k: int = 0) -> Any:
    return unbroadcast(np.tril(g, k), x.shape)  # a vector is repeated as rows


@primitive(np.triu, linear="each")
def triu(x: Any, *, k: int = 0) -> Any:
    """y = x on and above the k-th diagonal, 0 below"""
    return np.triu(x, k)


@triu.rule("x", "∂L/∂{x} = ∂L/∂{y} on and above the diagonal, 0 below")
def triu_wrt_x(g: Any, y: Any, x: Any, k: int = 0) -> Any:
    return unbroadcast(np.triu(g, k), x.shape)


# Differences of neighbours


@primitive(linear="each")
def diff(x: Any, *, axis: int) -> Any:
    """y_i = x_(i+1) - x_i along the axis"""
    return np.diff(x, axis=axis)


@diff.rule("x", "∂L/∂{x} = -diff(0, ∂L/∂{y}, 0)")
def diff_wrt_x(g: Any, y: Any, x: Any, axis: int) -> Any:
    if not x.shape[axis]:
        return g
    widths = [(int(i == axis),) * 2 for i in range(x.ndim)]
    return -np.diff(np.pad(g, widths), axis=axis)


@implements(np.diff)
def numpy_diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    """np.diff, n times, with values put before and after first."""
    if n < 0:
        raise ValueError(f"Differences are taken 0 or more times; got n={n}.")
    if np.ndim(x) == 0:
        raise ValueError("Differences need an axis with neighbours; got a single number.")
    x = x if isinstance(x, Tensor) else np.asarray(x)
    x, axis = flat_if_no_axis(x, axis)
    if n == 0:
        return x
    parts = [part for part in (prepend, x, append) if part is not np._NoValue]
    if len(parts) > 1:
        one_slice = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        x = np.concatenate([part if np.ndim(part) else np.broadcast_to(part, one_slice) for part in parts], axis)
    for _ in range(n):
        x = diff(x, axis=axis)
    return x


@implements(np.ediff1d)
def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """np.ediff1d: the differences of the flat array, with values before and after."""
    parts = [to_begin, np.diff(np.ravel(x)), to_end]
    return np.concatenate([np.ravel(part) for part in parts if part is not None])


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient: the slope of f along each axis by differences of neighbours, second order inside.

    f: array. varargs: the spacing, one number or one per axis, or the coordinates along each axis. edge_order: 1 or 2.
    Raises ValueError as NumPy does, for too few points or spacings that do not fit.
    """
    f = f if isinstance(f, Tensor) else np.asarray(f)
    axes = range(f.ndim) if axis is None else [i % f.ndim for i in np.atleast_1d(axis)]
    if edge_order not in (1, 2):
        raise ValueError(f"gradient has edge_order 1 or 2; got {edge_order}.")
    if len(varargs) not in (0, 1, len(axes)) or (len(varargs) == 1 and np.ndim(varargs[0]) and len(axes) > 1):
        raise TypeError(
            f"gradient takes no spacing, one number, or one spacing for each of {len(axes)} axes; got {len(varargs)}."
        )
    spacings = varargs if len(varargs) == len(axes) else (varargs or (1.0,)) * len(axes)
    slopes = tuple(_slope(f, i, h, edge_order) for i, h in zip(axes, spacings, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(f: Any, axis: int, h: Any, edge_order: int) -> Any:
    """df along one axis; h is the spacing of all points, or their coordinates."""
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(f"gradient with edge_order {edge_order} needs {edge_order + 1} points along an axis; got {n}.")
    if np.ndim(h) and np.shape(h) != (n,):
        raise ValueError(f"Coordinates along an axis of {n} points have shape ({n},); got {np.shape(h)}.")
    f = np.moveaxis(f, axis, -1)
    steps = np.diff(h) if np.ndim(h) else np.broadcast_to(h, (n - 1,))
    if f.dtype != steps.dtype and not isinstance(steps, Tensor):
        steps = steps.astype(f.dtype)
    secants = np.diff(f, axis=-1) / steps  # the slope between neighbours, (…, n - 1)
    a, b = steps[:-1], steps[1:]  # before and after each inner point
    inside = (b * secants[..., :-1] + a * secants[..., 1:]) / (a + b)
    first, last = secants[..., :1], secants[..., -1:]
    if edge_order == 2:  # the parabola through three points
        first = first + (first - secants[..., 1:2]) * (steps[:1] / (steps[:1] + steps[1:2]))
        last = last + (last - secants[..., -2:-1]) * (steps[-1:] / (steps[-1:] + steps[-2:-1]))
    return np.moveaxis(np.concatenate([first, inside, last], axis=-1), -1, axis)
