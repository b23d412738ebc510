"""Losses: how far the output is from what it should be, as one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd import primitive, stop_gradient


def _checked_target(logits: Any, target: Any) -> Any:
    target = np.asarray(target)
    if target.dtype.kind not in "iu":
        raise TypeError(f"Targets are integers, the index of the right class; got dtype {target.dtype}.")
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"Logits (…, classes) need targets (…); got logits {logits.shape} and targets {target.shape}: "
            f"expected {logits.shape[:-1]}."
        )
    if target.size == 0:
        raise ValueError("The mean loss over no target is undefined; got empty targets.")
    if target.min() < 0 or target.max() >= logits.shape[-1]:
        raise ValueError(f"Targets must lie in 0..{logits.shape[-1] - 1}; got {target.min()}..{target.max()}.")
    return target


@primitive(saves=True)
def cross_entropy(logits: Any, target: Any) -> Any:
    """L = mean over positions of -ln p[target], with p = softmax(logits) (notes 11.1, 15.2).

    logits (…, classes) floating, target (…) integers; the loss is a single number. It stays finite for any finite logits.
    Raises TypeError for targets that are not integers, ValueError for other shapes, indices out of range, or no target.
    """
    target = _checked_target(logits, target)[..., None]
    top = np.max(logits, axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))  # of the shifted logits
    return np.mean(log_sum - (np.take_along_axis(logits, target, axis=-1) - top)), (top, log_sum)


@cross_entropy.rule("logits", "∂L/∂{logits} = (p - 1[target]) · ∂L/∂{y} / {target.size}")
def cross_entropy_wrt_logits(g: Any, y: Any, logits: Any, target: Any, saved: Any) -> Any:
    top, log_sum = saved  # kept apart: in their sum a large top would swallow log_sum
    p = logits - top
    np.exp(np.subtract(p, log_sum, out=p), out=p)
    at_target = np.asarray(target)[..., None]
    np.put_along_axis(p, at_target, np.take_along_axis(p, at_target, axis=-1) - 1, axis=-1)
    p *= g / at_target.size
    return p


@cross_entropy.defined_by
def cross_entropy_definition(logits: Any, target: Any) -> Any:
    target = _checked_target(logits, target)
    shifted = logits - np.max(stop_gradient(logits), axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(shifted), axis=-1))
    return np.mean(log_sum - shifted[(*np.indices(target.shape, sparse=True), target)])
