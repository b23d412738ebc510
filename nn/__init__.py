"""Neural networks on the engine: modules and layers, their functions, losses, optimisers and schedules."""

from chainrule.autograd import logsumexp
from chainrule.nn import init, schedules
from chainrule.nn.activations import ACTIVATIONS, erf, gelu, gelu_tanh, relu, sigmoid, silu
from chainrule.nn.attention import Attention, attention, causal_mask, padding_mask, tiled_attention
from chainrule.nn.blocks import Block, FeedForward
from chainrule.nn.cache import KVCache
from chainrule.nn.dropout import Dropout, dropout, reseed
from chainrule.nn.init import manual_seed
from chainrule.nn.kernels import set_threads
from chainrule.nn.linear import Embedding, Linear, embedding, linear
from chainrule.nn.losses import binary_cross_entropy, cross_entropy, negative_sampling, squared_cost
from chainrule.nn.module import Module, Parameter
from chainrule.nn.norms import LayerNorm, RMSNorm, layer_norm, rms_norm
from chainrule.nn.optim import SGD, Adam, AdamW, clip_grad_norm, scale_gradients
from chainrule.nn.positions import LearnedPositions, Rope, alibi, rope, sinusoidal
from chainrule.nn.softmax import softmax

__all__ = [
    "ACTIVATIONS",
    "SGD",
    "Adam",
    "AdamW",
    "Attention",
    "Block",
    "Dropout",
    "Embedding",
    "FeedForward",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Module",
    "Parameter",
    "RMSNorm",
    "Rope",
    "alibi",
    "attention",
    "binary_cross_entropy",
    "causal_mask",
    "clip_grad_norm",
    "cross_entropy",
    "dropout",
    "embedding",
    "erf",
    "gelu",
    "gelu_tanh",
    "init",
    "layer_norm",
    "linear",
    "logsumexp",
    "manual_seed",
    "negative_sampling",
    "padding_mask",
    "relu",
    "reseed",
    "rms_norm",
    "rope",
    "scale_gradients",
    "schedules",
    "set_threads",
    "sigmoid",
    "silu",
    "sinusoidal",
    "softmax",
    "squared_cost",
    "tiled_attention",
]
