"""Optimisers: they change parameters by their gradients."""

from __future__ import annotations

from collections.abc import Iterable

from chainrule.nn.module import Parameter


class SGD:
    """Gradient descent: θ ← θ - lr · ∂L/∂θ, all parameters from the gradients of the same point (notes 13.10)."""

    def __init__(self, parameters: Iterable[Parameter], lr: float) -> None:
        self.parameters = list(parameters)
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
