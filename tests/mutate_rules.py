"""Does a wrong derivative rule make a test fail? `python tests/mutate_rules.py [NAME ...]`

Each rule of each primitive, and each function that fused rules share, is broken in one place at a time, and the tests of
the table that use the primitive are run against it, until one fails:

- the sign of what the rule returns is flipped; a minus becomes a plus and a plus a minus, `a -= b` and np.subtract too;
- a factor is dropped: a · b becomes a, and becomes b; a / b becomes a; `a *= b` is left out.

NAME is a primitive's, or a shared function's, such as contributions.

Prints the share that was caught, and every survivor with its line.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
import sys
import textwrap
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path[:0] = [str(Path(__file__).parent / "autograd")]

import test_primitives as tests  # noqa: E402
from primitive_table import KINKS, ROWS  # noqa: E402

from chainrule.autograd.graph import ancestors, opened  # noqa: E402
from chainrule.autograd.rules import Primitive  # noqa: E402
from chainrule.nn import norms  # noqa: E402
from chainrule.nn.attention import Blocks  # noqa: E402

FACTORS = (ast.Mult, ast.Div, ast.MatMult)
CALLED = {"add": "subtract", "subtract": "add"}
SHARED = [  # (where it is, its name, the primitives whose rules call it)
    (Blocks, "contributions", ("attention", "tiled_attention")),
    (norms, "_norm_rule", ("layer_norm", "rms_norm")),
]


class Mutation:
    """One change of one rule: the function to put in its place, and what was changed."""

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        self.function = function
        self.text = text


def mutations(rule: Callable[..., Any]) -> Iterator[Mutation]:
    """The rule with each of its places broken in turn."""
    yield Mutation(lambda *args, **options: _negated(rule(*args, **options)), "sign of the result flipped")
    source = textwrap.dedent(inspect.getsource(rule))
    tree = ast.parse(source)
    count = sum(1 for _ in ast.walk(tree))
    for place in range(count):
        for kind in ("left", "right", "sign"):
            copy = ast.parse(source)
            changed = _change(copy, place, kind)
            if changed is None:
                continue
            copy.body[0].decorator_list = []  # type: ignore[attr-defined]
            ast.fix_missing_locations(copy)
            namespace = dict(rule.__globals__)
            namespace.update(zip(rule.__code__.co_freevars, (c.cell_contents for c in rule.__closure__ or ()), strict=True))
            exec(compile(copy, f"<mutation of {rule.__name__}>", "exec"), namespace)
            yield Mutation(namespace[rule.__name__], changed)


def _negated(found: Any) -> Any:
    if isinstance(found, (list, tuple)):
        return type(found)(None if part is None else -part for part in found)
    return -found


def _change(tree: ast.AST, place: int, kind: str) -> str | None:
    """Change the node at this place of the walk; what was done as text, or None if there is nothing of the kind."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    node = list(ast.walk(tree))[place]
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""
    if _is_index_arithmetic(node, parents):
        return None
    new: ast.AST | None = None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, FACTORS) and kind == "left":
        before, new = ast.unparse(node), ast.Pass()
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)) and kind == "sign":
        before = ast.unparse(node)
        new = ast.AugAssign(node.target, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.value)
    elif _is_call(node, ("multiply",)) and kind != "sign":
        args = [node.args[0], ast.Constant(1)] if kind == "left" else [ast.Constant(1), node.args[1]]  # type: ignore[attr-defined]
        new = ast.Call(node.func, args, node.keywords)  # type: ignore[attr-defined]
    elif _is_call(node, CALLED) and kind == "sign":
        function = ast.Attribute(node.func.value, CALLED[node.func.attr], ast.Load())  # type: ignore[attr-defined]
        new = ast.Call(function, node.args, node.keywords)  # type: ignore[attr-defined]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, FACTORS) and kind != "sign":
        if isinstance(node.op, ast.Div) and kind == "right":
            return None
        new = node.left if kind == "left" else node.right
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and kind == "sign":
        new = ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and kind == "sign":
        if isinstance(node.operand, ast.Constant):
            return None  # an axis such as -1
        new = node.operand
    if new is None:
        return None
    parent = parents[node]
    for field, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, field, new)
        elif isinstance(value, list):
            value[:] = [new if item is node else item for item in value]
    return f"{before}  →  {ast.unparse(new)}"


