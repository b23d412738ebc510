"""What all tests share: where their helpers are, and what is left out of the ordinary run."""

import sys
from pathlib import Path

HERE = Path(__file__).parent

sys.path.append(str(HERE / "autograd"))  # the table of primitives, differences
sys.path.append(str(HERE / "parity"))  # what the rows of the table are called elsewhere


def pytest_ignore_collect(collection_path, config):
    """PyTorch takes seconds to import: not for tests that will not run."""
    if collection_path == HERE / "parity" and "not parity" in config.option.markexpr:
        return True
    return None
