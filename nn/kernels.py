"""What the fused kernels share: they go block by block, so that the numbers in between stay in the processor's cache, and
the blocks of large arrays on several threads, since NumPy's loops let go of the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from chainrule.nn.checks import check_size

BLOCK = 128 * 1024  # bytes of one array in a block: a few of them fit in the second-level cache
SHARED = 4 * 1024 * 1024  # bytes of an array from which a second thread pays: below, waking it costs more than it does
SMALL = 16 * 1024  # bytes of an array that is worked on as it is
WIDE = 512  # numbers in a row from which `rows_at_a_time` pays


def _keep_freed_memory() -> None:
    """Have Linux's C library keep memory that is freed, up to 64 MB, and give it out again.

    Otherwise it returns that of each large array to the system, which clears every page of it anew, at the cost of several
    kernels. It learns what to keep from the largest array freed so far: this tells it at once, for the whole process.
    """
    np.empty(31 << 20, np.uint8)


_keep_freed_memory()

T = TypeVar("T")


def row_blocks(rows: int, row_bytes: int, block_bytes: int | None = None) -> Iterator[slice]:
    """Slices that cover 0..rows in order, each of as many rows as fit in `block_bytes`, and one at least.

    By default these are BLOCK, and twice that in arrays that threads share: in short blocks they wait for the interpreter.
    """
    if block_bytes is None:
        block_bytes = 2 * BLOCK if shared(rows * row_bytes) else BLOCK
    step = max(1, block_bytes // max(1, row_bytes))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


# Threads


def shared(size: int) -> bool:
    """Whether arrays of so many bytes are for several threads, if there are any."""
    return size >= SHARED


class _Threads:
    """How many may work on one call, and those beside the caller's, which start when they are first needed."""

    count: int | None = None
    pool: ThreadPoolExecutor | None = None
    lock = Lock()


def threads() -> int:
    """How many threads a kernel may use, the caller's included; see `set_threads`."""
    return _Threads.count or _default_threads()


def set_threads(count: int | None) -> None:
    """Let kernels on large arrays use so many threads, the caller's included. No result changes by it, not in one bit.

    None, as at the start, means OPENBLAS_NUM_THREADS or OMP_NUM_THREADS if set, as for NumPy's matrix products, else as many
    as there are processors for this process. Kernels with products inside (attention, norms, softmax, cross-entropy) share
    only if that variable is 1, so that a product has one thread. Raises ValueError unless it is a positive whole number.
    """
    if count is not None:
        check_size("The number of threads", count)
    with _Threads.lock:
        _Threads.count, _Threads.pool = count, None  # threads of a pool that is let go end by themselves


def _pool() -> ThreadPoolExecutor:
    with _Threads.lock:
        if _Threads.pool is None:
            _Threads.pool = ThreadPoolExecutor(max(1, threads() - 1), "chainrule")
        return _Threads.pool


