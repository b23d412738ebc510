"""Derivatives of functions, of any order: grad, value_and_grad, vjp, jvp, jacobian, hessian, hvp.

    grad(lambda w: np.sum(np.tanh(x @ w)))(w)        # an array of the shape of w
    grad(grad(np.tanh))(0.5)                         # second derivative
    grad(loss)({"W": W, "b": b})                     # {"W": ∂loss/∂W, "b": ∂loss/∂b}

Arguments and results may be nested dicts, lists and tuples of arrays, numbers and Tensors.

Each runs the function once on fresh leaves. If the result depends on Tensors that require a gradient, given as arguments
or read from outside by the function (as when nested), they return Tensors, which can be differentiated again; otherwise
plain arrays. What a function reads from outside counts as constant inside `no_grad()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from chainrule.autograd import tree
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
        with _Run(f, args, argnums, kwargs) as run:
            y = run.single_output("grad")
            if y.size != 1:
                raise ValueError(f"grad needs a function that returns a single number; {_name(f)} returned shape {y.shape}.")
            return run.plain(y), run.like_arguments(run.pull(y, None))

    return value_and_gradient


def vjp(f: Function, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """(f(*primals), pullback): the pullback maps ḡ = ∂L/∂f to ∂L/∂primal for each primal, as often as you like.

    The cotangent ḡ nests like the result of f, its leaves of the same shapes. Raises ValueError if it does not.
    """
    with _Run(f, primals, range(len(primals)), {}) as run:
        values = tree.mapped(run.plain, run.output)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        total: list[Any] = [None] * len(run.leaves)
        for y, g in zip(run.outputs, tree.leaves_like(run.output, cotangent, "The cotangent"), strict=True):
            for i, part in enumerate(run.pull(y, g)):
                total[i] = part if total[i] is None else total[i] + part
        result: tuple[Any, ...] = run.like_arguments(total)
        return result

    return values, pullback


def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(f(*primals), ∂f · tangents): the derivative of f along the tangents, by forward mode.

    Raises ValueError if a tangent has not the form and shapes of its primal.
    """
    if len(primals) != len(tangents):
        raise ValueError(f"jvp needs one tangent for each primal; got {len(primals)} primals and {len(tangents)} tangents.")
    directions = [
        leaf
        for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
        for leaf in tree.leaves_like(primal, tangent, f"Tangent {i}")
    ]
    with _Run(f, primals, range(len(primals)), {}) as run:
        for i, (x, tangent) in enumerate(zip(run.leaves, directions, strict=True)):
            if np.shape(value_of(tangent)) != x.shape:
                raise ValueError(f"Tangent {i} must have the shape {x.shape} of its primal; got {np.shape(value_of(tangent))}.")
        run.again = run.again or any(map(tracked, directions))
        pushed = [run.push(y, directions) for y in run.outputs]
        return tree.mapped(run.plain, run.output), tree.like(run.output, pushed)


def jacobian(f: Function, argnums: int | Sequence[int] = 0, mode: Literal["", "reverse", "forward"] = "") -> Function:
    """The function that returns ∂f/∂argument whole: for y = f(x), an array of shape (*y.shape, *x.shape).

    For nested results and arguments: the form of the result, each leaf in the form of the argument.

    Args:
        argnums: which positional argument; for several, the Jacobians come as a tuple.
        mode: "reverse" (a backward pass for each output entry), "forward" (a forward pass for each input entry), or by
            default whichever needs fewer passes.
    """
    if mode not in ("", "reverse", "forward"):
        raise ValueError(f'mode is "reverse", "forward" or "" for the cheaper of them; got {mode!r}.')

    def whole(*args: Any, **kwargs: Any) -> Any:
        with _Run(f, args, argnums, kwargs) as run:
            forward = mode == "forward" or (not mode and sum(x.size for x in run.leaves) < sum(y.size for y in run.outputs))
            blocks = [run.columns(y) if forward else run.rows(y) for y in run.outputs]
            return tree.like(run.output, [run.like_arguments(block) for block in blocks])

    return whole


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The function that returns ∂²f/∂x∂x, of shape (*x.shape, *x.shape), for f that returns a single number.

    For nested arguments: the form of the argument, each leaf in the form of the argument. It is the Jacobian, by forward
    mode, of the gradient.
    """
    return jacobian(grad(f, argnums), argnums, mode="forward")


def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of f times the tangents, without forming it: forward mode over the gradient.

    Returns the product for each primal as a tuple, of their forms and shapes. It costs a few times what f costs.
    """
    return jvp(grad(f, range(len(primals))), primals, tangents)[1]


class _Variable(Tensor):
    """A leaf of our own. Once its derivatives are taken it is no longer live, and nobody's variable any more."""

    __slots__ = ("live",)
    live: bool


