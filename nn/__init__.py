"""Neural networks on the engine: modules, their functions, optimisers."""

from chainrule.autograd import logsumexp
from chainrule.autograd.primitives.elementwise import relu, sigmoid
from chainrule.nn.functional import attention, causal_mask, cross_entropy, softmax
from chainrule.nn.module import Module, Parameter
from chainrule.nn.optim import SGD

__all__ = [
    "SGD",
    "Module",
    "Parameter",
    "attention",
    "causal_mask",
    "cross_entropy",
    "logsumexp",
    "relu",
    "sigmoid",
    "softmax",
]
