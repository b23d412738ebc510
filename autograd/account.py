"""The flow ledger as text: a nested account that can be read from the loss down to the entry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.describe import entry_label, forward_text, printable, source_text
from chainrule.autograd.tensor import Tensor

if TYPE_CHECKING:
    from chainrule.autograd.ledger import Cut, NodeFlow, Trace

MOST_LINES = 120  # beyond it the nodes are told in a table
MOST_ROWS = 40  # of that table
FEW_NAMED = 8  # nodes with a name; if fewer have one, the table has the others, too
MOST_ENTRIES = 8  # shown of one node
MOST_TERMS = 20  # shown of one cut


def account(t: Trace, digits: int = 7) -> str:
    """The account of a trace. Each node has its rule, and for its entries value, adjoint, tangent and flow, to some digits.

    Of a graph too large for that, a table has the flow through each named node, and the cut there.
    """
    lines = [f"{t.quantity} = {t.total!r}", f"{t.output.label} = {t.output.item()!r}", ""]
    if t.index is None:
        part = "" if np.array_equal(t.direction, t.nodes[0].adjoint) else ", in the entries asked for"
        lines += [
            f"The squared norm of the gradient of {t.name}{part}: how fast {t.output.label} changes along it.",
            "",
        ]
    tangent = f"∂n/∂{t.name}" if t.index is not None else f"how n changes as {t.name} moves along its gradient"
    lines += [
        f"From {t.output.label} to {t.name}. adjoint: ∂L/∂n; tangent: {tangent}; flow: adjoint · tangent.",
        f"At every node what flows in flows out, so the flows at each cut sum to {t.total:.7g}.",
        "",
    ]
    if sum(_line_count(flow) for flow in t.nodes) > MOST_LINES:
        lines += _table(t, digits)
    else:
        for flow in t.nodes[::-1]:
            lines += _node_lines(t, flow, t.cut_at(flow) if flow.node.name else None, digits)
    lines += ["", *_summary(t)]
    return "\n".join(map(printable, lines))


def _line_count(flow: NodeFlow) -> int:
    """How many lines a node takes, about."""
    return 3 + len(flow.users) + min(flow.node.size, MOST_ENTRIES + 1) + sum(not edge.fed for edge in flow.edges)


def _table(t: Trace, digits: int) -> list[str]:
    """A row for each node with a name, from the loss down: the flow through it, and the cut just after it was made."""
    named = [flow for flow in t.nodes if flow.node.name or flow in (t.nodes[0], t.nodes[-1])]
    nodes = (named if len(named) >= FEW_NAMED else t.nodes)[::-1]
    shown = nodes if len(nodes) <= MOST_ROWS else [*nodes[: MOST_ROWS // 2], *nodes[-MOST_ROWS // 2 :]]
    rows = [("node", "operation", "flow through it", "terms of the cut", "the largest", "", "cancellation")]
    for flow in shown:
        cut = t.cut_at(flow)
        largest, more, _ = _largest_terms(cut, 1)
        value, label = largest[0] if largest else (0.0, "")
        operation = flow.node.primitive.name if flow.node.primitive else "a leaf"
        numbers = (f"{flow.total:.{digits}g}", f"{more + len(largest):,}", f"{value:+.{digits}g}")
        rows.append((t.label_of(flow.node), operation, *numbers, label, f"{cut.cancellation:.4g}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = (True, True, False, False, False, True, False)
    lines = [
        "  "
        + "  ".join(f"{cell:{'<' if at_left else '>'}{width}}" for cell, width, at_left in zip(row, widths, left, strict=True))
        for row in rows
    ]
    if len(nodes) > len(shown):
        lines.insert(1 + MOST_ROWS // 2, f"  ⋮  {len(nodes) - len(shown):,} more nodes")
    which = ", those with a name" if len(nodes) == len(named) else ""
    more_text = "t.cut(name): all terms of a cut; t[name]: a node's numbers; t.to_html(path): everything."
    return [*lines, "", f"{len(shown)} of {len(t.nodes):,} nodes are shown{which}. {more_text}"]


def _node_lines(t: Trace, flow: NodeFlow, cut: Cut | None, digits: int) -> list[str]:
    node = flow.node
    where = f"{os.path.basename(node.source.file)}:{node.source.line}  {source_text(node.source)}" if node.source else ""
    lines = []
    for edge in flow.users:
        share = f"   carries {edge.flow:+.7g}" if len(flow.users) > 1 else ""
        lines.append(f"  ├─ {edge.rule or f'∂L/∂{node.label}, from {edge.node.label}'}{share}")
    lines.append(f"  ● {forward_text(node, t.label_of(node))}" + (f"      {where}" if where else ""))
    lines += [f"  │    {row}" for row in _entries(flow, digits)]
    for edge in flow.edges:
        if not edge.fed and isinstance(edge.input, Tensor) and edge.input.requires_grad:
            lines.append(
                f"  │    {edge.input.label} → {node.label} carries 0: {t.entry.label} does not feed {edge.input.label}"
            )
    passing = cut is not None and any(np.any(part) for _, part in cut.parts[1:])
    if cut is not None and not passing and np.count_nonzero(flow.flow) > 1:
        lines.append(f"  │    cut {t.label_of(node)}: {_sum_text(cut)}")
    elif cut is not None and passing:
        lines.append(f"  │    cut {t.label_of(node)}, with what passes it by: {_sum_text(cut)}")
    lines.append("  │")
    return lines


def node_text(flow: NodeFlow) -> str:
    """One node of an account: its operation, and for its entries value, adjoint, tangent and flow."""
    return "\n".join(map(printable, [forward_text(flow.node), *(f"  {row}" for row in _entries(flow))]))


def cut_text(cut: Cut) -> str:
    """A cut as a table: its largest terms, the sum of the rest, the total and how much cancels."""
    rows, count, rest = _largest_terms(cut, MOST_TERMS)
    table = [(label, f"{value:+.7g}") for value, label in rows]
    table += [(f"{count:,} more", f"{rest:+.7g}")] if count else []
    table.append(("total", f"{cut.total:+.7g}"))
    left, right = (max(len(row[i]) for row in table) for i in (0, 1))
    lines = [f"cut {cut.name}, the largest terms first", *(f"  {label:{left}}  {value:>{right}}" for label, value in table)]
    lines.append(f"cancellation {cut.cancellation:.4g} (Σ|term| / |Σ term|), residual {cut.residual:.1g}")
    return "\n".join(map(printable, lines))


def _sum_text(cut: Cut) -> str:
    """The largest terms of a cut, and the sum of the rest, in a line."""
    largest, count, rest = _largest_terms(cut, 4)
    text = " ".join(f"{value:+.7g} ({label})" for value, label in largest)
    if count:
        text += f" {rest:+.7g} ({count:,} more)"
    return f"{text} = {cut.total:.7g};  cancellation {cut.cancellation:.4g}, residual {cut.residual:.1g}"


def _largest_terms(cut: Cut, most: int) -> tuple[list[tuple[float, str]], int, float]:
    """(value, label) of the largest terms; how many more there are, and their sum."""
    found: list[tuple[float, str]] = []
    count, total = 0, 0.0
    for label, part in cut.parts:
        flat = np.ravel(part)
        count += int(np.count_nonzero(flat))
        total += float(flat.sum())
        for i in largest_first(flat, most):
            if flat[i]:
                index = tuple(int(k) for k in np.unravel_index(i, part.shape))
                found.append((float(flat[i]), entry_label(label, index)))
    largest = sorted(found, key=lambda term: -abs(term[0]))[:most]
    return largest, count - len(largest), total - sum(value for value, _ in largest)


def largest_first(flat: Any, count: int) -> Any:
    """The places of the `count` entries that are largest in size; of equals the first. Without sorting all of them."""
    size = np.where(np.isnan(flat), -1, np.abs(flat))
    places: Any = np.arange(len(size))
    if len(size) > count:
        places = np.flatnonzero(size >= np.partition(size, -count)[-count])
    return places[np.argsort(-size[places], kind="stable")][:count]


def _entries(flow: NodeFlow, digits: int = 7) -> list[str]:
    """A row for each entry: all of a small node, of a large one those that carry most."""
    node = flow.node
    if node.size == 0:
        return []
    order: Any = range(node.size)
    if node.size > MOST_ENTRIES:
        order = largest_first(np.ravel(flow.flow), MOST_ENTRIES)
    labels = [entry_label(node.label, np.unravel_index(i, node.shape)) for i in order]
    width, column = max(map(len, labels)), digits + 6
    rows = [f"{'':{width}} " + "".join(f" {heading:>{column}}" for heading in ("value", "adjoint", "tangent", "flow"))]
    for i, label in zip(order, labels, strict=True):
        numbers = (node.data.flat[i], flow.adjoint.flat[i], flow.tangent.flat[i], flow.flow.flat[i])
        rows.append(f"{label:{width}} " + "".join(f" {float(number) + 0.0:{column}.{digits}g}" for number in numbers))
    if node.size > MOST_ENTRIES:
        rest = flow.total - float(sum(flow.flow.flat[i] for i in order))
        rows.append(f"… {node.size - MOST_ENTRIES} more entries of {list(node.shape)} carry {rest:.7g}")
    return rows


def _summary(t: Trace) -> list[str]:
    lines = []
    routes = t.routes(3)
    noun = "route" if t.route_count == 1 else "routes"
    lines.append(f"{t.route_count:,} {noun} from {t.name} to {t.output.label}; the strongest:")
    for route in routes:
        steps = route.path if len(route.path) <= 16 else [*route.path[:8], f"… {len(route.path) - 16} more …", *route.path[-8:]]
        lines.append(f"  {route.value:+.7g}   {' → '.join(steps)}")
    lines.append(f"largest imbalance at any node or cut: {t.residual:.2g}")
    if t.checked is not None:
        lines.append(f"checked by differences: {t.checked.expected:.15g} ± {t.checked.bar:.1e}: {t.checked.verdict}")
    return lines
