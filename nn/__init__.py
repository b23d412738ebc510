"""Neural networks on the engine: modules, their functions, optimisers."""

from chainrule.autograd import logsumexp
from chainrule.autograd.primitives.elementwise import relu, sigmoid
from chainrule.nn.attention import attention, causal_mask
from chainrule.nn.losses import cross_entropy
from chainrule.nn.module import Module, Parameter
from chainrule.nn.optim import SGD
from chainrule.nn.softmax import softmax

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
