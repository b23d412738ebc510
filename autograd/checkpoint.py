"""Checkpointing: keep only the result of a part of the computation, and compute the rest again when it is needed.

    h = checkpoint(block)(x)     # as h = block(x), but the nodes inside are made again during backward

It saves the memory of all that stands between x and h, for the time of a second forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.autograd.graph import substituted
from chainrule.autograd.modes import MODE, Mode, enable_grad, mode_set_to
from chainrule.autograd.reverse import gradients
from chainrule.autograd.rules import primitive, tracked
from chainrule.autograd.tensor import Tensor, creation_order, frozen


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of Tensors, recorded as a single node.

    f returns one Tensor. It may use Tensors and parameters from outside; gradients reach them too. It must compute the same
    again: backward raises a RuntimeError if it does not (for dropout, draw the mask outside). Derivatives of any order and
    forward mode go through it, as through any function.

    Raises TypeError (when called) if f returns anything but one Tensor.
    """

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        args = tuple(frozen(x) if isinstance(x, np.ndarray) else x for x in args)  # they are needed again
        kwargs = {key: frozen(x) if isinstance(x, np.ndarray) else x for key, x in kwargs.items()}
        mode = MODE.get()
        start = next(creation_order)
        y = f(*args, **kwargs)
        if not isinstance(y, Tensor) and not any(map(tracked, args)):
            return y
        if not isinstance(y, Tensor):
            raise TypeError(f"A checkpointed function returns one Tensor; got {type(y).__name__}.")
        if not y.requires_grad or y.index < start:
            return y
        given = [x for x in args if tracked(x)]
        outside = [node for node in _reached_from(y, start) if not any(node is x for x in given)]
        return recomputed(*given, *outside, segment=_Segment(f, args, kwargs, mode, outside, y.data))

    return checkpointed


class _Segment:
    """What it takes to compute the part again."""

    def __init__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode, outside: list[Tensor], y: Any
    ) -> None:
        self.f, self.args, self.kwargs, self.mode, self.outside, self.y = f, args, kwargs, mode, outside, y

    def run(self, inputs: Sequence[Tensor]) -> Tensor:
        """f again, on these in place of the tracked arguments and of what it uses from outside."""
        given = iter(inputs)
        args = [next(given) if tracked(x) else x for x in self.args]
        with mode_set_to(self.mode), enable_grad():
            y: Tensor = self.f(*args, **self.kwargs)
        if not isinstance(y, Tensor):  # an array of another kind, in scalar mode
            if self.outside:
                raise TypeError("A checkpointed function that uses tensors from outside runs on Tensors only; pass them to it.")
            return y
        size = float(np.max(np.abs(self.y), initial=0))
        if y.shape != self.y.shape or not np.allclose(y.data, self.y, 1e-5, 1e-8 * size, equal_nan=True):
            raise RuntimeError(
                "A checkpointed function must compute the same again; it did not. Does it draw random numbers, or did a "
                "parameter change between forward and backward?"
            )
        return substituted(y, dict(zip(self.outside, given, strict=True)))


def _reached_from(y: Tensor, start: int) -> list[Tensor]:
    """The nodes made before `start`, and the leaves, that the part of the graph made since uses."""
    inside: list[Tensor] = [y]
    outside: list[Tensor] = []
    seen = {y}
    for node in inside:
        for x in node.inputs:
            if tracked(x) and x not in seen:
                seen.add(x)
                (outside if x.index < start or x.is_leaf else inside).append(x)
    return sorted(outside, key=lambda node: node.index)


@primitive(named_inside=True, recomputes=True)
def recomputed(*inputs: Any, segment: Any) -> Any:
    """y = a part of the computation that is computed again in backward"""
    return segment.y


@recomputed.joint_rule({"inputs": "∂L/∂{inputs} = the chain rule from {y} through the part, computed again"})
def recomputed_wrt_inputs(g: Any, y: Any, *inputs: Any, segment: Any) -> Any:
    own = [Tensor(x, requires_grad=True) for x in inputs]
    return gradients(segment.run(own), own, g)


@recomputed.defined_by
def recomputed_definition(*inputs: Any, segment: Any) -> Any:
    return segment.run(inputs)
