"""The debugger's prompt: `debug(loss)` steps through the chain rule as pdb steps through a program, forward and back.

    (chainrule) break S                 stop at the step of S
    (chainrule) continue
    (chainrule) p adjoint               ∂L/∂S
    (chainrule) watch WQ[1, 0]          stop at every contribution to that entry
    (chainrule) continue
    (chainrule) back

`chainrule.autograd.debugger` holds the logic; here is what is typed and printed.
"""

from __future__ import annotations

import os
import runpy
import sys
from cmd import Cmd
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from inspect import cleandoc
from math import log10
from pprint import pformat
from shutil import get_terminal_size
from textwrap import indent
from typing import Any, TextIO

import numpy as np
from numpy.typing import ArrayLike

from chainrule.autograd.debugger import Arrival, Debugger, DebuggerError, Stop, Watch, rule_source
from chainrule.autograd.describe import forward_text, rule_text, source_text
from chainrule.autograd.graph import as_recorded
from chainrule.autograd.modes import record_sources
from chainrule.autograd.reverse import Step
from chainrule.autograd.rules import tracked
from chainrule.autograd.scalar import as_graph
from chainrule.autograd.tensor import Source, Tensor, value_of
from chainrule.autograd.value import Value
from chainrule.models import WorkedExample

MOST_WHOLE = 30  # numbers of a vector or matrix that a step shows whole; `p` shows all of any array
WIDE = 76  # columns of a terminal whose lines need no care


def debug(
    loss: Tensor | Value,
    gradient: ArrayLike | None = None,
    *,
    create_graph: bool = False,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
) -> None:
    """Step through the chain rule from `loss` at a prompt; `help` lists the commands. No `.grad` is touched.

    Args:
        loss, gradient, create_graph: as for `backward`.
        stdin, stdout: where commands come from and text goes, if not the terminal.
    Raises:
        ValueError, TypeError: as `backward`.
    """
    if isinstance(loss, Value):
        loss = as_graph(loss)
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss, _ = as_recorded(loss)
    Prompt(Debugger(loss, gradient, create_graph=create_graph), stdin, stdout).run()


def debug_script(path: str | os.PathLike[str] | None = None, argv: Sequence[str] = ()) -> int:
    """Run a script as `__main__`, and stop with the prompt at each of its `.backward()` calls.

    Breakpoints and watches stay from one call to the next. When a walk is left by `continue`, the call does what it does
    without the debugger, and the script goes on; `quit` ends the script. Without a path, `debug` the worked example.

    Args:
        path: the script. argv: its arguments, `sys.argv[1:]`.
    Returns:
        the exit code: 0, or 2 if there was nothing to step through.
    Raises:
        FileNotFoundError: if there is no such file. What the script raises passes through, SystemExit too.
    """
    if path is None:
        with record_sources():
            loss = WorkedExample()()
        debug(loss)
        return 0
    path = os.fspath(path)
    backward, old_argv, old_path = Tensor.backward, sys.argv, sys.path
    earlier: Debugger | None = None

    def stop_and_backward(self: Tensor, gradient: ArrayLike | None = None, **options: Any) -> None:
        nonlocal earlier
        debugger = Debugger(self, gradient, create_graph=options.get("create_graph", False))
        lost = debugger.take_over(earlier) if earlier else []
        earlier = debugger
        caller = sys._getframe(1)
        called = Source(caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name)
        if not Prompt(debugger, notes=[_source_line(called), *lost]).run():
            raise _Quit
        backward(self, gradient, **options)

    try:
        Tensor.backward = stop_and_backward  # type: ignore[method-assign]
        sys.argv = [path, *argv]
        sys.path = [os.path.dirname(os.path.abspath(path)), *old_path]
        with record_sources():
            variables = runpy.run_path(path, run_name="__main__")
        if earlier is None:  # no .backward(): then its `loss`, if it has one
            if not isinstance(variables.get("loss"), Tensor):
                print(f"{path} ran to its end without a .backward(), and has no Tensor called loss: nothing to step through.")
                return 2
            debug(variables["loss"])
    except _Quit:
        pass
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]
        sys.argv, sys.path = old_argv, old_path
    return 0


