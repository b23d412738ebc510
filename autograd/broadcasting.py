"""Broadcasting and its reverse, in one place.

Forward, NumPy repeats a value along the axes it lacks or has once. So in reverse the copies' contributions are summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` down to `shape`, from which it was broadcast. Plain NumPy: works on arrays and on Tensors.

    Example: g (8, 16), shape (16,) -> g.sum(axis=0); shape (8, 1) -> g.sum(axis=1, keepdims=True).
    """
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if g.shape[extra:] == shape:  # only leading axes: the usual case, a bias
        repeated: Any = 0 if extra == 1 else tuple(range(extra))
    else:
        repeated = (*range(extra), *(extra + i for i, length in enumerate(shape) if length == 1 != g.shape[extra + i]))
    g = np.add.reduce(g, axis=repeated) if type(g) is np.ndarray else np.sum(g, axis=repeated)
    return g if g.shape == shape else np.reshape(g, shape)
