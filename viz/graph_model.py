"""What a drawing shows of a graph, as plain data: boxes, edges, modules, and the numbers in them.

The picture, the page and anything else that draws read this one model. `to_dict` gives it as plain data for JSON. What was not
computed is None, never 0.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from chainrule.autograd.describe import constant_text, forward_text, rule_text, source_text
from chainrule.autograd.graph import ancestors, as_recorded
from chainrule.autograd.ledger import EdgeFlow, Trace
from chainrule.autograd.reverse import backward_steps, quiet, seed_for
from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import Source, Tensor, value_of
from chainrule.nn import Parameter
from chainrule.viz.folding import Group, constants, fold, modules, prefixes

Number = float | int | bool | str  # "NaN", "Infinity" and "-Infinity" are text, since JSON has no such numbers

WHOLE = 64  # entries up to which an array is kept whole
CORNER = 6  # rows and columns kept of a larger one
MOST_BOXES = 300
MOST_MEMBERS = 200  # of a fold, listed by name
MOST_TERMS = 24  # of a cut


@dataclass
class ArrayView:
    """An array as a drawing shows it.

    Attributes:
        rows: the entries, in rows along the last axis; of an array of more than 64 entries only a corner.
        whole: whether these are all.
        summary: min, max, mean and norm of all entries; None if there are none.
    """

    shape: tuple[int, ...]
    dtype: str
    rows: list[list[Number]]
    whole: bool
    summary: dict[str, Number] | None


@dataclass
class SourceLine:
    """The line of code that made a node. `file` is its name without the folder."""

    file: str
    line: int
    function: str
    text: str


@dataclass
class Node:
    """One box.

    Attributes:
        kind: "parameter", "leaf" (a variable), "constant", "operation", "output" or "fold" (several nodes in one box).
        value, adjoint, tangent, flow: arrays; None if not computed. The last two come with a trace.
        total: Σ flow.
        traced: with a trace, whether the entry feeds this node; else True.
        forward: the operation as text, such as `Q = matmul(X, WQ)`.
        rules: for each input, the rule of its contribution, such as `∂L/∂WQ = Xᵀ @ ∂L/∂Q`; "" where there is none.
        hidden, members: of a fold, how many nodes it holds and the names of the first of them.
    """

    id: str
    label: str
    path: str
    scope: str
    kind: str
    operation: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    value: ArrayView | None = None
    adjoint: ArrayView | None = None
    tangent: ArrayView | None = None
    flow: ArrayView | None = None
    total: Number | None = None
    traced: bool = True
    forward: str = ""
    rules: list[str] = field(default_factory=list)
    source: SourceLine | None = None
    hidden: int = 0
    members: list[str] = field(default_factory=list)


@dataclass
class Edge:
    """From an input (`tail`) to the node that uses it (`head`), at this position among the head's inputs.

    Attributes:
        contribution: what the head adds to the tail's adjoint; None if not computed, or if either end is a fold.
        flow: how much of the derivative comes along; None where the entry does not feed the tail, or without a trace.
    """

    id: str
    tail: str
    head: str
    position: int
    contribution: ArrayView | None = None
    flow: Number | None = None


@dataclass
class Scope:
    """A module: its dotted path, and the path of the module around it ("" for none)."""

    path: str
    parent: str


@dataclass
class CutView:
    """A cut of a trace: its strongest terms (the others summed as `rest`), and the nodes and edges that it cuts."""

    name: str
    terms: list[tuple[str, Number]]
    rest: Number
    more: int
    total: Number
    cancellation: Number
    residual: Number
    nodes: list[str]
    edges: list[str]


@dataclass
class Entry:
    """What a trace accounts for: ∂loss/∂name = total. `index` is None for a whole tensor."""

    node: str
    name: str
    index: tuple[int, ...] | None
    total: Number
    residual: Number


@dataclass
class GraphModel:
    """Everything a drawing shows. Nodes stand in an order in which inputs come before their users."""

    title: str
    output: str
    nodes: list[Node]
    edges: list[Edge]
    scopes: list[Scope]
    size: int  # nodes of the graph, constants not counted
    hidden: int  # of these, inside folds
    entry: Entry | None = None
    cuts: list[CutView] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: dictionaries, lists, text and finite numbers."""
        return asdict(self)


