"""np.pad, in every mode whose values are defined."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import Tensor, value_of

numpys_pad: Any = np.pad  # whose modes are typed one by one
STATISTICS: dict[str, Any] = {"mean": np.mean, "median": np.median, "maximum": np.max, "minimum": np.min}


@primitive()
def pad(x: Any, *, widths: Any, constants: Any = 0) -> Any:
    """y = x with constants around it, (before, after) of them along each axis"""
    return np.pad(x, widths, constant_values=constants)


@pad.rule("x", "∂L/∂{x} = the part of ∂L/∂{y} inside the padding")
def pad_wrt_x(g: Any, y: Any, x: Any, widths: Any, constants: Any = 0) -> Any:
    return g[tuple(slice(before, before + n) for (before, _), n in zip(widths, x.shape, strict=True))]


@implements(np.pad)
def numpy_pad(x: Any, pad_width: Any, mode: Any = "constant", **arguments: Any) -> Any:
    """np.pad, in every mode but "empty" and functions of one's own.

    The modes that copy entries gather them; "linear_ramp" and the odd reflections are products with a matrix; "mean",
    "median", "maximum" and "minimum" are those reductions, ties by their conventions.
    """
    if mode == "empty" or not isinstance(mode, str):
        raise TypeError(f"np.pad on Tensors needs a mode whose values are defined; got mode={mode!r}. Try mode='constant'.")
    for key, value in arguments.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(f"np.pad has a derivative in the padded array only; {key} requires a gradient. Use np.concatenate.")
    arguments = {key: value_of(value) for key, value in arguments.items() if value is not None}
    widths = _widths(pad_width, x.ndim)
    numpys_pad(np.empty((1,) * x.ndim), 0, mode, **arguments)  # checks the mode and its arguments

    if not x.ndim:  # a number has no side to pad
        return x
    if mode == "constant":
        constants = np.asarray(arguments.get("constant_values", 0))
        return pad(x, widths=widths, constants=constants.item() if constants.ndim == 0 else _pairs(constants, x.ndim))
    copies = mode in ("edge", "wrap") or (mode in ("reflect", "symmetric") and arguments.get("reflect_type") != "odd")
    if copies:
        return x[np.ix_(*(numpys_pad(np.arange(n), width, mode) for n, width in zip(x.shape, widths, strict=True)))]
    for axis, width in enumerate(widths):  # one axis after another, as NumPy does
        if width != (0, 0):
            here = {
                key: _pairs(value, x.ndim)[axis] if key in ("stat_length", "end_values") else value
                for key, value in arguments.items()
            }
            along = _with_statistics if mode in STATISTICS else _by_matrix
            x = np.moveaxis(along(np.moveaxis(x, axis, -1), width, mode, here), -1, axis)
    return x


def _with_statistics(x: Any, width: tuple[int, int], mode: str, arguments: dict[str, Any]) -> Any:
    """x padded along its last axis with a statistic of the entries next to each end."""
    n = x.shape[-1]
    if not n:
        raise ValueError(f"An empty axis has no {mode} to pad with; got shape {x.shape}.")
    lengths = [min(length, n) for length in arguments.get("stat_length", (n, n))]
    ends = x[..., : lengths[0]], x[..., n - lengths[1] :]
    before, after = (
        np.broadcast_to(STATISTICS[mode](end, axis=-1, keepdims=True), (*x.shape[:-1], count))
        for end, count in zip(ends, width, strict=True)
    )
    return np.concatenate([before, x, after], axis=-1)


def _by_matrix(x: Any, width: tuple[int, int], mode: str, arguments: dict[str, Any]) -> Any:
    """x padded along its last axis, where that is x @ M + c: c is the padding of zeros, M + c that of the identity."""
    if "end_values" in arguments:
        arguments = {"end_values": (arguments["end_values"], (0, 0))}
    n, widths = x.shape[-1], (width, (0, 0))
    c = numpys_pad(np.zeros((n, 1)), widths, mode, **arguments)
    M = numpys_pad(np.eye(n), widths, mode, **arguments) - c
    y = x @ M.T.astype(x.dtype)
    return y + c[:, 0].astype(x.dtype) if c.any() else y


def _widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis, from all that np.pad takes: a number, a pair, pairs, or a dictionary by axis."""
    if isinstance(pad_width, dict):
        by_axis = {axis % ndim: width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(by_axis.get(axis, 0), 2) for axis in range(ndim)]
    widths = np.asarray(value_of(pad_width))
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise ValueError(f"Padding has widths of 0 or more, whole numbers; got pad_width={pad_width!r}.")
    return _pairs(widths, ndim)


def _pairs(value: Any, ndim: int) -> tuple[tuple[Any, Any], ...]:
    return tuple((before, after) for before, after in np.broadcast_to(value, (ndim, 2)).tolist())
