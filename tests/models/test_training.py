"""Training: the step by hand, runs that stop and go on, and what is kept apart."""

import json
import math
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from chainrule import Tensor
from chainrule.models import checkpoints, tasks
from chainrule.models.datasets import Digits
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.tasks import BOUNDARY, DigitsTask, DocumentsTask, Task, TextTask, Validation
from chainrule.models.tokenizers import CharTokenizer
from chainrule.models.training import CHECKPOINT, Diverged, Interrupted, InUse, Report, Trainer, TrainingConfig
from chainrule.nn.losses import cross_entropy
from chainrule.nn.module import Module, Parameter

TEXT = "the cat sat on the mat. the dog sat on the log. " * 6
TOKENIZER = CharTokenizer.from_text(TEXT)
CONFIG = TrainingConfig(steps=8, batch=3, lr=1e-2, eval_every=4, checkpoint_every=3)


def text_task():
    return TextTask(TOKENIZER.encode(TEXT), 5, TOKENIZER)


TextTask.sample_length = 20  # is enough here


def gpt(dropout=0.0, seed=0, vocab_size=TOKENIZER.vocab_size):
    config = GPTConfig(vocab_size=vocab_size, context=5, n_layer=1, n_head=2, d_model=8, dropout=dropout)
    return GPT(config, seed=seed, dtype=np.float32)


def digits_task(count=50):
    rng = np.random.default_rng(0)
    labels = np.arange(count, dtype=np.uint8) % 4
    images = rng.integers(0, 60, (count, 4, 4), dtype=np.uint8)
    images[np.arange(count), labels] = 255  # the row that is lit
    return DigitsTask(Digits(images, labels))


class Line(Task):
    """loss = Σ (w - x)² of a model with one parameter; everything by hand."""

    def __init__(self, *targets):
        self.targets = targets
        self.drawn = []

    def digest(self):
        return str(self.targets)

    def batch(self, rng, size):
        self.drawn.append(rng.random())
        return np.array(self.targets[len(self.drawn) - 1]), np.zeros(size)

    def loss(self, model, x, y):
        return np.sum((model.w - x) ** 2)

    def validate(self, model, size):
        return Validation(float(np.sum(model.w.data)))


class Point(Module):
    def __init__(self, *values):
        self.w = Parameter(np.array(values))


# The step


def test_a_step_of_gradient_descent():
    model = Point(1.0, 2.0)
    trainer = Trainer(model, Line([0.0, 0.0]), TrainingConfig(optimizer="sgd", lr=0.25, schedule="constant", clip=0))
    assert trainer.step() == 5.0  # 1² + 2²
    assert model.w.data.tolist() == [0.5, 1.0]  # w - 0.25 · 2 w
    assert trainer.losses == [5.0]


def test_clipping():
    model = Point(3.0, 4.0)
    Trainer(model, Line([0.0, 0.0]), TrainingConfig(optimizer="sgd", lr=1.0, schedule="constant", clip=2.5)).step()
    np.testing.assert_allclose(model.w.data, [1.5, 2.0], rtol=1e-15)  # the gradient (6, 8) has norm 10, scaled by a quarter


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    config = TrainingConfig(optimizer="sgd", lr=0.25, schedule="constant", clip=0, momentum=0.5, nesterov=nesterov)
    trainer = Trainer(Point(4.0), Line([0.0], [0.0]), config)
    trainer.step()
    assert trainer.model.w.data.tolist() == [4 - 0.25 * (1.5 if nesterov else 1.0) * 8]
    before = trainer.model.w.data.item()
    trainer.step()
    v = 0.5 * 8 + 2 * before
    assert trainer.model.w.data.tolist() == [before - 0.25 * (2 * before + 0.5 * v if nesterov else v)]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_optimizer_gets_its_numbers(optimizer):
    config = TrainingConfig(optimizer=optimizer, betas=(0.5, 0.6), eps=1e-3, weight_decay=0.25)
    made = config.make_optimizer(Point(1.0))
    assert (made.betas, made.eps, getattr(made, "weight_decay", 0.25)) == ((0.5, 0.6), 1e-3, 0.25)


def test_accumulated_batches_are_averaged():
    model = Point(1.0)
    config = TrainingConfig(optimizer="sgd", lr=0.5, schedule="constant", clip=0, accumulate=2)
    loss = Trainer(model, Line([0.0], [4.0]), config).step()
    assert loss == (1 + 9) / 2
    assert model.w.data.tolist() == [1 - 0.5 * (2 - 6) / 2]


