"""Positions: sinusoids, learned vectors, rotations, distances."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, default_dtype
from chainrule.autograd import gradients
from chainrule.autograd.graph import find
from chainrule.nn.attention import Attention
from chainrule.nn.positions import LearnedPositions, Rope, alibi, rope, rotate, sinusoidal

RNG = np.random.default_rng(0)


def leaf(data):
    return Tensor(data, requires_grad=True)


# Added to the embeddings


def test_sinusoidal_by_hand():
    table = sinusoidal(3, 4)
    assert_allclose(table[0], [0, 1, 0, 1])
    assert_allclose(table[2], [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)], rtol=1e-15)
    assert_array_equal(sinusoidal(2, 4, offset=1), table[1:])
    assert_allclose(sinusoidal(2, 3)[1], [np.sin(1), np.cos(1), np.sin(10000 ** (-2 / 3))], rtol=1e-15)  # d is odd


def test_sinusoidal_shift_is_a_rotation():
    """Vaswani et al. 2017, 3.5: P[p + k] is a linear function of P[p], so ⟨P[p], P[r]⟩ depends on r - p only."""
    table = sinusoidal(20, 6)
    products = table @ table.T
    for k in range(20):
        assert_allclose(np.diagonal(products, k), products[0, k], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes(dtype):
    assert sinusoidal(3, 4, dtype).dtype == dtype
    with default_dtype(dtype):
        assert sinusoidal(3, 4).dtype == alibi(2, 3).dtype == LearnedPositions(3, 2)(2).dtype == dtype
    x = leaf(RNG.standard_normal((3, 4)).astype(dtype))
    for y in (rope(x, np.arange(3)), Rope(halves=True)(x, 5)):
        assert y.dtype == dtype
        assert gradients(y, [x], np.ones((3, 4)))[0].dtype == dtype


def test_learned_positions():
    positions = LearnedPositions(5, 2, seed=1)
    P = positions.P
    assert P.shape == (5, 2)
    assert_array_equal(positions(3).data, P.data[:3])
    y = positions(2, offset=3)
    assert_array_equal(y.data, P.data[3:])
    y.backward(np.ones((2, 2)))
    assert_array_equal(P.grad, [[0, 0]] * 3 + [[1, 1]] * 2)
    with pytest.raises(ValueError, match=r"There are 5 positions; asked for 3\.\.5"):
        positions(3, offset=3)


# Rotations


def test_rope_by_hand():
    """Two features turn by the position's angle: (1, 0) at position p is (cos p, sin p)."""
    x = np.array([[1.0, 0], [1, 0], [0, 1]])
    wanted = [[1, 0], [np.cos(1), np.sin(1)], [-np.sin(2), np.cos(2)]]
    assert_allclose(rope(x, np.arange(3)), wanted, rtol=1e-15)
    assert_allclose(rope(x, np.arange(3), halves=True), wanted, rtol=1e-15)
    assert_allclose(rope(np.array([[0, 0, 1.0, 0]]), [3], base=100.0), [[0, 0, np.cos(0.3), np.sin(0.3)]], rtol=1e-15)


@pytest.mark.parametrize("halves", [False, True])
def test_rotated_scores_depend_on_the_distance_only(halves):
    """Notes 15.6: (R_p q) · (R_r k) = q · (R_{r-p} k)."""
    q, k = RNG.standard_normal(6), RNG.standard_normal(6)

    def at(x, p):
        return rope(x[None], [p], halves=halves)[0]

    for distance in (-4, 0, 3):
        wanted = q @ at(k, distance)
        for p in (0, 1, 7, 1000):
            assert_allclose(at(q, p) @ at(k, p + distance), wanted, rtol=1e-10)
    assert_allclose(np.linalg.norm(at(q, 17)), np.linalg.norm(q), rtol=1e-14)
    assert abs(q @ at(k, 1) - q @ at(k, 2)) > 1e-3


def test_the_two_conventions_differ_by_the_order_of_features():
    x, order = RNG.standard_normal((5, 8)), [0, 2, 4, 6, 1, 3, 5, 7]
    assert_allclose(rope(x[:, order], np.arange(5), halves=True), rope(x, np.arange(5))[:, order], rtol=1e-15)


def test_positions_of_each_row():
    """Positions may differ in a batch, as for sentences that are padded on the left."""
    x = RNG.standard_normal((2, 1, 3, 4))
    positions = np.array([[0, 1, 2], [5, 6, 7]])[:, None]
    y = rope(x, positions)
    assert_array_equal(y[0], rope(x[0], np.arange(3)))
    assert_array_equal(y[1], rope(x[1], np.arange(5, 8)))


