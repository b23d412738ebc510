"""chainrule: every gradient, node by node.

    import numpy as np
    from chainrule import Tensor, trace

    W = Tensor(np.ones((2, 1)), requires_grad=True, name="W")
    loss = np.sum(np.tanh(Tensor([[1.0, 0.0]]) @ W))
    loss.backward()              # W.grad
    print(trace(loss, W[0, 0]))  # how the error reaches W[0,0], node by node
"""

from chainrule import models, nn, viz
from chainrule.autograd import (
    Tensor,
    default_dtype,
    enable_grad,
    grad,
    gradients,
    jvp,
    named,
    no_grad,
    primitive,
    record_sources,
    stop_gradient,
    value_and_grad,
    vjp,
)
from chainrule.autograd.check import gradcheck
from chainrule.autograd.ledger import trace
from chainrule.viz.terminal import debug

__version__ = "0.1.0"

__all__ = [
    "Tensor",
    "debug",
    "default_dtype",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradients",
    "jvp",
    "models",
    "named",
    "nn",
    "no_grad",
    "primitive",
    "record_sources",
    "stop_gradient",
    "trace",
    "value_and_grad",
    "viz",
    "vjp",
]
