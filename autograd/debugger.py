"""The debugger, without its prompt: walk the chain rule forward and back, stop where asked, look at anything.

    d = Debugger(loss)
    d.break_at("S")
    d.run()                       # the chain rule, up to the step of S
    d.here.adjoint                # ∂L/∂S
    d.watch("WQ[1, 0]")
    d.run().arrivals              # the contribution to that entry: before, contribution, after, rule
    d.back()
    d.so_far("WQ")                # raises: nothing has reached WQ yet

The steps are the engine's own (`backward_steps`), computed as they are asked for, in reverse creation order of the nodes.

Position k: the first k steps are done. `here` is step k: its node's adjoint is complete, its contributions are computed, and
its inputs have received them. At position 0 nothing has been done, and only the loss has an adjoint. So to be *before* a
contribution is to be at an earlier position than the step that makes it. A node used twice by one operation, as in `x * x`,
receives both contributions in one step.

Memory: every step that was computed is kept, so that going back is exact and costs nothing. At the end that is an adjoint
for each node and a contribution for each edge.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from textwrap import dedent
from traceback import extract_tb
from types import CodeType
from typing import Any, Literal, NamedTuple, TypeVar
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike

from chainrule.autograd import graph
from chainrule.autograd.describe import forward_text, rule_text
from chainrule.autograd.reverse import Step, backward_steps, quiet, seed_for
from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import Tensor

STEP_NAMES = ("node", "adjoint", "inputs", "output", "contributions", "contribution", "before", "after")


class DebuggerError(Exception):
    """A request that cannot be met; the text says why, and what there is instead."""


@dataclass(eq=False)
class Breakpoint:
    """Stop at the step of `node`, or wherever the expression `text` is true."""

    number: int
    text: str
    node: Tensor | None
    condition: CodeType | None
    temporary: bool
    hits: int = 0


@dataclass(eq=False)
class Watch:
    """Stop at every contribution to `node[index]`."""

    number: int
    text: str
    node: Tensor
    index: Any


class Arrival(NamedTuple):
    """One contribution to a watched entry.

    Attributes:
        user: the node that contributes: its step makes the contribution. position: of the watched node among its inputs.
        ordinal, expected: the contribution is number `ordinal` of the `expected` ones that the watched node will receive.
        before, contribution, after: the entry's adjoint before (None if nothing had arrived), what is added, the sum.
        rule: the rule that computed it, as text.
    """

    watch: Watch
    user: Tensor
    position: int
    ordinal: int
    expected: int
    before: Any
    contribution: Any
    after: Any
    rule: str


class Stop(NamedTuple):
    """Why a run stopped: the breakpoints met here, the contributions to watched entries here, or what `reason` says.

    `problems` are the conditions that raised an error here; such a condition stops the run, as one that is true.
    """

    reason: Literal["step", "breakpoint", "watch", "start", "end"]
    breakpoints: Sequence[Breakpoint] = ()
    arrivals: Sequence[Arrival] = ()
    problems: Sequence[str] = ()


Kept = TypeVar("Kept", Breakpoint, Watch)


class Debugger:
    """The walk of the chain rule from `loss`, one step at a time, in both directions. No `.grad` is touched.

    Args:
        loss, gradient, create_graph: as for `backward`; with `create_graph` the adjoints are Tensors.
    Attributes:
        loss: where the walk starts; with `create_graph`, the loss of the graph whose fused nodes are opened.
        order: the node of every step, first to last. Step k is that of `order[k - 1]`.
        position: how many steps are done.
        breakpoints, watches: what stops a run.
    Raises:
        ValueError, TypeError: as `backward`.
    """

    def __init__(self, loss: Tensor, gradient: ArrayLike | None = None, *, create_graph: bool = False) -> None:
        self._seed = seed_for(loss, gradient)
        self._create_graph = create_graph
        self.loss = graph.opened(loss)[0] if create_graph else loss
        self.order = graph.ancestors(self.loss)[::-1]
        self.position = 0
        self.breakpoints: list[Breakpoint] = []
        self.watches: list[Watch] = []
        self._numbers = count(1)
        self._steps: list[Step] = []
        self._walk: Iterator[Step] = self._new_walk()
        self._contributions: dict[Tensor, list[tuple[int, int]]] = {node: [] for node in self.order}
        for number, node in enumerate(self.order, 1):
            for position, x in enumerate(node.inputs):
                if tracked(x):
                    self._contributions[x].append((number, position))
        self._exact = self._nodes_by_name()
        self._scope: dict[str, Any] = {
            normalize("NFKC", name): node for name, node in self._exact.items() if name.isidentifier()
        }
        self._scope.setdefault("loss", self.loss)
        self._scope.update(np=np, find=self.find, so_far=self.so_far)

    # Where it is

    @property
    def here(self) -> Step | None:
        """The step at the current position; None before the first."""
        return self._steps[self.position - 1] if self.position else None

    @property
    def at_end(self) -> bool:
        """True if every step is done."""
        return self.position == len(self.order)

    def path(self) -> list[Tensor]:
        """A path from the loss to here: at each node, the one that contributed to it first."""
        if not self.position:
            return []
        nodes = [self.order[self.position - 1]]
        while nodes[-1] is not self.loss:
            first_user, _ = self._contributions[nodes[-1]][0]
            nodes.append(self.order[first_user - 1])
        return nodes[::-1]

    def path_count(self) -> int:
        """How many paths there are from the loss to here."""
        paths = {self.loss: 1}
        for node in self.order[: self.position]:
            for x in filter(tracked, node.inputs):
                paths[x] = paths.get(x, 0) + paths[node]
        return paths[self.order[self.position - 1]] if self.position else 0

    # Moving

    def step(self, most: int = 1) -> Stop:
        """Do the next step, or this many, stopping early where a run would."""
        return self._run(+1, most)

    def back(self, most: int = 1) -> Stop:
        """Go back a step, or this many, stopping early where a run would."""
        return self._run(-1, most)

    def run(self) -> Stop:
        """Go on to the next breakpoint or watched contribution, or to the end.

        Raises DebuggerError if a rule raises an error; the position is then the last step that could be done.
        """
        return self._run(+1)

    def run_back(self) -> Stop:
        """Go back to the previous breakpoint or watched contribution, or to before the first step."""
        return self._run(-1)

    def _run(self, direction: int, most: int | None = None) -> Stop:
        moved = 0
        while most is None or moved < most:
            if direction < 0 and self.position == 0:
                return Stop("start")
            if direction > 0 and self.at_end:
                return Stop("end")
            if direction > 0 and self.position == len(self._steps):
                self._compute()
            self.position += direction
            moved += 1
            if self.position and (stop := self._stop_here()):
                return stop
        return Stop("step" if self.position else "start")

    def _new_walk(self) -> Iterator[Step]:
        return backward_steps(self.loss, self._seed, create_graph=self._create_graph)

    def _compute(self) -> None:
        """Compute one more step, and keep it."""
        try:
            step = next(self._walk)
            for array in (step.adjoint, *step.contributions):
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False  # an expression cannot change what is still to come
            self._steps.append(step)
        except BaseException as error:
            # A generator that raised is finished. Another one, read up to here, lets the session go on.
            self._walk = islice(self._new_walk(), len(self._steps), None)
            if not isinstance(error, Exception):
                raise
            node, place = self.order[len(self._steps)], extract_tb(error.__traceback__)[-1]
            raise DebuggerError(
                f"The rule at {node.path} raised {type(error).__name__}: {error} "
                f"(in {place.name}, {os.path.basename(place.filename)}:{place.lineno}; the node is {forward_text(node)})."
            ) from error

    # Stopping

    def break_at(self, text: str, temporary: bool = False) -> Breakpoint:
        """Stop at the step of the node called `text`, or wherever the Python expression `text` is true.

        The expression sees what `evaluate` sees: `np.abs(adjoint).max() > 1`. A `temporary` breakpoint stops once.
        Raises DebuggerError, with the names that are close, if it is neither.
        """
        text = text.strip()
        node = condition = None
        try:
            node = self.find(text)
        except DebuggerError as error:
            if any(text in (node.label, node.path) for node in self.order):
                raise DebuggerError(f"{error} To stop at each of them: break node.label == {text!r}.") from None
            if re.fullmatch(r"[\w.#]*", text) and text.partition(".")[0] not in STEP_NAMES:  # meant as a name
                raise
            try:
                condition = compile(text, "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                raise DebuggerError(f"{text!r} is neither a node's name nor an expression: {error}.") from None
        made = Breakpoint(next(self._numbers), text, node, condition, temporary)
        self.breakpoints.append(made)
        return made

    def watch(self, text: str) -> Watch:
        """Stop at every contribution to an entry, such as `WQ[1, 0]`, or to a whole tensor, `WQ`.

        Raises DebuggerError if there is no such node or entry, or the node is the loss, which receives none.
        """
        node, index = self._entry(text.strip())
        if node is self.loss:
            raise DebuggerError(f"{node.path} is where the walk starts; nothing contributes to its adjoint.")
        made = Watch(next(self._numbers), text.strip(), node, index)
        self.watches.append(made)
        return made

    def clear(self, text: str = "") -> list[Breakpoint]:
        """Remove the breakpoint of this number or text, or all; return those removed."""
        return _remove(self.breakpoints, text.strip(), "breakpoint")

    def unwatch(self, text: str = "") -> list[Watch]:
        """Remove the watch of this number or text, or all; return those removed."""
        return _remove(self.watches, text.strip(), "watch")

    def take_over(self, earlier: Debugger) -> list[str]:
        """Set the breakpoints and watches of an earlier session; return what could not be set in this graph, and why."""
        lost = []
        for breakpoint_ in earlier.breakpoints:
            try:
                self.break_at(breakpoint_.text, breakpoint_.temporary)
            except DebuggerError as error:
                lost.append(f"Breakpoint {breakpoint_.text} is dropped. {error}")
        for watch in earlier.watches:
            try:
                self.watch(watch.text)
            except DebuggerError as error:
                lost.append(f"Watch {watch.text} is dropped. {error}")
        return lost

    def _stop_here(self) -> Stop | None:
        """What stops a run at the current step."""
        step = self._steps[self.position - 1]
        met: list[Breakpoint] = []
        problems: list[str] = []
        for breakpoint_ in self.breakpoints:
            if breakpoint_.node is step.node or (breakpoint_.condition and self._holds(breakpoint_, problems)):
                breakpoint_.hits += 1
                met.append(breakpoint_)
        if met:
            self.breakpoints = [b for b in self.breakpoints if not (b.temporary and b in met)]
        arrivals = self.arrivals()
        if not met and not arrivals:
            return None
        return Stop("breakpoint" if met else "watch", met, arrivals, problems)

    def _holds(self, breakpoint_: Breakpoint, problems: list[str]) -> bool:
        """Whether its condition is true here; an error counts as true, since it would go unseen otherwise."""
        try:
            assert breakpoint_.condition is not None
            return bool(eval(breakpoint_.condition, self._names_here()))
        except Exception as error:
            problems.append(f"The condition {breakpoint_.text} raised {type(error).__name__}: {error}")
            return True

    # Looking

    def arrivals(self) -> list[Arrival]:
        """The contributions that the current step makes to watched entries."""
        step = self.here
        if step is None:
            return []
        found = []
        for watch in self.watches:
            for position, x in enumerate(step.node.inputs):
                if x is watch.node:
                    expected = self._contributions[x]
                    before = step.before[position]
                    found.append(
                        Arrival(
                            watch=watch,
                            user=step.node,
                            position=position,
                            ordinal=expected.index((self.position, position)) + 1,
                            expected=len(expected),
                            before=None if before is None else before[watch.index],
                            contribution=step.contributions[position][watch.index],
                            after=step.after[position][watch.index],
                            rule=rule_text(step.node, position, self.loss),
                        )
                    )
        return found

    def contributions_to(self, node: Tensor) -> list[tuple[int, int]]:
        """The contributions `node` receives in the whole walk, in order: (number of the step, position among its inputs)."""
        if node not in self._contributions:
            raise DebuggerError(f"{node.path} receives no gradient in this graph: it is a constant, or not part of it.")
        return self._contributions[node]

    def so_far(self, node: Tensor | str) -> Any:
        """The adjoint of a node (or of the node of this name) as it stands here: the sum of what has arrived.

        Raises DebuggerError if nothing has arrived yet.
        """
        node = self.find(node) if isinstance(node, str) else node
        arrived = [at for at in self.contributions_to(node) if at[0] <= self.position]
        if node is self.loss:
            return self._seed
        if not arrived:
            raise DebuggerError(f"Nothing has reached {node.path} yet, after {self.position} of {len(self.order)} steps.")
        number, position = arrived[-1]
        return self._steps[number - 1].after[position]

    def find(self, name: str) -> Tensor:
        """The node of this name, or path, or end of a path. Raises DebuggerError with the names that are close.

        Of a name inside a fused node, the error says where it is and how to step through it.
        """
        try:
            return graph.find(self.loss, name)
        except KeyError as error:
            inside = self._inside_fused(name) if not any(name in (node.label, node.path) for node in self.order) else []
            if not inside:
                raise DebuggerError(error.args[0]) from None
            paths = ", ".join(inside[:4]) + (f" and {len(inside) - 4} more" if len(inside) > 4 else "")
            raise DebuggerError(
                f"{paths} ran inside a fused step. To step through it, run the forward inside `with open_fused():` "
                "(`from chainrule import open_fused`)."
            ) from None

    def _inside_fused(self, name: str) -> list[str]:
        """The paths of the nodes that `find` would know by this name if the fused nodes were open."""
        try:
            with quiet():
                opened, _ = graph.opened(graph.as_recorded(self.loss)[0], everything=False)
        except ValueError:  # the graph cannot be computed again
            return []
        return [n.path for n in graph.ancestors(opened) if n.name and f".{n.path}".endswith(f".{name}")]

    def evaluate(self, text: str) -> Any:
        """The value of a Python expression, here.

        In scope are np; the step's `node`, `adjoint`, `inputs` and `output` (arrays), `contributions`, `before` and `after`
        (lists by input), and `contribution` (the watched input's, else the first there is); every named node; `loss`;
        `so_far(node)`; `find("blocks.0.attn.S")`. The name of a node alone may be a dotted path or such as `tanh#12`.

        Raises DebuggerError for a name that is not in scope; otherwise what the expression raises.
        """
        text = text.strip()
        names = self._names_here()
        if text in self._exact and text not in names:
            return self._exact[text]
        try:
            return eval(compile(text, "<expression>", "eval"), names)
        except NameError as error:
            if error.name in STEP_NAMES:
                raise DebuggerError(f"Before the first step there is no {error.name}. Take a step first.") from None
            try:
                hint = f"The node of this name is find({self.find(error.name or text).path!r})."
            except DebuggerError as not_found:
                hint = str(not_found)
            raise DebuggerError(f"{error}. {hint}") from None

    def _names_here(self) -> dict[str, Any]:
        """The names for expressions. One dictionary is kept: with many named nodes it would be slow to copy."""
        step = self.here
        for name in STEP_NAMES:
            self._scope.pop(name, None)
        if step is not None:
            watched = {id(watch.node) for watch in self.watches}
            gradients = [i for i, contribution in enumerate(step.contributions) if contribution is not None]
            focus = next((i for i in gradients if id(step.node.inputs[i]) in watched), gradients[0] if gradients else None)
            self._scope.update(
                node=step.node,
                adjoint=step.adjoint,
                inputs=step.node.values,
                output=step.node.data,
                contributions=step.contributions,
                contribution=None if focus is None else step.contributions[focus],
                before=step.before,
                after=step.after,
            )
        return self._scope

    def _nodes_by_name(self) -> dict[str, Tensor]:
        """Nodes, and constants among their inputs, by path, and by label where only one has it."""
        tensors = {x for node in self.order for x in (node, *node.inputs) if isinstance(x, Tensor)}
        names = [(name, x) for x in tensors for name in {x.label, x.path}]
        users = Counter(name for name, _ in names)
        return {name: x for name, x in names if users[name] == 1 and name not in STEP_NAMES}

    def _entry(self, text: str) -> tuple[Tensor, Any]:
        """The node and index of a text such as `WQ[1, 0]`; () for a whole tensor."""
        name, bracket, index = (text, "", "") if text in self._exact else text.partition("[")
        name = name.strip()
        node = self._exact[name] if name in self._exact else self.find(name)
        self.contributions_to(node)
        if not bracket:
            return node, ()
        try:
            key = self.evaluate(f"np.s_[{index}")
            node.data[key]
        except (SyntaxError, IndexError) as error:
            raise DebuggerError(f"{text} is not an entry of {node.path}, of shape {node.shape}: {error}.") from None
        return node, key


def _remove(kept: list[Kept], text: str, kind: str) -> list[Kept]:
    removed = [item for item in kept if text in ("", str(item.number), item.text)]
    if text and not removed:
        there = ", ".join(f"{item.number} ({item.text})" for item in kept) or "none"
        raise DebuggerError(f"There is no {kind} {text!r}; there are: {there}.")
    kept[:] = [item for item in kept if item not in removed]
    return removed


def rule_source(node: Tensor, position: int) -> str:
    """The Python source of the rule for one input of `node`; empty if there is none to read."""
    if node.primitive is None:
        return ""
    rule = node.primitive.joint or node.primitive.rules[position]
    try:
        return dedent(inspect.getsource(rule)).rstrip() if rule else ""
    except (OSError, TypeError):
        return ""