def test_rope_with_an_offset():
    x = RNG.standard_normal((2, 6, 4))
    assert_array_equal(Rope()(x), rope(x, np.arange(6)))
    assert_array_equal(Rope()(x[:, 4:], 4), Rope()(x)[:, 4:])
    assert_array_equal(Rope(base=50.0, halves=True)(x, 3), rope(x, np.arange(3, 9), base=50.0, halves=True))


def test_far_positions_keep_their_angle():
    """Angles are taken in float64: in float32, position 1e6 would be off by a thirtieth of a turn."""
    x = np.array([[1.0, 0]], np.float32)
    assert_allclose(rope(x, [1_000_003])[0], [np.cos(1_000_003), np.sin(1_000_003)], rtol=1e-5)


def test_the_gradient_is_rotated_back():
    x, g = leaf(RNG.standard_normal((3, 4))), RNG.standard_normal((3, 4))
    assert_allclose(gradients(rope(x, np.arange(3)), [x], g)[0], rope(g, -np.arange(3)), rtol=1e-14)


def test_rope_errors():
    for call in [lambda x: rope(x, np.arange(2)), Rope()]:
        with pytest.raises(ValueError, match=r"rows with pairs of features, x \(…, n, d\) with d even; got x \(2, 3\)"):
            call(np.ones((2, 3)))


@pytest.mark.parametrize("positions", [[0, np.nan], [0, 1, 2], [[0, 1], [2, 3]], ["a", "b"]], ids=str)
def test_positions_that_are_none(positions):
    with pytest.raises(ValueError, match=r"Positions are finite numbers, one for each row of x \(2, 4\); got an array"):
        rope(np.ones((2, 4)), positions)


def test_lengths_and_offsets_that_are_none():
    learned = LearnedPositions(8, 16)
    for ids in (np.ones((2, 3), int), Tensor(np.ones((2, 3, 16)))):
        with pytest.raises(ValueError, match=r"takes how many positions, such as ids\.shape\[-1\]; got an array"):
            learned(ids)
    for call in (learned, sinusoidal):
        with pytest.raises(ValueError, match="length is a whole number, at least 0; got -1"):
            call(-1, 2)
    for call in (lambda offset: learned(2, offset), lambda offset: Rope()(np.ones((2, 4)), offset)):
        for wrong in (-1, 0.5):
            with pytest.raises(ValueError, match="offset is a whole number, at least 0"):
                call(wrong)
    for wrong in [(2, -3), (2, 3, -1), (2, 1.5)]:
        with pytest.raises(ValueError, match="is a whole number, at least 0"):
            alibi(*wrong)
    assert_array_equal(learned(np.int64(2), 1).data, learned.P.data[1:3])


def test_attention_with_rope_does_not_see_a_shift():
    attn = Attention(8, 2, rope=Rope(), std=0.5)
    x = RNG.standard_normal((4, 8))
    y = attn(x)
    assert find(y, "Q").primitive is rotate
    Q, K = (np.swapaxes((x @ W.data).reshape(4, 2, 4), 0, 1) for W in (attn.WQ, attn.WK))
    assert_allclose(find(y, "Q").data, rope(Q, np.arange(4)), rtol=1e-14)
    shifted = rope(Q, np.arange(9, 13)) @ np.swapaxes(rope(K, np.arange(9, 13)), 1, 2)
    assert_allclose(shifted, find(y, "Q").data @ np.swapaxes(find(y, "K").data, 1, 2), rtol=1e-10)


# Distances


def test_alibi_by_hand():
    """Press et al. 2022: the slopes of 8 heads are 1/2, 1/4, …, 1/256; of 2, 1/16 and 1/256."""
    bias = alibi(8, 3)
    assert bias.shape == (8, 3, 3)
    assert_array_equal(-bias[:, 1, 0], 0.5 ** np.arange(1, 9))
    assert_array_equal(bias[0], [[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]])
    assert_array_equal(-alibi(2, 2)[:, 1, 0], [1 / 16, 1 / 256])
    assert_allclose(-alibi(3, 2)[:, 1, 0], [1 / 16, 1 / 256, 1 / 4])
    assert_array_equal(alibi(2, 1, 4)[0], [[-3 / 16, -2 / 16, -1 / 16, 0]])
    assert_array_equal(alibi(4, 2, 5), alibi(4, 5)[:, 3:])
