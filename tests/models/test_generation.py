"""Generation (notes 14; claims T24, T31, T32): distributions by hand, stopping, the cache, and that nothing is changed."""

import inspect

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import no_grad
from chainrule.autograd.graph import ancestors
from chainrule.models.generation import generate, on_arrays, probabilities, sample, stream
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.tokenizers import BPETokenizer, CharTokenizer
from chainrule.nn import cross_entropy

LN2 = np.log(2)
HALVES = np.array([LN2, 2 * LN2, 0.0, 0.0])  # weights 2, 4, 1, 1: p = 1/4, 1/2, 1/8, 1/8


def small(**changes):
    sizes = {"vocab_size": 11, "context": 12, "n_layer": 2, "n_head": 2, "d_model": 8, **changes}
    model = GPT(GPTConfig(**sizes), seed=1)
    for parameter in model.parameters():
        parameter.data = parameter.data * 10  # far from uniform, so that choices are clear
    return model


# Probabilities, by hand


def test_softmax_and_temperature():
    assert_allclose(probabilities(HALVES), [1 / 4, 1 / 2, 1 / 8, 1 / 8], rtol=1e-15)
    assert_allclose(probabilities(HALVES, 0.5), np.array([4, 16, 1, 1]) / 22, rtol=1e-15)
    assert_allclose(probabilities(HALVES, 2), np.array([2**0.5, 2, 1, 1]) / (4 + 2**0.5), rtol=1e-15)


def test_temperature_zero_is_the_limit():
    assert_array_equal(probabilities(HALVES, 0), [0, 1, 0, 0])
    assert_array_equal(probabilities(HALVES, 1e-300), [0, 1, 0, 0])
    assert_array_equal(probabilities(HALVES, 5e-324), [0, 1, 0, 0])  # the scores overflow to -inf, and that is right
    assert_array_equal(probabilities([3.0, 7.0, 7.0], 0), [0, 1, 0])  # of equal ones the lowest id
    assert_array_equal(probabilities([3.0, 7.0, 7.0], 1e-300), [0, 0.5, 0.5])


def test_top_k_keeps_k_and_renormalises():
    assert_allclose(probabilities(HALVES, top_k=2), [1 / 3, 2 / 3, 0, 0], rtol=1e-15)
    assert_allclose(probabilities(HALVES, top_k=3), [2 / 7, 4 / 7, 1 / 7, 0], rtol=1e-15)  # a tie: the lower id stays
    assert_array_equal(probabilities(HALVES, top_k=1), [0, 1, 0, 0])
    assert_array_equal(probabilities(HALVES, top_k=9), probabilities(HALVES))


def test_top_p_keeps_the_fewest_that_reach_it():
    assert_array_equal(probabilities(HALVES, top_p=0.5), [0, 1, 0, 0])
    assert_allclose(probabilities(HALVES, top_p=0.51), [1 / 3, 2 / 3, 0, 0], rtol=1e-15)
    assert_allclose(probabilities(HALVES, top_p=0.75), [1 / 3, 2 / 3, 0, 0], rtol=1e-15)
    assert_allclose(probabilities(HALVES, top_p=0.76), [2 / 7, 4 / 7, 1 / 7, 0], rtol=1e-15)
    assert_array_equal(probabilities(HALVES, top_p=1e-9), [0, 1, 0, 0])  # one at least
    assert_array_equal(probabilities(HALVES, top_p=1.0), probabilities(HALVES))


def test_temperature_then_top_k_then_top_p():
    # T = 1/2: 4, 16, 1, 1 of 22; top_k = 3: 4, 16, 1 of 21, so 16/21 = 0.762 reaches 0.75; of 22 it would not reach 0.73
    assert_array_equal(probabilities(HALVES, 0.5, top_k=3, top_p=0.75), [0, 1, 0, 0])
    assert_allclose(probabilities(HALVES, 0.5, top_p=0.75), [4 / 20, 16 / 20, 0, 0], rtol=1e-15)


def test_rows_are_cut_each_for_itself():
    rows = np.array([[HALVES, HALVES[::-1]]])
    for options in ({}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 0}):
        cut = probabilities(rows, **options)
        assert cut.shape == (1, 2, 4)
        for i in range(2):
            assert_array_equal(cut[0, i], probabilities(rows[0, i], **options))


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=8),
    st.floats(0, 10),
    st.none() | st.integers(1, 9),
    st.none() | st.floats(0.01, 1),
)
@example([0.0, 2.0**-126], 1.0, None, 0.5)  # both have p = 1/2
def test_they_are_a_distribution_and_keep_the_likeliest(logits, temperature, top_k, top_p):
    p = probabilities(logits, temperature, top_k, top_p)
    assert p.dtype == np.float64
    assert np.all(p >= 0)
    assert_allclose(p.sum(), 1, rtol=1e-14)
    assert p[np.argmax(logits)] == p.max() > 0
    assert top_k is None or np.count_nonzero(p) <= top_k