def test_the_rate_follows_the_schedule():
    config = TrainingConfig(optimizer="sgd", steps=4, lr=0.4, schedule="linear", final=0.0, clip=0)
    trainer, rates = Trainer(Point(1.0), Line(*[[0.0]] * 4), config), []
    for _ in range(4):
        trainer.step()
        rates.append(trainer.optimizer.lr)
    np.testing.assert_allclose(rates, [0.4, 0.3, 0.2, 0.1])


def test_batches_depend_on_seed_and_step_alone():
    def drawn(seed, steps, accumulate=1):
        task = Line(*[[0.0]] * steps * accumulate)
        trainer = Trainer(Point(0.0), task, TrainingConfig(seed=seed, accumulate=accumulate))
        for _ in range(steps):
            trainer.step()
        return task.drawn

    assert drawn(1, 3) == drawn(1, 5)[:3]
    assert len({*drawn(1, 3), *drawn(2, 3)}) == 6
    assert len(set(drawn(1, 4, accumulate=2))) == 8


def test_dropout_depends_on_seed_and_step_alone():
    def losses(model):
        trainer = Trainer(model, text_task(), CONFIG)
        return [trainer.step() for _ in range(3)]

    one, other = gpt(dropout=0.5), gpt(dropout=0.5)
    other.dropout.rng = np.random.default_rng(99)
    assert losses(one) == losses(other)
    assert losses(gpt(dropout=0.0)) != losses(gpt(dropout=0.5))


# Runs


def test_a_run_is_recorded(tmp_path):
    trainer = Trainer(gpt(), text_task(), CONFIG, tmp_path)
    history = trainer.run()
    assert [record.step for record in history] == [0, 4, 8]
    assert math.isnan(history[0].train_loss)
    assert history[0].validation_loss == pytest.approx(np.log(TOKENIZER.vocab_size), rel=0.02)  # it knows nothing yet
    assert history[1].train_loss == pytest.approx(np.mean(trainer.losses[:4]))
    assert history[2].train_loss == pytest.approx(np.mean(trainer.losses[4:]))
    assert history[2].validation_loss < history[0].validation_loss
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [0, 4, 8]
    assert log[2]["validation_loss"] == history[2].validation_loss
    assert log[2]["tokens_per_second"] > 0
    model, tokenizer, metadata = checkpoints.load_model(tmp_path / CHECKPOINT)
    assert tokenizer == TOKENIZER
    assert metadata["step"] == 8
    assert model.state_dict().keys() == trainer.model.state_dict().keys()
    assert all((model.state_dict()[name] == value).all() for name, value in trainer.model.state_dict().items())


def test_it_learns_what_there_is_to_learn():
    ids = np.arange(400) % 4  # 0 1 2 3 0 1 2 3 …
    config = TrainingConfig(steps=100, batch=8, lr=2e-2, weight_decay=0, eval_every=0)
    record = Trainer(gpt(vocab_size=4), TextTask(ids, 5), config).run()[-1]
    assert record.validation_loss < 0.02


def test_digits_are_learnt_and_counted():
    config = TrainingConfig(steps=150, batch=10, lr=0.5, optimizer="sgd", clip=0)
    for output in ("activation", "logits"):
        model = MLP(MLPConfig((16, 8, 4), output=output), dtype=np.float32)
        first, *_, last = Trainer(model, digits_task(), config).run()
        assert last.accuracy > 0.9
        assert last.validation_loss < first.validation_loss


def test_evaluation_changes_nothing():
    model = gpt(dropout=0.5)
    trainer = Trainer(model, text_task(), CONFIG)
    before = model.state_dict()
    assert trainer.evaluate().validation_loss == trainer.evaluate().validation_loss  # without dropout
    assert model.training
    assert model.blocks[0].dropout.training
    assert all((model.state_dict()[name] == value).all() for name, value in before.items())


# Stopping and going on


class StopAt(Report):
    def __init__(self, step, number=signal.SIGINT, times=1):
        self.at, self.number, self.times = step, number, times

    def step(self, trainer):
        if trainer.step_count == self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)


