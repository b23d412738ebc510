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
    backward_steps,
    checkpoint,
    default_dtype,
    detect_anomaly,
    enable_grad,
    grad,
    gradients,
    hessian,
    hvp,
    jacobian,
    jvp,
    logsumexp,
    named,
    no_grad,
    open_fused,
    primitive,
    record_sources,
    stop_gradient,
    value_and_grad,
    vjp,
)
from chainrule.autograd.check import gradcheck
from chainrule.autograd.ledger import trace
from chainrule.autograd.scalar import as_graph, scalar_graph, scalar_mode, values
from chainrule.autograd.value import Value
from chainrule.viz.terminal import debug

__version__ = "0.1.0"

__all__ = [
    "Tensor",
    "Value",
    "as_graph",
    "backward_steps",
    "checkpoint",
    "debug",
    "default_dtype",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradients",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "logsumexp",
    "models",
    "named",
    "nn",
    "no_grad",
    "open_fused",
    "primitive",
    "record_sources",
    "scalar_graph",
    "scalar_mode",
    "stop_gradient",
    "trace",
    "value_and_grad",
    "values",
    "viz",
    "vjp",
]
