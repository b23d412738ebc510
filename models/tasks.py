"""What a Trainer learns: a text, separate documents, or handwritten digits.

A task gives batches (x, y), the loss of a model on them, and how well the model does on data kept apart. A batch depends
on nothing but the random generator it is drawn with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.autograd import Tensor
from chainrule.models import datasets
from chainrule.models.datasets import IGNORE
from chainrule.models.generation import generate
from chainrule.models.mlp import one_hot, pixels
from chainrule.models.tokenizers import BPETokenizer, CharTokenizer, Tokenizer, WordTokenizer
from chainrule.nn.losses import cross_entropy, squared_cost
from chainrule.nn.module import evaluating

BOUNDARY = "<|endoftext|>"  # the token before and after each document
UNKNOWN = "<unk>"
SHIPPED = ("names", "shakespeare", "tang_quatrains", "digits")
VALIDATED = 1000  # rows at most, spread over the data kept apart

Batch = tuple[NDArray[Any], NDArray[Any]]


class Validation(NamedTuple):
    """The mean loss on data that no batch is drawn from, and the share that is classified right (NaN for language)."""

    loss: float
    accuracy: float = float("nan")


class Task:
    """What a Trainer asks of a task.

    Attributes:
        recipe: the arguments of `from_source` that make it again; None if its data came from Python.
        tokenizer: of text. unit: what is counted, "tokens" or "examples".
    """

    recipe: dict[str, Any] | None = None
    tokenizer: Tokenizer | None = None
    unit: str = "examples"

    def digest(self) -> str:
        """A number of the data, as text: the same for the same data alone."""
        raise NotImplementedError

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        """(x, y): `size` examples, drawn with rng."""
        raise NotImplementedError

    def loss(self, model: Any, x: Any, y: Any) -> Tensor:
        """The mean loss of a batch, one number."""
        raise NotImplementedError

    def count(self, y: Any) -> int:
        """How many targets a batch has."""
        return len(y)

    def validate(self, model: Any, size: int) -> Validation:
        """How the model does, in evaluation mode, on the data kept apart, `size` examples at a time."""
        raise NotImplementedError

    def sample(self, model: Any, seed: int) -> str:
        """Something that the model makes; "" if it makes nothing to show."""
        return ""


class _Language(Task):
    """Next tokens: the targets y are the inputs x shifted by one (notes 9.6)."""

    unit = "tokens"

    def __init__(self, context: int, tokenizer: Tokenizer | None, recipe: dict[str, Any] | None) -> None:
        self.context, self.tokenizer, self.recipe = context, tokenizer, recipe

    @cached_property
    def validation(self) -> Batch:
        """Rows (W, T) of the data kept apart, each token a target once; where they are many, VALIDATED of them."""
        x, y = self._windows()
        chosen = np.unique(np.linspace(0, len(x) - 1, VALIDATED).round().astype(int))
        return x[chosen], y[chosen]

    def _windows(self) -> Batch:
        raise NotImplementedError

    def loss(self, model: Any, x: Any, y: Any) -> Tensor:
        loss: Tensor = cross_entropy(model(x), y, ignore_index=IGNORE)
        return loss

    def count(self, y: Any) -> int:
        return int(np.count_nonzero(y != IGNORE))

    def validate(self, model: Any, size: int) -> Validation:
        x, y = self.validation
        total = 0.0
        with evaluating(model):
            for i in range(0, len(x), size):
                part = slice(i, i + size)
                total += float(cross_entropy(model(x[part]), y[part], ignore_index=IGNORE, reduction="sum"))
        return Validation(total / self.count(y))


class TextTask(_Language):
    """One long text: batches are random stretches of its first 90 %, the rest is for validation.

    A sample is of `sample_length` tokens.

    Args:
        ids: (N,) integers. context: ids that the model reads at once. tokenizer: for samples.
    Raises:
        ValueError: for a text too short for the context.
    """

    sample_length = 200

    def __init__(
        self, ids: ArrayLike, context: int, tokenizer: Tokenizer | None = None, recipe: dict[str, Any] | None = None
    ) -> None:
        super().__init__(context, tokenizer, recipe)
        self.ids = np.asarray(ids)
        self.train_ids, self.validation_ids = datasets.split_text(self.ids)
        if len(self.train_ids) <= context or len(self.validation_ids) < 2:
            need = max(-(-10 * (context + 1) // 9), 20)
            raise ValueError(
                f"The text has {len(self.ids)} tokens; with a context of {context} it takes at least {need}, of which a tenth "
                f"is kept for validation. Give a longer text or a smaller context."
            )

    def digest(self) -> str:
        return _digest(self.ids)

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        return datasets.random_batch(self.train_ids, self.context, size, rng)  # (B, T), (B, T)

    def _windows(self) -> Batch:
        return datasets.windows(self.validation_ids, self.context)

    def sample(self, model: Any, seed: int) -> str:
        """What the model writes after the text's first token."""
        if self.tokenizer is None:
            return ""
        ids = generate(model, self.ids[:1], self.sample_length, tokenizer=self.tokenizer, seed=seed)
        return self.tokenizer.decode(ids, skip_special=True)


