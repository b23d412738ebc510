"""`draw`: a graph, or a trace of one gradient, as a picture, a page, DOT or plain data."""

from __future__ import annotations

import json
from functools import cached_property
from math import isqrt, prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.autograd.graph import ancestors, as_recorded, opened
from chainrule.autograd.ledger import Trace, trace
from chainrule.autograd.scalar import as_graph, scalar_graph
from chainrule.autograd.tensor import Tensor
from chainrule.autograd.value import Value
from chainrule.autograd.value import ancestors as value_ancestors
from chainrule.viz.dot import dot_of
from chainrule.viz.graph_model import GraphModel, graph_model
from chainrule.viz.html import page_of
from chainrule.viz.svg import fitted, svg_of

FilePath = str | PathLike[str]

MOST_NUMBERS = 100_000  # nodes of a graph drawn number by number: ten seconds
PRODUCTS = {"matmul", "einsum", "tensordot", "convolve"}


class Drawing:
    """A graph, ready to be shown. Jupyter displays it; `save` writes it to a file. Made by `draw`.

    Attributes:
        model: what it shows, as plain data.
    """

    def __init__(self, model: GraphModel) -> None:
        self.model = model

    @cached_property
    def _svg(self) -> str:
        return svg_of(self.model)

    def to_svg(self, path: FilePath | None = None) -> str:
        """The picture as SVG; also written to `path` if given. Raises LayoutError if no Graphviz engine can lay it out."""
        return _written(fitted(self._svg), path)

    def to_html(self, path: FilePath | None = None) -> str:
        """The page: one file that works offline; also written to `path` if given. Raises LayoutError like `to_svg`."""
        return _written(page_of(self.model, self._svg), path)

    def to_dot(self, path: FilePath | None = None) -> str:
        """The graph in Graphviz's language, not laid out; also written to `path` if given."""
        return _written(dot_of(self.model), path)

    def to_json(self, path: FilePath | None = None) -> str:
        """The model as JSON; also written to `path` if given."""
        return _written(json.dumps(self.model.to_dict(), ensure_ascii=False, allow_nan=False, indent=1), path)

    def save(self, path: FilePath) -> None:
        """Write to a file, in the format that its name ends with: .svg, .html, .dot or .json.

        Raises ValueError for another ending.
        """
        formats = {".svg": self.to_svg, ".html": self.to_html, ".dot": self.to_dot, ".json": self.to_json}
        ending = Path(path).suffix.lower()
        if ending not in formats:
            raise ValueError(f"A drawing is saved as {', '.join(formats)}; got {str(path)!r}.")
        formats[ending](path)

    def _repr_svg_(self) -> str:
        return fitted(self._svg)

    def __repr__(self) -> str:
        return f"<Drawing of {self.model.title}: {len(self.model.nodes)} boxes; .save('graph.svg') or .save('graph.html')>"


def draw(loss: Tensor | Value | Trace, *, zoom: str = "tensor", adjoints: bool = True) -> Drawing:
    """Draw the graph of a loss, with values and gradients; or a trace, with how much of one gradient comes along each edge.

    Args:
        loss: a Tensor, or what `trace` returned.
        zoom: "tensor", one box an operation; "module", one box for each innermost module; "scalar", one box a number (of
            a small model, 100,000 numbers at most). Beyond 300 boxes modules, then chains are folded further, and the
            drawing says how many nodes are hidden.
        adjoints: compute ∂loss/∂node for every node (no `.grad` is touched). Of a loss that is not a single number they are
            shown as not computed.
    Raises:
        TypeError: for anything else than a Tensor or a Trace. ValueError: if it does not require a gradient, or has too many
            numbers for zoom="scalar".
    """
    if zoom == "scalar" and isinstance(loss, Tensor):
        _check_size(number_count(loss))
        loss, zoom = scalar_graph(loss), "tensor"  # each number is a tensor of its own
    if isinstance(loss, Value):
        _check_size(len(value_ancestors(loss)))
        loss = as_graph(loss)
    if isinstance(loss, Trace):
        return Drawing(graph_model(None, trace=loss, zoom=zoom, adjoints=adjoints))
    return Drawing(graph_model(loss, zoom=zoom, adjoints=adjoints))


def number_count(loss: Tensor) -> int:
    """About how many nodes the graph of a loss has number by number: products and sums of matrices are counted singly."""
    output, _ = opened(as_recorded(loss)[0])
    count = 0
    for node in ancestors(output):
        sizes = [np.size(value) for value in node.values]
        if node.primitive is None or node.primitive.name not in PRODUCTS:
            count += max([node.size, *sizes])
        elif node.primitive.name == "matmul":
            count += 2 * node.size * np.shape(node.values[0])[-1]
        else:
            count += 2 * isqrt(prod([node.size, *sizes]))  # as for matrices: (n k) (k m) (n m) = (n k m)²
    return count


def _check_size(count: int) -> None:
    if count > MOST_NUMBERS:
        raise ValueError(
            f"Number by number this graph has about {count:,} nodes, and a drawing takes {MOST_NUMBERS:,} at most. Draw "
            'the loss of a smaller model or of fewer rows of data; or all of it with zoom="tensor" or "module".'
        )


def explore(loss: Tensor | Value, target: Any, index: Any = None) -> Drawing:
    """Draw the trace of one gradient: `draw(trace(loss, target, index))`. Its page has every cut and every node's numbers."""
    return draw(trace(loss, target, index))


def _written(text: str, path: FilePath | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    return text


# A trace draws itself: `trace(loss, WQ[1, 0]).to_svg("wq.svg")`.


def _trace_to_svg(self: Trace, path: FilePath | None = None) -> str:
    """`draw(self).to_svg(path)`."""
    return draw(self).to_svg(path)


def _trace_to_html(self: Trace, path: FilePath | None = None) -> str:
    """`draw(self).to_html(path)`."""
    return draw(self).to_html(path)


Trace.to_svg = _trace_to_svg  # type: ignore[method-assign]
Trace.to_html = _trace_to_html  # type: ignore[method-assign]
