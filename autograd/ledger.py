"""The flow ledger: an exact account of how the error at the output reaches one entry.

Let θ be the entry and, for every node n, n̄ = ∂L/∂n (reverse mode) and ṅ = ∂n/∂θ (forward mode). The flow through n is
⟨n̄, ṅ⟩; the flow along the edge u → v is ⟨v's contribution to ū, u̇⟩. At every node, what flows in flows out. So over any
cut between θ and L the flows sum to ∂L/∂θ, term by term, in time linear in the graph.

    t = trace(loss, WQ[1, 0])
    print(t)                     # the account, from the loss to the entry
    t.total, t.residual          # ∂L/∂WQ[1,0]; the largest imbalance at any node or cut
    t.cut("A").terms             # what passes through A, entry by entry
    t.routes(k=5), t.route_count
    t.check()                    # the same number by differences
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum, inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.describe import entry_label, forward_text, rule_text, source_text
from chainrule.autograd.forward import push_forward
from chainrule.autograd.graph import UnknownName, ancestors, as_recorded, fed_by, find, opened
from chainrule.autograd.primitives.indexing import frozen_key, getitem
from chainrule.autograd.reverse import Step, all_finite, chain_rule, quiet, seed_for
from chainrule.autograd.routes import Route, entry_routes, node_routes
from chainrule.autograd.scalar import as_tensors
from chainrule.autograd.tensor import Array, Tensor
from chainrule.autograd.value import Value

if TYPE_CHECKING:
    from chainrule.autograd.check import Entry


@dataclass(eq=False, repr=False)
class EdgeFlow:
    """What an input receives from one node that uses it, and how much of the derivative comes along there."""

    input: Any  # a Tensor, or the constant
    node: Tensor  # the node that uses it
    position: int
    contribution: Array | None  # to the input's adjoint; None if the entry does not feed the input
    flow: float  # ⟨contribution, tangent of the input⟩
    fed: bool  # whether the input depends on the entry
    output: Tensor  # the end of the graph

    @property
    def rule(self) -> str:
        """The rule behind the contribution, such as `∂L/∂Q = ∂L/∂S @ K`."""
        return rule_text(self.node, self.position, self.output)

    def __repr__(self) -> str:
        from_ = self.input.label if isinstance(self.input, Tensor) else "a constant"
        return f"<EdgeFlow {from_} → {self.node.label}: {self.flow:.7g}>"


@dataclass(eq=False, repr=False)
class NodeFlow:
    """One node between the entry and the loss."""

    node: Tensor
    adjoint: Array  # ∂L/∂node
    tangent: Array  # ∂node/∂entry
    total: float  # Σ flow
    edges: list[EdgeFlow] = field(default_factory=list)  # from its inputs, in order
    users: list[EdgeFlow] = field(default_factory=list)  # to the nodes that use it

    @property
    def value(self) -> Array:
        return self.node.data

    @cached_property
    def flow(self) -> Array:
        """adjoint · tangent, entry by entry."""
        return _product(self.adjoint, self.tangent)

    def __str__(self) -> str:
        from chainrule.autograd.account import node_text

        return node_text(self)

    def __repr__(self) -> str:
        return f"<NodeFlow of {self.node.label}, of shape {self.node.shape}: {self.total:.7g}>"


@dataclass(repr=False)
class Cut:
    """All that passes between the entry and the loss at one moment: the node just made, and older nodes still to be used.

    Attributes:
        name: the path of the node just made.
        parts: (label, flows entry by entry) of that node, and of each older node past it, by what the younger ones use.
        residual: |Σ terms - total derivative|.
    """

    name: str
    parts: list[tuple[str, Array]]
    residual: float

    @property
    def total(self) -> float:
        """The sum of the terms: ∂L/∂θ."""
        return fsum(float(np.sum(flow)) for _, flow in self.parts)

    @property
    def terms(self) -> list[tuple[str, float]]:
        """(label, flow) of every entry that carries anything."""
        return [
            (entry_label(label, index), float(flow[index]))
            for label, flow in self.parts
            for index in map(tuple, np.argwhere(flow).tolist())
        ]

    @property
    def cancellation(self) -> float:
        """Σ|term| / |Σ term|: 1 if all terms have one sign, large if they nearly cancel, infinite if they do."""
        size = sum(float(np.sum(np.abs(flow))) for _, flow in self.parts)
        return size / abs(self.total) if self.total else (inf if size else 1.0)

    def __str__(self) -> str:
        from chainrule.autograd.account import cut_text

        return cut_text(self)

    def __repr__(self) -> str:
        return f"<Cut at {self.name}: {len(self.terms)} terms, total {self.total:.7g}>"


class Trace:
    """The account of ∂L/∂θ. Made by `trace`; see the module's text.

    Attributes:
        loss: L. output: the same node in the graph that was traced, where attention is opened into S and A.
        entry: the tensor that holds θ. index: its place in it, or None for a whole tensor or several entries.
        direction: the tangent of `entry`: 1 at the entry, or for a whole tensor its own gradient.
        nodes: a `NodeFlow` for every node between the entry and the loss, oldest first.
        total: ∂L/∂θ (for a whole tensor, its squared norm).
    """

    def __init__(
        self, loss: Tensor, output: Tensor, entry: Tensor, index: Any, direction: Array, nodes: list[NodeFlow]
    ) -> None:
        self.loss = loss
        self.output = output
        self.entry = entry
        self.index = index
        self.direction = direction
        self.nodes = nodes
        self.total: float = nodes[0].total if nodes else 0.0
        self.checked: Entry | None = None

    @property
    def name(self) -> str:
        """What the derivative is taken by, such as `WQ[1,0]`."""
        return entry_label(self.entry.path, self.index) if self.index is not None else self.entry.path

    @property
    def quantity(self) -> str:
        """What `total` is, as text: `∂loss/∂WQ[1,0]`, or `Σ (∂loss/∂WQ)²` for a whole tensor, a sum over its entries."""
        derivative = f"∂{self.output.label}/∂{self.name}"
        return derivative if self.index is not None else f"Σ ({derivative})²"

    def label_of(self, node: Tensor) -> str:
        """The node's label; if another node of the graph has the same, its path, such as `blocks.0.R`."""
        return node.path if self._labels[node.label] > 1 else node.label

    @cached_property
    def _labels(self) -> Counter[str]:
        return Counter(node.label for node in ancestors(self.output))

    def __getitem__(self, name: str) -> NodeFlow:
        """The account of the node called `name`. Raises KeyError with the names there are."""
        node = find(self.output, name)
        for flow in self.nodes:
            if flow.node is node:
                return flow
        raise UnknownName(f"{self.name} does not feed {node.path}, so nothing flows through it.")

    # Cuts

    def cut(self, name: str) -> Cut:
        """The cut just after the node called `name` was made."""
        return self.cut_at(self[name])

    def cut_at(self, flow: NodeFlow) -> Cut:
        """The cut just after this one of `nodes` was made."""
        place = self.nodes.index(flow)
        return self._cut(place, self._passing(place))

    def cuts(self, every: bool = False) -> list[Cut]:
        """The cuts at all named nodes (or at `every` node), from the entry to the loss."""
        return list(self._cuts(every))

    def _cuts(self, every: bool) -> Iterator[Cut]:
        passing: list[EdgeFlow] = []
        for place, flow in enumerate(self.nodes):
            passing = [edge for edge in passing if edge.node.index > flow.node.index]
            if every or flow.node.name:
                yield self._cut(place, passing)
            passing += flow.users

    def _passing(self, place: int) -> list[EdgeFlow]:
        now = self.nodes[place].node.index
        return [edge for older in self.nodes[:place] for edge in older.users if edge.node.index > now]

    def _cut(self, place: int, passing: list[EdgeFlow]) -> Cut:
        here = self.nodes[place]
        parts = [(self.label_of(here.node), here.flow)]
        for edge in passing:
            with quiet():
                flow = _product(edge.contribution, self._tangents[edge.input])
            parts.append((f"{self.label_of(edge.input)} → {self.label_of(edge.node)}", flow))
        cut = Cut(here.node.path, parts, 0.0)
        cut.residual = abs(cut.total - self.total)
        return cut

    @cached_property
    def _tangents(self) -> dict[Tensor, Array]:
        return {flow.node: flow.tangent for flow in self.nodes}

    @cached_property
    def residual(self) -> float:
        """The largest imbalance: at any node between what flows in and out, and at any cut from the total. Rounding only."""
        worst = 0.0
        for flow in self.nodes:
            if flow.node is not self.entry:
                worst = max(worst, abs(fsum(edge.flow for edge in flow.edges) - flow.total))
            if flow.node is not self.output:
                worst = max(worst, abs(fsum(edge.flow for edge in flow.users) - flow.total))
        sums: list[EdgeFlow] = []
        for flow in self.nodes:  # cuts, by the flows along their edges
            sums = [edge for edge in sums if edge.node.index > flow.node.index]
            worst = max(worst, abs(fsum([flow.total, *(edge.flow for edge in sums)]) - self.total))
            sums += flow.users
        return worst

    # Routes

    @cached_property
    def _routes(self) -> Any:
        return entry_routes(self) or node_routes(self)

    def routes(self, k: int = 5) -> list[Route]:
        """The k strongest routes from the entry to the loss, by dynamic programming.

        In a small graph a route goes from number to number, and its value is the product of the local derivatives along it.
        In a large one it goes from node to node, and its value is its share of the flow: total · Π flow(edge) / flow(node).
        Either way the values of all routes sum to the total.
        """
        return list(self._routes.strongest(k))

    @property
    def route_count(self) -> int:
        """The number of routes along which no local derivative is 0, without listing them; see `routes`."""
        return int(self._routes.count)

    # Check

    def check(self) -> Entry:
        """The same derivative by Ridders' differences on the recorded graph, with an error bar and a verdict."""
        from chainrule.autograd.check import check_direction

        self.checked = check_direction(self.output, self.entry, self.direction, self.total)
        return self.checked

    # Telling it

    def __str__(self) -> str:
        from chainrule.autograd.account import account

        return account(self)

    def __repr__(self) -> str:
        return f"<Trace of {self.quantity} = {self.total!r} over {len(self.nodes)} nodes>"

    def to_dict(self) -> dict[str, Any]:
        """The whole account as plain data: names, numbers and lists."""
        return {
            "loss": {"name": self.loss.path, "value": self.loss.data.tolist()},
            "entry": self.name,
            "total": self.total,
            "residual": self.residual,
            "nodes": [
                {
                    "name": flow.node.path,
                    "operation": forward_text(flow.node),
                    "source": str(flow.node.source) if flow.node.source else None,
                    "line": source_text(flow.node.source) or None,
                    "value": flow.value.tolist(),
                    "adjoint": flow.adjoint.tolist(),
                    "tangent": flow.tangent.tolist(),
                    "flow": flow.flow.tolist(),
                    "total": flow.total,
                    "inputs": [
                        {
                            "name": edge.input.path if isinstance(edge.input, Tensor) else None,
                            "rule": edge.rule,
                            "flow": edge.flow,
                            "fed": edge.fed,
                            "contribution": None if edge.contribution is None else edge.contribution.tolist(),
                        }
                        for edge in flow.edges
                    ],
                }
                for flow in self.nodes
            ],
            "cuts": [
                {
                    "name": cut.name,
                    "terms": cut.terms,
                    "total": cut.total,
                    "cancellation": cut.cancellation if cut.cancellation < inf else None,
                    "residual": cut.residual,
                }
                for cut in self.cuts()
            ],
            "routes": [{"path": route.path, "value": route.value} for route in self.routes()],
            "route_count": self.route_count,
            "check": self.checked.to_dict() if self.checked else None,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    if TYPE_CHECKING:  # attached by chainrule.viz, which draws

        def to_svg(self, path: Any = None) -> str: ...

        def to_html(self, path: Any = None) -> str: ...


def trace(loss: Tensor | Value, target: Tensor | Value | str, index: Any = None) -> Trace:
    """The flow ledger of ∂loss/∂target.

    Args:
        loss: a single number. A Value's graph is traced as Tensors of shape (), one for each Value.
        target: one entry, as `WQ[1, 0]` or "WQ[1,0]"; or with `index`; or a whole tensor (or a part, `WQ[1]`), and then the
            direction is its own gradient and the total is the gradient's squared norm.
    Raises:
        ValueError: if the loss is not a single number, or does not depend on the target.
        KeyError: if no node has the name; it lists those there are. IndexError: if the index is out of range.
    """
    if isinstance(loss, Value):
        tensors = as_tensors(loss)
        if isinstance(target, Value):
            if target not in tensors:
                raise ValueError(f"{loss.label} does not depend on {target.label}.")
            target = tensors[target]
        loss = tensors[loss]
    seed = seed_for(loss, None)
    recorded, standing_in = as_recorded(loss)
    output, renewed = opened(recorded, everything=False)
    entry, places = _resolve(loss, output, target, index)
    entry = standing_in.get(entry, entry)
    entry = renewed.get(entry, entry)

    between = fed_by([entry], output)
    order = [node for node in ancestors(output) if node in between]
    if output not in between:
        raise ValueError(f"{loss.path} does not depend on {entry.path}.")
    with quiet():
        steps = {step.node: step for step in chain_rule(output, seed, between)}
    gradient = steps[entry].adjoint if entry in steps else np.zeros(entry.shape, entry.dtype)
    direction = np.zeros(entry.shape, entry.dtype)
    direction.flat[places] = 1 if len(places) == 1 else gradient.flat[places]
    tangents = push_forward(order, {entry: direction})

    flows: dict[Tensor, NodeFlow] = {}
    with quiet():
        for node in order:
            flows[node] = _node_flow(node, entry, steps.get(node), flows, tangents, output)
    single = len(places) == 1
    at = tuple(int(i) for i in np.unravel_index(places[0], entry.shape)) if single else None
    return Trace(loss, output, entry, at, direction, [flows[node] for node in order])


def _node_flow(
    node: Tensor, entry: Tensor, step: Step | None, flows: dict[Tensor, NodeFlow], tangents: dict[Tensor, Any], output: Tensor
) -> NodeFlow:
    """The account of one node, whose inputs in between have theirs already; adds itself to their users."""
    tangent = np.asarray(tangents[node])
    adjoint = np.zeros(node.shape, node.dtype) if step is None else np.asarray(step.adjoint)
    here = NodeFlow(node, adjoint, tangent, _inner_product(adjoint, tangent))
    for position, x in enumerate(node.inputs if node is not entry else ()):
        fed = isinstance(x, Tensor) and x in flows
        contribution = step.contributions[position] if fed and step else None
        if contribution is None:
            flow = 0.0
        elif contribution is flows[x].adjoint:  # its only user's
            flow = flows[x].total
        else:
            flow = _inner_product(contribution, tangents[x])
        edge = EdgeFlow(x, node, position, contribution, flow, fed, output)
        here.edges.append(edge)
        if contribution is not None:
            flows[x].users.append(edge)
    return here


def _inner_product(g: Any, tangent: Any) -> float:
    """Σ g · tangent in float64, with 0 where either is 0 and the other infinite."""
    flat, other = g.reshape(-1), tangent.reshape(-1)
    total = 0.0
    for start in range(0, g.size, 16384):  # few at a time: float64 copies that stay in the cache
        block = slice(start, start + 16384)
        total += float(np.dot(flat[block].astype(np.float64), other[block].astype(np.float64)))
    return total if isfinite(total) else float(_product(g, tangent).sum())


def _product(g: Any, tangent: Any) -> Array:
    """g · tangent in float64, with 0 where either is 0 and the other infinite."""
    product = np.multiply(g, tangent, dtype=np.float64)
    return np.asarray(product if all_finite(product) else np.where((g == 0) | (tangent == 0), 0.0, product))


def _resolve(loss: Tensor, output: Tensor, target: Tensor | Value | str, index: Any) -> tuple[Tensor, Sequence[int]]:
    """The tensor in the graph of `loss` that holds the target, and the flat places of its entries."""
    keys = []
    if isinstance(target, str):
        scalars = [node for node in ancestors(loss) if node.path == target]  # in scalar mode `WQ[1,0]` is a node's whole name
        name, key = (target, None) if len(scalars) == 1 else parse_entry(target)
        try:
            entry = find(loss, name)
        except KeyError:
            entry = find(output, name)  # a name inside attention
        keys += [key] if key is not None else []
    elif isinstance(target, Tensor):
        nodes = set(ancestors(loss))
        entry = target
        while entry not in nodes and entry.primitive is getitem:  # WQ[1, 0] is a new node: follow it to WQ
            keys.insert(0, entry.options["key"])
            entry = entry.inputs[0]
        if entry not in nodes:
            names = ", ".join(node.path for node in ancestors(loss) if node.name)
            raise ValueError(f"{loss.path} does not depend on {target.path}. It depends on: {names or 'nothing with a name'}.")
    else:
        raise TypeError(f"The target is a Tensor, an entry of one, or a name such as 'WQ[1,0]'; got {type(target).__name__}.")
    keys += [frozen_key(index)] if index is not None else []
    places = np.arange(entry.size).reshape(entry.shape)
    for key in keys:
        try:
            places = places[key]
        except IndexError as error:
            raise IndexError(f"{entry.path} has shape {entry.shape}: {error}.") from None
    if places.size == 0:
        raise IndexError(f"The index picks no entry of {entry.path}, of shape {entry.shape}.")
    return entry, [int(place) for place in np.ravel(places)]


def parse_entry(text: str) -> tuple[str, Any]:
    """A name and its index: "blocks.0.attn.WQ[1, 0]" -> ("blocks.0.attn.WQ", (1, 0)); without brackets the index is None.

    The index is written as in NumPy, with integers, slices and ellipsis. Raises ValueError for anything else.
    """
    match = re.fullmatch(r"\s*(.+?)\s*(?:\[([^\]]*)\])?\s*", text)
    if match is None or (match.group(2) is None and text.count("[") > text.count("]")):
        raise ValueError(f"A target is a name, or a name and an index such as WQ[1,0]; got {text!r}.")
    name, inside = match.groups()
    if inside is None:
        return name, None
    key: list[Any] = []
    for part in (part.strip() for part in inside.split(",") if part.strip()):
        if part == "...":
            key.append(Ellipsis)
        elif re.fullmatch(r"[+-]?\d+", part):
            key.append(int(part))
        elif re.fullmatch(r"([+-]?\d+)?\s*:\s*([+-]?\d+)?\s*(:\s*([+-]?\d+)?)?", part):
            key.append(slice(*(int(bound) if bound.strip() else None for bound in part.split(":"))))
        else:
            raise ValueError(f"An index is made of integers and slices, such as [1,0] or [:,2]; got [{inside}] in {text!r}.")
    return name, tuple(key)


__all__ = ["Cut", "EdgeFlow", "NodeFlow", "Route", "Trace", "parse_entry", "trace"]
