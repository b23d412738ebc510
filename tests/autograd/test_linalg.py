"""Linear algebra: conventions and edges that the table of primitives cannot say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad
from chainrule.autograd import gradients

EIGH = type(np.linalg.eigh(np.eye(1)))
SVD = type(np.linalg.svd(np.eye(1)))
QR = type(np.linalg.qr(np.eye(1)))
SLOGDET = type(np.linalg.slogdet(np.eye(1)))


def leaf(data):
    return Tensor(np.array(data, dtype=float), requires_grad=True)


def some(*shape):
    return np.random.default_rng(3).standard_normal(shape)


# What is returned


def test_results_are_numpys_named_tuples_of_tensors():
    a = leaf(some(3, 3) + 3 * np.eye(3))
    for result, kind in [
        (np.linalg.eigh(a), EIGH),
        (np.linalg.svd(a), SVD),
        (np.linalg.qr(a), QR),
        (np.linalg.slogdet(a), SLOGDET),
    ]:
        assert type(result) is kind
        for part, wanted in zip(result, getattr(np.linalg, kind.__name__.removesuffix("Result").lower())(a.data), strict=True):
            assert isinstance(part, Tensor)
            assert_allclose(part.data, wanted, rtol=1e-14)
    assert not np.linalg.slogdet(a).sign.requires_grad
    assert np.linalg.matrix_rank(a) == 3


def test_lstsq_without_residuals():
    x, residuals, rank, s = np.linalg.lstsq(leaf(some(2, 3)), some(2))
    assert x.shape == (3,)
    assert residuals.shape == (0,)
    assert rank == 2
    assert s.shape == (2,)


# Determinants


def test_det_where_the_inverse_does_not_exist():
    """The cofactors by hand; of rank n - 2 they are all 0, yet the second derivative is not."""
    assert_allclose(grad(np.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]])), [[4.0, -2.0], [-2.0, 1.0]], rtol=1e-14)
    assert_array_equal(grad(np.linalg.det)(np.zeros((3, 3))), np.zeros((3, 3)))
    second = grad(lambda a: grad(np.linalg.det)(a)[0, 0])(np.zeros((2, 2)))
    assert_allclose(second, [[0.0, 0.0], [0.0, 1.0]], atol=1e-15)
    second = grad(lambda a: grad(np.linalg.det)(a)[0, 1])(np.diag([0.0, 0.0, 5.0]))
    assert_allclose(second, [[0.0, 0.0, 0.0], [-5.0, 0.0, 0.0], [0.0, 0.0, 0.0]], atol=1e-14)


def test_third_derivative_of_det():
    """det of 3 x 3 is a sum of products a[0,i] a[1,j] a[2,k] with signs ±1."""

    def first(a):
        return grad(np.linalg.det)(a)[0, 0]

    def second(a):
        return grad(first)(a)[1, 1]

    assert_allclose(grad(second)(some(3, 3)), np.diag([0.0, 0.0, 1.0]), atol=1e-13)


def test_slogdet_of_a_singular_matrix_that_is_not_used():
    a = leaf(np.stack([2 * np.eye(2), np.ones((2, 2))]))
    with np.errstate(divide="ignore"):
        log = np.linalg.slogdet(a).logabsdet
    assert_array_equal(gradients(log, [a], [1.0, 0.0])[0], [0.5 * np.eye(2), np.zeros((2, 2))])
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        gradients(log, [a], [1.0, 1.0])


# One triangle is read


@pytest.mark.parametrize(
    ("call", "lower"),
    [
        (np.linalg.cholesky, True),
        (lambda a: np.linalg.cholesky(a, upper=True), False),
        (np.linalg.eigvalsh, True),
        (lambda a: np.linalg.eigvalsh(a, UPLO="U"), False),
        (lambda a: np.linalg.eigh(a)[1], True),
        (lambda a: np.linalg.eigh(a, "u")[1], False),
    ],
)
def test_the_triangle_that_is_not_read_has_no_gradient(call, lower):
    b = some(3, 3)
    a = leaf(b @ b.T + np.eye(3))
    y = call(a)
    found = gradients(y, [a], some(*y.shape))[0]
    other = np.triu(found, 1) if lower else np.tril(found, -1)
    assert not other.any()
    assert (found != 0).sum() == 6


# Where values are equal


def test_equal_eigenvalues():
    """The values have a derivative in all that treats them alike, such as the trace; the vectors have none."""
    a = leaf(2 * np.eye(3))
    w, v = np.linalg.eigh(a)
    assert_allclose(gradients(np.sum(w**2), [a])[0], 4 * np.eye(3), rtol=1e-14)
    assert not np.isfinite(gradients(v[0, 1] * 1, [a])[0]).all()
    assert_allclose(gradients(np.sum(np.linalg.eigvalsh(a) ** 2), [a])[0], 4 * np.eye(3), rtol=1e-14)


def test_equal_singular_values():
    a = leaf(2 * np.eye(3))
    u, s, _ = np.linalg.svd(a)
    assert_allclose(gradients(np.sum(s**2), [a])[0], 4 * np.eye(3), rtol=1e-14)
    assert not np.isfinite(gradients(u[0, 1] * 1, [a])[0]).all()
    assert_allclose(gradients(np.linalg.norm(a, "nuc"), [a])[0], np.eye(3), rtol=1e-14)


def test_a_function_of_a_matrix_does_not_see_the_sign_of_its_vectors():
    """exp of a symmetric matrix by its eigenvectors: the derivative of the trace of exp(a) is exp(a)."""
    b = some(3, 3)
    a = leaf(b + b.T)
    w, v = np.linalg.eigh((a + a.T) / 2)
    exp = (v * np.exp(w)) @ v.T
    assert_allclose(gradients(np.trace(exp), [a])[0], exp.data, rtol=1e-12)


def test_pseudo_inverse_of_a_matrix_without_full_rank():
    """Along changes that keep the rank, here a scaling: (t a)⁺ = a⁺ / t."""
    a = leaf(np.outer([1.0, 2.0, 3.0], [1.0, -1.0]))
    y = np.linalg.pinv(a)
    u = some(2, 3)
    assert_allclose(np.vdot(gradients(y, [a], u)[0], a.data), -np.vdot(u, y.data), rtol=1e-12)


# Norms


@pytest.mark.parametrize("ord", [None, 1, 3, 0.5, 0, np.inf, -np.inf])
def test_norms_at_0_have_derivatives_0_at_both_orders(ord):
    def norm(x):
        return np.linalg.norm(x, ord)

    zero = np.zeros(3)
    assert_array_equal(grad(norm)(zero), zero)
    assert_array_equal(grad(lambda x: np.sum(grad(norm)(x)))(zero), zero)


def test_second_derivative_of_the_norm():
    x = np.array([3.0, 4.0])
    hessian = [grad(lambda x: grad(np.linalg.norm)(x)[i])(x) for i in range(2)]  # noqa: B023 (called at once)
    assert_allclose(hessian, (np.eye(2) - np.outer(x, x) / 25) / 5, rtol=1e-14)


def test_norm_without_a_name_is_over_everything():
    x = leaf(some(2, 3, 2))
    assert_allclose(gradients(np.linalg.norm(x), [x])[0], x.data / np.linalg.norm(x.data), rtol=1e-14)


def test_float32_is_kept():
    a = Tensor(np.eye(2, dtype=np.float32) * [1, 2] + np.float32(0.25), requires_grad=True, dtype=np.float32)
    for y in [
        np.linalg.norm(a, 3, axis=np.int64(0)),
        np.linalg.norm(a[0], np.float64(2.5)),
        np.linalg.matrix_power(a, 0),
        np.linalg.det(a),
        np.linalg.cond(a),
    ]:
        assert y.dtype == np.float32
        assert gradients(y, [a], np.ones(y.shape))[0].dtype == np.float32


# Refusals


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (np.linalg.svd, TypeError, "Pass full_matrices=False"),
        (lambda a: np.linalg.svd(a, full_matrices=False, hermitian=True), TypeError, "hermitian"),
        (lambda a: np.linalg.pinv(a, hermitian=True), TypeError, "hermitian"),
        (lambda a: np.linalg.qr(a, mode="complete"), TypeError, "'reduced' and 'r'; got 'complete' for a 3 x 2 matrix"),
        (lambda a: np.linalg.qr(a, mode="raw"), TypeError, "'raw'"),
        (lambda a: np.linalg.norm(a, "nonsense"), ValueError, "'nonsense' for matrices"),
        (lambda a: np.linalg.norm(a, "fro", axis=0), ValueError, "'fro' for vectors"),
        (lambda a: np.linalg.norm(a, axis=(0, 1, 2)), ValueError, "got 3"),
        (lambda a: np.linalg.inv(a @ a.T), np.linalg.LinAlgError, "Singular"),
        (lambda a: np.linalg.matrix_power(a @ a.T, 1.5), TypeError, "integer"),
        (lambda a: np.linalg.tensorinv(a, ind=0), ValueError, "at least 1; got 0"),
        (np.linalg.eig, TypeError, "np.linalg.eig is not covered"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(leaf([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
