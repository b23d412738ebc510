"""Small real data that comes with the package, readers of the usual file formats, and batches for language models.

Sources and licences of what is shipped: models/data/README.md. Ids are the integers of models/tokenizers.py. In every batch
the targets y are the inputs x shifted by one (notes 9.6): y[b, t] is the token that follows x[b, t]. A target of IGNORE is
no target at all: nn.cross_entropy(logits, y, ignore_index=IGNORE) leaves it out.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IGNORE = -1  # the target of a position that has none

Ids = NDArray[np.int64]

# What is shipped


def _shipped(name: str) -> Any:
    return files("chainrule.models") / "data" / name


def names() -> list[str]:
    """5,163 first names in lower case (US Census 1990), in alphabetical order."""
    return str(_shipped("names.txt").read_text(encoding="utf-8")).splitlines()


def shakespeare() -> str:
    """Hamlet, Macbeth, Lear, Romeo and Juliet: 571,052 characters, 73 distinct."""
    return str(_shipped("shakespeare.txt").read_text(encoding="utf-8"))


def tang_quatrains() -> list[str]:
    """3,935 Tang quatrains of four times five characters, each one string with its punctuation."""
    return str(_shipped("tang_quatrains.txt").read_text(encoding="utf-8")).splitlines()


def digits() -> Digits:
    """10,000 of MNIST's handwritten digits, shuffled (LeCun, Cortes and Burges 1998)."""
    with _shipped("digits10k.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Digits(arrays["images"], arrays["labels"])


def word_vectors() -> tuple[list[str], NDArray[np.float32]]:
    """(words, vectors (8346, 50)): frequent English words and their GloVe vectors (Pennington, Socher and Manning 2014).

    Row i belongs to words[i], the most frequent word first. The values are whole numbers, -127..127: directions and
    cosines are what counts.
    """
    with _shipped("glove_50d_int8.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return str(arrays["words"]).split("\n"), arrays["vectors"].astype(np.float32)


def word_pairs() -> dict[str, list[tuple[str, str]]]:
    """Pairs for analogies, by relation: 23 of capital and country, 23 of male and female."""
    relations = json.loads(_shipped("word_pairs.json").read_text(encoding="utf-8"))
    return {relation: [(a, b) for a, b in pairs] for relation, pairs in relations.items()}


# Images


@dataclass(frozen=True, eq=False)
class Digits:
    """images (N, rows, columns) uint8, 0 is paper and 255 ink; labels (N,) uint8. Raises ValueError if they do not match."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.images.ndim != 3 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"Images (N, rows, columns) need labels (N,); got images {self.images.shape} and labels {self.labels.shape}."
            )
        if self.images.dtype != np.uint8 or self.labels.dtype != np.uint8:
            raise ValueError(f"Images and labels are uint8; got {self.images.dtype} and {self.labels.dtype}.")

    def __len__(self) -> int:
        return len(self.labels)

    def split(self, count: int) -> tuple[Digits, Digits]:
        """The first `count` and the rest. Raises ValueError unless both have some."""
        if not 0 < count < len(self):
            raise ValueError(f"A split of {len(self)} images leaves some on either side; got {count}.")
        return Digits(self.images[:count], self.labels[:count]), Digits(self.images[count:], self.labels[count:])


IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file, the format of MNIST, plain or gzipped; in the machine's byte order.

    Two zero bytes, a code of the dtype, the number of dimensions, each dimension as a big-endian uint32, then the numbers,
    big-endian (yann.lecun.com/exdb/mnist). Raises ValueError where a file is anything else, too short or too long.
    """
    content = Path(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: the gzip file is damaged or cut short ({error}); download it again.") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(
            f"{path}: an IDX file begins with two zero bytes and two more; got {content[:4].hex(' ') or 'nothing'}."
        )
    code, ndim = content[2], content[3]
    if code not in IDX_DTYPES:
        known = ", ".join(f"{known:#04x}" for known in IDX_DTYPES)
        raise ValueError(f"{path}: byte 2 of an IDX file is the dtype, one of {known}; got {code:#04x}.")
    start = 4 + 4 * ndim
    if not 1 <= ndim <= 64 or len(content) < start:  # more than NumPy has are none either
        raise ValueError(f"{path}: the header promises {ndim} dimensions, {start} bytes; the file has {len(content)} bytes.")
    dtype = np.dtype(IDX_DTYPES[code])
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=ndim, offset=4))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        fault = "is cut short" if len(content) < expected else "has bytes left over"
        raise ValueError(f"{path}: the file {fault}: {shape} of {dtype.name} takes {expected} bytes, got {len(content)}.")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def mnist_folder(path: str | Path) -> tuple[Digits, Digits]:
    """(training, test) from the four official files, `train-images-idx3-ubyte` and so on, plain or `.gz`.

    Fashion-MNIST has the same names. Raises FileNotFoundError for a missing one, ValueError for a file that is not IDX.
    """

    def read(name: str) -> NDArray[Any]:
        choices = [Path(path) / (name + ending) for ending in ("", ".gz")]
        for choice in choices:
            if choice.exists():
                return idx(choice)
        raise FileNotFoundError(f"MNIST is four files; {choices[0]} is missing, and so is {choices[1].name}.")

    train, test = (Digits(read(f"{part}-images-idx3-ubyte"), read(f"{part}-labels-idx1-ubyte")) for part in ("train", "t10k"))
    return train, test