def graph_model(
    loss: Tensor | None,
    *,
    adjoints: bool = True,
    trace: Trace | None = None,
    zoom: str = "tensor",
    limit: int | None = MOST_BOXES,
) -> GraphModel:
    """The model of a graph, or of the part of it that a trace accounts for.

    Args:
        loss: the end of the graph; not needed with a trace.
        adjoints: compute ∂loss/∂node for every node, touching no `.grad`. If loss is not a single number they stay unknown.
        trace: show the nodes between its entry and its loss, with tangents and flows, and what else these use.
        zoom: "tensor", one box an operation; "module", one box for each innermost module.
        limit: fold further until there are at most so many boxes; None for no limit.
    Raises:
        TypeError: if loss is not a Tensor. ValueError: if it does not require a gradient, or zoom has another value.
    """
    if zoom not in ("tensor", "module"):
        raise ValueError(f'zoom is "tensor" or "module" (and "scalar" for a loss, in draw); got {zoom!r}.')
    output = trace.output if trace else loss
    if not isinstance(output, Tensor):
        raise TypeError(f"A drawing starts from a Tensor or a Trace; got {type(output).__name__}.")
    if not output.requires_grad:
        seed_for(output, None)  # raises, and says what to do
    if trace is None:
        output, _ = as_recorded(output)  # leaves may have been updated since
    return _Builder(output, trace, zoom, limit).build(adjoints and output.size == 1)


