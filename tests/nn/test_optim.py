"""Optimisers."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import nn


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sgd_steps_against_the_gradient(dtype):
    w, unused = nn.Parameter(np.array([1.0, 2.0], dtype)), nn.Parameter([5.0])
    optimizer = nn.SGD(iter([w, unused]), lr=0.25)
    np.sum(w * w).backward()
    optimizer.step()
    assert_array_equal(w.data, [0.5, 1.0])
    assert_array_equal(unused.data, [5.0])
    assert w.dtype == dtype
    optimizer.step()  # the gradient stays until it is forgotten
    assert_array_equal(w.data, [0.0, 0.0])
    optimizer.zero_grad()
    assert w.grad is None
    optimizer.step()
    assert_array_equal(w.data, [0.0, 0.0])


def test_all_parameters_step_from_the_same_point():
    a, b = nn.Parameter(2.0), nn.Parameter(3.0)
    optimizer = nn.SGD([a, b], lr=1.0)
    (a * b).backward()
    optimizer.step()
    assert (a.item(), b.item()) == (-1.0, 1.0)


def test_a_step_leaves_the_graph_of_the_loss_as_it_was():
    w = nn.Parameter(3.0)
    loss = w * w
    loss.backward()
    nn.SGD([w], lr=0.5).step()
    assert w.item() == 0.0
    loss.backward()
    assert w.grad == 12.0


def test_training_reaches_the_minimum():
    w = nn.Parameter([5.0, -3.0])
    optimizer = nn.SGD([w], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        np.sum((w - np.array([1.0, 2.0])) ** 2).backward()
        optimizer.step()
    np.testing.assert_allclose(w.data, [1.0, 2.0], rtol=1e-12)
