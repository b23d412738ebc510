"""The commands `chainrule train` and `chainrule sample`."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from chainrule.failure import Console, Failure
from chainrule.models import checkpoints, tasks
from chainrule.models.generation import stream
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.training import CHECKPOINT, Diverged, Interrupted, InUse, Record, Report, Saved, Trainer, TrainingConfig
from chainrule.nn.activations import ACTIVATIONS
from chainrule.nn.blocks import SWIGLU
from chainrule.viz.curves import loss_curve

CURVE = "loss.svg"

# The options


class Option(NamedTuple):
    """One setting: the kind of its value, what it means, and what it may be."""

    kind: Any  # int, float, bool, str, or tuple[…] of numbers
    help: str
    choices: tuple[str, ...] = ()

    def fits(self, value: Any) -> bool:
        """Whether a value of a file is of this kind: no text for a number, no list for one value."""
        if get_origin(self.kind) is tuple:
            part = Option(get_args(self.kind)[0], "")
            return isinstance(value, list) and all(part.fits(item) for item in value)
        return type(value) in ((int, float) if self.kind is float else (self.kind,))

    def read(self, text: str) -> Any:
        """The value that a text means; ValueError if none."""
        if self.kind is bool:
            if text not in ("True", "False"):
                raise ValueError
            return text == "True"
        if get_origin(self.kind) is tuple:
            part, *others = get_args(self.kind)
            numbers = [part(piece) for piece in text.split(",")]
            if others != [...] and len(numbers) != 1 + len(others):
                raise ValueError
            return numbers
        return self.kind(text)


HELP = {
    "layers": "blocks",
    "heads": "attention heads in each",
    "kv_heads": "heads of keys and values, if fewer",
    "width": "d_model: numbers for each position",
    "d_head": "numbers in a head (width / heads)",
    "hidden": "d_ff: numbers inside the position-wise network (4 · width)",
    "context": "tokens read at once",
    "norm": "normalisation",
    "norm_eps": "the ε inside its root",
    "pre_norm": "it comes before each part; --no-pre-norm: after, as in the first Transformer",
    "positions": "how positions are told apart",
    "rope_base": "of the wavelengths of rope",
    "rope_halves": "rope pairs feature i with i + d/2, as Llama does",
    "activation": "σ of the position-wise network, or of the perceptron",
    "dropout": "share of entries left out in training",
    "tied": "the unembedding is Eᵀ; --no-tied: a matrix of its own",
    "bias": "biases",
    "tiled": "attention in memory linear in length",
    "sizes": "digits: neurons in each layer, 784 first and 10 last",
    "output": "digits: squared cost of activations, or cross-entropy of logits",
    "steps": "steps of the optimiser; with --resume: as many in all",
    "batch": "examples in a batch",
    "accumulate": "batches averaged for one step",
    "lr": "learning rate, at its highest",
    "schedule": "how it falls",
    "warmup": "steps in which it rises (a tenth of the steps, 100 at most)",
    "final": "share of it that is left at the end",
    "optimizer": "rule of the step",
    "betas": "of both Adams: what is kept of the mean and of the mean square",
    "eps": "of both Adams: added to the root of the mean square",
    "weight_decay": "of AdamW, on matrices",
    "momentum": "of SGD: what is kept of the last step",
    "nesterov": "of SGD: look ahead by the momentum",
    "clip": "largest norm of the gradient; 0 for any",
    "eval_every": "steps between evaluations (a twentieth of the steps)",
    "checkpoint_every": "steps between checkpoints (as eval-every)",
    "sample_every": "steps between samples; 0 for none (a fifth of the steps)",
    "seed": "of the first parameters, the batches and dropout",
}
SHORT = {"n_layer": "layers", "n_head": "heads", "n_kv_head": "kv_heads", "d_model": "width", "d_ff": "hidden"}
ONLY = {  # options that say something only where another has one of these values
    "vocab_size": ("tokenizer", ("bpe", "word")),
    "rope_base": ("positions", ("rope",)),
    "rope_halves": ("positions", ("rope",)),
    "betas": ("optimizer", ("adamw", "adam")),
    "eps": ("optimizer", ("adamw", "adam")),
    "weight_decay": ("optimizer", ("adamw",)),
    "momentum": ("optimizer", ("sgd",)),
    "nesterov": ("optimizer", ("sgd",)),
    "warmup": ("schedule", ("cosine", "linear")),
    "final": ("schedule", ("cosine", "linear")),
}


def _options_of(config: type) -> dict[str, Option]:
    """An option for each field of a config, of the field's kind; a tokeniser says how large the vocabulary is."""
    options = {}
    for name, kind in get_type_hints(config).items():
        if name == "vocab_size":
            continue
        option = SHORT.get(name, name)
        if get_origin(kind) is UnionType:  # int | None
            kind = get_args(kind)[0]
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        choices = (*ACTIVATIONS, SWIGLU) if name == "activation" else choices
        options[option] = Option(str if choices else kind, HELP[option], choices)
    return options


