"""A graph model as DOT, the language of Graphviz: a card for each node, a cluster for each module.

All text of the graph is escaped, and nothing in the DOT links to or loads anything.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape

import graphviz  # type: ignore[import-untyped]

from chainrule.viz.graph_model import ArrayView, Edge, GraphModel, Node, Number, Scope

# The page gives each of these colours a dark counterpart, by name.
PALETTE = {
    "paper": "#ffffff",
    "ink": "#1f2933",
    "faint": "#6b7683",
    "line": "#9aa5b1",
    "border": "#c5ced8",
    "card": "#fcfdfe",
    "parameter": "#e6f4ec",
    "output": "#fdf3da",
    "fold": "#e9eef5",
    "scope": "#f5f7f9",
    "scope-border": "#dde3ea",
    "value": "#e8edf2",
    "adjoint": "#ede7f8",
    "adjoint-ink": "#54378f",
    "tangent": "#e2f1f1",
    "tangent-ink": "#1f5f63",
    "flow": "#f1f1ec",
    "zero": "#a9b2bc",
    "positive": "#2563a8",
    "negative": "#c2600f",
}

DETAILED = 80  # nodes up to which the numbers are drawn
DETAILED_NUMBERS = 300  # the same, if each is a single number
GRID = 6  # rows and columns of an array up to which all entries are drawn
LONGEST_NAME = 28
LONG_EDGE = 24  # ranks that an edge may cross before it becomes a named stub
MOST_USERS = 4  # of a leaf, up to which each has an edge to it
MOST_RANKS = 1000  # crossed by all edges together

GAP = "&#160;&#160;&#160;"  # between an edge and its label
NARROW, WIDE = "ijltfr.,:;'|!/()[] ", "mwMW@%#×−…"


def dot_of(model: GraphModel) -> str:
    """The DOT text of a model. Nodes, edges and stubs carry their ids; a stub's is `s` and its edge's id."""
    graph = graphviz.Digraph("graph")
    graph.attr(
        rankdir="TB", nodesep="0.22", ranksep="0.32", fontname="Helvetica", fontsize="11", fontcolor=PALETTE["faint"],
        bgcolor=PALETTE["paper"], margin="0", pad="0.15",
    )  # fmt: skip
    if model.entry or model.hidden:
        graph.attr(labelloc="t", label=_html(_caption(model)))
    graph.attr("node", shape="plain", fontname="Helvetica", fontsize="12", fontcolor=PALETTE["ink"])
    graph.attr("edge", fontname="Helvetica", fontsize="9", arrowsize="0.6", color=PALETTE["line"])
    stubs = long_edges(model)
    labels = {node.id: node.label for node in model.nodes}
    computed = {edge.head for edge in model.edges}
    single = all(not node.shape for node in model.nodes)  # numbers, which take little room
    detailed = len(model.nodes) <= (DETAILED_NUMBERS if single else DETAILED)
    _clusters(graph, model, "", detailed, [edge for edge in model.edges if edge.id in stubs], labels)
    largest = max((abs(edge.flow) for edge in model.edges if isinstance(edge.flow, (int, float))), default=0.0)
    for edge in model.edges:
        tail = f"s{edge.id}" if edge.id in stubs else edge.tail
        weight = "5" if tail in computed else "1"  # so that the main line is straight, leaves and constants beside it
        graph.edge(tail, edge.head, id=edge.id, weight=weight, **_edge_style(edge, largest, model.entry is not None, detailed))
    return str(graph.source)


def _clusters(
    graph: graphviz.Digraph, model: GraphModel, scope: str, detailed: bool, stubs: Sequence[Edge], labels: dict[str, str]
) -> None:
    """The nodes of a scope, with a cluster for each scope inside. A stub stands beside the node that uses it."""
    here = {node.id for node in model.nodes if node.scope == scope}
    for node in model.nodes:
        if node.id in here:
            graph.node(node.id, _html(node_label(node, detailed)), id=node.id)
    for edge in stubs:
        if edge.head in here:
            graph.node(f"s{edge.id}", _html(_stub_label(labels[edge.tail])), id=f"s{edge.id}")
    for i, inner in enumerate(model.scopes):
        if inner.parent == scope:
            with graph.subgraph(name=f"cluster_{i}") as cluster:
                cluster.attr(
                    label=_html(_font(f"<B>{_text(_relative(inner))}</B>", 10, "faint")), labeljust="l", labelloc="t",
                    style="rounded,filled", fillcolor=PALETTE["scope"], color=PALETTE["scope-border"], margin="10",
                )  # fmt: skip
                _clusters(cluster, model, inner.path, detailed, stubs, labels)


def _relative(scope: Scope) -> str:
    return scope.path[len(scope.parent) + 1 :] if scope.parent else scope.path


def _caption(model: GraphModel) -> str:
    rows = ""
    if model.entry:
        rows += _row(_words(f"{model.title} = {format_number(model.entry.total, 7)}", 12, "ink", bold=True, longest=80))
        legend = _words("Edges carry the flow:", 10, "faint")
        legend += _words("blue +", 10, "positive") + _words("orange −", 10, "negative")
        legend += _words("dashed 0.  Flow = ∂L/∂n · tangent.", 10, "faint", longest=80)
        rows += _row(f'<TD><TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2"><TR>{legend}</TR></TABLE></TD>')
    if model.hidden:
        rows += _row(_words(f"{model.size:,} nodes, {model.hidden:,} of them folded away.", 10, "faint", longest=80))
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2">{rows}</TABLE>'


# Ranks and long edges


def ranks(model: GraphModel) -> dict[str, int]:
    """How many ranks each node stands above the end: one more than the highest of its users."""
    users: dict[str, list[str]] = {}
    for edge in model.edges:
        users.setdefault(edge.tail, []).append(edge.head)
    rank: dict[str, int] = {}
    for node in reversed(model.nodes):
        rank[node.id] = 1 + max((rank[head] for head in users.get(node.id, [])), default=-1)
    return rank


def long_edges(model: GraphModel) -> set[str]:
    """The edges to draw as stubs: those that cross many ranks, which take a layout its time, and those from a leaf that
    many nodes use (but for the first of them)."""
    rank = ranks(model)
    span = {edge.id: rank[edge.tail] - rank[edge.head] for edge in model.edges}
    computed = {edge.head for edge in model.edges}
    uses: dict[str, list[Edge]] = {}
    for edge in model.edges:
        uses.setdefault(edge.tail, []).append(edge)
    stubs = {
        edge.id
        for tail, edges in uses.items()
        if tail not in computed and len(edges) > MOST_USERS
        for edge in edges
        if span[edge.id] > 1
    }
    longest = LONG_EDGE
    while sum(length - 1 for id_, length in span.items() if length <= longest and id_ not in stubs) > MOST_RANKS:
        longest //= 2
    return stubs | {id_ for id_, length in span.items() if length > longest}


# Cards


def node_label(node: Node, detailed: bool) -> str:
    """The card of a node as an HTML-like table."""
    if node.kind == "fold":
        rows = _row(_words(node.label, 12, "ink", bold=True)) + _row(_words(node.operation, 9, "faint", longest=60))
        return _card("paper", f"<TR><TD>{_card('fold', rows)}</TD></TR>", padding=0)  # a double border
    fill = {"operation": "card", "output": "output"}.get(node.kind, "parameter")
    fill = fill if node.traced else "paper"
    rows = _header(node, fill) + _grids(node, detailed)
    if node.kind == "constant":
        return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>'
    return _card(fill, rows)


def _card(fill: str, rows: str, padding: int = 4, style: str = "ROUNDED") -> str:
    return (
        f'<TABLE BORDER="1" COLOR="{PALETTE["border"]}" BGCOLOR="{PALETTE[fill]}" STYLE="{style}" CELLBORDER="0" '
        f'CELLSPACING="{0 if padding else 2}" CELLPADDING="{padding}">{rows}</TABLE>'
    )


def _header(node: Node, fill: str) -> str:
    """The name, and at the right the operation and shape in small letters."""
    about = [node.operation] * (node.operation not in ("", node.label.partition("#")[0]))
    about += ["×".join(map(str, node.shape))] * bool(node.shape)
    small = " ".join(about)
    if node.kind == "constant":
        cells = _words(node.label, 10, "faint") + (_words(small, 9, "faint") if small else "")
    else:
        cells = _words(node.label, 12, "ink" if node.traced else "faint", bold=True)
        if small:
            width = text_width(f"  {small}", 9)
            cells += f'<TD ALIGN="RIGHT" WIDTH="{width:.0f}" BGCOLOR="{PALETTE[fill]}">{_font(_text(small), 9, "faint")}</TD>'
    return _row(f'<TD><TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2"><TR>{cells}</TR></TABLE></TD>')


def _grids(node: Node, detailed: bool) -> str:
    """The node's arrays side by side, each under its name."""
    if not detailed or (node.kind == "constant" and not node.shape):  # a single constant's name is its value
        return ""
    columns = [("value", node.value, "value", "ink")]
    if node.kind != "constant" and node.traced:
        columns.append((f"∂L/∂{shortened(node.label, 10)}", node.adjoint, "adjoint", "adjoint-ink"))
    if node.flow:
        columns += [("tangent", node.tangent, "tangent", "tangent-ink"), ("flow", node.flow, "flow", "")]
    names = "" if node.kind == "constant" else _row("".join(_words(f"{name} ", 8, "faint") for name, *_ in columns))
    grids = "".join(f'<TD ALIGN="LEFT" VALIGN="TOP">{_grid(array, fill, ink)}</TD>' for _, array, fill, ink in columns)
    return _row(
        f'<TD ALIGN="LEFT"><TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">{names}{_row(grids)}</TABLE></TD>'
    )


