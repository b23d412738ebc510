"""Finding where a NaN or an infinity came from: `with detect_anomaly(): ...`.

Every operation and every contribution is looked at as it is made, so the error names the first that is not finite, forward
or backward, with its inputs and the line of code that made the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.describe import constant_text, forward_text, rule_text, source_text
from chainrule.autograd.modes import MODE
from chainrule.autograd.sources import calling_line
from chainrule.autograd.tensor import Tensor, value_of

if TYPE_CHECKING:
    from chainrule.autograd.reverse import Step
    from chainrule.autograd.rules import Primitive


class AnomalyError(FloatingPointError):
    """A NaN or an infinity was made; the message names the operation, its inputs and its line."""


def odd_entry(array: Any) -> tuple[tuple[int, ...], float] | None:
    """The place and value of the first entry that is NaN (or infinite, if that is asked for); None if there is none."""
    array = np.asarray(value_of(array))
    if array.dtype.kind != "f":
        return None
    odd = ~np.isfinite(array) if MODE.get().anomaly == "inf" else np.isnan(array)
    if not odd.any():
        return None
    index = tuple(int(i) for i in np.argwhere(odd)[0])
    return index, float(array[index])


def check_made(primitive: Primitive, inputs: Iterable[Any], values: Iterable[Any], y: Any) -> None:
    """Raise AnomalyError if the forward of `primitive` made a NaN (or an infinity)."""
    found = odd_entry(y)
    if found is None:
        return
    lines = [f"{primitive.name} made {_at(found)} in the forward pass, {_line(calling_line())}", "  from"]
    for position, (x, value) in enumerate(zip(inputs, values, strict=True)):
        label = x.path if isinstance(x, Tensor) else constant_text(value)
        lines.append(f"    {primitive.input_name(position)} = {label}: {_summary(value)}")
    raise AnomalyError("\n".join(lines))


def watched(steps: Iterable[Step]) -> Iterable[Step]:
    """The same steps; within `detect_anomaly`, raise AnomalyError at the first contribution that is not finite."""
    return _checked(steps) if MODE.get().anomaly else steps


def _checked(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        if found := odd_entry(step.adjoint):
            raise AnomalyError(f"The adjoint that arrived at {step.node.path} has {_at(found)}.")
        for position, (x, contribution) in enumerate(zip(step.node.inputs, step.contributions, strict=False)):
            if contribution is not None and (found := odd_entry(contribution)):
                raise AnomalyError(
                    f"{forward_text(step.node)} made {_at(found)} in the backward pass, {_line(step.source)}\n"
                    f"  by the rule  {rule_text(step.node, position)}\n"
                    f"  from the adjoint: {_summary(step.adjoint)}\n"
                    f"  and {x.path}: {_summary(x.data)}"
                )
        yield step


def _at(found: tuple[tuple[int, ...], float]) -> str:
    index, value = found
    return f"{value} at {list(index)}" if index else f"{value}"


def _line(source: Any) -> str:
    return f"at {source}: {source_text(source)}" if source else "at a line that was not recorded"


def _summary(value: Any) -> str:
    array = np.asarray(value)
    if array.size <= 6:
        return str(array.tolist())
    if array.dtype.kind not in "fiu":
        return constant_text(array)
    with np.errstate(all="ignore"):
        odd = int(np.sum(~np.isfinite(array)))
        return f"{array.dtype}{list(array.shape)}, from {array.min():.6g} to {array.max():.6g}, {odd} not finite"