def _defaults_of(config: type) -> dict[str, Any]:
    """By option, the default of each field that has one; lists for tuples, as JSON has them."""
    own = {SHORT.get(field.name, field.name): field.default for field in fields(config) if field.default is not MISSING}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}


MODEL = _options_of(GPTConfig) | _options_of(MLPConfig)
TEXT = {
    "tokenizer": Option(str, "what a token is", ("char", "bpe", "word")),
    "vocab_size": Option(int, "tokens at most, for bpe (1024) and word (all words)"),
    "lines": Option(bool, "each line of the text is a document of its own"),
}
TRAINING = _options_of(TrainingConfig) | {"dtype": Option(str, "of the numbers", ("float32", "float64"))}
OPTIONS = MODEL | TEXT | TRAINING

# What holds unless said otherwise. An option that is not here does not apply to that source. None follows from the others.
LEFT_OPEN = dict.fromkeys(("warmup", "eval_every", "checkpoint_every", "sample_every"))
OPTIMIZER: dict[str, Any] = _defaults_of(TrainingConfig) | {"dtype": "float32"} | LEFT_OPEN
A_TEXT: dict[str, Any] = _defaults_of(GPTConfig) | OPTIMIZER | {
    "layers": 4, "heads": 4, "width": 128, "context": 64, "tokenizer": "char", "vocab_size": None, "lines": False,
    "steps": 5000, "batch": 12,
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "shakespeare": A_TEXT,
    "names": A_TEXT | {  # microgpt's (A. Karpathy), in batches
        "layers": 1, "width": 16, "context": 16, "norm": "rms", "activation": "relu", "tied": False, "bias": False,
        "lines": True, "steps": 1000, "batch": 32, "lr": 1e-2, "schedule": "linear", "warmup": 0, "final": 0.0,
        "betas": [0.85, 0.99], "weight_decay": 0.0, "clip": 0.0,
    },
    "tang_quatrains": A_TEXT | {"context": 32, "lines": True, "batch": 32},
    "digits": _defaults_of(MLPConfig) | OPTIMIZER | {
        "steps": 8000, "batch": 10, "lr": 2.0, "warmup": 0, "optimizer": "sgd", "clip": 0.0
    },
}  # fmt: skip


