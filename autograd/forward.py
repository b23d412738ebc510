"""Forward mode: tangents, pushed from older nodes to younger ones.

For an entry θ, the tangent of a node n is ṅ = ∂n/∂θ. A node y with inputs x has ẏ = Σ ∂y/∂x · ẋ. Nothing new has to be
declared for it, since a reverse rule is the linear map g ↦ g · ∂y/∂x, and forward mode needs its transpose:

- elementwise: ∂y/∂x is diagonal, so the rule is its own transpose: apply it to ẋ;
- linear in x: ∂y/∂x · ẋ is the operation itself, applied to ẋ;
- otherwise: record the rule as a function of g, and run the chain rule over that record, from ẋ to g;
- a fused primitive: push the tangents through its definition. Where that would compute too much again, there are shortcuts:
  a rule that is diagonal or symmetric, an output that is one number (ẏ = ⟨∂y/∂x, ẋ⟩), or a kernel declared for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.autograd.graph import ancestors, fed_by
from chainrule.autograd.modes import MODE, Mode, mode_set_to
from chainrule.autograd.reverse import all_finite, chain_rule, exact_product, missing_rule, quiet, zero_where_zero
from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import Tensor, options_of, value_of


def push_forward(nodes: Iterable[Tensor], seeds: Mapping[Tensor, Any], record: bool = False) -> dict[Tensor, Any]:
    """The tangents of all `nodes` (oldest first) that depend on the seeded ones.

    Args:
        seeds: tangents to start from, each of the shape of its node.
        record: compute with Tensors, so that the tangents can be differentiated again; the graph must be `opened`.
    """
    tangents: dict[Tensor, Any] = dict(seeds)
    with quiet():
        for node in nodes:
            if node in seeds or node.primitive is None:
                continue
            inward = [tangents.get(x) if isinstance(x, Tensor) else None for x in node.inputs]
            if any(tangent is not None for tangent in inward):
                tangents[node] = push(node, inward, record)
    return tangents


def push(node: Tensor, inward: list[Any], record: bool = False) -> Any:
    """ẏ = Σ ∂y/∂x · ẋ over the inputs that have a tangent (the others are None)."""
    primitive = node.primitive
    assert primitive is not None
    y, inputs = (node, node.inputs) if record else (node._array, node.values)
    if primitive.definition is not None and not record:
        tangent = _through_fused(node, inward)
    elif primitive.linear == "all":
        parts = [np.zeros_like(value_of(x)) if dx is None else dx for x, dx in zip(inputs, inward, strict=True)]
        tangent = primitive.forward(*parts, **node.options) if not record else primitive(*parts, **node.options)
    else:
        tangent = None
        for position, dx in enumerate(inward):
            if dx is None:
                continue
            if primitive.linear == "each":
                part = _through_operation(node, position, dx, inputs, record)
            elif primitive.elementwise:
                part = _through_diagonal(node, position, dx, y, inputs)
            else:
                part = _through_transpose(node, position, dx, y, inputs, record)
            tangent = part if tangent is None else tangent + part
    if tangent.dtype != node.dtype:
        tangent = tangent.astype(node.dtype)
    return tangent


def _through_operation(node: Tensor, position: int, dx: Any, inputs: tuple[Any, ...], record: bool) -> Any:
    """The operation applied to ẋ, in which it is linear; a zero tangent stays zero even where another input is infinite."""
    assert node.primitive is not None
    apply = node.primitive if record else node.primitive.forward

    def product(dx: Any, factors: Sequence[Any]) -> Any:
        return apply(*factors[:position], dx, *factors[position + 1 :], **node.options)

    tangent = product(dx, inputs)
    return tangent if len(inputs) == 1 or all_finite(tangent) else exact_product(product, tangent, dx, inputs)


def _through_diagonal(node: Tensor, position: int, dx: Any, y: Any, inputs: tuple[Any, ...]) -> Any:
    """The rule applied to ẋ; a zero tangent stays zero even where the derivative is infinite."""
    assert node.primitive is not None
    rule = node.primitive.rules[position]
    if rule is None:
        raise TypeError(missing_rule(node, node.inputs[position]))
    if dx.shape != node.shape:
        dx = np.broadcast_to(dx, node.shape)
    return zero_where_zero(dx, rule(dx, y, *inputs, **node.options))


def _through_transpose(node: Tensor, position: int, dx: Any, y: Any, inputs: tuple[Any, ...], record: bool) -> Any:
    """The transpose of the rule, applied to ẋ: the derivative of ⟨rule(g), ẋ⟩ with respect to g."""
    primitive = node.primitive
    assert primitive is not None
    with mode_set_to(Mode(dtype=MODE.get().dtype)):
        g = Tensor(np.ones(node.shape, node.dtype), requires_grad=True)
        contribution = primitive.contribution(position, g, y, inputs, node.options)
        if contribution is None:
            raise TypeError(missing_rule(node, node.inputs[position]))
        if contribution is g:
            return dx
        if not tracked(contribution):  # the rule does not depend on g: the derivative is zero
            return np.zeros(node.shape, node.dtype)
        for step in chain_rule(contribution, dx, fed_by([g], contribution), record):
            if step.node is g:
                return step.adjoint
    return np.zeros(node.shape, node.dtype)


def _through_fused(node: Tensor, inward: list[Any]) -> Any:
    """The tangent of a fused node, by the shortest way there is."""
    primitive, y, inputs = node.primitive, node._array, node.values
    assert primitive is not None
    if primitive.tangent is not None:
        return primitive.tangent(inward, y, *inputs, **node.options)
    moving = [(position, dx) for position, dx in enumerate(inward) if dx is not None]
    if any(primitive.joint is None and primitive.rules[position] is None for position, _ in moving):
        return _through_definition(node, inward)
    if primitive.elementwise:
        return sum(_through_diagonal(node, position, dx, y, inputs) for position, dx in moving)
    if primitive.symmetric and [position for position, _ in moving] == [0]:
        return primitive.contribution(0, moving[0][1], y, inputs, node.options)
    if node.size == 1:
        one = np.ones(node.shape, node.dtype)
        parts = [np.vdot(primitive.contribution(i, one, y, inputs, node.options), dx) for i, dx in moving]
        if np.all(np.isfinite(parts)):
            return np.full(node.shape, sum(parts), node.dtype)
    return _through_definition(node, inward)


def _through_definition(node: Tensor, inward: list[Any]) -> Any:
    """The tangent pushed through the nodes of the definition of a fused primitive."""
    primitive = node.primitive
    assert primitive is not None
    assert primitive.definition is not None
    with mode_set_to(Mode(dtype=MODE.get().dtype)):
        inputs = [x if dx is None else Tensor(x, requires_grad=True) for x, dx in zip(node.values, inward, strict=True)]
        y = primitive.definition(*inputs, **options_of(node))
    seeds = {x: dx for x, dx in zip(inputs, inward, strict=True) if dx is not None}
    return push_forward(ancestors(y), seeds)[y]
