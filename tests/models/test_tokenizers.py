"""Tokenisers: ids by hand, text that comes back as it was, special tokens, what is not known."""

import json
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from chainrule.models.tokenizers import BPETokenizer, CharTokenizer, Tokenizer, WordPieceTokenizer, WordTokenizer

SENTENCE = "患者服用华法林后出现黑便。"
WORDS = ["患者", "服用", "华法林", "后", "出现", "黑便", "。"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "happy", "un", "##happy", "dog", "##s", ",", "[", "]", "sep"]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def saved(tokenizer):
    """As a checkpoint carries it."""
    return Tokenizer.from_dict(json.loads(json.dumps(tokenizer.to_dict())))


@pytest.fixture(scope="module")
def gpt2():
    return BPETokenizer.gpt2()


@pytest.fixture(scope="module")
def bpe():
    return BPETokenizer.train("low low low low lower lower newest newest newest widest", vocab_size=262)


@pytest.fixture(scope="module")
def bert():
    return WordPieceTokenizer.from_vocabulary(BERT)


# What all share


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer("ba", special=["<eos>"]),
        CharTokenizer("ba", unknown="<unk>"),
        WordTokenizer(WORDS, special=["<bos>", "<eos>"]),
        WordTokenizer.from_text("the cat, the dog", unknown="<unk>"),
        BPETokenizer.train("aa ab", 257),
        WordPieceTokenizer.from_vocabulary(BERT),
    ],
    ids=lambda tokenizer: type(tokenizer).__name__,
)
def test_a_saved_tokenizer_is_the_same(tokenizer):
    again = saved(tokenizer)
    assert again == tokenizer
    assert type(again) is type(tokenizer)
    assert again.tokens == tokenizer.tokens
    assert again.special == tokenizer.special
    assert again.vocab_size == len(tokenizer.tokens)
    assert [again.token_id(token) for token in tokenizer.tokens] == list(range(tokenizer.vocab_size))
    with pytest.raises(KeyError, match="none of the"):
        again.token_id("absent")
    with pytest.raises(ValueError, match=rf"0\.\.{tokenizer.vocab_size - 1}; got {tokenizer.vocab_size} at position 1"):
        again.decode([0, tokenizer.vocab_size])
    with pytest.raises(ValueError, match="got -1 at position 0"):
        again.decode([-1])
    for ids in ([1.7], [np.nan], ["1"], "1", [None], [True], 1, [[1]], np.ones(1)):
        with pytest.raises(TypeError, match=r"decode takes integers \(N,\)"):
            again.decode(ids)
    assert again.decode([]) == again.decode(np.array([])) == ""
    assert again.decode(iter([0])) == again.decode(range(1)) == again.decode([0])


def test_different_tokenizers_are_not_equal():
    assert CharTokenizer("ab") != CharTokenizer("ba")
    assert CharTokenizer("ab") != CharTokenizer("ab", special=["<eos>"])
    assert CharTokenizer("ab") != WordTokenizer("ab")
    assert BPETokenizer.train("aa", 257) != BPETokenizer.train("aa", 258)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="got 'sentencepiece'"):
        Tokenizer.from_dict({"kind": "sentencepiece"})


def test_arrays_decode_like_lists():
    assert CharTokenizer("ab").decode(np.array([1, 0, 1])) == "bab"


# Words


def test_the_seven_tokens_of_the_notes():
    tokenizer = WordTokenizer(WORDS)
    assert tokenizer.tokens == WORDS
    assert tokenizer.encode(SENTENCE) == [0, 1, 2, 3, 4, 5, 6]
    assert tokenizer.decode([0, 1, 2, 3, 4, 5, 6]) == SENTENCE


def test_the_longest_word_is_taken():
    assert WordTokenizer(["a", "ab", "abc", "c"]).encode("abcabacc") == [2, 1, 0, 3, 3]


def test_english_is_cut_into_words_spaces_and_marks():
    tokenizer = WordTokenizer.from_text("to be, or not to be")
    assert tokenizer.tokens == [" ", "to", "be", ",", "or", "not"]  # 5, 2, 2, 1, 1, 1 times
    assert tokenizer.encode("be not, or") == [2, 0, 5, 3, 0, 4]
    with pytest.raises(ValueError, match="'tobe' at position 3"):  # not to + be
        tokenizer.encode("be tobe")


def test_the_most_frequent_words_fit_a_small_vocabulary():
    tokenizer = WordTokenizer.from_text("to be, or not to be", vocab_size=5, special=["<eos>"], unknown="<unk>")
    assert tokenizer.tokens == [" ", "to", "be", "<eos>", "<unk>"]
    assert tokenizer.encode("or to") == [4, 0, 1]


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_words_of_any_text_come_back(text):
    tokenizer = WordTokenizer.from_text(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=50)
