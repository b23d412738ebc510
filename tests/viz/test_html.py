"""The page: one file that loads nothing, runs nothing but its own script, and shows what the model holds."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from chainrule import Tensor, named
from chainrule.autograd import record_sources
from chainrule.autograd.ledger import trace
from chainrule.models import MLP, MLPConfig, WorkedExample
from chainrule.viz import draw, explore
from chainrule.viz.dot import PALETTE

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "{{data}} {{script}}",
    "<!--<script>",
    "javascript:window.hacked=1",
    "&lt;b&gt; \"quoted\" 'name'",
]


class Page(HTMLParser):
    """The elements of a page, and the text inside each script and style."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.current = None
        self.inside = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.current = (tag, dict(attributes).get("type"))

    def handle_endtag(self, tag):
        self.current = None

    def handle_data(self, text):
        if self.current and self.current[0] in ("script", "style"):
            self.inside.setdefault(self.current, []).append(text)

    def text(self, tag, kind=None):
        return "".join(self.inside[tag, kind])


@pytest.fixture(scope="module")
def example():
    return WorkedExample()


@pytest.fixture(scope="module")
def loss(example):
    with record_sources():
        return example()


@pytest.fixture(scope="module")
def account(example, loss):
    return trace(loss, example.E[0, 0])


def hostile_loss():
    y = Tensor([1.0], requires_grad=True, name=HOSTILE[0])
    for name in HOSTILE:
        y = named(name, y * 2.0)
    return np.sum(y)


def data(page):
    return json.loads(page.text("script", "application/json"))


def test_the_page_holds_the_model(account):
    drawing = draw(account)
    assert data(Page(drawing.to_html())) == json.loads(json.dumps(drawing.model.to_dict()))


