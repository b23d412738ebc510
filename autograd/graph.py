"""Questions about a recorded graph: its nodes in order, a node by name, the graph with its fused nodes opened, a replay."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any

from chainrule.autograd.modes import MODE, Mode, mode_set_to
from chainrule.autograd.tensor import Tensor, creation_order, options_of

_new_tensor = Tensor.__new__


def ancestors(output: Tensor, until: Collection[Tensor] = ()) -> list[Tensor]:
    """Every node that gradients from `output` reach, itself included, oldest first: a topological order.

    Those in `until` are included, but what lies behind them is not looked at.
    """
    seen = {output}
    unread = [output]
    while unread:
        for x in unread.pop().inputs:
            if isinstance(x, Tensor) and x.requires_grad and x not in seen:
                seen.add(x)
                if x not in until:
                    unread.append(x)
    return sorted(seen, key=attrgetter("index"))


def fed_by(sources: Iterable[Tensor], output: Tensor) -> set[Tensor]:
    """The nodes between: the sources, and what depends on any of them in the graph of `output`."""
    fed = set(sources)
    for node in ancestors(output):
        if any(isinstance(x, Tensor) and x in fed for x in node.inputs):
            fed.add(node)
    return fed


class UnknownName(KeyError):
    """No node, or not just one, has the name; the message says which names there are."""

    def __str__(self) -> str:  # a KeyError would show the message in quotes
        return str(self.args[0])


def find(output: Tensor, name: str) -> Tensor:
    """The node of the graph of `output` called `name`: a full path, or the end of just one.

    Raises KeyError with the names there are, if none or several fit.
    """
    nodes = ancestors(output)
    fitting = [node for node in nodes if node.path == name] or [
        node for node in nodes if node.label == name or node.path.endswith("." + name)
    ]
    if len(fitting) == 1:
        return fitting[0]
    paths = [node.path for node in nodes if node.name]
    if fitting:
        raise UnknownName(f"{name!r} is the name of {len(fitting)} nodes: {', '.join(n.path for n in fitting[:20])}.")
    folded = {path.casefold(): path for path in paths}
    close = [folded[path] for path in difflib.get_close_matches(name.casefold(), folded, n=3)]
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    shown = ", ".join(paths[:40]) + (f", and {len(paths) - 40} more" if len(paths) > 40 else "")
    raise UnknownName(f"No node is called {name!r}.{hint} The names are: {shown or '(none)'}.")


def as_recorded(output: Tensor) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The same graph with the values it was computed from, also if leaves have been given new data since.

    Returns:
        the output, and for each leaf that has changed (by an optimiser's step, say) the leaf that stands in for it.
    Raises:
        ValueError: if a leaf changed between two of its uses, so that the graph is no function of its leaves.
    """
    held: dict[Tensor, Any] = {}
    for node in ancestors(output):
        for x, value in zip(node.inputs, node.values, strict=True):
            if isinstance(x, Tensor) and x.requires_grad and x.is_leaf and held.setdefault(x, value) is not value:
                raise ValueError(f"{x.path} was given new data while {output.path} was being computed. Compute it again.")
    standing_in = {}
    for x, value in held.items():
        if value is not x._array:
            twin = Tensor(value, requires_grad=True, name=x.name)
            twin._array, twin.scope = value, x.scope  # the very array that the graph holds
            standing_in[x] = twin
    return (substituted(output, standing_in) if standing_in else output), standing_in


def opened(output: Tensor, everything: bool = True) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The same graph with its fused nodes replaced by their definitions, node by node.

    Args:
        everything: open all fused nodes, and those inside them; else only those whose definition names nodes worth seeing
            (attention's S and A).
    Returns:
        the output in the new graph, and for each node that had to be made anew, the new one. Leaves stay the same objects.
    Raises:
        ValueError: if a leaf has been given new data since the graph was computed: its definitions would use that.
    """
    changed = as_recorded(output)[1]
    if changed:
        names = ", ".join(leaf.path for leaf in changed)
        raise ValueError(
            f"{names} changed after {output.path} was computed (by optimizer.step()?), so it cannot be differentiated at the "
            "values it was computed from. Compute it again first."
        )
    renewed: dict[Tensor, Tensor] = {}
    for node in ancestors(output):
        primitive = node.primitive
        if primitive is None:
            continue
        open_it = primitive.definition is not None and (everything or primitive.named_inside)
        if open_it or any(isinstance(x, Tensor) and x in renewed for x in node.inputs):
            inputs = tuple(renewed.get(x, x) if isinstance(x, Tensor) else x for x in node.inputs)
            renewed[node] = _from_definition(node, inputs, everything) if open_it else _with_inputs(node, inputs)
    return renewed.get(output, output), renewed


def _from_definition(node: Tensor, inputs: tuple[Any, ...], everything: bool) -> Tensor:
    """The node computed anew by its primitive's definition, in the node's scope and at its source line."""
    assert node.primitive is not None
    assert node.primitive.definition is not None
    start = next(creation_order)
    with mode_set_to(Mode(open_fused=everything, scope=node.scope, dtype=MODE.get().dtype)):
        new: Tensor = node.primitive.definition(*inputs, **options_of(node))
    inside = [new] if node.source else []
    for made in inside:
        if made.index > start and made.source is None:
            made.source = node.source
            inside.extend(x for x in made.inputs if isinstance(x, Tensor))
    if new.index > start and node.name:
        new.name = node.name
    return new


def substituted(output: Tensor, replaced: Mapping[Tensor, Tensor]) -> Tensor:
    """The same graph with some nodes replaced by others of the same values."""
    renewed = dict(replaced)
    for node in ancestors(output, until=replaced.keys()):
        if node not in renewed and any(isinstance(x, Tensor) and x in renewed for x in node.inputs):
            renewed[node] = _with_inputs(node, tuple(renewed.get(x, x) if isinstance(x, Tensor) else x for x in node.inputs))
    return renewed.get(output, output)


def _with_inputs(node: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    """The same node on other inputs of equal values."""
    new = _new_tensor(Tensor)
    new.grad = None
    for slot in ("_array", "_watch", "name", "options", "primitive", "requires_grad", "scope", "source", "values"):
        setattr(new, slot, getattr(node, slot))
    new.inputs = inputs
    new.index = next(creation_order)
    return new


def replay(output: Tensor, replaced: Mapping[Tensor, Any]) -> Any:
    """The value `output` would have if these nodes had these values, computed afresh by the recorded operations.

    The values may be of another dtype, such as complex for the complex step. Recorded constants (masks, dropout) stay.
    """
    if any(node.primitive is not None and node.primitive.recomputes for node in ancestors(output)):
        output, renewed = opened(output, everything=False)
        replaced = {renewed.get(node, node): value for node, value in replaced.items()}
    values: dict[Tensor, Any] = dict(replaced)
    for node in ancestors(output):
        primitive = node.primitive
        if primitive is None or node in values:
            continue
        if any(isinstance(x, Tensor) and x in values for x in node.inputs):
            inputs = [
                values.get(x, value) if isinstance(x, Tensor) else value
                for x, value in zip(node.inputs, node.values, strict=True)
            ]
            values[node] = primitive(*inputs, **options_of(node))
    return values.get(output, output.data)