def test_a_forbidden_token_stays_forbidden():
    assert_allclose(probabilities([0.0, -np.inf, 0.0]), [0.5, 0, 0.5])
    assert_allclose(probabilities([0.0, -np.inf, 0.0], top_k=3, top_p=0.99), [0.5, 0, 0.5])


@pytest.mark.parametrize("logits", [[0.0, np.nan], [np.inf, 0.0], [-np.inf, -np.inf]])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_without_a_finite_maximum_are_refused(logits, temperature):
    with pytest.raises(ValueError, match="finite maximum"):
        probabilities(logits, temperature)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": np.inf}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": None}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 2.0}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": np.nan}, "top_p"),
        ({"top_p": "0.5"}, "top_p"),
        ({"top_p": True}, "top_p"),
    ],
)
def test_options_out_of_range(options, said):
    with pytest.raises(ValueError, match=said):
        probabilities(HALVES, **options)
    with pytest.raises(ValueError, match=said):
        generate(small(), [1], **options)


def test_sample_inverts_the_running_sum():
    p = [0.25, 0, 0.5, 0.25]
    assert [int(sample(p, u)) for u in (0.0, 0.2499, 0.25, 0.74, 0.75, 1 - 2**-53)] == [0, 0, 2, 2, 3, 3]
    assert sample([0.5, 0.5, 0.0], 1 - 2**-53) == 1  # a token of probability 0 is never chosen
    assert sample([0.0, 1.0], 0.0) == 1
    assert_array_equal(sample([[1.0, 0], [0, 1.0]], [0.9, 0.1]), [0, 1])


def test_frequencies_follow_the_probabilities():
    p = probabilities(HALVES)
    n = 20_000
    drawn = sample(np.tile(p, (n, 1)), np.random.default_rng(0).random(n))
    frequency = np.bincount(drawn, minlength=4) / n
    assert np.all(np.abs(frequency - p) < 4 * np.sqrt(p * (1 - p) / n))


# One token after the other


def test_prompts_that_are_none():
    model = small()
    for use in (model, model.generate):
        with pytest.raises(ValueError, match="are equally long; got several lengths"):
            use([[1, 2], [1]])
        for wrong in ("abc", None, 2.5):
            with pytest.raises(TypeError, match="ids are integers"):
                use(wrong)
    for arguments in ({"ids": np.array([2**63], np.uint64)}, {"ids": [1], "stop": 2**63}):
        with pytest.raises(IndexError, match="got 9223372036854775808"):
            model.generate(**arguments)
    for wrong, error in ((-1, ValueError), ("a", TypeError), (1.5, TypeError)):
        with pytest.raises(error, match=f"seed is a whole number from 0, or a Generator; got {wrong!r}"):
            model.generate([1], seed=wrong)
        with pytest.raises(error, match="seed is a whole number"):
            GPT(model.config, seed=wrong)


def test_greedy_is_the_argmax_of_the_last_row():
    model = small()
    ids = np.array([3, 1, 4])
    made = model.generate(ids, 5, temperature=0)
    assert made.shape == (8,)
    assert made.dtype == np.int64
    assert_array_equal(made[:3], ids)
    for length in range(3, 8):
        assert made[length] == np.argmax(model(made[:length]).data[-1])


def test_training_and_generation_have_one_distribution():
    """T24: the same prefix and parameters give the same distribution."""
    model = small()
    made = model.generate([3, 1, 4], 6, temperature=0.7, seed=5)
    loss = cross_entropy(model(made[:-1]), made[1:], reduction="none")  # teacher forcing: all positions in one pass
    for t in range(3, 9):
        p = probabilities(model(made[:t]).data[-1])
        assert_allclose(-np.log(p[made[t]]), loss.data[t - 1], rtol=1e-12)


def test_low_temperature_approaches_greedy():
    model = small()
    assert_array_equal(model.generate([2], 8, temperature=1e-9), model.generate([2], 8, temperature=0))
    assert_array_equal(model.generate([2], 8, temperature=5.0, top_k=1), model.generate([2], 8, temperature=0))


