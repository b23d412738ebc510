"""A node in words: the rule behind a contribution, as a line of mathematics with the names of this graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainrule.autograd.sources import source_text
from chainrule.autograd.tensor import Tensor, options_of


class _Filled:
    """What stands for {x} in a formula: the name of the input; {x.size} and {x.shape} give its numbers."""

    def __init__(self, x: Any, value: Any) -> None:
        self.text = x.label if isinstance(x, Tensor) else constant_text(value)
        self.size = getattr(value, "size", 1)
        self.shape = getattr(value, "shape", ())

    def __format__(self, spec: str) -> str:
        return self.text


def constant_text(value: Any) -> str:
    """A short text for a constant: a number as it is, an array by its dtype and shape."""
    if getattr(value, "ndim", 0):
        return f"{value.dtype}{list(value.shape)}"
    return f"{value.item() if hasattr(value, 'item') else value:.6g}" if isinstance(value, float) else str(value)


def rule_text(node: Tensor, position: int, output: Tensor | None = None) -> str:
    """The rule for one input of `node`, such as `∂L/∂WQ = Xᵀ @ ∂L/∂Q`.

    Where `node` is `output`, the end of the graph, ∂L/∂output is 1 and is left out: `∂L/∂logits = p - 1[target]`.
    """
    primitive = node.primitive
    if primitive is None or not (formula := primitive.formula(position, options_of(node))):
        return ""
    fields: dict[str, Any] = {key: _option_text(value) for key, value in options_of(node).items()}
    if primitive.variadic:
        fields[primitive.input_names[0]] = _Filled(node.inputs[position], node.values[position])
    else:
        for name, x, value in zip(primitive.input_names, node.inputs, node.values, strict=True):
            fields[name] = _Filled(x, value)
    fields["y"] = _Filled(node, node.data)
    text = formula.format_map(fields)
    if node is output:
        text = text.replace(f" · ∂L/∂{node.label}", "").replace(f"∂L/∂{node.label} · ", "")
        left, equals, right = text.rpartition(" = ")
        if right.lstrip("-") == f"∂L/∂{node.label}":
            text = left + equals + right.replace(f"∂L/∂{node.label}", "1")
    text = text.replace(" / 1", "") if text.endswith(" / 1") else text
    left, equals, right = text.replace("ᵀᵀ", "").partition(" = ")
    if right.startswith("(") and right.find(")") == len(right) - 1:
        right = right[1:-1]
    return left + equals + right


def forward_text(node: Tensor, name: str = "") -> str:
    """The operation that made a node, such as `Q = matmul(X, WQ)`; with `name` in place of its label, if given."""
    name = name or node.label
    if node.primitive is None:
        return f"{name}, a leaf"
    inputs = [
        x.label if isinstance(x, Tensor) else constant_text(value) for x, value in zip(node.inputs, node.values, strict=True)
    ]
    options = [f"{key}={_in_brackets(value)}" for key, value in options_of(node).items()]
    return f"{name} = {node.primitive.name}({', '.join(inputs + options)})"


def printable(text: str) -> str:
    """The text with control characters written out, as they may stand in names."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def entry_label(label: str, index: Sequence[Any]) -> str:
    """`S` and (1, 0) -> `S[1,0]`; a single number has no index. An edge `X → R` gets the index on X."""
    if not len(index):
        return label
    first, arrow, rest = label.partition(" → ")
    return f"{first}[{','.join(str(int(i)) for i in index)}]{arrow}{rest}"


def _in_brackets(value: Any) -> str:
    return f"({_option_text(value)})" if isinstance(value, tuple) and value else _option_text(value)


def _option_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_option_text, value)) if value else "()"
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)[: 2 if value.step is None else 3]
        return ":".join("" if part is None else str(part) for part in parts)
    if value is Ellipsis:
        return "..."
    if getattr(value, "ndim", 0) and value.size <= 6:
        return str(value.tolist())
    return constant_text(value)


__all__ = ["constant_text", "entry_label", "forward_text", "printable", "rule_text", "source_text"]
