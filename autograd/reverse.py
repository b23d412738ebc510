"""Reverse mode: the chain rule, walked from the output to the leaves.

There is one loop, `chain_rule`. `backward()` runs it to its end; the debugger, the ledger and the pictures read the same
steps. To watch it work, put a breakpoint at the line that calls `rule`, with a condition such as `node.name == "S"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from heapq import heappop, heappush, heappushpop
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy import vdot
from numpy.typing import ArrayLike

from chainrule.autograd.anomaly import watched
from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.graph import fed_by, opened
from chainrule.autograd.modes import MODE, enable_grad
from chainrule.autograd.rules import Primitive, tracked
from chainrule.autograd.tensor import CHAIN_RULE, HOOKED, Array, Source, Tensor, frozen, value_of


class Step(NamedTuple):
    """What the chain rule did at one node.

    Attributes:
        node: the node; a leaf has an adjoint and no contributions.
        adjoint: ∂L/∂node, complete.
        contributions: by input, what this node added to that input's adjoint; None where no gradient flows.
        before: by input, that adjoint before the contribution; None if nothing had arrived yet.
    """

    node: Tensor
    adjoint: Any
    contributions: Sequence[Any]
    before: Sequence[Any]

    @property
    def after(self) -> list[Any]:
        """By input, its adjoint after the contribution; None where no gradient flows."""
        return [
            contribution if earlier is None else earlier + contribution
            for contribution, earlier in zip(self.contributions, self.before, strict=True)
        ]

    @property
    def source(self) -> Source | None:
        """The line of code that made the node, if it was recorded."""
        return self.node.source

    def __repr__(self) -> str:
        to = ", ".join(x.label for x in self.node.inputs if tracked(x))
        return f"Step({self.node.label}{f' -> {to}' if to else ''})"


_new_step = tuple.__new__  # a NamedTuple without its constructor's overhead: there is one for every node


def chain_rule(
    output: Tensor, seed: Any, relevant: set[Tensor] | None = None, record: bool = False, thorough: bool = True
) -> Iterator[Step]:
    """Walk the graph from `output` in reverse creation order, and yield a `Step` for every node.

    For a node y with adjoint ȳ = ∂L/∂y, each input x receives the contribution ȳ · ∂y/∂x, computed by the rule of the
    node's primitive; the adjoint of x is the sum of its contributions. Every user of a node is younger than the node, so
    when a node's turn comes its adjoint is complete.

    Args:
        output: where to start. seed: ∂L/∂output, usually 1.
        relevant: visit only these nodes; None for all that gradients flow to.
        record: give the rules Tensors instead of arrays, so that the adjoints can be differentiated again.
        thorough: yield the steps of interior nodes too (otherwise only of leaves and where `retain_grad()` asks), and where an
            adjoint is 0 and a derivative or a factor infinite, let the contribution be 0 and not NaN. That costs a pass over
            every contribution, so callers who want only gradients ask for it if those come out not finite.
    """
    adjoints: dict[Tensor, Any] = {output: seed}
    frontier: list[tuple[int, Tensor]] = []  # the nodes that have an adjoint: a heap, from which the youngest comes out first;
    latest: Any = (-output.index, output)  # the last of them is kept apart, for mostly it is the next
    while latest or frontier:
        node = (heappushpop(frontier, latest) if latest else heappop(frontier))[1]
        latest = None
        adjoint = adjoints.pop(node)
        if node._watch is not None and node._watch.hooks:
            adjoint = hooked(node, adjoint)
        primitive = node.primitive
        contributions: Any = ()
        before: Any = ()
        if wanted := thorough or node._watch is not None:
            contributions, before = [], []
        if primitive is not None:
            y: Any
            if record:
                y, inputs = node, node.inputs
            else:
                y, inputs = node._array, node.values
                if primitive.guarded:
                    adjoint = frozen(adjoint)  # it passes through the user's rules
                elif wanted:
                    adjoint.setflags(False)  # read-only: it is handed out
            arguments = (adjoint, y) + inputs  # noqa: RUF005 (of every rule of this node; with *inputs it takes longer)
            options, joint = node.options, primitive.joint
            rules: Any = primitive.rules
            if joint is not None:
                rules = joint(*arguments, **options)
                if len(rules) != len(inputs):
                    raise ValueError(f"{primitive.name}'s joint rule owes {len(inputs)} contributions; got {len(rules)}.")
            elif primitive.variadic:
                rules = [None] * len(inputs)
            position = -1
            for x in node.inputs:
                position += 1
                contribution = earlier = None
                if isinstance(x, Tensor) and x.requires_grad and (relevant is None or x in relevant):
                    rule = rules[position]
                    if joint is not None:
                        contribution = rule
                    elif rule is None:
                        raise TypeError(missing_rule(node, x))
                    else:
                        contribution = rule(*arguments, **options) if options else rule(*arguments)
                    if thorough and contribution is not adjoint:
                        contribution = with_exact_zeros(node, position, contribution, adjoint, y, inputs)
                    data = x._array
                    try:
                        if contribution.shape != data.shape or contribution.dtype is not data.dtype:
                            contribution = fitted(contribution, data, primitive)
                    except AttributeError:
                        raise TypeError(not_an_array(node, x, contribution)) from None
                    earlier = adjoints.get(x)
                    if earlier is None:
                        adjoints[x] = contribution
                        if latest:
                            heappush(frontier, latest)
                        latest = (-x.index, x)
                    else:
                        adjoints[x] = earlier + contribution
                if wanted:
                    contributions.append(contribution)
                    before.append(earlier)
        if wanted or primitive is None:
            yield _new_step(Step, (node, adjoint, contributions, before))


def all_finite(g: Any) -> bool:
    """False if an entry is NaN or infinite (or so large that its square is): one pass, at the speed of a dot product."""
    if isinstance(g, Tensor):
        g = g._array
    return isfinite(vdot(g, g))


def with_exact_zeros(node: Tensor, position: int, contribution: Any, adjoint: Any, y: Any, inputs: Sequence[Any]) -> Any:
    """The contribution, with what came of 0 · ∞ replaced by 0: a zero adjoint contributes exactly zero."""
    primitive = node.primitive
    assert primitive is not None
    if not hasattr(contribution, "shape"):
        return contribution  # to be refused as it is
    if primitive.elementwise:
        return zero_where_zero(adjoint, contribution)
    if primitive.linear == "each" and len(inputs) > 1 and not all_finite(contribution):
        return exact_contribution(node, position, contribution, adjoint, y, inputs)
    return contribution


def zero_where_zero(g: Any, product: Any) -> Any:
    """`product` = g · derivative, with 0 where g is 0 and the derivative infinite or NaN: a zero adjoint contributes zero.

    It happens in the branch not taken of `np.where(x > 0, np.sqrt(x), 0)`.
    """
    if all_finite(product):
        return product
    return np.where((value_of(g) == 0) & ~np.isfinite(value_of(product)), 0, product)


def exact_contribution(node: Tensor, position: int, contribution: Any, g: Any, y: Any, inputs: Sequence[Any]) -> Any:
    """The contribution to one input of a product (matmul, einsum, …), with 0 for each 0 · ∞ in its sums whose 0 is in g."""
    primitive = node.primitive
    assert primitive is not None

    def product(g: Any, factors: Sequence[Any]) -> Any:
        return primitive.contribution(position, g, y, factors, node.options)

    return exact_product(product, contribution, g, inputs)


def exact_product(product: Callable[[Any, Sequence[Any]], Any], found: Any, g: Any, factors: Sequence[Any]) -> Any:
    """`found` = product(g, factors), a sum of products, with 0 for each 0 · ∞ and 0 · NaN in it whose 0 is in g.

    It is computed again with 0 for the factors that are not finite. Where such a factor meets an entry of g that is not 0, the
    number of nonzero terms is another with these factors than without, and `found` stays.
    """
    values = [np.asarray(value_of(x)) for x in factors]
    finite = [np.isfinite(x) for x in values]
    if all(map(np.all, finite)):
        return found
    used = (value_of(g) != 0) * np.arange(1.0, g.size + 1).reshape(g.shape)  # weights that differ: no two terms cancel
    with_all = product(used, [(x != 0) * 1.0 for x in values])
    with_finite = product(used, [((x != 0) & ok) * 1.0 for x, ok in zip(values, finite, strict=True)])
    exact = product(g, [x if np.all(ok) else np.where(ok, x, 0) for x, ok in zip(factors, finite, strict=True)])
    return np.where(with_all == with_finite, exact, found)


def hooked(node: Tensor, adjoint: Any) -> Any:
    """The adjoint as the node's hooks leave it."""
    assert node._watch is not None
    recorded = isinstance(adjoint, Tensor)
    if not recorded:
        adjoint = np.asarray(adjoint)
        adjoint.flags.writeable = False  # what a hook keeps is not what becomes a gradient
    for hook in list(node._watch.hooks):
        new = hook(adjoint)
        if new is None:
            continue
        if np.shape(value_of(new)) != node.shape:
            raise ValueError(
                f"A hook returns None or an adjoint of the shape {node.shape} of {node.path}; got {np.shape(value_of(new))}."
            )
        if recorded:
            adjoint = as_tensor(new)
        else:
            adjoint = np.array(value_of(new), dtype=node.dtype)
            adjoint.flags.writeable = False
    return adjoint


