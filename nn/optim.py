"""Optimisers: they change parameters by their gradients."""

from __future__ import annotations

from collections.abc import Iterable

from chainrule.autograd import Tensor
from chainrule.nn.module import Module, Parameter


class SGD:
    """Gradient descent: θ ← θ - lr · ∂L/∂θ, all parameters from the gradients of the same point (notes 13.10).

    Args:
        parameters: leaves that require a gradient, such as `model.parameters()`. lr: the learning rate.
    Raises:
        TypeError: for anything that is not such a leaf. ValueError: for none at all.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float) -> None:
        if isinstance(parameters, Module):
            raise TypeError(f"SGD takes the parameters of a module; say {type(parameters).__name__.lower()}.parameters().")
        self.parameters = list(parameters)
        for parameter in self.parameters:
            if not isinstance(parameter, Tensor) or not parameter.is_leaf or not parameter.requires_grad:
                raise TypeError(f"SGD takes Parameters, such as model.parameters(); got {parameter!r}.")
        if not self.parameters:
            raise ValueError("SGD got no parameters; has the model any?")
        self.lr = lr

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.data = parameter.data - self.lr * parameter.grad

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None
