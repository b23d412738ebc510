"""DOT laid out as SVG: by `graphviz-pure` if it is installed, else by the system's `dot`. What comes out is sanitised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from chainrule.viz.dot import PALETTE, dot_of, format_number
from chainrule.viz.graph_model import GraphModel, Node

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SECONDS = 20
MEMORY = 4 << 30  # bytes

SVG = "http://www.w3.org/2000/svg"
FONTS = "Helvetica, Arial, 'Liberation Sans', sans-serif"
WHOLE = "<style>svg:root{max-height:100vh}</style>"  # :root if it is not part of a page
ELEMENTS = {"svg", "g", "path", "polygon", "polyline", "ellipse", "text"}
ATTRIBUTES = {
    "class", "cx", "cy", "d", "fill", "fill-opacity", "font-size", "font-style", "font-weight", "height", "id",
    "points", "rx", "ry", "stroke", "stroke-dasharray", "stroke-opacity", "stroke-width", "text-anchor", "text-decoration",
    "transform", "viewBox", "width", "x", "y",
}  # fmt: skip


class LayoutError(RuntimeError):
    """No engine could lay the graph out; the message says what to do."""


def svg_of(model: GraphModel) -> str:
    """The picture of a model as SVG text. Raises LayoutError."""
    root = sanitised(layout(dot_of(model)))
    _align_numbers(root)
    _describe(root, model)
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def fitted(svg: str) -> str:
    """The picture as it is shown: of its own size, but no wider than what it stands in (a notebook's cell, say), and as a
    document of its own whole in the window."""
    return svg.replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1).replace(">", ">\n" + WHOLE, 1)


# Engines


def engines() -> list[str]:
    """The layout programs there are, best first. CHAINRULE_ENGINE=dot or =graphviz-pure in the environment picks one."""
    found = []
    try:
        # The environment's folder of programs may not be on the PATH, but the package knows its files.
        for file in distribution("graphviz-pure").files or []:
            program = Path(str(file.locate()))
            if file.stem == "graphviz-pure" and program.is_file():
                found.append(str(program.resolve()))
    except PackageNotFoundError:
        pass
    if dot := shutil.which("dot"):
        found.append(dot)
    chosen = os.environ.get("CHAINRULE_ENGINE")
    return [engine for engine in found if chosen in (None, "", Path(engine).stem)]


def layout(dot: str) -> bytes:
    """The SVG of a DOT text, from the first engine that completes it.

    Raises LayoutError if there is none, or none completes it within 20 s and 4 GiB.
    """
    found = engines()
    if not found:
        raise LayoutError(
            "Drawing needs a Graphviz engine and none was found. Run `pip install graphviz-pure`, "
            "or install Graphviz so that `dot` is on the PATH. (CHAINRULE_ENGINE, if set, allows one engine only.)"
        )
    for engine in found:
        try:
            svg, error = _run(engine, dot)
        except OSError as failure:
            svg, error = b"", str(failure)
        except subprocess.TimeoutExpired:
            raise LayoutError(
                f"The layout did not finish within {SECONDS} s: the graph has too many nodes or too long edges. "
                'Draw less of it with zoom="module", or .save("graph.dot") and lay it out yourself.'
            ) from None
        if svg.rstrip().endswith(b"</svg>"):  # an engine may exit with 1 and yet be done
            return svg
    raise LayoutError(f"The layout failed; {Path(engine).name} said: {error[-500:].strip() or 'nothing'}")


def _run(engine: str, dot: str) -> tuple[bytes, str]:
    with subprocess.Popen([engine, "-Tsvg"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if resource is not None and hasattr(resource, "prlimit"):  # on Linux
            with suppress(OSError):  # already done, or not allowed
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            svg, error = process.communicate(dot.encode(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return svg, error.decode(errors="replace")


# What comes out


def sanitised(svg: bytes) -> ElementTree.Element:
    """The drawing as a tree of shapes and text alone: no scripts, links, images, styles or event handlers."""
    root = ElementTree.fromstring(svg)
    _keep_allowed(root)
    root.set("font-family", FONTS)
    return root


def _keep_allowed(element: ElementTree.Element) -> None:
    for name, value in list(element.attrib.items()):
        if name not in ATTRIBUTES or (name in ("fill", "stroke") and not re.fullmatch(r"#?\w+", value)):  # a colour, no url(…)
            del element.attrib[name]
    children: list[ElementTree.Element] = []
    for child in element:
        children += _unlinked(child)
    element[:] = [child for child in children if child.tag.removeprefix(f"{{{SVG}}}") in ELEMENTS]
    for child in element:
        _keep_allowed(child)


def _unlinked(element: ElementTree.Element) -> list[ElementTree.Element]:
    """The element, or what is inside it if it is a link."""
    if element.tag != f"{{{SVG}}}a":
        return [element]
    return [inner for child in element for inner in _unlinked(child)]


def _align_numbers(root: ElementTree.Element) -> None:
    """In a node, text on a filled cell ends at the cell's right edge, however wide the reader's font is."""
    for node in root.iter(f"{{{SVG}}}g"):
        for cell, text in pairwise(node if node.get("class") == "node" else []):
            if cell.get("points") and text.get("text-anchor"):
                right = max(float(point.split(",")[0]) for point in cell.get("points", "").split())
                text.set("text-anchor", "end")
                text.set("x", f"{right - 3:.2f}")


def _describe(root: ElementTree.Element, model: GraphModel) -> None:
    """Titles that say what each node and edge is, for screen readers and as tooltips."""
    known = {node.id: node for node in model.nodes}
    titles = {node.id: describe(node) for node in model.nodes}
    for edge in model.edges:
        rules = known[edge.head].rules
        text = rules[edge.position] if edge.position < len(rules) else ""
        flow = f"; flow {format_number(edge.flow)}" if edge.flow is not None else ""
        titles[edge.id] = (text or f"{known[edge.tail].label} → {known[edge.head].label}") + flow
        titles[f"s{edge.id}"] = f"from {known[edge.tail].label}"
    for element in root.iter():
        if (title := titles.get(element.get("id", ""))) is not None:
            made = ElementTree.Element(f"{{{SVG}}}title")
            made.text = title
            element.insert(0, made)
    root.set("role", "img")
    root.set("aria-label", f"Computation graph of {model.title}, {len(model.nodes)} nodes")


def describe(node: Node) -> str:
    """A node in one line, such as `Q = matmul(X, WQ), 2×1`."""
    shape = "×".join(map(str, node.shape)) or "a number"
    if node.kind == "fold":
        return f"{node.label}: {node.operation}, folded"
    return f"{node.forward or node.label}, {shape}"


__all__ = ["PALETTE", "LayoutError", "describe", "engines", "layout", "sanitised", "svg_of"]