def fitted(contribution: Any, data: Array, primitive: Primitive) -> Any:
    """The contribution in the shape and dtype of the input `data`; an elementwise one is first summed down to it."""
    if primitive.elementwise:
        contribution = unbroadcast(contribution, data.shape)
    if contribution.shape != data.shape:
        raise ValueError(
            f"A contribution has the shape of its input; a rule of {primitive.name} returned {contribution.shape} for an input "
            f"of shape {data.shape}."
        )
    if contribution.dtype is data.dtype or contribution.dtype == data.dtype:
        return contribution
    if contribution.dtype.kind == "c":
        raise TypeError(f"A contribution is real; a rule of {primitive.name} returned complex numbers.")
    return contribution.astype(data.dtype)


def not_an_array(node: Tensor, x: Tensor, contribution: Any) -> str:
    assert node.primitive is not None
    return (
        f"A contribution is an array of the shape {x.shape} of its input; a rule of {node.primitive.name} returned "
        f"{type(contribution).__name__} for {x.label}."
    )


def missing_rule(node: Tensor, x: Tensor) -> str:
    assert node.primitive is not None
    name = node.primitive.input_name(next(i for i, input_ in enumerate(node.inputs) if input_ is x))
    rule = "joint_rule({…})" if node.primitive.variadic else f"rule({name!r}, …)"
    return (
        f"{node.primitive.name} has no derivative with respect to {name!r}, yet {x.label} requires a gradient. "
        f"Pass a plain array there, or declare @{node.primitive.name}.{rule}."
    )


