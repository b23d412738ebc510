"""softmax, cross_entropy, attention: the kernel equals the definition, and both stand the extremes.

Their derivatives against differences, and their dtypes: tests/autograd/test_primitives.py. More of attention:
test_attention.py.
"""

import numpy as np
import pytest
from differences import ridders
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp, nn
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.tensor import value_of

RNG = np.random.default_rng(0)
MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, False, True]])  # a row reads nothing
CASES = {
    "softmax": (nn.softmax, [RNG.standard_normal((2, 3, 4))]),
    "softmax axis 0": (lambda S: nn.softmax(S, axis=0), [RNG.standard_normal((3, 4))]),
    "softmax masked": (lambda S: nn.softmax(S, MASK), [RNG.standard_normal((2, 3, 4))]),
    "cross_entropy": (lambda logits: nn.cross_entropy(logits, [[0, 1], [2, 2]]), [RNG.standard_normal((2, 2, 3))]),
    "cross_entropy of one": (lambda logits: nn.cross_entropy(logits, 1), [RNG.standard_normal(3)]),
    "attention": (nn.attention, [RNG.standard_normal(s) for s in [(3, 2), (4, 2), (4, 5)]]),
    "attention masked": (
        lambda Q, K, V: nn.attention(Q, K, V, MASK),
        [RNG.standard_normal(s) for s in [(2, 3, 2), (2, 4, 2), (4, 5)]],
    ),
    "attention to itself": (lambda X: nn.attention(X, X, X, nn.causal_mask(3, 3)), [RNG.standard_normal((2, 3, 4))]),
}
each_case = pytest.mark.parametrize(("f", "arrays"), CASES.values(), ids=CASES.keys())


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def both_ways(f, arrays):
    leaves = [leaf(x) for x in arrays]
    fused = f(*leaves)
    with open_fused():
        opened = f(*leaves)
    return leaves, fused, opened


# One definition, one kernel


@each_case
def test_kernel_equals_definition(f, arrays):
    leaves, fused, opened = both_ways(f, arrays)
    assert fused.primitive.definition is not None
    assert opened.primitive is not fused.primitive
    assert_allclose(fused.data, opened.data, rtol=1e-14, atol=1e-16)
    u = np.random.default_rng(1).standard_normal(fused.shape)
    for g, wanted in zip(gradients(fused, leaves, u), gradients(opened, leaves, u), strict=True):
        assert_allclose(g, wanted, rtol=1e-13, atol=1e-15)


@each_case
def test_kernel_equals_definition_in_second_order(f, arrays):
    """The Hessian times v: by differences of the kernel's gradient along v, and by the rules of the definition."""
    rng = np.random.default_rng(1)
    u = rng.standard_normal(np.shape(f(*map(Tensor, arrays))))
    v = [rng.standard_normal(x.shape) for x in arrays]
    gradient = grad(lambda *xs: np.sum(f(*xs) * u), range(len(arrays)))

    def flat_gradient(*xs):
        return np.concatenate([np.ravel(g) for g in gradient(*xs)])

    by_kernel = ridders(lambda t: flat_gradient(*(x + t * along for x, along in zip(arrays, v, strict=True))))
    with open_fused():
        _, by_definition = jvp(flat_gradient, arrays, v)
    assert_allclose(by_kernel, by_definition, rtol=1e-9, atol=1e-10)


@each_case
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_definition_keeps_the_dtype_too(f, arrays, dtype):
    leaves, fused, opened = both_ways(f, [x.astype(dtype) for x in arrays])
    tolerance = 20 * np.finfo(dtype).eps
    assert fused.dtype == opened.dtype == dtype
    assert_allclose(fused.data, opened.data, rtol=tolerance, atol=tolerance)
    for g in gradients(opened, leaves, np.ones(opened.shape)):
        assert g.dtype == dtype


# softmax


def test_softmax_by_hand():
    assert_allclose(nn.softmax(leaf(np.log([1.0, 2.0, 5.0]))).data, [1 / 8, 2 / 8, 5 / 8], rtol=1e-15)
    assert_allclose(nn.softmax(np.array([[2.0, 1.0, 0.0]])), [[0.66524096, 0.24472847, 0.09003057]], rtol=1e-7)


@pytest.mark.parametrize("opened", [False, True])
def test_softmax_of_huge_scores(opened):
    S = leaf([1e300, -1e300, 1e300])
    with open_fused(opened):
        A = nn.softmax(S)
        assert_array_equal(A.data, [0.5, 0, 0.5])
        assert_array_equal(gradients(A, [S], [1.0, 0, 0])[0], [0.25, 0, -0.25])
        assert_array_equal(gradients(nn.softmax(S + 12345.0), [S], [1.0, 0, 0])[0], [0.25, 0, -0.25])


@pytest.mark.parametrize("opened", [False, True])
def test_masked_entries_are_exactly_zero(opened):
    S = leaf(RNG.standard_normal((3, 4)))
    with open_fused(opened):
        A = nn.softmax(S, MASK)
        assert_array_equal(A.data[~MASK], 0)
        assert_allclose(A.data.sum(-1), [1, 0, 1], rtol=1e-15)
        for create_graph in (False, True):
            (slope,) = gradients(A, [S], RNG.standard_normal((3, 4)), create_graph=create_graph)
            slope = value_of(slope)
            assert_array_equal(slope[~MASK], 0)
            assert np.isfinite(slope).all()


