"""Training: batch, loss, backward, step; with evaluations, checkpoints, and a resume that changes no bit.

    task = tasks.from_source("shakespeare", context=64)
    gpt = GPT(GPTConfig(vocab_size=task.tokenizer.vocab_size, context=64, n_layer=4, n_head=4, d_model=128), dtype=np.float32)
    trainer = Trainer(gpt, task, TrainingConfig(steps=5000, batch=12), folder="runs/shakespeare")
    trainer.run()
    Trainer.resume("runs/shakespeare").run()        # after a crash or Ctrl-C
    Trainer.resume("runs/shakespeare", steps=9000).run()        # and further

Batches and dropout depend on the seed and the number of the step alone, and a checkpoint holds all else: parameters, the
optimiser's state, losses. So a run that was killed and resumed ends in the same bytes as one that never stopped.
"""

from __future__ import annotations

import errno
import json
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from chainrule.models import checkpoints, tasks
from chainrule.models.counting import check_batch
from chainrule.models.tasks import Task
from chainrule.nn.checks import NUMBERS
from chainrule.nn.dropout import Dropout, reseed
from chainrule.nn.module import Module
from chainrule.nn.optim import SGD, Adam, AdamW, Optimizer, clip_grad_norm, scale_gradients
from chainrule.nn.schedules import Schedule, constant, cosine, linear

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

CHECKPOINT = checkpoints.CHECKPOINT
LOG = "log.jsonl"
LOCK = ".lock"
OPTIMIZER = f"{checkpoints.TRAINING}optimizer."  # prefix of the arrays that the optimiser keeps

OTHER_DATA = "other data now than {} was trained on, so the run cannot go on as it began. Put them back, or start another run."
QUIETLY = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a run that diverges is stopped, and told why, below


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained.

    Args:
        steps: optimiser steps. batch: examples in each. accumulate: batches whose gradients are averaged for one step.
        lr: the learning rate; `schedule` takes it up in `warmup` steps, then down to `final` · lr ("cosine", "linear").
        optimizer: "adamw", "adam" or "sgd". betas, eps: of both Adams. weight_decay: of AdamW. momentum, nesterov: of SGD.
        clip: the largest norm of all gradients together; 0 lets every norm pass.
        eval_every, checkpoint_every, sample_every: in steps; 0 for never. The last step is evaluated and saved anyway.
        seed: of batches and dropout. (The model has a seed of its own.)
    Raises:
        ValueError: for numbers out of range, and words that are not known.
    """

    steps: int = 1000
    batch: int = 32
    accumulate: int = 1
    lr: float = 1e-3
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: int = 0
    final: float = 0.1
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8
    weight_decay: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    clip: float = 1.0
    eval_every: int = 250
    checkpoint_every: int = 250
    sample_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "warmup", "eval_every", "checkpoint_every", "sample_every", "seed"):
            number, least = getattr(self, name), int(name in ("steps", "batch", "accumulate"))
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{name} is a whole number from {least}; got {number!r}.")
        for name in ("lr", "final", "betas", "eps", "weight_decay", "momentum", "clip"):
            value = getattr(self, name)
            numbers = value if name == "betas" and isinstance(value, (tuple, list)) else [value]
            if not all(isinstance(number, NUMBERS) and not isinstance(number, bool) for number in numbers):
                raise ValueError(f"{name} {'are numbers' if name == 'betas' else 'is a number'}; got {value!r}.")
        if not isinstance(self.nesterov, bool):
            raise ValueError(f"nesterov is True or False; got {self.nesterov!r}.")
        if self.optimizer not in ("adamw", "adam", "sgd"):
            raise ValueError(f'optimizer is "adamw", "adam" or "sgd"; got {self.optimizer!r}.')
        fits = {
            "lr is the learning rate, positive and finite": 0 < self.lr < math.inf,
            "final is the share of lr at the end, from 0 to 1": 0 <= self.final <= 1,
            "betas are two numbers in [0, 1)": np.shape(self.betas) == (2,) and all(0 <= beta < 1 for beta in self.betas),
            "eps keeps a root away from 0, is not negative and finite": 0 <= self.eps < math.inf,
            "weight_decay is not negative and finite": 0 <= self.weight_decay < math.inf,
            "momentum lies in [0, 1)": 0 <= self.momentum < 1,
            "clip is the largest norm let through, or 0 for any": self.clip >= 0,
        }
        for said, holds in fits.items():
            if not holds:
                raise ValueError(f"{said}; got {getattr(self, said.split()[0])}.")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is of sgd, and {self.optimizer} has its own by betas; got momentum {self.momentum}.")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is a way to use momentum, which is 0. Give a momentum, such as 0.9.")
        self.make_schedule()

    def make_schedule(self) -> Schedule:
        """step -> learning rate. Raises ValueError if lr, warmup, steps and final make none."""
        if self.schedule == "cosine":
            return cosine(self.lr, self.warmup, self.steps, self.final * self.lr)
        if self.schedule == "linear":
            return linear(self.lr, self.warmup, self.steps, self.final * self.lr)
        if self.schedule == "constant":
            return constant(self.lr)
        raise ValueError(f'schedule is "cosine", "linear" or "constant"; got {self.schedule!r}.')

    def make_optimizer(self, model: Module) -> Optimizer:
        """Raises ValueError for numbers that the optimiser does not take."""
        if self.optimizer == "adamw":
            return AdamW(model.parameters(), self.lr, self.betas, self.eps, self.weight_decay)
        if self.optimizer == "adam":
            return Adam(model.parameters(), self.lr, self.betas, self.eps)
        return SGD(model.parameters(), self.lr, self.momentum, self.nesterov)


class Record(NamedTuple):
    """One evaluation: after how many steps; the mean loss of the batches since the last one (NaN before any), the loss on
    data kept apart, the learning rate of the step before, the share classified right (NaN for language)."""

    step: int
    train_loss: float
    validation_loss: float
    lr: float
    accuracy: float


class Diverged(FloatingPointError):
    """The loss or a number of the model is no longer finite."""


class InUse(RuntimeError):
    """Another run is writing into the folder, or has since this one was made or resumed."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped a run between two steps; what was learned is saved. `signal` is which."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


