"""For tests: is this gradient right?

    from chainrule.testing import assert_gradients

    def test_my_layer():
        assert_gradients(lambda x, W: my_layer(x, W), x, W)

With pytest installed, the same comes as the fixture `gradcheck`.

Few numbers are checked entry by entry. For many, the derivative along random directions is compared, which costs the same
for a million parameters as for ten; and where that fails, the fault is narrowed down to the operation and the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from chainrule.autograd.check import ATOL, RTOL, Entry, GradcheckReport, Method, Recorded, checked_parts, differences, gradcheck
from chainrule.autograd.describe import forward_text, rule_text, source_text
from chainrule.autograd.graph import ancestors, replay
from chainrule.autograd.modes import enable_grad, no_grad, record_sources
from chainrule.autograd.reverse import chain_rule, fitted, gradients, quiet
from chainrule.autograd.tensor import Tensor, options_of, value_of
from chainrule.autograd.value import Value

Part = tuple[Tensor, Any]  # a leaf, and the flat places of those of its entries that are checked

FEW = 300  # entries, up to which each is checked


def assert_gradients(
    f: Callable[..., Any] | Tensor,
    *inputs: Any,
    method: Method = "ridders",
    rtol: float = RTOL,
    atol: float = ATOL,
    few: int = FEW,
    directions: int = 4,
) -> GradcheckReport:
    """Raise AssertionError unless the gradient of f by each input agrees with differences.

    The message lists the worst entries side by side: received, expected, and how far the difference can be trusted.

    Args:
        f, inputs, method, rtol, atol: as for `gradcheck`; f may be a recorded loss, alone or with the node to check.
        few: inputs (or leaves) with more entries than this together are checked along random directions, not entry by entry.
        directions: how many for each input. They are normally distributed, so an error, however spread, hides from one with a
            chance of about its tolerance over its size; from all of them practically never. What can hide is an error
            smaller than `rtol` times the norm of the gradient by that input.
    Returns:
        the report, all of whose entries are ok.
    """
    __tracebackhide__ = True
    parts = checked_parts(f, *inputs) if isinstance(f, Tensor) else []
    count = sum(len(places) for _, places in parts) if parts else sum(np.size(value_of(x)) for x in inputs)
    if count <= few:
        report = gradcheck(f, *inputs, method=method, rtol=rtol, atol=atol)
        if not report.ok:
            raise AssertionError("\n".join([str(report), *_suspects(f, inputs)]))
        return report
    if isinstance(f, Tensor):
        return _assert_along_directions(f.label, f, parts, method, rtol, atol, directions)
    return _assert_function(f, inputs, method, rtol, atol, directions)


def _assert_function(
    f: Callable[..., Any], inputs: Sequence[Any], method: Method, rtol: float, atol: float, directions: int
) -> GradcheckReport:
    __tracebackhide__ = True
    name = getattr(f, "__name__", type(f).__name__)
    leaves = [
        Tensor(np.asarray(value_of(x), dtype=np.float64), requires_grad=True, name=getattr(x, "name", None) or f"argument_{i}")
        for i, x in enumerate(inputs)
    ]
    rng = np.random.default_rng(0)
    with quiet(), enable_grad(), record_sources():
        y = f(*leaves)
    if not isinstance(y, Tensor):
        raise TypeError(f"assert_gradients needs a function that returns one Tensor; {name} returned {type(y).__name__}.")
    weights = rng.uniform(0.5, 1.5, y.shape) * rng.choice([-1.0, 1.0], y.shape)
    with enable_grad():
        loss = np.sum(weights * y)
    for leaf in leaves:
        for _ in range(directions):
            _assert_recorded(f, name, leaves, leaf, rng.standard_normal(leaf.shape), y)
    parts = [(leaf, np.arange(leaf.size)) for leaf in leaves]
    return _assert_along_directions(name, loss, parts, method, rtol, atol, directions)


def _assert_along_directions(
    name: str, loss: Tensor, parts: Sequence[Part], method: Method, rtol: float, atol: float, directions: int
) -> GradcheckReport:
    __tracebackhide__ = True
    rng, recorded = np.random.default_rng(1), Recorded(loss)
    entries: list[Entry] = []
    for (leaf, places), gradient in zip(parts, gradients(loss, [leaf for leaf, _ in parts]), strict=True):
        for _ in range(directions):
            d = np.zeros(leaf.shape)
            d.flat[places] = rng.standard_normal(len(places))
            entry = recorded.check(leaf, d, _slope(gradient, d), method=method, rtol=rtol, atol=atol)
            entries.append(entry)
            if entry.verdict != "ok":
                raise AssertionError(_failure(name, recorded, (leaf, places), gradient, d, entry, method, rtol, atol))
    return GradcheckReport(name, method, tuple(entries), ("checked along random directions, not entry by entry",))


def _slope(gradient: Any, d: Any) -> float:
    """⟨gradient, d⟩, in float64."""
    return float(np.vdot(np.asarray(gradient, dtype=np.float64), d))


def _assert_recorded(f: Callable[..., Any], name: str, leaves: list[Tensor], leaf: Tensor, d: Any, y: Tensor) -> None:
    """The recorded graph, moved along d, must give what f gives: else f depends on the input in ways that were not recorded."""
    moved = leaf.data + 1e-3 * d
    with quiet(), no_grad():
        by_f = value_of(f(*(Tensor(moved if x is leaf else x.data) for x in leaves)))
        by_graph = value_of(replay(y, {leaf: moved}))
    if not np.allclose(by_f, by_graph, rtol=1e-6, atol=1e-9 * float(np.max(np.abs(by_f), initial=1.0)), equal_nan=True):
        raise AssertionError(
            f"{name} depends on {leaf.label} in a way that its graph does not record: moved a little, it gives other values "
            "than the recorded operations do. Does it use .data, float(), or branch on values? Or draw random numbers?"
        )


class WrongRule(NamedTuple):
    """A rule that disagrees with the differences of its own operation."""

    node: Tensor
    position: int
    received: float
    expected: float

    def __str__(self) -> str:
        where = f" at {self.node.source}: {source_text(self.node.source)}" if self.node.source else ""
        return (
            f"{forward_text(self.node)}{where}\n"
            f"    rule: {rule_text(self.node, self.position) or '(no formula given)'}\n"
            f"    along random directions: received {self.received:.10g}, expected {self.expected:.10g}"
        )


def wrong_rules(loss: Tensor, rtol: float = 1e-6) -> list[WrongRule]:
    """The rules in the graph of `loss` that disagree with differences of their own operation, oldest node first.

    Each operation is checked by itself, at the values it had: ⟨rule(g), ẋ⟩ against the difference of ⟨g, y⟩ along ẋ, for
    random g and ẋ.
    """
    rng = np.random.default_rng(1)
    wrong = []
    with quiet():
        for node in ancestors(loss):
            primitive = node.primitive
            if primitive is None or primitive.recomputes:
                continue
            g = rng.standard_normal(node.shape).astype(node.dtype)
            tolerance = max(rtol, 100 * float(np.finfo(node.dtype).eps))
            contributions = next(iter(chain_rule(node, g))).contributions
            for position, contribution in enumerate(contributions):
                if contribution is None:
                    continue
                dx = rng.standard_normal(np.shape(node.values[position]))
                received = float(np.vdot(fitted(contribution, node.inputs[position].data, primitive), dx))
                slopes = differences(_moved(node, position, g, dx))
                slack = 10 * slopes.bar + tolerance * max(abs(received), abs(slopes.derivative), 1e-12)
                if not abs(received - slopes.derivative) <= slack and np.isfinite(slopes.bar):
                    wrong.append(WrongRule(node, position, received, slopes.derivative))
    return wrong


def _moved(node: Tensor, position: int, g: Any, dx: Any) -> Callable[[float], float]:
    """t ↦ ⟨g, y⟩ with one input of the node moved by t · dx."""
    primitive, values = node.primitive, list(node.values)
    assert primitive is not None

    def at(t: float) -> float:
        moved = [*values[:position], np.asarray(values[position] + t * dx), *values[position + 1 :]]
        return float(np.vdot(g, primitive(*moved, **options_of(node))))

    return at


def _failure(
    name: str, recorded: Recorded, part: Part, gradient: Any, d: Any, entry: Entry, method: Method, rtol: float, atol: float
) -> str:
    lines = [f"The gradient of {name} by {part[0].label}, along a random direction, is {entry.verdict}:", f"  {entry}"]
    if entry.verdict == "wrong":
        worst = _narrowed(recorded, part, gradient, d, method, rtol, atol)
        lines += ["The entry that shows it:", f"  {worst}"]
        lines += _blame(wrong_rules(recorded.loss))
    return "\n".join(lines)


def _blame(rules: list[WrongRule]) -> list[str]:
    if rules:
        return ["The operation that makes it:", *(f"  {rule}" for rule in rules[:3])]
    return ["Each rule by itself agrees with its operation; look for values that are used but not recorded (.data, float())."]


def _suspects(f: Callable[..., Any] | Tensor, inputs: Sequence[Any]) -> list[str]:
    """What can be said of where a failure on few numbers comes from."""
    if isinstance(f, Tensor):
        return _blame(wrong_rules(f))
    if any(isinstance(x, Value) for x in inputs):
        return []
    leaves = [Tensor(np.asarray(value_of(x), dtype=np.float64), requires_grad=True) for x in inputs]
    with quiet(), enable_grad(), record_sources():
        loss = np.sum(f(*leaves))
    return _blame(wrong_rules(loss)) if isinstance(loss, Tensor) and loss.requires_grad else []


def _narrowed(recorded: Recorded, part: Part, gradient: Any, d: Any, method: Method, rtol: float, atol: float) -> Entry:
    """The check of one entry, found by halving: of a direction with an error, one half has at least half of it."""
    leaf, places = part

    def checked(half: Any) -> Entry:
        direction = np.zeros(leaf.shape)
        direction.flat[half] = d.flat[half] if len(half) > 1 else 1.0
        return recorded.check(leaf, direction, _slope(gradient, direction), method=method, rtol=rtol, atol=atol)

    while len(places) > 1:
        halves = [checked(half) for half in np.array_split(places, 2)]
        places = np.array_split(places, 2)[int(halves[1].error > halves[0].error)]
    return checked(places)
