"""Which nodes of a graph are drawn one by one and which are folded into one box, so that a reader can still see it.

A graph that is too big is folded in stages, each coarser than the last: by module, innermost first; then long chains; then
the middle. A module or a middle is a run of consecutive nodes in creation order, a topological order, and a chain has one way
in and one way out. So folding never makes a cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import Tensor

MOST_CONSTANTS = 12  # drawn beside one node
CHAIN_ENDS = 3  # nodes of a folded chain that stay in sight at either end


@dataclass(eq=False)
class Group:
    """Nodes drawn as one box. A single node is drawn as itself; more are a fold, with a label of its own."""

    members: list[Tensor]  # oldest first, parameters included
    label: str = ""
    scope: str = ""  # the module that holds the box
    module: str | None = None  # if the box is a module, its path

    @property
    def folded(self) -> bool:
        return len(self.members) > 1


def fold(nodes: Sequence[Tensor], zoom: str, limit: int | None, keep: Collection[Tensor] = ()) -> list[Group]:
    """The boxes to draw for `nodes` (oldest first): at most `limit` if folding can reach it; None folds nothing.

    Args:
        zoom: "tensor" folds only what it must; "module" folds every innermost module at least.
        keep: nodes that are never folded.
    """
    operations = [node for node in nodes if node.primitive is not None]
    leaves = [node for node in nodes if node.primitive is None]
    groups = _with_leaves([Group([node], scope=node.scope) for node in operations], leaves, keep)
    stages = _stages(operations, limit or 0, keep)
    if zoom == "module":
        groups = _with_leaves(next(stages, []), leaves, keep)
    while limit is not None and _too_many(groups, limit) and (coarser := next(stages, None)) is not None:
        groups = _with_leaves(coarser, leaves, keep)
    return groups if limit is None or not _too_many(groups, limit) else _fold_leaves(groups, keep)


def _too_many(groups: Sequence[Group], limit: int) -> bool:
    return len(groups) > limit or boxes(groups) > limit


def boxes(groups: Sequence[Group]) -> int:
    """How many boxes a drawing has: the groups, and the constants that stand beside single nodes."""
    return len(groups) + sum(len(constants(group.members[0])) for group in groups if not group.folded)


def constants(node: Tensor) -> dict[int, Any]:
    """The constants that a node uses, by position; of very many the first few."""
    found = {i: x for i, x in enumerate(node.inputs) if x is not None and not tracked(x)}
    return dict(list(found.items())[:MOST_CONSTANTS])


def _stages(operations: Sequence[Tensor], limit: int, keep: Collection[Tensor]) -> Iterator[list[Group]]:
    """The operations in fewer and fewer groups."""
    groups = [Group([node], scope=node.scope) for node in operations]
    for folded in _module_levels({node.scope for node in operations}):
        groups = _fold_modules(operations, folded, keep)
        yield groups
    groups = _fold_chains(groups, keep)
    yield groups
    kept = len(groups)
    while kept := kept // 2:
        if 2 * kept <= limit:  # else the ends alone are too many
            yield _fold_middle(groups, kept, keep)


# Modules


def _module_levels(scopes: set[str]) -> Iterator[set[str]]:
    """The modules to fold, in each round more of them: first the innermost, last all."""
    paths = modules(scopes)
    innermost = paths - {path for inner in paths for path in prefixes(inner)[:-1]}
    yield innermost
    for depth in range(max((path.count(".") for path in paths), default=0) - 1, -1, -1):
        yield innermost | {path for path in paths if path.count(".") >= depth}


def modules(scopes: set[str]) -> set[str]:
    """All modules with nodes of these scopes inside. A list of modules, `blocks` around blocks.0 and blocks.1, is not one."""
    paths = {path for scope in scopes for path in prefixes(scope)}
    lists = {path.rpartition(".")[0] for path in paths if path.rpartition(".")[2].isdigit()}
    return paths - (lists - scopes)


def prefixes(scope: str) -> list[str]:
    """The modules around a node, outermost first: "blocks.0.attn" -> ["blocks", "blocks.0", "blocks.0.attn"]."""
    parts = scope.split(".") if scope else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _fold_modules(operations: Sequence[Tensor], folded: set[str], keep: Collection[Tensor]) -> list[Group]:
    """One group for each run of nodes of one module; a module called twice is two runs."""

    def module_of(node: Tensor) -> str | None:
        return None if node in keep else next((path for path in prefixes(node.scope) if path in folded), None)

    groups = []
    for module, run in groupby(operations, module_of):
        if module is None:
            groups += [Group([node], scope=node.scope) for node in run]
        else:
            groups.append(Group(list(run), module, module.rpartition(".")[0], module))
    return groups


# Chains and middles


def _fold_chains(groups: list[Group], keep: Collection[Tensor]) -> list[Group]:
    """Long chains, in which each group feeds only the next and is fed only by the last, folded but for their ends."""
    home = {node: group for group in groups for node in group.members}
    feeders: dict[Group, set[Group]] = {}
    for group in groups:
        feeders[group] = {home[x] for node in group.members for x in node.inputs if tracked(x) and x in home} - {group}
    users = Counter(feeder for fed_by in feeders.values() for feeder in fed_by)
    chain_of: dict[Group, list[Group]] = {}
    for group in groups:
        chain_of[group] = [group]
        if len(feeders[group]) == 1 and not _holds(group, keep):
            (before,) = feeders[group]
            if users[before] == 1:
                chain_of[group] = chain_of[before]
                chain_of[group].append(group)
    folded: dict[Group, list[Group]] = {}  # the first group of each run to fold
    for group in groups:
        inner = chain_of[group][CHAIN_ENDS:-CHAIN_ENDS]
        if len(inner) > 1:
            folded[inner[0]] = inner
    hidden = {group for inner in folded.values() for group in inner[1:]}
    return [_joined(folded[group]) if group in folded else group for group in groups if group not in hidden]


def _fold_middle(groups: list[Group], kept: int, keep: Collection[Tensor]) -> list[Group]:
    """All but the first and the last `kept` groups folded."""
    middle = groups[kept : len(groups) - kept]
    runs = [(holds, list(run)) for holds, run in groupby(middle, lambda group: _holds(group, keep))]
    folded = [group for holds, run in runs for group in (run if holds or len(run) == 1 else [_joined(run)])]
    return [*groups[:kept], *folded, *groups[len(groups) - kept :]] if middle else groups


def _joined(groups: list[Group]) -> Group:
    first, last = (group.label or group.members[0].label for group in (groups[0], groups[-1]))
    members = [node for group in groups for node in group.members]
    around = [set(prefixes(group.scope)) for group in groups]
    return Group(members, f"{first} … {last}", max(set.intersection(*around), key=len, default=""))


def _holds(group: Group, keep: Collection[Tensor]) -> bool:
    return any(node in keep for node in group.members)


# Leaves


def _with_leaves(groups: list[Group], leaves: Sequence[Tensor], keep: Collection[Tensor]) -> list[Group]:
    """The groups, with each leaf in the fold that it belongs to, or as a group of its own.

    A leaf belongs to the fold that uses it first, if that is its module, or no module and its only user.
    """
    groups = [Group(list(group.members), group.label, group.scope, group.module) for group in groups]
    users: dict[Tensor, list[Group]] = {leaf: [] for leaf in leaves}
    for group in groups:
        for node in group.members:
            for x in node.inputs:
                if tracked(x) and x in users and group not in users[x][-1:]:
                    users[x].append(group)
    alone = []
    for leaf in leaves:
        first = users[leaf][0] if users[leaf] else None
        if first is None or leaf in keep:
            belongs = False
        elif first.module is not None:
            belongs = f"{leaf.scope}.".startswith(f"{first.module}.")
        else:
            belongs = first.folded and len(users[leaf]) == 1
        if first is not None and belongs:
            first.members.insert(0, leaf)
        else:
            alone.append(Group([leaf], scope=leaf.scope))
    return alone + groups


def _fold_leaves(groups: list[Group], keep: Collection[Tensor]) -> list[Group]:
    """Leaves that feed the same one group, as one fold for each such group."""
    users: dict[Tensor, set[Group]] = {}
    for group in groups:
        for node in group.members:
            for x in node.inputs:
                if tracked(x):
                    users.setdefault(x, set()).add(group)
    together: dict[Group, list[Group]] = {}
    others = []
    for group in groups:
        leaf = group.members[0]
        if group.folded or leaf.primitive is not None or leaf in keep or len(users.get(leaf, ())) != 1:
            others.append(group)
        else:
            together.setdefault(next(iter(users[leaf])), []).append(group)
    return [_joined(leaves) if len(leaves) > 1 else leaves[0] for leaves in together.values()] + others