def quiet() -> np.errstate:
    """Rules meet 0/0 and overflow in branches not taken; what they return there is settled, so no warning is owed."""
    return np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore")


def seed_for(output: Tensor, gradient: ArrayLike | None) -> Any:
    """The adjoint to start from: `gradient`, checked, or 1 for a single number."""
    if not isinstance(output, Tensor):
        raise TypeError(f"Gradients start from a Tensor; got {type(output).__name__}.")
    if not output.requires_grad:
        raise ValueError(
            f"{output.path} does not depend on anything that requires a gradient. "
            "Create the leaves with requires_grad=True, outside no_grad()."
        )
    if gradient is None:
        if output.size != 1:
            raise ValueError(
                f"Without a gradient argument, backward starts from a single number; {output.path} has shape {output.shape}. "
                "Reduce it to a loss, for example with np.sum, or pass gradient=∂L/∂output."
            )
        return np.array(1, output.dtype, ndmin=output.ndim)
    seed: Any = gradient if isinstance(gradient, Tensor) else np.array(gradient, dtype=output.dtype)
    if seed.dtype != output.dtype:
        seed = seed.astype(output.dtype)
    if seed.shape != output.shape:
        raise ValueError(f"gradient must have the shape {output.shape} of {output.path}; got {seed.shape}.")
    return seed


def as_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def backward_steps(output: Tensor, gradient: ArrayLike | None = None, *, create_graph: bool = False) -> Iterator[Step]:
    """The chain rule from `output`, one `Step` at a time; no `.grad` is touched."""
    seed = seed_for(output, gradient)
    if create_graph:
        output, _ = opened(output)
    steps = chain_rule(output, as_tensor(seed) if create_graph else value_of(seed), record=create_graph)

    def walk() -> Iterator[Step]:
        while True:
            with quiet(), enable_grad() if create_graph else nullcontext():
                step = next(steps, None)
            if step is None:
                return
            yield step

    return walk()


