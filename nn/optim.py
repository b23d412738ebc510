"""Optimisers: they change parameters by their gradients.

    optimizer = AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.lr = schedule(step)
        optimizer.zero_grad()
        loss(...).backward()
        clip_grad_norm(optimizer.parameters, 1.0)
        optimizer.step()

All parameters of one dtype lie side by side in one array, of which each `parameter.data` is a view. So a step is a few
operations on long arrays, however many parameters there are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import inf, sqrt
from typing import Any

import numpy as np

from chainrule.autograd import Tensor
from chainrule.autograd.tensor import Array, value_of
from chainrule.nn.checks import check_number
from chainrule.nn.kernels import over_blocks, shared
from chainrule.nn.module import Module, Parameter, fitted

BLOCK = 16 * 1024  # numbers at a time, so that all that a step reads and writes of them stays in the processor's cache


class Optimizer:
    """What the optimisers share: parameters, each counted once, and a step that changes those that have a gradient.

    A subclass has the formula, `update`, and names the arrays of the parameters' shapes that it keeps, `state`.

    Attributes:
        parameters: the leaves it changes.
        steps: by parameter, how often it was changed.
    Raises:
        TypeError: for anything that is not a leaf that requires a gradient. ValueError: for none at all, or a negative lr.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, state: tuple[str, ...] = ()) -> None:
        own = type(self).__name__
        if isinstance(parameters, Module):
            raise TypeError(f"{own} takes the parameters of a module; say {type(parameters).__name__.lower()}.parameters().")
        self.parameters = each_once(parameters, own)
        if not self.parameters:
            raise ValueError(f"{own} got no parameters; has the model any?")
        self.lr, self.state = lr, state
        self.steps = [0] * len(self.parameters)
        self._spoilt = False
        dtypes = dict.fromkeys(parameter.dtype for parameter in self.parameters)
        self._flats = [_Flat(self.parameters, dtype, len(self.state)) for dtype in dtypes]

    @property
    def lr(self) -> float:
        """The learning rate η; a schedule sets it before each step. ValueError for one that is negative or not finite."""
        return self._lr

    @lr.setter
    def lr(self, rate: float) -> None:
        check_number("The learning rate", rate)
        self._lr = rate

    def update(self, new: Array, old: Array, g: Array, state: Sequence[Array], spare: Array, step: int, matrix: bool) -> None:
        """Write into `new` what becomes of the parameters `old` with gradient `g`; change `state` in place; `spare` is scratch.

        All are one-dimensional and of equal length: a part of the parameters. Other parts may be updated in other threads at
        the same time. step: which it is for these parameters, from 1. matrix: whether they have two or more axes.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no update.")

    def step(self) -> None:
        """Change every parameter that has a gradient; the others stay as they are, and so does what is kept of them.

        The parameters get new arrays: a graph that holds the old ones keeps them as they were.

        If the formula itself raises, such as an overflow within `np.errstate(all="raise")`, the parameters and `steps` stay as
        they were; but what is kept of them, such as Adam's m and v, is changed for some numbers and not for others. The
        optimiser then steps no more until `load_state_dict` has given it a state that is whole.

        Raises:
            ValueError, TypeError: for a gradient of another shape or dtype than its parameter; nothing is changed then.
            RuntimeError: if an earlier step was broken off and its state is not loaded anew.
        """
        self._check_whole()
        for parameter in self.parameters:
            if parameter.grad is not None:
                _check_gradient(parameter)
        begun = [(flat, flat.begin(self.steps)) for flat in self._flats]
        self._spoilt = bool(self.state)
        for flat, stretches in begun:
            numbers = 4 * BLOCK if shared(flat.g.nbytes) else BLOCK  # in short blocks threads wait for the interpreter
            blocks = [
                (i, min(i + numbers, stop), gradient[i - start :], step, matrix)
                for start, stop, gradient, step, matrix in stretches
                for i in range(start, stop, numbers)
            ]
            over_blocks(partial(self._change, flat), blocks, flat.g.nbytes, products=False)
        for flat, stretches in begun:  # only now, so that an error in the midst leaves the parameters as they were
            if stretches:
                flat.finish()
        self.steps = [
            count + (parameter.grad is not None) for count, parameter in zip(self.steps, self.parameters, strict=True)
        ]
        self._spoilt = False

    def _check_whole(self) -> None:
        if self._spoilt:
            raise RuntimeError(
                f"A step was broken off, and {', '.join(self.state)} of this {type(self).__name__} are changed in part. "
                "Go on from a state that is whole: load_state_dict(what state_dict() gave before)."
            )

    def _change(self, flat: _Flat, block: tuple[int, int, Array, int, bool]) -> None:
        i, j, gradient, step, matrix = block
        g, state = gradient[: j - i], [kept[i:j] for kept in flat.state]
        self.update(flat.new[i:j], flat.old[i:j], g, state, np.empty_like(g), step, matrix)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def _names(self) -> list[str]:
        """The parameters' paths; their numbers if some have none, or the same."""
        paths = [parameter.path if parameter.name else "" for parameter in self.parameters]
        return paths if len({*paths, ""}) == len(paths) + 1 else [str(i) for i in range(len(paths))]

    def _kept(self) -> dict[str, Array]:
        """By name, such as m.blocks.0.attn.WQ, the arrays it keeps: views."""
        names, found = self._names(), {}
        for flat in self._flats:
            for number, place, shape in zip(flat.numbers, flat.places, flat.shapes, strict=True):
                for name, array in zip(self.state, flat.state, strict=True):
                    found[f"{name}.{names[number]}"] = array[place].reshape(shape)
        return found

    def state_dict(self) -> dict[str, Array]:
        """What it keeps between steps, by name: "step", and arrays such as "m.blocks.0.attn.WQ"; copies.

        With the parameters' values it makes training resume bit for bit. The learning rate and the other arguments are not
        in it: they are said where the optimiser is made. Raises RuntimeError after a step that was broken off.
        """
        self._check_whole()
        return {"step": np.array(self.steps), **{name: array.copy() for name, array in self._kept().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a `state_dict`. Nothing is changed unless everything fits.

        Raises:
            KeyError: names that are missing, or that this optimiser does not have.
            ValueError: an array of another shape than its parameter, numbers too large for its dtype, negative steps.
            TypeError: what is not real numbers, steps that are not whole.
        """
        own = {"step": np.array(self.steps), **self._kept()}
        new = fitted(type(self).__name__, own, state)
        if (new["step"] < 0).any():
            raise ValueError(f"step says how often each parameter was changed, from 0; the state has {new['step'].min()}.")
        self.steps = new.pop("step").tolist()
        for name, array in new.items():
            own[name][...] = array
        self._spoilt = False


class SGD(Optimizer):
    """Gradient descent: θ ← θ - η · ∂L/∂θ, all parameters from the gradients of the same point (notes 13.10).

    With momentum μ, v ← μ v + ∂L/∂θ and θ ← θ - η v. With Nesterov's, θ ← θ - η (∂L/∂θ + μ v) (Sutskever et al. 2013).

    Args:
        parameters: leaves that require a gradient, such as `model.parameters()`. lr: the learning rate η.
    Raises:
        TypeError, ValueError: as `Optimizer`; and for a momentum outside [0, 1), or Nesterov's without any.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, momentum: float = 0.0, nesterov: bool = False) -> None:
        check_number("momentum", momentum, high=1)
        if nesterov and momentum == 0:
            raise ValueError("Nesterov's momentum needs a momentum above 0; got 0.")
        self.momentum, self.nesterov = momentum, nesterov
        super().__init__(parameters, lr, state=("v",) if momentum else ())

    def update(self, new: Array, old: Array, g: Array, state: Sequence[Array], spare: Array, step: int, matrix: bool) -> None:
        direction = g
        if self.momentum:
            (v,) = state
            v *= self.momentum
            v += g
            direction = v
            if self.nesterov:
                direction = np.multiply(v, self.momentum, out=spare)
                direction += g
        np.subtract(old, np.multiply(direction, self.lr, out=spare), out=new)


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015): each number moves by its mean gradient over the root of its mean square.

        m ← β₁ m + (1 - β₁) g,   v ← β₂ v + (1 - β₂) g²,   θ ← θ - η · m̂ / (√v̂ + ε)

    with m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ), which undo the start from 0; t counts the steps of that parameter.
    Raises ValueError for a rate or an eps that is negative or not finite, and for betas outside [0, 1).
    """

    def __init__(
        self, parameters: Iterable[Parameter], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"betas are two numbers, (β₁, β₂); got {betas!r}.")
        for beta in betas:
            check_number("A number of betas", beta, high=1)
        check_number("eps", eps)
        self.betas, self.eps = betas, eps
        super().__init__(parameters, lr, state=("m", "v"))

    def update(self, new: Array, old: Array, g: Array, state: Sequence[Array], spare: Array, step: int, matrix: bool) -> None:
        m, v = state
        beta1, beta2 = self.betas
        m *= beta1
        m += np.multiply(g, 1 - beta1, out=spare)
        np.multiply(g, g, out=spare)
        spare *= 1 - beta2
        v *= beta2
        v += spare
        root = sqrt(1 - beta2**step)  # √v̂ + ε = (√v + ε root) / root
        np.sqrt(v, out=spare)
        spare += self.eps * root
        np.divide(m, spare, out=spare)
        spare *= self.lr * root / (1 - beta1**step)
        np.subtract(old, spare, out=new)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): θ ← θ - η λ θ - η · m̂ / (√v̂ + ε).

    Only parameters with two or more axes decay: weights and embeddings, not biases or the γ and β of a layer norm. Raises as
    `Adam`, and for a λ that is negative or not finite.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        check_number("weight_decay", weight_decay)
        self.weight_decay = weight_decay
        super().__init__(parameters, lr, betas, eps)

    def update(self, new: Array, old: Array, g: Array, state: Sequence[Array], spare: Array, step: int, matrix: bool) -> None:
        if matrix:
            old = np.multiply(old, 1 - self.lr * self.weight_decay, out=new)
        super().update(new, old, g, state, spare, step, matrix)


class _Flat:
    """The parameters of one dtype, side by side: first those with two or more axes, then the others."""

    def __init__(self, parameters: Sequence[Parameter], dtype: Any, states: int) -> None:
        chosen = [i for i, parameter in enumerate(parameters) if parameter.dtype == dtype]
        chosen.sort(key=lambda i: parameters[i].ndim < 2)
        self.numbers = chosen  # among all parameters
        self.parameters = [parameters[i] for i in chosen]
        self.shapes = [parameter.shape for parameter in self.parameters]
        stops = [0, *accumulate(parameter.size for parameter in self.parameters)]
        self.places = [slice(*ends) for ends in pairwise(stops)]
        self.size, self.dtype = stops[-1], dtype
        self.working = np.result_type(dtype, np.float32)  # float16 is too coarse to accumulate in
        self.state = [np.zeros(self.size, self.working) for _ in range(states)]
        self._make_room()

    def _make_room(self) -> None:
        self.old, self.new = np.empty(self.size, self.dtype), np.empty(self.size, self.dtype)
        self.g = np.empty(self.size, self.working)
        self.views: list[Any] = [None] * len(self.parameters)  # of `old`, as the parameters hold them

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the room for the parameters' numbers, which are read anew before the next step."""
        return {name: kept for name, kept in vars(self).items() if name not in ("old", "new", "g", "views")}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept)
        self.state = [array.copy() for array in self.state]  # the memory of a pickle may be read-only
        self._make_room()

    def begin(self, steps: list[int]) -> list[tuple[int, int, Array, int, bool]]:
        """Make ready for a step. Gives the stretches that change: start, stop, their gradient, which step it is, matrix or not.

        A small parameter's gradient is copied beside its neighbours', so that one stretch holds them all.
        """
        stretches: list[tuple[int, int, Array, int, bool]] = []
        idle = []
        for number, parameter, place in zip(self.numbers, self.parameters, self.places, strict=True):
            if parameter.grad is None:
                idle.append(place)
                continue
            gradient = value_of(parameter.grad).ravel()
            start, stop, kind = place.start, place.stop, (steps[number] + 1, parameter.ndim >= 2)
            if gradient.size < BLOCK or gradient.dtype != self.g.dtype:
                self.g[place] = gradient
                if stretches and stretches[-1][1] == start and stretches[-1][3:] == kind and stretches[-1][2].base is self.g:
                    start = stretches.pop()[0]
                gradient = self.g[start:stop]
            stretches.append((start, stop, gradient, *kind))
        if not stretches:
            return []
        if any(parameter.data is not view for parameter, view in zip(self.parameters, self.views, strict=True)):  # assigned to
            self.old = np.concatenate([parameter.data.ravel() for parameter in self.parameters])
        # `new` was `old` a step ago, and its views were the parameters' data. While a graph holds one of those, it must stay as
        # it is; if not, this attribute is the only reference (getrefcount adds its own) and the memory serves again.
        if sys.getrefcount(self.new) > 2:
            self.new = np.empty_like(self.old)
        self.new.flags.writeable = True
        for place in idle:
            self.new[place] = self.old[place]
        return stretches

    def finish(self) -> None:
        """Let the parameters be views of the new numbers; the old array's turn comes in the next step."""
        self.old, self.new = self.new, self.old
        self.old.flags.writeable = False
        self.views = [self.old[place].reshape(shape) for place, shape in zip(self.places, self.shapes, strict=True)]
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.data = view


