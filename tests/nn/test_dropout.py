"""Dropout: what is kept, what its gradient is, and how a training step is repeated."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import Tensor, gradients, nn
from chainrule.autograd.scalar import values
from chainrule.nn.dropout import Dropout, dropout, reseed


def rng(seed=0):
    return np.random.default_rng(seed)


def test_entries_are_left_out_or_scaled():
    x = Tensor(np.full((200, 500), 3.0), requires_grad=True)
    y = dropout(x, 0.25, rng())
    assert set(np.unique(y.data)) == {0.0, 4.0}
    assert np.mean(y.data == 0) == pytest.approx(0.25, abs=0.007)  # five standard deviations
    assert np.mean(y.data) == pytest.approx(3, abs=0.03)
    (slope,) = gradients(y, [x], np.full((200, 500), 3.0))
    assert_array_equal(slope, y.data)  # the same entries, the same factor


def test_nothing_to_leave_out():
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert dropout(x, 0, rng()) is x
    assert dropout(x, 0.0, rng()) is x
    assert Dropout(0.0)(x) is x
    layer = Dropout(0.5).eval()
    state = layer.rng.bit_generator.state
    assert layer(x) is x
    assert layer.rng.bit_generator.state == state


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2, float("nan")])
def test_rates_that_are_no_share(rate):
    for make in (Dropout, lambda rate: dropout(np.ones(3), rate, rng())):
        with pytest.raises(ValueError, match=r"the share of entries that dropout leaves out, is a number in \[0, 1\); got"):
            make(rate)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_dtype_is_kept_and_the_pattern_is_the_same(dtype):
    x = Tensor(np.ones((3, 40), dtype), requires_grad=True)
    y = dropout(x, 0.5, rng())
    assert y.dtype == gradients(y, [x], np.ones((3, 40)))[0].dtype == dtype
    assert_array_equal(y.data, dropout(np.ones((3, 40)), 0.5, rng()))


def test_empty_numbers_and_scalar_mode():
    assert dropout(Tensor(np.ones((0, 3))), 0.5, rng()).shape == (0, 3)
    assert float(dropout(1.0, 0.5, rng())) in (0.0, 2.0)
    v = values(np.arange(1.0, 9.0))
    np.sum(dropout(v, 0.5, rng())).backward()
    assert_array_equal(v.grad, dropout(np.ones(8), 0.5, rng()))


def test_the_graph_keeps_the_pattern():
    x = Tensor(np.ones(50), requires_grad=True)
    y = dropout(x, 0.5, rng())
    first = gradients(y, [x], np.ones(50))[0]
    assert_array_equal(first, gradients(y, [x], np.ones(50))[0])
    assert_array_equal(first, gradients(y, [x], np.ones(50), create_graph=True)[0].data)


def test_each_call_draws_anew_from_the_modules_own_generator():
    layer, twin, other = Dropout(0.5, seed=0), Dropout(0.5, seed=0), Dropout(0.5, seed=1)
    x = np.ones(100)
    first = layer(x)
    assert not np.array_equal(first, layer(x))
    assert_array_equal(first, twin(x))
    assert not np.array_equal(first, other(x))


class Net(nn.Module):
    def __init__(self):
        self.first = Dropout(0.5)
        self.more = [Dropout(0.5), Dropout(0.5)]

    def forward(self, x):
        return np.stack([self.first(x), *(part(x) for part in self.more)])


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_go_on_from_the_same_state(twin_of):
    net, x = Net(), np.ones(100)
    net(x)
    twin = twin_of(net)
    assert_array_equal(net(x), twin(x))
    assert twin.first.rng is not net.first.rng


def test_reseed_repeats_a_step_and_tells_the_parts_apart():
    net, x = Net(), np.ones(100)
    reseed(net, 7)
    first = net(x)
    assert len(np.unique(first, axis=0)) == 3
    assert not np.array_equal(first, net(x))
    reseed(net, [7])
    assert_array_equal(first, net(x))
    for i, y in enumerate(first):
        assert_array_equal(y, dropout(x, 0.5, rng([7, i])))
    reseed(net, (7, 3))
    assert_array_equal(net(x)[2], dropout(x, 0.5, rng([7, 3, 2])))
    reseed(net, np.int64(7))
    assert_array_equal(first, net(x))
    alone = Dropout(0.5)
    reseed(alone, 7)
    assert_array_equal(alone(x), first[0])