class Report:
    """What a run tells while it goes on. Override what you want to hear; nothing here does anything."""

    def step(self, trainer: Trainer) -> None:
        """After each step; `trainer.losses[-1]` is its loss."""

    def evaluation(self, trainer: Trainer, record: Record) -> None:
        """After each evaluation."""

    def sample(self, trainer: Trainer, text: str) -> None:
        """What the model makes, every `sample_every` steps."""


class Trainer:
    """Trains a model on a task.

    Args:
        folder: where `checkpoint.safetensors` and `log.jsonl` go; nothing is written without one.
        about: names with anything JSON has, kept in the checkpoint's metadata.
    Attributes:
        losses: of every step so far. history: a Record of every evaluation. step_count: steps so far.
        count, seconds: tokens (or examples) trained on since this object was made, and the time that took.
    Raises:
        FileExistsError: if the folder has a checkpoint: another run's, that would be lost. TypeError: if `about` is no dict.
        ValueError: for a batch that no memory holds.
    """

    def __init__(
        self,
        model: Module,
        task: Task,
        config: TrainingConfig | None = None,
        folder: str | Path | None = None,
        *,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.task, self.config, self.about = model, task, config or TrainingConfig(), about or {}
        if not isinstance(self.about, dict):
            raise TypeError(f"about is a dict; got {about!r}.")
        check_batch(self.config.batch, getattr(task, "context", 1))
        self.optimizer = self.config.make_optimizer(model)
        self.schedule = self.config.make_schedule()
        self.has_dropout = any(isinstance(part, Dropout) and part.rate > 0 for _, part in model.named_modules())
        self.losses: list[float] = []
        self.history: list[Record] = []
        self.count, self.seconds = 0, 0.0
        self._logged = (0, 0.0)
        self.folder = None if folder is None else Path(folder)
        self._checkpoint: tuple[int, ...] | None = None  # which file the run goes on from
        self._alone = False
        if self.folder is not None and (self.folder / CHECKPOINT).exists():
            raise FileExistsError(
                f"{self.folder} holds a run. Go on with it by Trainer.resume({str(self.folder)!r}), or choose another folder."
            )

    @cached_property
    def digest(self) -> str:
        """The task's, computed once: a checkpoint after every step need not read all data each time."""
        return self.task.digest()

    @property
    def step_count(self) -> int:
        return len(self.losses)

    @QUIETLY
    def step(self) -> float:
        """One step of the optimiser; returns the loss before it.

        Raises:
            Diverged: if the loss or a gradient is not finite; the parameters stay as they were.
        """
        config, step, loss = self.config, self.step_count, 0.0
        began = perf_counter()
        self.optimizer.lr = self.schedule(step)
        self.optimizer.zero_grad()
        for part in range(config.accumulate):
            if self.has_dropout:
                reseed(self.model, (config.seed, step, part, 1))
            x, y = self.task.batch(np.random.default_rng((config.seed, step, part)), config.batch)
            L = self.task.loss(self.model, x, y)
            loss += float(L) / config.accumulate
            if not math.isfinite(loss):
                raise self._diverged(f"the loss is {loss}")
            L.backward()
            self.count += self.task.count(y)
        if config.accumulate > 1:
            scale_gradients(self.optimizer.parameters, 1 / config.accumulate)
        if config.clip:
            try:
                clip_grad_norm(self.optimizer.parameters, config.clip)
            except FloatingPointError as error:
                raise self._diverged(str(error)) from None
        self.optimizer.step()
        self.losses.append(loss)
        self.seconds += perf_counter() - began
        return loss

    @QUIETLY
    def evaluate(self) -> Record:
        """How well the model does now, in evaluation mode; changes nothing."""
        found = self.task.validate(self.model, self.config.batch)
        since = self.losses[self.history[-1].step if self.history else 0 :]
        train_loss = math.fsum(since) / len(since) if since else math.nan
        return Record(self.step_count, train_loss, found.loss, self.optimizer.lr, found.accuracy)

    def run(self, report: Report | None = None) -> list[Record]:
        """Train to the last step; returns the history.

        Ctrl-C and SIGTERM end the step that runs, save, and raise Interrupted; a second one does not wait.

        Raises:
            Diverged: see `step`; the last checkpoint stays. InUse: if another run writes into the folder now, or has since this
                one was made or resumed: what it wrote would be lost.
        """
        config, report = self.config, report or Report()
        self.model.train()
        with self._alone_in_folder(), _asked_to_stop() as asked:
            self._cut_log()
            if not self.history:
                self._evaluation(report)
                self.save()  # so that a folder which cannot be written shows now, and any kill can be resumed
            while self.step_count < config.steps:
                self.step()
                report.step(self)
                last = self.step_count == config.steps
                if last or self._due(config.eval_every):
                    self._evaluation(report)
                if self._due(config.sample_every):
                    report.sample(self, self.task.sample(self.model, self.step_count))
                if last or self._due(config.checkpoint_every) or asked:
                    self.save()
                if asked and not last:
                    where = f"{self.folder} has the checkpoint to resume from" if self.folder else "nothing is saved: no folder"
                    raise Interrupted(f"Stopped after step {self.step_count} of {config.steps}; {where}.", asked[0])
        return self.history

    def save(self) -> None:
        """Write the checkpoint, in place of the last one; nothing without a folder.

        Raises:
            Diverged: if a parameter is not finite; the last checkpoint stays. InUse: see `run`.
        """
        if self.folder is None:
            return
        with self._alone_in_folder():
            self._save(self.folder)

    def _save(self, folder: Path) -> None:
        for path, parameter in self.model.named_parameters():
            if not np.isfinite(parameter.data).all():
                raise self._diverged(f"{path} has numbers that are not finite")
        state = {f"optimizer.{name}": array for name, array in self.optimizer.state_dict().items()}
        checkpoints.save_model(
            folder / CHECKPOINT,
            self.model,
            self.task.tokenizer,
            arrays={**state, "losses": np.array(self.losses), "history": np.array(self.history)},
            training=asdict(self.config),
            task=self.task.recipe,
            digest=self.digest,
            step=self.step_count,
            about=self.about,
        )
        self._checkpoint = _identity(folder / CHECKPOINT)

    @contextmanager
    def _alone_in_folder(self) -> Iterator[None]:
        """Inside, no other run can write into the folder, and none has since this one was made or resumed."""
        if self.folder is None or self._alone:
            yield
            return
        with _alone_in(self.folder):
            there = _identity(self.folder / CHECKPOINT)
            if there not in (None, self._checkpoint):
                raise InUse(
                    f"Another run has written into {self.folder} since this one was made or resumed. Resume that one, or "
                    f"choose another folder."
                )
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    @classmethod
    def resume(cls, folder: str | Path, task: Task | None = None, *, steps: int | None = None) -> Self:
        """The trainer of a folder, as it was when the checkpoint was written.

        Args:
            task: the same as before; made again from its source if not given.
            steps: another number of steps, at least those that are done. From here on the learning rate is what the schedule
                of so many steps says: with "constant" the run is the same as if it had been begun with them; with "cosine"
                and "linear" the rate, already low, goes up again to where the longer schedule is.
        Raises:
            FileNotFoundError, ValueError: for a checkpoint that is missing, damaged, or of other data than the task's.
        """
        path = Path(folder) / CHECKPOINT
        loaded = _identity(path)  # before it is read: a file that comes in between is another run's
        arrays, metadata = checkpoints.load_run(path)
        saved = Saved.read(path, metadata)
        model, tokenizer = checkpoints.model_of(path, arrays, metadata)
        if task is None:
            if saved.recipe is None:
                raise ValueError(
                    f"The data of this run came from Python: Trainer.resume({str(folder)!r}, task) takes them again."
                )
            made = {"tokenizer": tokenizer} if tokenizer is not None else {}
            try:
                task = tasks.from_source(**saved.recipe, **made)
            except ValueError as error:  # such as a new character; what the run began with made none
                raise ValueError(f"{saved.recipe['source']} has {OTHER_DATA.format(folder)} ({error})") from None
        if task.digest() != saved.digest:
            source = f"{task.recipe['source']} has" if task.recipe else "The task has"
            raise ValueError(f"{source} {OTHER_DATA.format(folder)}")
        config = saved.config
        if steps is not None:
            config = replace(config, steps=steps)
            if steps < saved.step:
                raise ValueError(f"{folder} has done {saved.step} steps; it can do more, not fewer. Got {steps}.")
        trainer = cls(model, task, config, about=saved.about)
        trainer.folder, trainer._checkpoint = Path(folder), loaded
        try:
            trainer.losses, trainer.history = _progress(arrays, saved.step)
            n = len(OPTIMIZER)
            trainer.optimizer.load_state_dict({name[n:]: arrays[name] for name in arrays if name.startswith(OPTIMIZER)})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error.args[0]}") from None
        return trainer

    def _due(self, every: int) -> bool:
        return every > 0 and self.step_count % every == 0

    def _evaluation(self, report: Report) -> None:
        record = self.evaluate()
        self.history.append(record)
        if self.folder is not None:
            self._log(record)
        report.evaluation(self, record)

    def _log(self, record: Record) -> None:
        """A line of `log.jsonl`. The times are here, not in the checkpoint, which is the same in every run."""
        assert self.folder is not None
        count, seconds = self.count - self._logged[0], self.seconds - self._logged[1]
        self._logged = (self.count, self.seconds)
        line = {name: number if math.isfinite(number) else None for name, number in record._asdict().items()}
        line[f"{self.task.unit}_per_second"] = round(count / seconds) if seconds else None
        line["seconds"] = round(self.seconds, 3)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _cut_log(self) -> None:
        """Drop the lines of `log.jsonl` past the checkpoint: a run that crashed wrote them, and they come again."""
        if self.folder is None or not (self.folder / LOG).exists():
            return
        last = self.step_count if self.history else -1
        lines = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if _step_of(line) <= last]
        if len(kept) < len(lines):
            new = self.folder / f".{LOG}.tmp"
            new.write_text("".join(kept), encoding="utf-8")
            new.replace(self.folder / LOG)

    def _diverged(self, what: str) -> Diverged:
        kept = f" The last checkpoint in {self.folder} is kept." if self.folder else ""
        return Diverged(
            f"Step {self.step_count + 1}: {what}. A smaller learning rate (now {self.optimizer.lr:g}), a longer warm-up or "
            f"clipping may help.{kept}"
        )


