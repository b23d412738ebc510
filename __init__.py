"""chainrule: every gradient, node by node."""

from chainrule.autograd import (
    Tensor,
    grad,
    jvp,
    named,
    no_grad,
    value_and_grad,
    vjp,
)

__version__ = "0.1.0"

__all__ = [
    "Tensor",
    "grad",
    "jvp",
    "named",
    "no_grad",
    "value_and_grad",
    "vjp",
]