def clip_grad_norm(parameters: Iterable[Parameter], max_norm: float) -> float:
    """Scale all gradients by max_norm / ‖g‖ if their norm ‖g‖, over all of them together, is larger; return ‖g‖.

    Parameters without a gradient do not count; one that is given twice counts once.

    Raises:
        FloatingPointError: a gradient that is not finite, with the parameter's name: no scale would make it right; and a norm
            that is beyond float64, though each gradient is not.
        ValueError: for a max_norm that is not positive.
    """
    check_number("max_norm, the largest norm that is let through,", max_norm, ends="(]")
    parameters = each_once(parameters, "clip_grad_norm")
    norm = grad_norm(parameters)
    if norm > max_norm:
        _scale(parameters, max_norm, norm)
    return norm


def grad_norm(parameters: Iterable[Parameter]) -> float:
    """‖g‖ = √(Σ g²) over the gradients of all parameters. Raises FloatingPointError if one is not finite, or ‖g‖ is not."""
    gradients = {}
    for parameter in parameters:
        if parameter.grad is not None:
            _check_gradient(parameter)
            gradients[parameter] = value_of(parameter.grad)
    squares = sum(float(np.vdot(g, g)) for g in map(_at_least_float32, gradients.values()))
    if 1e-30 < squares < inf:
        return sqrt(squares)
    # Not finite, or squares that left the range of the dtype: once more, in float64 and shares of the largest.
    for parameter, g in gradients.items():
        if not np.isfinite(g).all():
            raise FloatingPointError(f"The gradient of {parameter.path} is not finite; a smaller learning rate may help.")
    largest = max((float(np.max(np.abs(g), initial=0)) for g in gradients.values()), default=0.0)
    shares = (g.astype(float) / largest for g in gradients.values() if largest)
    norm = largest * sqrt(sum(float(np.vdot(share, share)) for share in shares))
    if norm == inf:
        raise FloatingPointError(
            f"The norm of the gradients is beyond float64: their largest is {largest:.3g}; scale the loss down."
        )
    return norm


