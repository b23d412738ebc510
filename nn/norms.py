"""Normalising the features of each position: LayerNorm and RMSNorm (notes 7.7, 15.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd import primitive
from chainrule.nn import init
from chainrule.nn.checks import check_number, check_size
from chainrule.nn.kernels import BLOCK, over_rows, working_dtype
from chainrule.nn.module import Module


@primitive(saves=True)
def layer_norm(x: Any, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Any:
    """y = x̂ · γ + β,  x̂ = (x - μ) / √(σ² + ε), over the last axis (Ba, Kiros and Hinton 2016; notes 7.7).

    x (…, d) -> y (…, d); gamma (d,) or None for 1, beta (d,) or None for 0. μ and σ² are the mean and the biased variance of
    each position's d features. A constant row gives exactly beta. Where a squared deviation overflows (beyond 1e154 in
    float64, 1e19 in float32) y is beta, and NumPy warns. Raises ValueError for other shapes, and an
    eps that is negative or not finite.
    """
    _check_norm("layer_norm", x, gamma, beta, eps)
    result, dtype = working_dtype(x, gamma, beta)
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    y, normal, scale = np.empty(x.shape, result), np.empty(rows.shape, dtype), np.empty((len(rows), 1), dtype)
    y_rows = y.reshape(-1, d)
    average = np.full(d, 1 / d, dtype)

    def work(block: slice) -> None:
        here, centred, r = rows[block].astype(dtype, copy=False), normal[block], scale[block]
        np.subtract(here, here[:, :1], out=centred)  # first to around 0: exact for equal numbers, whose mean is not
        centred -= (centred @ average)[:, None]
        r[:, 0] = 1 / np.sqrt(np.vecdot(centred, centred) / dtype.type(d) + dtype.type(eps))
        centred *= r  # x̂ from here on
        _scaled(centred, gamma, beta, out=y_rows[block])

    over_rows(work, normal, 4 * BLOCK)
    return y, (normal, scale)


@layer_norm.joint_rule({
    "x": "∂L/∂{x} = (∂L/∂x̂ - mean(∂L/∂x̂) - x̂ · mean(∂L/∂x̂ · x̂)) / √(σ² + ε),  ∂L/∂x̂ = ∂L/∂{y} · {gamma}",
    "gamma": "∂L/∂{gamma} = Σ ∂L/∂{y} · x̂, over positions",
    "beta": "∂L/∂{beta} = Σ ∂L/∂{y}, over positions",
})  # fmt: skip
def layer_norm_wrt_inputs(g: Any, y: Any, x: Any, gamma: Any, beta: Any, saved: Any, eps: float = 1e-5) -> Any:
    normal, scale = saved
    return _norm_rule(g, normal, scale, gamma, beta, centred=True)


@layer_norm.defined_by
def layer_norm_definition(x: Any, gamma: Any = None, beta: Any = None, *, eps: float = 1e-5) -> Any:
    _check_norm("layer_norm", x, gamma, beta, eps)
    centred = x - np.mean(x, axis=-1, keepdims=True)  # (…, d)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)  # (…, 1)
    y = centred / np.sqrt(variance + eps)
    if gamma is not None:
        y = y * gamma
    return y if beta is None else y + beta


@primitive(saves=True)
def rms_norm(x: Any, gamma: Any = None, *, eps: float = 1e-5) -> Any:
    """y = x̂ · γ,  x̂ = x / √(mean(x²) + ε), over the last axis (Zhang and Sennrich 2019).

    x (…, d) -> y (…, d); gamma (d,) or None for 1. Raises ValueError for other shapes, and an eps that is
    negative or not finite.
    """
    _check_norm("rms_norm", x, gamma, None, eps)
    result, dtype = working_dtype(x, gamma)
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    y, normal, scale = np.empty(x.shape, result), np.empty(rows.shape, dtype), np.empty((len(rows), 1), dtype)
    y_rows = y.reshape(-1, d)

    def work(block: slice) -> None:
        here, r = rows[block].astype(dtype, copy=False), scale[block]
        r[:, 0] = 1 / np.sqrt(np.vecdot(here, here) / dtype.type(d) + dtype.type(eps))
        np.multiply(here, r, out=normal[block])
        _scaled(normal[block], gamma, None, out=y_rows[block])

    over_rows(work, normal, 4 * BLOCK)
    return y, (normal, scale)


@rms_norm.joint_rule({
    "x": "∂L/∂{x} = (∂L/∂x̂ - x̂ · mean(∂L/∂x̂ · x̂)) / √(mean({x}²) + ε),  ∂L/∂x̂ = ∂L/∂{y} · {gamma}",
    "gamma": "∂L/∂{gamma} = Σ ∂L/∂{y} · x̂, over positions",
})  # fmt: skip
def rms_norm_wrt_inputs(g: Any, y: Any, x: Any, gamma: Any, saved: Any, eps: float = 1e-5) -> Any:
    normal, scale = saved
    return _norm_rule(g, normal, scale, gamma, None, centred=False)[:2]


@rms_norm.defined_by
def rms_norm_definition(x: Any, gamma: Any = None, *, eps: float = 1e-5) -> Any:
    _check_norm("rms_norm", x, gamma, None, eps)
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if gamma is None else y * gamma


def _scaled(normal: Any, gamma: Any, beta: Any, out: Any) -> None:
    """out = x̂ · γ + β, where None is no γ, no β."""
    np.multiply(normal, 1 if gamma is None else gamma, out=out, casting="same_kind")
    if beta is not None:
        out += beta


def _norm_rule(g: Any, normal: Any, scale: Any, gamma: Any, beta: Any, *, centred: bool) -> Any:
    """The contributions to x, gamma and beta. `normal` is x̂ as rows, `scale` is 1 / √(… + ε) by row."""
    dtype, d = normal.dtype, normal.shape[-1]
    rows = g.reshape(-1, d)
    g_x = np.empty(g.shape, dtype)
    g_x_rows = g_x.reshape(-1, d)
    average = np.full(d, 1 / d, dtype) if gamma is None else (gamma / d).astype(dtype)  # the mean of ∂L/∂x̂ is g @ average
    to_gamma, to_beta = {}, {}  # by block: what its rows contribute

    def work(block: slice) -> None:
        g_y, x_hat, out = rows[block].astype(dtype, copy=False), normal[block], g_x_rows[block]
        product = g_y * x_hat
        ones = np.ones(len(product), dtype)  # sums over rows, and means, at the speed of matrix products
        to_gamma[block.start] = ones @ product
        np.multiply(g_y, 1 if gamma is None else gamma, out=out)  # ∂L/∂x̂
        out -= np.multiply(x_hat, (product @ average)[:, None], out=product)
        if centred:
            out -= (g_y @ average)[:, None]
            to_beta[block.start] = ones @ g_y
        out *= scale[block]

    over_rows(work, normal, 4 * BLOCK)
    g_gamma, g_beta = (sum(parts[start] for start in sorted(parts)) for parts in (to_gamma, to_beta))
    return g_x, None if gamma is None else g_gamma, None if beta is None else g_beta


def _check_norm(name: str, x: Any, gamma: Any, beta: Any, eps: float) -> None:
    check_number("eps", eps)
    shape = np.shape(x)
    if not shape or shape[-1] == 0:
        raise ValueError(f"{name} normalises the last axis of x (…, d), with d at least 1; got x of shape {shape}.")
    for input_name, vector in (("gamma", gamma), ("beta", beta)):
        if vector is not None and np.shape(vector) != shape[-1:]:
            raise ValueError(
                f"{name} takes {input_name} of the shape {shape[-1:]} of x's last axis; got {np.shape(vector)} for x {shape}."
            )


class LayerNorm(Module):
    """x (…, d) -> `layer_norm(x, gamma, beta)`, with gamma = 1 and beta = 0 to begin with (notes 7.7).

    Without `bias` there is no beta. Raises ValueError for a d or an eps that makes no sense.
    """

    def __init__(self, d: int, eps: float = 1e-5, bias: bool = True) -> None:
        check_size("d", d)
        check_number("eps", eps)
        self.eps = eps
        self.gamma = init.constant((d,), 1)
        self.beta = init.constant((d,), 0) if bias else None

    def forward(self, x: Any) -> Any:
        return layer_norm(x, self.gamma, self.beta, eps=self.eps)


class RMSNorm(Module):
    """x (…, d) -> `rms_norm(x, gamma)`, with gamma = 1 to begin with. Raises as `LayerNorm`."""

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        check_size("d", d)
        check_number("eps", eps)
        self.eps = eps
        self.gamma = init.constant((d,), 1)

    def forward(self, x: Any) -> Any:
        return rms_norm(x, self.gamma, eps=self.eps)
