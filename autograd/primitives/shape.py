"""Shape and order: the same numbers, arranged otherwise. Each rule arranges the adjoint back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.rules import implements, primitive


@primitive(linear="each")
def reshape(x: Any, *, shape: Any) -> Any:
    """y = x in another shape of the same size"""
    return np.reshape(x, shape)


@reshape.rule("x", "∂L/∂{x} = ∂L/∂{y} in the shape of {x}")
def reshape_wrt_x(g: Any, y: Any, x: Any, shape: Any) -> Any:
    return np.reshape(g, x.shape)


@implements(np.reshape)
def numpy_reshape(x: Any, shape: Any, order: str = "C") -> Any:
    """np.reshape, in C order."""
    if order != "C":
        raise TypeError(f"reshape on Tensors keeps C order; got order={order!r}. Transpose before or after instead.")
    return reshape(x, shape=shape)


@implements(np.ravel)
def ravel(x: Any, order: str = "C") -> Any:
    """np.ravel, in C order."""
    return numpy_reshape(x, -1, order)


@implements(np.expand_dims)
def expand_dims(x: Any, axis: Any) -> Any:
    """np.expand_dims"""
    return reshape(x, shape=np.expand_dims(np.empty(x.shape, dtype=bool), axis).shape)


@implements(np.squeeze)
def squeeze(x: Any, axis: Any = None) -> Any:
    """np.squeeze"""
    return reshape(x, shape=np.squeeze(np.empty(x.shape, dtype=bool), axis).shape)


@primitive(np.transpose, linear="each")
def transpose(x: Any, *, axes: Any = None) -> Any:
    """y = x with its axes permuted; reversed if `axes` is None"""
    return np.transpose(x, axes)


@transpose.rule("x", "∂L/∂{x} = (∂L/∂{y})ᵀ")
def transpose_wrt_x(g: Any, y: Any, x: Any, axes: Any = None) -> Any:
    return np.transpose(g, None if axes is None else tuple(np.argsort([axis % x.ndim for axis in axes])))


@primitive(np.swapaxes, linear="each")
def swapaxes(x: Any, *, axis1: int, axis2: int) -> Any:
    """y = x with two axes exchanged"""
    return np.swapaxes(x, axis1, axis2)


@swapaxes.rule("x", "∂L/∂{x} = (∂L/∂{y})ᵀ in these two axes")
def swapaxes_wrt_x(g: Any, y: Any, x: Any, axis1: int, axis2: int) -> Any:
    return np.swapaxes(g, axis1, axis2)


@implements(np.moveaxis)
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """np.moveaxis"""
    order = np.moveaxis(np.empty((0,) * x.ndim), source, destination)  # checks the axes
    del order
    sources = [axis % x.ndim for axis in np.atleast_1d(source)]
    destinations = [axis % x.ndim for axis in np.atleast_1d(destination)]
    axes = [axis for axis in range(x.ndim) if axis not in sources]
    for to, axis in sorted(zip(destinations, sources, strict=True)):
        axes.insert(to, axis)
    return transpose(x, axes=tuple(axes))


@primitive(np.broadcast_to, linear="each")
def broadcast_to(x: Any, *, shape: Any) -> Any:
    """y = x repeated to a larger shape"""
    return np.broadcast_to(x, shape)


@broadcast_to.rule("x", "∂L/∂{x} = ∂L/∂{y} summed over the repeats")
def broadcast_to_wrt_x(g: Any, y: Any, x: Any, shape: Any) -> Any:
    return unbroadcast(g, x.shape)


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
