"""The perceptron of the deep-learning brief: its numbers, its chain rule by hand, and real digits."""

import numpy as np
import pytest
from differences import complex_step, numerical_gradient
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor
from chainrule.autograd import gradients, is_recording
from chainrule.autograd.graph import find, replay
from chainrule.models import datasets
from chainrule.models.mlp import MLP, MLPConfig, one_hot, pixels
from chainrule.nn.losses import cross_entropy, squared_cost
from chainrule.nn.optim import SGD


def test_the_briefs_network_has_13002_parameters():
    shapes = {path: parameter.shape for path, parameter in MLP().named_parameters()}
    assert shapes == {"W1": (784, 16), "b1": (16,), "W2": (16, 16), "b2": (16,), "W3": (16, 10), "b3": (10,)}
    weights = [np.prod(shape) for shape in shapes.values() if len(shape) == 2]
    assert weights == [12544, 256, 160]
    assert sum(weights) == 12960
    assert sum(shape[0] for shape in shapes.values() if len(shape) == 1) == 42
    assert sum(parameter.size for parameter in MLP().parameters()) == 13002


def sigma(z):
    return 1 / (1 + np.exp(-z))


def test_forward_is_the_formula():
    model = MLP(MLPConfig(sizes=(3, 4, 2)))
    p, x = model.state_dict(), np.random.default_rng(1).normal(size=(5, 3))
    z1 = x @ p["W1"] + p["b1"]
    z2 = sigma(z1) @ p["W2"] + p["b2"]
    a2 = model(x)
    for name, wanted in {"z1": z1, "a1": sigma(z1), "z2": z2, "a2": sigma(z2)}.items():
        assert_allclose(find(a2, name).data, wanted, rtol=0, atol=1e-15)
    logits = MLP(MLPConfig(sizes=(3, 4, 2), output="logits"))(x)
    assert_allclose(logits.data, z2, rtol=0, atol=1e-15)
    assert logits.name == "z2"


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "silu"])
def test_other_activations(activation):
    model = MLP(MLPConfig(sizes=(3, 4, 2), activation=activation, output="logits"))
    loss = cross_entropy(model(np.ones((2, 3))), [0, 1])
    assert all(np.isfinite(g).all() and g.any() for g in gradients(loss, model.parameters()))


def test_one_neuron_per_layer():
    """The brief's chain rule: ∂C/∂w = a^(L-1) σ'(z) 2 (a - y), and one layer further back."""
    model = MLP(MLPConfig(sizes=(1, 1, 1)))
    model.load_state_dict({"W1": [[0.7]], "b1": [-0.2], "W2": [[-1.3]], "b2": [0.4]})
    x, y = 0.5, 1.0
    a1 = sigma(0.7 * x - 0.2)
    a2 = sigma(-1.3 * a1 + 0.4)
    delta2 = a2 * (1 - a2) * 2 * (a2 - y)
    delta1 = a1 * (1 - a1) * -1.3 * delta2
    cost = squared_cost(model(np.array([[x]])), np.array([[y]]))
    assert_allclose(cost.data, (a2 - y) ** 2, rtol=1e-15)
    found = dict(zip(("W1", "b1", "W2", "b2"), gradients(cost, model.parameters()), strict=True))
    for name, wanted in {"W2": a1 * delta2, "b2": delta2, "W1": x * delta1, "b1": delta1}.items():
        assert_allclose(found[name].item(), wanted, rtol=1e-14)


def test_gradients_equal_the_complex_step():
    model = MLP(MLPConfig(sizes=(3, 4, 4, 2)))
    rng = np.random.default_rng(0)
    cost, parameters = squared_cost(model(rng.normal(size=(5, 3))), rng.random((5, 2))), model.parameters()
    expected = numerical_gradient(
        lambda *values: replay(cost, dict(zip(parameters, values, strict=True))), [p.data for p in parameters], complex_step
    )
    for found, wanted in zip(gradients(cost, parameters), expected, strict=True):
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-16)


def test_it_learns_exclusive_or():
    """What no network without a hidden layer can (brief, MLP)."""
    x, y = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), [0, 1, 1, 0]
    model = MLP(MLPConfig(sizes=(2, 8, 2), activation="tanh", output="logits"))
    optimizer = SGD(model.parameters(), 0.5)
    for _ in range(200):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_array_equal(model.predict(x), y)


def test_real_digits():
    """Four epochs over 2,000 digits: most of 500 others are recognised, in float32 from start to end."""
    train, test = datasets.digits().split(2000)
    model = MLP(dtype=np.float32)
    X, Y = pixels(train.images, np.float32), one_hot(train.labels, 10, np.float32)
    optimizer = SGD(model.parameters(), 2.0)
    for _ in range(4):
        for start in range(0, 2000, 10):
            cost = squared_cost(model(X[start : start + 10]), Y[start : start + 10])
            optimizer.zero_grad()
            cost.backward()
            optimizer.step()
    assert cost.dtype == np.float32
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    assert {p.grad.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    found = model.predict(pixels(test.images[:500], np.float32))
    assert np.mean(found == test.labels[:500]) > 0.8


def test_pixels_and_wishes():
    images = np.zeros((2, 28, 28), np.uint8)
    images[1, 0, 1] = 255
    x = pixels(images)
    assert x.shape == (2, 784)
    assert x.dtype == np.float64
    assert x[1, 1] == x.sum() == 1
    assert_array_equal(one_hot([2, 0], 3), [[0, 0, 1], [1, 0, 0]])
    assert one_hot([1], 2, np.float32).dtype == np.float32
    assert one_hot(np.zeros(0, int), 3).shape == (0, 3)
    for wrong in ([-1], [0, 3], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(ValueError, match=r"Labels lie in 0\.\.2; got"):
            one_hot(wrong, 3)
    for wrong in ([1.5], [True], [1.0], ["1"]):
        with pytest.raises(TypeError, match="Labels are integers, the index of the right class; got dtype"):
            one_hot(wrong, 3)


def test_the_same_seed_the_same_start():
    first, same, other = (MLP(seed=seed).state_dict()["W1"] for seed in (3, 3, 4))
    assert_array_equal(first, same)
    assert (first != other).all()
    assert_allclose(first.std(), 1 / 28, rtol=0.02)
    assert_allclose(MLP(MLPConfig(activation="relu")).W1.data.std(), np.sqrt(2) / 28, rtol=0.02)


class Watched(MLP):
    def forward(self, x):
        self.recorded = is_recording()
        return super().forward(x)


def test_predict_records_nothing_and_takes_one_example():
    model = Watched(MLPConfig(sizes=(3, 2)))
    assert model.predict(Tensor(np.ones((4, 3)))).shape == (4,)
    assert model.predict(np.ones(3)).shape == ()
    assert not model.recorded
    model(np.ones(3))
    assert model.recorded


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sizes": (784,)}, "at least two"),
        ({"sizes": (784, 0, 10)}, "positive"),
        ({"sizes": (784, 2.5)}, "whole"),
        ({"activation": "sigmoids"}, "sigmoids"),
        ({"output": "softmax"}, "softmax"),
    ],
)
def test_nonsense(wrong, said):
    with pytest.raises(ValueError, match=said):
        MLPConfig(**wrong)


def test_a_configuration_from_json():
    assert MLPConfig(sizes=[3, 2]) == MLPConfig(sizes=(3, 2))
