"""What activations and norms are called in PyTorch, by the row's id; see test_torch.py."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
F = torch.nn.functional

TORCH = {
    "erf": torch.erf,
    "erf beyond 1": lambda x: torch.erf(x + 1),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "layer_norm": lambda x, gamma, beta: F.layer_norm(x, (4,), gamma, beta),
    "layer_norm alone": lambda x: F.layer_norm(x, (4,)),
    "layer_norm of one position": lambda x, gamma: F.layer_norm(x, (5,), gamma),
    "layer_norm of no position": lambda x, gamma, beta: F.layer_norm(x, (4,), gamma, beta),
    "layer_norm shifted": lambda x, beta: F.layer_norm(x, (4,), eps=0.1) + beta,
    "rms_norm": lambda x, gamma: F.rms_norm(x, (4,), gamma, 1e-5),
    "rms_norm alone": lambda x: F.rms_norm(x, (5,), None, 0.1),
}