def backward(
    output: Tensor, gradient: ArrayLike | None = None, *, create_graph: bool = False, retain_grad: bool = False
) -> None:
    """Add ∂output/∂leaf to the `.grad` of every leaf that requires a gradient.

    Args:
        output: a single number, unless `gradient` (∂L/∂output, of its shape) is given.
        create_graph: record the computation, so that the gradients (then Tensors) can be differentiated again.
        retain_grad: leave each interior node's adjoint in its `.grad` too, replacing what was there.
    Raises:
        ValueError: if nothing requires a gradient, or the output is not a single number and no gradient is given.
    """
    seed = seed_for(output, gradient)
    if create_graph:
        with enable_grad():
            output, _ = opened(output)
            for node, adjoint in _kept(output, as_tensor(seed), retain_grad, record=True):
                node.grad = adjoint if node.primitive or node.grad is None else node.grad + adjoint
    else:
        deliver(_kept(output, value_of(seed), retain_grad))


def _kept(output: Tensor, seed: Any, retain_grad: bool, record: bool = False) -> list[tuple[Tensor, Any]]:
    """(node, adjoint) of the leaves, and of the interior nodes whose gradient is to be retained."""
    kept: list[tuple[Tensor, Any]] = []
    with quiet():
        # A hook must be called once, so with hooks there is no first try; nor when every step is wanted.
        for thorough in (True,) if retain_grad or HOOKED or MODE.get().anomaly else (False, True):
            kept = [
                (node, adjoint)
                for node, adjoint, _, _ in watched(chain_rule(output, seed, None, record, thorough))
                if node.primitive is None or retain_grad or (node._watch is not None and node._watch.retain)
            ]
            if all(all_finite(adjoint) for _, adjoint in kept):
                break
    return kept


def deliver(adjoints: Iterable[tuple[Tensor, Any]]) -> None:
    """Add each leaf's adjoint to its `.grad`, and replace each interior node's. Gradients never alias each other."""
    taken: set[int] = set()
    for node, adjoint in adjoints:
        earlier = node.grad
        if earlier is None or node.primitive is not None:
            node.grad = owned(adjoint, taken)
            continue
        if np.shape(value_of(earlier)) != node.shape:
            raise ValueError(f"{node.path}.grad has shape {np.shape(value_of(earlier))}; {node.path} has {node.shape}.")
        total = earlier + adjoint
        node.grad = total if isinstance(total, Tensor) else np.asarray(total)  # a Tensor if recorded, by create_graph


def owned(adjoint: Any, taken: set[int]) -> Array:
    """The adjoint as an array that nothing else holds: itself if new (those in use elsewhere are read-only), or a copy."""
    if adjoint.flags.writeable and adjoint.base is None and id(adjoint) not in taken:
        taken.add(id(adjoint))
        return np.asarray(adjoint)
    return np.array(adjoint)


def gradients(output: Tensor, inputs: Sequence[Tensor], gradient: Any = None, *, create_graph: bool = False) -> list[Any]:
    """∂output/∂input for each of `inputs`, leaves or interior nodes; no `.grad` is touched.

    Returns arrays, or Tensors that can be differentiated again if `create_graph`. An input that the output does not depend
    on gets zeros.
    """
    seed = seed_for(output, gradient)
    if create_graph:
        output, renamed = opened(output)
        inputs = [renamed.get(x, x) for x in inputs]
        seed = as_tensor(seed)
    else:
        seed = value_of(seed)
    relevant = fed_by(inputs, output)
    found: dict[Tensor, Any] = {}
    wanted = set(inputs)
    if output in relevant:
        with quiet(), enable_grad():
            steps = watched(chain_rule(output, seed, relevant, create_graph))
            found = {step.node: step.adjoint for step in steps if step.node in wanted}
    if create_graph:
        return [found[x] if x in found else Tensor(np.zeros(x.shape, x.dtype)) for x in inputs]
    taken: set[int] = set()
    return [owned(found[x], taken) if x in found else np.zeros(x.shape, x.dtype) for x in inputs]


CHAIN_RULE.update(backward=backward, backward_steps=backward_steps)
