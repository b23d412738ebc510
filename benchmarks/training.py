"""A training step of a GPT, ours and PyTorch's: forward, backward, clipping and AdamW, float32, from the same start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from chainrule import Tensor, models, nn, trace
from chainrule.autograd.graph import ancestors

Contenders = dict[str, Callable[[], Any]]


def microgpt() -> tuple[str, Contenders]:
    """GPT 1×16 (4 heads, RMSNorm, ReLU, untied, no biases), one name of 16 tokens, vocabulary 27."""
    config = models.GPTConfig(
        vocab_size=27, context=16, n_layer=1, n_head=4, d_model=16, norm="rms", activation="relu", tied=False, bias=False
    )
    return _contenders(microgpt, config, batch=1, T=16)


def gpt_4x128() -> tuple[str, Contenders]:
    """GPT 4×128 (4 heads), context 64, batch 12, vocabulary 65."""
    config = models.GPTConfig(vocab_size=65, context=64, n_layer=4, n_head=4, d_model=128)
    return _contenders(gpt_4x128, config, batch=12, T=64)


def gpt_6x384() -> tuple[str, Contenders]:
    """GPT 6×384 (6 heads), context 256, batch 8, vocabulary 65."""
    config = models.GPTConfig(vocab_size=65, context=256, n_layer=6, n_head=6, d_model=384)
    return _contenders(gpt_6x384, config, batch=8, T=256)


def trace_4x128() -> tuple[str, Contenders]:
    """The account of one entry of blocks.0.attn.WQ in GPT 4×128 (T 64, B 12), beside one backward."""
    model = models.GPT(models.GPTConfig(vocab_size=65, context=64, n_layer=4, n_head=4, d_model=128), dtype=np.float32)
    ids = np.random.default_rng(0).integers(0, 65, (12, 65))
    loss = nn.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    t = trace(loss, "blocks.0.attn.WQ[1,0]")
    imbalance = max(cut.residual / sum(float(np.abs(flow).sum()) for _, flow in cut.parts) for cut in t.cuts())
    text = f"{trace_4x128.__doc__} Largest imbalance of its {len(t.cuts())} named cuts: {imbalance:.1g} of what crosses."
    return text, {"chainrule": lambda: trace(loss, "blocks.0.attn.WQ[1,0]"), "one backward": loss.backward}


def _contenders(described: Any, config: models.GPTConfig, batch: int, T: int) -> tuple[str, Contenders]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.vocab_size, (64, batch, T + 1))
    model = models.GPT(config, dtype=np.float32)
    start = model.state_dict()
    parameters = model.parameters()
    optimizer = nn.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    turn = iter(range(10**9))

    def chainrule_step() -> float:
        batch_ids = ids[next(turn) % len(ids)]
        loss = nn.cross_entropy(model(batch_ids[:, :-1]), batch_ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.clip_grad_norm(parameters, 1.0)
        optimizer.step()
        return float(loss)

    contenders: Contenders = {"chainrule": chainrule_step}
    try:
        from torch_gpt import torch_step
    except ImportError:
        print("PyTorch is not installed: pip install torch", file=sys.stderr)
    else:
        contenders["PyTorch eager"] = torch_step(config, start, ids)
        losses = {name: [run() for _ in range(5)] for name, run in contenders.items()}
        np.testing.assert_allclose(
            losses["chainrule"], losses["PyTorch eager"], rtol=1e-4, err_msg="the two do not train the same model"
        )
    loss = nn.cross_entropy(model(ids[0, :, :-1]), ids[0, :, 1:])
    share = share_in_products(chainrule_step, loss)
    return f"{described.__doc__} In matrix products: {share:.0%} of our time.", contenders


def products(loss: Tensor) -> list[tuple[Any, Any]]:
    """The operands of every matrix product of a training step that ends in this loss, forward and backward."""
    pairs = []
    for node in ancestors(loss):
        name = node.primitive.name if node.primitive else ""
        if name in ("matmul", "linear"):
            x, W = (np.ascontiguousarray(value) for value in node.values[:2])
            x, g = x.reshape(-1, x.shape[-1]), np.ones((x.size // x.shape[-1], W.shape[-1]), x.dtype)
            pairs += [(x, W), (g, W.T), (x.T, g)]
        elif name == "attention":
            Q, K, V = node.values[:3]
            S, Z = np.ones((*Q.shape[:-1], K.shape[-2]), Q.dtype), node.data
            pairs += [(Q, K.mT), (S, V), (Z, V.mT), (S.mT, Z), (S, K), (S.mT, Q)]
    return pairs


def share_in_products(step: Callable[[], Any], loss: Tensor) -> float:
    """The time of a step's matrix products by themselves, as a part of the step's time."""
    pairs = products(loss)

    def multiply() -> None:
        for a, b in pairs:
            np.matmul(a, b)

    return min(timed(multiply) for _ in range(5)) / min(timed(step) for _ in range(5))


def timed(run: Callable[[], Any]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start
