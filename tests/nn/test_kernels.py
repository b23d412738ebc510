"""What the kernels share: blocks, threads, broadcasting along wide rows. Each kernel: the tests of its own file."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections import deque
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import Tensor, nn
from chainrule.autograd import gradients
from chainrule.nn import kernels
from chainrule.nn.kernels import over_blocks, product, row_blocks, rows_at_a_time

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((700, 400), np.float32)  # 1.1 MB: several blocks
WIDE = RNG.standard_normal((40, 7000), np.float32)
HEADS = [RNG.standard_normal((2, 3, 200, 16), np.float32) for _ in "QKV"]
TARGET = RNG.integers(0, 7000, 40)
CASES = {
    "gelu": (nn.gelu, [ROWS]),
    "gelu_tanh": (nn.gelu_tanh, [ROWS]),
    "silu": (nn.silu, [ROWS]),
    "softmax": (nn.softmax, [ROWS]),
    "layer_norm": (nn.layer_norm, [ROWS, ROWS[0], ROWS[1]]),
    "rms_norm": (nn.rms_norm, [ROWS, ROWS[0]]),
    "cross_entropy": (lambda x: nn.cross_entropy(x, TARGET), [WIDE]),
    "attention": (nn.attention, HEADS),
    "causal attention": (lambda *x: nn.attention(*x, causal=True), HEADS),
    "attention with bias": (lambda *x: nn.attention(*x[:3], None, x[3]), [*HEADS, ROWS[:200, :200]]),
    "tiled_attention": (lambda *x: nn.tiled_attention(*x, causal=True, block=128), HEADS),
}


@pytest.fixture
def every_size_is_shared(monkeypatch):
    monkeypatch.setattr(kernels, "SHARED", 1)
    yield
    nn.set_threads(None)


# Threads


def disagreements(monkeypatch):
    """The cases whose results depend on the number of threads, or that had nothing to share."""
    parts = []
    monkeypatch.setattr(kernels, "SHARED", 1)
    monkeypatch.setattr(kernels, "deque", lambda blocks: parts.append(0) or deque(blocks))

    def run(threads, f, arrays):
        nn.set_threads(threads)
        leaves = [Tensor(x, requires_grad=True) for x in arrays]
        y, forward = f(*leaves), len(parts)
        g = np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype)
        found = [y.data, *gradients(y, leaves, g)]
        return found, forward, len(parts) - forward

    for name, (f, arrays) in CASES.items():
        for dtype in (np.float16, np.float32, np.float64):
            of_dtype = [x.astype(dtype) for x in arrays]
            alone = run(1, f, of_dtype)[0]
            for threads in (2, 3):
                parts.clear()
                found, *shared = run(threads, f, of_dtype)
                wanted = shared[:1] if "bias" in name else shared  # all heads add to one gradient of a bias
                if any(not np.array_equal(a, b) for a, b in zip(found, alone, strict=True)) or 0 in wanted:
                    yield name, dtype.__name__, threads, shared
    nn.set_threads(None)


def test_no_result_depends_on_the_number_of_threads():
    """In a process where matrix products have one thread each, so that all kernels share."""
    program = "import pytest, test_kernels as t\nwith pytest.MonkeyPatch.context() as m: print(list(t.disagreements(m)))"
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


@pytest.mark.parametrize("maker", [nn.AdamW, lambda p: nn.SGD(p, lr=0.1, momentum=0.9, nesterov=True)], ids=["AdamW", "SGD"])
def test_no_step_depends_on_the_number_of_threads(maker, every_size_is_shared):
    def run(threads):
        nn.set_threads(threads)
        parameter = nn.Parameter(ROWS)
        optimizer = maker([parameter])
        for _ in range(2):
            parameter.grad = np.sin(ROWS)
            optimizer.step()
        return parameter.data

    assert_array_equal(run(3), run(1))


def test_two_threads_work_at_once(every_size_is_shared):
    """Each waits for the other at its first block."""
    nn.set_threads(2)
    both, seen, turns = threading.Barrier(2, timeout=10), set(), []

    def work(block):
        turns.append(block)
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()

    over_blocks(work, range(10), 1, products=False)
    assert len(seen) == 2
    assert sorted(turns) == list(range(10))


@pytest.mark.parametrize(("threads", "blocks", "size"), [(1, 8, 10**9), (4, 1, 10**9), (4, 8, kernels.SHARED - 1)])
def test_the_callers_thread_alone(threads, blocks, size):
    """One thread is all that is allowed; one block; small arrays."""
    nn.set_threads(threads)
    seen = []
    over_blocks(lambda block: seen.append((threading.get_ident(), block)), range(blocks), size, products=False)
    nn.set_threads(None)
    assert seen == [(threading.get_ident(), block) for block in range(blocks)]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("in_callers", [True, False])
def test_errors_reach_the_caller(error, in_callers, every_size_is_shared):
    nn.set_threads(2)
    caller, both, began = threading.get_ident(), threading.Barrier(2, timeout=10), []

    def work(block):
        began.append(block)
        if len(began) <= 2:
            both.wait()  # both threads have a block
        if (threading.get_ident() == caller) == in_callers:
            raise error("of a block")
        sleep(0.001)  # the other thread has its turn

    with pytest.raises(error, match="of a block"):
        over_blocks(work, range(1000), 1, products=False)
    assert len(began) < 1000
    count = len(began)
    over_blocks(lambda block: began.append(block), range(5), 1, products=False)  # the threads are there again
    assert len(began) == count + 5


@pytest.mark.parametrize("alone", [True, False])
def test_products_are_not_called_from_two_threads_unless_they_have_one_each(alone, every_size_is_shared, monkeypatch):
    monkeypatch.setattr(kernels, "ONE_THREAD_FOR_PRODUCTS", alone)
    nn.set_threads(2)
    both, seen = threading.Barrier(2, timeout=10), set()

    def work(block):
        seen.add(threading.get_ident())
        if alone and block < 2:
            both.wait()

    over_blocks(work, range(10), 1)
    assert len(seen) == 1 + alone


def test_threads_see_the_callers_errstate(every_size_is_shared):
    nn.set_threads(2)
    both, seen = threading.Barrier(2, timeout=10), []

    def work(block):
        both.wait()
        seen.append(np.geterr()["divide"])

    for how in ("raise", "ignore"):
        with np.errstate(divide=how):
            over_blocks(work, range(2), 1, products=False)
    assert seen == ["raise"] * 2 + ["ignore"] * 2


def test_when_no_thread_is_to_be_had_the_caller_works_alone(every_size_is_shared):
    """As in a thread that goes on when the main one has ended."""
    nn.set_threads(3)
    kernels._pool().shutdown()
    seen = []
    over_blocks(seen.append, range(10), 1, products=False)
    assert seen == list(range(10))


def test_the_number_of_threads_may_change_while_kernels_run(every_size_is_shared):
    errors, end = [], threading.Event()

    def work():
        while not end.is_set():
            try:
                over_blocks(np.sqrt, range(20), 1, products=False)
            except Exception as error:
                errors.append(error)

    users = [threading.Thread(target=work) for _ in range(3)]
    for user in users:
        user.start()
    for i in range(200):
        nn.set_threads(1 + i % 3)
    end.set()
    for user in users:
        user.join()
    assert errors == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_makes_threads_of_its_own(every_size_is_shared):
    nn.set_threads(2)
    expected = nn.gelu(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks of processes that have threads
        child = multiprocessing.get_context("fork").Process(target=_same_or_fail, args=(expected,))
        child.start()
    child.join(20)
    assert child.exitcode == 0


def _same_or_fail(expected):
    assert_array_equal(nn.gelu(ROWS), expected)


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "3,2"}, 3),
        ({"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({}, None),
    ],
)
def test_the_number_of_threads(variables, threads, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    nn.set_threads(None)
    monkeypatch.setattr(kernels, "_default_threads", kernels._default_threads.__wrapped__)  # the environment is another now
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert kernels.threads() == (threads or processors)
    nn.set_threads(5)
    assert kernels.threads() == 5
    nn.set_threads(None)
    for wrong in (0, 2.5, True, "2"):
        with pytest.raises(ValueError, match=f"The number of threads is a positive whole number; got {wrong!r}"):
            nn.set_threads(wrong)


def test_a_program_ends_and_one_thread_is_one():
    program = """
