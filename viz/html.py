"""The page of a graph: one HTML file with the picture, its numbers and a little script. It works offline and loads nothing."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files

from chainrule.viz.dot import PALETTE, format_number
from chainrule.viz.graph_model import GraphModel


def page_of(model: GraphModel, svg: str) -> str:
    """The page of a model and its picture, as text."""
    template, style, script = (
        files("chainrule.viz").joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    style = palette_css() + style
    title = f"{model.title} = {format_number(model.entry.total, 7)}" if model.entry else f"Computation graph of {model.title}"
    parts = {
        "title": escape(title),
        "style": style,
        "style-hash": csp_hash(style),
        "script": script,
        "script-hash": csp_hash(script),
        "svg": svg,
        "data": data_of(model),
    }
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda found: parts[found[1]], template)


def palette_css() -> str:
    """The colours of the picture as variables, so that the dark theme can replace them."""
    light = "".join(f"--{name}:{colour};" for name, colour in PALETTE.items())
    drawn = "".join(
        f'#graph [{what}="{colour}"]{{{what}:var(--{name})}}' for name, colour in PALETTE.items() for what in ("fill", "stroke")
    )
    return f":root{{{light}}}{drawn}\n"


def csp_hash(text: str) -> str:
    """What the Content-Security-Policy calls this style or script: nothing else may run."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def data_of(model: GraphModel) -> str:
    """The model as JSON that cannot end the script element it stands in."""
    text = json.dumps(model.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
