"""Word vectors, learned by guessing words from the company they keep (Mikolov et al. 2013; deep-learning brief, Word2Vec).

    ids = ...                                                          # a text, as integers
    model = Word2Vec(Word2VecConfig(vocab_size=5000, d=64, loss="negative"))
    noise = NoiseWords(np.bincount(ids, minlength=5000))
    inputs, targets = training_pairs(ids, window=5, mode="skipgram")
    loss = model.loss(inputs[batch], targets[batch], noise.draw((len(batch), 5), rng))
    model.word_vectors(words).neighbours("king")

Skip-gram guesses each word nearby from the word in the middle; CBOW guesses the one in the middle from the mean of those
nearby. The guess is scored against the whole vocabulary (softmax) or against a few random words (negative sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.autograd import default_dtype, named
from chainrule.autograd.modes import MODE
from chainrule.models.configs import check_sizes
from chainrule.models.counting import check_memory
from chainrule.models.datasets import IGNORE, Ids, as_int64
from chainrule.nn import init
from chainrule.nn.checks import check_number, check_size
from chainrule.nn.linear import embedding
from chainrule.nn.losses import cross_entropy, negative_sampling
from chainrule.nn.module import Module

Mode = Literal["skipgram", "cbow"]


def _check_mode(mode: str) -> None:
    if mode not in ("skipgram", "cbow"):
        raise ValueError(f'mode is "skipgram" or "cbow"; got {mode!r}.')


@dataclass(frozen=True)
class Word2VecConfig:
    """What learns the word vectors.

    Args:
        vocab_size: the words there are. d: entries of a vector. mode: "skipgram" or "cbow".
        window: how many words to the left and to the right are near. loss: "softmax" or "negative". negatives: random words
            against which each guess is scored, with "negative".
    Raises:
        ValueError: for sizes that are not positive, and words that are not known.
    """

    vocab_size: int
    d: int
    mode: Mode = "skipgram"
    window: int = 5
    loss: Literal["softmax", "negative"] = "softmax"
    negatives: int = 5

    def __post_init__(self) -> None:
        check_sizes(self, "vocab_size", "d", "window", "negatives")
        _check_mode(self.mode)
        if self.loss not in ("softmax", "negative"):
            raise ValueError(f'loss is "softmax" or "negative"; got {self.loss!r}.')


class Word2Vec(Module):
    """Two vectors for each word: E[w] when it is read, U[w] when it is guessed; the score of a guess is h · U[w].

    Parameters E and U (vocabulary, d). E starts uniform within ±1/2d and U from 0, as in word2vec.

    Args:
        seed: of the numbers E starts from. dtype: the parameters'; float64, or what `default_dtype` says, if not given.
    """

    def __init__(self, config: Word2VecConfig, *, seed: init.Seed = 0, dtype: Any = None) -> None:
        self.config = config
        check_memory(config, dtype)
        shape = (config.vocab_size, config.d)
        with default_dtype(dtype or MODE.get().dtype):
            self.E = init.uniform(shape, 0.5 / config.d, seed)
            self.U = init.constant(shape, 0)

    def forward(self, inputs: Any) -> Any:
        """h (B, d), by which a word is guessed: E[inputs] for skip-gram, inputs (B,); for CBOW the mean of the E of the
        words near, inputs (B, near) with IGNORE where there is none. Raises ValueError for a row without any."""
        if self.config.mode == "skipgram":
            return named("h", embedding(self.E, inputs))
        inputs = np.asarray(inputs)
        there = inputs != IGNORE
        empty = np.flatnonzero(~there.any(axis=-1))
        if empty.size:
            raise ValueError(f"The mean over no word is undefined: row {empty[0]} of the inputs has only IGNORE.")
        weights = (there / there.sum(axis=-1, keepdims=True)).astype(self.E.dtype)[..., None]  # (B, near, 1)
        return named("h", np.sum(embedding(self.E, np.where(there, inputs, 0)) * weights, axis=-2))

    def loss(self, inputs: Any, targets: Any, noise: Any = None) -> Any:
        """The mean loss of guessing `targets` (B,) from `inputs`, as `training_pairs` makes them.

        softmax: -ln of the target's share of e^(h · U[w]) over all words w. negative: -ln σ(h · U[target]) - Σ ln σ(-h · U[w])
        over the random words w, noise (B, negatives), from `NoiseWords`. Raises ValueError where the noise does not fit.
        """
        h = self(inputs)
        if self.config.loss == "softmax":
            return named("loss", cross_entropy(named("logits", h @ self.U.T), targets))  # logits (B, vocabulary)
        wanted = (len(h), self.config.negatives)
        if np.shape(noise) != wanted:
            raise ValueError(f"Negative sampling takes noise of shape {wanted}; got {np.shape(noise)}. NoiseWords draws it.")
        positive = named("positive", np.sum(h * embedding(self.U, targets), axis=-1))  # (B,)
        negative = named("negative", (embedding(self.U, noise) @ h[:, :, None])[..., 0])  # (B, negatives)
        return named("loss", negative_sampling(positive, negative))

    def word_vectors(self, words: Sequence[str]) -> WordVectors:
        """The vectors E, each with its word."""
        return WordVectors(words, self.E.data)


# What it learns from


def training_pairs(ids: ArrayLike, window: int, mode: Mode = "skipgram") -> tuple[Ids, Ids]:
    """(inputs, targets): every word of a text with the words at most `window` places from it.

    ids (T,). skipgram: for each word and each one near it, inputs (N,) and targets (N,), by distance, not shuffled. cbow:
    inputs (T, 2 · window), all that are near, IGNORE beyond the ends, and targets (T,). Raises ValueError for a text of one
    word, or anything but one sequence of words.
    """
    _check_mode(mode)
    text = np.asarray(ids)
    if text.ndim != 1 or len(text) < 2 or text.dtype.kind not in "iu":
        raise ValueError(f"Pairs come from one text of two or more words, integers (T,); got {text.dtype} {text.shape}.")
    if window < 1:
        raise ValueError(f"The window is at least one word; got {window}.")
    text = as_int64(text)
    if mode == "cbow":
        framed = np.pad(text, window, constant_values=IGNORE)
        around = np.lib.stride_tricks.sliding_window_view(framed, 2 * window + 1)  # (T, 2 · window + 1)
        return np.delete(around, window, axis=1), text
    distances = range(1, min(window, len(text) - 1) + 1)
    left = np.concatenate([text[:-distance] for distance in distances])
    right = np.concatenate([text[distance:] for distance in distances])
    return np.concatenate([left, right]), np.concatenate([right, left])


def subsample(ids: ArrayLike, rng: np.random.Generator, threshold: float = 1e-3) -> Ids:
    """The text with frequent words thinned out: a word of frequency f stays with probability √(threshold / f), at most 1.

    ids (T,). Raises ValueError for anything but one sequence of words, and a threshold that is not positive.
    """
    check_number("threshold", threshold, ends="()")
    given = np.asarray(ids)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(f"A text is of words, integers (T,) from 0; got {given.dtype} {given.shape}.")
    text = as_int64(given)
    frequency = np.bincount(text) / max(1, len(text))
    return text[rng.random(len(text)) < np.sqrt(threshold / frequency[text])]


class NoiseWords:
    """Random words for negative sampling: word w with probability proportional to counts[w] ** power.

    counts (vocabulary,): how often each word occurs. Raises ValueError for counts that are negative, not finite or all 0, and
    for a power that is negative or not finite.
    """

    def __init__(self, counts: ArrayLike, power: float = 0.75) -> None:
        check_number("power", power)
        counts = np.asarray(counts)
        if (
            counts.dtype.kind not in "iuf"
            or counts.ndim != 1
            or not np.all((counts >= 0) & (counts < np.inf))
            or not counts.any()
        ):
            raise ValueError("counts say how often each word occurs, finite numbers (vocabulary,) from 0, and some word does.")
        counts = counts.astype(float)
        weights = np.where(counts > 0, counts, 1) ** power * (counts > 0)
        self.probabilities: NDArray[np.float64] = weights / weights.sum()
        self._upto = np.cumsum(weights)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator) -> Ids:
        """Independent draws, int64, of the given shape."""
        drawn: Ids = np.searchsorted(self._upto, rng.random(shape) * self._upto[-1], side="right").astype(np.int64)
        return drawn


# What it has learned


class WordVectors:
    """Words and their vectors; near is what points the same way: the cosine.

    Args:
        words: V different strings. vectors: (V, d) numbers, none of them all 0.
    Raises:
        ValueError: where they do not fit.
    """

    def __init__(self, words: Sequence[str], vectors: ArrayLike) -> None:
        self.words = list(words)
        self.vectors = np.array(vectors)
        self.ids = {word: i for i, word in enumerate(self.words)}
        if self.vectors.ndim != 2 or len(self.words) != len(self.vectors):
            raise ValueError(f"{len(self.words)} words need vectors ({len(self.words)}, d); got {self.vectors.shape}.")
        if len(self.ids) != len(self.words):
            raise ValueError("Each word has one vector; some word comes twice.")
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise ValueError("A vector that is 0 or not finite has no direction, and so no cosine.")
        self.unit = self.vectors / lengths  # (V, d)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def __getitem__(self, word: str) -> Any:
        """The vector (d,) of a word."""
        return self.vectors[self.id(word)]

    def id(self, word: str) -> int:
        """Its row. Raises KeyError for a word that is not there."""
        if word not in self.ids:
            near = get_close_matches(word, self.words, n=3)
            raise KeyError(f"{word!r} is none of the {len(self)} words" + (f"; there is {', '.join(near)}." if near else "."))
        return self.ids[word]

    def cosine(self, a: str, b: str) -> float:
        """The cosine of the angle between the vectors of two words."""
        return float(self.unit[self.id(a)] @ self.unit[self.id(b)])

    def neighbours(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k words whose vectors are nearest to that of `word`, with their cosines; the nearest first."""
        return self.nearest(self.unit[self.id(word)], k, without=[word])

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """a is to b as c is to …: the k words nearest to b - a + c, but a, b and c, with their cosines (Mikolov et al. 2013).

        analogy("man", "king", "woman") asks for king - man + woman. The three count with length 1.
        """
        A, B, C = (self.unit[self.id(word)] for word in (a, b, c))
        return self.nearest(B - A + C, k, without=[a, b, c])

    def nearest(self, vector: ArrayLike, k: int = 10, without: Sequence[str] = ()) -> list[tuple[str, float]]:
        """The k words nearest to a vector (d,), with their cosines. Raises ValueError for one that is 0 or not finite."""
        check_size("k", k, 0)
        direction = np.asarray(vector)
        length = np.linalg.norm(direction)
        if not 0 < length < np.inf:
            raise ValueError("A vector that is 0 or not finite has no direction, and so no cosine.")
        cosines = self.unit @ (direction / length)  # (V,)
        cosines[[self.id(word) for word in without]] = -np.inf
        k = min(k, len(self) - len(set(without)))
        best = np.argsort(-cosines, kind="stable")[:k]
        return [(self.words[i], float(cosines[i])) for i in best]

    def analogies(self, pairs: Sequence[tuple[str, str]]) -> tuple[int, int]:
        """(right, asked): every analogy between two of the pairs, asked at once; 23 pairs make 23 · 22 = 506 questions."""
        first, second = np.array([[self.id(a), self.id(b)] for a, b in pairs]).T
        i, j = np.nonzero(~np.eye(len(pairs), dtype=bool))  # first[i] is to second[i] as first[j] is to …
        cosines = (self.unit[second[i]] - self.unit[first[i]] + self.unit[first[j]]) @ self.unit.T  # (asked, V), but for scale
        for given in (first[i], second[i], first[j]):
            cosines[np.arange(len(i)), given] = -np.inf
        return int(np.sum(cosines.argmax(axis=1) == second[j])), len(i)
