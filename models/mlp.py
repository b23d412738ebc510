"""A multi-layer perceptron: a^l = σ(a^(l-1) W^l + b^l), layer by layer (deep-learning brief, chapters 1-4; Nielsen 2015).

    MLPConfig(sizes=(784, 16, 16, 10))        # 12,960 weights and 42 biases, 13,002 parameters: handwritten digits

Rows are examples, so a weight matrix is (inputs, outputs), the transpose of the brief's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np

from chainrule.autograd import default_dtype, named, no_grad
from chainrule.autograd.modes import MODE
from chainrule.autograd.tensor import value_of
from chainrule.models.counting import check_memory
from chainrule.nn import init
from chainrule.nn.activations import ACTIVATIONS
from chainrule.nn.linear import linear
from chainrule.nn.module import Module


@dataclass(frozen=True)
class MLPConfig:
    """What a perceptron is made of.

    Args:
        sizes: neurons in each layer, the input first. activation: σ, one of `nn.ACTIVATIONS`.
        output: "activation": the last layer has σ as well (with `nn.squared_cost`); "logits": it has not, and the outputs go
            to `nn.cross_entropy`.
    Raises:
        ValueError: for fewer than two layers, sizes that are not positive, and words that are not known.
    """

    sizes: tuple[int, ...] = (784, 16, 16, 10)
    activation: str = "sigmoid"
    output: Literal["activation", "logits"] = "activation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))  # a list, as JSON has it, is as good
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in self.sizes)
        if len(self.sizes) < 2 or not whole:
            raise ValueError(f"sizes are at least two positive whole numbers, the input first; got {self.sizes}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}; got {self.activation!r}.")
        if self.output not in ("activation", "logits"):
            raise ValueError(f'output is "activation" or "logits"; got {self.output!r}.')


class MLP(Module):
    """x (…, inputs) -> (…, outputs): the activations of the last layer, or its logits.

    Parameters W1 (inputs, neurons), b1, W2, b2, …; nodes z1 = x W1 + b1, a1 = σ(z1), z2 = a1 W2 + b2, … A weight starts from
    N(0, 1/d_in), so that z has about the variance of the layer before (for relu N(0, 2/d_in), He et al. 2015); a bias from 0.

    Args:
        seed: of the numbers the weights start from. dtype: theirs; float64, or what `default_dtype` says, if not given.
    """

    def __init__(self, config: MLPConfig | None = None, *, seed: init.Seed = 0, dtype: Any = None) -> None:
        self.config = config = config or MLPConfig()
        check_memory(config, dtype)
        gain = 2 if config.activation == "relu" else 1
        with default_dtype(dtype or MODE.get().dtype):
            rng = init.generator(seed)
            for layer, (d_in, d_out) in enumerate(zip(config.sizes, config.sizes[1:], strict=False), start=1):
                setattr(self, f"W{layer}", init.normal((d_in, d_out), sqrt(gain / d_in), rng))
                setattr(self, f"b{layer}", init.constant((d_out,), 0))

    def forward(self, x: Any) -> Any:
        """x (…, inputs) -> (…, outputs)."""
        activation, last = ACTIVATIONS[self.config.activation], len(self.config.sizes) - 1
        a = x
        for layer in range(1, last + 1):
            z = named(f"z{layer}", linear(a, getattr(self, f"W{layer}"), getattr(self, f"b{layer}")))  # (…, neurons)
            if layer == last and self.config.output == "logits":
                return z
            a = named(f"a{layer}", activation(z))  # (…, neurons)
        return a

    def predict(self, x: Any) -> Any:
        """The output that is largest: x (…, inputs) -> integers (…)."""
        with no_grad():
            return np.argmax(value_of(self(x)), axis=-1)


def pixels(images: Any, dtype: Any = None) -> Any:
    """Images (…, rows, columns) of bytes as rows of numbers from 0 to 1: (…, rows · columns)."""
    images = np.asarray(images)
    return images.reshape(*images.shape[:-2], -1).astype(dtype or MODE.get().dtype) / 255


def one_hot(labels: Any, classes: int, dtype: Any = None) -> Any:
    """What the outputs should be: 1 at the label, else 0. labels (…) integers -> (…, classes).

    Raises TypeError for labels that are not integers, ValueError for labels outside 0..classes-1.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"Labels are integers, the index of the right class; got dtype {labels.dtype}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"Labels lie in 0..{classes - 1}; got {labels.min()}..{labels.max()}.")
    return np.eye(classes, dtype=dtype or MODE.get().dtype)[labels]