@pytest.mark.parametrize("changes", [
    {},
    {"positions": "rope", "norm": "rms", "activation": "swiglu", "bias": False, "n_kv_head": 1},
    {"positions": "alibi"},
    {"positions": "sinusoidal", "pre_norm": False},
])  # fmt: skip
def test_the_cache_changes_nothing(changes):
    """T32: with the cache the logits are those of the full recomputation."""
    model = small(**changes)
    ids = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    with no_grad():
        cache = model.new_cache()
        rows = [model(ids[:, :3], cache=cache).data, *(model(ids[:, t : t + 1], cache=cache).data for t in range(3, 6))]
        assert_allclose(np.concatenate(rows, axis=1), model(ids).data, rtol=1e-11, atol=1e-12)
    for options in ({"temperature": 0}, {"temperature": 1.5, "seed": 3}):
        cached, full = (model.generate(ids, 30, use_cache=use, **options) for use in (True, False))  # past the context of 12
        assert_array_equal(cached, full)


def test_past_the_context_it_goes_on_with_the_last_half():
    model = small(context=4)
    made = model.generate([1, 2, 3], 6, temperature=0)

    def follows(window):
        return int(np.argmax(model(window).data[-1]))

    assert made[3] == follows(made[:3])
    assert made[4] == follows(made[:4])  # the context is full
    assert made[5] == follows(made[3:5])  # the last 4 // 2
    assert made[6] == follows(made[3:6])
    assert made[7] == follows(made[3:7])
    assert made[8] == follows(made[6:8])


def test_a_long_prompt_is_read_from_its_end():
    model = small(context=4)
    prompt = np.array([5, 6, 7, 8, 9, 1, 2])
    assert model.generate(prompt, 1, temperature=0)[-1] == np.argmax(model(prompt[-4:]).data[-1])
    assert len(model.generate(prompt, 7)) == 14
    assert len(small(context=1).generate(prompt, 3)) == 10


def test_only_the_last_row_of_logits_is_made(monkeypatch):
    model, ids = small(), [[3, 1, 4], [1, 5, 9]]
    for pre_norm in (True, False):
        model = small(pre_norm=pre_norm)
        last = model(ids, last=True)
        assert last.shape == (2, 1, 11)
        assert_allclose(last.data, model(ids).data[:, -1:], rtol=1e-12, atol=1e-14)
        assert model(ids[0], last=True).shape == (1, 11)
    seen, forward = [], GPT.forward

    def watched(self, *inputs, **options):
        logits = forward(self, *inputs, **options)
        seen.append(logits.shape)
        return logits

    expected = model.generate(ids, 4, temperature=0)
    watched.__signature__ = inspect.signature(forward)
    monkeypatch.setattr(GPT, "forward", watched)
    for use_cache in (True, False):
        assert_array_equal(model.generate(ids, 4, temperature=0, use_cache=use_cache), expected)
    assert seen == [(2, 1, 11)] * 8


def test_a_copy_on_arrays_says_the_same():
    model = small(dropout=0.5)
    copy = on_arrays(model)
    assert type(copy([1, 2])) is np.ndarray
    assert_array_equal(copy([1, 2]), model.eval()([1, 2]).data)
    logits = model([1, 2])
    assert {node.scope for node in ancestors(logits)} >= {"blocks.0.attn", "blocks.1.ffn"}  # the model still says where