class _Quit(BaseException):
    """Ends the script that is being debugged; no `except Exception` of its own holds it up."""


class Prompt(Cmd):
    """The commands of the debugger. Each `do_` method is one; its docstring is its help."""

    prompt = "(chainrule) "

    def __init__(
        self, debugger: Debugger, stdin: TextIO | None = None, stdout: TextIO | None = None, notes: Iterable[str] = ()
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None and stdout is None and sys.stdin.isatty()  # line editing, for a person
        self.debugger = debugger
        self.notes = list(notes)
        self.say = _printer(self.stdout)

    def run(self) -> bool:
        """Read and do commands until `continue` at the end of the walk (True), or `quit` or the end of input (False)."""
        self.resumed = False
        for note in self.notes:
            self.say(note, "dim")
        d = self.debugger
        self.say(f"The chain rule from {d.loss.path}: {len(d.order)} steps, none done yet. `help` lists the commands.")
        while True:
            try:
                self.cmdloop()
                return self.resumed
            except KeyboardInterrupt:
                self.say(f"\nInterrupted, after {d.position} of {len(d.order)} steps.")

    def onecmd(self, line: str) -> bool:
        try:
            return bool(super().onecmd(line))
        except DebuggerError as error:
            self.say(f"*** {error}", "red")
            return False

    def default(self, line: str) -> None:
        """What is not a command is an expression, if it is one; `!` before it says so, as in pdb."""
        try:
            self._show(line.removeprefix("!"), repr)
        except DebuggerError as error:
            commands = [name.removeprefix("do_") for name in self.get_names() if name.startswith("do_")]
            close = get_close_matches(line.split()[0], commands, n=1, cutoff=0.7)
            hint = f" Or did you mean the command {close[0]}?" if close else ""
            raise DebuggerError(f"{error}{hint}") from None

    def completedefault(self, text: str, *ignored: Any) -> list[str]:
        """The names of nodes that begin so."""
        return sorted({node.path for node in self.debugger.order if node.name and node.path.startswith(text)})

    # Moving

    def do_step(self, arg: str) -> None:
        """s(tep) [N]: do the next step, or N, stopping early at a breakpoint or watched entry."""
        self._tell(self.debugger.step(_number(arg)))

    def do_back(self, arg: str) -> None:
        """back (bk) [N]: go back a step, or N, stopping early at a breakpoint or watched entry."""
        self._tell(self.debugger.back(_number(arg)))

    def do_continue(self, arg: str) -> bool:
        """c(ontinue): go on to the next breakpoint or watched contribution, or the end; at the end, leave."""
        if self.debugger.at_end:
            self.resumed = True
            return True
        self._tell(self.debugger.run())
        return False

    def do_rcontinue(self, arg: str) -> None:
        """rc(ontinue): go back to the previous breakpoint or watched contribution, or the start."""
        self._tell(self.debugger.run_back())

    # Stopping

    def do_break(self, arg: str) -> None:
        """b(reak) [NODE | CONDITION]: stop at a node's step, or where a Python expression is true; alone, list them.

        b S
        b blocks.0.attn.S
        b np.abs(adjoint).max() > 1
        """
        self._break(arg, temporary=False)

    def do_tbreak(self, arg: str) -> None:
        """tbreak NODE | CONDITION: a breakpoint that stops once."""
        self._break(arg, temporary=True)

    def do_clear(self, arg: str) -> None:
        """cl(ear) [NUMBER | NODE | CONDITION]: remove that breakpoint; alone, all."""
        for b in self.debugger.clear(arg):
            self.say(f"Breakpoint {b.number} removed: {b.text}")

    def do_watch(self, arg: str) -> None:
        """watch [NODE[INDEX] | NODE]: stop at every contribution to it; alone, list the watches.

        watch WQ[1, 0]
        """
        if not arg:
            self._list_watches()
            return
        watch = self.debugger.watch(arg)
        self.say(f"Watch {self._watch_state(watch)}")

    def do_unwatch(self, arg: str) -> None:
        """unwatch [NUMBER | NODE[INDEX]]: remove that watch; alone, all."""
        for watch in self.debugger.unwatch(arg):
            self.say(f"Watch {watch.number} removed: {watch.text}")

    # Looking

    def do_p(self, arg: str) -> None:
        """p(rint) EXPRESSION: the value of a Python expression, an array with all its numbers (up to 1,000).

        In scope: node, adjoint, inputs, output (the arrays of this step's operation); contributions, before, after (lists by
        input), contribution (to the watched input, else to the first); every named node; loss; np; so_far(NODE), the
        adjoint a node has so far; find("blocks.0.attn.S"), a node by its path.
        """
        self._show(arg, repr)

    def do_pp(self, arg: str) -> None:
        """pp EXPRESSION: the same, pretty-printed."""
        self._show(arg, pformat)

    def do_list(self, arg: str) -> None:
        """l(ist) [NODE]: the line of code, the operation, and the rules with their Python source."""
        node = self.debugger.find(arg) if arg else self._here().node
        if node.source:
            self.say(_source_line(node.source), "dim")
        elif node.primitive:
            self.say("(The line of code was not recorded: run the forward inside `with record_sources():`.)", "dim")
        self.say(forward_text(node), "bold")
        shown = set()
        for position, x in enumerate(node.inputs):
            if tracked(x):
                self.say(f"to {x.label}: {rule_text(node, position, self.debugger.loss)}", "cyan")
                source = rule_source(node, position)
                if source not in shown:
                    self.say(indent(source or "(The source of this rule cannot be read.)", "    "))
                    shown.add(source)

    def do_where(self, arg: str) -> None:
        """w(here): the position in the walk, and the path from the loss to here."""
        path, done, steps = self.debugger.path(), self.debugger.position, len(self.debugger.order)
        if not path:
            self.say(f"0 of {steps} steps done, {steps} left.")
            return
        lines = [f"    {forward_text(node)}" for node in path]
        lines[-1] = f"  > {forward_text(path[-1])}"
        if len(lines) > 20:
            lines[4:-12] = [f"    … {len(lines) - 16:,} more …"]
        for line in lines:
            self.say(line)
        paths = self.debugger.path_count()
        how_many = f"{paths:,}" if paths < 10**15 else f"about 10^{log10(paths):.0f}"
        self.say(f"{done} of {steps} steps done, {steps - done} left; paths from the loss to here: {how_many}.")

    def do_nodes(self, arg: str) -> None:
        """nodes [TEXT]: the nodes with a name (containing TEXT), in the order of their steps."""
        d = self.debugger
        found = [(k, node) for k, node in enumerate(d.order, 1) if node.name and arg in node.path]
        for k, node in found[:200]:
            mark = ">" if k == d.position else " "
            self.say(f"{mark} {k:4}  {node.path:16} {node.shape!s:10} {'done' if k <= d.position else 'to come'}")
        if len(found) > 200:
            self.say(f"… and {len(found) - 200} more; nodes TEXT narrows them down.")
        self.say(f"{len(found)} of {len(d.order)} nodes.")

    def do_info(self, arg: str) -> None:
        """info [NODE]: a node's value, its adjoint so far and who contributes; alone, breakpoints and watches."""
        if not arg:
            done, steps = self.debugger.position, len(self.debugger.order)
            self.say(f"{done} of {steps} steps done; the walk starts at {self.debugger.loss.path}.")
            self._list_breakpoints()
            self._list_watches()
            return
        d = self.debugger
        node = d.find(arg)
        self.say(f"{forward_text(node)}, {node.dtype}{list(node.shape)}", "bold")
        self.say(indent(_value_text(node), "    "))
        contributions = d.contributions_to(node)
        try:
            self.say(f"∂L/∂{node.label} so far:")
            self.say(indent(_value_text(d.so_far(node)), "    "))
        except DebuggerError:
            self.say("    nothing yet")
        for k, position in contributions:
            user = d.order[k - 1]
            when = "done" if k <= d.position else "to come"
            self.say(f"  step {k}, {when}, from {user.label}: {rule_text(user, position, d.loss)}")

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: what a command does; alone, what commands there are."""
        commands = {name[3:]: method for name, method in vars(Prompt).items() if name.startswith("do_") and name != "do_EOF"}
        if arg and arg not in commands:
            raise DebuggerError(f"There is no command {arg!r}; help lists them.")
        if arg:
            self.say(cleandoc(commands[arg].__doc__))
            return
        for command in dict.fromkeys(commands.values()):  # aliases are the same method: each comes once
            usage, _, meaning = command.__doc__.partition("\n")[0].partition(": ")
            self.say(f"  {usage:36}  {meaning}")
        self.say("Enter repeats the last command. Anything else is evaluated as a Python expression, `!` before it if need be.")

    def do_quit(self, arg: str) -> bool:
        """q(uit): leave; a script that is being debugged ends."""
        return True

    def do_EOF(self, arg: str) -> bool:
        """The end of input: as quit."""
        self.say("")
        return True

    do_s = do_n = do_next = do_step
    do_bk = do_back
    do_c = do_cont = do_continue
    do_rc = do_rcontinue
    do_b = do_break
    do_cl = do_clear
    do_print = do_p
    do_l = do_list
    do_w = do_bt = do_where
    do_q = do_exit = do_quit

    # Showing

    def _here(self) -> Step:
        if self.debugger.here is None:
            raise DebuggerError("No step is done yet: `step` does the first.")
        return self.debugger.here

    def _show(self, expression: str, text_of: Callable[[Any], str]) -> None:
        """Print the value of an expression; whatever goes wrong in it is said and no more."""
        if not expression.strip():
            raise DebuggerError("Say what to print: an expression, such as adjoint or S.data.")
        try:
            value = self.debugger.evaluate(expression)
            text = text_of(value)
        except DebuggerError:
            raise
        except SyntaxError as error:
            raise DebuggerError(f"{expression.strip()!r} is not an expression: {error.msg}.") from None
        except Exception as error:
            raise DebuggerError(f"{type(error).__name__}: {error}") from None
        self.say(text)

    def _break(self, arg: str, temporary: bool) -> None:
        if not arg:
            self._list_breakpoints()
            return
        made = self.debugger.break_at(arg, temporary)
        where = f"steps where {made.text}" if made.node is None else f"the step of {made.node.path}"
        self.say(f"Breakpoint {made.number}: stops {'once ' * temporary}at {where}")

    def _list_breakpoints(self) -> None:
        for b in self.debugger.breakpoints:
            self.say(f"Breakpoint {b.number}: {b.text}{' (once)' if b.temporary else ''}, hits: {b.hits}")
        if not self.debugger.breakpoints:
            self.say("No breakpoints.")

    def _list_watches(self) -> None:
        for watch in self.debugger.watches:
            self.say(f"Watch {self._watch_state(watch)}")
        if not self.debugger.watches:
            self.say("No watches.")

    def _watch_state(self, watch: Watch) -> str:
        """A watched entry's adjoint so far."""
        d = self.debugger
        contributions = d.contributions_to(watch.node)
        arrived = sum(k <= d.position for k, _ in contributions)
        value = d.so_far(watch.node)[watch.index] if arrived else None
        return _labelled(f"{watch.number}: {watch.text}, after {arrived} of {len(contributions)} contributions:", value)

    def _tell(self, stop: Stop) -> None:
        """Say where the walk has stopped and why, and show the step."""
        d = self.debugger
        for b in stop.breakpoints:
            self.say(f"Breakpoint {b.number}: {b.text}", "bold magenta")
        for problem in stop.problems:
            self.say(f"*** {problem}", "red")
        if stop.reason == "start":
            self.say(f"The start: no step is done, and only {d.loss.path} has an adjoint.")
        elif stop.reason == "end":
            self.say(f"The end: all {len(d.order)} steps are done. `back` and `rcontinue` go back, `continue` leaves.")
        for arrival in stop.arrivals:
            self._tell_arrival(arrival)
        if stop.reason not in ("start", "end"):
            self._tell_step(self._here())
        arrived = [arrival.watch for arrival in stop.arrivals]
        for watch in d.watches:
            if watch not in arrived:
                self.say(f"Watch {self._watch_state(watch)}", "magenta")

    def _tell_step(self, step: Step) -> None:
        node = step.node
        self.say(f"step {self.debugger.position} of {len(self.debugger.order)}: {forward_text(node)}", "bold")
        if step.source:
            self.say(f"  {_source_line(step.source)}", "dim")
        self.say(_labelled(f"  ∂L/∂{node.label}", step.adjoint))
        for position, (x, contribution) in enumerate(zip(node.inputs, step.contributions, strict=True)):
            if contribution is None:
                continue
            self.say(f"  to {x.label}: {rule_text(node, position, self.debugger.loss)}", "cyan")
            if step.before[position] is not None:
                self.say(_labelled("    before      ", step.before[position]))
            self.say(_labelled("    contribution", contribution))
            if step.before[position] is not None:
                self.say(_labelled("    after       ", step.after[position]))

    def _tell_arrival(self, arrival: Arrival) -> None:
        watch = arrival.watch
        self.say(
            f"Watch {watch.number}: {watch.text} receives contribution {arrival.ordinal} of {arrival.expected}, "
            f"from {arrival.user.label}: {arrival.rule}",
            "bold magenta",
        )
        self.say(_labelled("    before      ", arrival.before))
        self.say(_labelled("    contribution", arrival.contribution))
        self.say(_labelled("    after       ", arrival.after))


def _number(text: str) -> int:
    """How many steps; 1 if not said."""
    if text and not (text.isdecimal() and int(text) > 0):
        raise DebuggerError(f"The number of steps is a whole number from 1; got {text!r}.")
    return int(text or 1)


def _source_line(source: Source) -> str:
    return f"{os.path.basename(source.file)}:{source.line} in {source.function}: {source_text(source)}"


def _value_text(x: Any) -> str:
    """A number or array to six digits; a large or batched one in one line: dtype, shape, size and first entries."""
    array = np.asarray(value_of(x))
    if array.ndim == 0:
        return f"{array.item():.6g}"
    if array.size <= MOST_WHOLE and array.ndim <= 2:
        columns = get_terminal_size((WIDE, 0)).columns
        return np.array2string(array, precision=6, max_line_width=columns - 6 if columns < WIDE else 100)
    about = f"{array.dtype}{list(array.shape)}"
    if array.size:
        about += f", largest magnitude {np.abs(array).max():.6g}: {' '.join(f'{number:.4g}' for number in array.flat[:4])}"
    return about + " …" * (array.size > 4)


def _labelled(label: str, x: Any) -> str:
    """A value after its label, or below it if it takes several lines; None is an adjoint that nothing has reached."""
    text = "nothing yet" if x is None else _value_text(x)
    return f"{label.rstrip()}\n{indent(text, '      ')}" if "\n" in text else f"{label}  {text}"


def _printer(stdout: Any) -> Callable[..., None]:
    """say(text, style): a line on `stdout`, in colour if that is a terminal."""
    if stdout.isatty():
        from rich.console import Console

        console = Console(file=stdout, highlight=False, markup=False, emoji=False)
        return lambda text, style="": console.print(text, style=style, soft_wrap=console.width >= WIDE)  # else between words
    encoding = getattr(stdout, "encoding", None) or "utf-8"  # one that lacks ∂ must not end the session
    return lambda text, style="": print(text.encode(encoding, "replace").decode(encoding), file=stdout)
