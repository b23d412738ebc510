"""Tokens per second, ours and PyTorch's, greedy, with a cache, on one thread: `python benchmarks/generation.py`.

Needs the extra `bench` (PyTorch). The peer is an eager PyTorch GPT after nanoGPT (queries, keys and values in one product,
`F.scaled_dot_product_attention`, `inference_mode`) with a cache to which each token's keys and values are added. It has our
weights, and must give our tokens. The two take turns, so that a change of the machine's speed meets both alike; times are of
this process alone, and the ratio is taken within each round.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is loaded

import argparse
import gc
import statistics
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

# The repository has a folder `autograd` of its own: what PyTorch imports must come from site-packages.
sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.dirname(os.path.dirname(__file__))]

import numpy as np
import torch

from chainrule.models.gpt import GPT, GPTConfig

F = torch.nn.functional
PROMPT, NEW = 16, 200
SIZES = {
    "4x128": GPTConfig(vocab_size=65, context=256, n_layer=4, n_head=4, d_model=128),
    "6x384": GPTConfig(vocab_size=65, context=256, n_layer=6, n_head=6, d_model=384),
}


class TorchGPT:
    """The same model in PyTorch: greedy generation with a cache of keys and values."""

    def __init__(self, model: GPT) -> None:
        self.config = model.config
        W = {path: torch.from_numpy(np.array(value)) for path, value in model.state_dict().items()}
        self.E, self.P = W["E"], W["positions.P"]
        self.norm = W["norm.gamma"], W["norm.beta"]
        self.blocks = []
        for i in range(self.config.n_layer):
            w = {path.removeprefix(f"blocks.{i}."): value for path, value in W.items() if path.startswith(f"blocks.{i}.")}
            w["W_attn"] = torch.cat([w["attn.WQ"], w["attn.WK"], w["attn.WV"]], 1).T.contiguous()
            w["b_attn"] = torch.cat([w["attn.bQ"], w["attn.bK"], w["attn.bV"]])
            for name in ("attn.WO", "ffn.W1", "ffn.W2"):
                w[name] = w[name].T.contiguous()  # (out, in), as torch.nn.Linear has it
            self.blocks.append(w)

    def forward(self, ids: torch.Tensor, cache: list[Any]) -> torch.Tensor:
        """ids (1, T) -> logits (1, vocabulary) of the last position; `cache` grows."""
        d, heads = self.config.d_model, self.config.n_head
        start = cache[0][0].shape[2] if cache[0] else 0
        _, T = ids.shape
        x = F.embedding(ids, self.E) + self.P[start : start + T]
        for i, w in enumerate(self.blocks):
            h = F.layer_norm(x, (d,), w["norm1.gamma"], w["norm1.beta"])
            Q, K, V = (
                part.view(1, T, heads, d // heads).transpose(1, 2) for part in F.linear(h, w["W_attn"], w["b_attn"]).split(d, 2)
            )
            if cache[i]:
                K, V = torch.cat([cache[i][0], K], 2), torch.cat([cache[i][1], V], 2)
            cache[i] = (K, V)
            Z = F.scaled_dot_product_attention(Q, K, V, is_causal=T > 1)
            x = x + F.linear(Z.transpose(1, 2).reshape(1, T, d), w["attn.WO"], w["attn.bO"])
            h = F.layer_norm(x, (d,), w["norm2.gamma"], w["norm2.beta"])
            h = F.gelu(F.linear(h, w["ffn.W1"], w["ffn.b1"]), approximate="tanh")
            x = x + F.linear(h, w["ffn.W2"], w["ffn.b2"])
        return F.linear(F.layer_norm(x[:, -1], (d,), *self.norm), self.E)

    @torch.inference_mode()
    def generate(self, ids: Any, count: int) -> Any:
        new, cache = torch.from_numpy(ids)[None], [()] * self.config.n_layer
        made = [new]
        for _ in range(count):
            new = self.forward(new, cache).argmax(-1, keepdim=True)
            made.append(new)
        return torch.cat(made, 1)[0].numpy()


def seconds(run: Callable[[], Any]) -> float:
    gc.collect()  # nobody pays for another's garbage
    start = process_time()
    run()
    return process_time() - start


def compare(name: str, config: GPTConfig, rounds: int) -> None:
    """Print one line: tokens per second of both, and the ratio."""
    model = GPT(config, seed=0, dtype=np.float32)
    peer = TorchGPT(model)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, PROMPT)
    if not np.array_equal(model.generate(ids, NEW, temperature=0), peer.generate(ids, NEW)):
        raise AssertionError(f"{name}: the peer generates other tokens")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: model.generate(ids, NEW, temperature=0)))
        theirs.append(seconds(lambda: peer.generate(ids, NEW)))
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    speed, their_speed = (f"{NEW / statistics.median(taken):.0f} tokens/s" for taken in (ours, theirs))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    print(f"  {name}: chainrule {speed}, PyTorch {their_speed}, ratio {statistics.median(ratios):.2f} ({spread})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("which", nargs="*", help=f"of {', '.join(SIZES)} (default: all)")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{NEW} tokens after {PROMPT}, greedy, float32, one thread; medians of {arguments.rounds} rounds")
    for name in arguments.which or SIZES:
        if name not in SIZES:
            parser.error(f"there is no size {name!r}; there are {', '.join(SIZES)}")
        compare(name, SIZES[name], arguments.rounds)


if __name__ == "__main__":
    main()