import threading, numpy as np
from chainrule import nn
nn.gelu(np.zeros(2_000_000, np.float32))
print(threading.active_count())
"""
    for count in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout.strip(), run.stderr) == (0, count, "")


# Blocks and broadcasting


def test_row_blocks():
    assert list(row_blocks(7, 10, 30)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(row_blocks(2, 100, 30)) == [slice(0, 1), slice(1, 2)]
    assert list(row_blocks(0, 10)) == []
    assert list(row_blocks(3, 0)) == [slice(0, 3)]
    assert list(row_blocks(10, kernels.BLOCK)) == [slice(i, i + 1) for i in range(10)]
    assert list(row_blocks(100, kernels.BLOCK))[:2] == [slice(0, 2), slice(2, 4)]  # threads share these


def test_rows_at_a_time():
    before = np.getbufsize()
    with rows_at_a_time(1000):
        assert np.getbufsize() < 1000
        assert_array_equal(ROWS * ROWS[:, :1] + ROWS[0], (ROWS.T * ROWS[:, 0]).T + np.tile(ROWS[:1], (len(ROWS), 1)))
    assert np.getbufsize() == before
    with rows_at_a_time(100):
        assert np.getbufsize() == before


def test_rows_at_a_time_ends_at_an_error():
    before = np.getbufsize()
    with pytest.raises(ZeroDivisionError), rows_at_a_time(1000):
        raise ZeroDivisionError
    assert np.getbufsize() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_product(dtype, every_size_is_shared):
    b = ROWS[::-1].astype(dtype)
    for a in (ROWS, ROWS.T[:, :400].copy().T[:1], np.broadcast_to(ROWS[0], ROWS.shape), ROWS[:, ::-1]):
        assert product(a, b).dtype == dtype
        assert_array_equal(product(a, b), a * b)
