"""Each fused kernel with its rule, forward and backward, beside PyTorch's, in float32: `python benchmarks/run.py kernels`.

The sizes are those of GPT 4×128 (T 64, B 12) and 6×384 (T 256, B 8), and larger ones.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from chainrule import Tensor, nn

SIZES = {  # rows, features, scores (B, H, T, d_k), classes, parameters
    "4×128": (768, 128, (12, 4, 64, 32), 65, 800_000),
    "6×384": (2048, 384, (8, 6, 256, 64), 65, 10_700_000),
    "large": (8192, 768, (4, 12, 512, 64), 8192, 30_000_000),
}
Pair = tuple[Callable[[], Any], Callable[[], Any]]  # ours, PyTorch's


def pairs(size: str) -> dict[str, Callable[[], Pair]]:
    """By kernel, what makes the two: not all arrays need be there at once."""
    import torch
    from torch.nn import functional as F  # noqa: N812

    rows, d, heads, classes, parameters = SIZES[size]
    rng = np.random.default_rng(0)

    def pair(ours: Any, theirs: Any, *shapes: tuple[int, ...]) -> Pair:
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        leaves = [Tensor(x, requires_grad=True) for x in arrays]
        leaves_torch = [torch.tensor(x, requires_grad=True) for x in arrays]
        g = rng.standard_normal(np.shape(ours(*leaves)), np.float32)
        g_torch = torch.tensor(g)

        def run() -> list[Any]:
            for leaf in leaves:
                leaf.grad = None
            ours(*leaves).backward(g)
            return [leaf.grad for leaf in leaves]

        def run_torch() -> list[Any]:
            for leaf in leaves_torch:
                leaf.grad = None
            theirs(*leaves_torch).backward(g_torch)
            return [leaf.grad for leaf in leaves_torch]

        for found, right in zip(run(), run_torch(), strict=True):
            np.testing.assert_allclose(found, right.numpy(), rtol=1e-3, atol=1e-4 * float(right.abs().max()))
        return run, run_torch

    def cross_entropy() -> Pair:
        target = rng.integers(0, classes, rows)
        target_torch = torch.tensor(target)
        return pair(lambda x: nn.cross_entropy(x, target), lambda x: F.cross_entropy(x, target_torch), (rows, classes))

    def adamw() -> Pair:
        x, g = (rng.standard_normal((parameters // 1000, 1000), np.float32) for _ in range(2))
        ours, theirs = nn.Parameter(x), torch.nn.Parameter(torch.tensor(x))
        ours.grad, theirs.grad = g, torch.tensor(g)
        return nn.AdamW([ours]).step, torch.optim.AdamW([theirs]).step

    return {
        "layer_norm": lambda: pair(nn.layer_norm, lambda x, *w: F.layer_norm(x, (d,), *w), (rows, d), (d,), (d,)),
        "rms_norm": lambda: pair(nn.rms_norm, lambda x, w: F.rms_norm(x, (d,), w, 1e-5), (rows, d), (d,)),
        "gelu": lambda: pair(nn.gelu, F.gelu, (rows, 4 * d)),
        "gelu_tanh": lambda: pair(nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), (rows, 4 * d)),
        "silu": lambda: pair(nn.silu, F.silu, (rows, 4 * d)),
        "softmax": lambda: pair(nn.softmax, lambda x: F.softmax(x, -1), (*heads[:3], heads[2])),
        "attention": lambda: pair(
            lambda *x: nn.attention(*x, causal=True),
            lambda *x: F.scaled_dot_product_attention(*x, is_causal=True),
            *3 * [heads],
        ),
        "cross_entropy": cross_entropy,
        "AdamW": adamw,
    }


def report(rounds: int, seconds: float, threads: int) -> None:
    """Print a row for each kernel: at each size our time / PyTorch's, and ours in µs."""
    try:
        made = {size: pairs(size) for size in SIZES}
    except ImportError:
        print("PyTorch is not installed: pip install torch", file=sys.stderr)
        return
    print(f"kernels: forward and backward, float32, each on {threads} thread(s): the ratio to PyTorch, and our µs")
    print(f"  {'':14}" + "".join(f"{size:>20}" for size in SIZES) + f"   (medians of {rounds} rounds)")
    for kernel in made["large"]:
        print(f"  {kernel:14}", end="")
        for makers in made.values():
            ratio, ours = compared(*makers[kernel](), rounds, seconds)
            print(f"{ratio:10.2f} {ours * 1e6:9.0f}", end="", flush=True)
        print()


def compared(run: Callable[[], Any], run_torch: Callable[[], Any], rounds: int, seconds: float) -> tuple[float, float]:
    """The ratio of the times, and ours: in each round the shortest of as many calls as fit in `seconds`; medians of them."""
    ratios, ours = [], []
    for _ in range(rounds):
        gc.collect()
        times = [shortest(call, seconds) for call in (run, run_torch)]
        ratios.append(times[0] / times[1])
        ours.append(times[0])
    return statistics.median(ratios), statistics.median(ours)


def shortest(call: Callable[[], Any], seconds: float) -> float:
    """The time of the shortest call, of those in `seconds`, after one that does not count; of two at least."""
    call()
    taken: list[float] = []
    end = perf_counter() + seconds
    while len(taken) < 2 or perf_counter() < end:
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken)
