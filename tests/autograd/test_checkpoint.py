"""Checkpoints, hooks and the search for anomalies."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, checkpoint, detect_anomaly, grad, gradcheck, jvp, named, nn, no_grad, trace
from chainrule.autograd import gradients
from chainrule.autograd.anomaly import AnomalyError
from chainrule.autograd.graph import ancestors


def leaves():
    rng = np.random.default_rng(0)
    return (Tensor(rng.normal(size=shape), requires_grad=True, name=name) for shape, name in [((2, 3), "x"), ((3, 3), "W")])


def net(x, W, wrap):
    def block(h):
        return np.tanh(h @ W)

    for _ in range(3):
        x = wrap(block)(x)
    return named("loss", np.sum(x * x))


# Checkpoints


def test_gradients_are_the_same_through_fewer_nodes():
    x, W = leaves()
    plain = gradients(net(x, W, lambda f: f), [x, W])
    loss = net(x, W, checkpoint)
    for one, other in zip(plain, gradients(loss, [x, W]), strict=True):
        assert_array_equal(one, other)
    assert len(ancestors(loss)) == 2 + 3 + 2  # leaves, segments, x * x and the sum
    loss.backward()
    assert_array_equal(W.grad, plain[1])


def test_every_way_to_differentiate_goes_through():
    x, W = leaves()

    def f(w, wrap):
        return np.sum(wrap(lambda h: np.tanh(h @ w))(x.data) ** 2)

    assert gradcheck(lambda w: f(w, checkpoint), W.data).ok
    assert gradcheck(lambda w: f(w, checkpoint), W.data, method="complex").ok
    slope = grad(lambda w: f(w, checkpoint))(W.data)
    assert_allclose(jvp(lambda w: f(w, checkpoint), [W.data], [np.eye(3)])[1], np.trace(slope))

    def norm(w, wrap):
        return np.sum(grad(lambda w: f(w, wrap))(w) ** 2)

    assert_allclose(grad(lambda w: norm(w, checkpoint))(W.data), grad(lambda w: norm(w, lambda g: g))(W.data))


def test_a_trace_looks_inside():
    x, W = leaves()
    t = trace(net(x, W, checkpoint), W[0, 1])
    assert t.total == trace(net(x, W, lambda f: f), W[0, 1]).total
    assert sum(flow.node.primitive is not None and flow.node.primitive.name == "tanh" for flow in t.nodes) == 3
    assert t.check().verdict == "ok"


def test_what_it_uses_from_outside_may_be_interior():
    x, W = leaves()
    inner = np.sin(W)
    (found,) = gradients(np.sum(checkpoint(lambda h: h @ inner)(x)), [W])
    (plain,) = gradients(np.sum(x @ inner), [W])
    assert_array_equal(found, plain)


def test_it_saves_memory():
    x = Tensor(np.ones(100_000), requires_grad=True)

    def long(h):
        for _ in range(20):
            h = np.sin(h)
        return h

    def held(wrap):
        tracemalloc.start()
        h = x
        for _ in range(5):
            h = wrap(long)(h)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    assert held(checkpoint) < held(lambda f: f) / 10


def test_it_must_compute_the_same_again():
    rng = np.random.default_rng(0)
    x, _ = leaves()
    y = np.sum(checkpoint(lambda h: h * rng.normal(size=h.shape))(x))
    with pytest.raises(RuntimeError, match="must compute the same again"):
        y.backward()
    with pytest.raises(TypeError, match="returns one Tensor; got tuple"):
        checkpoint(lambda h: (h, h))(x)


def test_nothing_to_save():
    x, _ = leaves()
    with no_grad():
        assert checkpoint(np.exp)(x).is_leaf
    assert checkpoint(lambda h: h)(x) is x
    assert checkpoint(np.exp)(Tensor(1.0)).data == np.e


# Hooks


def test_a_hook_sees_the_complete_adjoint_once_and_may_change_it():
    x, W = leaves()
    seen = []
    h = np.tanh(x @ W)
    h.register_hook(lambda g: seen.append(g.copy()))
    y = np.sum(h * h + h)
    y.backward()
    assert_allclose(seen, [2 * h.data + 1], rtol=1e-15)
    plain, W.grad = W.grad, None
    remove = h.register_hook(lambda g: 2 * g)
    y.backward()
    assert_array_equal(W.grad, 2 * plain)
    assert len(seen) == 2
    remove()
    remove()
    W.grad = None
    y.backward()
    assert_array_equal(W.grad, plain)


def test_hooks_on_leaves_and_in_higher_orders():
    x = Tensor(3.0, requires_grad=True)
    remove = x.register_hook(lambda g: np.clip(g, -1, 1) if isinstance(g, np.ndarray) else g * 10)
    (x * x).backward()
    assert x.grad == 1
    (slope,) = gradients(x * x, [x], create_graph=True)
    assert slope.data == 60
    remove()
    assert gradients(x * x, [x]) == [6.0]


def test_a_hook_is_called_once_even_where_a_slope_is_infinite():
    x = Tensor([0.0, 4.0], requires_grad=True)
    calls = []
    x.register_hook(calls.append)
    np.sum(np.where(x > 0, np.sqrt(x), 0)).backward()
    assert len(calls) == 1
    assert_array_equal(x.grad, [0, 0.25])


def test_mistakes_with_hooks():
    x = Tensor([1.0, 2.0], requires_grad=True, name="x")
    x.register_hook(lambda g: g[:1])
    with pytest.raises(ValueError, match=r"shape \(2,\) of x; got \(1,\)"):
        np.sum(x).backward()
    with pytest.raises(ValueError, match="requires no gradient"):
        Tensor(1.0).register_hook(print)


def test_a_node_with_hooks_is_not_kept_alive():
    x = Tensor(1.0, requires_grad=True)
    y = np.exp(x)
    y.register_hook(lambda g: None)
    dead = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert dead() is None
    finally:
        gc.enable()


# Anomalies


def test_the_forward_operation_that_made_a_nan_is_named():
    x = Tensor([1.0, -1.0], requires_grad=True, name="x")
    with detect_anomaly(), np.errstate(all="ignore"), pytest.raises(AnomalyError) as caught:
        np.exp(np.log(x) * 2)
    assert "log made nan at [1] in the forward pass" in str(caught.value)
    assert "x = x: [1.0, -1.0]" in str(caught.value)
    assert "test_checkpoint.py" in str(caught.value)
    assert "np.exp(np.log(x) * 2)" in str(caught.value)


def test_the_rule_that_made_an_infinity_is_named():
    x = Tensor([0.0, 1.0], requires_grad=True, name="x")
    with detect_anomaly(), pytest.raises(AnomalyError) as caught:
        np.sum(named("root", np.sqrt(x)) * 3).backward()
    message = str(caught.value)
    assert "root = sqrt(x) made inf at [0] in the backward pass" in message
    assert "∂L/∂x = " in message
    assert 'named("root", np.sqrt(x))' in message


def test_infinities_may_be_meant():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with detect_anomaly(inf=False):
        np.sum(nn.softmax(np.where([True, False], x, -np.inf))[0]).backward()
    with detect_anomaly(), pytest.raises(AnomalyError, match="where made -inf"):
        np.where([True, False], x, -np.inf)
    with detect_anomaly():
        nn.softmax(x, np.array([True, False])).backward(np.ones(2))  # a mask of the primitive's own makes none


def test_a_leaf_that_holds_nan_is_visible_among_the_inputs():
    x = Tensor([np.nan, 1.0], requires_grad=True, name="broken")
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"broken: \[nan, 1.0\]"):
        x * 2
    assert np.isnan((x * 2).data[0])  # outside, nothing is raised