def run_in_parts(folder, model, task, config, stops):
    trainer = Trainer(model, task, config, folder)
    for at, number in stops:
        with pytest.raises(Interrupted, match=rf"Stopped after step {at} of 8; .* has the checkpoint") as stopped:
            trainer.run(StopAt(at, number))
        assert stopped.value.signal == number
        trainer = Trainer.resume(folder, task)
        assert trainer.step_count == at
    trainer.run()
    return (folder / CHECKPOINT).read_bytes()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(optimizer, accumulate, tmp_path):
    config = TrainingConfig(**{**vars(CONFIG), "optimizer": optimizer, "accumulate": accumulate, "sample_every": 5})
    stops = [(2, signal.SIGINT), (4, signal.SIGTERM), (7, signal.SIGINT)]
    stopped = run_in_parts(tmp_path / "stopped", gpt(dropout=0.2), text_task(), config, stops)
    whole = run_in_parts(tmp_path / "whole", gpt(dropout=0.2), text_task(), config, [])
    assert stopped == whole


def test_documents_and_digits_too(tmp_path):
    names = ["ann", "bob", "cleo", "dan", "eve"]
    tokenizer = CharTokenizer.from_text("".join(names), [BOUNDARY])

    def documents():
        return DocumentsTask([tokenizer.encode(name) for name in names], 5, tokenizer.special[BOUNDARY], tokenizer)

    for name, model, task in (
        ("documents", lambda: gpt(vocab_size=tokenizer.vocab_size), documents),
        ("digits", lambda: MLP(MLPConfig((16, 4)), dtype=np.float32), digits_task),
    ):
        stopped = run_in_parts(tmp_path / f"{name} stopped", model(), task(), CONFIG, [(5, signal.SIGINT)])
        assert stopped == run_in_parts(tmp_path / f"{name} whole", model(), task(), CONFIG, [])


def test_a_crash_goes_back_to_the_last_checkpoint(tmp_path):
    class Crash(Report):
        def step(self, trainer):
            if trainer.step_count == 5:
                raise MemoryError

    for folder, report in ((tmp_path / "crashed", Crash()), (tmp_path / "whole", Report())):
        trainer = Trainer(gpt(), text_task(), CONFIG, folder)
        if folder.name == "crashed":
            with pytest.raises(MemoryError):
                trainer.run(report)
            trainer = Trainer.resume(folder, text_task())
            assert trainer.step_count == 3
        trainer.run()
    assert (tmp_path / "crashed" / CHECKPOINT).read_bytes() == (tmp_path / "whole" / CHECKPOINT).read_bytes()


def log_of(folder):
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_after_a_crash_the_log_has_each_step_once(tmp_path):
    class Crash(Report):
        def evaluation(self, trainer, record):
            if record.step == 8:
                raise MemoryError

    config = replace(CONFIG, steps=12, checkpoint_every=7)
    with pytest.raises(MemoryError):
        Trainer(gpt(), text_task(), config, tmp_path).run(Crash())
    assert log_of(tmp_path) == [0, 4, 8]
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "tra')  # killed while it wrote
    trainer = Trainer.resume(tmp_path, text_task())
    assert trainer.step_count == 7
    trainer.run()
    assert log_of(tmp_path) == [0, 4, 8, 12]
    (tmp_path / CHECKPOINT).unlink()
    Trainer(gpt(), text_task(), CONFIG, tmp_path).run()  # another run
    assert log_of(tmp_path) == [0, 4, 8]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_a_finished_run_can_be_lengthened(schedule, tmp_path):
    config = replace(CONFIG, schedule=schedule)
    Trainer(gpt(), text_task(), config, tmp_path / "parts").run()
    trainer = Trainer.resume(tmp_path / "parts", text_task(), steps=12)
    assert trainer.schedule(10) == replace(config, steps=12).make_schedule()(10)
    trainer.run()
    assert trainer.step_count == 12
    assert log_of(tmp_path / "parts") == [0, 4, 8, 12]
    Trainer(gpt(), text_task(), replace(config, steps=12), tmp_path / "whole").run()
    same = (tmp_path / "parts" / CHECKPOINT).read_bytes() == (tmp_path / "whole" / CHECKPOINT).read_bytes()
    assert same == (schedule == "constant")
    assert Trainer.resume(tmp_path / "parts", text_task()).config.steps == 12
    with pytest.raises(ValueError, match="has done 12 steps; it can do more, not fewer"):
        Trainer.resume(tmp_path / "parts", text_task(), steps=8)


