"""Tasks: what is a document."""

import numpy as np
import pytest

from chainrule.models import tasks
from chainrule.models.tokenizers import CharTokenizer


def test_a_line_ends_with_a_line_feed_alone(tmp_path):
    """A form feed, U+0085 and U+2028 are characters of a line, as `str.splitlines` would not have it."""
    lines = ["a\fb", "c\x85d", "e\u2028f", "g\rh"]
    (tmp_path / "a.txt").write_bytes("\r\n".join([*lines, "", ""]).encode())
    task = tasks.from_source(str(tmp_path / "a.txt"), context=8, lines=True)
    assert [task.tokenizer.decode(document) for document in task.documents] == lines


def test_documents_need_a_boundary():
    with pytest.raises(ValueError, match=r"special tokens <\|endoftext\|>; this tokenizer has \['<eos>'\]"):
        tasks.from_source("names", tokenizer=CharTokenizer("abcdefghijklmnopqrstuvwxyz", special=["<eos>"]))


def test_a_batch_depends_on_its_generator_alone():
    task = tasks.from_source("names", context=8)
    for made in zip(*(task.batch(np.random.default_rng((3, 1)), 4) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(*made)
    assert not np.array_equal(task.batch(np.random.default_rng(0), 4)[0], task.batch(np.random.default_rng(1), 4)[0])
