"""The engine: arrays that remember how they were computed, and the chain rule over that memory. NumPy only."""

from chainrule.autograd import primitives as _primitives  # teaches NumPy's functions about Tensors
from chainrule.autograd.checkpoint import checkpoint
from chainrule.autograd.functional import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from chainrule.autograd.modes import (
    Scope,
    default_dtype,
    detect_anomaly,
    enable_grad,
    is_recording,
    no_grad,
    open_fused,
    record_sources,
)
from chainrule.autograd.primitives.reductions import logsumexp
from chainrule.autograd.reverse import Step, backward, backward_steps, gradients
from chainrule.autograd.rules import Primitive, elementwise, implements, primitive, stop_gradient
from chainrule.autograd.tensor import Tensor, named

del _primitives

__all__ = [
    "Primitive",
    "Scope",
    "Step",
    "Tensor",
    "backward",
    "backward_steps",
    "checkpoint",
    "default_dtype",
    "detect_anomaly",
    "elementwise",
    "enable_grad",
    "grad",
    "gradients",
    "hessian",
    "hvp",
    "implements",
    "is_recording",
    "jacobian",
    "jvp",
    "logsumexp",
    "named",
    "no_grad",
    "open_fused",
    "primitive",
    "record_sources",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]
