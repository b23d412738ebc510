"""The same GPT in PyTorch, as its users write it: nn.Linear, scaled_dot_product_attention, AdamW."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)


class Block(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        d, d_ff = config.d_model, config.d_ff or 4 * config.d_model
        self.n_head = config.n_head
        self.norm1, self.norm2 = norm(config), norm(config)
        self.qkv = nn.Linear(d, 3 * d, bias=config.bias)  # as nanoGPT does: one product for the three
        self.out = nn.Linear(d, d, bias=config.bias)
        self.up, self.down = nn.Linear(d, d_ff, bias=config.bias), nn.Linear(d_ff, d, bias=config.bias)
        self.activation = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}[config.activation]

    def forward(self, x: Any) -> Any:
        B, T, d = x.shape
        q, k, v = (
            part.view(B, T, self.n_head, d // self.n_head).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(d, dim=2)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).reshape(B, T, d))
        return x + self.down(self.activation(self.up(self.norm2(x))))


def norm(config: Any) -> Any:
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


class GPT(nn.Module):
    """Pre-LN, learned positions."""

    def __init__(self, config: Any, start: Mapping[str, Any]) -> None:
        super().__init__()
        self.embed, self.place = (nn.Embedding(n, config.d_model) for n in (config.vocab_size, config.context))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = norm(config)
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tied:
            self.unembed.weight = self.embed.weight
        self.load(start)

    @torch.no_grad()
    def load(self, start: Mapping[str, Any]) -> None:
        """Our parameters, by our names."""
        given = {name: torch.from_numpy(value) for name, value in start.items()}
        self.embed.weight.copy_(given["E"])
        self.place.weight.copy_(given["positions.P"])
        if "U" in given:
            self.unembed.weight.copy_(given["U"].T)
        norms = {"norm": self.norm}
        for i, block in enumerate(self.blocks):
            path = f"blocks.{i}"
            norms |= {f"{path}.norm1": block.norm1, f"{path}.norm2": block.norm2}
            attn = {part: given[f"{path}.attn.{part}"] for part in ("WQ", "WK", "WV", "WO")}
            block.qkv.weight.copy_(torch.cat([attn["WQ"], attn["WK"], attn["WV"]], 1).T)
            block.out.weight.copy_(attn["WO"].T)
            block.up.weight.copy_(given[f"{path}.ffn.W1"].T)
            block.down.weight.copy_(given[f"{path}.ffn.W2"].T)
            for layer in (block.qkv, block.out, block.up, block.down):  # ours start at 0 as well
                if layer.bias is not None:
                    layer.bias.zero_()
        for path, layer in norms.items():
            layer.weight.copy_(given[f"{path}.gamma"])
            if getattr(layer, "bias", None) is not None:
                layer.bias.copy_(given[f"{path}.beta"])

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.norm(x))


def torch_step(config: Any, start: Mapping[str, Any], ids: Any) -> Callable[[], float]:
    """A function that makes one training step on the next batch of `ids` (batches, B, T + 1) and returns the loss."""
    model = GPT(config, start)
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99)
    )
    batches = torch.from_numpy(ids)
    turn = iter(range(10**9))

    def step() -> float:
        batch = batches[next(turn) % len(batches)]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, config.vocab_size), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item()

    return step
