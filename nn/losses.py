"""Losses: how far the output is from what it should be, as one number."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from chainrule.autograd import Tensor, primitive, stop_gradient
from chainrule.autograd.tensor import OBJECTS
from chainrule.nn.checks import check_number
from chainrule.nn.kernels import over_rows, working_dtype


def _formula(
    ignore_index: int | None = None, loss_mask: Any = None, label_smoothing: float = 0.0, reduction: str = "mean"
) -> str:
    """The rule for the logits as text. What stands for q, and what the sum is divided by, depends on the options."""
    q = "q" if label_smoothing else "1[target]"
    text = f"∂L/∂{{logits}} = (p - {q}) · ∂L/∂{{y}}"
    if reduction == "mean":
        text += " / {target.size}" if ignore_index is None and loss_mask is None else " / valid targets"
    if label_smoothing:
        text += ",  q = (1 - {label_smoothing}) · 1[target] + {label_smoothing} / classes"
    return text


@primitive(saves=True)
def cross_entropy(
    logits: Any,
    target: Any,
    *,
    ignore_index: int | None = None,
    loss_mask: Any = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """L = mean over the valid positions of -Σ_c q_c ln p_c, with p = softmax(logits) (notes 11.1, 11.7, 15.2).

    q is 1 at the target and 0 elsewhere: a position's loss is -ln p[target]. With label smoothing ε every class gets a
    share of it: q = (1 - ε) 1[target] + ε / classes (Szegedy et al. 2016, section 7). Finite for any finite logits. Computed
    in float32 at least, however many targets there are; integers as logits count as float64.

    Args:
        logits: (…, classes), with one class at least. target: (…) integers, the index of the right class.
        ignore_index: a target that means "none": such positions are not valid.
        loss_mask: boolean (…), False where a position is not valid. It is not the attention mask: when only a reply is
            scored, its positions still read the question.
        reduction: "mean" over the valid positions, "sum", or "none": the losses (…). Where a position is not valid, loss
            and gradient are 0, whatever its logits are.
    Raises:
        TypeError: for targets (or an ignore_index) that are not integers, or a mask that is not boolean.
        ValueError: for other shapes, valid targets outside 0..classes-1, a mean over no position, ε outside [0, 1].
    """
    target, valid, count = _checked(logits, target, ignore_index, loss_mask, label_smoothing, reduction)
    dtype, working = working_dtype(logits)
    rows = np.ascontiguousarray(logits.reshape(-1, logits.shape[-1]), working)  # (n, classes)
    firsts = np.arange(0, rows.size, rows.shape[-1])  # where each row starts, in all numbers one after the other
    at_target = firsts + target.ravel()
    e, (top, total, average) = np.empty_like(rows), np.empty((3, len(rows)), rows.dtype)
    skipped = None if valid is None else ~valid.ravel()  # (n,)

    def work(block: slice) -> None:
        x = rows[block]
        top[block] = x.ravel()[firsts[: len(x)] + np.argmax(x, axis=-1)]  # np.max is slow along short rows
        if skipped is not None:
            top[block][skipped[block]] = 0
        shifted = np.subtract(x, top[block, None], out=e[block])
        if skipped is not None:
            shifted[skipped[block]] = 0  # logits that do not count need not be finite
        if label_smoothing:
            average[block] = np.mean(shifted, axis=-1)
        total[block] = np.exp(shifted, out=shifted) @ np.ones(rows.shape[-1], working)  # BLAS sums rows faster

    over_rows(work, rows)
    score = rows.ravel()[at_target] - top  # (n,)
    if skipped is not None:
        score[skipped] = 0
    if label_smoothing:
        score = (1 - label_smoothing) * score + label_smoothing * average
    losses = (np.log(total) - score).reshape(target.shape)
    if valid is not None:
        losses = np.where(valid, losses, 0)
    y = losses if reduction == "none" else np.sum(losses / count)
    return y.astype(dtype, copy=False), (at_target, valid, count, e, total)


@cross_entropy.rule("logits", _formula)
def cross_entropy_wrt_logits(
    g: Any, y: Any, logits: Any, target: Any, *, label_smoothing: float = 0.0, saved: Any, **options: Any
) -> Any:
    at_target, valid, count, e, total = saved
    g = g.astype(e.dtype, copy=False)
    g = (g / count if valid is None else np.where(valid, g / count, 0)).ravel()  # (n,), or (1,) for all positions
    slope, share = np.empty(e.shape, np.result_type(e, g)), (g / total)[:, None]

    def work(block: slice) -> None:
        np.multiply(e[block], share[block], out=slope[block])  # p · g

    over_rows(work, e, products=False)
    slope.ravel()[at_target] -= (1 - label_smoothing) * g
    if label_smoothing:
        slope -= label_smoothing / logits.shape[-1] * g[:, None]
    return slope.reshape(logits.shape).astype(y.dtype, copy=False)


@cross_entropy.defined_by
def cross_entropy_definition(
    logits: Any,
    target: Any,
    *,
    ignore_index: int | None = None,
    loss_mask: Any = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    target, valid, _ = _checked(logits, target, ignore_index, loss_mask, label_smoothing, reduction)
    wide = _wide(logits)
    if valid is not None:
        wide = np.where(valid[..., None], wide, 0.0)  # logits that do not count need not be finite
    shifted = wide - np.max(stop_gradient(wide), axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(shifted), axis=-1))
    at_target = shifted[(*np.indices(target.shape, sparse=True), target)]
    if label_smoothing:
        at_target = (1 - label_smoothing) * at_target + label_smoothing * np.mean(shifted, axis=-1)
    losses = log_sum - at_target
    if reduction == "none":
        return _narrow(losses if valid is None else np.where(valid, losses, 0.0), logits)
    losses = losses if valid is None else losses[valid]
    return _narrow(np.mean(losses) if reduction == "mean" else np.sum(losses), logits)


def _checked(
    logits: Any, target: Any, ignore_index: int | None, loss_mask: Any, label_smoothing: float, reduction: str
) -> tuple[Any, Any, int]:
    """The targets, 0 where not valid; which are (None: all); and what the sum of the losses is divided by."""
    target, shape = np.asarray(target), np.shape(logits)
    if not shape or shape[-1] == 0:
        raise ValueError(f"Logits are scores of classes, (…, classes), one at least; got logits {shape}.")
    if target.dtype.kind not in "iu":
        raise TypeError(f"Targets are integers, the index of the right class; got dtype {target.dtype}.")
    if target.shape != shape[:-1]:
        raise ValueError(
            f"Logits (…, classes) need targets (…); got logits {shape} and targets {target.shape}: expected {shape[:-1]}."
        )
    _check_reduction(reduction)
    check_number("label_smoothing", label_smoothing, high=1, ends="[]")
    valid = None
    if ignore_index is not None:
        if not isinstance(ignore_index, (int, np.integer)):
            raise TypeError(f"ignore_index is a target, an integer; got {ignore_index!r}.")
        valid = target != ignore_index
    if loss_mask is not None:
        loss_mask = np.asarray(loss_mask)
        if loss_mask.dtype != bool:
            raise TypeError(f"A loss mask is boolean, True where a target counts; got dtype {loss_mask.dtype}.")
        if loss_mask.shape != target.shape:
            raise ValueError(f"A loss mask has the shape {target.shape} of the targets; got {loss_mask.shape}.")
        valid = loss_mask.copy() if valid is None else loss_mask & valid
    if valid is not None and valid.all():
        valid = None
    if valid is not None:
        target = np.where(valid, target, 0)
    count = target.size if valid is None else int(np.count_nonzero(valid))
    if count == 0 and reduction == "mean":
        raise ValueError(
            "The mean loss over no target is undefined; "
            + ("got empty targets." if valid is None else "every target is ignored or masked.")
        )
    if target.size and (target.min() < 0 or target.max() >= shape[-1]):
        raise ValueError(f"Targets must lie in 0..{shape[-1] - 1}; got {target.min()}..{target.max()}.")
    return target.astype(np.intp, copy=False), valid, count if reduction == "mean" else 1


def squared_cost(a: Any, y: Any) -> Any:
    """C = mean over the examples of Σ_j (a_j - y_j)², the squared error summed over the outputs.

    a, y (…, outputs) of the same shape. All axes but the last count examples; (outputs,) is a single one.
    Raises ValueError for shapes that differ (broadcasting would hold every output against every y), or no example.
    """
    outputs, a = a, _wide(a)
    y = _constant_like(a, y)
    if np.shape(a) != np.shape(y):
        raise ValueError(f"Outputs and what they should be have the same shape; got {np.shape(a)} and {np.shape(y)}.")
    examples = prod(np.shape(a)[:-1])
    if examples == 0:
        raise ValueError(f"The mean cost over no example is undefined; got shape {np.shape(a)}.")
    return _narrow(np.sum((a - y) ** 2) / examples, outputs)


def binary_cross_entropy(logits: Any, target: Any, *, reduction: str = "mean") -> Any:
    """L = mean over the entries of -t ln σ(z) - (1 - t) ln(1 - σ(z)), with z the logits and t the targets.

    Computed as t ln(1 + e⁻ᶻ) + (1 - t) ln(1 + eᶻ), which is finite for any finite z and loses no digits.

    Args:
        logits: any shape. target: the same shape, in [0, 1]. reduction: "mean", "sum" or "none".
    Raises:
        ValueError: for shapes that differ, targets outside [0, 1], a mean over nothing.
    """
    outputs, logits = logits, _wide(logits)
    target = _constant_like(logits, target)
    t = np.asarray(stop_gradient(target))
    if np.shape(logits) != t.shape:
        raise ValueError(f"Logits and targets have the same shape; got {np.shape(logits)} and {t.shape}.")
    if not np.all((t >= 0) & (t <= 1)):
        raise ValueError(f"Targets are probabilities, in [0, 1]; got {t.min()}..{t.max()}.")
    _check_reduction(reduction)
    if reduction == "mean" and t.size == 0:
        raise ValueError("The mean loss over no target is undefined; got empty targets.")
    losses = target * _softplus(-logits) + (1 - target) * _softplus(logits)
    return _narrow(losses if reduction == "none" else np.mean(losses) if reduction == "mean" else np.sum(losses), outputs)


def negative_sampling(scores_positive: Any, scores_negative: Any) -> Any:
    """L = mean over the examples of -ln σ(s⁺) - Σ_k ln σ(-s⁻_k) (Mikolov et al. 2013, equation 4).

    The score s⁺ = ⟨word, context⟩ of a pair that occurs is pushed up; those of K contexts drawn at random, down.
    scores_positive (…), scores_negative (…, K); no exponential overflows.
    Raises ValueError for other shapes, or no example.
    """
    if np.ndim(scores_negative) == 0 or np.shape(scores_negative)[:-1] != np.shape(scores_positive):
        raise ValueError(
            f"Scores (…) of pairs that occur need scores (…, K) of pairs that do not; "
            f"got {np.shape(scores_positive)} and {np.shape(scores_negative)}."
        )
    if np.size(scores_positive) == 0:
        raise ValueError(f"The mean loss over no example is undefined; got shape {np.shape(scores_positive)}.")
    losses = _softplus(-_wide(scores_positive)) + np.sum(_softplus(_wide(scores_negative)), axis=-1)
    return _narrow(np.mean(losses), scores_positive)


def _softplus(x: Any) -> Any:
    """ln(1 + eˣ) = -ln σ(-x), without overflow."""
    return np.logaddexp(0, x)


def _wide(x: Any) -> Any:
    """x to compute a loss from: float16 as float32, whose range a sum or a count does not leave; integers as float64."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    if x.dtype.kind not in "iubfcO":
        raise TypeError(f"A loss is made of numbers; got dtype {x.dtype}.")
    return x.astype(float) if x.dtype.kind in "iub" else x.astype(np.float32) if x.dtype == np.float16 else x


def _narrow(loss: Any, outputs: Any) -> Any:
    """The loss in the dtype of the outputs that it is of, where these are float16."""
    return loss.astype(np.float16) if getattr(outputs, "dtype", None) == np.float16 else loss


def _constant_like(x: Any, y: Any) -> Any:
    """y in the precision of x, unless it is part of a graph too: a loss in float32 stays so beside targets in float64."""
    if isinstance(y, Tensor) or getattr(y, "dtype", None) is OBJECTS or x.dtype.kind != "f":
        return y
    return np.asarray(y, x.dtype)


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'The reduction is "mean", "sum" or "none"; got {reduction!r}.')
