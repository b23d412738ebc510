"""Modes: recording, scopes, source lines, fused or open, default dtype; each its own in every thread and task."""

import asyncio
import contextlib
import inspect
import threading

import numpy as np
import pytest

from chainrule import Tensor, nn, no_grad
from chainrule.autograd import default_dtype, enable_grad, grad, is_recording, named, open_fused, primitive, record_sources
from chainrule.autograd.describe import source_text
from chainrule.autograd.graph import ancestors, opened
from chainrule.autograd.modes import MODE, Mode, Scope


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


CHANGES = [no_grad, record_sources, open_fused, lambda: default_dtype(np.float32), lambda: Scope("inner")]


def test_no_grad_records_nothing():
    x = leaf(2.0)
    with no_grad():
        y = x * x
        assert not is_recording()
        with enable_grad():
            assert (x * x).requires_grad
    assert not y.requires_grad
    assert y.inputs == ()
    assert y.item() == 4.0
    assert (x * x).requires_grad


@pytest.mark.parametrize("change", CHANGES)
def test_the_old_mode_returns_after_an_exception(change):
    manager = change()
    for _ in range(2):  # a manager can be used again
        with contextlib.suppress(KeyError), manager:
            assert MODE.get() != Mode()
            raise KeyError
        assert MODE.get() == Mode()


def test_one_manager_nested_in_itself():
    manager = no_grad()
    with manager:
        with manager:
            assert not is_recording()
        assert not is_recording()
    assert is_recording()


@pytest.mark.parametrize("change", CHANGES)
def test_a_thread_has_a_mode_of_its_own(change):
    inside, leave, modes = threading.Event(), threading.Event(), []

    def other():
        with change():
            modes.append(MODE.get())
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    assert MODE.get() == Mode()
    assert modes != [Mode()]
    assert (leaf(2.0) * 2).requires_grad
    leave.set()
    thread.join()


def test_a_task_has_a_mode_of_its_own():
    async def without():
        with no_grad():
            await asyncio.sleep(0)
            return is_recording()

    async def both():
        return await asyncio.gather(without(), asyncio.sleep(0, is_recording()), without())

    assert asyncio.run(both()) == [False, True, False]


def test_threads_train_side_by_side():
    """Every thread builds and walks its own graph; node numbers never collide."""
    slopes, indices = {}, []

    def work(seed):
        x = leaf(float(seed))
        for _ in range(200):
            y = x * x
            indices.append(y.index)
            x.grad = None
            y.backward()
        slopes[seed] = x.grad

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slopes == {seed: 2.0 * seed for seed in range(1, 5)}
    assert len(set(indices)) == 800


def test_modes_decorate_functions():
    @no_grad()
    def value(x, depth=2):
        assert not is_recording()
        return value(x, depth - 1) if depth else x * x

    assert not value(leaf(3.0)).requires_grad
    assert is_recording()


def test_open_fused_runs_definitions():
    S, target = leaf([[1.0, 2.0]]), np.array([0])
    with open_fused():
        A, loss = nn.softmax(S), nn.cross_entropy(S, target)
        with open_fused(False):
            assert nn.softmax(S).primitive is nn.softmax
    for y in (A, loss):
        assert all(node.primitive is None or node.primitive.definition is None for node in ancestors(y))
    assert nn.softmax(S).primitive is nn.softmax


# Scopes


def test_scopes_nest_into_dotted_paths():
    with Scope("blocks"):
        with Scope("0"), Scope(""):
            x = leaf(1.0, name="x")
        y = named("y", x * 2)
    assert (x.path, y.path, (y * 2).scope) == ("blocks.0.x", "blocks.y", "")


def test_nodes_of_a_module_are_in_its_scope():
    class Inner(nn.Module):
        def forward(self, x):
            return named("out", x * 2)

    class Outer(nn.Module):
        def __init__(self):
            self.layers = [Inner(), Inner()]

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return named("total", np.sum(x))

    y = Outer()(leaf([1.0]))
    assert [node.path for node in ancestors(y) if node.name] == ["layers.0.out", "layers.1.out", "total"]


def test_recorded_adjoints_are_outside_of_any_scope():
    with Scope("model"):
        x = leaf(2.0)
        y = x * x * x
    y.backward(create_graph=True)
    assert {node.scope for node in ancestors(x.grad)} == {"model", ""}


# Source lines


def test_sources_are_the_lines_that_called():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with record_sources():
        line = inspect.currentframe().f_lineno + 1
        operators = [x * x, 2 - x, np.ones(2) * x, x @ x, -x, abs(x), x**2, x[0], x[[0, 1]]]
        functions = [np.exp(x), np.sum(x), np.mean(x, axis=0), np.reshape(x, 4), np.stack([x, x]), np.where(x > 1, x, 0)]
        composed = [np.squeeze(x), np.expand_dims(x, 0), np.moveaxis(x, 0, 1), np.dot(x, x), np.add.reduce(x), np.ravel(x)]
        methods = [x.T, x.sum(), x.mean(axis=0), x.max(), x.reshape(4), x.astype(np.float32), x.copy()]
        fused = [nn.softmax(x), nn.attention(x, x, x), nn.cross_entropy(x, [0, 1])]
    for offset, nodes in enumerate([operators, functions, composed, methods, fused]):
        for node in nodes:
            assert node.source == (__file__, line + offset, "test_sources_are_the_lines_that_called"), node.label
    assert str(operators[0].source) == f"{__file__}:{line}"
    assert source_text(operators[0].source).startswith("operators = [x * x, 2 - x,")
    assert next(methods[1].backward_steps()).source == methods[1].source


def test_sources_inside_a_module_are_its_lines():
    class Square(nn.Module):
        def forward(self, x):
            return x * x

    with record_sources():
        y = Square()(leaf(2.0))
    assert y.source.file == __file__
    assert y.source.function == "forward"
    assert source_text(y.source) == "return x * x"


def test_sources_are_off_by_default_and_can_be_turned_off_inside():
    x = leaf(2.0)
    assert (x * x).source is None
    assert source_text(None) == ""
    with record_sources(), record_sources(False):
        assert (x * x).source is None


def test_opened_nodes_keep_the_line_of_the_fused_one():
    x = leaf([1.0, 2.0])
    with record_sources():
        y = nn.softmax(x)
    for node in ancestors(opened(y)[0]):
        assert node.source == (None if node is x else y.source)


def test_recorded_rules_have_the_lines_of_their_own_step():
    """What backward records under `create_graph` was asked for at the line that called it."""
    x = leaf(2.0)
    y = x * x * x
    with record_sources():
        slope = grad(lambda x: x * x * x)(x)
    assert slope.source.file == __file__
    assert y.source is None


def test_a_primitive_of_ones_own_is_found_by_its_caller():
    @primitive()
    def double(x):
        return 2 * x

    @double.rule("x", "∂L/∂{x} = 2 ∂L/∂{y}")
    def double_wrt_x(g, y, x):
        return 2 * g

    with record_sources():
        y = double(leaf(1.0))
    assert source_text(y.source) == "y = double(leaf(1.0))"