class DocumentsTask(_Language):
    """Separate documents, each framed by a boundary token. A tenth of them, drawn at random, is kept for validation.

    Args:
        documents: their ids. boundary: the id before and after each.
    Raises:
        ValueError: for fewer than two documents.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[int]],
        context: int,
        boundary: int,
        tokenizer: Tokenizer | None = None,
        recipe: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(context, tokenizer, recipe)
        if len(documents) < 2:
            raise ValueError(f"Documents are split into those to train on and those kept apart; got {len(documents)}.")
        self.documents, self.boundary = documents, boundary
        order = np.random.default_rng(0).permutation(len(documents))  # a list is often sorted
        kept = max(1, len(documents) // 10)
        self.train_documents = [documents[i] for i in order[kept:]]
        self.validation_documents = [documents[i] for i in order[:kept]]

    def digest(self) -> str:
        return _digest(np.concatenate([[self.boundary, *document] for document in self.documents]))

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        return datasets.document_batch(self.train_documents, self.context, size, rng, self.boundary)  # (B, T), (B, T)

    def _windows(self) -> Batch:
        return datasets.document_windows(self.validation_documents, self.context, self.boundary)

    def sample(self, model: Any, seed: int) -> str:
        """Five documents that the model makes up."""
        if self.tokenizer is None:
            return ""
        made = []
        for i in range(5):
            ids = generate(
                model, [self.boundary], self.context, stop=self.boundary, tokenizer=self.tokenizer, seed=5 * seed + i
            )
            made.append(self.tokenizer.decode(ids, skip_special=True))
        return "\n".join(made)


class DigitsTask(Task):
    """Images and their labels: the squared cost of the outputs, or cross-entropy if the model gives logits.

    The last fifth is for validation. x (B, rows · columns) from 0 to 1, y (B, classes) one-hot.
    """

    def __init__(self, digits: datasets.Digits, recipe: dict[str, Any] | None = None, dtype: Any = np.float32) -> None:
        self.recipe = recipe
        self.train, self.held_out = digits.split(len(digits) - max(1, len(digits) // 5))
        self.classes = int(digits.labels.max()) + 1
        self.dtype = dtype

    def digest(self) -> str:
        return _digest(self.train.images, self.train.labels, self.held_out.images, self.held_out.labels)

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        chosen = rng.integers(len(self.train), size=size)
        return self._pair(self.train, chosen)

    def _pair(self, digits: datasets.Digits, chosen: Any) -> Batch:
        return pixels(digits.images[chosen], self.dtype), one_hot(digits.labels[chosen], self.classes, self.dtype)

    def loss(self, model: Any, x: Any, y: Any) -> Tensor:
        logits = model.config.output == "logits"
        loss: Tensor = cross_entropy(model(x), np.argmax(y, axis=-1)) if logits else squared_cost(model(x), y)
        return loss

    def validate(self, model: Any, size: int) -> Validation:
        x, y = self._pair(self.held_out, slice(None))
        with evaluating(model):
            loss = float(self.loss(model, x, y))
            right = np.argmax(np.asarray(model(x)), axis=-1) == self.held_out.labels
        return Validation(loss, float(right.mean()))


def from_source(
    source: str,
    *,
    context: int = 64,
    tokenizer: str | Tokenizer = "char",
    vocab_size: int | None = None,
    lines: bool | None = None,
    dtype: Any = np.float32,
) -> TextTask | DocumentsTask | DigitsTask:
    """The task of a text file, or of what is shipped: "names", "shakespeare", "tang_quatrains", "digits".

    Args:
        tokenizer: "char", "bpe" or "word", made from the text; or one that is made. vocab_size: at most, for "bpe" and "word".
        lines: each line is a document of its own; so it is for names and quatrains, unless said otherwise.
    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for a file that is empty or not UTF-8, texts too short, and a tokenizer without BOUNDARY for lines.
    """
    recipe: dict[str, Any] = {"source": source}
    if source == "digits":
        return DigitsTask(datasets.digits(), recipe | {"dtype": np.dtype(dtype).name}, dtype)
    text = text_of(source)
    lines = source in ("names", "tang_quatrains") if lines is None else lines
    recipe |= {"context": context, "lines": lines}
    if isinstance(tokenizer, str):
        tokenizer = make_tokenizer(tokenizer, text, vocab_size, lines)
    if not lines:
        return TextTask(np.array(tokenizer.encode(text), np.int64), context, tokenizer, recipe)
    if BOUNDARY not in tokenizer.special:
        raise ValueError(f"Documents stand between special tokens {BOUNDARY}; this tokenizer has {list(tokenizer.special)}.")
    documents = [tokenizer.encode(line) for line in text.split("\n") if line]
    return DocumentsTask(documents, context, tokenizer.special[BOUNDARY], tokenizer, recipe)


def is_recipe(said: Any) -> bool:
    """Whether this, read from a file, is a task's `recipe`: the arguments of `from_source`, each of its kind."""
    if not isinstance(said, dict):
        return False
    kinds = {"source": str, "dtype": str} if said.get("source") == "digits" else {"source": str, "context": int, "lines": bool}
    fits = said.keys() == kinds.keys() and all(type(said[name]) is kind for name, kind in kinds.items())
    return fits and said.get("context", 1) > 0 and said.get("dtype", "float32") in ("float16", "float32", "float64")