# Text


def text_file(path: str | Path) -> str:
    """The text of a UTF-8 file; the line end "\\r\\n" becomes "\\n", a byte order mark goes.

    Raises ValueError if the file is empty or not UTF-8, or has a NUL byte, as no text but another encoding's has.
    """
    text = utf_8(path)
    if not text:
        raise ValueError(f"{path} is empty.")
    if "\0" in text:
        raise ValueError(f"{path} has a NUL at character {text.index(chr(0))}: is it UTF-16, or no text? Save it as UTF-8.")
    return text


def utf_8(path: str | Path) -> str:
    """The content of a UTF-8 file, as `text_file` has it, whatever it is."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}. Save it as UTF-8 and read it again."
        ) from None


def _checked_ids(ids: ArrayLike, context: int) -> NDArray[Any]:
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise TypeError(f"A text is a line of integer ids (N,); got shape {ids.shape}, dtype {ids.dtype}.")
    if context < 1:
        raise ValueError(f"The context is at least 1; got {context}.")
    return ids


def split_text(ids: ArrayLike, fraction: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
    """(training, validation): the first `fraction` of ids (N,) and the rest, uncut and unshuffled."""
    ids = _checked_ids(ids, 1)
    if not 0 < fraction < 1:
        raise ValueError(f"The fraction lies between 0 and 1; got {fraction}.")
    cut = int(fraction * len(ids))
    return ids[:cut], ids[cut:]


def as_int64(ids: NDArray[Any]) -> Ids:
    """Integers as int64. Raises IndexError for unsigned ones that are larger, which would come out negative."""
    if ids.dtype.kind == "u" and ids.size and ids.max() >= 2**63:
        raise IndexError(f"No vocabulary has an id of 2**63 or more; got {ids.max()}.")
    return ids.astype(np.int64)


def random_batch(ids: ArrayLike, context: int, batch: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """(x (B, T), y (B, T)): `batch` stretches of `context` ids from uniformly random places; y is x shifted by one (notes 9.6).

    ids (N,) integers, best an array; int64 comes out. Raises ValueError if N is not more than the context.
    """
    ids = _checked_ids(ids, context)
    if len(ids) <= context:
        raise ValueError(f"A context of {context} takes {context + 1} ids, the last one as a target; got {len(ids)}.")
    starts = rng.integers(len(ids) - context, size=batch)
    stretches = as_int64(ids[starts[:, None] + np.arange(context + 1)])  # (B, T+1)
    return stretches[:, :-1].copy(), stretches[:, 1:].copy()


def windows(ids: ArrayLike, context: int) -> tuple[Ids, Ids]:
    """(x (W, T), y (W, T)): all of the text side by side, for a validation loss that counts every token once.

    Each of ids (N,) but the first, which nothing precedes, is a target exactly once. T is the context, or N - 1 if that is
    less. After the end, x is filled with 0 and y with IGNORE. Raises ValueError if N < 2.
    """
    ids = _checked_ids(ids, context)
    if len(ids) < 2:
        raise ValueError(f"A target needs an id before it: a text of at least 2 ids; got {len(ids)}.")
    return _shifted(_stretches(ids, context), 0)


def document_batch(
    documents: Sequence[Sequence[int]], context: int, batch: int, rng: np.random.Generator, bos: int
) -> tuple[Ids, Ids]:
    """(x (B, T), y (B, T)): `batch` documents drawn at random, each framed by the boundary token: bos, its ids, bos.

    T is the longest of them, at most `context`; of a longer document it is a random stretch. After the end of a shorter one,
    x is filled with bos and y with IGNORE. Raises ValueError if there are no documents.
    """
    _check_documents(documents, context)
    stretches = []
    for i in rng.integers(len(documents), size=batch):
        framed = [bos, *documents[i], bos]
        start = rng.integers(len(framed) - context) if len(framed) > context + 1 else 0
        stretches.append(framed[start : start + context + 1])
    return _shifted(stretches, bos)


def document_windows(documents: Sequence[Sequence[int]], context: int, bos: int) -> tuple[Ids, Ids]:
    """(x (W, T), y (W, T)): all documents, framed by bos, one a row, for a validation loss that counts every token once.

    A document longer than `context` goes on in further rows. T and the filling are as in `document_batch`.
    """
    _check_documents(documents, context)
    return _shifted([part for ids in documents for part in _stretches([bos, *ids, bos], context)], bos)


def _check_documents(documents: Sequence[Sequence[int]], context: int) -> None:
    if len(documents) == 0:
        raise ValueError("A batch takes at least one document; got none.")
    if context < 1:
        raise ValueError(f"The context is at least 1; got {context}.")


def _stretches(ids: Any, context: int) -> list[Any]:
    """ids cut into stretches of `context` steps; the last of one is the first of the next."""
    return [ids[start : start + context + 1] for start in range(0, len(ids) - 1, context)]


def _shifted(stretches: list[Any], filling: int) -> tuple[Ids, Ids]:
    """Each stretch without its last id in a row of x, without its first in a row of y."""
    shape = len(stretches), max(map(len, stretches)) - 1
    x, y = np.full(shape, filling, np.int64), np.full(shape, IGNORE, np.int64)
    for row, stretch in enumerate(stretches):
        x[row, : len(stretch) - 1] = stretch[:-1]
        y[row, : len(stretch) - 1] = stretch[1:]
    return x, y
