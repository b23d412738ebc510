"""The picture: what it shows, that every engine shows it, and that no name can do more than be shown."""

import os
import re
import shutil
import stat
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import Tensor, named
from chainrule.autograd import Scope
from chainrule.autograd.ledger import trace
from chainrule.models import WorkedExample
from chainrule.viz import LayoutError, draw, explore, svg
from chainrule.viz.dot import (
    MOST_RANKS,
    PALETTE,
    format_number,
    format_rows,
    long_edges,
    node_label,
    ranks,
    shortened,
    text_width,
)
from chainrule.viz.graph_model import graph_model

G = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=["graphviz-pure", "dot"])
def engine(request, monkeypatch):
    """Each test of a picture runs on both engines, if both are installed."""
    found = {os.path.basename(path).removesuffix(".exe"): path for path in svg.engines()}
    if request.param not in found:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setattr(svg, "engines", lambda: [found[request.param]])


def parse(text):
    root = ElementTree.fromstring(text)
    assert root.tag == f"{G}svg"
    return root


def groups(root):
    """The nodes and edges of a picture by id, and the texts in each."""
    found = {group.get("id"): group for group in root.iter(f"{G}g") if group.get("class", "").split()[:1] != ["graph"]}
    return found, {id_: [text.text for text in group.iter(f"{G}text")] for id_, group in found.items()}


def by_label(model):
    return {node.label: node for node in model.nodes}


# What it shows


def test_the_worked_example_in_pictures(engine):
    drawing = draw(WorkedExample()())
    drawn, texts = groups(parse(drawing.to_svg()))
    nodes = by_label(drawing.model)
    for node in drawing.model.nodes:
        assert node.label in texts[node.id]
    for edge in drawing.model.edges:
        assert drawn[edge.id].find(f"{G}path") is not None
    assert texts[nodes["Q"].id] == ["Q", "matmul 2×1", "value ", "∂L/∂Q ", "0", "1", "0", "0.1336"]
    assert texts[nodes["A"].id][4:] == ["1", "0", "0.7311", "0.2689", "0", "0", "1.2609", "0.5816"]
    assert texts[nodes["mask"].id] == ["mask", "2×2", "✓", "·", "✓", "✓"]
    assert texts[nodes["target = 2"].id] == ["target = 2"]
    assert texts[nodes["loss"].id][4:] == ["2.5419", "1"]
    assert PALETTE["parameter"] in {path.get("fill") for path in drawn[nodes["WQ"].id].iter(f"{G}path")}


def test_what_is_not_computed_is_said_to_be_so(engine):
    drawing = draw(WorkedExample()(), adjoints=False)
    _, texts = groups(parse(drawing.to_svg()))
    nodes = by_label(drawing.model)
    assert texts[nodes["Q"].id] == ["Q", "matmul 2×1", "value ", "∂L/∂Q ", "0", "1", "not computed"]
    assert "not computed" not in texts[nodes["mask"].id]  # a constant has none


def test_edges_of_a_trace_show_the_flow(engine):
    example = WorkedExample()
    drawing = draw(trace(example(), example.E[0, 0]))
    drawn, texts = groups(parse(drawing.to_svg()))
    nodes = by_label(drawing.model)
    edges = {(edge.tail, edge.head): edge for edge in drawing.model.edges}

    def line(tail, head):
        edge = edges[nodes[tail].id, nodes[head].id]
        return drawn[edge.id].find(f"{G}path"), [text.strip() for text in texts[edge.id]]

    thick, label = line("X", "V")
    thin, _ = line("X", "K")
    nothing, zero = line("X", "Q")
    aside, none = line("WQ", "Q")
    assert label == ["0.9218"]
    assert thick.get("stroke") == thin.get("stroke") == PALETTE["positive"]
    assert float(thick.get("stroke-width")) > 2 * float(thin.get("stroke-width"))
    assert nothing.get("stroke-dasharray")
    assert (nothing.get("stroke"), zero) == (PALETTE["zero"], ["0"])
    assert (aside.get("stroke"), none) == (PALETTE["border"], [])
    assert not aside.get("stroke-dasharray")
    title = "".join(text.text for text in parse(drawing.to_svg()).iter(f"{G}text"))
    assert "∂loss/∂E[0,0] = 1.055387" in title


def test_negative_flow_is_orange():
    x = Tensor([1.0], requires_grad=True, name="x")
    drawing = draw(trace(np.sum(-x), x, (0,)))
    drawn, _ = groups(parse(drawing.to_svg()))
    colours = {drawn[edge.id].find(f"{G}path").get("stroke") for edge in drawing.model.edges}
    assert colours == {PALETTE["negative"]}


