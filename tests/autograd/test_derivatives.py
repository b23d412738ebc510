"""Derivatives by nested arguments, Jacobians, Hessians, Hessian-vector products."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from chainrule.autograd import tree

RNG = np.random.default_rng(0)
X, W, B = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=2)


def model(p):
    return np.sum(np.tanh(X @ p["W"] + p["b"][0]) ** 2)


# Nested arguments and results


def test_gradients_nest_like_their_arguments():
    found = grad(model)({"W": W, "b": [B, None]})
    assert list(found) == ["W", "b"]
    assert found["b"][1] is None
    assert_allclose(found["W"], grad(lambda w: model({"W": w, "b": [B]}))(W))
    assert_allclose(found["b"][0], grad(lambda b: model({"W": W, "b": [b]}))(B))
    value, (by_p, by_x) = value_and_grad(lambda p, x: model(p) + np.sum(x**2), (0, 1))({"W": W, "b": (B,)}, 3.0)
    assert_allclose(value, model({"W": W, "b": [B]}) + 9)
    assert isinstance(by_p["b"], tuple)
    assert by_x == 6.0


class Pair(NamedTuple):
    a: object
    b: object


def test_named_tuples_lists_and_numbers():
    found = grad(lambda pair: pair.a * np.sum(pair.b))(Pair(2.0, [1.0, 4.0]))
    assert isinstance(found, Pair)
    assert found.a == 5
    assert_array_equal(found.b, [2, 2])  # a list of numbers is an array
    assert grad(lambda p: p[0] * p[1]["x"])([Tensor(2.0), {"x": 3.0}]) == [3.0, {"x": 2.0}]


def test_what_cannot_be_differentiated_by_is_named_with_its_place():
    with pytest.raises(TypeError, match=r"got str at argument 0\['mode'\]"):
        grad(model)({"W": W, "b": [B], "mode": "fast"})
    with pytest.raises(TypeError, match=r"argument 0\['n'\]\[1\]: Only floating-point tensors"):
        grad(lambda p: 0.0)({"n": [1.0, np.array([1, 2])]})
    with pytest.raises(ValueError, match="argument 2, but <lambda> was called with 1"):
        grad(lambda x: x, 2)(1.0)


def test_vjp_and_jvp_of_nested_results():
    def f(p, x):
        return {"y": p["W"] * x, "z": [np.sum(p["W"])]}

    arguments = ({"W": W}, 2.0)
    y, pullback = vjp(f, *arguments)
    assert_array_equal(y["y"], 2 * W)
    by_p, by_x = pullback({"y": np.ones((3, 2)), "z": [10.0]})
    assert_array_equal(by_p["W"], np.full((3, 2), 12.0))
    assert by_x == np.sum(W)
    y, pushed = jvp(f, arguments, ({"W": np.ones((3, 2))}, 1.0))
    assert_allclose(pushed["y"], 2 + W)
    assert pushed["z"] == [6.0]
    with pytest.raises(ValueError, match="The cotangent must nest like what it belongs to, a dict"):
        pullback([1.0])
    with pytest.raises(ValueError, match="Tangent 0 must nest"):
        jvp(f, arguments, (W, 1.0))


@pytest.mark.parametrize("value", [3.0, [1, 2], [[1, 2], [3, 4]], np.ones(3), {"a": [1.0, {"b": (2.0, W)}]}, [None, W], {}, []])
def test_trees_are_taken_apart_and_put_together(value):
    again = tree.like(value, tree.leaves(value))
    assert len(tree.leaves_like(value, again, "it")) == len(tree.leaves(value))


# Jacobians


def test_jacobian_both_ways():
    def f(w):
        return np.tanh(X @ w)

    reverse, forward = jacobian(f, mode="reverse")(W), jacobian(f, mode="forward")(W)
    assert reverse.shape == (4, 2, 3, 2)
    assert_allclose(reverse, forward, atol=1e-15)
    assert_array_equal(jacobian(f)(W), forward)  # 6 inputs, 8 outputs
    expected = np.einsum("ij,ik,jl->ijkl", 1 - np.tanh(X @ W) ** 2, X, np.eye(2))
    assert_allclose(forward, expected, atol=1e-15)


def test_jacobian_shapes():
    assert jacobian(np.exp)(0.0) == 1
    assert jacobian(np.exp)(0.0).shape == ()
    assert jacobian(lambda x: np.sum(x) * np.ones((2, 3)))(np.ones(4)).shape == (2, 3, 4)
    assert jacobian(lambda x: x[:0])(np.ones(4)).shape == (0, 4)
    assert jacobian(lambda x: np.sum(x) + np.ones(2))(np.ones((0, 3))).shape == (2, 0, 3)
    assert_array_equal(jacobian(lambda x, y: np.ones(2) * y + 0 * x)(1.0, 2.0), [0, 0])
    by_a, by_b = jacobian(lambda a, b: a * b, (0, 1))(np.arange(3.0), np.ones(3))
    assert_array_equal(by_a, np.eye(3))
    assert_array_equal(by_b, np.diag(np.arange(3.0)))
    nested = jacobian(lambda p: {"y": p["W"] @ B})({"W": W})
    assert nested["y"]["W"].shape == (3, 3, 2)
    with pytest.raises(ValueError, match='"reverse", "forward"'):
        jacobian(np.exp, mode="backwards")
    assert jacobian(np.exp)(np.ones(2, np.float32)).dtype == np.float32


def test_hessian():
    h = hessian(lambda w: np.sum(np.tanh(X @ w) ** 2))(W)
    assert h.shape == (3, 2, 3, 2)
    assert_allclose(h, h.transpose(2, 3, 0, 1), atol=1e-14)
    step = 1e-6
    for index in np.ndindex(3, 2):
        e = np.zeros((3, 2))
        e[index] = step
        slope = grad(lambda w: np.sum(np.tanh(X @ w) ** 2))
        assert_allclose(h[index], (slope(W + e) - slope(W - e)) / (2 * step), atol=1e-8)
    nested = hessian(model)({"W": W, "b": [B]})
    assert nested["W"]["b"][0].shape == (3, 2, 2)
    assert_allclose(nested["W"]["b"][0], np.moveaxis(nested["b"][0]["W"], 0, -1), atol=1e-14)
    assert hessian(lambda x: x**3)(2.0) == 12


def test_third_order_and_derivatives_of_jacobians():
    assert_allclose(jacobian(hessian(lambda x: np.sum(x**4)))(np.array([1.0, 2.0]))[1, 1, 1], 48)
    norm = grad(lambda w: np.sum(jacobian(lambda w: np.tanh(X @ w))(w) ** 2))(W)
    e = np.zeros((3, 2))
    e[1, 0] = 1e-6
    total = lambda w: np.sum(jacobian(lambda w: np.tanh(X @ w))(w) ** 2)  # noqa: E731
    assert_allclose(norm[1, 0], (total(W + e) - total(W - e)) / 2e-6, rtol=1e-7)


def test_hvp_is_the_hessian_times_the_vector():
    def f(w, b):
        return np.sum(np.tanh(X @ w + b) ** 3)

    v, u = RNG.normal(size=(3, 2)), RNG.normal(size=2)
    by_w, by_b = hvp(f, (W, B), (v, u))
    (ww, wb), (bw, bb) = hessian(f, (0, 1))(W, B)
    assert_allclose(by_w, np.tensordot(ww, v, 2) + np.tensordot(wb, u, 1), atol=1e-13)
    assert_allclose(by_b, np.tensordot(bw, v, 2) + np.tensordot(bb, u, 1), atol=1e-13)


def test_an_inner_variable_is_nobodys_once_its_derivative_is_taken():
    mixed = grad(lambda a, b: np.sum(grad(lambda a, b: np.sum(a**b), 0)(a, b)), 1)(np.array([2.0]), np.array([0.0]))
    assert type(mixed) is np.ndarray
    assert_allclose(mixed, [0.5])
    y, pullback = vjp(lambda x: grad(lambda z: z**3)(x) * x, 2.0)
    assert type(y) is np.ndarray
    assert pullback(1.0) == (36.0,)
