"""Greedy generation in PyTorch with a cache, as nanoGPT's users write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from chainrule.models.gpt import GPT

F = torch.nn.functional


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
