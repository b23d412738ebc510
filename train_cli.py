"""The commands `chainrule train` and `chainrule sample`."""

from __future__ import annotations

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from chainrule.failure import Failure
from chainrule.models import checkpoints, tasks
from chainrule.models.generation import stream
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.training import CHECKPOINT, Diverged, Interrupted, Record, Report, Trainer, TrainingConfig
from chainrule.nn.activations import ACTIVATIONS
from chainrule.nn.blocks import SWIGLU
from chainrule.viz.curves import loss_curve

CURVE = "loss.svg"

# The options


class Option(NamedTuple):
    """One setting: how its text is read, what it means, and what it may be."""

    read: Callable[[str], Any]
    help: str
    choices: tuple[str, ...] = ()


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError
    return text == "True"


def _whole_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _two_numbers(text: str) -> list[float]:
    first, second = text.split(",")
    return [float(first), float(second)]


MODEL = {
    "layers": Option(int, "blocks"),
    "heads": Option(int, "attention heads in each"),
    "kv_heads": Option(int, "heads of keys and values, if fewer"),
    "width": Option(int, "d_model: numbers for each position"),
    "hidden": Option(int, "d_ff: numbers inside the position-wise network (4 · width)"),
    "context": Option(int, "tokens read at once"),
    "norm": Option(str, "normalisation", ("layer", "rms")),
    "positions": Option(str, "how positions are told apart", ("learned", "sinusoidal", "rope", "alibi", "none")),
    "activation": Option(str, "σ of the position-wise network, or of the perceptron", (*ACTIVATIONS, SWIGLU)),
    "dropout": Option(float, "share of entries left out in training"),
    "untied": Option(_flag, "an unembedding of its own instead of Eᵀ"),
    "bias": Option(_flag, "biases"),
    "sizes": Option(_whole_numbers, "digits: neurons in each layer, 784 first and 10 last"),
    "output": Option(str, "digits: squared cost of activations, or cross-entropy of logits", ("activation", "logits")),
}
TEXT = {
    "tokenizer": Option(str, "what a token is", ("char", "bpe", "word")),
    "vocab_size": Option(int, "tokens at most, for bpe (1024) and word (all words)"),
    "lines": Option(_flag, "each line of the text is a document of its own"),
}
TRAINING = {
    "steps": Option(int, "steps of the optimiser"),
    "batch": Option(int, "examples in a batch"),
    "accumulate": Option(int, "batches averaged for one step"),
    "lr": Option(float, "learning rate, at its highest"),
    "schedule": Option(str, "how it falls", ("cosine", "linear", "constant")),
    "warmup": Option(int, "steps in which it rises (a tenth of the steps, 100 at most)"),
    "final": Option(float, "share of it that is left at the end"),
    "optimizer": Option(str, "rule of the step", ("adamw", "adam", "sgd")),
    "betas": Option(_two_numbers, "of Adam: what is kept of the mean and of the mean square"),
    "weight_decay": Option(float, "of AdamW, on matrices"),
    "clip": Option(float, "largest norm of the gradient; 0 for any"),
    "eval_every": Option(int, "steps between evaluations (a twentieth of the steps)"),
    "checkpoint_every": Option(int, "steps between checkpoints (as eval-every)"),
    "sample_every": Option(int, "steps between samples; 0 for none (a fifth of the steps)"),
    "seed": Option(int, "of the first parameters, the batches and dropout"),
    "dtype": Option(str, "of the numbers", ("float32", "float64")),
}
OPTIONS = MODEL | TEXT | TRAINING

# What holds unless said otherwise. An option that is not here does not apply to that source.
OPTIMIZER: dict[str, Any] = {
    "accumulate": 1, "lr": 1e-3, "schedule": "cosine", "warmup": None, "final": 0.1, "optimizer": "adamw",
    "betas": [0.9, 0.99], "weight_decay": 0.1, "clip": 1.0, "eval_every": None, "checkpoint_every": None,
    "sample_every": None, "seed": 0, "dtype": "float32",
}  # fmt: skip
A_TEXT: dict[str, Any] = {
    "layers": 4, "heads": 4, "kv_heads": None, "width": 128, "hidden": None, "context": 64, "norm": "layer",
    "positions": "learned", "activation": "gelu_tanh", "dropout": 0.0, "untied": False, "bias": True,
    "tokenizer": "char", "vocab_size": None, "lines": False, "steps": 5000, "batch": 12, **OPTIMIZER,
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "shakespeare": A_TEXT,
    "names": A_TEXT | {  # microgpt's (A. Karpathy), in batches
        "layers": 1, "width": 16, "context": 16, "norm": "rms", "activation": "relu", "untied": True, "bias": False,
        "lines": True, "steps": 1000, "batch": 32, "lr": 1e-2, "schedule": "linear", "warmup": 0, "final": 0.0,
        "betas": [0.85, 0.99], "weight_decay": 0.0, "clip": 0.0,
    },
    "tang_quatrains": A_TEXT | {"context": 32, "lines": True, "batch": 32},
    "digits": {
        "sizes": [784, 16, 16, 10], "activation": "sigmoid", "output": "activation", "steps": 8000, "batch": 10,
        **OPTIMIZER, "lr": 2.0, "warmup": 0, "optimizer": "sgd", "clip": 0.0,
    },
}  # fmt: skip