def _asked_for() -> int | None:
    """The number of threads that the environment says."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(variable, "").split(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return int(first)
    return None


# Matrix products that have threads of their own must not be called from two threads at once: OpenBLAS was seen to lose one
# of them, and to wait for it for ever. It reads the environment when it is loaded.
ONE_THREAD_FOR_PRODUCTS = _asked_for() == 1


@cache
def _default_threads() -> int:
    asked = _asked_for()
    if asked is not None:
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_pool() -> None:
    _Threads.pool, _Threads.lock = None, Lock()  # a fork has the caller's thread alone


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def over_blocks(work: Callable[[T], object], blocks: Iterable[T], size: int, products: bool = True) -> None:
    """work(block) for each block, in any order: in this thread and, if an array of `size` bytes is for several, in others.

    Every block is for one thread, and computes the same whichever that is: what is summed over blocks, the caller keeps apart
    and adds up in their order. The others see this thread's contextvars, and so its np.errstate. An exception in any of them
    is raised here, when none is at work any more; blocks that were not begun are left out. Work with matrix `products` is
    shared only where these have one thread each.
    """
    if not shared(size) or threads() == 1 or (products and not ONE_THREAD_FOR_PRODUCTS):
        for block in blocks:
            work(block)
        return
    left = deque(blocks)
    helpers = min(threads(), len(left)) - 1
    others: list[Future[None]] = []

    def turn() -> None:
        try:
            while left:
                try:
                    block = left.popleft()
                except IndexError:  # another thread was first
                    return
                work(block)
        except BaseException:
            left.clear()  # nor do the others go on
            raise

    try:
        with suppress(RuntimeError):  # no more threads are to be had, as when the program ends: then without them
            for _ in range(helpers):
                others.append(_pool().submit(copy_context().run, turn))
        turn()
    finally:
        left.clear()
        begun = [other for other in others if not other.cancel()]
        for other in begun:
            other.exception()  # waits for it
    for other in begun:
        other.result()


# Arithmetic


def over_rows(work: Callable[[slice], object], rows: Any, block_bytes: int | None = None, products: bool = True) -> None:
    """work(block) `over_blocks` of `rows` (n, width) or (n,), cut by `row_blocks`, and with wide ones `rows_at_a_time`."""
    if rows.nbytes <= SMALL:  # without the machinery
        work(slice(0, len(rows)))
        return
    row = rows[0]
    with rows_at_a_time(row.size):
        over_blocks(work, row_blocks(len(rows), row.nbytes, block_bytes), rows.nbytes, products)


@contextmanager
def rows_at_a_time(width: int) -> Iterator[None]:
    """Within it, NumPy combines wide rows with one number each, or with one row, several times as quick.

    Its iterator copies what it broadcasts into a buffer as long as fits; here a wide row does not fit, and is taken as it is.
    """
    if width < WIDE:
        yield
        return
    before = np.setbufsize(512)  # of this context alone
    try:
        yield
    finally:
        np.setbufsize(before)


def working_dtype(*arrays: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The dtype of a result of these (None aside; integers give float64), and the one to compute in: float32 at least."""
    first = arrays[0].dtype
    if first.itemsize >= 4 and first.kind == "f" and all(x is None or x.dtype is first for x in arrays):
        return first, first  # the usual case
    result = np.result_type(*(x.dtype for x in arrays if x is not None))
    if result.kind != "f":
        result = np.dtype(np.float64)
    return result, np.result_type(result, np.float32)


def entry_by_entry(kernel: Callable[[Any, Any, Any], None], x: Any) -> tuple[Any, Any]:
    """y and ∂y/∂x of an elementwise function, each of the shape and dtype of x.

    `kernel(x, y, slope)` is given blocks, flat and of float32 or wider, and fills the last two. What is too large for the
    dtype is infinite in between, without a warning.
    """
    x = np.asarray(x)
    result, dtype = working_dtype(x)
    y, slope = np.empty(x.shape, dtype), np.empty(x.shape, dtype)
    x_flat, y_flat, slope_flat = x.reshape(-1), y.reshape(-1), slope.reshape(-1)

    def work(block: slice) -> None:
        kernel(x_flat[block].astype(dtype, copy=False), y_flat[block], slope_flat[block])

    with np.errstate(over="ignore"):
        over_rows(work, y_flat, products=False)
    return y.astype(result, copy=False), slope.astype(result, copy=False)


def product(a: Any, b: Any) -> Any:
    """a * b; large arrays of one shape on several threads."""
    if not shared(a.nbytes) or a.shape != b.shape or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return a * b
    y = np.empty(a.shape, np.result_type(a, b))
    a_flat, b_flat, y_flat = a.reshape(-1), b.reshape(-1), y.reshape(-1)

    def work(block: slice) -> None:
        np.multiply(a_flat[block], b_flat[block], out=y_flat[block])

    over_rows(work, y_flat, 8 * BLOCK, products=False)
    return y