def test_numbers_end_at_the_right_edge_of_their_cells(engine):
    drawing = draw(WorkedExample()())
    drawn, _ = groups(parse(drawing.to_svg()))
    for id_ in (by_label(drawing.model)[name].id for name in ("Q", "A", "logits")):
        ends = [text for text in drawn[id_].iter(f"{G}text") if text.get("text-anchor") == "end"]
        edges = {
            max(float(point.split(",")[0]) for point in cell.get("points").split()) for cell in drawn[id_].iter(f"{G}polygon")
        }
        assert ends
        assert {round(float(text.get("x")) + 3, 2) for text in ends} == {round(edge, 2) for edge in edges}


def test_modules_are_clusters(engine):
    with Scope("blocks.0"), Scope("attn"):
        y = np.tanh(Tensor([1.0], requires_grad=True))
    root = parse(draw(np.sum(y)).to_svg())
    clusters = [group for group in root.iter(f"{G}g") if group.get("class") == "cluster"]
    assert [text.text for cluster in clusters for text in cluster.iter(f"{G}text")] == ["blocks.0", "attn"]


def test_folds_say_what_they_hide(engine):
    y = Tensor([0.5], requires_grad=True)
    for _ in range(400):
        y = np.tanh(y)
    texts = [text.text for text in parse(draw(np.sum(y)).to_svg()).iter(f"{G}text")]
    assert "394 operations" in texts
    assert "402 nodes, 394 of them folded away." in texts


def test_chinese_names_fit_their_cards(engine):
    name = "患者服用华法林后"
    x = Tensor(1.0, requires_grad=True, name=name)
    drawing = draw(named("出现", np.tanh(x)))
    drawn, texts = groups(parse(drawing.to_svg()))
    card = drawn[by_label(drawing.model)[name].id]
    assert name in texts[card.get("id")]
    xs = [float(x) for x in re.findall(r"(-?[\d.]+),-?[\d.]+", card.find(f"{G}path").get("d"))]
    assert max(xs) - min(xs) > 12 * len(name)  # 12 points a character, whatever fonts the engine has


def test_nodes_and_edges_have_titles_for_screen_readers(engine):
    drawing = draw(WorkedExample()())
    root = parse(drawing.to_svg())
    drawn, _ = groups(root)
    nodes = by_label(drawing.model)
    assert drawn[nodes["Q"].id].find(f"{G}title").text == "Q = matmul(X, WQ), 2×1"
    edge = next(edge for edge in drawing.model.edges if edge.tail == nodes["WQ"].id)
    assert drawn[edge.id].find(f"{G}title").text == "∂L/∂WQ = Xᵀ @ ∂L/∂Q"
    assert root.get("aria-label") == "Computation graph of loss, 21 nodes"


def test_the_same_graph_gives_the_same_picture(engine):
    loss = WorkedExample()()
    assert draw(loss).to_svg() == draw(loss).to_svg()


def test_jupyter_gets_the_picture():
    drawing = draw(WorkedExample()())
    assert drawing._repr_svg_() == drawing.to_svg()


# Long edges


def test_long_edges_become_named_stubs(engine):
    x = Tensor([0.5], requires_grad=True, name="x")
    y = first = named("first", np.tanh(x))
    for _ in range(40):
        y = np.tanh(y)
    drawing = draw(np.sum(y * first))
    (stub,) = long_edges(drawing.model)
    edge = next(edge for edge in drawing.model.edges if edge.id == stub)
    drawn, texts = groups(parse(drawing.to_svg()))
    assert texts[f"s{stub}"] == ["from first"]
    assert drawn[f"s{stub}"].find(f"{G}title").text == "from first"
    assert edge.tail == by_label(drawing.model)["first"].id


def test_a_leaf_that_many_use_has_one_edge_and_stubs():
    W = Tensor(np.eye(2), requires_grad=True, name="W")
    h = Tensor(np.ones(2))
    for _ in range(10):
        h = np.tanh(h @ W)
    model = graph_model(np.sum(h))
    assert len(long_edges(model)) == 9


def test_edges_between_neighbours_are_never_stubs():
    assert long_edges(graph_model(WorkedExample()())) == set()


