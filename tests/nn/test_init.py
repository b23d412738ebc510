"""Where parameters start: with a seed always alike, without one never."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import nn
from chainrule.models import GPT, GPTConfig

MAKERS = {
    "Linear": lambda **seed: nn.Linear(3, 4, **seed).W.data,
    "Embedding": lambda **seed: nn.Embedding(3, 4, **seed).E.data,
    "LearnedPositions": lambda **seed: nn.LearnedPositions(3, 4, **seed).P.data,
    "FeedForward": lambda **seed: nn.FeedForward(3, 4, **seed).W2.data,
    "Attention": lambda **seed: nn.Attention(4, 2, **seed).WO.data,
    "Dropout": lambda **seed: nn.Dropout(0.5, **seed)(np.ones(64)),
    "Dropout in Attention": lambda **seed: nn.Attention(4, dropout=0.5, **seed).dropout(np.ones(64)),
    "Dropout in Block": lambda: nn.Block(*[nn.LayerNorm(2)] * 4, dropout=0.5).dropout(np.ones(64)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_two_layers_without_a_seed_differ_and_a_script_repeats_itself(make):
    first, second = make(), make()
    assert np.any(first != second)
    nn.manual_seed(0)
    assert_array_equal(make(), first)
    assert_array_equal(make(), second)
    nn.manual_seed(1)
    assert np.any(make() != first)


@pytest.mark.parametrize("make", list(MAKERS.values())[:-1], ids=list(MAKERS)[:-1])
def test_a_seed_says_what_it_said(make):
    first = make(seed=3)
    nn.manual_seed(5)
    assert_array_equal(make(seed=3), first)
    without = make()
    nn.manual_seed(5)
    make(seed=3)  # takes nothing from the others
    assert_array_equal(make(), without)


def test_a_model_of_one_seed_is_one_model():
    config = GPTConfig(5, 4, 1, 1, 4, dropout=0.5)
    first, second = GPT(config), GPT(config)
    assert_array_equal(first([1, 2]).data, second([1, 2]).data)


def test_every_run_starts_alike():
    code = "from chainrule import nn; print(nn.Linear(2, 2).W.data.tolist())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"{nn.Linear(2, 2).W.data.tolist()}\n"  # after manual_seed(0): see conftest


def test_seeds_that_are_none():
    for use in (nn.init.generator, nn.init.manual_seed, lambda seed: nn.Dropout(0.5, seed=seed)):
        with pytest.raises(ValueError, match="seed is a whole number from 0, or a Generator; got -1"):
            use(-1)