def test_one_run_in_a_folder_at_a_time(tmp_path):
    class Second(Report):
        def evaluation(self, trainer, record):
            with pytest.raises(InUse, match="Another run is writing into"):
                Trainer.resume(tmp_path, text_task()).run()

    Trainer(gpt(), text_task(), CONFIG, tmp_path).save()
    Trainer.resume(tmp_path, text_task()).run(Second())
    assert log_of(tmp_path) == [0, 4, 8]
    Trainer.resume(tmp_path, text_task()).run()  # the lock is gone


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, pathlib, sys; from chainrule.models.training import _alone_in\n"
        "with _alone_in(pathlib.Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(InUse):
            Trainer(gpt(), text_task(), CONFIG, tmp_path).run()
        other.kill()
    Trainer(gpt(), text_task(), CONFIG, tmp_path).run()


def test_a_run_does_not_replace_another_that_came_first(tmp_path):
    first, second = (Trainer(gpt(seed=seed), text_task(), CONFIG, tmp_path) for seed in (1, 2))
    first.run()
    before = (tmp_path / CHECKPOINT).read_bytes()
    for write in (second.run, second.save):
        with pytest.raises(InUse, match=r"Another run has written into .* since this one was made or resumed"):
            write()
    longer, shorter = (Trainer.resume(tmp_path, text_task(), steps=steps) for steps in (10, 9))
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert log_of(tmp_path) == [0, 4, 8]
    longer.run()
    before = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(InUse, match="Another run has written"):
        shorter.run()
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    longer.save()  # its own checkpoint it may replace
    (tmp_path / CHECKPOINT).unlink()
    shorter.run()  # nothing can be lost
    assert shorter.step_count == 9


def test_a_report_may_save(tmp_path):
    class Save(Report):
        def step(self, trainer):
            trainer.save()
            assert Trainer.resume(tmp_path, text_task()).step_count == trainer.step_count

    Trainer(gpt(), text_task(), CONFIG, tmp_path).run(Save())