def test_the_page_loads_nothing(account):
    text = draw(account).to_html()
    page = Page(text)
    assert not {tag for tag, _ in page.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "video",
        "audio",
    }
    loading = {"src", "href", "xlink:href", "srcset", "action", "style", "background"}
    assert all(not loading & set(attributes) for _, attributes in page.elements)
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|eval\(|innerHTML", text)


def test_only_its_own_script_and_style_may_run(account):
    page = Page(draw(account).to_html())
    (policy,) = [attributes["content"] for tag, attributes in page.elements if tag == "meta" and "http-equiv" in attributes]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def quoted_hash(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "style-src": quoted_hash(page.text("style")),
        "script-src": quoted_hash(page.text("script")),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_names_cannot_become_markup():
    drawing = draw(hostile_loss())
    page = Page(drawing.to_html())
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in [tag for tag, _ in page.elements]
    assert "<" not in page.text("script", "application/json")
    assert [node["label"] for node in data(page)["nodes"] if node["kind"] == "leaf"] == [HOSTILE[0]]


def test_every_colour_of_the_picture_has_a_dark_counterpart():
    css = files("chainrule.viz").joinpath("page.css").read_text(encoding="utf-8")
    dark = re.search(r'\[data-theme="dark"\] \{(.*?)\}', css, re.DOTALL)[1]
    assert set(PALETTE) <= set(re.findall(r"--([a-z-]+):", dark))
    assert len(set(PALETTE.values())) == len(PALETTE)  # each is found by its value


def test_a_drawing_is_saved_in_the_format_of_its_name(loss, tmp_path):
    drawing = draw(loss)
    for ending, text in {
        "svg": drawing.to_svg(), "html": drawing.to_html(), "dot": drawing.to_dot(), "json": drawing.to_json(),
    }.items():  # fmt: skip
        drawing.save(tmp_path / f"graph.{ending}")
        assert (tmp_path / f"graph.{ending}").read_text(encoding="utf-8") == text
    with pytest.raises(ValueError, match=r"saved as \.svg, \.html, \.dot, \.json; got 'graph\.png'"):
        drawing.save("graph.png")
    assert repr(drawing) == "<Drawing of loss: 21 boxes; .save('graph.svg') or .save('graph.html')>"


def test_a_trace_draws_itself(account, tmp_path):
    assert account.to_svg() == draw(account).to_svg()
    page = account.to_html(tmp_path / "e.html")
    assert (tmp_path / "e.html").read_text(encoding="utf-8") == page
    assert "<title>∂loss/∂E[0,0] = 1.055387</title>" in page


# In a browser

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.mark.browser
def test_a_large_picture_opens_whole(browser, tmp_path):
    x = Tensor(1.0, requires_grad=True, name="x")
    for _ in range(60):
        x = np.tanh(x)
    draw(x).save(tmp_path / "large.svg")
    page = browser.new_page(viewport={"width": 600, "height": 500})
    page.goto((tmp_path / "large.svg").as_uri())
    boxes = [node.bounding_box() for node in page.query_selector_all("g.node")]
    assert len(boxes) == 61
    assert all(0 <= box["x"] <= box["x"] + box["width"] <= 600 for box in boxes)
    assert all(0 <= box["y"] <= box["y"] + box["height"] <= 500 for box in boxes)
    page.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a drawing's page from a file. At the end nothing may have gone wrong, and nothing have been asked of a network."""
    opened, said, asked = [], [], []

    def open_(drawing, **options):
        drawing.save(tmp_path / "page.html")
        page = browser.new_page(viewport={"width": 1400, "height": 900}, **options)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        opened.append(page)
        return page

    yield open_
    for page in opened:
        page.close()
    assert said == []
    assert asked == [(tmp_path / "page.html").as_uri()] * len(opened)


def node_id(drawing, label):
    return next(node.id for node in drawing.model.nodes if node.label == label)


def tables(page):
    """The tables of the panel by name, as lists of rows of text."""
    return {
        table.get_attribute("aria-label"): [
            [cell.inner_text() for cell in row.query_selector_all("td")] for row in table.query_selector_all("tr:has(td)")
        ]
        for table in page.query_selector_all(".arrays table")
    }


@pytest.mark.browser
class TestBrowser:
    def test_a_click_shows_the_numbers_and_the_rules(self, open_page, loss):
        drawing = draw(loss)
        page = open_page(drawing)
        page.click(f"#{node_id(drawing, 'S')}")
        assert page.inner_text("#node h2") == "S"
        assert tables(page) == {"value": [["0", "0"], ["1", "0"]], "adjoint ∂L/∂S": [["0", "0"], ["0.1336", "−0.1336"]]}
        panel = page.inner_text("#node")
        assert "∂L/∂S = A · (∂L/∂A - Σ A · ∂L/∂A)" in panel
        assert "∂L/∂Q = ∂L/∂S @ K" in panel
        assert 'S = named("S", Q @ K.T)' in panel
        assert page.get_attribute(f"#{node_id(drawing, 'S')}", "class") == "node selected"

    def test_a_name_in_the_panel_leads_to_its_node(self, open_page, loss):
        drawing = draw(loss)
        page = open_page(drawing)
        page.click(f"#{node_id(drawing, 'S')}")
        page.click("#node .link >> text=/^Q$/")
        assert page.inner_text("#node h2") == "Q"

    def test_arrow_keys_walk_the_graph(self, open_page, loss):
        drawing = draw(loss)
        page = open_page(drawing)
        page.click(f"#{node_id(drawing, 'loss')}")
        visited = []
        for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
            visited.append(page.inner_text("#node h2"))
            focused = page.evaluate("document.activeElement.id")
            assert focused == node_id(drawing, visited[-1])
        assert visited == ["logits", "h", "U", "logits", "loss"]

    def test_nodes_have_accessible_names(self, open_page, loss):
        page = open_page(draw(loss))
        assert page.get_by_role("button", name="Q = matmul(X, WQ), 2×1", exact=True).count() == 1

    def test_zoom_and_pan_change_the_view(self, open_page, loss):
        page = open_page(draw(loss))
        width = lambda: page.evaluate("document.querySelector('#graph svg').viewBox.baseVal.width")  # noqa: E731
        left = lambda: page.evaluate("document.querySelector('#graph svg').viewBox.baseVal.x")  # noqa: E731
        start = width()
        page.click("#closer")
        assert width() == pytest.approx(start * 0.8, rel=1e-3)
        page.focus("#graph g.selected")
        page.keyboard.press("-")
        assert width() == pytest.approx(start, rel=1e-3)
        before = left()
        page.mouse.move(100, 500)
        page.mouse.down()
        page.mouse.move(200, 500)
        page.mouse.up()
        assert left() < before
        page.mouse.wheel(0, 100)
        page.wait_for_function(f"document.querySelector('#graph svg').viewBox.baseVal.width > {start * 1.1}")
        page.click("#fit")
        assert width() == pytest.approx(start, rel=1e-3)

    def test_a_drag_that_ends_on_a_node_selects_nothing(self, open_page, loss):
        drawing = draw(loss)
        page = open_page(drawing)
        box = page.locator(f"#{node_id(drawing, 'A')}").bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 60, box["y"] + 40)
        page.mouse.up()
        assert page.inner_text("#node h2") == "loss"

    def test_a_cut_is_a_bar_chart_and_lights_up_in_the_graph(self, open_page, account):
        drawing = draw(account)
        page = open_page(drawing)
        lit = lambda: {group.get_attribute("id") for group in page.query_selector_all("g.node.cut, g.edge.cut")}  # noqa: E731
        page.click(".cut-button:has(b:text-is('logits'))")
        terms = sorted(account.cut("logits").terms, key=lambda term: -abs(term[1]))
        rows = [text for label, value in [*terms, ("Σ", account.total)] for text in (label, f"{value:+.4f}".replace("-", "−"))]
        assert [text for text in page.inner_text(".bars:visible").split("\n") if text.strip()] == rows
        widths = [bar.bounding_box()["width"] for bar in page.query_selector_all(".bars .bar i") if bar.is_visible()]
        assert widths[0] / widths[-1] == pytest.approx(abs(terms[0][1] / account.total), rel=0.02)
        assert lit() == {node_id(drawing, "logits")}
        page.click(".cut-button:has(b:text-is('S'))")
        ends = {(edge.tail, edge.head): edge.id for edge in drawing.model.edges}
        past = [ends[node_id(drawing, tail), node_id(drawing, head)] for tail, head in [("V", "Z"), ("X", "R")]]
        assert lit() == {node_id(drawing, "S"), *past}
        page.click(".cut-button[aria-pressed='true']")
        assert lit() == set()

    def test_a_trace_shows_tangent_flow_and_entry(self, open_page, account):
        drawing = draw(account)
        page = open_page(drawing)
        page.click("#tab-node")
        assert page.inner_text("#node h2") == "E"
        shown = tables(page)
        assert shown["tangent ∂E/∂E[0,0]"] == [["1", "0"], ["0", "0"], ["0", "0"]]
        assert shown["flow = adjoint · tangent, Σ = 1.0554"][0] == ["1.0554", "0"]
        assert {cell.inner_text() for cell in page.query_selector_all("td.entry")} == {"1", "1.0554"}

    def test_names_never_run(self, open_page):
        drawing = draw(hostile_loss())
        page = open_page(drawing)
        for node in drawing.model.nodes:
            page.evaluate("id => select(id)", node.id)
            assert page.inner_text("#node h2") == node.label
        assert page.evaluate("window.hacked") is None

    def test_chinese_names_show(self, open_page):
        x = Tensor([1.0, 2.0], requires_grad=True, name="患者服用华法林后")
        drawing = draw(named("黑便", np.sum(np.tanh(x))))
        page = open_page(drawing)
        page.click(f"#{node_id(drawing, '患者服用华法林后')}")
        assert page.inner_text("#node h2") == "患者服用华法林后"
        card = page.locator(f"#{node_id(drawing, '患者服用华法林后')} path").first.bounding_box()
        name = page.locator(f"#{node_id(drawing, '患者服用华法林后')} text").first.bounding_box()
        assert card["x"] < name["x"] < name["x"] + name["width"] < card["x"] + card["width"]

    def test_text_stays_inside_the_cards(self, open_page, loss):
        page = open_page(draw(loss))
        outside = page.evaluate("""() => [...document.querySelectorAll("#graph g.node")].flatMap((group) => {
            const card = group.querySelector("path")?.getBoundingClientRect();
            return [...group.querySelectorAll("text")].filter((text) => {
              const box = text.getBoundingClientRect();
              return card && (box.left < card.left || box.right > card.right);
            }).map((text) => text.textContent);
          })""")
        assert outside == []

    def test_what_is_not_computed_is_said_to_be_so(self, open_page, loss):
        drawing = draw(loss, adjoints=False)
        page = open_page(drawing)
        page.click(f"#{node_id(drawing, 'S')}")
        assert tables(page)["adjoint ∂L/∂S"] == [["not computed"]]

    def test_light_and_dark(self, open_page, loss):
        drawing = draw(loss)
        page = open_page(drawing, color_scheme="dark")
        paint = "getComputedStyle(document.querySelector('#graph svg polygon')).fill"
        assert page.evaluate(paint) == "rgb(20, 24, 29)"
        page.click("#theme")
        assert page.evaluate(paint) == "rgb(255, 255, 255)"

    def test_a_stub_leads_to_its_node(self, open_page):
        W = Tensor(np.eye(2), requires_grad=True, name="W")
        h = Tensor(np.ones(2))
        for _ in range(8):
            h = np.tanh(h @ W)
        drawing = draw(np.sum(h))
        page = open_page(drawing)
        page.locator("g.node[id^='sn']").last.click()
        assert page.inner_text("#node h2") == "W"

    def test_a_fold_lists_what_it_holds(self, open_page):
        y = Tensor([0.5], requires_grad=True)
        for _ in range(400):
            y = named("step", np.tanh(y))
        drawing = draw(np.sum(y))
        page = open_page(drawing)
        fold = next(node for node in drawing.model.nodes if node.kind == "fold")
        page.click(f"#{fold.id}")
        assert page.inner_text("#node code").endswith("step, and 194 more")
        assert page.inner_text("#about") == "402 nodes, 394 of them folded"

    def test_the_legend_stands_where_nothing_hides_it(self, open_page):
        x = np.linspace(-1, 1, 24).reshape(4, 6)
        model = MLP(MLPConfig((6, 5, 5, 5, 5, 5, 3)))
        for target in ("W1[0,0]", "W1"):
            page = open_page(explore(np.sum(model(x)), target))
            page.set_viewport_size({"width": 1200, "height": 800})
            legend = page.query_selector("#about")
            assert legend.inner_text().endswith("Edges carry the flow, ∂L/∂n · tangent: blue +, orange −, dashed 0")
            box = legend.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 1200
            assert not any(text.is_visible() for text in page.query_selector_all("#graph g.graph > text"))
            assert ("The squared norm of the gradient" in page.inner_text("#cuts")) == (target == "W1")