def text_of(source: str) -> str:
    """The text of a file, or of a shipped set. Raises as `from_source`."""
    if source in ("names", "tang_quatrains"):
        return "\n".join(datasets.names() if source == "names" else datasets.tang_quatrains())
    if source == "shakespeare":
        return datasets.shakespeare()
    if not Path(source).is_file():
        raise FileNotFoundError(f"There is no file {source!r}, and no shipped set of that name: {', '.join(SHIPPED)}.")
    return datasets.text_file(source)


def make_tokenizer(kind: str, text: str, vocab_size: int | None = None, lines: bool = False) -> Tokenizer:
    """A tokenizer made from a text; with `lines`, one that has BOUNDARY and needs no line ends."""
    special = [BOUNDARY] if lines else []
    if lines:
        text = text.replace("\n", "") if kind == "char" else text
    if kind == "char":
        if vocab_size is not None:
            raise ValueError("Characters are as many as the text has; a vocabulary size is for bpe and word.")
        return CharTokenizer.from_text(text, special)
    if kind == "word":
        return WordTokenizer.from_text(text, vocab_size, special, "error" if vocab_size is None else UNKNOWN)
    if kind == "bpe":
        return BPETokenizer.train(text, 1024 if vocab_size is None else vocab_size)
    raise ValueError(f'A tokenizer is "char", "bpe" or "word"; got {kind!r}.')


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