def test_nothing_is_left_behind():
    """T31: the parameters are the same bytes, the modes are as they were, no gradient, no graph."""
    model = small(dropout=0.5)
    model.blocks[0].ffn.eval()
    before = {path: (id(p.data), p.data.tobytes()) for path, p in model.named_parameters()}
    modes = [module.training for _, module in model.named_modules()]
    made = model.generate([[1, 2], [3, 4]], 20, seed=1)
    assert {path: (id(p.data), p.data.tobytes()) for path, p in model.named_parameters()} == before
    assert [module.training for _, module in model.named_modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert_array_equal(made, model.generate([[1, 2], [3, 4]], 20, seed=1))  # dropout was off
    assert model([1, 2]).requires_grad


def test_a_seed_repeats_and_rows_do_not_depend_on_each_other():
    model = small()
    batch = np.array([[1, 2], [1, 2], [7, 8]])
    made = model.generate(batch, 9, temperature=2.0, seed=4)
    assert_array_equal(made, model.generate(batch, 9, temperature=2.0, seed=4))
    assert not np.array_equal(made, model.generate(batch, 9, temperature=2.0, seed=5))
    assert not np.array_equal(made[0], made[1])  # the same prompt, each with its own draws
    other = batch.copy()
    other[2] = [5, 5]
    assert_array_equal(made[:2], model.generate(other, 9, temperature=2.0, seed=4)[:2])
    assert_array_equal(made[0], model.generate(batch[0], 9, temperature=2.0, seed=4))


def test_a_generator_goes_on():
    model = small()
    rng = np.random.default_rng(0)
    first, second = (model.generate([1], 9, temperature=3.0, seed=rng) for _ in range(2))
    assert_array_equal(first, model.generate([1], 9, temperature=3.0, seed=0))
    assert not np.array_equal(first, second)


# Stopping


def test_length_and_stop_tokens():
    model = small()
    greedy = model.generate([1], 8, temperature=0)
    stop = int(greedy[4])
    end = 1 + int(np.argmax(greedy[1:] == stop))
    assert_array_equal(model.generate([1], 8, temperature=0, stop=stop), greedy[: end + 1])  # it is kept
    assert_array_equal(model.generate([1], 8, temperature=0, stop=[stop, 10, np.int64(stop)]), greedy[: end + 1])
    assert_array_equal(model.generate([1], 0), [1])
    assert_array_equal(model.generate([1, stop], 2, temperature=0, stop=[]), model.generate([1, stop], 2, temperature=0))


def test_in_a_batch_who_has_ended_repeats_its_last_token():
    model = small()
    batch = np.array([[1], [2], [3]])
    free = model.generate(batch, 10, temperature=0)
    stop = int(free[0, 3])
    made = model.generate(batch, 10, temperature=0, stop=stop)
    lengths = []
    for row, whole in zip(made, free, strict=True):
        hits = np.flatnonzero(whole[1:] == stop)
        length = 2 + int(hits[0]) if len(hits) else 11
        lengths.append(length)
        assert_array_equal(row[:length], whole[: min(length, made.shape[1])])
        assert np.all(row[length:] == stop)
    assert made.shape[1] == max(lengths)


LETTERS = CharTokenizer.from_text("abcdefghijk")  # id 0 is a, and so on


def test_a_stop_string_may_lie_across_tokens():
    model = small()
    greedy = model.generate([1], 9, temperature=0)
    text = LETTERS.decode(greedy[1:])
    string = text[2:5]
    end = text.index(string) + 3
    made = model.generate([1], 9, temperature=0, stop_strings=string, tokenizer=LETTERS)
    assert_array_equal(made, greedy[: 1 + end])
    both = model.generate([1], 9, temperature=0, stop_strings=["zz", string], tokenizer=LETTERS)
    assert_array_equal(both, made)
    pieces = list(model.stream([1], 9, temperature=0, stop_strings=string, tokenizer=LETTERS))
    assert "".join(pieces) == text[: end - 3]  # without it


def test_the_prompt_is_not_searched_for_stop_strings():
    model = small()
    prompt = model.generate([1], 4, temperature=0)
    text = LETTERS.decode(prompt)
    made = model.generate(prompt, 1, temperature=0, stop_strings=text, tokenizer=LETTERS)
    assert len(made) == len(prompt) + 1


# Streams


def test_a_stream_gives_the_tokens_of_generate_one_by_one():
    model = small()
    for options in ({"temperature": 0}, {"seed": 3}, {"seed": 3, "stop": [4, 5]}):
        tokens = stream(model, [1, 2], 30, **options)
        assert list(tokens) == generate(model, [1, 2], 30, **options)[2:].tolist()
    assert isinstance(next(iter(model.stream([1], 1))), int)


def test_between_two_pieces_the_world_is_the_callers():
    model = small(dropout=0.1)
    expected = model.generate([1], 4, temperature=0)[1:].tolist()
    seen = []
    for token in model.stream([1], 4, temperature=0):
        seen.append(token)
        assert model.training
        assert model([1]).requires_grad  # recording goes on as before
        for parameter in model.parameters():
            parameter.data = np.zeros(parameter.shape)  # the stream has the parameters of the call
    assert seen == expected


class Told(GPT):
    """A model that says these tokens one after the other."""

    def __init__(self, tokens):
        super().__init__(GPTConfig(vocab_size=257, context=64, n_layer=1, n_head=1, d_model=1))
        self.tokens = np.array(tokens)

    def forward(self, ids, *, mask=None, cache=None):
        rows = np.zeros((len(ids), 1))
        start = cache[0].length
        cache[0].append(rows, rows)
        return 1.0 * (self.tokens[start : start + len(ids), None] == np.arange(257))

    def pieces(self, **options):
        return list(self.stream([0], len(self.tokens), temperature=0, tokenizer=BYTES, **options))


BYTES = BPETokenizer.train("", 257)  # one token a byte


@pytest.mark.parametrize("text", ["naïve 中文 🙂!", "🙂", "abc", "�", "x� y"])
def test_a_stream_never_yields_half_a_character(text):
    ids = BYTES.encode(text)
    assert len(ids) == len(text.encode())
    pieces = Told(ids).pieces()
    assert "".join(pieces) == text
    assert all(pieces)
    if "�" not in text:
        assert pieces == list(text)  # each as soon as it is complete


def test_what_ends_inside_a_character_ends_with_a_replacement():
    assert Told(BYTES.encode("a🙂")[:-1]).pieces() == ["a", "�"]


def test_the_stop_token_is_not_part_of_the_text():
    end = BYTES.special["<|endoftext|>"]
    assert "".join(Told([*BYTES.encode("ab"), end, *BYTES.encode("c")]).pieces(stop=end)) == "ab"


@pytest.mark.parametrize(
    ("text", "strings", "pieces"),
    [
        ("one\nUser: two", ["\nUser:"], ["o", "n", "e"]),
        ("aab", ["ab"], ["a"]),
        ("abac", ["abad"], ["abac"]),  # what may begin a stop string is held back until it cannot
        ("ab", ["abc"], ["ab"]),
        ("stop", ["s"], []),
        ("xabcd", ["cd", "abc"], ["x"]),
        ("中文。", "。", ["中", "文"]),
    ],
)
def test_streams_stop_before_a_stop_string(text, strings, pieces):
    assert Told(BYTES.encode(text)).pieces(stop_strings=strings) == pieces


# What is refused


@pytest.mark.parametrize(
    ("ids", "options", "error", "said"),
    [
        ([], {}, ValueError, "at least one token"),
        (np.zeros((2, 0), int), {}, ValueError, "at least one token"),
        ([1.0], {}, TypeError, "integers"),
        (np.zeros((1, 1, 1), int), {}, TypeError, "integers"),
        (3, {}, TypeError, "integers"),
        ([1], {"max_new_tokens": -1}, ValueError, "max_new_tokens"),
        ([1], {"max_new_tokens": 2.5}, ValueError, "max_new_tokens"),
        ([1], {"max_new_tokens": True}, ValueError, "max_new_tokens"),
        ([1], {"max_new_tokens": None}, ValueError, "max_new_tokens"),
        ([True], {}, TypeError, "integers"),
        ([-1], {}, IndexError, "Token ids"),
        ([1], {"stop": 1.0}, TypeError, "stop is the id"),
        ([1], {"stop": "a"}, TypeError, "stop is the id"),
        ([1], {"stop": [1, None]}, TypeError, "stop is the id"),
        ([1], {"stop": True}, TypeError, "stop is the id"),
        ([1], {"stop_strings": [3], "tokenizer": LETTERS}, TypeError, "stop_strings are texts"),
        ([1], {"stop_strings": "x"}, TypeError, "tokenizer"),
        ([1], {"stop_strings": [""], "tokenizer": LETTERS}, ValueError, "at least one character"),
        ([11], {}, IndexError, "Token ids"),
    ],
)
def test_arguments_that_cannot_be(ids, options, error, said):
    with pytest.raises(error, match=said):
        generate(small(), ids, **options)


def test_a_stream_refuses_at_the_call():
    with pytest.raises(ValueError, match="one sequence"):
        stream(small(), [[1, 2]])
    with pytest.raises(ValueError, match="temperature"):
        stream(small(), [1], temperature=-1)


def test_a_model_of_nan_is_refused():
    model = small()
    model.E.data = np.full(model.E.shape, np.nan)
    for temperature in (0, 1):
        with pytest.raises(ValueError, match="New token 1: Logits need a finite maximum; got nan"):
            model.generate([1], 1, temperature=temperature)


def test_float32_and_float16_models():
    for dtype in (np.float32, np.float16):
        model = GPT(GPTConfig(vocab_size=11, context=12, n_layer=1, n_head=2, d_model=8), dtype=dtype)
        assert model.generate([1], 20).dtype == np.int64
