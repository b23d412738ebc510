"""The same numbers from PyTorch, in float64: values, gradients, and gradients of gradients. Run with `pytest -m parity`."""

import numpy as np
import pytest
import torch_attention
import torch_elementwise
import torch_layers
import torch_linalg
import torch_losses
import torch_shape
from numpy.testing import assert_allclose
from primitive_table import CAUSAL, KINKS, PATTERN, REPEATS, ROWS

from chainrule import Tensor
from chainrule.autograd import gradients
from chainrule.models import WorkedExample
from chainrule.models.worked_example import IDS, TARGET

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
F = torch.nn.functional
close = {"rtol": 1e-12, "atol": 1e-13}

INDEX, MASK, ALLOWED = map(torch.from_numpy, (REPEATS, PATTERN, CAUSAL))

# The calls of torch by the row's id: what has another name there, then what has the same, then rows that run on either.
TORCH = {
    "power": torch.pow,
    "power array": lambda x: x ** torch.arange(4),
    "fabs": torch.abs,
    "maximum number": lambda x: torch.clamp(x, min=0.25),
    "where": lambda x, z: torch.where(MASK, x, z),
    "where broadcast": lambda x, z: torch.where(MASK, x, z),
    "where number": lambda x: torch.where(x > 0, x, 2.0),
    "copy": torch.clone,
    "astype": lambda x: x.to(torch.float64),
    **{row.id: torch.matmul for row in ROWS if row.id.startswith("matmul ")},
    "dot matrix matrix": torch.mm,
    "dot vector vector": torch.dot,
    "dot numbers": torch.mul,
    "dot number matrix": torch.mul,
    "sum axis 0": lambda x: x.sum(0),
    "sum axis -1 keepdims": lambda x: x.sum(-1, keepdim=True),
    "sum axes": lambda x: x.sum((0, -1)),
    "sum no axes": torch.clone,
    "sum number": torch.sum,
    "sum empty": lambda x: x.sum(0),
    "add.reduce": lambda x: x.sum(0),
    "mean axis 0": lambda x: x.mean(0),
    "mean axes keepdims": lambda x: x.mean((-1, 0), keepdim=True),
    "mean number": torch.mean,
    "max": torch.amax,
    "amax": torch.amax,
    "max axis 0": lambda x: torch.amax(x, 0),
    "max axes keepdims": lambda x: torch.amax(x, (0, 2), keepdim=True),
    "max number": torch.max,
    "x.max()": lambda x: torch.amax(x, -1),
    "maximum.reduce": lambda x: torch.amax(x, 0),
    "min": torch.amin,
    "amin": torch.amin,
    "min axis -1": lambda x: torch.amin(x, -1),
    "x.min()": lambda x: torch.amin(x, 0, keepdim=True),
    "reshape": lambda x: torch.reshape(x, (2, 6)),
    "reshape -1": lambda x: torch.reshape(x, (2, -1, 2)),
    "reshape number": lambda x: torch.reshape(x, (1, 1)),
    "expand_dims": lambda x: x.unsqueeze(1),
    "expand_dims axes": lambda x: x.unsqueeze(0).unsqueeze(-1),
    "squeeze axis": lambda x: x.squeeze(-1),
    "transpose": torch.t,
    "transpose axes": lambda x: torch.permute(x, (2, 0, 1)),
    "transpose negative axes": lambda x: torch.permute(x, (-1, 0, 1)),
    "x.T": lambda x: torch.permute(x, (2, 1, 0)),
    "x.transpose()": lambda x: torch.permute(x, (1, 0, 2)),
    "swapaxes": lambda x: torch.swapaxes(x, 0, -1),
    "x.swapaxes()": lambda x: torch.swapaxes(x, 1, 2),
    "moveaxis": lambda x: torch.moveaxis(x, 0, -1),
    "moveaxis two": lambda x: torch.moveaxis(x, (0, 1), (-1, 0)),
    "broadcast_to": lambda x: torch.broadcast_to(x, (2, 3, 4)),
    "broadcast_to number": lambda x: torch.broadcast_to(x, (2, 3)),
    "concatenate": lambda *xs: torch.cat(xs),
    "concatenate axis -1": lambda *xs: torch.cat(xs, -1),
    "concatenate flat": lambda *xs: torch.cat([x.ravel() for x in xs]),
    "concatenate twice": lambda x: torch.cat([x, x]),
    "stack": lambda *xs: torch.stack(xs),
    "stack axis -1": lambda *xs: torch.stack(xs, -1),
    "stack numbers": lambda *xs: torch.stack(xs),
    "x[::-2]": lambda x: x.flip(0)[::2],
    "x[repeats]": lambda x: x[INDEX],
    "x[rows, columns]": lambda x: x[INDEX[:, 0], INDEX[:, 1]],
    "x[:, repeats]": lambda x: x[:, INDEX],
    "x[mask]": lambda x: x[MASK],
    "scatter_add": lambda x: torch.zeros(3, dtype=x.dtype).index_put((INDEX,), x, accumulate=True),
    "linear": lambda x, W, b: F.linear(x, W.T, b),
    "linear of one row": lambda x, W, b: F.linear(x, W.T, b),
    "linear of no rows": lambda x, W, b: F.linear(x, W.T, b),
    "embedding": lambda E: F.embedding(INDEX, E),
    "embedding, large": lambda E: F.embedding(INDEX, E),
    "embedding of none": lambda E: F.embedding(INDEX[:0], E),
    "softmax": lambda S: torch.softmax(S, -1),
    "softmax axis 0": lambda S: torch.softmax(S, 0),
    "softmax masked": lambda S: torch.softmax(S.masked_fill(~MASK, -torch.inf), -1),
    "cross_entropy": lambda logits: F.cross_entropy(logits.reshape(-1, 3), INDEX.reshape(-1)),
    "attention": F.scaled_dot_product_attention,
    "attention causal heads": lambda Q, K, V: F.scaled_dot_product_attention(
        Q, K.expand(2, 2, 3, 2), V.expand(2, 2, 3, 2), attn_mask=ALLOWED
    ),
}