def _grid(array: ArrayView | None, fill: str, ink: str) -> str:
    """An array as a grid of numbers; of a larger one its range and norm. An empty `ink` colours by sign."""
    if array is None:
        rows = [["not computed"]]
    elif array.summary is None:
        rows = [["empty"]]
    elif array.whole and len(array.rows) <= GRID and len(array.rows[0]) <= GRID:
        rows = format_rows(array.rows)
    else:
        least, most, norm = (format_number(array.summary[name], 3) for name in ("min", "max", "norm"))
        rows = [[f"{least} … {most}"], [f"norm {norm}"]]
    width = max(text_width(text, 10) for row in rows for text in row) + 8
    cells = ""
    for row in rows:
        cells += "<TR>"
        for text in row:
            colour = ink or ("negative" if text.startswith("−") else "positive")
            colour = "zero" if text in ("0", "not computed") else colour
            cells += f'<TD BGCOLOR="{PALETTE[fill]}" ALIGN="RIGHT" WIDTH="{width:.0f}">{_font(_text(text), 10, colour)}</TD>'
        cells += "</TR>"
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="2">{cells}</TABLE>'


def _stub_label(label: str) -> str:
    return _card("paper", _row(_words(f"from {label}", 9, "faint")), 2, "ROUNDED,DASHED")