def test_all_edges_together_cross_few_ranks():
    nodes = [Tensor([0.5], requires_grad=True)]
    for i in range(120):
        nodes.append(np.tanh(nodes[-1]) + nodes[max(0, i - i % 12)])
    model = graph_model(np.sum(nodes[-1]))
    rank, stubs = ranks(model), long_edges(model)
    crossed = sum(rank[edge.tail] - rank[edge.head] - 1 for edge in model.edges if edge.id not in stubs)
    assert 0 < crossed <= MOST_RANKS < sum(rank[edge.tail] - rank[edge.head] - 1 for edge in model.edges)


# Hostile names

HOSTILE = [
    "<script>alert(1)</script>",
    "\"quotes\" 'and' & ampersands <b>bold</b>",
    "line\nbreak\r\ttab",
    "javascript:alert(1)",
    "x" * 10_000,
    "\u202eoverride\u2066",
    "שלום عربى",
    "nul\x00\x01\x1b[31m",
    r"\N \G \E \L \l \\",
    "</TD></TR></TABLE>>];evil[URL=x]",
    "&lt;&#60;&nbsp;&bogus;",
    "]]></svg><svg onload=alert(1)>",
    "\ud800 lone surrogate",
    "\ufffe noncharacter",
    "",
    " ",
    "{a|b} %s {0} $x",
]


def check_harmless(text):
    root = parse(text)
    if "style" in root.attrib:  # what fits the picture to the window is all the style there is
        assert (root.attrib.pop("style"), root[0].text) == ("max-width:100%;height:auto", "svg:root{max-height:100vh}")
        root.remove(root[0])
    for element in root.iter():
        assert element.tag.removeprefix(G) in svg.ELEMENTS | {"title"}
        assert set(element.attrib) <= svg.ATTRIBUTES | {"role", "aria-label", "font-family"}
    return root


def hostile_graph(names):
    y = Tensor([1.0], requires_grad=True, name=names[0])
    for name in names:
        with Scope(name.replace(".", "·")):
            y = named(name, y * 2.0)
    return np.sum(y)


def test_hostile_names_are_only_shown(engine):
    drawing = draw(hostile_graph(HOSTILE))
    root = check_harmless(drawing.to_svg())
    _, texts = groups(root)
    for node in drawing.model.nodes:
        if node.kind == "operation":
            shown = (texts[node.id][0] or "").replace("\xa0", " ")  # engines keep double spaces by no-break spaces
            assert shown.strip() == shortened(node.label).strip()