def test_a_second_signal_does_not_wait():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        Trainer(gpt(), text_task(), CONFIG).run(StopAt(3, times=2))
    assert not isinstance(stopped.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    Trainer(gpt(), text_task(), CONFIG).run()
    with pytest.raises(Interrupted, match="nothing is saved: no folder"):
        Trainer(gpt(), text_task(), CONFIG).run(StopAt(3))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_in_the_last_step_stops_nothing():
    assert Trainer(gpt(), text_task(), CONFIG).run(StopAt(8))[-1].step == 8


def test_a_run_in_another_thread():
    trainer = Trainer(gpt(), text_task(), CONFIG)
    thread = threading.Thread(target=trainer.run)
    thread.start()
    thread.join()
    assert trainer.step_count == 8


def test_a_finished_run_stays_as_it_is(tmp_path):
    Trainer(gpt(), text_task(), CONFIG, tmp_path).run()
    before = (tmp_path / CHECKPOINT).read_bytes()
    history = Trainer.resume(tmp_path, text_task()).run()
    assert [record.step for record in history] == [0, 4, 8]
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_a_folder_with_a_run_is_refused(tmp_path):
    Trainer(gpt(), text_task(), CONFIG, tmp_path).save()
    with pytest.raises(FileExistsError, match=r"holds a run\. Go on with it by Trainer\.resume"):
        Trainer(gpt(), text_task(), CONFIG, tmp_path)


def test_what_cannot_be_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        Trainer.resume(tmp_path)
    Trainer(gpt(), text_task(), CONFIG, tmp_path).save()
    with pytest.raises(ValueError, match="came from Python"):
        Trainer.resume(tmp_path)
    with pytest.raises(ValueError, match="other data"):
        Trainer.resume(tmp_path, TextTask(TOKENIZER.encode(TEXT[1:]), 5))
    checkpoints.save_model(tmp_path / CHECKPOINT, gpt())
    with pytest.raises(ValueError, match="no state of its training"):
        Trainer.resume(tmp_path, text_task())


def change_training(name, value):
    return lambda arrays, said: said["training"].update({name: value})


def drop_array(name):
    return lambda arrays, said: arrays.pop(f"training.{name}")


def put_array(name, array):
    return lambda arrays, said: arrays.update({f"training.{name}": array})


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        *((lambda arrays, said, name=name: said.pop(name), name) for name in ("task", "digest", "step", "about")),
        *((lambda arrays, said, name=name: said.update({name: 1.5}), name) for name in ("training", "task", "digest", "about")),
        (lambda arrays, said: said["training"].pop("betas"), "betas"),
        (lambda arrays, said: said["training"].pop("lr"), "lr"),
        (change_training("glue", 1), "glue"),
        (change_training("betas", 3), "betas"),
        (change_training("betas", ["a", "b"]), "betas"),
        (change_training("lr", "0.1"), "lr"),
        (change_training("lr", 10**400), "makes no TrainingConfig"),
        (change_training("lr", None), "lr"),
        (change_training("nesterov", "no"), "nesterov"),
        (change_training("optimizer", "sgd"), "unknown: m"),
        (change_training("optimizer", []), "optimizer"),
        (lambda arrays, said: said.update(step=7), "training.losses has one for each of the 7 steps; got 8"),
        (lambda arrays, said: said.update(step=-1), "step"),
        (lambda arrays, said: said.update(step=9), "step"),
        (lambda arrays, said: said.update(step=True), "step"),
        (lambda arrays, said: said.update(step="8"), "step"),
        (lambda arrays, said: said.update(task={}), "task"),
        (lambda arrays, said: said.update(task={"source": "names", "glue": 1}), "task"),
        (lambda arrays, said: said.update(task={"source": "names", "context": "5", "lines": True}), "task"),
        (lambda arrays, said: said.update(task={"source": "names", "context": 0, "lines": True}), "task"),
        (lambda arrays, said: said.update(task={"source": "digits", "dtype": "int8"}), "task"),
        (lambda arrays, said: said.update(task={"source": []}), "task"),
        (drop_array("losses"), "training.losses"),
        (drop_array("history"), "training.history"),
        (drop_array("optimizer.step"), "missing: step"),
        (drop_array("optimizer.m.E"), "missing: m.E"),
        (put_array("optimizer.step", np.zeros(1, int)), "step"),
        (put_array("losses", np.zeros(7)), "training.losses"),
        (put_array("losses", np.zeros((8, 1))), "training.losses"),
        (put_array("losses", np.zeros(8, int)), "training.losses"),
        (put_array("losses", np.float64(1)), "training.losses"),
        (put_array("history", np.zeros((3, 4))), "training.history"),
        (put_array("history", np.full((1, 5), np.nan)), "training.history"),
        (put_array("history", np.full((1, 5), 9.0)), "training.history"),
        (put_array("history", np.full((2, 5), 4.0)), "training.history"),
    ],
)
def test_records_that_do_not_fit(change, entry, tmp_path):
    """Whatever a well-formed file holds: a ValueError that names it and the entry."""
    path = tmp_path / CHECKPOINT
    Trainer(gpt(), text_task(), CONFIG, tmp_path).run()
    arrays, header = checkpoints.load(path)
    said = json.loads(header[checkpoints.KEY])
    change(arrays, said)
    checkpoints.save(path, arrays, {checkpoints.KEY: json.dumps(said)})
    with pytest.raises(ValueError, match=entry.replace(".", r"\.")) as raised:
        Trainer.resume(tmp_path, text_task())
    assert type(raised.value) is ValueError
    assert str(raised.value).startswith(str(path))


def test_what_is_said_about_a_run_has_names():
    with pytest.raises(TypeError, match="about is a dict; got 'mine'"):
        Trainer(gpt(), text_task(), CONFIG, about="mine")


def test_a_task_of_a_source_is_made_again(tmp_path):
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    task = tasks.from_source(str(tmp_path / "book.txt"), context=5)
    Trainer(gpt(vocab_size=task.tokenizer.vocab_size), task, CONFIG, tmp_path / "run").save()
    resumed = Trainer.resume(tmp_path / "run")
    assert resumed.task.digest() == task.digest()
    for other, why in (
        (TEXT + "the", ""),
        (TEXT + "é", r" \('é' at position 288"),
        ("", " .*is empty"),
        ("the cat", r" \(The text has 7"),
    ):
        (tmp_path / "book.txt").write_text(other, encoding="utf-8")
        with pytest.raises(ValueError, match=f"book.txt has other data now than .*run was trained on.*start another run.{why}"):
            Trainer.resume(tmp_path / "run")
    (tmp_path / "book.txt").unlink()
    with pytest.raises(FileNotFoundError, match="There is no file"):
        Trainer.resume(tmp_path / "run")