class _Builder:
    """The boxes, found first, and then the numbers in them."""

    def __init__(self, output: Tensor, trace: Trace | None, zoom: str, limit: int | None) -> None:
        self.output = output
        self.trace = trace
        self.flows = {flow.node: flow for flow in trace.nodes} if trace else {}
        self.edge_flows = {
            (edge.node, edge.position): edge.flow for flow in self.flows.values() for edge in flow.edges if edge.fed
        }
        nodes = ancestors(output)
        if trace:
            beside = {x for node in self.flows.keys() - {trace.entry} for x in node.inputs if tracked(x)} - self.flows.keys()
            nodes = [node for node in nodes if node in self.flows or node in beside]
        keep = {output, trace.entry} if trace else {output}
        self.size = len(nodes)
        self.modules = modules({node.scope for node in nodes})
        self.groups = fold(nodes, zoom, limit, keep)
        self.id_of = {node: _id(group) for group in self.groups for node in group.members}
        self.single = {group.members[0] for group in self.groups if not group.folded}
        self.adjoints: dict[Tensor, ArrayView] = {}
        self.contributions: dict[tuple[Tensor, int], ArrayView] = {}

    def build(self, adjoints: bool) -> GraphModel:
        if adjoints:
            self.walk_back()
        nodes: list[Node] = []
        edges: dict[str, Edge] = {}
        for group in self.groups:
            if group.folded:
                nodes.append(self.fold_node(group))
            else:
                node = group.members[0]
                if self.is_drawn_with_inputs(node):
                    nodes += [self.constant(node, i, x) for i, x in constants(node).items()]
                nodes.append(self.node(node))
            for edge in self.edges_into(group):
                if (known := edges.get(edge.id)) is None:
                    edges[edge.id] = edge
                elif isinstance(edge.flow, float) and isinstance(known.flow, (float, type(None))):
                    known.flow = edge.flow + (known.flow or 0.0)  # several edges between the same two boxes
        title = self.trace.quantity if self.trace else self.output.path
        model = GraphModel(
            title=clean(title),
            output=self.id_of[self.output],
            nodes=_in_order(nodes, list(edges.values())),
            edges=list(edges.values()),
            scopes=_scopes(nodes, {clean(path) for path in self.modules}),
            size=self.size,
            hidden=sum(len(group.members) for group in self.groups if group.folded),
        )
        if self.trace:
            model.entry = Entry(
                node=self.id_of[self.trace.entry],
                name=clean(self.trace.name),
                index=self.trace.index,
                total=number(self.trace.total),
                residual=number(self.trace.residual),
            )
            model.cuts = self.cuts(self.trace)
        return model

    def walk_back(self) -> None:
        """Views of the adjoints and contributions of all nodes drawn singly, by the chain-rule loop."""
        for step in backward_steps(self.output):
            if step.node in self.single:
                self.adjoints[step.node] = view(step.adjoint)
                for i, contribution in enumerate(step.contributions):
                    if contribution is not None and step.node.inputs[i] in self.single:
                        self.contributions[step.node, i] = view(contribution)

    def is_drawn_with_inputs(self, node: Tensor) -> bool:
        return not self.trace or (node in self.flows and node is not self.trace.entry)

    def node(self, node: Tensor) -> Node:
        flow = self.flows.get(node)
        if node is self.output:
            kind = "output"
        elif node.primitive is not None:
            kind = "operation"
        else:
            kind = "parameter" if isinstance(node, Parameter) else "leaf"
        return Node(
            id=self.id_of[node],
            label=clean(node.label),
            path=clean(node.path),
            scope=self.module(node.scope),
            kind=kind,
            operation=node.primitive.name if node.primitive else "",
            shape=node.shape,
            dtype=str(node.dtype),
            value=view(node.data),
            adjoint=self.adjoints.get(node),
            tangent=view(flow.tangent) if flow else None,
            flow=view(flow.flow) if flow else None,
            total=number(flow.total) if flow else None,
            traced=flow is not None or self.trace is None,
            forward=clean(forward_text(node)),
            rules=[
                clean(rule_text(node, i, self.output)) if tracked(x) and x in self.single else ""
                for i, x in enumerate(node.inputs)
            ],
            source=_source_line(node.source),
        )

    def constant(self, user: Tensor, position: int, x: Any) -> Node:
        """The node of a constant. Each user has its own copy, beside it."""
        assert user.primitive is not None
        value = user.values[position]
        is_array = isinstance(value, (np.ndarray, np.generic, bool, int, float))
        role = user.primitive.input_name(position)
        role = role if len(role) > 1 and not user.primitive.variadic else ""
        if isinstance(x, Tensor) and x.name:
            label = x.name
        elif np.ndim(value) == 0:
            label = f"{role} = {constant_text(value)}" if role else constant_text(value)
        else:
            label = role or "constant"
        return Node(
            id=f"{self.id_of[user]}c{position}",
            label=clean(label),
            path=clean(label),
            scope=self.module(user.scope),
            kind="constant",
            shape=np.shape(value),
            dtype=str(np.asarray(value).dtype) if is_array else type(value).__name__,
            value=view(value) if is_array else None,
            traced=False,
        )

    def fold_node(self, group: Group) -> Node:
        last = group.members[-1]
        scope = self.module(group.scope)
        label = group.label.removeprefix(f"{scope}.") if group.module else group.label
        operations = sum(node.primitive is not None for node in group.members)
        parameters = sum(isinstance(node, Parameter) for node in group.members)
        counts = {"operation": operations, "parameter": parameters, "leaf": len(group.members) - operations - parameters}
        return Node(
            id=_id(group),
            label=clean(label),
            path=clean(group.label),
            scope=scope,
            kind="fold",
            operation=", ".join(_many(count, noun) for noun, count in counts.items() if count),
            shape=last.shape if operations else (),
            dtype=str(last.dtype) if operations else "",
            traced=not self.trace or any(node in self.flows for node in group.members),
            hidden=len(group.members),
            members=[clean(node.path) for node in group.members[:MOST_MEMBERS]],
        )

    def module(self, scope: str) -> str:
        """The innermost module around a scope; "" if there is none."""
        return next((clean(path) for path in reversed(prefixes(scope)) if path in self.modules), "")

    def edges_into(self, group: Group) -> list[Edge]:
        head = _id(group)
        edges = []
        for node in group.members:
            if not self.is_drawn_with_inputs(node):
                continue
            drawn = {} if group.folded else constants(node)
            for i, x in enumerate(node.inputs):
                if i in drawn:
                    edges.append(Edge(f"{head}-{i}", f"{head}c{i}", head, i))
                elif tracked(x) and x in self.id_of and self.id_of[x] != head:
                    tail = self.id_of[x]
                    merged = group.folded or x not in self.single
                    flow = self.edge_flows.get((node, i))
                    edges.append(
                        Edge(
                            id=f"{head}-{tail}" if merged else f"{head}-{i}",
                            tail=tail,
                            head=head,
                            position=i,
                            contribution=self.contributions.get((node, i)),
                            flow=None if flow is None else number(flow),
                        )
                    )
        return edges

    def cuts(self, trace: Trace) -> list[CutView]:
        """The cuts at the named nodes, with the boxes and edges that each goes through."""
        passing: list[EdgeFlow] = []
        through: list[list[EdgeFlow]] = []
        for flow in trace.nodes:
            passing = [edge for edge in passing if edge.node.index > flow.node.index]
            if flow.node.name:
                through.append(passing)
            passing = passing + flow.users
        named = [flow.node for flow in trace.nodes if flow.node.name]
        cuts = []
        for cut, node, past in zip(trace.cuts(), named, through, strict=True):
            terms = sorted(cut.terms, key=lambda term: -abs(term[1]))
            shown, rest = terms[:MOST_TERMS], terms[MOST_TERMS:]
            cuts.append(
                CutView(
                    name=clean(cut.name),
                    terms=[(clean(label), number(value)) for label, value in shown],
                    rest=number(sum(value for _, value in rest)),
                    more=len(rest),
                    total=number(cut.total),
                    cancellation=number(cut.cancellation),
                    residual=number(cut.residual),
                    nodes=[self.id_of[node]],
                    edges=sorted({self.edge_id(edge) for edge in past} - {""}),
                )
            )
        return cuts

    def edge_id(self, edge: EdgeFlow) -> str:
        """The id of the drawn edge; "" if it is inside a fold."""
        head, tail = self.id_of[edge.node], self.id_of[edge.input]
        if head == tail:
            return ""
        single = edge.node in self.single and edge.input in self.single
        return f"{head}-{edge.position}" if single else f"{head}-{tail}"