@given(names=st.lists(st.text(max_size=40), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_any_names_can_be_drawn(names):
    check_harmless(draw(hostile_graph(names)).to_svg())


def test_what_an_engine_might_let_through_is_taken_out():
    bad = f"""<?xml version="1.0"?><svg xmlns="{G[1:-1]}" xmlns:xlink="http://www.w3.org/1999/xlink" onload="alert(1)"
        style="background:url(x)" width="9pt">
      <script>alert(1)</script><style>*{{}}</style><image xlink:href="file:///etc/passwd"/><foreignObject/>
      <g id="a" class="node" onclick="alert(1)">
        <a xlink:href="javascript:alert(1)" href="javascript:alert(1)" xlink:title="tip">
          <a href="x"><text x="1" fill="url(#x)" style="x" font-family="evil">kept</text></a><script/>
        </a>
        <animate attributeName="href" to="javascript:alert(1)"/><use href="#a"/>
      </g></svg>"""
    root = svg.sanitised(bad.encode())
    check_harmless(ElementTree.tostring(root))
    assert [element.tag.removeprefix(G) for element in root.iter()] == ["svg", "g", "text"]
    assert root.find(f".//{G}text").text == "kept"
    assert root.find(f".//{G}text").attrib == {"x": "1"}
    assert root.find(f"{G}g").attrib == {"id": "a", "class": "node"}
    assert root.get("width") == "9pt"


def test_a_picture_fits_what_it_is_shown_in():
    drawing = draw(WorkedExample()())
    text = drawing.to_svg()
    assert drawing._repr_svg_() == text
    assert text.startswith('<svg style="max-width:100%;height:auto" ')  # in a notebook
    assert text.splitlines()[1] == "<style>svg:root{max-height:100vh}</style>"  # as a document of its own
    assert {"viewBox", "width", "height"} <= parse(text).attrib.keys()  # as an <img>, of its own size
    assert "svg:root" not in drawing.to_html()  # the page has its own, and its policy allows no other


# Engines


def program(folder, name, body):
    """An executable Python script that stands for an engine."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="stands on executable scripts")
class TestEngines:
    @pytest.fixture(autouse=True)
    def any_engine(self, monkeypatch):
        monkeypatch.delenv("CHAINRULE_ENGINE", raising=False)

    def test_the_environment_may_pick_one(self, monkeypatch, tmp_path):
        dot = program(tmp_path, "dot", "")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("CHAINRULE_ENGINE", "dot")
        assert svg.engines() == [dot]
        monkeypatch.setenv("CHAINRULE_ENGINE", "none")
        with pytest.raises(LayoutError, match="CHAINRULE_ENGINE, if set"):
            svg.layout("digraph {}")

    def test_the_packaged_engine_is_found_off_the_path(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        assert any("graphviz-pure" in engine for engine in svg.engines())
        assert "</svg>" in draw(WorkedExample()()).to_svg()

    def test_the_system_engine_comes_second(self, tmp_path, monkeypatch):
        dot = program(tmp_path, "dot", "")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert svg.engines()[-1] == dot
        assert shutil.which("dot") == dot

    def test_without_an_engine_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(svg, "engines", list)
        with pytest.raises(LayoutError, match="pip install graphviz-pure"):
            draw(WorkedExample()()).to_svg()

    def test_an_engine_that_never_ends_is_stopped(self, tmp_path, monkeypatch):
        monkeypatch.setattr(svg, "engines", lambda: [program(tmp_path, "slow", "time.sleep(60)")])
        monkeypatch.setattr(svg, "SECONDS", 0.2)
        with pytest.raises(LayoutError, match=r'did not finish within 0\.2 s.*zoom="module"'):
            svg.layout("digraph {}")

    def test_a_complete_picture_counts_whatever_the_exit_code(self, tmp_path, monkeypatch):
        monkeypatch.setattr(svg, "engines", lambda: [program(tmp_path, "grumpy", "print('<svg></svg>'); sys.exit(1)")])
        assert svg.layout("digraph {}") == b"<svg></svg>\n"

    def test_after_a_crash_the_next_engine_is_tried(self, tmp_path, monkeypatch):
        crash = program(tmp_path, "crash", "print('<svg>'); sys.exit('out of ink')")
        good = program(tmp_path, "good", "print('<svg></svg>')")
        monkeypatch.setattr(svg, "engines", lambda: [str(tmp_path / "missing"), crash, good])
        assert svg.layout("digraph {}") == b"<svg></svg>\n"
        monkeypatch.setattr(svg, "engines", lambda: [crash])
        with pytest.raises(LayoutError, match="crash said: out of ink"):
            svg.layout("digraph {}")

    @pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's")
    def test_an_engine_that_eats_memory_is_stopped(self, tmp_path, monkeypatch):
        greedy = program(tmp_path, "greedy", "sys.stdin.read(); x = bytearray(8 << 30); print('<svg></svg>')")
        monkeypatch.setattr(svg, "engines", lambda: [greedy])
        with pytest.raises(LayoutError, match="MemoryError"):
            svg.layout("digraph {}")


# Words and numbers


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-3.0, "−3"), (0.13356231995910944, "0.1336"), (-1.5e-7, "−1.5e−07"), (123456789.0, "1.235e+08"),
        (True, "✓"), (False, "·"), ("NaN", "NaN"), ("-Infinity", "−∞"), (7, "7"), (1e300, "1e+300"),
    ],
)  # fmt: skip
def test_numbers_are_short(number, text):
    assert format_number(number) == text


def test_a_grid_has_one_form():
    assert format_rows([[0.25, 1.0], [-0.5, 0.0]]) == [["0.2500", "1"], ["−0.5000", "0"]]
    assert format_rows([[0.25, 1e-9]]) == [["0.25", "1e−09"]]


def test_long_names_lose_their_middle():
    assert shortened("short") == "short"
    assert shortened("a" * 50 + "b" * 50) == "a" * 18 + "…" + "b" * 9
    assert len(shortened("a" * 100)) == 28


def test_width_counts_wide_characters_as_one_em():
    assert text_width("患者", 10) == 20
    assert text_width("ab", 10) < 20
    assert text_width("e\u0301", 10) == text_width("e", 10)


def test_labels_hold_no_link_and_load_nothing():
    for node in graph_model(hostile_graph(HOSTILE)).nodes:
        label = node_label(node, True)
        tags = set(re.findall(r"</?([A-Za-z]+)", label))
        assert tags <= {"TABLE", "TR", "TD", "FONT", "B"}
        assert not re.search(r"<[^>]*(HREF|SRC|URL|IMG)\s*=", label, re.IGNORECASE)


def test_explore_draws_a_trace():
    model = WorkedExample()
    drawing = explore(model(), model.WQ[1, 0])
    assert drawing.model.entry is not None
    assert "0.1336" in drawing.to_svg()