def add_commands(commands: Any) -> None:
    """Add `train` and `sample` to the subparsers of the command line."""
    training = commands.add_parser(
        "train",
        help="Train a GPT on text, or a perceptron on digits.",
        description="Train a GPT on text, or a perceptron on handwritten digits, and keep it in a folder.\n"
        "Ctrl-C saves and stops; --resume goes on, to the same bytes as a run that never stopped.",
        epilog=textwrap.dedent("""\
            examples:
              chainrule train names                          ten seconds: names that do not exist
              chainrule train shakespeare --steps 1000
              chainrule train book.txt --tokenizer bpe --layers 6 --width 192 --out runs/book
              chainrule train --resume --out runs/book
              chainrule sample runs/book --prompt "It was"
        """),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    training.set_defaults(command=run_train)
    training.add_argument(
        "source", nargs="?", metavar="SOURCE", help=f"a text file (UTF-8), or one of {', '.join(tasks.SHIPPED)}"
    )
    training.add_argument("--out", metavar="FOLDER", help="where it is kept (default: runs/SOURCE)")
    training.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    training.add_argument(
        "--config", metavar="FILE.toml", help="options by name, such as weight_decay = 0.1; the command line wins"
    )
    for title, options in (("model", MODEL), ("tokens", TEXT), ("training", TRAINING)):
        group = training.add_argument_group(title)
        for name, option in options.items():
            _add_option(group, name, option)

    sampling = commands.add_parser("sample", help="Let a trained GPT write.", description="Let a trained GPT write.")
    sampling.set_defaults(command=run_sample)
    sampling.add_argument("path", metavar="FOLDER", help="a run's folder, a checkpoint file, or a Hugging Face folder")
    sampling.add_argument("--prompt", default="", metavar="TEXT", help="what to go on from (default: a beginning)")
    sampling.add_argument("--max-new-tokens", type=int, default=200, metavar="N", help="tokens at most (default: 200)")
    sampling.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0: always the likeliest (default: 1)")
    sampling.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest tokens")
    sampling.add_argument("--top-p", type=float, metavar="P", help="only the likeliest tokens that make up P")
    sampling.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; may be given again")
    sampling.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed, the same text (default: 0)")
    sampling.add_argument("--count", type=int, default=1, metavar="N", help="how many (default: 1)")


def _add_option(group: Any, name: str, option: Option) -> None:
    said = f"--{name.replace('_', '-')}"
    described = option.help + _said_defaults(name)
    if option.read is _flag:
        group.add_argument(said, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=described)
        return
    metavar = None if option.choices else {int: "N", float: "X", str: "NAME"}.get(option.read, "N,N")  # type: ignore[call-overload]

    def read(text: str) -> Any:  # named so that argparse says what it wanted
        return option.read(text)

    read.__name__ = {int: "whole number", float: "number"}.get(option.read, "list, such as 1,2")  # type: ignore[call-overload]
    kind = str if option.read is str else read
    group.add_argument(
        said, type=kind, choices=option.choices or None, default=argparse.SUPPRESS, metavar=metavar, help=described
    )


def _said_defaults(name: str) -> str:
    """ " (default: 4; names: 1)": a text's default, and those of the sources that have another."""
    usual = A_TEXT.get(name)
    said = [_text(usual)] if name in A_TEXT and usual is not None else []
    said += [f"{source}: {_text(own[name])}" for source, own in DEFAULTS.items() if own.get(name) not in (None, usual)]
    return f" (default: {'; '.join(said)})" if said else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


# chainrule train


def run_train(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in OPTIONS if hasattr(arguments, name)}
    configured = _configured(arguments.config) if arguments.config else {}
    source = arguments.source or configured.pop("source", None)
    out = arguments.out or configured.pop("out", None)
    given = {name: value for name, value in configured.items() if name not in ("source", "out")} | given
    if source is None and not (arguments.resume and out):
        raise Failure(f"say what to train on: a text file, or one of {', '.join(tasks.SHIPPED)}. See chainrule train --help.")
    folder = Path(out) if out else Path("runs") / Path(source).stem
    try:
        trainer = _resumed(folder, source, given) if arguments.resume else _started(folder, source, given)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise Failure(str(error)) from None
    return _run(trainer, folder)


def _configured(path: str) -> dict[str, Any]:
    """The options of a TOML file, checked as those of the command line are."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:  # also of text that is not UTF-8
        raise Failure(f"{path} is not TOML: {error}.") from None
    found = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name in ("source", "out"):
            found[name] = str(value)
            continue
        if name not in OPTIONS:
            close = get_close_matches(name, OPTIONS, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(OPTIONS)}."
            raise Failure(f"{path}: there is no option {key!r}.{hint}")
        option = OPTIONS[name]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            found[name] = option.read(text)
        except ValueError:
            raise Failure(f"{path}: {key} does not take {value!r} ({option.help}).") from None
        if option.choices and found[name] not in option.choices:
            raise Failure(f"{path}: {key} is one of {', '.join(option.choices)}; got {value!r}.")
    return found


def _started(folder: Path, source: str, given: dict[str, Any]) -> Trainer:
    if (folder / CHECKPOINT).exists():
        raise Failure(f"{folder} holds a run. Go on with it by --resume, or choose another folder with --out.")
    if source not in tasks.SHIPPED and not Path(source).is_file():
        close = get_close_matches(source, tasks.SHIPPED, n=1)
        hint = f" Did you mean {close[0]}?" if close else f" The shipped sets are {', '.join(tasks.SHIPPED)}."
        raise Failure(f"there is no file {source!r}.{hint}")
    o = _resolved(source, given)
    config = TrainingConfig(**{name: o[name] for name in TRAINING if name != "dtype"} | {"betas": tuple(o["betas"])})
    about = {"options": {"source": source, **o}}
    dtype = np.dtype(o["dtype"])
    if source == "digits":
        mlp = MLPConfig(tuple(o["sizes"]), o["activation"], o["output"])
        images = tasks.from_source(source, dtype=dtype)
        if (mlp.sizes[0], mlp.sizes[-1]) != (784, 10):
            raise Failure(f"an image has 784 pixels and there are 10 digits: sizes are 784, …, 10; got {_text(o['sizes'])}.")
        return Trainer(MLP(mlp, seed=o["seed"], dtype=dtype), images, config, folder, about=about)
    task = tasks.from_source(
        source, context=o["context"], tokenizer=o["tokenizer"], vocab_size=o["vocab_size"], lines=o["lines"]
    )
    assert task.tokenizer is not None
    gpt = GPTConfig(
        vocab_size=task.tokenizer.vocab_size, context=o["context"], n_layer=o["layers"], n_head=o["heads"], d_model=o["width"],
        n_kv_head=o["kv_heads"], d_ff=o["hidden"], activation=o["activation"], norm=o["norm"], positions=o["positions"],
        tied=not o["untied"], bias=o["bias"], dropout=o["dropout"],
    )  # fmt: skip
    return Trainer(GPT(gpt, seed=o["seed"], dtype=dtype), task, config, folder, about=about)


def _resolved(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options of a run: the source's defaults, what was given, and what follows from the number of steps."""
    defaults = DEFAULTS.get(source, A_TEXT)
    for name in given:
        if name not in defaults:
            raise Failure(f"--{name.replace('_', '-')} does not apply to {source}.")
    o = defaults | given
    steps = o["steps"]
    follows = {"warmup": min(100, steps // 10), "eval_every": max(1, steps // 20), "sample_every": max(1, steps // 5)}
    for name, value in follows.items():
        o[name] = value if o[name] is None else o[name]
    o["checkpoint_every"] = o["eval_every"] if o["checkpoint_every"] is None else o["checkpoint_every"]
    return o


def _resumed(folder: Path, source: str | None, given: dict[str, Any]) -> Trainer:
    _, metadata = checkpoints.load_run(folder / CHECKPOINT)
    recorded = metadata.get("about", {}).get("options", {})
    asked = ({} if source is None else {"source": source}) | given
    other = [
        f"{name} {_text(recorded.get(name))}, not {_text(value)}"
        for name, value in asked.items()
        if recorded.get(name) != value
    ]
    if other:
        raise Failure(f"the run in {folder} has {'; '.join(other)}. Leave these out, or start another run with --out.")
    return Trainer.resume(folder)


def _run(trainer: Trainer, folder: Path) -> int:
    console = Console(highlight=False, soft_wrap=True)
    config, kind = trainer.config, type(trainer.model).__name__
    count = sum(parameter.size for parameter in trainer.model.parameters())
    began = f"from step {trainer.step_count:,} to" if trainer.step_count else "in"
    console.print(f"{kind} of {count:,} parameters; {began} {config.steps:,} steps; {folder}")
    code = 0
    report = Bar(console) if console.is_terminal else Lines(console)
    try:
        with report:
            trainer.run(report)
    except Interrupted as interrupted:
        print(f"\n{interrupted}\nchainrule train --resume --out {folder}", file=sys.stderr)
        code = 128 + interrupted.signal
    except Diverged as error:
        print(f"chainrule: {error}", file=sys.stderr)
        code = 1
    except OSError as error:
        raise Failure(f"cannot write {error.filename or folder}: {error.strerror}.") from None
    curve = loss_curve(trainer.history, trainer.losses, title=str(trainer.about.get("options", {}).get("source", "")))
    (folder / CURVE).write_text(curve, encoding="utf-8")
    console.print(f"wrote {folder / CHECKPOINT}, {folder / CURVE}")
    return code


class Lines(Report):
    """One line for each evaluation."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.before = (0, 0.0)

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def evaluation(self, trainer: Trainer, record: Record) -> None:
        count, seconds = trainer.count - self.before[0], trainer.seconds - self.before[1]
        self.before = trainer.count, trainer.seconds
        said = [f"step {record.step:>{len(str(trainer.config.steps))}}"]
        said += [f"training {record.train_loss:.4f}"] if record.step else []
        said += [f"validation {record.validation_loss:.4f}"]
        said += [] if np.isnan(record.accuracy) else [f"right {record.accuracy:.2%}"]
        said += [f"{count / seconds:,.0f} {trainer.task.unit}/s"] if seconds else []
        self.console.print("   ".join(said), markup=False)

    def sample(self, trainer: Trainer, text: str) -> None:
        if text:
            self.console.print(textwrap.indent(text, "    ", lambda line: True), markup=False, style="dim")


class Bar(Lines):
    """The same, above a bar that moves: step, loss, tokens a second, time left."""

    SECONDS = 0.1  # between two movements

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.progress = Progress(
            TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"), BarColumn(), TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(), console=console, auto_refresh=False, transient=True,
        )  # fmt: skip
        self.bar: Any = None
        self.moved = 0.0

    def __enter__(self) -> None:
        self.progress.start()

    def __exit__(self, *exc_info: object) -> None:
        self.progress.stop()

    def step(self, trainer: Trainer) -> None:
        now = monotonic()
        if now - self.moved < self.SECONDS:
            return
        self.moved = now
        if self.bar is None:
            self.bar = self.progress.add_task("", total=trainer.config.steps, said="")
        said = f"loss {trainer.losses[-1]:.4f}   {trainer.count / trainer.seconds:,.0f} {trainer.task.unit}/s"
        self.progress.update(self.bar, completed=trainer.step_count, said=said, refresh=True)


# chainrule sample


def run_sample(arguments: argparse.Namespace) -> int:
    path = Path(arguments.path)
    try:
        model, tokenizer, metadata = checkpoints.load_model(path)
        if not isinstance(model, GPT) or tokenizer is None:
            raise Failure(f"{path} holds a {type(model).__name__} that writes no text, or no tokenizer.")
        for i in range(arguments.count):
            for piece in _pieces(model, tokenizer, (metadata.get("task") or {}).get("lines", False), arguments, i):
                print(piece, end="", flush=True)
            print(flush=True)
    except (OSError, ValueError, ImportError) as error:
        raise Failure(str(error)) from None
    except KeyboardInterrupt:
        print()
        return 130
    return 0


def _pieces(model: GPT, tokenizer: Any, lines: bool, arguments: argparse.Namespace, i: int) -> Iterator[str]:
    """The prompt, then what the model makes of it, as it is made."""
    boundary = [tokenizer.special[tasks.BOUNDARY]] if lines else []
    ids = boundary + (tokenizer.encode(arguments.prompt) if arguments.prompt else [])
    if not ids:
        ids = tokenizer.encode("\n") if "\n" in tokenizer.tokens or "Ċ" in tokenizer.tokens else [0]
    yield arguments.prompt
    yield from stream(
        model, ids, arguments.max_new_tokens, temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p,
        stop=boundary or None, stop_strings=arguments.stop, tokenizer=tokenizer, seed=arguments.seed + i,
    )  # fmt: skip