def _edge_style(edge: Edge, largest: float, traced: bool, labelled: bool) -> dict[str, str]:
    flow = edge.flow
    if not traced:
        return {}
    if flow is None:
        return {"color": PALETTE["border"], "arrowsize": "0.5"}
    if not isinstance(flow, (int, float)):
        return {"color": PALETTE["negative"], "style": "dotted", "label": _html(_font(f"{GAP}{flow}", 9, "negative"))}
    if flow == 0:
        style = {"style": "dashed"}
        colour = "zero"
    else:
        style = {"penwidth": f"{1 + 4 * abs(flow) / largest:.2f}"}
        colour = "positive" if flow > 0 else "negative"
    if labelled:
        style["label"] = _html(_font(f"{GAP}{format_number(flow)}", 9, colour))
    return {"color": PALETTE[colour], **style}


# Words and numbers


def text_width(text: str, size: float) -> float:
    """The width of a line in points, on the wide side so that it fits whatever font the reader has.

    Chinese and the like take 1 em a character: engines without such a font would take them for spaces.
    """
    return size * sum(_em(c) for c in text)


def _em(c: str) -> float:
    if unicodedata.east_asian_width(c) in "WF":
        return 1.0
    if unicodedata.combining(c):
        return 0.0
    return 0.42 if c in NARROW else 0.98 if c in WIDE else 0.64


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """Text that is too long, with its middle left out."""
    return text if len(text) <= longest else f"{text[: longest - longest // 3 - 1]}…{text[-(longest // 3) :]}"


def format_number(x: Number, digits: int = 4) -> str:
    """A number in at most `digits` significant digits, with a true minus; True and False as a tick and a dot."""
    if isinstance(x, bool):
        return "✓" if x else "·"
    if isinstance(x, str):
        return {"Infinity": "∞", "-Infinity": "−∞"}.get(x, x)
    if x == int(x) and abs(x) < 10**6:
        return str(int(x)).replace("-", "−")
    return f"{x:.{digits}g}".replace("-", "−")


def format_rows(rows: Sequence[Sequence[Number]]) -> list[list[str]]:
    """The numbers of a grid: whole ones as they are, the others to the same four decimals where that says enough."""
    numbers = [abs(x) for row in rows for x in row if isinstance(x, (int, float)) and x]
    if numbers and min(numbers) >= 1e-2 and max(numbers) < 1e4:
        return [[_fixed(x) if isinstance(x, float) and x != int(x) else format_number(x) for x in row] for row in rows]
    return [[format_number(x, 3) for x in row] for row in rows]


def _fixed(x: float) -> str:
    return f"{x:.4f}".replace("-", "−")


def _words(text: str, size: int, colour: str, bold: bool = False, longest: int = LONGEST_NAME) -> str:
    """A cell wide enough for its text in any font."""
    html = f"<B>{_text(text, longest)}</B>" if bold else _text(text, longest)
    width = text_width(shortened(text, longest), size) * (1.18 if bold else 1)
    return f'<TD ALIGN="LEFT" WIDTH="{width:.0f}">{_font(html, size, colour)}</TD>'


def _row(cells: str) -> str:
    return f"<TR>{cells}</TR>"


def _font(html: str, size: int, colour: str) -> str:
    return f'<FONT POINT-SIZE="{size}" COLOR="{PALETTE[colour]}">{html}</FONT>'


def _text(text: str, longest: int = LONGEST_NAME) -> str:
    """Text for an HTML-like label: shortened, escaped, and with no backslash left to Graphviz's own escapes."""
    return escape(shortened(text, longest)).replace("\\", "\\\\")


def _html(html: str) -> str:
    return f"<{html}>"
