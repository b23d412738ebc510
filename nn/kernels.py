"""What the fused kernels share: they go block by block, so that the numbers in between stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BLOCK = 128 * 1024  # bytes of one array in a block: a few of them fit in the second-level cache


def row_blocks(rows: int, row_bytes: int, block_bytes: int = BLOCK) -> Iterator[slice]:
    """Slices that cover 0..rows in order, each of as many rows as fit in `block_bytes`, and one at least."""
    step = max(1, block_bytes // max(1, row_bytes))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


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
    flat = x.reshape(-1), y.reshape(-1), slope.reshape(-1)
    with np.errstate(over="ignore"):
        for block in row_blocks(x.size, dtype.itemsize, BLOCK // 2):
            kernel(flat[0][block].astype(dtype, copy=False), flat[1][block], flat[2][block])
    return y.astype(result, copy=False), slope.astype(result, copy=False)
