"""Is a gradient right? Ask the function itself, by differences, and know how far to trust the answer.

The derivative of L by one number x is the limit of D(h) = (L(x + h) - L(x - h)) / 2h. A large h is spoilt by the bends of
L, a small one by the rounding of L, which is divided by h. So every difference here comes with an error bar, and a gradient
that differs from it by more is wrong. Three methods:

- "ridders": D at h, h/2, h/4, …, extrapolated to h = 0. The error bar is how much the extrapolations differ, and the
  rounding (C. J. F. Ridders, 1982).
- "complex": Im L(x + ih) / h at h = 1e-30. Nothing is subtracted, so nothing cancels, and the result is exact to rounding
  (W. Squire and G. Trapp, 1998). It replays the recorded graph, whose operations must extend to complex numbers.
- "central": D(h) at one h.

Differences call the function anew. So they also see what the complex step cannot: a dependence that was never recorded
(through `.data`), and a kink, where the slopes to the left and to the right differ and no derivative exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, isfinite, isnan, nan
from typing import Any, Literal, NamedTuple

import numpy as np

from chainrule.autograd.describe import printable
from chainrule.autograd.forward import push_forward
from chainrule.autograd.graph import ancestors, as_recorded, find, opened, replay
from chainrule.autograd.ledger import parse_entry
from chainrule.autograd.modes import enable_grad, no_grad
from chainrule.autograd.reverse import backward_steps, gradients, quiet
from chainrule.autograd.scalar import of_tensors
from chainrule.autograd.tensor import Tensor, value_of
from chainrule.autograd.value import Value

Method = Literal["ridders", "complex", "central"]
Verdict = Literal["ok", "wrong", "kink", "inconclusive"]

RTOL = 1e-7
ATOL = 1e-9

_EPS = 2.0**-52
_TINY = 2.0**-1022  # below, numbers lose digits
_STEPS = {"ridders": 0.137, "central": 1e-5, "complex": 1e-30}  # 0.137: not a period that a function is likely to have
_ROWS = 40  # at most; most functions need six
_SHRINKS = 20  # at most, by 10 each, until the function is finite
_MARGIN = 10  # an error bar is itself an estimate: to accuse takes this many of them


# Differences of a function of one number


class Slopes(NamedTuple):
    """What differences say about a function at a point.

    Attributes:
        derivative, bar: the derivative, from both sides, and its error bar; the bar is infinite if nothing can be said.
        left, left_bar, right, right_bar: the slopes from one side.
        kink: whether these two differ, so that there is no derivative.
        size: the largest value met.
    """

    derivative: float = nan
    bar: float = inf
    left: float = nan
    left_bar: float = inf
    right: float = nan
    right_bar: float = inf
    kink: bool = False
    size: float = 0.0


def ridders(
    g: Callable[[float], Any], x0: float = 0.0, *, step: float | None = None, size: float = 0.0, eps: float = _EPS
) -> tuple[float, float]:
    """(dg/dx at x0, its error bar), by Ridders' extrapolation. The arguments are those of `differences`."""
    slopes = differences(g, x0, step=step, size=size, eps=eps)
    return slopes.derivative, slopes.bar


def differences(
    value_at: Callable[[float], Any], x0: float = 0.0, *, step: float | None = None, size: float = 0.0, eps: float = _EPS
) -> Slopes:
    """The slopes of a function of one number at x0, by Ridders' extrapolation.

    The step is halved until rounding, 10·eps·|value| / h, outweighs the best error bar so far: nothing better can follow. If
    then a step a thousand times smaller tells another story, all of it starts again there.

    Args:
        step: the first step, over which the function should change noticeably; by default 0.137 · max(1, |x0|). Where the
            function is not finite (log beyond 0), it shrinks.
        size: how large the terms are that make up the value. It matters where they cancel: the rounding is theirs.
        eps: the precision in which the value is computed; by default that of float64.
    """
    middle, left, right = _Extrapolation(4), _Extrapolation(2), _Extrapolation(2)
    with quiet():
        centre = float(value_at(x0))
        if not isfinite(centre):
            return Slopes()
        h = step or _default_step("ridders", x0, eps)
        rows: list[_Row] = []
        shrinks = 0
        largest = abs(centre)
        while len(rows) < _ROWS and shrinks < _SHRINKS and x0 - h < x0 < x0 + h:
            row = _differences_at(h, value_at, x0, centre, size, eps)
            if row is None:
                middle, left, right = _Extrapolation(4), _Extrapolation(2), _Extrapolation(2)
                rows, shrinks = [], shrinks + 1
                h = min(h, abs(x0) or h) / 10
                continue
            rows.append(row)
            largest = max(largest, row.size)
            middle.add(row.middle, row.rounding)
            left.add(row.left, 2 * row.rounding)
            right.add(row.right, 2 * row.rounding)
            if row.rounding >= middle.bar and (not _parted(left, right) or _is_kink(left, right, rows)):
                break
            h /= 2
        kink = _is_kink(left, right, rows)
        gap = 0.0
        if rows:
            probe = _differences_at(rows[-1].h / 1000, value_at, x0, centre, size, eps)
            lost = _lost_jump(left, right, rows[-1], probe) if kink else 0.0
            gap = max(lost, _gap(middle.value, middle.bar, rows[-1], probe))
        if gap > 0 and len(rows) < _ROWS:  # it stopped, content with what it had
            again = differences(value_at, x0, step=rows[-1].h / 1000, size=size, eps=eps)
            if again.bar < gap:
                return again
    bar, kink = max(middle.bar, 2 * gap), kink and gap == 0
    return Slopes(middle.value, bar, left.value, left.bar, right.value, right.bar, kink, largest)


