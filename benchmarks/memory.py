"""The memory that attention takes, forward and backward, by the length of the sequence: plain and tiled."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule import Tensor, nn

LENGTHS = (256, 512, 1024, 2048, 4096)


def peak(attention: Callable[..., Any], length: int) -> float:
    """MB at most beyond the inputs, of one causal head of 32 features in float32."""
    Q, K, V = (Tensor(np.ones((1, 1, length, 32), np.float32), requires_grad=True) for _ in range(3))
    tracemalloc.start()
    np.sum(attention(Q, K, V, causal=True)).backward()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def report() -> None:
    """Print a row for each length."""
    print("memory: attention of one head, causal, forward and backward, MB beyond the inputs")
    print(f"  {'length':>8} {'plain':>8} {'tiled':>8}")
    for length in LENGTHS:
        print(f"  {length:8,} {peak(nn.attention, length):8.1f} {peak(nn.tiled_attention, length):8.1f}")
