"""Derivatives of functions: grad, value_and_grad, vjp, jvp, of any order.

    grad(lambda w: np.sum(np.tanh(x @ w)))(w)        # an array of the shape of w
    grad(grad(np.tanh))(0.5)                         # second derivative

Each runs the function once on fresh leaves. If the result depends on Tensors that require a gradient, given as arguments
or read from outside by the function (as when nested), they return Tensors, which can be differentiated again; otherwise
plain arrays. What a function reads from outside counts as constant inside `no_grad()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.autograd.forward import push_forward
from chainrule.autograd.graph import ancestors, opened
from chainrule.autograd.modes import enable_grad, is_recording
from chainrule.autograd.reverse import as_tensor, gradients
from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import Tensor, value_of

Function = Callable[..., Any]


def grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The function that returns ∂f/∂argument, where f returns a single number.

    Args:
        argnums: which positional argument; for several, the gradients come as a tuple.
    Raises (when called):
        TypeError: if the argument is not floating, or f does not return a Tensor that depends on it.
        ValueError: if f does not return a single number.
    """
    both = value_and_grad(f, argnums)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def value_and_grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The function that returns (f(…), ∂f/∂argument). See `grad`."""

    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        picked = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        leaves = [_leaf(args[i]) for i in picked]
        y = _run(f, args, dict(zip(picked, leaves, strict=True)), kwargs)
        again = any(tracked(args[i]) for i in picked) or _depends_on_others(y, leaves)
        if y.size != 1:
            raise ValueError(f"grad needs a function that returns a single number; {_name(f)} returned shape {y.shape}.")
        found = _gradients_or_zeros(y, leaves, None, again)
        return (y if again else y.data), found[0] if isinstance(argnums, int) else tuple(found)

    return value_and_gradient


def vjp(f: Function, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """(f(*primals), pullback): the pullback maps ḡ = ∂L/∂f to ∂L/∂primal for each primal, as often as you like."""
    leaves = [_leaf(x) for x in primals]
    y = _run(f, primals, dict(enumerate(leaves)), {})
    again = any(map(tracked, primals)) or _depends_on_others(y, leaves)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        return tuple(_gradients_or_zeros(y, leaves, cotangent, again or tracked(cotangent)))

    return (y if again else y.data), pullback


def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(f(*primals), ∂f · tangents): the derivative of f along the tangents, by forward mode.

    Raises ValueError if a tangent has not the shape of its primal.
    """
    if len(primals) != len(tangents):
        raise ValueError(f"jvp needs one tangent for each primal; got {len(primals)} primals and {len(tangents)} tangents.")
    leaves = [_leaf(x) for x in primals]
    for i, (x, tangent) in enumerate(zip(leaves, tangents, strict=True)):
        if np.shape(value_of(tangent)) != x.shape:
            raise ValueError(f"Tangent {i} must have the shape {x.shape} of its primal; got {np.shape(value_of(tangent))}.")
    y = _run(f, primals, dict(enumerate(leaves)), {})
    again = any(map(tracked, [*primals, *tangents])) or _depends_on_others(y, leaves)
    if not y.requires_grad:
        return (y if again else y.data), (Tensor if again else np.asarray)(np.zeros(y.shape, y.dtype))
    renamed: dict[Tensor, Tensor] = {}
    target = y
    if again:
        target, renamed = opened(y)
    seeds = {
        renamed.get(x, x): tangent if tracked(tangent) else np.array(value_of(tangent), dtype=x.dtype)
        for x, tangent in zip(leaves, tangents, strict=True)
    }
    if again:
        seeds = {x: tangent if isinstance(tangent, Tensor) else Tensor(tangent) for x, tangent in seeds.items()}
    with enable_grad():
        tangent = push_forward(ancestors(target), seeds, record=again).get(target)
    if tangent is None:
        tangent = np.zeros(y.shape, y.dtype)
    return (y, as_tensor(tangent)) if again else (y.data, np.array(tangent))  # a copy: it may be a view, or a tangent we got


def _leaf(x: Any) -> Tensor:
    """A variable of our own to differentiate by: of a plain value a leaf, of a tracked Tensor a copy that stays connected."""
    if tracked(x):
        with enable_grad():
            y: Tensor = np.copy(x)  # type: ignore[assignment]
        y.name = x.name
        return y
    data = value_of(x)
    if isinstance(data, (int, list, tuple)):
        data = np.asarray(data, dtype=float)
    return Tensor(data, requires_grad=True, name=x.name if isinstance(x, Tensor) else None)


def _run(f: Function, args: Sequence[Any], replaced: dict[int, Tensor], kwargs: dict[str, Any]) -> Tensor:
    with enable_grad():
        y = f(*(replaced.get(i, x) for i, x in enumerate(args)), **kwargs)
    if not isinstance(y, Tensor):
        raise TypeError(
            f"{_name(f)} returned {type(y).__name__}, not a Tensor: its result does not depend on the arguments through "
            "differentiable operations. Did it use .data, float() or another library on the way?"
        )
    return y


def _depends_on_others(y: Tensor, leaves: list[Tensor]) -> bool:
    """True if y depends on variables besides our own, such as those of a derivative being taken outside."""
    own = set(leaves)
    return is_recording() and any(node.is_leaf and node.requires_grad and node not in own for node in ancestors(y))


def _gradients_or_zeros(y: Tensor, leaves: list[Tensor], cotangent: Any, again: bool) -> list[Any]:
    if not y.requires_grad:
        return [(Tensor if again else np.asarray)(np.zeros(x.shape, x.dtype)) for x in leaves]
    return gradients(y, leaves, cotangent, create_graph=again)


def _name(f: Function) -> str:
    return getattr(f, "__name__", repr(f))


__all__ = ["grad", "jvp", "value_and_grad", "vjp"]
