"""The pytest fixture `gradcheck`. pytest finds it by itself once chainrule is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def gradcheck() -> Callable[..., Any]:
    """`gradcheck(f, *inputs, **options)` fails the test, with the worst entries side by side, unless ∂f is right.

    It is `chainrule.testing.assert_gradients`; it returns the report.
    """
    from chainrule.testing import assert_gradients

    return assert_gradients