def _is_call(node: ast.AST, names: Container[str]) -> bool:
    """Whether it is np.NAME(a, b, …)."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names and len(node.args) == 2
    )


def _is_index_arithmetic(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Inside an index, a slice, an axis, a shape or the size of a block: not a factor of the derivative."""
    while node in parents:
        parent = parents[node]
        if isinstance(parent, ast.Subscript) and parent.slice is node:
            return True
        if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "row_blocks":
            return True
        if isinstance(parent, ast.keyword) and parent.arg in ("axis", "shape", "key"):
            return True
        node = parent
    return False


def checks(primitive: Primitive) -> Iterator[Callable[[], None]]:
    """The tests of the table that run the primitive's rules, quick ones first."""
    rows = [row for row in ROWS if primitive in _used(row)]
    yield from (lambda row=row: tests.test_gradient_equals_differences(row) for row in rows)
    yield from (lambda row=row: tests.test_gradient_of_broadcast_inputs(row) for row in rows if row.elementwise)
    yield from (lambda row=row: tests.test_forward_mode_is_the_transpose_of_reverse(row) for row in rows)
    yield from (lambda row=row: tests.test_numbers_and_empty_inputs(row) for row in rows if row.elementwise)
    yield from (lambda row=row: tests.test_second_order(row) for row in rows)
    yield from (lambda row=row: tests.test_dtype_is_kept(row, np.float32) for row in rows)
    yield from (lambda kink=kink: tests.test_convention_at_kinks(kink) for kink in KINKS if primitive in _used_by_kink(kink))


_cache: dict[str, set[Any]] = {}


def _used(row: Any) -> set[Any]:
    if row.id not in _cache:
        y = row.call(*tests.leaves_of(row.arrays()))
        _cache[row.id] = {node.primitive for node in ancestors(y)} | _in_second_order(y)
    return _cache[row.id]


def _in_second_order(y: Any) -> set[Any]:
    graph, _ = opened(y)
    return {node.primitive for node in ancestors(graph)}


def _used_by_kink(kink: Any) -> set[Any]:
    key = f"kink {kink.id}"
    if key not in _cache:
        with np.errstate(all="ignore"):
            y = kink.call(*tests.leaves_of(map(np.array, kink.inputs)))
        _cache[key] = {node.primitive for node in ancestors(y)}
    return _cache[key]


@contextlib.contextmanager
def installed(primitive: Primitive, position: int | None, rule: Callable[..., Any]) -> Iterator[None]:
    if position is None:
        old, primitive.joint = primitive.joint, rule
    else:
        old, primitive.rules[position] = primitive.rules[position], rule
    try:
        yield
    finally:
        if position is None:
            primitive.joint = old
        else:
            primitive.rules[position] = old


def is_caught(primitive: Primitive) -> bool:
    with np.errstate(all="ignore"):
        for check in checks(primitive):
            try:
                check()
            except Exception:
                return True
    return False


def main(names: list[str]) -> int:
    primitives = sorted(
        {p for p in gc.get_objects() if type(p) is Primitive and p.__module__.startswith("chainrule.")}, key=lambda p: p.name
    )
    caught, survivors = 0, []

    def run(rule: Callable[..., Any], users: list[Primitive], install: Callable[..., Any]) -> None:
        nonlocal caught
        for mutation in mutations(rule):
            with install(mutation.function):
                if any(map(is_caught, users)):
                    caught += 1
                else:
                    survivors.append(f"{rule.__module__}.{rule.__name__}: {mutation.text}")
                    print(f"survived: {survivors[-1]}", flush=True)

    for primitive in primitives:
        if names and primitive.name not in names:
            continue
        assert not is_caught(primitive), f"the tests of {primitive.name} fail without any mutation"
        rules = [(position, rule) for position, rule in enumerate(primitive.rules) if rule is not None]
        rules += [(None, primitive.joint)] if primitive.joint is not None else []  # type: ignore[list-item]
        for position, rule in rules:
            run(rule, [primitive], partial(installed, primitive, position))
    for owner, name, callers in SHARED:
        if not names or name in names:
            users = [primitive for primitive in primitives if primitive.name in callers]
            run(getattr(owner, name), users, partial(mock.patch.object, owner, name))
    total = caught + len(survivors)
    print(f"{caught} of {total} mutations caught ({caught / max(total, 1):.1%})")
    return 0 if caught >= 0.98 * total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
