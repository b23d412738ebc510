"""The command line: chainrule trace | draw | check | debug [SCRIPT.py] [-- arguments of the script].

Without a script each shows the worked example of the notes. With one, the script is run, and the variable `loss` (or
`--loss NAME`) is what is followed back. (`chainrule train` and `chainrule sample` are in train_cli.py.)
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
import textwrap
from pathlib import Path
from typing import Any

from rich.highlighter import RegexHighlighter
from rich.theme import Theme

import chainrule
from chainrule import Tensor, models, train_cli, viz
from chainrule.autograd import record_sources
from chainrule.autograd.account import account
from chainrule.autograd.check import check_graph
from chainrule.autograd.graph import ancestors
from chainrule.autograd.ledger import Trace, trace
from chainrule.failure import Console, Failure
from chainrule.viz.terminal import debug_script


class AccountHighlighter(RegexHighlighter):
    """Colours for the ledger: rules, node names, negative numbers, verdicts."""

    base_style = "account."
    highlights = [  # noqa: RUF012 (Rich's interface)
        r"├─ (?P<rule>.*?)(?=   carries|$)",
        r"● (?P<node>\S+)",
        r"(?P<negative>(?<![\w#])-\d[\d.e+-]*)",
        r"(?P<quiet>carries 0: .*)",
        r"(?P<ok>\bok\b)",
        r"(?P<wrong>\b(wrong|kink|inconclusive)\b)",
    ]


THEME = Theme({
    "account.rule": "cyan",
    "account.node": "bold",
    "account.negative": "yellow",
    "account.quiet": "dim",
    "account.ok": "bold green",
    "account.wrong": "bold red",
})  # fmt: skip


WIDE = 76  # columns that the tables of an account take


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 if a check found something wrong, 2 for a mistake in the call."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # of a file name in another encoding
    given = sys.argv[1:] if argv is None else list(argv)
    own, script_arguments = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    arguments = _parser().parse_args(own)
    arguments.arguments = script_arguments
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except Failure as failure:
        print(f"chainrule: {failure}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python writes out when it ends
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chainrule", description="Follow every gradient, node by node.")
    parser.add_argument("--version", action="version", version=f"chainrule {chainrule.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, help_: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_, description=help_ + " Without a script: the worked example.")
        added.set_defaults(command=run)
        added.add_argument("script", nargs="?", metavar="SCRIPT.py", help="a program that leaves a Tensor called `loss`")
        if name != "debug":
            added.add_argument("--loss", default="loss", metavar="NAME", help="the variable to start from (default: loss)")
        return added

    tracing = command("trace", run_trace, "Account for one entry of a gradient, from the loss down to it.")
    tracing.add_argument("--to", metavar="ENTRY", help='the entry, such as "WQ[1,0]", or a whole tensor, "WQ"')
    drawing = command("draw", run_draw, "Draw the computation graph with values and gradients.")
    zooms = ("module", "tensor", "scalar")
    drawing.add_argument("--zoom", choices=zooms, default="tensor", help="how much to show (default: tensor)")
    for added in (tracing, drawing):
        added.add_argument("--svg", metavar="FILE", help="write the picture")
        added.add_argument("--html", metavar="FILE", help="write the page, which works offline")
        added.add_argument("--json", metavar="FILE", help="write the numbers")
    checking = command("check", run_check, "Compare every entry of every gradient with differences.")
    checking.add_argument("--to", metavar="NAME", help='check only this tensor or entry, such as "WQ" or "WQ[1,0]"')
    checking.add_argument("--method", choices=("ridders", "complex", "central"), default="ridders")
    command("debug", run_debug, "Step through the chain rule, stopping at each .backward().")
    train_cli.add_commands(commands)
    return parser


def run_trace(arguments: argparse.Namespace) -> int:
    loss = _loss(arguments)
    t = trace_or_fail(loss, arguments.to or _default_target(arguments, loss))
    checked = t.check()
    console = _console()
    _print(account(t, digits=7 if console.width >= WIDE else 3))
    _write(arguments, svg=t.to_svg, html=t.to_html, json=t.to_json)
    return 0 if checked.verdict in ("ok", "kink") else 1


def run_draw(arguments: argparse.Namespace) -> int:
    loss = _loss(arguments)
    try:
        drawing = viz.draw(loss, zoom=arguments.zoom)
    except (ValueError, TypeError) as error:  # too many numbers, or an operation that cannot be taken apart
        raise Failure(error.args[0]) from None
    if not (arguments.svg or arguments.html or arguments.json):
        arguments.svg = "graph.svg"
    _write(arguments, svg=drawing.to_svg, html=drawing.to_html, json=drawing.to_json)
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    loss = _loss(arguments)
    try:
        report = check_graph(loss, arguments.to, method=arguments.method)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise Failure(error.args[0]) from None
    _print(str(report))
    return 0 if report.ok else 1


def run_debug(arguments: argparse.Namespace) -> int:
    return debug_script(_existing(arguments.script) if arguments.script else None, arguments.arguments)


def trace_or_fail(loss: Tensor, target: str) -> Trace:
    """`trace`, with the mistakes a caller can make as a Failure."""
    try:
        return trace(loss, target)
    except (KeyError, ValueError, IndexError) as error:
        raise Failure(error.args[0]) from None


def _loss(arguments: argparse.Namespace) -> Tensor:
    """The loss to follow: of the worked example, or of the script, run with source lines recorded."""
    with record_sources():
        if arguments.script is None:
            loss: Tensor = models.WorkedExample()()
            return loss
        variables = run_script(_existing(arguments.script), arguments.arguments)
    found = variables.get(arguments.loss)
    if not isinstance(found, Tensor):
        tensors = ", ".join(name for name, value in variables.items() if isinstance(value, Tensor))
        kind = "has no variable" if found is None else f"has a {type(found).__name__}, not a Tensor,"
        raise Failure(
            f"{arguments.script} {kind} called {arguments.loss!r}. Its Tensors are: {tensors or '(none)'}. Use --loss NAME."
        )
    if not found.requires_grad:
        raise Failure(f"{arguments.loss} in {arguments.script} does not depend on any tensor that requires a gradient.")
    for name, value in variables.items():  # the script's own names for what it has not named
        if isinstance(value, Tensor) and value.name is None and not name.startswith("_"):
            value.name = name
    return found


def run_script(path: str, arguments: list[str]) -> dict[str, Any]:
    """Run a program as `python path arguments…` would, and return its variables."""
    before = sys.argv, sys.path[:]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        return runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


def _existing(path: str) -> str:
    if not Path(path).is_file():
        raise Failure(f"there is no file {path!r}.")
    return path


def _default_target(arguments: argparse.Namespace, loss: Tensor) -> str:
    if arguments.script is None:
        return "WQ[1,0]"
    leaves = [node.path for node in ancestors(loss) if node.is_leaf and node.name]
    names = ", ".join(leaves) or "(none has a name)"
    raise Failure(f'say which entry to follow, with --to "NAME[i,j]". The leaves are: {names}.')


def _write(arguments: argparse.Namespace, **writers: Any) -> None:
    for kind, text_of in writers.items():
        if path := getattr(arguments, kind):
            try:
                Path(path).write_text(text_of(), encoding="utf-8")
            except OSError as error:
                raise Failure(f"cannot write {path}: {error.strerror}.") from None
            except viz.LayoutError as error:
                raise Failure(str(error)) from None
            print(f"wrote {path}")


def _console() -> Console:
    return Console(theme=THEME, highlighter=AccountHighlighter(), markup=False, emoji=False)


def _print(text: str) -> None:
    console = _console()
    if console.is_terminal:
        text = "\n".join(_folded(line, console.width) for line in text.splitlines())
    console.print(text, soft_wrap=True)


def _folded(line: str, width: int) -> str:
    """A line too long for the terminal, folded between words; below its beginning stay the lines of the account."""
    lead = re.match(r"[ │├─●⋮]*", line)[0]  # type: ignore[index]
    below = lead.replace("├─", "│ ").replace("●", "│") + "  "
    return "\n".join(textwrap.wrap(line, width, subsequent_indent=below, break_on_hyphens=False)) or line