# What goes wrong in training


class Late(Line):
    """The loss is not finite from some step on, by its value or by its gradient."""

    def __init__(self, step, factor):
        super().__init__(*[[0.0]] * 20)
        self.at, self.factor = step, factor

    def loss(self, model, x, y):
        loss = super().loss(model, x, y)
        return loss if len(self.drawn) < self.at else self.factor(loss)


def test_a_loss_that_is_not_finite_names_the_step():
    model = Point(1.0)
    trainer = Trainer(model, Late(5, lambda loss: loss * Tensor(np.nan)), CONFIG)
    with pytest.raises(Diverged, match=r"Step 5: the loss is nan\. A smaller learning rate \(now"):
        trainer.run()
    assert trainer.step_count == 4
    assert np.isfinite(model.w.data).all()


def test_a_gradient_that_is_not_finite_names_the_step():
    model = Point(1.0)
    with pytest.raises(Diverged, match="Step 5: The gradient of w is not finite"):
        Trainer(model, Late(5, lambda loss: loss + np.sum(np.sqrt(model.w - model.w.data))), CONFIG).run()


def test_the_last_good_checkpoint_is_kept(tmp_path):
    task, config = text_task(), TrainingConfig(**{**vars(CONFIG), "optimizer": "sgd", "clip": 0})
    trainer = Trainer(gpt(), task, config, tmp_path)

    class Spoil(Report):
        def step(self, trainer):
            if trainer.step_count == 6:  # just before a checkpoint is due
                parameter = trainer.model.blocks[0].attn.WQ
                parameter.data = np.full(parameter.shape, np.inf)

    with pytest.raises(Diverged, match=r"blocks.0.attn.WQ has numbers that are not finite.*The last checkpoint in .* is kept"):
        trainer.run(Spoil())
    assert Trainer.resume(tmp_path, task).step_count == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps is a whole number from 1; got 0"),
        ({"batch": 2.5}, "batch is a whole number from 1; got 2.5"),
        ({"eval_every": -1}, "eval_every is a whole number from 0"),
        ({"final": 2.0}, "final is the share of lr"),
        ({"clip": -1.0}, "clip is the largest norm"),
        ({"clip": float("nan")}, "clip is the largest norm"),
        ({"betas": (0.9,)}, "betas are two numbers"),
        ({"betas": (2.0, 3.0)}, "betas are two numbers in"),
        ({"betas": (0.9, float("nan"))}, "betas are two numbers in"),
        ({"lr": -1.0}, "lr is the learning rate, positive"),
        ({"lr": float("nan")}, "lr is the learning rate, positive"),
        ({"lr": float("inf"), "schedule": "constant"}, "lr is the learning rate, positive"),
        ({"weight_decay": float("inf")}, "weight_decay is not negative and finite"),
        ({"eps": -1e-8}, "eps keeps a root"),
        ({"momentum": 1.0, "optimizer": "sgd"}, "momentum lies in"),
        ({"momentum": 0.9}, "momentum is of sgd"),
        ({"nesterov": True, "optimizer": "sgd"}, "nesterov is a way to use momentum"),
        ({"lr": "0.1"}, "lr is a number; got '0.1'"),
        ({"clip": True}, "clip is a number; got True"),
        ({"betas": 0.9}, "betas are two numbers in"),
        ({"nesterov": 1}, "nesterov is True or False; got 1"),
        ({"warmup": 1000}, "warm-up ends before the last step"),
        ({"schedule": "step"}, 'schedule is "cosine", "linear" or "constant"; got'),
    ],
)
def test_configs_that_make_no_sense(changes, said):
    with pytest.raises(ValueError, match=said):
        TrainingConfig(**changes)