# Parts


def view(array: Any) -> ArrayView:
    """An array of numbers, or a number, as a drawing shows it."""
    array = np.asarray(value_of(array))
    whole = array.size <= WHOLE
    if array.size:
        rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
        shown = rows if whole else rows[:CORNER, :CORNER]
    else:
        shown = np.empty((0, 0))
    summary = None
    if array.size:
        with quiet():
            entries = array.astype(np.float64, copy=False)
            norm = np.sqrt(np.vdot(entries, entries))
            found = {"min": entries.min(), "max": entries.max(), "mean": entries.mean(), "norm": norm}
        summary = {name: number(x) for name, x in found.items()}
    return ArrayView(array.shape, str(array.dtype), [[number(x) for x in row] for row in shown.tolist()], whole, summary)


def number(x: Any) -> Number:
    """A number for JSON: itself, or its name if it is not finite."""
    if isinstance(x, (bool, int)):
        return x
    x = float(x)
    return x if isfinite(x) else "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"


def clean(text: str) -> str:
    """Text that can be shown anywhere: white space as a space; control and direction characters as `�`."""
    return "".join(" " if c.isspace() else "�" if _is_unprintable(c) else c for c in text)


def _is_unprintable(c: str) -> bool:
    turns = "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"  # the direction of the text after it
    return turns or c in "\ufffe\uffff" or unicodedata.category(c) in ("Cc", "Cs")


def _id(group: Group) -> str:
    return f"{'f' if group.folded else 'n'}{group.members[-1].index}"


def _many(count: int, noun: str) -> str:
    plural = {"leaf": "leaves"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"


def _source_line(source: Source | None) -> SourceLine | None:
    if source is None:
        return None
    return SourceLine(clean(os.path.basename(source.file)), source.line, clean(source.function), clean(source_text(source)))


def _scopes(nodes: Sequence[Node], paths: set[str]) -> list[Scope]:
    """The modules around the nodes, each after the one around it."""
    shown = sorted({path for node in nodes for path in prefixes(node.scope) if path in paths})
    around = {path: [outer for outer in prefixes(path)[:-1] if outer in paths] for path in shown}
    return [Scope(path, outer[-1] if outer else "") for path, outer in around.items()]


def _in_order(nodes: list[Node], edges: list[Edge]) -> list[Node]:
    """The nodes with inputs before their users, otherwise as they stand."""
    by_id = {node.id: node for node in nodes}
    waiting = dict.fromkeys(by_id, 0)
    users: dict[str, list[str]] = {}
    for edge in edges:
        waiting[edge.head] += 1
        users.setdefault(edge.tail, []).append(edge.head)
    ready = [id_ for id_ in reversed(by_id) if not waiting[id_]]
    order: list[Node] = []
    while ready:
        id_ = ready.pop()
        order.append(by_id[id_])
        for user in reversed(users.get(id_, [])):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return order
