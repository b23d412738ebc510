"""Text to ids and back: by words, by characters, by byte-level BPE (GPT-2), by WordPiece (BERT). One interface for all.

A tokeniser is its vocabulary, `tokens`, in the order of the ids. Some entries are special (`special["<eos>"]`): boundary,
padding, unknown. They never come out of plain text, even if it spells them. BPE and WordPiece run on the package
`tokenizers` (pip install "chainrule[text]").
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from chainrule.models.configs import json_object
from chainrule.models.datasets import text_file, utf_8


class Tokenizer:
    """text <-> ids.

    tokens   the vocabulary, a list of str; the id of a token is its place
    special  name -> id of the tokens that are no text
    """

    kind: ClassVar[str]  # what a saved tokeniser calls its class

    def __init__(self, tokens: Iterable[str], special: Mapping[str, int]) -> None:
        self.tokens = list(tokens)
        self.special = dict(special)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self._ids) < len(self.tokens):
            twice = [token for token, count in Counter(self.tokens).items() if count > 1]
            raise ValueError(f"Every token is in the vocabulary once; these come again: {twice[:5]}.")

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def token_id(self, token: str) -> int:
        """The id of a token, special ones included. Raises KeyError if there is no such token."""
        if token not in self._ids:
            raise KeyError(f"{token!r} is none of the {self.vocab_size} tokens.")
        return self._ids[token]

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ids, an array or a list of integers.

        Raises TypeError for anything else, ValueError for an id outside the vocabulary.
        """
        skipped = set(self.special.values()) if skip_special else set()
        return "".join(self.tokens[i] for i in self._checked_ids(ids) if i not in skipped)

    def to_dict(self) -> dict[str, Any]:
        """All of the tokeniser, for JSON. `Tokenizer.from_dict` has it back."""
        raise NotImplementedError

    @staticmethod
    def from_dict(saved: Mapping[str, Any]) -> Tokenizer:
        """The tokeniser that `to_dict` wrote. Raises ValueError for a kind that is not known, and what is not all of one."""
        arguments = dict(saved) if isinstance(saved, Mapping) else {}
        kind = arguments.pop("kind", None)
        for known in (WordTokenizer, CharTokenizer, BPETokenizer, WordPieceTokenizer):
            if known.kind == kind:
                try:
                    return known(**arguments)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"A saved tokeniser of kind {kind!r} cannot be made: {error}") from None
        raise ValueError(f"A saved tokeniser is of kind 'word', 'char', 'bpe' or 'wordpiece'; got {kind!r}.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, special={self.special})"

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        array = np.asarray(list(ids) if isinstance(ids, Iterator) else ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError(f"decode takes integers (N,); got {array.dtype} {array.shape}.")
        outside = np.flatnonzero((array < 0) | (array >= self.vocab_size))
        if outside.size:
            position = outside[0]
            raise ValueError(f"Ids lie in 0..{self.vocab_size - 1}; got {array[position]} at position {position}.")
        return [int(i) for i in array]


# By words and by characters


class _PieceTokenizer(Tokenizer):
    """What words and characters share: text is cut into pieces, each piece is looked up."""

    def __init__(self, pieces: Iterable[str], special: Sequence[str], unknown: str) -> None:
        self.pieces = list(pieces)
        special = _listed(special)
        for token in (*self.pieces, *special, unknown):
            if not isinstance(token, str) or not token:
                raise ValueError(f"A token is a text of at least one character; got {token!r}.")
        self.unknown = unknown
        if unknown != "error" and unknown not in special:
            special.append(unknown)
        super().__init__([*self.pieces, *special], {name: len(self.pieces) + i for i, name in enumerate(special)})
        self._text_ids = {piece: i for i, piece in enumerate(self.pieces)}

    def _look_up(self, piece: str, position: int) -> int:
        i = self._text_ids.get(piece)
        if i is not None:
            return i
        if self.unknown == "error":
            raise ValueError(
                f"{piece!r} at position {position} is not in the vocabulary; "
                f'add it, or let unknown="<unk>" stand for what is not known.'
            )
        return self.special[self.unknown]


class CharTokenizer(_PieceTokenizer):
    """One token a character, in the order given; special tokens follow.

    A character that is not known raises ValueError, or becomes the special token that `unknown` names.
    """

    kind = "char"

    def __init__(self, characters: Iterable[str], special: Sequence[str] = (), unknown: str = "error") -> None:
        super().__init__(characters, special, unknown)
        for character in self.pieces:
            if len(character) != 1:
                raise ValueError(f"A character is a string of length 1; got {character!r}.")

    @classmethod
    def from_text(cls, text: str, special: Sequence[str] = (), unknown: str = "error") -> CharTokenizer:
        """The distinct characters of a text, sorted."""
        return cls(sorted(set(text)), special, unknown)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, one a character."""
        return [self._look_up(character, position) for position, character in enumerate(text)]

    def to_dict(self) -> dict[str, Any]:
        names = list(self.special)
        return {"kind": self.kind, "characters": self.pieces, "special": names, "unknown": self.unknown}


class WordTokenizer(_PieceTokenizer):
    """Words from a list, in the order given; special tokens follow.

    With split=False, for text without spaces, the longest word of the list that fits is taken at each place (notes 1.1:
    患者 服用 华法林 后 出现 黑便 。). With split=True text is first cut into words, single spaces and single punctuation
    marks, and only whole ones are looked up. Either way nothing is dropped, so that decode gives the text back.
    What is not known raises ValueError, or becomes the special token that `unknown` names.
    """

    kind = "word"

    def __init__(self, words: Iterable[str], special: Sequence[str] = (), unknown: str = "error", split: bool = False) -> None:
        super().__init__(words, special, unknown)
        self.split = split
        self._lengths = sorted({len(word) for word in self.pieces}, reverse=True)

    @classmethod
    def from_text(
        cls, text: str, vocab_size: int | None = None, special: Sequence[str] = (), unknown: str = "error"
    ) -> WordTokenizer:
        """The words, spaces and marks of a text, the most frequent first; at most `vocab_size` tokens with the special ones."""
        words = [word for word, _ in Counter(_words(text)).most_common()]
        if vocab_size is not None:
            others = len({*special, unknown} - {"error"})
            _check_room(vocab_size, others + 1, f"A word and {others} special tokens")
            words = words[: vocab_size - others]
        return cls(words, special, unknown, split=True)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, one a word."""
        ids, position = [], 0
        for piece in _words(text) if self.split else self._longest(text):
            ids.append(self._look_up(piece, position))
            position += len(piece)
        return ids

    def _longest(self, text: str) -> Iterable[str]:
        position = 0
        while position < len(text):
            fits = (text[position : position + length] for length in self._lengths)
            piece = next((piece for piece in fits if piece in self._text_ids), text[position])
            yield piece
            position += len(piece)

    def to_dict(self) -> dict[str, Any]:
        names = list(self.special)
        return {"kind": self.kind, "words": self.pieces, "special": names, "unknown": self.unknown, "split": self.split}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def _listed(special: Sequence[str]) -> list[str]:
    """The names of special tokens, each once."""
    if isinstance(special, str) or len(set(special)) < len(special):
        raise ValueError(f"special is a list of names, each once, such as ['<eos>']; got {special!r}.")
    return list(special)


def _check_room(vocab_size: Any, least: int, what: str) -> None:
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, (int, np.integer)) or vocab_size < least:
        raise ValueError(f"{what} need a vocab_size of at least {least}, a whole number; got {vocab_size!r}.")


# By the package `tokenizers`


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError(
            'BPE and WordPiece run on the package tokenizers, which is not installed: pip install "chainrule[text]"'
        ) from error
    return tokenizers


def _by_id(ids: Mapping[str, int]) -> list[str]:
    """The tokens in the order of their ids."""
    if not all(type(i) is int for i in ids.values()):
        raise ValueError("A vocabulary is an object that gives each token its id, a whole number.")
    missing = sorted(set(range(len(ids))) - set(ids.values()))
    if missing:
        raise ValueError(f"The ids of a vocabulary run from 0 without a gap; missing are {missing[:5]}.")
    return sorted(ids, key=ids.__getitem__)


class _LibraryTokenizer(Tokenizer):
    """What BPE and WordPiece share. `model` is the content of a `tokenizer.json`."""

    model_type: ClassVar[str]

    def __init__(self, model: Mapping[str, Any]) -> None:
        inside = model.get("model") if isinstance(model, Mapping) else None
        found = inside.get("type") if isinstance(inside, Mapping) else None
        if found != self.model_type:
            raise ValueError(f"{type(self).__name__} reads a tokenizer.json whose model is {self.model_type}; got {found}.")
        library = _tokenizers()
        try:
            self._library = library.Tokenizer.from_str(json.dumps(model))
        except Exception as error:  # the package has no narrower class
            raise ValueError(f"The tokenizer.json is not complete, or is damaged ({error}).") from None
        self._library.no_truncation()
        self._library.no_padding()
        self._library.encode_special_tokens = True  # a special token spelt out in plain text is plain text
        tokens = _by_id(self._library.get_vocab(with_added_tokens=True))
        added = self._library.get_added_tokens_decoder()
        super().__init__(tokens, {added[i].content: i for i in sorted(added) if added[i].special})

    @classmethod
    def _read(cls, path: Path) -> Self:
        """From a tokenizer.json. ValueError, which names the file, if it is none, or another model's."""
        content = json_object(path.read_bytes(), str(path))
        try:
            return cls(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _encode(self, text: str, frame: bool) -> list[int]:
        _check_unicode(text)
        return list(self._library.encode(text, add_special_tokens=frame).ids)

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        return str(self._library.decode(self._checked_ids(ids), skip_special_tokens=skip_special))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "model": json.loads(self._library.to_str())}


def _check_unicode(text: Any) -> None:
    if not isinstance(text, str):
        raise TypeError(f"A text is a str; got {type(text).__name__}. Decode bytes first.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Text is Unicode characters; {text[error.start]!r} at position {error.start} is half of a surrogate pair, "
            f"the sign of a file read with the wrong encoding."
        ) from None


class BPETokenizer(_LibraryTokenizer):
    """Byte-level byte pair encoding (Sennrich, Haddow and Birch 2016; Radford et al. 2019): any Unicode text, never unknown.

    It starts from the 256 bytes and merges the pair that was most frequent in training, over and over. `tokens` are
    spelt as in GPT-2's files, where Ġ is a space and Ċ a line end; decode([i]) is the text of one.
    Half a character decodes to U+FFFD until the ids of its other bytes follow.
    """

    kind = "bpe"
    model_type = "BPE"

    @classmethod
    def train(cls, text: str, vocab_size: int, special: Sequence[str] = ("<|endoftext|>",)) -> BPETokenizer:
        """The merges of a text: at most `vocab_size` tokens, which are the 256 bytes, the merges and the special tokens.

        Raises ValueError if that is too few for the bytes and the special tokens.
        """
        special = _listed(special)
        _check_room(vocab_size, 256 + len(special), f"256 bytes and {len(special)} special tokens")
        _check_unicode(text)
        library = _tokenizers()
        trained = library.Tokenizer(library.models.BPE())
        trained.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size - len(special),
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        trained.train_from_iterator([text], trainer)
        model = json.loads(trained.to_str())["model"]
        return cls.from_merges([*_by_id(model["vocab"]), *special], [tuple(pair) for pair in model["merges"]], special)

    @classmethod
    def from_merges(
        cls,
        tokens: Sequence[str],
        merges: Sequence[tuple[str, str]],
        special: Sequence[str] = ("<|endoftext|>",),
        single_digits: bool = False,
    ) -> BPETokenizer:
        """From the vocabulary by id and the merges in order, as GPT-2's files and GGUF files have them.

        With single_digits every digit stands alone (SmolLM2). Raises ValueError for a special token that is not in `tokens`, or
        that plain text may give, and for merges of or to what is no token.
        """
        missing = [token for token in special if token not in tokens]
        if missing:
            raise ValueError(f"Special tokens are entries of the vocabulary; these are not: {missing}.")
        library = _tokenizers()
        split = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        texts = {*split.alphabet(), *map("".join, merges)}
        if not texts.isdisjoint(special):
            raise ValueError(f"Special tokens never come from text; these do: {sorted(texts.intersection(special))}.")
        vocabulary = {token: i for i, token in enumerate(tokens)}
        try:
            made = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=list(merges)))
        except Exception as error:  # the package has no narrower class
            raise ValueError(f"The merges do not fit the vocabulary ({error}).") from None
        digits = library.pre_tokenizers.Digits(individual_digits=True)
        made.pre_tokenizer = library.pre_tokenizers.Sequence([digits, split]) if single_digits else split
        made.decoder = library.decoders.ByteLevel()
        made.add_special_tokens(list(special))
        return cls(json.loads(made.to_str()))

    @classmethod
    def from_files(cls, vocab: str | Path, merges: str | Path, special: Sequence[str] = ("<|endoftext|>",)) -> BPETokenizer:
        """From GPT-2's two files: `encoder.json` or `vocab.json`, and `vocab.bpe` or `merges.txt`."""
        ids = json_object(Path(vocab).read_bytes(), str(vocab))
        pairs = utf_8(merges)
        try:
            return cls.from_merges(_by_id(ids), _merges(pairs), special)
        except ValueError as error:
            raise ValueError(f"{vocab} with {merges}: {error}") from None

    @classmethod
    def gpt2(cls) -> BPETokenizer:
        """GPT-2's 50,257 tokens (Radford et al. 2019), which come with the package: 256 bytes, 50,000 merges, <|endoftext|>."""
        shipped = files("chainrule.models") / "data" / "gpt2_merges.txt"
        pairs = _merges(shipped.read_text(encoding="utf-8"))
        printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
        others = range(256, 512 - len(printed))  # letters that stand for the bytes that cannot be printed
        tokens = [*map(chr, printed), *map(chr, others), *map("".join, pairs), "<|endoftext|>"]
        return cls.from_merges(tokens, pairs)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> BPETokenizer:
        """From a `tokenizer.json`, or a folder that has it or GPT-2's two files.

        Raises FileNotFoundError if there is neither.
        """
        path = Path(path)
        if path.is_file():
            return cls._read(path)
        if (path / "tokenizer.json").exists():
            return cls._read(path / "tokenizer.json")
        for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
            if (path / vocab).exists() and (path / merges).exists():
                return cls.from_files(path / vocab, path / merges)
        raise FileNotFoundError(
            f"{path} has neither tokenizer.json nor vocab.json with merges.txt nor encoder.json with vocab.bpe."
        )

    def encode(self, text: str) -> list[int]:
        """The ids of a text; no special token is added. Raises ValueError for half a surrogate pair, which is no character."""
        return self._encode(text, frame=False)


