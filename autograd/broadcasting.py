"""Broadcasting and its reverse, in one place.

Forward, NumPy repeats a value along the axes it lacks or has once. So in reverse the copies' contributions are summed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray


@lru_cache(maxsize=256)
def _ones(n: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.ones(n, dtype)


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` down to `shape`, from which it was broadcast. Plain NumPy: works on arrays and on Tensors.

    Example: g (8, 16), shape (16,) -> g.sum(axis=0); shape (8, 1) -> g.sum(axis=1, keepdims=True).
    """
    from_shape = g.shape
    if type(g) is ndarray and len(from_shape) == 2 and from_shape[1:] == shape and from_shape[0] <= 4096:
        return _ones(from_shape[0], g.dtype).dot(g)  # a bias, the usual case: BLAS sums small ones quickest
    if from_shape == shape:
        return g
    extra = len(from_shape) - len(shape)
    if from_shape[extra:] == shape:  # only leading axes
        repeated: Any = 0 if extra == 1 else tuple(range(extra))
    else:
        repeated = (*range(extra), *(extra + i for i, length in enumerate(shape) if length == 1 != from_shape[extra + i]))
    g = np.add.reduce(g, repeated) if type(g) is ndarray else np.sum(g, axis=repeated)
    return g if g.shape == shape else np.reshape(g, shape)
