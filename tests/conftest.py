"""What all tests share: where their helpers are, and what is left out of the ordinary run."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

sys.path.append(str(HERE / "autograd"))  # the table of primitives, differences
sys.path.append(str(HERE / "parity"))  # what the rows of the table are called elsewhere


@pytest.fixture(autouse=True)
def layers_without_a_seed_start_alike():
    """In every test, whichever ran before."""
    from chainrule.nn import manual_seed

    manual_seed(0)


def pytest_ignore_collect(collection_path, config):
    """PyTorch takes seconds to import: not for tests that will not run."""
    if collection_path == HERE / "parity" and "not parity" in config.option.markexpr:
        return True
    return None
