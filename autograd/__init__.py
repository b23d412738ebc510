"""The engine: arrays that remember how they were computed, and the chain rule over that memory. NumPy only."""

from chainrule.autograd import primitives as _primitives  # teaches NumPy's functions about Tensors
from chainrule.autograd.functional import grad, jvp, value_and_grad, vjp
from chainrule.autograd.modes import Scope, default_dtype, enable_grad, is_recording, no_grad, open_fused, record_sources
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
    "default_dtype",
    "elementwise",
    "enable_grad",
    "grad",
    "gradients",
    "implements",
    "is_recording",
    "jvp",
    "named",
    "no_grad",
    "open_fused",
    "primitive",
    "record_sources",
    "stop_gradient",
    "value_and_grad",
    "vjp",
]
