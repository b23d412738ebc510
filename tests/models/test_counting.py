"""Parameters by part: GPT-3, GPT-2 and the brief's perceptron to the last digit."""

import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

from chainrule.models import WorkedExample, counting
from chainrule.models.bert import BERT, BERTConfig
from chainrule.models.counting import count_parameters
from chainrule.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.word2vec import Word2Vec, Word2VecConfig

GPT3 = GPTConfig(vocab_size=50257, context=2048, n_layer=96, n_head=96, d_model=12288, tied=False)
GPT2 = GPTConfig(vocab_size=50257, context=1024, n_layer=12, n_head=12, d_model=768)


def test_gpt3_is_the_briefs_table():
    count = count_parameters(GPT3)
    assert count == {
        "embedding": 617_558_016,
        "attention": 57_982_058_496,
        "feed_forward": 115_964_116_992,
        "linear": 0,
        "unembedding": 617_558_016,
        "positions": 2048 * 12288,
        "norms": (2 * 96 + 1) * 2 * 12288,
        "biases": 96 * (4 + 4 + 1) * 12288,
    }
    assert count.head == 6_291_456
    assert count.weights == 175_181_291_520
    assert count.total == 175_181_291_520 + 2048 * 12288 + 386 * 12288 + 864 * 12288


def test_printed():
    assert str(count_parameters(GPT3)).splitlines() == [
        "part                parameters    share",
        "embedding          617,558,016   0.35%",
        "attention       57,982,058,496  33.09%   9,216 heads of 6,291,456",
        "feed_forward   115,964,116,992  66.18%",
        "unembedding        617,558,016   0.35%",
        "weights        175,181,291,520  99.98%",
        "positions           25,165,824   0.01%",
        "norms                4,743,168   0.00%",
        "biases              10,616,832   0.01%",
        "total          175,221,817,344  100.00%",
    ]


def test_gpt2_small():
    count = count_parameters(GPT2)
    assert count.total == 124_439_808
    assert count["unembedding"] == 0


def test_the_perceptron():
    count = count_parameters(MLPConfig())
    assert (count["linear"], count["biases"], count.total) == (12_960, 42, 13_002)
    assert count.head is None
    assert "head" not in str(count)


def test_bert_base():
    """The 110M of Devlin et al. 2019, with the pooler and without the head for masked tokens."""
    config = BERTConfig(vocab_size=30522, context=512, n_layer=12, n_head=12, d_model=768, pooler=True, head=False)
    assert count_parameters(config).total == 109_482_240


def test_nothing_is_allocated():
    tracemalloc.start()
    try:
        count_parameters(GPT3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8e6  # bytes: a hundred blocks' worth of objects, not one matrix


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (GPT, GPTConfig(vocab_size=11, context=7, n_layer=2, n_head=2, d_model=8, norm="rms", bias=False, activation="swiglu")),
        (BERT, BERTConfig(vocab_size=11, context=7, n_layer=2, n_head=2, d_model=8, pooler=True)),
        (EncoderDecoder, EncoderDecoderConfig(source_vocab=11, target_vocab=9, context=7, n_layer=2, n_head=2, d_model=8)),
        (MLP, MLPConfig(sizes=(5, 4, 3))),
        (Word2Vec, Word2VecConfig(vocab_size=11, d=4)),
    ],
)
def test_a_configuration_counts_as_its_model(model, config):
    built = model(config)
    count = count_parameters(config)
    assert count == count_parameters(built)
    assert count.total == sum(np.prod(array.shape, dtype=int) for array in built.state_dict().values())


def test_parts_of_the_encoder_decoder_and_of_grouped_queries():
    count = count_parameters(EncoderDecoderConfig(11, 9, context=7, n_layer=2, n_head=2, d_model=8, tied=False))
    assert count["embedding"] == (11 + 9) * 8
    assert count["unembedding"] == 9 * 8
    assert count["attention"] == (2 + 2 + 2) * 4 * 8 * 8  # the encoder's, the decoder's, cross
    assert count["positions"] == 2 * 7 * 8
    assert count.head == 4 * 8 * 4
    grouped = count_parameters(GPTConfig(vocab_size=11, context=7, n_layer=1, n_head=4, n_kv_head=2, d_model=8))
    assert grouped["attention"] == 2 * 8 * 8 + 2 * 8 * 4
    assert grouped.head is None


LARGE = 10**12


@pytest.mark.parametrize(
    ("model", "config", "count"),
    [
        (GPT, GPTConfig(LARGE, context=64, n_layer=1, n_head=4, d_model=8), LARGE * 8 + 64 * 8 + 12 * 64 + (9 + 4 + 2) * 8),
        (GPT, GPTConfig(9, context=64, n_layer=LARGE, n_head=4, d_model=8), LARGE * (12 * 64 + (9 + 4) * 8) + (9 + 64 + 2) * 8),
        (BERT, BERTConfig(9, LARGE, n_layer=1, n_head=2, d_model=4, head=False), LARGE * 4 + 12 * 16 + (9 + 2 + 2 + 13) * 4),
        (MLP, MLPConfig((LARGE, 8, 3)), (LARGE + 1) * 8 + (8 + 1) * 3),
        (Word2Vec, Word2VecConfig(LARGE, 8), 2 * LARGE * 8),
        (EncoderDecoder, EncoderDecoderConfig(9, LARGE, 7, n_layer=1, n_head=2, d_model=8), None),
    ],
)
def test_a_model_larger_than_the_memory_is_refused_before_anything_is_made(model, config, count):
    said = (
        r"This configuration has [\d,]+" if count is None else f"has {count:,} parameters, {count * 4 / 1e9:,.1f} GB in float32"
    )
    with pytest.raises(ValueError, match=said):
        model(config, dtype=np.float32)


def test_a_matrix_that_no_array_can_hold():
    with pytest.raises(ValueError, match="No array is as large"):
        GPT(GPTConfig(LARGE, context=64, n_layer=1, n_head=4, d_model=LARGE))


def test_a_model_as_large_as_the_memory_is_made(monkeypatch):
    config = Word2VecConfig(2**14, 64)
    monkeypatch.setattr(counting, "SMALL", 0)
    for memory, fits in ((2**14 * 64 * 2 * 4, True), (2**14 * 64 * 2 * 4 - 1, False)):
        monkeypatch.setattr(counting, "_memory", lambda memory=memory: memory)
        with nullcontext() if fits else pytest.raises(ValueError, match="has 2,097,152 parameters"):
            Word2Vec(config, dtype=np.float32)


def test_any_module():
    count = count_parameters(WorkedExample())
    assert (count["embedding"], count["linear"], count["unembedding"], count.total) == (6, 12, 6, 24)


def test_what_it_does_not_take():
    with pytest.raises(TypeError, match="GPTConfig"):
        count_parameters({"n_layer": 96})