def _at_least_float32(g: Array) -> Array:
    return g.astype(np.float32) if g.dtype == np.float16 else g


def _check_gradient(parameter: Parameter) -> None:
    """Raise TypeError or ValueError unless the gradient is like the data: it would be cut, or repeated, to fit."""
    g = value_of(parameter.grad)
    if not isinstance(g, (np.ndarray, np.generic)) or g.dtype != parameter.dtype:
        found = getattr(g, "dtype", type(g))
        raise TypeError(f"{parameter.path} has dtype {parameter.dtype}, and so has its gradient; got {found}.")
    if g.shape != parameter.shape:
        raise ValueError(f"{parameter.path} has shape {parameter.shape}, and so has its gradient; got {g.shape}.")


def scale_gradients(parameters: Iterable[Parameter], factor: float) -> None:
    """Multiply all gradients by a number: 1/n after `backward()` of n equal parts of a batch makes their mean.

    In float16 the sum of the parts may overflow before it is scaled, with a warning: there divide each loss by n instead.
    """
    check_number("The factor", factor, -inf, ends="()")
    _scale(each_once(parameters, "scale_gradients"), factor, 1.0)


def _scale(parameters: Sequence[Parameter], factor: float, divisor: float) -> None:
    """Multiply all gradients by factor / divisor; in float64 where their own dtype would cut the quotient short."""
    quotient = float(factor / divisor)
    for parameter in parameters:
        if parameter.grad is None:
            continue
        numbers = np.finfo(parameter.dtype)
        if not float(numbers.smallest_normal) <= abs(quotient) <= float(numbers.max):
            parameter.grad = (parameter.grad.astype(float) / divisor * factor).astype(parameter.dtype)
        elif isinstance(parameter.grad, np.ndarray) and not parameter.grad.flags.writeable:  # as out of a pickle
            parameter.grad = parameter.grad * quotient
        else:
            parameter.grad *= quotient


def each_once(parameters: Iterable[Parameter], taker: str) -> list[Parameter]:
    """The parameters as a list; one that is given twice, such as a tied weight, comes once."""
    parameters = list(parameters)
    for parameter in parameters:
        if not isinstance(parameter, Tensor) or not parameter.is_leaf or not parameter.requires_grad:
            raise TypeError(f"{taker} takes Parameters, such as model.parameters(); got {parameter!r}.")
    return list(dict.fromkeys(parameters))