def central(
    value_at: Callable[[float], Any], x0: float = 0.0, *, step: float | None = None, size: float = 0.0, eps: float = _EPS
) -> Slopes:
    """The slopes of a function of one number at x0, by differences at one step: by default 1e-5 · max(1, |x0|).

    The arguments are those of `differences`. The error bar is |D(h) - D(2h)|, about three times the error of D(h), and the
    rounding. It is infinite where the function is not finite at one of the five points.
    """
    h = step or _default_step("central", x0, eps)
    left, right = _Extrapolation(2), _Extrapolation(2)
    with quiet():
        centre = float(value_at(x0))
        wide = _differences_at(2 * h, value_at, x0, centre, size, eps)
        row = _differences_at(h, value_at, x0, centre, size, eps)
        if wide is None or row is None:
            return Slopes()
        for each in (wide, row):
            left.add(each.left, 2 * each.rounding)
            right.add(each.right, 2 * each.rounding)
        bar = abs(row.middle - wide.middle) + row.rounding
        kink = _is_kink(left, right, [wide, row])
        probe = _differences_at(h / 1000, value_at, x0, centre, size, eps)
    gap = max(_gap(row.middle, bar, row, probe), _lost_jump(left, right, row, probe) if kink else 0.0)
    bar, kink, largest = max(bar, 2 * gap), kink and gap == 0, max(row.size, wide.size)
    return Slopes(row.middle, bar, left.value, left.bar, right.value, right.bar, kink, largest)


def _default_step(method: Method, x: float, eps: float) -> float:
    """The step by which differences change an x of this size. Central differences balance h² against eps / h."""
    coarser = (eps / _EPS) ** (1 / 3) if method == "central" else 1.0
    return _STEPS[method] * coarser * max(1.0, abs(x))


class _Row(NamedTuple):
    """Differences at one step h, and what rounding may do to them."""

    h: float
    left: float
    middle: float
    right: float
    rounding: float
    size: float


def _differences_at(
    h: float, value_at: Callable[[float], Any], x0: float, centre: float, size: float, eps: float
) -> _Row | None:
    """The differences at step h; None if one is not finite, or h is lost beside x0."""
    above, below = x0 + h, x0 - h
    if not below < x0 < above:
        return None
    value_above, value_below = float(value_at(above)), float(value_at(below))
    up, down = above - x0, x0 - below  # h, as x0 ± h rounds it
    left, right = (centre - value_below) / down, (value_above - centre) / up
    middle = (value_above - value_below) / (up + down)
    if not (isfinite(left) and isfinite(middle) and isfinite(right)):
        return None
    largest = max(abs(centre), abs(value_above), abs(value_below))
    return _Row(h, left, middle, right, 10 * eps * max(size, largest, _TINY) / h, largest)


def _gap(value: float, bar: float, last: _Row, probe: _Row | None) -> float:
    """How far a derivative is from the `probe`, the difference at a thousandth of the last step; 0 if bars or 1 % explain it.

    A feature narrower than all steps so far, such as a spike at x0, went unseen by them.
    """
    if probe is None:
        return 0.0
    gap = abs(probe.middle - value)
    explained = bar + probe.rounding + 0.01 * max(abs(probe.middle), abs(value), abs(last.middle - value))
    return gap if gap > explained else 0.0


