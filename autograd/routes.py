"""Routes from an entry to the loss: how many, and the strongest, by dynamic programming.

Both are recurrences over the graph, oldest node first: the number of routes to a node is the sum over its edges of the number
of routes to their inputs; the k strongest routes to it extend the k strongest to its inputs. Nothing is ever listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.describe import entry_label
from chainrule.autograd.reverse import fitted, quiet
from chainrule.autograd.tensor import Array, Tensor

if TYPE_CHECKING:
    from chainrule.autograd.ledger import Trace

Place = tuple[Tensor, int]  # a node, and the flat place of an entry in it (0 when routes go from node to node)

LARGEST_JACOBIANS = 4_000_000  # entries of all local Jacobians together, up to which routes go from number to number
LARGEST_NODES = 20_000  # evaluations of rules, one for each entry of each node


@dataclass(frozen=True)
class Route:
    """One way from the entry to the loss. `value` is what comes along it; all routes' values sum to the total."""

    path: list[str]
    value: float

    def __str__(self) -> str:
        return f"{self.value:+.7g}  {' → '.join(self.path)}"


class Routes:
    """The weighted graph of places, oldest first, with the recurrences over it."""

    def __init__(
        self,
        start: dict[Place, float],
        edges: list[tuple[Place, list[tuple[Place, float]]]],
        end: Place,
        by_entry: bool,
        label_of: Callable[[Tensor], str],
    ) -> None:
        self.start = start
        self.edges = edges  # for each place, its incoming edges: (from, weight)
        self.end = end
        self.by_entry = by_entry
        self.label_of = label_of

    @property
    def count(self) -> int:
        counts = dict.fromkeys(self.start, 1)
        for place, incoming in self.edges:
            counts[place] = counts.get(place, 0) + sum(counts.get(previous, 0) for previous, _ in incoming)
        return counts.get(self.end, 0)

    def strongest(self, k: int) -> list[Route]:
        if k < 1:
            return []
        # For each place its best ways in: (|value|, value, previous place, rank of the way into that place)
        ways: dict[Place, list[tuple[float, float, Place | None, int]]] = {
            place: [(abs(value), value, None, 0)] for place, value in self.start.items()
        }
        for place, incoming in self.edges:
            found: list[tuple[float, float, Place | None, int]] = [
                (size * abs(weight), value * weight, previous, rank)
                for previous, weight in incoming
                for rank, (size, value, _, _) in enumerate(ways.get(previous, ()))
            ]
            ways[place] = nlargest(k, ways.get(place, []) + found, key=lambda way: way[0])
        return [Route(self._path(ways, rank), way[1]) for rank, way in enumerate(ways.get(self.end, []))]

    def _path(self, ways: dict[Place, Any], rank: int) -> list[str]:
        path = []
        place: Place | None = self.end
        while place is not None:
            node, at = place
            path.append(entry_label(self.label_of(node), np.unravel_index(at, node.shape) if self.by_entry else ()))
            _, _, place, rank = ways[place][rank]
        return path[::-1]


def node_routes(trace: Trace) -> Routes:
    """Routes from node to node; an edge weighs flow(edge) / flow(its input), so that a route's value is its share.

    Where the flow through a node is exactly 0, the routes through it cancel, and each counts as 0.
    """
    totals = {flow.node: flow.total for flow in trace.nodes}
    edges = [
        (
            (flow.node, 0),
            [
                ((edge.input, 0), edge.flow / totals[edge.input] if totals[edge.input] else 0.0)
                for edge in flow.edges
                if edge.contribution is not None
            ],
        )
        for flow in trace.nodes
        if flow.node is not trace.entry
    ]
    return Routes({(trace.entry, 0): trace.total}, edges, (trace.output, 0), by_entry=False, label_of=trace.label_of)


def entry_routes(trace: Trace) -> Routes | None:
    """Routes from number to number, weighted by local derivatives; None if the graph is too large for its local Jacobians."""
    fed = [(flow, [edge for edge in flow.edges if edge.contribution is not None]) for flow in trace.nodes]
    if (
        sum(flow.node.size * edge.input.size for flow, edges in fed for edge in edges) > LARGEST_JACOBIANS
        or sum(flow.node.size for flow, _ in fed) > LARGEST_NODES
    ):
        return None
    start = {(trace.entry, int(i)): float(trace.direction.flat[i]) for i in np.flatnonzero(trace.direction)}
    reached = set(start)
    edges_in: list[tuple[Place, list[tuple[Place, float]]]] = []
    for flow, edges in fed:
        if flow.node is trace.entry:
            continue
        jacobians = [(edge.input, _local_jacobian(flow.node, edge.position)) for edge in edges]
        for i in range(flow.node.size):
            incoming = [
                ((x, int(j)), float(row[i, j]))
                for x, row in jacobians
                for j in np.flatnonzero(row[i])
                if (x, int(j)) in reached
            ]
            if incoming:
                reached.add((flow.node, i))
                edges_in.append(((flow.node, i), incoming))
    return Routes(start, edges_in, (trace.output, 0), by_entry=True, label_of=trace.label_of)


def _local_jacobian(node: Tensor, position: int) -> Array:
    """∂node/∂input as a matrix (entries of the node, entries of the input): the rule, for each entry of the node."""
    primitive, x = node.primitive, node.inputs[position]
    assert primitive is not None
    rows = np.zeros((node.size, x.size), x.dtype)
    with quiet():
        for i, g in enumerate(_unit_adjoints(node)):
            row = primitive.contribution(position, g, node.data, node.values, node.options)
            rows[i] = np.ravel(fitted(np.asarray(row), x.data, primitive))
    return rows


def _unit_adjoints(node: Tensor) -> Iterator[Array]:
    for i in range(node.size):
        g = np.zeros(node.shape, node.dtype)
        g.flat[i] = 1
        yield g