class _Run:
    """One evaluation of f on fresh leaves, and the passes over what it recorded.

    Attributes:
        leaves: our own variables, one for each leaf of the arguments differentiated by.
        output, outputs: what f returned, and its leaves.
        again: whether results are to be Tensors, because a derivative is being taken outside.
    """

    def __init__(self, f: Function, args: Sequence[Any], argnums: int | Sequence[int], kwargs: dict[str, Any]) -> None:
        self.name = _name(f)
        self.one = isinstance(argnums, int)
        picked = [argnums] if isinstance(argnums, int) else list(argnums)
        for i in picked:
            if not -len(args) <= i < len(args):
                raise ValueError(f"argnums names argument {i}, but {self.name} was called with {len(args)}.")
        self.arguments = tuple(args[i] for i in picked)
        given = [leaf for i in picked for leaf in tree.leaves_with_paths(args[i], f"argument {i}")]
        self.leaves = [_leaf(x, path) for path, x in given]
        replaced = dict(zip((i % len(args) for i in picked), tree.like_each(self.arguments, self.leaves), strict=True))
        with enable_grad():
            self.output = f(*(replaced.get(i, x) for i, x in enumerate(args)), **kwargs)
        self.outputs = tree.leaves(self.output)
        for y in self.outputs or [self.output]:
            if not isinstance(y, Tensor):
                raise TypeError(
                    f"{self.name} returned {type(y).__name__}, not a Tensor: its result does not depend on the arguments "
                    "through differentiable operations. Did it use .data, float() or another library on the way?"
                )
        self.again = any(tracked(x) for _, x in given) or self._depends_on_others()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for x in self.leaves:
            if isinstance(x, _Variable):
                x.live = False

    def _depends_on_others(self) -> bool:
        """True if the result depends on variables besides our own, as of a derivative being taken outside."""
        own = set(self.leaves)
        return is_recording() and any(
            node.is_leaf and node not in own and not (isinstance(node, _Variable) and not node.live)
            for y in self.outputs
            for node in ancestors(y)
            if node.requires_grad
        )

    def single_output(self, what: str) -> Tensor:
        if not isinstance(self.output, Tensor):
            kind = type(self.output).__name__
            raise ValueError(f"{what} needs a function that returns one Tensor; {self.name} returned {kind}.")
        return self.output

    def plain(self, y: Tensor) -> Any:
        return y if self.again else y.data

    def like_arguments(self, results: list[Any]) -> Any:
        """Results by leaf in the form of the arguments; of just the one argument, if just one was asked for."""
        formed = tree.like_each(self.arguments, results)
        return formed[0] if self.one else formed

    def pull(self, y: Tensor, g: Any) -> list[Any]:
        """⟨g, ∂y/∂leaf⟩ for each leaf; g is 1 if None."""
        again = self.again or tracked(g)
        if not y.requires_grad:
            return [_zeros(x.shape, x, again) for x in self.leaves]
        return gradients(y, self.leaves, g, create_graph=again)

    def push(self, y: Tensor, directions: Sequence[Any]) -> Any:
        """Σ ∂y/∂leaf · direction."""
        if not y.requires_grad:
            return _zeros(y.shape, y, self.again)
        target, renamed = opened(y) if self.again else (y, {})
        seeds = {}
        for x, direction in zip(self.leaves, directions, strict=True):
            seed = direction if tracked(direction) else np.array(value_of(direction), dtype=x.dtype)
            seeds[renamed.get(x, x)] = as_tensor(seed) if self.again else seed
        with enable_grad():
            tangent = push_forward(ancestors(target), seeds, record=self.again).get(target)
        if tangent is None:
            return _zeros(y.shape, y, self.again)
        return as_tensor(tangent) if self.again else np.array(tangent)  # a copy: it may be a view, or what we were given

    def rows(self, y: Tensor) -> list[Any]:
        """The Jacobian by each leaf, from one backward pass for each entry of y."""
        pulled = [self.pull(y, unit) for unit in _units(y)]
        return [self._stacked([row[i] for row in pulled], (*y.shape, *x.shape), x) for i, x in enumerate(self.leaves)]

    def columns(self, y: Tensor) -> list[Any]:
        """The Jacobian by each leaf, from one forward pass for each entry of that leaf."""
        blocks = []
        for i, x in enumerate(self.leaves):
            zeros = [np.zeros(other.shape, other.dtype) for other in self.leaves]
            pushed = [self.push(y, [*zeros[:i], unit, *zeros[i + 1 :]]) for unit in _units(x)]
            by_entry = self._stacked(pushed, (x.size, *y.shape), y)
            blocks.append(np.reshape(np.moveaxis(by_entry, 0, -1), (*y.shape, *x.shape)))
        return blocks

    def _stacked(self, parts: list[Any], shape: tuple[int, ...], kind: Tensor) -> Any:
        return np.reshape(np.stack(parts), shape) if parts else _zeros(shape, kind, self.again)


def _units(x: Tensor) -> list[Any]:
    """Arrays of the shape of x with one entry 1, for each entry in turn."""
    return [np.reshape(row, x.shape) for row in np.eye(x.size, dtype=x.dtype)]


def _zeros(shape: tuple[int, ...], kind: Tensor, again: bool) -> Any:
    zeros = np.zeros(shape, kind.dtype)
    return Tensor(zeros) if again else zeros


def _leaf(x: Any, path: str) -> Tensor:
    """A variable of our own to differentiate by: of a plain value a leaf, of a tracked Tensor a copy that stays connected."""
    if tracked(x):
        with enable_grad():
            y: Tensor = np.copy(x)  # type: ignore[assignment]
        y.name = x.name
        return y
    data = value_of(x)
    if isinstance(data, (int, list, tuple)):
        data = np.asarray(data, dtype=float)
    try:
        leaf = _Variable(data, requires_grad=True, name=x.name if isinstance(x, Tensor) else None)
        leaf.live = True
        return leaf
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None


def _name(f: Function) -> str:
    return getattr(f, "__name__", repr(f))


__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]