def _lost_jump(left: _Extrapolation, right: _Extrapolation, last: _Row, probe: _Row | None) -> float:
    """By how much what looks like a kink differs at the `probe`; 0 if it does not: from afar √(x² + 1) looks like |x|."""
    if probe is None:
        return 0.0
    jump = right.value - left.value
    lost = abs(probe.right - probe.left - jump)
    bend = abs(last.right - last.left - jump)
    explained = _MARGIN * (left.bar + right.bar) + 4 * probe.rounding + 0.001 * abs(jump) + 0.01 * bend
    return lost if lost > explained else 0.0


def _parted(left: _Extrapolation, right: _Extrapolation) -> bool:
    """Whether the slopes from the two sides differ by more than their error bars can explain."""
    return abs(left.value - right.value) > _MARGIN * (left.bar + right.bar)


def _is_kink(left: _Extrapolation, right: _Extrapolation, rows: Sequence[_Row]) -> bool:
    """Whether the slopes differ, and as much at the last two steps: a difference that curvature makes halves with the step."""
    jump = right.value - left.value
    same = [abs(row.right - row.left - jump) <= 0.2 * abs(jump) for row in rows[-2:]]
    return _parted(left, right) and all(same)


class _Extrapolation:
    """Neville's tableau: estimates at h, h/2, h/4, …, extrapolated to h = 0.

    Two estimates whose errors are c·hᵏ and c·(h/2)ᵏ combine to one without that error. `factor` is 2ᵏ for the first column
    and its powers for the next: 4 for differences from both sides (their errors are h², h⁴, …), 2 from one side (h, h², …).
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.row: list[float] = []
        self.value = nan
        self.bar = inf

    def add(self, estimate: float, rounding: float) -> None:
        row = [estimate]
        value, bar = nan, inf  # the best of this row
        for column, coarser in enumerate(self.row):
            finer = row[column]
            better = finer + (finer - coarser) / (self.factor ** (column + 1) - 1)
            row.append(better)
            doubt = max(abs(better - finer), abs(better - coarser)) + rounding
            if doubt < bar:
                value, bar = better, doubt
        self.row = row
        gap = abs(value - self.value)
        if gap > self.bar + bar:  # smaller steps contradict the best so far: it was a coincidence
            self.bar = gap
        if bar < self.bar:
            self.value, self.bar = value, bar


# Verdicts


@dataclass(frozen=True)
class Entry:
    """The check of the derivative by one entry of one argument.

    Attributes:
        function: the name of the function, or of the loss.
        argument: the position of the argument; None if it was given as a node of a graph.
        name: the name of the argument, if it has one.
        index: which entry of it; None for the derivative along a direction.
        received: the gradient under check. expected: the derivative by differences; `bar` is its error bar.
        left, right: the slopes from either side; nan for the complex step, which has none.
        verdict: "ok": they agree. "wrong": they differ by more than the bar can explain. "kink": the slopes from left and
            right differ, so there is no derivative, and the gradient is a convention. "inconclusive": the bar is too wide to
            decide, or infinite because the function is not finite around here.
    """

    function: str
    argument: int | None
    name: str | None
    index: tuple[int, ...] | None
    received: float
    expected: float
    bar: float
    left: float
    right: float
    verdict: Verdict

    @property
    def error(self) -> float:
        """|received - expected|"""
        return abs(self.received - self.expected)

    @property
    def place(self) -> str:
        """Which entry, such as `argument 1, WQ[1, 0]`."""
        parts = [] if self.argument is None else [f"argument {self.argument}"]
        parts += [self.name] if self.name else []
        return ", ".join(parts) + (str(list(self.index)) if self.index else "")

    def __str__(self) -> str:
        slopes = f" (slopes: left {self.left:.6g}, right {self.right:.6g})" if self.verdict == "kink" else ""
        return (
            f"{self.verdict}: received {self.received:.10g}, expected {self.expected:.10g} ± {self.bar:.1e}{slopes}, "
            f"at {self.place} of {self.function}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain data. A number that is not finite is None, as JSON has none."""
        fields = asdict(self)
        return {key: None if isinstance(x, float) and not isfinite(x) else x for key, x in fields.items()}