# What a checkpoint says of its run


class Saved(NamedTuple):
    """What the metadata of a checkpoint say of its training."""

    config: TrainingConfig
    recipe: dict[str, Any] | None  # of the task
    digest: str
    step: int
    about: dict[str, Any]

    @classmethod
    def read(cls, path: Path, metadata: dict[str, Any]) -> Self:
        """Checked: ValueError, which names the file and the entry, for one that is missing or cannot be."""
        if "training" not in metadata:
            raise ValueError(f"{path} holds a model but no state of its training.")

        def entry(name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
            if name not in metadata:
                raise ValueError(f"{path}: the metadata lack {name}, which is {expected}.")
            if not fits(metadata[name]):
                raise ValueError(f"{path}: {name} in the metadata is {expected}; got {str(metadata[name])[:80]!r}.")
            return metadata[name]

        training = entry("training", "an object", lambda said: isinstance(said, dict))
        try:
            config = checkpoints.config_of(TrainingConfig, training, complete=True)
        except ValueError as error:
            raise ValueError(f"{path}: training in the metadata: {error}") from None
        return cls(
            config,
            entry("task", "what tasks.from_source takes, or null", lambda said: said is None or tasks.is_recipe(said)),
            entry("digest", "a text", lambda said: isinstance(said, str)),
            entry("step", f"a whole number, 0..{config.steps}", lambda said: type(said) is int and 0 <= said <= config.steps),
            entry("about", "an object", lambda said: isinstance(said, dict)),
        )


def _progress(arrays: checkpoints.Arrays, step: int) -> tuple[list[float], list[Record]]:
    """(losses, history) after so many steps. ValueError, which names the array, for one that is missing or cannot be."""
    found = {}
    for name, width in (("losses", ()), ("history", (len(Record._fields),))):
        array = arrays.get(checkpoints.TRAINING + name)
        if array is None:
            raise ValueError(f"the array {checkpoints.TRAINING}{name} is missing.")
        array = array.reshape(0, *width) if array.shape == (0,) else array
        if array.dtype.kind != "f" or array.shape[1:] != width or not array.ndim:
            raise ValueError(
                f"{checkpoints.TRAINING}{name} is floats (N{', 5' if width else ''},); got {array.dtype} {array.shape}."
            )
        found[name] = array
    losses, history = found["losses"], found["history"]
    if len(losses) != step:
        raise ValueError(f"{checkpoints.TRAINING}losses has one for each of the {step} steps; got {len(losses)}.")
    at = history[:, 0]
    if not np.all(np.isin(at, np.arange(step + 1))) or np.any(np.diff(at) <= 0):
        raise ValueError(
            f"{checkpoints.TRAINING}history is of steps up to {step}, one after the other; got {at.tolist()[:20]}."
        )
    return losses.tolist(), [Record(int(row[0]), *row[1:]) for row in history.tolist()]


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file this is; None if there is none. A save makes another one (see `checkpoints.save`)."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _step_of(line: str) -> float:
    """Which step a line of the log is of; infinite for one that was cut short."""
    try:
        return int(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, TypeError, KeyError):
        return math.inf


@contextmanager
def _alone_in(folder: Path | None) -> Iterator[None]:
    """Inside, no other run can write into the folder. The system ends the lock with the process, however that ends."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):  # others: a file system that has no locks
                raise InUse(f"Another run is writing into {folder} now. Wait for it, or choose another folder.") from None
        yield


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that Ctrl-C and SIGTERM put their number in; the second time they do what they did before.

    Signals reach the main thread only: in another the list stays empty.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        restore()
