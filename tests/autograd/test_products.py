"""Products: what the table of primitives cannot say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp
from chainrule.autograd import gradients

inf, nan = np.inf, np.nan


def leaf(data):
    return Tensor(np.array(data, dtype=float), requires_grad=True)


# A zero adjoint contributes exactly zero

PRODUCTS = {  # y[i] = Σ over j of a[j] · B[j, i], written in several ways
    "@": lambda a, B: a @ B,
    "matmul of matrices": lambda a, B: (a[None] @ B)[0],
    "matmul of a batch": lambda a, B: (a[None, None] @ B[None])[0, 0],
    "dot": np.dot,
    "tensordot": lambda a, B: np.tensordot(a, B, 1),
    "einsum": lambda a, B: np.einsum("j,ji->i", a, B),
    "inner": lambda a, B: np.inner(a, B.T),
    "multiply and sum": lambda a, B: np.sum(np.expand_dims(a, -1) * B, axis=0),
}


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_zero_adjoint_meets_an_infinite_factor(product):
    """Column 1 of B is infinite and unused: it contributes nothing to a, at any order, and nothing comes of it forward."""
    a, B = leaf([1.0, 2.0]), leaf([[3.0, inf, 5.0], [4.0, nan, 6.0]])
    u = np.array([1.0, 0.0, 10.0])
    y = product(a, B)
    a_bar, B_bar = gradients(y, [a, B], u)
    assert_array_equal(a_bar, [53.0, 64.0])
    assert_array_equal(B_bar, [[1.0, 0.0, 10.0], [2.0, 0.0, 20.0]])
    a_bar, B_bar = gradients(y, [a, B], u, create_graph=True)
    assert_array_equal(a_bar.data, [53.0, 64.0])
    assert_array_equal(gradients(np.sum(a_bar * [1.0, 2.0]), [B])[0], [[1.0, 0.0, 10.0], [2.0, 0.0, 20.0]])
    a.grad = None
    np.sum(np.where([True, False, True], y, 0)).backward()
    assert_array_equal(a.grad, [8.0, 10.0])


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_nonzero_adjoint_meets_an_infinite_factor(product):
    """What is used stays infinite: no NaN is turned into a number."""
    a, B = leaf([1.0, 2.0]), leaf([[3.0, inf, 5.0], [4.0, 7.0, 6.0]])
    assert_array_equal(gradients(product(a, B), [a], [1.0, 1.0, 0.0])[0], [inf, 11.0])
    B = leaf([[3.0, nan, 5.0], [4.0, 7.0, 6.0]])
    assert_array_equal(gradients(product(a, B), [a], [1.0, 1.0, 0.0])[0], [nan, 11.0])


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_zero_tangent_meets_an_infinite_factor(product):
    B = np.array([[3.0, inf], [4.0, 7.0]])
    assert_array_equal(jvp(lambda a: product(a, B), [np.array([1.0, 2.0])], [np.array([0.0, 1.0])])[1], [4.0, 7.0])


def test_zero_adjoint_and_infinite_factors_elsewhere():
    a, b = leaf([1.0, inf, 2.0]), leaf([1.0, 2.0, 3.0])
    assert_array_equal(gradients(np.cross(a, b), [b], [0.0, 0.0, 0.0])[0], [0.0, 0.0, 0.0])
    assert not np.isfinite(gradients(np.cross(a, b), [b], [1.0, 1.0, 1.0])[0]).all()
    v = leaf([1.0, inf])
    assert_array_equal(gradients(np.convolve(b, v), [b], [0.0, 0.0, 0.0, 1.0])[0], [0.0, 0.0, inf])
    y = np.einsum("i,i,i->i", b, [1.0, inf, 2.0], [1.0, 1.0, 3.0])
    assert_array_equal(gradients(y, [b], [1.0, 0.0, 1.0])[0], [1.0, 0.0, 6.0])


# Call forms


def test_lists_and_numbers_beside_tensors():
    x = leaf([1.0, 2.0])
    assert_array_equal(np.dot([3.0, 4.0], x).data, 11.0)
    assert_array_equal(gradients(np.inner([3.0, 4.0], x), [x])[0], [3.0, 4.0])
    assert_array_equal(gradients(np.einsum("i,i", [3.0, 4.0], x), [x])[0], [3.0, 4.0])
    assert_array_equal(gradients(np.sum(np.dot(2.0, x)), [x])[0], [2.0, 2.0])
    assert_array_equal(np.kron([1.0, 0.0], x).data, [1.0, 2.0, 0.0, 0.0])


def test_multi_dot_takes_the_cheapest_order():
    """(10, 100) (100, 5) (5, 50): from the left 7500 multiplications, from the right 75000."""
    a, b, c = leaf(np.ones((10, 100))), leaf(np.ones((100, 5))), leaf(np.ones((5, 50)))
    assert np.linalg.multi_dot([a, b, c]).inputs[1] is c
    assert np.linalg.multi_dot([c.T, b.T, a.T]).inputs[0].inputs[0] is c


def test_float32_is_kept():
    x = Tensor(np.ones((2, 2), np.float32), requires_grad=True)
    for y in [np.einsum("ii->i", x), np.trace(x), np.tensordot(x, x), np.kron(x, x), np.linalg.multi_dot([x, x, x])]:
        assert y.dtype == np.float32
        assert gradients(y, [x], np.ones(y.shape))[0].dtype == np.float32


def test_einsum_of_one_tensor_used_twice():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert_allclose(grad(lambda x: np.einsum("ij,jk,ki", x, x, x))(x.data), 3 * np.linalg.matrix_power(x.data, 2).T)


# Refusals


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: np.cross(x, x), ValueError, r"3 components; got 2 and 2. In the plane, write a\[\.\.\., 0\] \* b"),
        (lambda x: np.einsum("ij,jk", x), ValueError, "subscripts for 2 operands; got 1"),
        (lambda x: np.einsum("...i->i", x), ValueError, r"the output needs '\.\.\.' too"),
        (lambda x: np.einsum("ij->ij", x, dtype=float), TypeError, "dtype"),
        (lambda x: np.einsum("ij->ij", x, out=np.ones((2, 2))), TypeError, "out"),
        (lambda x: np.einsum("ijk->i", x), ValueError, "einstein"),
        (lambda x: np.tensordot(x, np.ones((3, 2)), 1), ValueError, r"equal lengths; got \[-1\] of \(2, 2\) and \[0\]"),
        (lambda x: np.linalg.multi_dot([x]), ValueError, "at least two arrays; got 1"),
        (lambda x: np.convolve(x[0], x[1], "half"), ValueError, "'full', 'same' or 'valid'; got 'half'"),
        (lambda x: np.convolve(x[0], x[1, :0]), ValueError, "empty"),
        (lambda x: np.trace(x, dtype=np.float32), TypeError, "dtype"),
        (lambda x: np.dot(x, x, out=np.ones((2, 2))), TypeError, "out"),
        (lambda x: np.vecdot(x, x, keepdims=True), TypeError, "keepdims"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(leaf([[1.0, 2.0], [3.0, 4.0]]))
