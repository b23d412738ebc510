"""Indexing: a gather, whose rule is a scatter that adds, whose rule is the gather."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import frozen


def frozen_key(key: Any) -> Any:
    """The index with its arrays read-only, so that the graph cannot change under it; lists become arrays."""
    if isinstance(key, tuple):
        return tuple(map(frozen_key, key))
    if isinstance(key, list):
        return frozen_key(np.asarray(key, dtype=None if key else int))
    return frozen(key) if isinstance(key, np.ndarray) else key


def is_basic(key: Any) -> bool:
    """True if the index picks each entry at most once by construction: integers, slices, ellipsis, None."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice)) for part in parts)


@primitive(linear="each")
def getitem(x: Any, *, key: Any) -> Any:
    """y = x[key], by any index of NumPy's"""
    return x[key]


@implements(operator.getitem)
def tensor_getitem(x: Any, key: Any) -> Any:
    """x[key]"""
    return getitem(x, key=frozen_key(key))


@getitem.rule("x", "∂L/∂{x} = ∂L/∂{y} at [{key}], 0 elsewhere")
def getitem_wrt_x(g: Any, y: Any, x: Any, key: Any) -> Any:
    return scatter_add(g, key=key, shape=x.shape)


@primitive(linear="each")
def scatter_add(g: Any, *, key: Any, shape: Any) -> Any:
    """y = zeros of this shape with g added at y[key]; entries picked several times add up"""
    y = np.zeros(shape, g.dtype)
    if is_basic(key):
        y[key] = g
    else:
        np.add.at(y, key, g)
    return y


@scatter_add.rule("g", "∂L/∂{g} = ∂L/∂{y}[{key}]")
def scatter_add_wrt_g(g: Any, y: Any, values: Any, key: Any, shape: Any) -> Any:
    return g[key]
