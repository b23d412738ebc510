"""Numbers that no layer, optimiser or configuration can mean are refused where they are written."""

import numpy as np
import pytest

from chainrule import nn
from chainrule.models import BERTConfig, EncoderDecoderConfig, GPTConfig
from chainrule.nn.checks import check_number, check_size

NO_NUMBERS = [float("nan"), float("inf"), -1.0, "x", None, True, np.ones(2), 1j]
ROWS = np.ones((2, 2))
W = nn.Parameter([1.0])


def gpt(**changes):
    return GPTConfig(5, 8, 1, 1, 8, **changes)


def bert(**changes):
    return BERTConfig(5, 8, 1, 1, 8, **changes)


def encoder_decoder(**changes):
    return EncoderDecoderConfig(5, 5, 8, 1, 1, 8, **changes)


def set_rate(lr):
    nn.SGD([W], 0.1).lr = lr


TAKERS = {
    "norm_eps of GPT": lambda bad: gpt(norm_eps=bad),
    "norm_eps of BERT": lambda bad: bert(norm_eps=bad),
    "norm_eps of the encoder-decoder": lambda bad: encoder_decoder(norm_eps=bad),
    "dropout of GPT": lambda bad: gpt(dropout=bad),
    "dropout of BERT": lambda bad: bert(dropout=bad),
    "dropout of the encoder-decoder": lambda bad: encoder_decoder(dropout=bad),
    "dropout of Attention": lambda bad: nn.Attention(4, dropout=bad),
    "rope_base": lambda bad: gpt(rope_base=bad),
    "base of Rope": lambda bad: nn.Rope(bad),
    "base of rope": lambda bad: nn.rope(ROWS, np.arange(2), base=bad),
    "eps of LayerNorm": lambda bad: nn.LayerNorm(2, bad),
    "eps of RMSNorm": lambda bad: nn.RMSNorm(2, bad),
    "eps of layer_norm": lambda bad: nn.layer_norm(ROWS, eps=bad),
    "eps of rms_norm": lambda bad: nn.rms_norm(ROWS, eps=bad),
    "std": lambda bad: nn.init.normal((2, 2), bad, 0),
    "bound": lambda bad: nn.init.uniform((2, 2), bad, 0),
    "lr": lambda bad: nn.SGD([W], bad),
    "lr that is set": set_rate,
    "momentum": lambda bad: nn.SGD([W], 0.1, momentum=bad),
    "betas": lambda bad: nn.Adam([W], betas=(0.9, bad)),
    "eps of Adam": lambda bad: nn.Adam([W], eps=bad),
    "weight_decay": lambda bad: nn.AdamW([W], weight_decay=bad),
}


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=str)
@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS.keys())
def test_what_is_no_number_in_range(take, bad):
    with pytest.raises(ValueError, match=r"is a number in [\[(].*; got"):
        take(bad)


@pytest.mark.parametrize("make", [gpt, bert, encoder_decoder], ids=lambda make: make.__name__)
def test_a_config_refuses_to_drop_everything(make):
    with pytest.raises(ValueError, match=r"dropout is a number in \[0, 1\); got 2\.0"):
        make(dropout=2.0)


@pytest.mark.parametrize("betas", [(2, 3), (0.9,), (0.9, 0.9, 0.9), 0.9, "ab"])
def test_betas_are_two_numbers(betas):
    with pytest.raises(ValueError, match="betas"):
        nn.AdamW([W], betas=betas)


SIZES = {
    "d_in of Linear": lambda bad: nn.Linear(bad, 2),
    "d_out of Linear": lambda bad: nn.Linear(2, bad),
    "vocab_size of Embedding": lambda bad: nn.Embedding(bad, 2),
    "context": lambda bad: nn.LearnedPositions(bad, 2),
    "d_ff": lambda bad: nn.FeedForward(2, bad),
    "n_head": lambda bad: nn.Attention(4, bad),
    "n_kv_head": lambda bad: nn.Attention(4, 2, n_kv_head=bad),
    "d_head": lambda bad: nn.Attention(4, d_head=bad),
    "d of LayerNorm": lambda bad: nn.LayerNorm(bad),
    "d of RMSNorm": lambda bad: nn.RMSNorm(bad),
    "n_layer of KVCache": lambda bad: nn.KVCache(bad),
    "d of sinusoidal": lambda bad: nn.sinusoidal(3, bad),
    "n_head of alibi": lambda bad: nn.alibi(bad, 3),
    "block": lambda bad: nn.tiled_attention(ROWS, ROWS, ROWS, block=bad),
}


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "3", np.ones(2)], ids=str)
@pytest.mark.parametrize("take", SIZES.values(), ids=SIZES.keys())
def test_what_is_no_size(take, bad):
    with pytest.raises(ValueError, match="is a positive whole number; got"):
        take(bad)


def test_the_ends_of_a_range():
    for value, ends in [(0, "[)"), (0.0, "[]"), (1, "(]"), (np.float32(0.5), "()"), (np.int64(1), "[]")]:
        check_number("x", value, 0, 1, ends)
    for value, ends in [(0, "()"), (1.0, "[)")]:
        with pytest.raises(ValueError, match="x is a number in"):
            check_number("x", value, 0, 1, ends)
    check_size("n", np.int64(3))
    check_size("n", 0, least=0)
    with pytest.raises(ValueError, match=r"n is a whole number, at least 0; got an array float64 \(2, 2\)"):
        check_size("n", ROWS, least=0)