@dataclass(frozen=True, repr=False)
class GradcheckReport:
    """The entries of a gradcheck. True if all are ok; as text, a table with the worst first, or if all are ok a few of them.

    Attributes:
        function, method: what was checked, and how.
        entries: an `Entry` for each entry checked.
        notes: what one should know besides, such as that float32 inputs were checked in float64.
    """

    function: str
    method: Method
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the verdict on every entry is "ok": a kink is not, and neither is an inconclusive one."""
        return all(entry.verdict == "ok" for entry in self.entries)

    def __bool__(self) -> bool:
        return self.ok

    def assert_ok(self) -> None:
        """Raises AssertionError, with the table, unless all entries are ok."""
        if not self.ok:
            raise AssertionError(str(self))

    def worst_first(self) -> list[Entry]:
        """The entries: wrong, kink, inconclusive, ok; among those, the largest error first."""
        severity = ("wrong", "kink", "inconclusive", "ok").index
        return sorted(self.entries, key=lambda entry: (severity(entry.verdict), -inf if isnan(entry.error) else -entry.error))

    def __str__(self) -> str:
        counts = Counter(entry.verdict for entry in self.entries)
        said = ", ".join(f"{counts[v]} {v}" for v in ("wrong", "kink", "inconclusive", "ok") if counts[v]) or "no entries"
        lines = [f"gradcheck of {self.function} by {self.method}: {said}", *(f"note: {note}" for note in self.notes)]
        shown = self.worst_first()[: 5 if self.ok else 20]
        if len(self.entries) > len(shown):
            lines.append(f"the {len(shown)} with the largest errors:" if self.ok else f"the worst {len(shown)}:")
        if shown:
            width = max(len("entry"), *(len(entry.place) for entry in shown))
            lines.append(f"{'verdict':12}  {'entry':{width}}  {'received':>17}  {'expected':>17}  {'± bar':>8}")
        for entry in shown:
            slopes = f"  left {entry.left:.6g}, right {entry.right:.6g}" if entry.verdict == "kink" else ""
            lines.append(
                f"{entry.verdict:12}  {entry.place:{width}}  {entry.received:17.10g}  {entry.expected:17.10g}"
                f"  {entry.bar:8.1e}{slopes}"
            )
        if len(self.entries) > len(shown) and not self.ok:
            lines.append(f"… and {len(self.entries) - len(shown)} more")
        return "\n".join(map(printable, lines))

    __repr__ = __str__


def _verdict(received: float, slopes: Slopes, bar: float, rtol: float, narrow: float) -> Verdict:
    """The verdict on a gradient; `narrow` is the absolute width up to which an error bar decides."""
    if isnan(received):
        return "wrong"
    low, high = sorted((slopes.left, slopes.right))
    margin = _MARGIN * (slopes.left_bar + slopes.right_bar) + rtol * max(abs(low), abs(high))
    if slopes.kink and high - low > margin:
        return "kink" if low - margin <= received <= high + margin else "wrong"  # beyond both slopes, no convention defends it
    error = abs(received - slopes.derivative)
    tolerance = rtol * (max(abs(received), abs(slopes.derivative)) if isfinite(received) else abs(slopes.derivative))
    if not isfinite(bar) or (bar > tolerance + narrow and (error <= _MARGIN * bar or not isfinite(received))):
        return "inconclusive"
    return "ok" if isfinite(error) and error <= bar + tolerance else "wrong"


# Gradients of functions and of recorded graphs


def gradcheck(
    f: Callable[..., Any] | Tensor,
    *inputs: Any,
    method: Method = "ridders",
    step: float | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    sample: int | None = None,
) -> GradcheckReport:
    """Check the gradient of a function, entry by entry, against its differences.

    A function whose output is not a single number is checked as L = Σ cᵢ yᵢ, with fixed cᵢ of random sign and size between
    1/2 and 3/2: a wrong rule would have to be wrong in just the way that c cancels.

        gradcheck(lambda x, W: np.tanh(x @ W), x, W).assert_ok()
        gradcheck(loss)          # a recorded graph: all its leaves
        gradcheck(loss, "WQ")    # or one of them, or one entry, "WQ[1,0]"

    Args:
        f: takes as many Tensors as there are inputs, and returns a Tensor of any shape. It must give the same value each
            time.
        inputs: floating arrays, numbers or Tensors; or Values, for a function of Values. All are checked in float64.
            Integers (targets, indices) belong inside f: `lambda logits: nn.cross_entropy(logits, targets)`.
        method: "ridders", "complex" or "central": see the head of this module.
        step: the first step of Ridders, the step of the others. By default 0.137 · max(1, |x|), 1e-30, 1e-5 · max(1, |x|).
        rtol: how far a gradient may be from its difference beyond the error bar, relative to the larger one.
        atol: an error bar decides if it is at most rtol · |gradient| + atol · |L| / max(1, |x|), or the largest terms of L.
        sample: check only so many entries of each input, chosen at random but always the same.
    Raises:
        TypeError: for integer or complex inputs, an output that is not a floating Tensor, and with "complex" if an operation
            does not extend to complex numbers.
        ValueError: if f gives different values for the same inputs, or there are no inputs.
    """
    _check_method(method)
    if isinstance(f, Tensor):
        return check_graph(f, *inputs, method=method, step=step, rtol=rtol, atol=atol, sample=sample)
    if not inputs:
        raise ValueError("gradcheck needs at least one input to differentiate by; got none.")
    name = getattr(f, "__name__", type(f).__name__)
    if any(isinstance(x, Value) for x in inputs):
        f = of_tensors(f)
        inputs = tuple(Tensor(float(x), name=getattr(x, "label", None) or None) for x in inputs)
    arrays = [_floating(x, position) for position, x in enumerate(inputs)]
    labels = [x.name if isinstance(x, Tensor) else None for x in inputs]
    notes = [f"argument {i} is {x.dtype}; it was checked in float64" for i, x in enumerate(arrays) if x.dtype != np.float64]
    arrays = [x.astype(np.float64) for x in arrays]

    leaves = [Tensor(x, requires_grad=True, name=label) for x, label in zip(arrays, labels, strict=True)]
    with quiet(), enable_grad():
        y = f(*leaves)
    if not isinstance(y, Tensor) or y.dtype.kind != "f":
        came = f"a Tensor of dtype {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"gradcheck needs a function that returns one floating Tensor; {name} returned {came}.")
    weights = _weights(y.shape)

    def evaluate(values: Sequence[Any]) -> Any:
        with quiet(), no_grad():
            again = f(*(Tensor(x, name=label) for x, label in zip(values, labels, strict=True)))
        if np.shape(value_of(again)) != y.shape:
            raise ValueError(
                f"gradcheck needs one shape of output; {name} gave {y.shape} and then {np.shape(value_of(again))}."
            )
        return value_of(again)

    def loss_with(position: int, index: tuple[int, ...], x: float) -> float:
        values = list(arrays)
        values[position] = values[position].copy()
        values[position][index] = x
        return float(np.sum(weights * evaluate(values)))

    _check_repeatable(name, y.data, evaluate(arrays))
    eps, own = _precisions(y)
    if own > _EPS:
        notes.append(f"{name} computes in lower precision inside, and the tolerances are wider")
    if not np.all(np.isfinite(y.data)):
        notes.append(f"{name} is not finite at these inputs, so that differences say nothing")

    # A rule that forgets g = ∂L/∂y, or is not linear in it, may look right at g = 1. At -2 it does not; dividing is exact.
    received = [g / -2 for g in gradients(y, leaves, -2 * weights)] if y.requires_grad else [np.zeros(x.shape) for x in arrays]
    y, _ = _opened(y)
    adjoints = _adjoints(y, weights)
    size = _largest_term(adjoints)
    entries = []
    for position, (leaf, x, gradient) in enumerate(zip(leaves, arrays, received, strict=True)):
        if method == "complex":
            _check_analytic(y, leaf)
        for index in _sampled(list(np.ndindex(x.shape)), sample):
            at, got, direction = float(x[index]), float(gradient[index]), _direction(x.shape, index)
            if method == "complex":
                slopes = _complex_step(y, weights, adjoints, leaf, direction, step)
            else:
                slopes = _DIFFERENCES[method](partial(loss_with, position, index), at, step=step, size=size, eps=eps)
            doubt, typical = _doubt(y, adjoints, leaf, direction, own, size), max(slopes.size, size) / max(1.0, abs(at))
            entries.append(_entry(name, position, labels[position], index, got, slopes, doubt, typical, rtol, atol, own))
    return GradcheckReport(name, method, tuple(entries), tuple(notes))


def check_graph(
    loss: Tensor,
    target: Tensor | str | None = None,
    *,
    method: Method = "ridders",
    step: float | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    sample: int | None = None,
) -> GradcheckReport:
    """Check the gradients of a recorded graph, entry by entry, with `check_entry`.

    Args:
        target: a node, or its name, such as "WQ", or entries of it, such as "WQ[1,0]"; by default all leaves.
        method, step, rtol, atol, sample: as for `gradcheck`.
    Raises:
        ValueError, TypeError: as `check_entry`. KeyError: if no node has the name. IndexError: if the index is out of range.
    """
    recorded, parts, entries = Recorded(loss), checked_parts(loss, target), []
    for (node, places), gradient in zip(parts, gradients(loss, [node for node, _ in parts]), strict=True):
        indices = [tuple(map(int, np.unravel_index(place, node.shape))) for place in places]
        for index in _sampled(indices, sample):
            got, direction = float(gradient[index]), _direction(node.shape, index)
            entries.append(recorded.check(node, direction, got, method=method, step=step, rtol=rtol, atol=atol))
    return GradcheckReport(loss.label, method, tuple(entries))


def checked_parts(loss: Tensor, target: Tensor | str | None = None) -> list[tuple[Tensor, Any]]:
    """What `check_graph(loss, target)` checks: nodes, and the flat places of those of their entries that are meant."""
    name, key = (None, None) if target is None or isinstance(target, Tensor) else parse_entry(target)
    if isinstance(target, Tensor):
        nodes = [target]
    else:
        nodes = [node for node in ancestors(loss) if node.is_leaf] if name is None else [find(loss, name)]
    return [(node, np.ravel(np.arange(node.size).reshape(node.shape)[... if key is None else key])) for node in nodes]


def check_entry(
    loss: Tensor,
    leaf: Tensor,
    index: int | tuple[int, ...],
    gradient: float,
    *,
    method: Method = "ridders",
    step: float | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Entry:
    """Check ∂loss/∂leaf[index] = gradient by replaying the recorded graph of `loss` with that one entry changed.

    What the graph recorded as constant (masks, dropout) stays. Values are recomputed in float64; the tolerances widen to what
    the dtype of the gradient can hold.

    Args:
        leaf: a leaf, or an interior node: then the derivative with all that made it held fixed.
        method, step, rtol, atol: as for `gradcheck`.
    Raises:
        ValueError: if the loss is not a single number, or does not depend on the leaf. IndexError: if the index does not
            pick one entry of the leaf. TypeError: with "complex", if an operation does not extend to complex numbers.
    """
    index = index if isinstance(index, tuple) else (index,)
    if len(index) != leaf.ndim:
        raise IndexError(f"check_entry needs an index of one entry of {leaf.path}, of shape {leaf.shape}; got {index}.")
    direction = _direction(leaf.shape, index)
    return check_direction(loss, leaf, direction, gradient, method=method, step=step, rtol=rtol, atol=atol)


def check_direction(
    loss: Tensor,
    leaf: Tensor,
    direction: Any,
    gradient: float,
    *,
    method: Method = "ridders",
    step: float | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Entry:
    """Check ⟨∂loss/∂leaf, direction⟩ = gradient by replaying the recorded graph with the leaf moved along the direction.

    A direction that is 1 at one entry and 0 elsewhere checks that entry; else the entry's `index` is None. The arguments and
    what is raised are those of `check_entry`; also ValueError if the direction has not the shape of the leaf.
    """
    return Recorded(loss).check(leaf, direction, gradient, method=method, step=step, rtol=rtol, atol=atol)


class Recorded:
    """A recorded graph, and what all checks of it need. Raises ValueError if the loss is not a single number.

    Attributes:
        loss: the output, with the leaves it was computed from.
        opened: the same without fused nodes, inside which may be far larger ones: a cross-entropy is a difference of logits.
        adjoints: n̄ of every node of the opened graph. size: the largest terms there, by which the loss is rounded.
        eps, own: see `_precisions`.
    """

    def __init__(self, loss: Tensor) -> None:
        if loss.size != 1:
            raise ValueError(f"The loss is a single number; {loss.path} has shape {loss.shape}.")
        self.nodes = set(ancestors(loss))
        self.loss, self.standing_in = as_recorded(loss)
        self.ones = np.ones(loss.shape, loss.dtype)
        self.opened, self.renewed = _opened(self.loss)
        self.adjoints = _adjoints(self.opened, self.ones)
        self.size = _largest_term(self.adjoints)
        self.eps, self.own = _precisions(self.loss)
        self.lifted = {n: n.data.astype(np.float64) for n in ancestors(self.loss) if n.is_leaf and n.dtype != np.float64}

    def check(
        self,
        leaf: Tensor,
        direction: Any,
        gradient: float,
        *,
        method: Method = "ridders",
        step: float | None = None,
        rtol: float = RTOL,
        atol: float = ATOL,
    ) -> Entry:
        """Of ⟨∂loss/∂leaf, direction⟩ = gradient; see `check_direction`."""
        _check_method(method)
        direction = np.asarray(direction, dtype=np.float64)
        if direction.shape != leaf.shape:
            raise ValueError(f"A direction has the shape {leaf.shape} of {leaf.path}; got {direction.shape}.")
        if leaf not in self.nodes:
            raise ValueError(f"{self.loss.path} does not depend on {leaf.path}: it is not in its graph.")
        leaf = self.standing_in.get(leaf, leaf)
        x = leaf.data.astype(np.float64)
        places = np.argwhere(direction)
        if len(places) == 1 and direction.sum() == 1:
            index = tuple(map(int, places[0]))
            at, reach, speed = float(x[index]), max(1.0, abs(float(x[index]))), 1.0
        else:
            index, at, reach = None, 0.0, float(np.max(np.abs(x), initial=1))
            speed = float(np.linalg.norm(direction)) or 1.0
        origin = x - at * direction  # so that a single entry is set to exactly t, and its steps are not rounded

        def value_at(t: float) -> float:
            return float(np.asarray(replay(self.loss, {**self.lifted, leaf: origin + t * direction})).item())

        if method == "complex":
            node = self.renewed.get(leaf, leaf)
            _check_analytic(self.opened, node)
            slopes = _complex_step(self.opened, self.ones, self.adjoints, node, direction, step)
        else:
            first = step or _default_step(method, reach, self.eps) / speed
            slopes = _DIFFERENCES[method](value_at, at, step=first, size=self.size, eps=self.eps)
        typical = max(slopes.size, self.size) * speed / reach
        doubt = _doubt(self.opened, self.adjoints, self.renewed.get(leaf, leaf), direction, self.own, self.size)
        return _entry(self.loss.label, None, leaf.path, index, float(gradient), slopes, doubt, typical, rtol, atol, self.own)


def _entry(
    function: str,
    argument: int | None,
    name: str | None,
    index: tuple[int, ...] | None,
    received: float,
    slopes: Slopes,
    doubt: float,
    typical: float,
    rtol: float,
    atol: float,
    eps: float,
) -> Entry:
    """The entry with its verdict. `doubt` is the rounding of the gradient under check; `typical` a derivative's usual size."""
    bar = slopes.bar + doubt
    narrow = max(max(atol, 100 * eps) * typical, 10 * doubt)
    verdict = _verdict(received, slopes, bar, max(rtol, 100 * eps), narrow)
    return Entry(function, argument, name, index, received, slopes.derivative, bar, slopes.left, slopes.right, verdict)


