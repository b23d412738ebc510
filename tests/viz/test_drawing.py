"""Drawings number by number: what is drawn, and how large a graph may be."""

import numpy as np
import pytest

from chainrule import Tensor, nn
from chainrule.autograd.scalar import scalar_graph
from chainrule.autograd.value import Value, ancestors
from chainrule.models import GPT, MLP, GPTConfig, MLPConfig, WorkedExample
from chainrule.viz import draw, drawing
from chainrule.viz.drawing import number_count


def perceptron(*sizes, rows=1):
    x = np.random.default_rng(0).normal(size=(rows, sizes[0]))
    return nn.squared_cost(MLP(MLPConfig(sizes))(x), np.zeros((rows, sizes[-1])))


def gpt():
    ids = np.arange(4)
    return nn.cross_entropy(GPT(GPTConfig(vocab_size=7, context=4, n_layer=1, n_head=2, d_model=8))(ids), ids)


def contracted():
    w = Tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    return np.sum(np.einsum("ij,kj->ik", w, w))


@pytest.mark.parametrize("loss", [lambda: perceptron(2, 16, 16, 1), lambda: perceptron(5, 3, 2, rows=9), gpt, contracted])
def test_numbers_are_counted_before_they_are_made(loss):
    exact = len(ancestors(scalar_graph(loss())))
    assert exact <= number_count(loss()) <= 1.3 * exact


def test_small_models_are_drawn_number_by_number():
    for loss in (WorkedExample()(), perceptron(2, 16, 16, 1)):
        drawn = draw(loss, zoom="scalar").model
        assert drawn.size == len(ancestors(scalar_graph(loss)))
        assert len(drawn.nodes) <= 300


def test_a_leaf_that_has_new_data_is_drawn_as_it_was():
    w = Tensor(np.ones(3), requires_grad=True, name="w")
    loss = np.sum(w * w)
    w.data = np.zeros(3)
    assert "w[0]" in {node.label for node in draw(loss, zoom="scalar").model.nodes}


def test_large_models_are_refused_at_once(monkeypatch):
    with pytest.raises(ValueError, match=r"about 350,011 nodes, and a drawing takes 100,000 at most.*or all of it with zoom"):
        draw(perceptron(64, 64, 16, 10, rows=32), zoom="scalar")
    monkeypatch.setattr(drawing, "MOST_NUMBERS", 10)
    value = Value(0.5, "v")
    assert draw(value.tanh()).model.size == 2
    for _ in range(10):
        value = value.tanh()
    with pytest.raises(ValueError, match="about 11 nodes, and a drawing takes 10 at most"):
        draw(value)
