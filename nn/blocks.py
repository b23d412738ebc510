"""The blocks a Transformer is stacked from: a position-wise network, and residual connections around the parts."""

from __future__ import annotations

from math import sqrt
from typing import Any

from chainrule.autograd import named
from chainrule.nn import init
from chainrule.nn.activations import ACTIVATIONS, silu
from chainrule.nn.checks import check_size
from chainrule.nn.dropout import Dropout
from chainrule.nn.init import Seed
from chainrule.nn.linear import affine
from chainrule.nn.module import Module

SWIGLU = "swiglu"


def check_activation(activation: str) -> None:
    """Raise ValueError unless a `FeedForward` has this activation."""
    if activation != SWIGLU and activation not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join([*ACTIVATIONS, SWIGLU])}; got {activation!r}.")


class FeedForward(Module):
    """FFN(x) = σ(x W1 + b1) W2 + b2, the same for every position (notes 7.1).

    With "swiglu": (silu(x W1) · x W3) W2, two maps of which one gates the other (Shazeer 2020).
    x (…, d_model) -> (…, d_model); the hidden rows are called H and have d_ff entries.

    Args:
        activation: "relu", "gelu", "gelu_tanh", "silu", … or "swiglu".
        bias: False leaves out b1, b2 (and b3). std, out_std: of the draws that W1 (and W3), and W2, start from.
    Raises:
        ValueError: for an activation that is not known, and sizes that are not positive.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "gelu",
        bias: bool = True,
        *,
        std: float | None = None,
        out_std: float | None = None,
        seed: Seed = None,
    ) -> None:
        check_activation(activation)
        check_size("d_model", d_model)
        check_size("d_ff", d_ff)
        rng = init.generator(seed)
        std = 1 / sqrt(d_model) if std is None else std
        self.activation = activation
        self.W1 = init.normal((d_model, d_ff), std, rng)
        self.b1 = init.constant((d_ff,), 0) if bias else None
        if activation == SWIGLU:
            self.W3 = init.normal((d_model, d_ff), std, rng)
            self.b3 = init.constant((d_ff,), 0) if bias else None
        self.W2 = init.normal((d_ff, d_model), 1 / sqrt(d_ff) if out_std is None else out_std, rng)
        self.b2 = init.constant((d_model,), 0) if bias else None

    def forward(self, x: Any) -> Any:
        if self.activation == SWIGLU:
            H = silu(affine(x, self.W1, self.b1)) * affine(x, self.W3, self.b3)
        else:
            H = ACTIVATIONS[self.activation](affine(x, self.W1, self.b1))
        return affine(named("H", H), self.W2, self.b2)


class Block(Module):
    """Residual connections around attention and a position-wise network (notes 7.3, 7.7).

    Pre-LN:  R = x + attn(norm1(x));  out = R + ffn(norm2(R)).
    Post-LN: R = norm1(x + attn(x));  out = norm2(R + ffn(R)).
    With `cross` and a third norm, the decoder of an encoder-decoder reads the encoder's rows in between (notes 15.9).

    Args:
        attn, ffn: modules that keep the shape (…, d_model). norm1, norm2: their norms.
        cross, norm_cross: attention from x to `context`, and its norm.
        dropout: rate on each part's output, before it is added.
    """

    def __init__(
        self,
        attn: Module,
        ffn: Module,
        norm1: Module,
        norm2: Module,
        *,
        cross: Module | None = None,
        norm_cross: Module | None = None,
        pre_norm: bool = True,
        dropout: float = 0.0,
    ) -> None:
        if (cross is None) != (norm_cross is None):
            raise ValueError("cross and norm_cross belong together: give both or neither.")
        self.norm1, self.attn = norm1, attn
        self.norm_cross, self.cross = norm_cross, cross
        self.norm2, self.ffn = norm2, ffn
        self.pre_norm = pre_norm
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Any, context: Any = None, *, context_mask: Any = None, cross_cache: Any = None, **attention: Any
    ) -> Any:
        """x (…, T, d_model) -> the same. `attention`: mask, bias and cache, for the self-attention."""
        x = named("R", self._around(x, self.norm1, self.attn, **attention))
        if self.cross is not None:
            x = self._around(x, self.norm_cross, self.cross, context, mask=context_mask, cache=cross_cache)
        return named("out", self._around(x, self.norm2, self.ffn))

    def _around(self, x: Any, norm: Any, part: Module, *inputs: Any, **options: Any) -> Any:
        if self.pre_norm:
            return x + self.dropout(part(norm(x), *inputs, **options))
        return norm(x + self.dropout(part(x, *inputs, **options)))