def _complex_step(
    output: Tensor, weights: Any, adjoints: Mapping[Tensor, Any], leaf: Tensor, direction: Any, step: float | None
) -> Slopes:
    """The derivative of L = Σ weights · output along a direction: Im L(x + ih · direction) / h. It has no one-sided slopes."""
    h = step or _STEPS["complex"]
    with quiet():
        moved = replay(output, {leaf: leaf.data + 1j * h * direction})
        derivative = float(np.sum(weights * np.imag(moved)) / h)
        value = float(np.sum(weights * output.data))
    if not (isfinite(value) and isfinite(derivative)):
        return Slopes()
    flow = _largest_term(adjoints, push_forward(ancestors(output), {leaf: direction}))
    truncated = 1e10 * h * h  # h² L''' / 6, for L''' up to 6e10
    return Slopes(derivative, 20 * _EPS * max(abs(derivative), flow) + truncated, size=max(abs(value), h))


def _doubt(output: Tensor, adjoints: Mapping[Tensor, Any], leaf: Tensor, direction: Any, eps: float, size: float) -> float:
    """What rounding in a precision `eps` coarser than float64 does to the gradient under check; 0 in float64.

    It goes by the largest flow, Σ |n̄ · ṅ| of any node n: the derivative is the sum of what flows, which may cancel. In
    float64, the error bar of a difference, whose rounding is divided by the step, is wider.
    """
    if eps <= _EPS:
        return 0.0
    try:
        flow = _largest_term(adjoints, push_forward(ancestors(output), {leaf: direction}))
    except TypeError:  # a rule that takes arrays alone, and cannot be transposed
        flow = size
    return 10 * eps * flow