@given(st.text("abc", max_size=30), st.sets(st.text("abc", min_size=2, max_size=4), max_size=6))
def test_words_without_spaces_come_back(text, words):
    tokenizer = WordTokenizer(["a", "b", "c", *sorted(words)])
    assert tokenizer.decode(tokenizer.encode(text)) == text


# Characters


def test_characters_are_sorted():
    tokenizer = CharTokenizer.from_text("banana", special=["<eos>"])
    assert tokenizer.tokens == ["a", "b", "n", "<eos>"]
    assert tokenizer.encode("nab") == [2, 0, 1]


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_characters_of_any_text_come_back(text):
    tokenizer = CharTokenizer.from_text(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert saved(tokenizer) == tokenizer


def test_what_is_not_known_is_named():
    with pytest.raises(ValueError, match="'z' at position 2 is not in the vocabulary"):
        CharTokenizer("ab").encode("abz")
    with pytest.raises(ValueError, match="'黑' at position 2"):
        WordTokenizer(["患者"]).encode("患者黑便")


def test_what_is_not_known_may_be_a_token():
    tokenizer = CharTokenizer("ab", special=["<eos>"], unknown="<unk>")
    assert tokenizer.special == {"<eos>": 2, "<unk>": 3}
    assert tokenizer.encode("abz") == [0, 1, 3]
    assert WordTokenizer(["患者", "后"], unknown="<unk>").encode("患者黑便后") == [0, 2, 2, 1]


@pytest.mark.parametrize("tokenizer", [CharTokenizer("<eos>", ["<eos>"]), WordTokenizer("<eos>", ["<eos>"])])
def test_special_tokens_never_come_from_text(tokenizer):
    assert tokenizer.encode("<eos>") == [0, 1, 2, 3, 4]
    assert tokenizer.decode([0, 5, 1]) == "<<eos>e"
    assert tokenizer.decode([0, 5, 1], skip_special=True) == "<e"


def test_special_tokens_as_long_as_a_word_never_come_from_text():
    assert WordTokenizer(["<", "e", ">", "abc"], special=["<e>"]).encode("abc<e>") == [3, 0, 1, 2]


def test_a_special_token_of_one_letter_never_comes_from_text():
    with pytest.raises(ValueError, match="'~' at position 0"):
        CharTokenizer("ab", special=["~"]).encode("~")


def test_special_tokens_are_names_that_no_text_gives(bpe):
    with pytest.raises(ValueError, match="special is a list of names"):
        CharTokenizer("ab", special="<eos>")
    with pytest.raises(ValueError, match="each once"):
        BPETokenizer.train("ab", 300, special=["<eos>", "<eos>"])
    with pytest.raises(ValueError, match="these come again"):
        CharTokenizer("ab", unknown="a")
    for text, special in (("", "a"), ("ab ab", "ab")):  # a byte, a merge
        with pytest.raises(ValueError, match=rf"never come from text; these do: \['{special}'\]"):
            BPETokenizer.train(text, 300, special=[special])


@pytest.mark.parametrize("size", [-5, 0, 1, 2.5, True, "9"])
def test_a_vocabulary_size_that_has_no_room(size):
    with pytest.raises(ValueError, match=re.escape(f"need a vocab_size of at least 2, a whole number; got {size!r}")):
        WordTokenizer.from_text("a b", size, unknown="<unk>")
    with pytest.raises(ValueError, match=re.escape(f"need a vocab_size of at least 257, a whole number; got {size!r}")):
        BPETokenizer.train("a b", size)


def test_vocabularies_that_make_no_sense():
    for tokens, special, unknown in (([1], (), "error"), ([], [3], "error"), ([], [""], "error"), ("ab", (), None)):
        with pytest.raises(ValueError, match="A token is a text of at least one character"):
            CharTokenizer(tokens, special, unknown)
    with pytest.raises(ValueError, match=r"these come again: \['a'\]"):
        CharTokenizer("aba")
    with pytest.raises(ValueError, match="these come again"):
        WordTokenizer(["<eos>"], special=["<eos>"])
    with pytest.raises(ValueError, match="length 1; got 'ab'"):
        CharTokenizer(["ab"])
    with pytest.raises(ValueError, match="at least one character"):
        WordTokenizer([""])


# Byte pairs


def test_merges_by_hand():
    tokenizer = BPETokenizer.train("ab ab ab abc abc", 258, special=())
    assert tokenizer.tokens[256:] == ["ab", "Ġab"]  # "ab" 5 times, then " ab" 4 times
    assert [tokenizer.tokens[i] for i in tokenizer.encode("ab abc")] == ["ab", "Ġab", "c"]


def test_special_tokens_follow_the_merges(bpe):
    assert bpe.vocab_size == 262
    assert bpe.special == {"<|endoftext|>": 261}
    assert bpe.decode([*bpe.encode("low"), 261]) == "low<|endoftext|>"
    assert bpe.decode([*bpe.encode("low"), 261], skip_special=True) == "low"


def test_byte_pairs_never_give_a_special_token(bpe):
    ids = bpe.encode("low<|endoftext|>")
    assert 261 not in ids
    assert bpe.decode(ids, skip_special=True) == "low<|endoftext|>"


@settings(max_examples=100)
@given(ANY_TEXT)
def test_any_text_comes_back_from_byte_pairs(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text


@pytest.mark.parametrize("text", ["", " ", "\0\r\n\t ", "黑便。", "👩‍👩‍👧🇨🇳", "e\u0301\u200d\ufeff", "\U0010ffff", "  a  b  "])
def test_unusual_text_comes_back_from_byte_pairs(bpe, gpt2, text):
    assert bpe.decode(bpe.encode(text)) == text
    assert gpt2.decode(gpt2.encode(text)) == text


def test_half_a_character_waits_for_the_rest(bpe):
    ids = bpe.encode("🙂")
    assert len(ids) == 4
    assert bpe.decode(ids[:3]) == "\ufffd"
    assert bpe.decode(ids) == "🙂"


@pytest.mark.parametrize("name", ["bpe", "bert"])
def test_half_a_surrogate_pair_is_refused(name, request):
    with pytest.raises(ValueError, match=r"'\\ud83d' at position 2 is half of a surrogate pair"):
        request.getfixturevalue(name).encode("a \ud83d")
    with pytest.raises(ValueError, match=r"'\\ud83d' at position 2 is half of a surrogate pair"):
        BPETokenizer.train("a \ud83d", 300)
    with pytest.raises(TypeError, match="A text is a str; got bytes"):
        request.getfixturevalue(name).encode(b"a")


def test_training_is_deterministic(bpe):
    assert BPETokenizer.train("low low low low lower lower newest newest newest widest", vocab_size=262) == bpe


def test_too_small_a_vocabulary():
    with pytest.raises(ValueError, match="256 bytes and 1 special tokens need"):
        BPETokenizer.train("a", 256)


def test_gpt2(gpt2):
    """The ids are those of OpenAI's own encoder."""
    assert gpt2.vocab_size == 50257
    assert gpt2.special == {"<|endoftext|>": 50256}
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.encode("Hello, I'm a language model,") == [15496, 11, 314, 1101, 257, 3303, 2746, 11]
    assert gpt2.tokens[995] == "Ġworld"
    assert gpt2.decode([995]) == " world"


def test_gpt2s_files(bpe, tmp_path):
    model = bpe.to_dict()["model"]["model"]
    merges = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"]) + "\n"
    for vocab_name, merges_name in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        folder = tmp_path / vocab_name
        folder.mkdir()
        (folder / vocab_name).write_text(json.dumps(model["vocab"]), encoding="utf-8")
        (folder / merges_name).write_text(merges, encoding="utf-8")
        assert BPETokenizer.from_pretrained(folder) == bpe
        assert BPETokenizer.from_files(folder / vocab_name, folder / merges_name) == bpe
    (folder / "vocab.bpe").write_text("a b c\n", encoding="utf-8")
    with pytest.raises(ValueError, match="got 'a b c'"):
        BPETokenizer.from_pretrained(folder)


def test_a_tokenizer_json(bpe, bert, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(bpe.to_dict()["model"]), encoding="utf-8")
    assert BPETokenizer.from_pretrained(tmp_path) == bpe
    assert BPETokenizer.from_pretrained(tmp_path / "tokenizer.json") == bpe
    with pytest.raises(ValueError, match="whose model is WordPiece; got BPE"):
        WordPieceTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(bert.to_dict()["model"]), encoding="utf-8")
    assert WordPieceTokenizer.from_pretrained(tmp_path) == bert


def test_an_empty_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither tokenizer\.json nor"):
        BPETokenizer.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"neither tokenizer\.json nor vocab\.txt"):
        WordPieceTokenizer.from_pretrained(tmp_path)