TORCH |= {"relu": torch.relu, "sigmoid": torch.sigmoid, "checkpoint": lambda x: torch.sin(x) * x}

SAME_NAME = [
    *("add", "subtract", "multiply", "divide", "negative", "positive", "reciprocal", "square", "sqrt", "absolute", "sign"),
    *("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "maximum", "minimum", "sum", "mean", "ravel", "squeeze"),
]
SAME_CODE = [
    *("power 0", "power 1", "power 2", "power 3", "power -2", "power 0.5", "number ** x", "operators", "reused", "@"),
    *("x.sum()", "x.mean()", "x.reshape()", "x.ravel()", "x.flatten()", "x.squeeze()"),
    *("x[1]", "x[-1, 2]", "x[:, 1:3]", "x[..., None, 0]", "x[()]", "x[list]"),
]
CALLS = {row.id: row.call for row in ROWS}
TORCH |= torch_elementwise.TORCH | torch_linalg.TORCH
TORCH |= torch_attention.TORCH
TORCH |= torch_layers.TORCH
TORCH |= torch_losses.TORCH
TORCH |= torch_shape.TORCH
TORCH |= {id: getattr(torch, id) for id in SAME_NAME} | {id: CALLS[id] for id in SAME_CODE}
WITHOUT = {"x[empty list]"}  # torch refuses it
WITHOUT |= torch_elementwise.WITHOUT | torch_linalg.WITHOUT
WITHOUT |= torch_shape.WITHOUT


def test_the_mapping_fits_the_table():
    assert TORCH.keys() | WITHOUT == CALLS.keys()


@pytest.mark.parametrize("row", [row for row in ROWS if row.id in TORCH], ids=lambda row: row.id)
def test_values_and_derivatives(row):
    arrays = row.arrays()
    ours, theirs = [Tensor(x, requires_grad=True) for x in arrays], [torch.tensor(x, requires_grad=True) for x in arrays]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the attention that has second derivatives
        y, z = row.call(*ours), TORCH[row.id](*theirs)
    assert_allclose(y.data, z.detach(), **close)

    u = np.random.default_rng(1).standard_normal(y.shape)
    first = gradients(y, ours, u, create_graph=True)
    torch_first = torch.autograd.grad(z, theirs, torch.tensor(u), create_graph=True)
    for found, plain, wanted in zip(first, gradients(y, ours, u), torch_first, strict=True):
        assert_allclose(found.data, wanted.detach(), **close)
        assert_allclose(plain, wanted.detach(), **close)

    v = [np.random.default_rng(2).standard_normal(x.shape) for x in arrays]
    slope = sum(np.sum(g * along) for g, along in zip(first, v, strict=True))
    torch_slope = sum(torch.sum(g * torch.tensor(along)) for g, along in zip(torch_first, v, strict=True))
    zeros = [np.zeros(x.shape) for x in arrays]  # of a slope that is constant
    found = gradients(slope, ours) if slope.requires_grad else zeros
    second = zeros
    if torch_slope.requires_grad:
        second = torch.autograd.grad(torch_slope, theirs, allow_unused=True, materialize_grads=True)
        second = [g.numpy(force=True) for g in second]
    for g, wanted in zip(found, second, strict=True):
        assert_allclose(g, wanted, **close)


KINKS_OF_TORCH = {
    "|x| at 0": torch.abs,
    "sign at 0": torch.sign,
    "x ** 0": lambda x: x**0,
    "0 ** b": torch.pow,
    "maximum of equals": torch.maximum,
    "maximum of itself": lambda x: torch.maximum(x, x),
    "minimum of equals": torch.minimum,
    "max of equals": torch.amax,
    "max of equals by row": lambda x: torch.amax(x, 1),
    "min of equals": torch.amin,
    "relu at 0": torch.relu,
    "relu by where, at 0": torch.relu,
}
KINKS_OF_TORCH |= torch_elementwise.KINKS | torch_linalg.KINKS


@pytest.mark.parametrize("kink", [kink for kink in KINKS if kink.id in KINKS_OF_TORCH], ids=lambda kink: kink.id)
def test_conventions_at_kinks(kink):
    inputs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in kink.inputs]
    for found, wanted in zip(torch.autograd.grad(KINKS_OF_TORCH[kink.id](*inputs).sum(), inputs), kink.gradients, strict=True):
        assert_allclose(wanted, found, rtol=1e-15)


def test_worked_example():
    model = WorkedExample()
    loss = model()
    loss.backward()
    E, WQ, WK, WV, WO, U = parameters = [torch.tensor(p.data, requires_grad=True) for p in model.parameters()]
    X = E[list(IDS)]
    Q, K, V = X @ WQ, X @ WK, X @ WV
    A = torch.softmax((Q @ K.T).masked_fill(~torch.ones(2, 2, dtype=torch.bool).tril(), -torch.inf), -1)
    R = X + A @ V @ WO
    logits = R[-1] @ U
    torch_loss = F.cross_entropy(logits, torch.tensor(TARGET))
    torch_loss.backward()
    assert_allclose(loss.data, torch_loss.detach(), rtol=0, atol=1e-15)
    for ours, theirs in zip(model.parameters(), parameters, strict=True):
        assert_allclose(ours.grad, theirs.grad, rtol=0, atol=1e-15)