def add_commands(commands: Any) -> None:
    """Add `train` and `sample` to the subparsers of the command line."""
    training = commands.add_parser(
        "train",
        usage="chainrule train [SOURCE] [--out FOLDER] [--resume] [--config FILE.toml] [--OPTION VALUE ...]",
        help="Train a GPT on text, or a perceptron on digits.",
        description="Train a GPT on text, or a perceptron on handwritten digits, and keep it in a folder.\n"
        "Ctrl-C saves and stops; --resume goes on, to the same bytes as a run that never stopped.",
        epilog=textwrap.dedent("""\
            examples:
              chainrule train names                          ten seconds: names that do not exist
              chainrule train shakespeare --steps 1000
              chainrule train book.txt --tokenizer bpe --layers 6 --width 192 --out runs/book
              chainrule train --resume --out runs/book
              chainrule train --resume --out runs/book --steps 9000
              chainrule sample runs/book --prompt "It was"
        """),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    training.set_defaults(command=run_train)
    training.add_argument(
        "source", nargs="?", metavar="SOURCE", help=f"a text file (UTF-8), or one of {', '.join(tasks.SHIPPED)}"
    )
    training.add_argument("--out", metavar="FOLDER", help="where it is kept (default: runs/SOURCE)")
    training.add_argument(
        "--resume", action="store_true", help="go on with the run in the folder; with more --steps, by their schedule"
    )
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
    sampling.add_argument("--count", type=_positive, default=1, metavar="N", help="how many (default: 1)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is a whole number from 1; got {text!r}")
    return int(text)


def _add_option(group: Any, name: str, option: Option) -> None:
    described = option.help + _said_defaults(name)
    if option.kind is bool:
        group.add_argument(_said(name), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=described)
        return
    metavar = None if option.choices else {int: "N", float: "X", str: "NAME"}.get(option.kind, "N,N")

    def read(text: str) -> Any:  # named so that argparse says what it wanted
        return option.read(text)

    read.__name__ = {int: "whole number", float: "number"}.get(option.kind, "list, such as 1,2")
    kind = str if option.kind is str else read
    group.add_argument(
        _said(name), type=kind, choices=option.choices or None, default=argparse.SUPPRESS, metavar=metavar, help=described
    )


def _said(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
    except BrokenPipeError:
        raise
    except (OSError, ValueError, TypeError, ImportError, MemoryError) as error:
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
    except RecursionError:
        raise Failure(f"{path} is nested too deeply; options are names with values.") from None
    found = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name in ("source", "out"):
            if not isinstance(value, str) or not value or "\0" in value:
                raise Failure(f"{path}: {key} is the name of a file or folder, as text; got {value!r}.")
            found[name] = value
            continue
        if name not in OPTIONS:
            close = get_close_matches(name, OPTIONS, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(OPTIONS)}."
            raise Failure(f"{path}: there is no option {key!r}.{hint}")
        option = OPTIONS[name]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(
            option.kind, "a list of numbers"
        )
        try:
            if not option.fits(value):
                raise ValueError
            found[name] = option.read(text)
        except ValueError:
            raise Failure(f"{path}: {key} does not take {value!r}; it is {kind} ({option.help}).") from None
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
    config = _made(TrainingConfig, o)
    about = {"options": {"source": source, **o}}
    dtype = np.dtype(o["dtype"])
    if source == "digits":
        mlp = _made(MLPConfig, o)
        images = tasks.from_source(source, dtype=dtype)
        if (mlp.sizes[0], mlp.sizes[-1]) != (784, 10):
            raise Failure(f"an image has 784 pixels and there are 10 digits: sizes are 784, …, 10; got {_text(o['sizes'])}.")
        return Trainer(MLP(mlp, seed=o["seed"], dtype=dtype), images, config, folder, about=about)
    gpt = _made(GPTConfig, o, vocab_size=1)  # to find what is wrong with it before a long text is read
    task = tasks.from_source(
        source, context=o["context"], tokenizer=o["tokenizer"], vocab_size=o["vocab_size"], lines=o["lines"]
    )
    assert task.tokenizer is not None
    gpt = replace(gpt, vocab_size=task.tokenizer.vocab_size)
    return Trainer(GPT(gpt, seed=o["seed"], dtype=dtype), task, config, folder, about=about)


def _made(config: Any, o: dict[str, Any], **more: Any) -> Any:
    """A config from the options; Failure, in the options' names, for what it refuses."""
    names = {field.name: SHORT.get(field.name, field.name) for field in fields(config) if field.name not in more}
    try:
        return config(
            **{field: tuple(o[name]) if isinstance(o[name], list) else o[name] for field, name in names.items()}, **more
        )
    except ValueError as error:
        words = re.compile(rf"\b({'|'.join(names)})\b")
        raise Failure(words.sub(lambda word: _said(names[word[0]]), str(error))) from None


def _resolved(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options of a run: the source's defaults, what was given, and what follows from the number of steps."""
    defaults = DEFAULTS.get(source, A_TEXT)
    for name in given:
        if name not in defaults:
            raise Failure(f"{_said(name)} does not apply to {source}.")
    o = defaults | given
    for name, (other, values) in ONLY.items():
        if given.get(name) and given[name] != defaults[name] and o[other] not in values:
            raise Failure(f"{_said(name)} goes with {_said(other)} {' or '.join(values)}; got {o[other]}.")
    if o.get("vocab_size") is not None and o["vocab_size"] < 1:
        raise Failure(f"--vocab-size is a positive whole number; got {o['vocab_size']}.")
    steps = o["steps"]
    follows = {"warmup": min(100, steps // 10), "eval_every": max(1, steps // 20), "sample_every": max(1, steps // 5)}
    for name, value in follows.items():
        o[name] = value if o[name] is None else o[name]
    o["checkpoint_every"] = o["eval_every"] if o["checkpoint_every"] is None else o["checkpoint_every"]
    return o


def _resumed(folder: Path, source: str | None, given: dict[str, Any]) -> Trainer:
    _, metadata = checkpoints.load_run(folder / CHECKPOINT)
    recorded = _options(Saved.read(folder / CHECKPOINT, metadata).about)
    asked = ({} if source is None else {"source": source}) | given
    steps = asked.pop("steps", None)
    other = [
        f"{name} {_text(recorded.get(name))}, not {_text(value)}"
        for name, value in asked.items()
        if recorded.get(name) != value
    ]
    if other:
        raise Failure(f"the run in {folder} has {'; '.join(other)}. Leave these out, or start another run with --out.")
    trainer = Trainer.resume(folder, steps=steps)
    if steps not in (None, recorded.get("steps")):
        recorded = recorded | {"steps": steps}
        trainer.about = trainer.about | {"options": recorded}
        if trainer.config.schedule != "constant" and trainer.step_count < trainer.config.steps:
            rate = f"{trainer.schedule(trainer.step_count):.3g}"
            print(f"the {trainer.config.schedule} is now that of {steps:,} steps, and the learning rate goes on from {rate}")
    return trainer


def _options(about: dict[str, Any]) -> dict[str, Any]:
    """The options that a run began with; none of a run that Python began, which may say anything of itself."""
    options = about.get("options")
    return options if isinstance(options, dict) else {}


def _run(trainer: Trainer, folder: Path) -> int:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
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
        print(f"\n{interrupted}\nchainrule train --resume --out {shlex.quote(str(folder))}", file=sys.stderr)
        code = 128 + interrupted.signal
    except Diverged as error:
        print(f"chainrule: {error}", file=sys.stderr)
        code = 1
    except InUse as error:
        raise Failure(str(error)) from None
    except MemoryError as error:
        raise Failure(f"there is too little memory for this model and batch ({error}).") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"cannot write {error.filename or folder}: {error.strerror}.") from None
    written = [str(folder / CHECKPOINT)]
    if np.isfinite(trainer.losses).any() or np.isfinite([record.validation_loss for record in trainer.history]).any():
        source = str(_options(trainer.about).get("source", ""))
        try:
            (folder / CURVE).write_text(loss_curve(trainer.history, trainer.losses, title=source), encoding="utf-8")
        except OSError as error:
            raise Failure(f"{written[0]} is written, but {folder / CURVE} cannot be: {error.strerror}.") from None
        written.append(str(folder / CURVE))
    console.print(f"wrote {', '.join(written)}")
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
        self.console.print("   ".join(said))

    def sample(self, trainer: Trainer, text: str) -> None:
        if text:
            self.console.print(textwrap.indent(text, "    ", lambda line: True), style="dim")


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
    if not path.exists() and ("runs" / path).exists():
        raise Failure(f"there is no {path}. Did you mean runs/{path}?")
    try:
        model, tokenizer, metadata = checkpoints.load_model(path)
        if not isinstance(model, GPT):
            raise Failure(f"{path} holds a model of the kind {type(model).__name__}, which writes no text; a GPT does.")
        if tokenizer is None:
            raise Failure(
                f"{path} holds a GPT without a tokenizer. A Hugging Face folder needs its tokenizer.json; "
                "checkpoints.save_model writes one beside the parameters."
            )
        recipe = Saved.read(path, metadata).recipe if "training" in metadata else None
        lines = recipe is not None and recipe.get("lines", False)
        if lines and tasks.BOUNDARY not in tokenizer.special:
            raise Failure(f"{path} is of documents, but its tokenizer has no {tasks.BOUNDARY} to begin one with.")
        for i in range(arguments.count):
            if i and not lines:
                print("---")  # a text may have many lines
            for piece in _pieces(model, tokenizer, lines, arguments, i):
                print(piece, end="", flush=True)
            print(flush=True)
    except BrokenPipeError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise Failure(str(error)) from None
    except KeyboardInterrupt:
        print()
        return 130
    return 0


def _pieces(model: GPT, tokenizer: Any, lines: bool, arguments: argparse.Namespace, i: int) -> Iterator[str]:
    """The prompt, then what the model makes of it, as it is made."""
    boundary = [tokenizer.special[tasks.BOUNDARY]] if lines else []
    ids = boundary + (_encoded(arguments.prompt, tokenizer) if arguments.prompt else [])
    if not ids:
        ids = tokenizer.encode("\n") if "\n" in tokenizer.tokens or "Ċ" in tokenizer.tokens else [0]
    ends = [token for name, token in tokenizer.special.items() if name != tasks.UNKNOWN]  # a word not known is text
    pieces = stream(
        model, ids, arguments.max_new_tokens, temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p,
        stop=ends or None, stop_strings=arguments.stop, tokenizer=tokenizer, seed=arguments.seed + i,
    )  # fmt: skip
    yield arguments.prompt
    yield from pieces


def _encoded(prompt: str, tokenizer: Any) -> list[int]:
    try:
        ids: list[int] = tokenizer.encode(prompt)
    except ValueError as error:
        if tokenizer.kind not in ("char", "word"):
            raise
        what = str(error).partition(" is not in")[0]
        raise Failure(
            f"--prompt: {what} is not in the text that this model was trained on. Leave it out; or train with "
            f"--tokenizer bpe, which reads any text."
        ) from None
    return ids