def _merges(text: str) -> list[tuple[str, str]]:
    pairs = []
    for line in text.split("\n"):
        if line and not line.startswith("#version"):
            left, _, right = line.partition(" ")
            if not (left and right) or " " in right:
                raise ValueError(f"A merge is two tokens with one space between; got {line!r}.")
            pairs.append((left, right))
    return pairs


class WordPieceTokenizer(_LibraryTokenizer):
    """BERT's words and parts of words (Wu et al. 2016; Devlin et al. 2019): the longest part that fits, ## inside a word.

    Text is cleaned on the way, lower case for uncased models, so decode gives readable text but not the same. A word that
    cannot be put together becomes [UNK].
    """

    kind = "wordpiece"
    model_type = "WordPiece"

    @classmethod
    def from_pretrained(cls, path: str | Path, lowercase: bool = True) -> WordPieceTokenizer:
        """From a `tokenizer.json` or BERT's `vocab.txt`, or a folder that has one; the first says more and goes first.

        `lowercase` is for vocab.txt alone: tokenizer.json says it itself. Raises FileNotFoundError if there is neither.
        """
        path = Path(path)
        if path.is_dir():
            for name in ("tokenizer.json", "vocab.txt"):
                if (path / name).exists():
                    return cls.from_pretrained(path / name, lowercase)
            raise FileNotFoundError(f"{path} has neither tokenizer.json nor vocab.txt.")
        if path.suffix == ".json":
            return cls._read(path)
        tokens = text_file(path).rstrip("\n").split("\n")
        try:
            return cls.from_vocabulary(tokens, lowercase)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_vocabulary(cls, tokens: Sequence[str], lowercase: bool = True) -> WordPieceTokenizer:
        """From the vocabulary by id, as in BERT. Raises ValueError if it lacks one of [PAD] [UNK] [CLS] [SEP] [MASK]."""
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        missing = [token for token in special if token not in tokens]
        if missing:
            raise ValueError(f"The vocabulary of a BERT has {' '.join(special)}; this one lacks {' '.join(missing)}.")
        library = _tokenizers()
        vocabulary = {token: i for i, token in enumerate(tokens)}
        made = library.Tokenizer(library.models.WordPiece(vocab=vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
        made.normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
        made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        made.decoder = library.decoders.WordPiece()
        made.post_processor = library.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
        made.add_special_tokens(special)
        return cls(json.loads(made.to_str()))

    def encode(self, text: str) -> list[int]:
        """The ids of [CLS] text [SEP]."""
        return self._encode(text, frame=True)

    def encode_batch(self, texts: Sequence[str], max_length: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(ids (B, T), mask (B, T)): T is the longest text, shorter ones are filled with [PAD]; the mask is True where text is.

        A text of more than `max_length` ids is cut and still ends with [SEP]. Raises ValueError without a text or room.
        """
        if isinstance(texts, str) or not texts:
            raise ValueError(f"A batch is a list of at least one text; got {texts!r}.")
        if max_length is not None and max_length < 2:
            raise ValueError(f"max_length leaves room for [CLS] and [SEP], 2 or more; got {max_length}.")
        rows = [self.encode(text) for text in texts]
        if max_length is not None:
            rows = [row if len(row) <= max_length else [*row[: max_length - 1], self.special["[SEP]"]] for row in rows]
        longest = max(map(len, rows))
        mask = np.array([[t < len(row) for t in range(longest)] for row in rows])
        ids = np.full(mask.shape, self.special["[PAD]"], np.int64)
        ids[mask] = np.concatenate(rows)
        return ids, mask
