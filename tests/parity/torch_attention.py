"""The calls of PyTorch for the rows of rows_attention, by the row's id."""

import numpy as np
import pytest
from rows_attention import MASK, PLACES

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
F = torch.nn.functional
ALLOWED = torch.from_numpy(MASK)


def attending(causal=False, mask=None, scale=None):
    """The same from products and a softmax, where PyTorch's own attention has no such masks; rows that read nothing give 0."""

    def of(Q, K, V, bias=0.0):
        S = Q @ K.mT * (scale or Q.shape[-1] ** -0.5) + bias
        n, m = S.shape[-2:]
        allowed = torch.ones(n, m, dtype=torch.bool)
        if causal:
            allowed = allowed.tril(m - n)
        if mask is not None:
            allowed = allowed & mask
        some = allowed.any(-1, keepdim=True)
        return torch.softmax(S.masked_fill(~allowed & some, -torch.inf), -1) * some @ V

    return of


def rotating(x, positions, halves=False):
    d = x.shape[-1]
    a, b = (x[..., : d // 2], x[..., d // 2 :]) if halves else (x[..., 0::2], x[..., 1::2])
    angle = torch.from_numpy(positions)[:, None] / 10000 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    turned = torch.view_as_real(torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle))
    return torch.cat([turned[..., 0], turned[..., 1]], -1) if halves else turned.flatten(-2)


TORCH = {
    "softmax wide": lambda S: (
        torch.softmax(S.masked_fill(~ALLOWED & ALLOWED.any(-1, True), -torch.inf), -1) * ALLOWED.any(-1, True)
    ),
    "attention causal": lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, is_causal=True),
    "attention causal, more keys": attending(causal=True),
    "attention causal, more queries": attending(causal=True),
    "attention causal and masked": attending(causal=True, mask=ALLOWED),
    "attention scale": lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, scale=2.0),
    "attention bias": attending(mask=ALLOWED),
    "attention bias of keys": attending(causal=True),
    "attention bias of queries": attending(),
    "attention bias, five axes": attending(),
    "tiled_attention plain": F.scaled_dot_product_attention,
    "tiled_attention causal heads": attending(causal=True),
    "tiled_attention masked, biased": attending(mask=ALLOWED),
    "rope": lambda x: rotating(x, PLACES),
    "rope halves": lambda x: rotating(x, PLACES, halves=True),
    "Rope": lambda x: rotating(x, np.arange(2, 5)),
}