def _adjoints(output: Tensor, weights: Any) -> dict[Tensor, Any]:
    """n̄ = ∂L/∂n of every node n, for L = Σ weights · output."""
    return {step.node: step.adjoint for step in backward_steps(output, weights)} if output.requires_grad else {}


def _largest_term(adjoints: Mapping[Tensor, Any], tangents: Mapping[Tensor, Any] | None = None) -> float:
    """The largest Σ |n̄ · v| of any node n, where v is its value, or its tangent.

    The rounding of v reaches L (or its derivative) times n̄. So that is rounded like its largest terms, which may be far more
    than itself: Σ softmax(x) - 1 is 0 up to the rounding of 1. A leaf is exact, but what is computed from it is not: a sum may
    cancel.
    """
    with quiet():
        sizes = [
            float(np.sum(np.abs(adjoint * (node.data if tangents is None else tangents[node]))))
            for node, adjoint in adjoints.items()
            if tangents is None or node in tangents
        ]
    return max(filter(isfinite, sizes), default=0.0)


def _precisions(output: Tensor) -> tuple[float, float]:
    """The precision of the graph if its leaves were float64, and its own: the eps of the coarsest dtype at work."""
    eps, own = _EPS, _EPS
    for node in ancestors(output):
        here = float(np.finfo(node.dtype).eps)
        own = max(own, here)
        inputs = [float(np.finfo(x.dtype).eps) for x in node.values if getattr(x, "dtype", np.dtype(int)).kind == "f"]
        if inputs and here > max(inputs):  # a conversion to lower precision
            eps = max(eps, here)
    return eps, own


