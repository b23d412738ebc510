"""Modules: parameters with dotted names, nested as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from chainrule.autograd import Scope, Tensor, no_grad
from chainrule.autograd.tensor import Array, value_of


class Parameter(Tensor):
    """A leaf that training changes: a Tensor with `requires_grad=True`. As an attribute of a Module it takes that name."""

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(data, requires_grad, name, dtype)


class Module:
    """A part of a model. Subclasses set parameters and modules (or lists of them) as attributes and define `forward`.

    Calling a module runs `forward` in a scope of its name, so that every node made inside has a dotted path such as
    `blocks.0.attn.S`. Parameters have the same paths: `blocks.0.attn.WQ`.
    """

    training: bool = True
    _label: str = ""  # its name in the module around it
    _path: str = ""  # its path in the outermost one
    _plain: bool = False  # its parameters are plain arrays: there are no nodes to name

    def forward(self, *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward(self, ...).")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if self._plain:
            return self.forward(*inputs, **options)
        with Scope(self._label):
            return self.forward(*inputs, **options)

    def __repr__(self) -> str:
        lines = [f"  {path} {parameter.shape}" for path, parameter in self.named_parameters()]
        return f"{type(self).__name__} of {sum(p.size for p in self.parameters()):,} parameters\n" + "\n".join(lines)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter) and value.requires_grad:
            raise TypeError(f"{type(self).__name__}.{name} is trained only as a Parameter; wrap it: Parameter(...).")
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, Module) and any(inside is self for _, inside in part.named_modules()):
                raise ValueError(
                    f"A module is not part of itself: {type(self).__name__}.{name} would be, or hold, this very one."
                )
        super().__setattr__(name, value)
        if isinstance(value, (Parameter, Module, list, tuple)):
            self._give_names()

    def _children(self) -> Iterator[tuple[str, Any]]:
        """The parameters and modules that are attributes, or elements of a list or tuple that is one, with their names."""
        for name, value in vars(self).items():
            if isinstance(value, (Parameter, Module)):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((f"{name}.{i}", item) for i, item in enumerate(value) if isinstance(item, (Parameter, Module)))

    def _give_names(self) -> None:
        """Tell the modules inside where they are, and the parameters what they are called.

        From inside another module only new parameters are named: one that is called otherwise is shared with some other part.
        """
        named: set[Any] = set()
        for path, module in self.named_modules(self._path):
            for name, child in module._children():
                if child in named:
                    continue
                named.add(child)
                child_path = f"{path}.{name}" if path else name
                if isinstance(child, Module):
                    child._label, child._path = name, child_path
                elif not self._path or not child.name or f".{child_path}".endswith(f".{child.path}"):
                    child.scope, _, child.name = child_path.rpartition(".")

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module (path "") and all inside it, with their dotted paths. Raises ValueError if one is part of itself."""
        yield from self._modules(prefix, ())

    def _modules(self, prefix: str, around: tuple[Module, ...]) -> Iterator[tuple[str, Module]]:
        if self in around:  # by way of a list that grew
            raise ValueError(f"A module is not part of itself: {type(self).__name__} is inside of itself, as {prefix}.")
        yield prefix, self
        for name, child in self._children():
            if isinstance(child, Module):
                yield from child._modules(f"{prefix}.{name}" if prefix else name, (*around, self))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted paths; one shared by two modules comes once, under its first path."""
        if not self._path:
            self._give_names()  # anew: a list may have grown since
        seen: set[Parameter] = set()
        for prefix, module in self.named_modules():
            for name, child in module._children():
                if isinstance(child, Parameter) and child not in seen:
                    seen.add(child)
                    yield f"{prefix}.{name}" if prefix else name, child

    def parameters(self) -> list[Parameter]:
        """The parameters, each once."""
        return [parameter for _, parameter in self.named_parameters()]

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, on: bool = True) -> Self:
        """Training mode (dropout on) for this module and all inside; `train(False)` is `eval()`."""
        for _, module in self.named_modules():
            module.training = on
        return self

    def eval(self) -> Self:
        """Evaluation mode: dropout off."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """The parameters' values by path; copies."""
        return {path: np.array(parameter.data) for path, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the parameters from a `state_dict`. Nothing is changed unless everything fits.

        Raises:
            KeyError: names that are missing, or that this module does not have.
            ValueError: a value of another shape than its parameter, or too large for its dtype.
            TypeError: what is not real numbers, and a state that is no mapping.
        """
        own = dict(self.named_parameters())
        for path, value in fitted(type(self).__name__, own, state).items():
            own[path].data = value


def fitted(name: str, own: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Array]:
    """The entries of `state` as arrays of the shapes and dtypes of its `own`er's, `name`; raises as `load_state_dict` does."""
    if not isinstance(state, Mapping):
        raise TypeError(f"A state is values by name, as state_dict() gives them; got {type(state).__name__}.")
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unknown:
        said = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        raise KeyError(f"The state does not fit this {name}; {'; '.join(said)}.")
    return {path: _fitted(path, kept, state[path]) for path, kept in own.items()}


def _fitted(path: str, kept: Any, given: Any) -> Array:
    try:
        value = np.asarray(value_of(given))
    except ValueError as error:  # lists of unequal lengths
        raise ValueError(f"{path} has shape {kept.shape}; the state has no array of one shape.") from error
    if value.shape != kept.shape:
        raise ValueError(f"{path} has shape {kept.shape}; the state has {value.shape}.")
    if value.dtype.kind not in ("iuf" if kept.dtype.kind == "f" else "iu"):
        raise TypeError(f"{path} has dtype {kept.dtype}; the state has {value.dtype}, which is not of that kind.")
    with np.errstate(over="ignore"):
        array = value.astype(kept.dtype, copy=False)
    if not np.can_cast(value.dtype, kept.dtype) and np.any(np.isinf(array) & np.isfinite(value)):
        raise ValueError(f"{path} has dtype {kept.dtype}; the state has numbers too large for it.")
    return array


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Inside, nothing is recorded and dropout is off; afterwards each module is in the mode it was in."""
    training = [module for _, module in model.named_modules() if module.training]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module in training:
            module.training = True
