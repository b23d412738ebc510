"""GPT against the same model written in PyTorch: logits, all gradients, and fifty steps of training."""

import numpy as np
import pytest

from chainrule import nn
from chainrule.models.gpt import GPT, GPTConfig

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.parity

SIZE = {"vocab_size": 11, "context": 8, "n_layer": 2, "n_head": 4, "d_model": 16}
CONFIGS = {
    "GPT-2": {},
    "Llama": {"norm": "rms", "positions": "rope", "activation": "swiglu", "bias": False, "n_kv_head": 2, "rope_halves": True},
    "Post-LN, untied": {"pre_norm": False, "tied": False, "activation": "gelu"},
    "ALiBi, ReLU": {"positions": "alibi", "activation": "relu"},
    "sinusoidal, tiled": {"positions": "sinusoidal", "activation": "silu", "tiled": True},
    "RoPE of neighbours, no biases": {"positions": "rope", "bias": False, "d_head": 6, "d_ff": 40},
    "no positions": {"positions": "none"},
}


def torch_logits(config, p, ids):
    """The logits (B, T, vocabulary) from the parameters `p` by our names: plain PyTorch, nothing fused."""
    T, d_head = ids.shape[1], config.d_head or config.d_model // config.n_head
    groups = config.n_head // (config.n_kv_head or config.n_head)
    place = torch.arange(T, dtype=torch.float64)

    def affine(x, W, b):
        return x @ p[W] + p[b] if b in p else x @ p[W]

    def norm(x, path):
        gamma, beta = p[f"{path}.gamma"], p.get(f"{path}.beta")
        if config.norm == "rms":
            return F.rms_norm(x, gamma.shape, gamma, config.norm_eps)
        return F.layer_norm(x, gamma.shape, gamma, beta, config.norm_eps)

    def heads(x, count):
        return x.reshape(*x.shape[:2], count, d_head).transpose(1, 2)

    def rotated(x):
        angle = place[:, None] * config.rope_base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        turn = torch.polar(torch.ones_like(angle), angle)  # complex numbers, where ours are pairs
        if config.rope_halves:
            turned = torch.complex(x[..., : d_head // 2], x[..., d_head // 2 :]) * turn
            return torch.cat([turned.real, turned.imag], -1)
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) * turn).flatten(-2)

    def attn(x, path):
        Q = heads(affine(x, f"{path}.WQ", f"{path}.bQ"), config.n_head)
        K, V = (heads(affine(x, f"{path}.W{n}", f"{path}.b{n}"), config.n_head // groups) for n in "KV")
        if config.positions == "rope":
            Q, K = rotated(Q), rotated(K)
        K, V = K.repeat_interleave(groups, 1), V.repeat_interleave(groups, 1)
        S = Q @ K.transpose(-1, -2) / d_head**0.5
        if config.positions == "alibi":
            slopes = 2.0 ** (-8.0 * torch.arange(1, config.n_head + 1, dtype=torch.float64) / config.n_head)
            S = S - slopes[:, None, None] * (place[:, None] - place).abs()
        A = torch.softmax(S.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf), -1)
        return affine((A @ V).transpose(1, 2).flatten(2), f"{path}.WO", f"{path}.bO")

    def ffn(x, path):
        H = affine(x, f"{path}.W1", f"{path}.b1")
        if config.activation == "swiglu":
            H = F.silu(H) * affine(x, f"{path}.W3", f"{path}.b3")
        else:
            H = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu": F.gelu, "relu": F.relu, "silu": F.silu}[
                config.activation
            ](H)
        return affine(H, f"{path}.W2", f"{path}.b2")

    x = p["E"][ids]
    if config.positions == "learned":
        x = x + p["positions.P"][:T]
    if config.positions == "sinusoidal":
        angle = place[:, None] / 10000.0 ** (torch.arange(0, config.d_model, 2, dtype=torch.float64) / config.d_model)
        x = x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    for i in range(config.n_layer):
        path = f"blocks.{i}"
        for part, call, before in (("attn", attn, "norm1"), ("ffn", ffn, "norm2")):
            if config.pre_norm:
                x = x + call(norm(x, f"{path}.{before}"), f"{path}.{part}")
            else:
                x = norm(x + call(x, f"{path}.{part}"), f"{path}.{before}")
    h = norm(x, "norm") if config.pre_norm else x
    return h @ (p["E"].T if config.tied else p["U"])


def models(name, **changes):
    """Ours, and the same parameters for PyTorch: not as they start, where biases are 0 and the attention is flat."""
    config = GPTConfig(**SIZE, **(CONFIGS[name] | changes))
    model = GPT(config)
    rng = np.random.default_rng(1)
    model.load_state_dict({path: value + rng.normal(0, 0.3, value.shape) for path, value in model.state_dict().items()})
    return model, {path: torch.tensor(value, requires_grad=True) for path, value in model.state_dict().items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_all_gradients(name):
    model, theirs = models(name)
    ids, target = np.random.default_rng(2).integers(0, 11, (2, 3, 8))
    logits = model(ids)
    nn.cross_entropy(logits, target).backward()
    expected = torch_logits(model.config, theirs, torch.tensor(ids))
    F.cross_entropy(expected.flatten(0, 1), torch.tensor(target).flatten()).backward()
    np.testing.assert_allclose(logits.data, expected.detach(), rtol=1e-12, atol=1e-12)
    largest = max(float(p.grad.abs().max()) for p in theirs.values())  # that of bK is 0 but for rounding
    for path, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.grad, theirs[path].grad, rtol=1e-12, atol=1e-13 * largest, err_msg=path)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_fifty_steps_of_training_have_the_losses_of_pytorch(name):
    """AdamW with decay on the matrices only, clipping, warm-up and cosine, two accumulated batches a step."""
    model, theirs = models(name)
    parameters = model.parameters()
    optimizer = nn.AdamW(parameters, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = nn.schedules.cosine(1e-2, warmup=5, steps=50, final=1e-3)
    groups = [{"params": [t for t in theirs.values() if (t.ndim > 1) == matrices]} for matrices in (True, False)]
    groups[1]["weight_decay"] = 0.0
    their_optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    rng = np.random.default_rng(3)
    losses, expected = [], []
    for step in range(50):
        optimizer.lr = their_optimizer.param_groups[0]["lr"] = their_optimizer.param_groups[1]["lr"] = schedule(step)
        optimizer.zero_grad()
        their_optimizer.zero_grad()
        for _ in range(2):
            ids, target = rng.integers(0, 11, (2, 3, 8))
            loss = nn.cross_entropy(model(ids), target) / 2
            loss.backward()
            logits = torch_logits(model.config, theirs, torch.tensor(ids))
            their_loss = F.cross_entropy(logits.flatten(0, 1), torch.tensor(target).flatten()) / 2
            their_loss.backward()
            losses.append(float(loss))
            expected.append(their_loss.item())
        norm = nn.clip_grad_norm(parameters, 0.5)
        expected_norm = torch.nn.utils.get_total_norm([t.grad for t in theirs.values()])
        np.testing.assert_allclose(norm, expected_norm.item(), rtol=1e-10)
        for tensor in theirs.values():  # clip_grad_norm_ would divide by norm + 1e-6
            tensor.grad *= min(1.0, 0.5 / expected_norm.item())
        optimizer.step()
        their_optimizer.step()
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    assert losses[-1] < losses[0]