def test_merges_from_elsewhere():
    letters = sorted(BPETokenizer.train("", 256, special=()).tokens)
    tokens = ["<|end|>", *letters, "12", "ab"]
    pairs = [("1", "2"), ("a", "b")]
    together = BPETokenizer.from_merges(tokens, pairs, ["<|end|>"])
    apart = BPETokenizer.from_merges(tokens, pairs, ["<|end|>"], single_digits=True)
    assert together.special == apart.special == {"<|end|>": 0}
    assert [together.tokens[i] for i in together.encode("ab12")] == ["ab", "12"]
    assert [apart.tokens[i] for i in apart.encode("ab12")] == ["ab", "1", "2"]
    with pytest.raises(ValueError, match=r"these are not: \['<\|pad\|>'\]"):
        BPETokenizer.from_merges(tokens, pairs, ["<|pad|>"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", b"", "is not JSON"),
        ("tokenizer.json", b"\xff", "is not JSON"),
        ("tokenizer.json", b"[]", "is a JSON object"),
        ("tokenizer.json", b'{"model": 3}', "whose model is BPE; got None"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', "not complete, or is damaged"),
        ("vocab.json", b"[]", "is a JSON object"),
        ("vocab.json", b'{"a": "x"}', "each token its id, a whole number"),
        ("vocab.json", b'{"a": 0.0}', "each token its id, a whole number"),
        ("merges.txt", b"\xff", "is not UTF-8"),
        ("merges.txt", b"a b", "do not fit the vocabulary"),
    ],
)
def test_files_of_tokenisers_that_are_none(name, content, said, bpe, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(bpe.tokens)}))
    (tmp_path / "merges.txt").write_bytes(b"")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as raised:
        BPETokenizer.from_pretrained(tmp_path)
    assert type(raised.value) is ValueError
    assert str(tmp_path / name) in str(raised.value)


