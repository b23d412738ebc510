"""Where the parameters of a model are, counted from its configuration alone (deep-learning brief, the table of GPT-3).

print(count_parameters(GPTConfig(vocab_size=50257, context=2048, n_layer=96, n_head=96, d_model=12288, tied=False)))
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from chainrule.autograd.modes import MODE
from chainrule.models.configs import MODELS, model_and_config
from chainrule.nn import init
from chainrule.nn.attention import Attention
from chainrule.nn.blocks import FeedForward
from chainrule.nn.module import Module
from chainrule.nn.norms import LayerNorm, RMSNorm
from chainrule.nn.positions import LearnedPositions

WEIGHTS = ("embedding", "attention", "feed_forward", "linear", "unembedding")
REST = ("positions", "norms", "biases")


class ParameterCount(dict[str, int]):
    """The number of parameters by part; printed, a table.

    Parts: embedding, attention, feed_forward, linear (matrices of none of the others, such as an MLP's) and unembedding (none
    if tied) are the weights; positions, norms and biases are the rest.

    Attributes:
        head: the parameters of one head of attention, WQ, WK, WV and WO together; None if heads differ or share keys.
    """

    head: int | None = None

    @property
    def weights(self) -> int:
        """All without positions, norms and biases."""
        return sum(self[part] for part in WEIGHTS)

    @property
    def total(self) -> int:
        """All."""
        return sum(self.values())

    def __repr__(self) -> str:
        sums = [("weights", self.weights)], [("total", self.total)]
        groups = [[(part, self[part]) for part in parts if self[part]] for parts in (WEIGHTS, REST)]
        lines = [f"{'part':12}  {'parameters':>16}    share"]
        for group, sum_ in zip(groups, sums, strict=True):
            for part, count in group + sum_:
                note = f"   {count // self.head:,} heads of {self.head:,}" if part == "attention" and self.head else ""
                lines.append(f"{part:12}  {count:16,}  {count / self.total:6.2%}{note}")
        return "\n".join(line.rstrip() for line in lines)


def count_parameters(model: Any) -> ParameterCount:
    """The parameters of a model, or of the model that a configuration describes, by part; each shared one once.

    From a configuration no numbers are allocated: GPT-3 is counted as fast as GPT-2. Raises TypeError for anything else.
    """
    if not isinstance(model, Module):
        known = [model_and_config(name) for name in MODELS]
        fitting = [model_class for model_class, config_class in known if isinstance(model, config_class)]
        if not fitting:
            names = ", ".join(config_class.__name__ for _, config_class in known)
            raise TypeError(f"count_parameters takes a Module or one of {names}; got {type(model).__name__}.")
        with init.shapes_only():
            model = fitting[0](model)
    modules = dict(model.named_modules())
    count = ParameterCount(dict.fromkeys((*WEIGHTS, *REST), 0))
    for path, parameter in model.named_parameters():
        owner, _, name = path.rpartition(".")
        count[_part(modules[owner], name, parameter.ndim)] += parameter.size
    attentions = [module for module in modules.values() if isinstance(module, Attention)]
    kinds = {(a.n_head, a.n_kv_head, a.WQ.size, a.WV.size) for a in attentions}
    if len(kinds) == 1 and attentions[0].n_head == attentions[0].n_kv_head:
        count.head = count["attention"] // (len(attentions) * attentions[0].n_head)
    return count


# A matrix has two of a configuration's sizes, and a third says how many there are: if the largest three multiply to less
# than this, no memory is too small, and nothing is counted.
SMALL = 2**26


def check_memory(config: Any, dtype: DTypeLike | None) -> None:
    """Raise ValueError, before anything is allocated, for a model whose parameters alone are more than the machine's memory.

    dtype: of the parameters, or None as the models take it.
    """
    fields = vars(config).values()
    sizes = sorted(size for field in fields for size in (field if isinstance(field, tuple) else (field,)) if type(size) is int)
    memory = _memory()
    if init.draws_nothing() or np.prod(sizes[-3:], dtype=object) < SMALL or memory is None:
        return
    number = np.dtype(dtype or MODE.get().dtype)
    try:
        count = _count(config)
    except ValueError:  # of a matrix that has more entries than NumPy can count
        raise ValueError(f"No array is as large as this configuration asks for: {config}.") from None
    if count * number.itemsize > memory:
        raise ValueError(
            f"This configuration has {count:,} parameters, {count * number.itemsize / 1e9:,.1f} GB in {number}; the memory is "
            f"{memory / 1e9:,.1f} GB. {config}"
        )


def check_batch(batch: int, context: int) -> None:
    """Raise ValueError, before anything is trained, for a batch whose ids alone, 8 bytes each, are more than the memory."""
    memory = _memory()
    if memory is not None and 8 * batch * context > memory:
        raise ValueError(
            f"batch is what the memory holds, {memory / 1e9:,.1f} GB; got {batch}, whose ids alone are "
            f"{8 * batch * context / 1e9:,.1f} GB. accumulate takes several batches for one step."
        )


def _count(config: Any) -> int:
    """The parameters, whatever the number of layers, which are all alike."""
    if not hasattr(config, "n_layer"):
        return count_parameters(config).total
    one, two = (count_parameters(replace(config, n_layer=n)).total for n in (1, 2))
    layers: int = config.n_layer
    return one + (layers - 1) * (two - one)


def _memory() -> int | None:
    """The bytes of the machine's memory; None where the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _part(module: Module, name: str, ndim: int) -> str:
    """The part to which the parameter `name` of a module belongs."""
    if isinstance(module, LearnedPositions):
        return "positions"
    if isinstance(module, (LayerNorm, RMSNorm)):
        return "norms"
    if ndim < 2:
        return "biases"
    if isinstance(module, Attention):
        return "attention"
    if isinstance(module, FeedForward):
        return "feed_forward"
    return {"E": "embedding", "U": "unembedding"}.get(name, "linear")