@pytest.mark.parametrize("batch", [999_999_999_999, 10**30])
def test_a_batch_that_no_memory_holds(batch, tmp_path):
    with pytest.raises(ValueError, match=f"batch is what the memory holds, .* got {batch}"):
        Trainer(gpt(), text_task(), replace(CONFIG, batch=batch), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_sample_of_a_padded_vocabulary_is_text():
    """Rows that no token has are never chosen, though their logits are the largest."""
    model = gpt(vocab_size=TOKENIZER.vocab_size + 3)
    model.norm.beta.data = np.ones(8, np.float32)
    model.E.data = np.where(np.arange(TOKENIZER.vocab_size + 3)[:, None] < TOKENIZER.vocab_size, model.E.data, np.float32(9))
    assert len(text_task().sample(model, 0)) == 21


def test_an_optimizer_that_is_not_known():
    with pytest.raises(ValueError, match='optimizer is "adamw", "adam" or "sgd"; got'):
        Trainer(gpt(), text_task(), TrainingConfig(optimizer="lion"))


# Tasks


def test_validation_counts_every_token_once():
    task, model = text_task(), gpt()
    ids = task.validation_ids
    assert len(ids) == len(TEXT) - int(0.9 * len(TEXT))
    losses = []
    for start in range(0, len(ids) - 1, 5):
        part = ids[start : start + 6]
        losses += cross_entropy(model(part[:-1]), part[1:], reduction="none").data.tolist()
    assert len(losses) == len(ids) - 1
    for size in (1, 3, 100):
        assert task.validate(model, size).loss == pytest.approx(np.mean(losses), rel=1e-6)


def test_a_long_validation_is_thinned(monkeypatch):
    monkeypatch.setattr(tasks, "VALIDATED", 3)
    x, _ = TextTask(np.arange(1000) % 50, 5).validation
    assert x[:, 0].tolist() == [0, 0, 45]  # of ids 900 to 999 the first row, the middle one and the last


def test_documents_kept_apart_are_not_trained_on():
    documents = [[i] for i in range(40)]
    task = DocumentsTask(documents, 3, boundary=40)
    trained, kept = ({document[0] for document in part} for part in (task.train_documents, task.validation_documents))
    assert len(kept) == 4
    assert trained | kept == set(range(40))
    assert not trained & kept
    assert kept != {36, 37, 38, 39}  # not just the end of the alphabet
    x, y = task.batch(np.random.default_rng(0), 200)
    assert set(x[:, 1]) <= trained
    assert (x[:, 0] == 40).all()
    assert (y[:, 1] == 40).all()


def test_texts_that_are_too_short():
    with pytest.raises(ValueError, match="has 6 tokens; with a context of 5 it takes at least 20"):
        TextTask(np.arange(6), 5)
    with pytest.raises(ValueError, match="takes at least 114"):
        TextTask(np.zeros(113, int), 101)
    TextTask(np.zeros(114, int), 101)
    with pytest.raises(ValueError, match="got 1"):
        DocumentsTask([[1]], 5, 0)


def test_sources(tmp_path):
    path = tmp_path / "poems.txt"
    path.write_text("春眠不觉晓\n\n处处闻啼鸟\n夜来风雨声\n", encoding="utf-8")
    task = tasks.from_source(str(path), context=6, lines=True)
    assert [task.tokenizer.decode(document) for document in task.documents] == ["春眠不觉晓", "处处闻啼鸟", "夜来风雨声"]
    assert task.tokenizer.special == {BOUNDARY: task.tokenizer.vocab_size - 1}
    assert "\n" not in task.tokenizer.tokens
    path.write_text(TEXT, encoding="utf-8")
    words = tasks.from_source(str(path), context=6, tokenizer="word", vocab_size=5)
    assert words.tokenizer.vocab_size == 5
    assert tasks.from_source(str(path), context=6, tokenizer="bpe", vocab_size=260).tokenizer.vocab_size == 260
    with pytest.raises(ValueError, match="a vocabulary size is for bpe and word"):
        tasks.from_source(str(path), vocab_size=5)
    with pytest.raises(ValueError, match='"char", "bpe" or "word"; got'):
        tasks.from_source(str(path), tokenizer="syllable")
    with pytest.raises(FileNotFoundError, match="no shipped set of that name: names, shakespeare"):
        tasks.from_source("shakespear")


def test_samples_are_text():
    assert text_task().sample(gpt(), 0).startswith("t")
    assert text_task().sample(gpt(), 0) == text_task().sample(gpt(), 0)
    assert TextTask(np.zeros(100, int), 5).sample(gpt(), 0) == ""
    assert digits_task().sample(None, 0) == ""
