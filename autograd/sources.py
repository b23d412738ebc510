"""Where a node was made: the line of code, outside the engine, that called the operation."""

from __future__ import annotations

import linecache
import os
import sys

import numpy as np

from chainrule.autograd.tensor import Source

_ENGINE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep


def calling_line() -> Source | None:
    """The innermost line on the call stack that is neither the engine's nor NumPy's."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_ENGINE, _NUMPY)):
            return Source(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def source_text(source: Source | None) -> str:
    """The line itself, without indentation; empty if it cannot be read."""
    return linecache.getline(source.file, source.line).strip() if source else ""