def _weights(shape: tuple[int, ...]) -> Any:
    """The c of L = Σ cᵢ yᵢ: 1 for a single number, else of random sign and size between 1/2 and 3/2, always the same."""
    random = np.random.default_rng(0)
    if np.prod(shape) == 1:
        return np.ones(shape)
    return random.choice([-1.0, 1.0], shape) * random.integers(32, 97, shape) / 64  # exact in every dtype


def _direction(shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """1 at the index, 0 elsewhere."""
    direction = np.zeros(shape)
    direction[index] = 1
    return direction


def _sampled(indices: list[tuple[int, ...]], sample: int | None) -> list[tuple[int, ...]]:
    """All the indices, or so many of them, chosen at random but always the same."""
    if sample is None or sample >= len(indices):
        return indices
    return [indices[i] for i in sorted(np.random.default_rng(0).choice(len(indices), sample, replace=False))]


def _floating(x: Any, position: int) -> Any:
    """The input as a floating array. Python numbers become float64, as in a Tensor."""
    x = value_of(x)
    array = np.asarray(x)
    if not isinstance(x, (np.ndarray, np.generic)) and array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise TypeError(
            f"gradcheck differentiates by floating inputs; argument {position} has dtype {array.dtype}. Convert it with "
            ".astype(float), or keep it inside the function: gradcheck(lambda x: f(x, ids), x)."
        )
    return array


def _check_method(method: str) -> None:
    if method not in ("ridders", "complex", "central"):
        raise ValueError(f'The methods are "ridders", "complex" and "central"; got {method!r}.')


def _check_repeatable(name: str, first: Any, second: Any) -> None:
    with quiet():
        rounding = 1e-12 * np.max(np.abs(first), where=np.isfinite(first), initial=0)
        same = np.allclose(first, second, rtol=1e-12, atol=rounding, equal_nan=True)
    if not same:
        raise ValueError(
            f"gradcheck needs a function that gives the same value each time; {name} gave {_short(first)} and then "
            f"{_short(second)} for the same inputs. Draw its random numbers outside, or seed them anew in each call."
        )


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values), threshold=6, edgeitems=2, separator=", ")


def _opened(output: Tensor) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The graph with its fused nodes opened: their operations round one by one, and complex numbers run them."""
    with quiet():
        return opened(output)


def _check_analytic(output: Tensor, leaf: Tensor) -> None:
    """Raises TypeError if an operation between the leaf and the output does not extend to complex numbers."""
    moved = {leaf}
    for node in ancestors(output):
        if node in moved or not any(isinstance(x, Tensor) and x in moved for x in node.inputs):
            continue
        moved.add(node)
        if node.primitive is not None and not node.primitive.analytic:
            raise TypeError(
                f"The complex step needs operations that extend to complex numbers; {node.primitive.name} (at {node.path}) "
                'does not. Use method="ridders".'
            )


_DIFFERENCES = {"ridders": differences, "central": central}

__all__ = [
    "Entry",
    "GradcheckReport",
    "Recorded",
    "Slopes",
    "central",
    "check_direction",
    "check_entry",
    "check_graph",
    "checked_parts",
    "differences",
    "gradcheck",
    "ridders",
]