def test_ids_without_a_gap(bpe, tmp_path):
    model = bpe.to_dict()["model"]
    z = model["model"]["vocab"].pop("z")
    with pytest.raises(ValueError, match=rf"without a gap; missing are \[{z}\]"):
        BPETokenizer(model)
    (tmp_path / "vocab.json").write_text(json.dumps(model["model"]["vocab"]), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="without a gap"):
        BPETokenizer.from_pretrained(tmp_path)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "chainrule\[text\]"'):
        BPETokenizer.train("a", 300)


# WordPiece


def test_wordpiece_by_hand(bert):
    assert bert.special == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert bert.encode("a Happy dog") == [2, 5, 6, 9, 3]
    assert bert.encode("unhappy, dogs") == [2, 7, 8, 11, 9, 10, 3]
    assert bert.encode("a cat") == [2, 5, 1, 3]
    assert bert.encode("") == [2, 3]
    assert bert.decode([2, 7, 8, 11, 9, 10, 3], skip_special=True) == "unhappy, dogs"


def test_wordpiece_never_gives_a_special_token_from_text(bert):
    assert bert.encode("[SEP]") == [2, 12, 14, 13, 3]


def test_wordpiece_batches(bert):
    ids, mask = bert.encode_batch(["a dog", "unhappy dogs, a", ""])
    assert_array_equal(ids, [[2, 5, 9, 3, 0, 0, 0, 0], [2, 7, 8, 9, 10, 11, 5, 3], [2, 3, 0, 0, 0, 0, 0, 0]])
    assert_array_equal(mask, ids != 0)
    assert ids.dtype == np.int64
    assert mask.dtype == bool
    ids, mask = bert.encode_batch(["a dog", "unhappy dogs, a"], max_length=4)
    assert_array_equal(ids, [[2, 5, 9, 3], [2, 7, 8, 3]])
    assert mask.all()
    for none in ([], "a dog"):
        with pytest.raises(ValueError, match="list of at least one text"):
            bert.encode_batch(none)
    with pytest.raises(ValueError, match="room for"):
        bert.encode_batch(["a dog"], max_length=1)


def test_padding_and_truncation_of_the_file_are_not_used(bert):
    model = bert.to_dict()["model"]
    model["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    model["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    assert WordPieceTokenizer(model).encode("a happy dog") == [2, 5, 6, 9, 3]


def test_berts_vocabulary_file(bert, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n", encoding="utf-8")
    assert WordPieceTokenizer.from_pretrained(tmp_path) == bert
    assert WordPieceTokenizer.from_pretrained(tmp_path / "vocab.txt") == bert
    assert WordPieceTokenizer.from_pretrained(tmp_path, lowercase=False).encode("Happy") == [2, 1, 3]
    with pytest.raises(ValueError, match=r"this one lacks \[PAD\]"):
        WordPieceTokenizer.from_vocabulary(BERT[1:])
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(BERT).encode())  # as Windows' Notepad saves it
    assert WordPieceTokenizer.from_pretrained(tmp_path) == bert
    for content, said in ((b"", "is empty"), (b"\xff", "is not UTF-8"), (b"[PAD]", "this one lacks")):
        (tmp_path / "vocab.txt").write_bytes(content)
        with pytest.raises(ValueError, match=said) as raised:
            WordPieceTokenizer.from_pretrained(tmp_path)
        assert str(raised.value).startswith(str(tmp_path / "vocab.txt"))