@pytest.mark.parametrize("opened", [False, True])
def test_a_row_that_reads_nothing(opened):
    """It gives zeros, with zero gradient, of every order; whatever the scores are."""
    for scores in ([1.0, 2.0], [1e300, -1e300], [0.0, 0.0]):
        S, nothing = np.array(scores), np.zeros(2, dtype=bool)
        with open_fused(opened):
            assert_array_equal(nn.softmax(leaf(S), nothing).data, 0)
            slope = grad(lambda S, mask=nothing: np.sum(nn.softmax(S, mask) * [1.0, 3.0]))
            assert_array_equal(slope(S), 0)
            assert_array_equal(grad(lambda S, slope=slope: np.sum(slope(S) * [1.0, 5.0]))(S), 0)
    Q, K, V = leaf(np.ones((1, 2))), leaf(np.ones((3, 2))), leaf(np.ones((3, 4)))
    with open_fused(opened):
        Z = nn.attention(Q, K, V, np.zeros((1, 3), dtype=bool))
        assert_array_equal(Z.data, 0)
        for g in gradients(Z, [Q, K, V], np.ones((1, 4))):
            assert_array_equal(g, 0)


def test_softmax_of_integers_and_of_a_number():
    """As of float64, along any axis; of one score it is 1."""
    for scores in (
        [[1, 2, 0], [3, 0, 7]],
        np.array([[1, 2, 0], [3, 0, 7]], np.int8),
        Tensor([[1, 2, 0], [3, 0, 7]], dtype=int),
    ):
        for axis in (0, -1):
            a = nn.softmax(scores, axis=axis)
            assert a.dtype == np.float64
            assert_allclose(np.asarray(a), nn.softmax(np.array([[1.0, 2, 0], [3, 0, 7]]), axis=axis), rtol=1e-15)
    assert nn.softmax(2.0) == 1
    assert_allclose(nn.softmax([True, False]), nn.softmax(np.array([1.0, 0.0])), rtol=1e-15)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_of_many_in_float16(axis):
    a = nn.softmax(np.zeros((70_000, 2) if axis == 0 else (2, 70_000), np.float16), axis=axis)
    assert a.dtype == np.float16
    assert_array_equal(a, np.float16(1 / 70_000))


def test_mask_errors():
    S = leaf(np.zeros((2, 3)))
    for call in [nn.softmax, nn.softmax.definition]:
        with pytest.raises(TypeError, match="A mask is boolean, True where a query may read a key; got dtype float64"):
            call(S, np.ones((2, 3)))
        with pytest.raises(ValueError, match=r"must broadcast to the scores' shape \(2, 3\); got \(4, 2, 3\)"):
            call(S, np.ones((4, 2, 3), dtype=bool))


# cross_entropy


def test_cross_entropy_by_hand():
    logits = leaf(np.log([[1.0, 3.0], [1.0, 1.0]]))
    loss = nn.cross_entropy(logits, [1, 0])
    assert_allclose(loss.data, (np.log(4 / 3) + np.log(2)) / 2, rtol=1e-15)
    loss.backward()
    assert_allclose(logits.grad, [[1 / 8, -1 / 8], [-1 / 4, 1 / 4]], rtol=1e-15)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_cross_entropy_is_finite_for_any_finite_logits(opened, dtype):
    big = float(np.finfo(dtype).max) / 4
    for logits, target, loss in [
        ([big, 0.0, -big], 0, 0.0),
        ([big, 0.0, -big], 1, big),
        ([big, 0.0, -big], 2, 2 * big),
        ([big, big], 0, np.log(2)),
        ([-big, -big], 1, np.log(2)),
        ([-big, 0.0], 1, 0.0),
    ]:
        x = leaf(np.array(logits, dtype))
        with open_fused(opened):
            y = nn.cross_entropy(x, target)
            slope = gradients(y, [x])[0]
        assert_allclose(y.data, loss, rtol=2 * np.finfo(dtype).eps)
        assert np.isfinite(slope).all()
        p = nn.softmax(x.data)
        assert_allclose(slope, p - np.eye(len(logits))[target], rtol=2 * np.finfo(dtype).eps)


def test_cross_entropy_of_1e300():
    x = leaf([1e300, 0.0, -1e300])
    y = nn.cross_entropy(x, 2)
    assert y.item() == 2e300
    assert_array_equal(gradients(y, [x])[0], [1, 0, -1])
    assert_array_equal(grad(lambda x: np.sum(grad(nn.cross_entropy)(x, 2) * [1.0, 2.0, 3.0]))(x.data), [0, 0, 0])


def test_cross_entropy_errors():
    logits = leaf(np.zeros((2, 3)))
    for call in [nn.cross_entropy, nn.cross_entropy.definition]:
        with pytest.raises(TypeError, match=r"Targets are integers.*got dtype float64"):
            call(logits, np.array([0.0, 1.0]))
        with pytest.raises(ValueError, match=r"got logits \(2, 3\) and targets \(3,\): expected \(2,\)"):
            call(logits, np.array([0, 1, 2]))
        with pytest.raises(ValueError, match=r"Targets must lie in 0\.\.2; got 0\.\.3"):
            call(logits, np.array([0, 3]))
        with pytest.raises(ValueError, match=r"Targets must lie in 0\.\.2; got -1\.\.1"):
            call(logits, np.array([-1, 1]))
        with pytest.raises(ValueError, match="The mean loss over no target is undefined"):
            call(leaf(np.zeros((0, 3))), np.zeros(0, dtype=int))
