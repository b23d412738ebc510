"""Generation with a cache of keys and values, ours and PyTorch's: greedy, float32, 200 tokens after 16.

The peer is an eager PyTorch GPT after nanoGPT (queries, keys and values in one product, `F.scaled_dot_product_attention`,
`inference_mode`) with a cache to which each token's keys and values are added. It has our weights, and must give our tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.models.gpt import GPT, GPTConfig

PROMPT, NEW = 16, 200

Contenders = dict[str, Callable[[], Any]]


def generate_4x128() -> tuple[str, Contenders]:
    """GPT 4×128: 200 tokens after 16, greedy, with a cache."""
    return _contenders(generate_4x128, GPTConfig(vocab_size=65, context=256, n_layer=4, n_head=4, d_model=128))


def generate_6x384() -> tuple[str, Contenders]:
    """GPT 6×384: 200 tokens after 16, greedy, with a cache."""
    return _contenders(generate_6x384, GPTConfig(vocab_size=65, context=256, n_layer=6, n_head=6, d_model=384))


def _contenders(described: Any, config: GPTConfig) -> tuple[str, Contenders]:
    model = GPT(config, dtype=np.float32)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, PROMPT)
    contenders: Contenders = {"chainrule": lambda: model.generate(ids, NEW, temperature=0)}
    try:
        from torch_generation import TorchGPT
    except ImportError:
        print("PyTorch is not installed: pip install torch", file=sys.stderr)
    else:
        peer = TorchGPT(model)
        contenders["PyTorch eager"] = lambda: peer.generate(ids, NEW)
        if not np.array_equal(contenders["chainrule"](), contenders["PyTorch eager"]()):
            raise AssertionError("the peer generates other tokens")
    return f"{described.__doc__} A call makes {NEW} tokens.", contenders
