"""Data: what is shipped is what it says, files are read or refused by name, batches are shifted by one and repeatable."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from chainrule.models import datasets

# What is shipped


def test_names():
    names = datasets.names()
    assert len(names) == len(set(names)) == 5163
    assert names[0] == "aaron"
    assert set("".join(names)) == set("abcdefghijklmnopqrstuvwxyz")


def test_shakespeare():
    text = datasets.shakespeare()
    assert len(text) == 571_052
    assert len(set(text)) == 73
    assert "To be, or not to be" in text


def test_tang_quatrains():
    quatrains = datasets.tang_quatrains()
    assert len(quatrains) == 3935
    assert {len(quatrain) for quatrain in quatrains} == {24}  # four lines of five characters and a mark
    assert "牀前看月光，疑是地上霜。舉頭望山月，低頭思故鄉。" in quatrains


def test_digits():
    digits = datasets.digits()
    assert digits.images.shape == (10_000, 28, 28)
    assert digits.images.dtype == digits.labels.dtype == np.uint8
    assert set(digits.labels) == set(range(10))
    train, test = digits.split(8000)
    assert (len(train), len(test)) == (8000, 2000)
    assert_array_equal(test.images[0], digits.images[8000])
    assert test.labels[0] == digits.labels[8000]
    for count in (0, 10_000):
        with pytest.raises(ValueError, match=f"got {count}"):
            digits.split(count)


def test_word_vectors_know_an_analogy():
    words, vectors = datasets.word_vectors()
    assert vectors.shape == (len(words), 50) == (8346, 50)
    assert vectors.dtype == np.float32
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    man, king, woman = (unit[words.index(word)] for word in ("man", "king", "woman"))
    nearest = np.argsort(-unit @ (king - man + woman))
    assert next(words[i] for i in nearest if words[i] not in ("man", "king", "woman")) == "queen"


def test_word_pairs_have_vectors():
    pairs = datasets.word_pairs()
    assert {relation: len(rows) for relation, rows in pairs.items()} == {"capital-common-countries": 23, "family": 23}
    assert ("paris", "france") in pairs["capital-common-countries"]
    words = set(datasets.word_vectors()[0])
    assert all({a, b} <= words for rows in pairs.values() for a, b in rows)


# IDX


def idx_bytes(array, code):
    array = np.asarray(array)
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x08, ">u1"), (0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_of_every_dtype(path, code, dtype, packed):
    content = idx_bytes(np.array([[1, 2, 3], [4, 5, 100]], dtype), code)
    path.write_bytes(gzip.compress(content) if packed else content)
    array = datasets.idx(path)
    assert_array_equal(array, [[1, 2, 3], [4, 5, 100]])
    assert array.dtype == np.dtype(dtype).newbyteorder("=")
    array[0, 0] = 0  # the reader's own


def test_idx_by_hand(path):
    path.write_bytes(bytes.fromhex("00 00 0b 02  00 00 00 01  00 00 00 02  01 00  ff ff"))
    assert_array_equal(datasets.idx(path), [[256, -1]])


GOOD = idx_bytes(IMAGES, 0x08)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "two zero bytes and two more; got nothing"),
        (b"\0\0\x08", "got 00 00 08"),
        (b"PK\3\4" + GOOD, "got 50 4b 03 04"),
        (b"\x93NUMPY", "got 93 4e 55 4d"),
        (b"\0\0\x0a" + GOOD[3:], "0x0e; got 0x0a"),
        (b"\0\0\x08\0", "promises 0 dimensions"),
        (GOOD[:15], "promises 3 dimensions, 16 bytes; the file has 15"),
        (GOOD[:-1], r"cut short: \(2, 3, 4\) of uint8 takes 40 bytes, got 39"),
        (GOOD + b"\0", "bytes left over: .* takes 40 bytes, got 41"),
        (b"\0\0\x0e\4" + b"\xff" * 16, "cut short"),
        (gzip.compress(GOOD)[:-9], "damaged or cut short"),
        (gzip.compress(GOOD)[:-8] + b"\0" * 8, "damaged or cut short"),
        (gzip.compress(GOOD)[:10] + b"\xff" * 30, "damaged or cut short"),
        (b"\x1f\x8b" + b"\0" * 20, "damaged or cut short"),
        (gzip.compress(GOOD[:-1]), "takes 40 bytes, got 39"),
        (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\7", "promises 255 dimensions"),
    ],
)
def test_what_is_not_idx_is_refused(path, content, message):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        datasets.idx(path)
    assert str(path) in str(raised.value)


def test_a_folder_of_mnist(tmp_path):
    for part, ending in (("train", ".gz"), ("t10k", "")):
        for name, array in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", np.uint8([7, 1]))):
            content = idx_bytes(array, 0x08)
            (tmp_path / f"{part}-{name}{ending}").write_bytes(gzip.compress(content) if ending else content)
    for digits in datasets.mnist_folder(tmp_path):
        assert_array_equal(digits.images, IMAGES)
        assert_array_equal(digits.labels, [7, 1])
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.uint8([7, 1, 3]), 0x08))
    with pytest.raises(ValueError, match=r"images \(2, 3, 4\) and labels \(3,\)"):
        datasets.mnist_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([7, 1], ">i4"), 0x0C))
    with pytest.raises(ValueError, match="uint8 and int32"):
        datasets.mnist_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte is missing"):
        datasets.mnist_folder(tmp_path)


# Text


def test_text_files(path):
    path.write_bytes("\ufeff黑便\r\n🙂".encode())
    assert datasets.text_file(path) == "黑便\n🙂"
    path.write_bytes("a\fb\x85c\u2028d\re\r\n".encode())
    assert datasets.text_file(path) == "a\fb\x85c\u2028d\re\n"  # one line: the others are characters
    for content in (b"ab\0c", "abc".encode("utf-16-le")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="has a NUL at character"):
            datasets.text_file(path)
    path.write_bytes("黑便".encode("gbk"))
    with pytest.raises(ValueError, match="not UTF-8: byte 0xba at 0"):
        datasets.text_file(path)
    for content in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is empty"):
            datasets.text_file(path)
    with pytest.raises(FileNotFoundError):
        datasets.text_file(path.with_name("absent"))


def test_split_text():
    train, validation = datasets.split_text(np.arange(10), 0.75)
    assert_array_equal(train, [0, 1, 2, 3, 4, 5, 6])
    assert_array_equal(validation, [7, 8, 9])
    with pytest.raises(ValueError, match=r"between 0 and 1; got 1\.5"):
        datasets.split_text(np.arange(10), 1.5)


def test_targets_are_the_inputs_shifted_by_one():
    ids = np.random.default_rng(0).permutation(50).astype(np.uint16)  # each id once, so its place is known
    x, y = datasets.random_batch(ids, context=8, batch=30, rng=np.random.default_rng(1))
    assert x.shape == y.shape == (30, 8)
    assert x.dtype == y.dtype == np.int64
    follower = dict(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    assert_array_equal(y, [[follower[i] for i in row] for row in x.tolist()])
    assert_array_equal(x[:, 1:], y[:, :-1])


def test_every_place_is_drawn_equally():
    x, y = datasets.random_batch(np.arange(8), context=3, batch=5000, rng=np.random.default_rng(0))
    starts = np.bincount(x[:, 0])
    assert len(starts) == 5  # 0 … 4: the last target is the last id
    assert y.max() == 7
    assert np.all(np.abs(starts - 1000) < 4 * np.sqrt(1000 * 0.8))  # four standard deviations


def test_batches_refuse_what_they_cannot_cut():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="A context of 4 takes 5 ids, the last one as a target; got 4"):
        datasets.random_batch(np.arange(4), 4, 1, rng)
    with pytest.raises(TypeError, match="dtype float64"):
        datasets.random_batch(np.ones(9), 4, 1, rng)
    with pytest.raises(TypeError, match=r"shape \(2, 2\)"):
        datasets.windows([[1, 2], [3, 4]], 1)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        datasets.windows([1, 2], 0)
    with pytest.raises(ValueError, match="at least 2 ids; got 1"):
        datasets.windows([1], 3)
    with pytest.raises(ValueError, match="at least one document"):
        datasets.document_batch([], 4, 1, rng, 0)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        datasets.document_windows([[1]], 0, 0)


def test_windows_by_hand():
    x, y = datasets.windows([5, 6, 7, 8, 9, 4], context=3)
    assert_array_equal(x, [[5, 6, 7], [8, 9, 0]])
    assert_array_equal(y, [[6, 7, 8], [9, 4, -1]])


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.integers(1, 12))
def test_windows_count_every_token_once(ids, context):
    x, y = datasets.windows(ids, context)
    assert x.shape[1] == min(context, len(ids) - 1)
    assert y[y != datasets.IGNORE].tolist() == ids[1:]
    assert x[y != datasets.IGNORE].tolist() == ids[:-1]
    assert len(x) == -(-(len(ids) - 1) // context)


# Documents

EMMA, ANN, AL = [4, 12, 12, 0], [0, 13, 13], [0, 11]
BOS = 26


def test_documents_by_hand():
    x, y = datasets.document_windows([EMMA, AL], context=8, bos=BOS)
    assert_array_equal(x, [[26, 4, 12, 12, 0], [26, 0, 11, 26, 26]])
    assert_array_equal(y, [[4, 12, 12, 0, 26], [0, 11, 26, -1, -1]])


def test_a_long_document_goes_on_in_the_next_row():
    x, y = datasets.document_windows([EMMA, AL], context=3, bos=BOS)
    assert_array_equal(x, [[26, 4, 12], [12, 0, 26], [26, 0, 11]])
    assert_array_equal(y, [[4, 12, 12], [0, 26, -1], [0, 11, 26]])


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=5), st.integers(1, 6))
def test_document_windows_count_every_token_once(documents, context):
    _, y = datasets.document_windows(documents, context, BOS)
    assert y[y != datasets.IGNORE].tolist() == [i for document in documents for i in [*document, BOS]]


def test_a_batch_of_documents_has_whole_documents():
    x, y = datasets.document_batch([EMMA, ANN, AL], context=8, batch=50, rng=np.random.default_rng(0), bos=BOS)
    assert x.shape == y.shape == (50, 5)  # the longest, framed, without one end
    rows = {tuple(row) for row in np.concatenate([x, y], axis=1).tolist()}
    assert rows == {
        (26, 4, 12, 12, 0, 4, 12, 12, 0, 26),
        (26, 0, 13, 13, 26, 0, 13, 13, 26, -1),
        (26, 0, 11, 26, 26, 0, 11, 26, -1, -1),
    }


def test_a_batch_has_any_stretch_of_a_long_document():
    x, y = datasets.document_batch([EMMA], context=3, batch=50, rng=np.random.default_rng(0), bos=BOS)
    rows = {(*x_row, y_row[-1]) for x_row, y_row in zip(x.tolist(), y.tolist(), strict=True)}
    assert rows == {(26, 4, 12, 12), (4, 12, 12, 0), (12, 12, 0, 26)}
