"""Attention: the notes' numbers, the kernels against the definition, masks, heads, and the module."""

import tracemalloc
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, default_dtype, named, nn, no_grad, trace
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.graph import ancestors, find, opened
from chainrule.nn.attention import Attention, attention, causal_mask, padding_mask, tiled_attention
from chainrule.nn.positions import LearnedPositions, Rope, alibi, sinusoidal

attention_module = import_module("chainrule.nn.attention")  # chainrule.nn.attention is the function
RNG = np.random.default_rng(0)
each_kernel = pytest.mark.parametrize("f", [attention, tiled_attention], ids=["attention", "tiled_attention"])


def leaf(data):
    return Tensor(data, requires_grad=True)


def normal(*shape, dtype=float):
    return RNG.standard_normal(shape).astype(dtype)


def with_weights(module, **weights):
    for name, weight in weights.items():
        getattr(module, name).data = np.array(weight, float)
    return module


# The numbers of the notes


@each_kernel
def test_the_weights_of_notes_3_1(f):
    """q = (1, 0) on keys (1, 0), (0, 1), (-1, 0): scores (1, 0, -1), here without a scale."""
    q, K, V = np.array([[1.0, 0.0]]), np.array([[1.0, 0], [0, 1], [-1, 0]]), np.array([[2.0, 0], [0, 2], [0, 0]])
    assert_allclose(f(q, K, np.eye(3), scale=1.0), [[0.665, 0.245, 0.090]], atol=5e-4)
    assert_allclose(f(q, K, V, scale=1.0), [[1.33, 0.49]], atol=5e-3)
    assert_allclose(f(0 * q, K, np.eye(3)), np.full((1, 3), 1 / 3), rtol=1e-15)


@each_kernel
def test_the_scaled_scores_of_notes_5_5(f):
    q, K = leaf([[np.sqrt(2), 0.0]]), leaf([[np.log(2), 0], [0, 1], [0, -1]])
    V = leaf([[0.0, 0], [4, 0], [0, 4]])
    Z = f(q, K, V)
    assert_allclose(Z.data, [[1, 1]], rtol=1e-15)
    assert_allclose(gradients(Z, [V], [[1.0, 0]])[0], [[1 / 2, 0], [1 / 4, 0], [1 / 4, 0]], rtol=1e-15)


@each_kernel
def test_the_matrix_form_is_the_sums_of_vectors(f):
    """Notes 6.1: X (5, d), Q and K (5, 64), V (5, 3), entry by entry."""
    Q, K, V = normal(5, 64), normal(5, 64), normal(5, 3)
    Z = f(Q, K, V)
    for i in range(5):
        scores = [sum(Q[i, c] * K[j, c] for c in range(64)) / 8 for j in range(5)]
        total = sum(np.exp(s) for s in scores)
        for c in range(3):
            assert_allclose(Z[i, c], sum(np.exp(s) / total * V[j, c] for j, s in enumerate(scores)), rtol=1e-12)


@pytest.mark.parametrize(("causal", "pairs"), [(False, 25), (True, 15)])
def test_pairs_that_may_be_read(causal, pairs):
    """Notes 8.1-8.5: of five tokens, 25 pairs, 15 under the causal mask."""
    A = attention(normal(5, 4), normal(5, 4), np.eye(5), causal=causal)
    assert np.count_nonzero(A) == pairs
    assert_allclose(A.sum(-1), np.ones(5), rtol=1e-14)


def test_no_leak_through_layers():
    """Notes 8.6: ∂h_i/∂x_j is exactly 0 for j > i, through any number of layers; and it is there for the others."""
    layers = [Attention(4, 2, causal=True, seed=seed, std=0.5) for seed in range(3)]
    x = leaf(normal(6, 4))
    h = x
    for layer in layers:
        h = h + layer(h)
    for i in range(6):
        (slope,) = gradients(h[i], [x], np.ones(4))
        assert_array_equal(slope[i + 1 :], 0)
        assert np.all(slope[: i + 1] != 0)


def test_scores_need_not_be_symmetric():
    """Notes 15.8: a asks b and b does not ask a, for WQ WKᵀ is no symmetric matrix; its rank is d_k at most."""
    attn = with_weights(Attention(2, d_head=1, d_value=2), WQ=[[1], [0]], WK=[[0], [1]], WV=np.eye(2), WO=np.eye(2))
    e = np.e
    assert_allclose(attn(np.eye(2)).data, [[1 / (1 + e), e / (1 + e)], [1 / 2, 1 / 2]], rtol=1e-15)
    product = attn.WQ.data @ attn.WK.data.T
    assert_array_equal(product, [[0, 1], [0, 0]])
    attn = Attention(6, 1, d_head=2, seed=1)
    assert np.linalg.matrix_rank(attn.WQ.data @ attn.WK.data.T) == 2
    attn.WK.data = attn.WQ.data
    assert np.linalg.eigvalsh(attn.WQ.data @ attn.WK.data.T).min() > -1e-15


def test_permutation_of_the_input_permutes_the_output():
    """Notes 7.2, 15.6: as long as nothing tells the order. Positions of any kind, or the causal mask, tell it."""
    x, order = normal(5, 8), np.array([3, 0, 4, 1, 2])
    plain = Attention(8, 2, std=0.5)
    assert_allclose(plain(x[order]).data, plain(x).data[order], rtol=1e-12)
    learned = LearnedPositions(5, 8, std=1.0)(5).data
    for f in [
        Attention(8, 2, std=0.5, causal=True),
        Attention(8, 2, std=0.5, rope=Rope()),
        lambda x: plain(x, bias=alibi(2, 5)),
        lambda x: plain(x + sinusoidal(5, 8)),
        lambda x: plain(x + learned),
    ]:
        assert np.max(abs(f(x[order]).data - f(x).data[order])) > 1e-3


def test_heads_joined_or_summed():
    """Notes 6.4, 6.5: Concat(Z¹ … Z^H) WO is the sum of the heads' Z^h times their slice of WO; WO is (H·d_v, d)."""
    attn = Attention(6, 3, d_value=4, bias=True, causal=True, std=0.5)
    attn.bO.data = normal(6)
    x = normal(2, 5, 6)
    assert attn.WO.shape == (12, 6)
    y = attn(x)
    Z = find(y, "Z").data  # (B, H, T, d_v)
    assert_allclose(y.data, np.concatenate([Z[:, h] for h in range(3)], -1) @ attn.WO.data + attn.bO.data, rtol=1e-12)
    outputs = attn.head_outputs(x)
    assert outputs.shape == (2, 3, 5, 6)
    for h in range(3):
        assert_allclose(outputs.data[:, h], Z[:, h] @ attn.WO.data[4 * h : 4 * h + 4], rtol=1e-12)
    assert_allclose(np.sum(outputs, axis=1).data + attn.bO.data, y.data, rtol=1e-12)


def test_value_factors():
    """Brief B16: the d×d map of a head's values is a product of two of rank d_v; its second factor is a slice of WO."""
    attn = Attention(8, 4, n_kv_head=2, causal=True, std=0.5)
    attn.keep_pattern = True
    x = normal(5, 8)
    outputs = attn.head_outputs(x).data
    for h in range(4):
        down, up = attn.value_factors(h)
        assert (down.shape, up.shape) == ((8, 2), (2, 8))
        assert_array_equal(up.data, attn.WO.data[2 * h : 2 * h + 2])
        assert_allclose(attn.pattern[h] @ x @ (down @ up).data, outputs[h], rtol=1e-11)
        assert np.linalg.matrix_rank((down @ up).data) == 2


# The kernels and the definition


def same_both_ways(f, Q, K, V, *more, rtol=1e-12, **options):
    """Value and gradients of the kernel and of the definition; the gradients are of ⟨u, Z⟩."""
    inputs = [leaf(x) if isinstance(x, np.ndarray) and x.dtype != bool else x for x in (Q, K, V, *more)]
    fused = f(*inputs, **options)
    by_definition = f.definition(*inputs, **{key: value for key, value in options.items() if key != "block"})
    u = np.random.default_rng(1).standard_normal(fused.shape)
    leaves = [x for x in inputs if isinstance(x, Tensor)]
    pairs = zip(gradients(fused, leaves, u), gradients(by_definition, leaves, u), strict=True)
    for found, wanted in [(fused.data, by_definition.data), *pairs]:
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype == Q.dtype
        assert np.all(np.isfinite(found))
        scale = np.max(abs(wanted), initial=1.0)  # of the terms, which may cancel
        assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale)
    return fused


@st.composite
def calls(draw):
    """Shapes that fit together: leading axes that broadcast, any lengths, a mask and a bias or none."""
    lead = draw(st.lists(st.integers(1, 3), max_size=3))
    n, m, d, e = (draw(st.integers(1, most)) for most in (5, 5, 3, 3))

    def repeated(shape):
        kept = [draw(st.sampled_from([size, 1])) for size in shape]
        return tuple(kept[draw(st.integers(0, len(kept))) :])

    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    Q, K, V = (rng.standard_normal(s) for s in [(*lead, n, d), (*repeated(lead), m, d), (*repeated(lead), m, e)])
    mask = rng.random(repeated((*lead, n, m))) < 0.6 if draw(st.booleans()) else None
    bias = rng.standard_normal(repeated((*lead, n, m))) if draw(st.booleans()) else None
    return (Q, K, V, mask, bias), draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(calls())
def test_kernels_equal_the_definition(call):
    inputs, causal = call
    same_both_ways(attention, *inputs, causal=causal)
    same_both_ways(tiled_attention, *inputs, causal=causal, block=2)


@each_kernel
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 2e-5), (np.float16, 1e-2)])
def test_many_blocks(f, dtype, rtol):
    """Lengths that are no multiple of a block, arrays that are views of others, more keys than queries and fewer."""
    for n, m in [(70, 201), (150, 150), (140, 70)][: 1 if dtype == np.float16 else 3]:
        flat = [normal(2, length, 6 * 8, dtype=dtype) for length in (n, m, m)]
        Q, K, V = (np.swapaxes(x.reshape(2, -1, 6, 8), 1, 2) for x in flat)
        bias = normal(6, 1, m, dtype=dtype)
        same_both_ways(f, Q, K, V, causal=True, rtol=rtol)
        same_both_ways(f, Q, K, V, RNG.random((2, 1, n, m)) < 0.7, bias, causal=True, rtol=rtol)


@each_kernel
def test_scores_of_any_size(f):
    """Scores around 1e300, around -1e300, and of both kinds in one row: no overflow, nothing lost in a shift."""
    big = 1e150 * np.array([[1.0], [-1.0], [0.0]])
    V = normal(3, 2)
    Z = f(big, big, V, scale=1.0)
    assert_array_equal(Z[:2], V[:2])
    assert_allclose(Z[2], V.mean(0), rtol=1e-15)
    if f is attention:  # tiled, Σ A · ∂L/∂A is summed otherwise, and what should cancel leaves a rounding error times 1e150
        same_both_ways(f, big, big, V, scale=1.0)
    twins = np.array([[1e150], [1e150]])
    assert_allclose(f(twins, twins, V[:2], scale=1.0), np.stack([V[:2].mean(0)] * 2), rtol=1e-15)
    for shift in (-800.0, 800.0):
        biased = f(big / 1e150, big / 1e150, V, None, np.full(3, shift))
        assert_allclose(biased, f(big / 1e150, big / 1e150, V), rtol=1e-12)
    far = np.array([[0.0, 900.0, -900.0], [-900.0, 0, 0], [5.0, -900, 900]])
    same_both_ways(f, normal(3, 2), normal(3, 2), V, None, far, causal=True)


@each_kernel
def test_a_row_that_reads_nothing(f):
    Q, K, V = leaf(normal(2, 2)), leaf(normal(3, 2)), leaf(normal(3, 4))
    Z = f(Q, K, V, np.array([[False] * 3, [True, True, False]]))
    assert_array_equal(Z.data[0], 0)
    by_Q, by_K, by_V = gradients(Z, [Q, K, V], np.ones((2, 4)))
    assert_array_equal(by_Q[0], 0)
    assert np.all(by_Q[1] != 0)
    assert_array_equal(by_K[2], 0)
    assert_array_equal(by_V[2], 0)


@each_kernel
def test_a_row_whose_bias_is_minus_infinity_reads_nothing(f):
    """As if masked: zeros, and gradients 0, not NaN; with a mask beside it, which lets more rows read nothing, too."""
    rng = np.random.default_rng(1)
    Q, K, V, bias = (rng.standard_normal(shape) for shape in [(2, 4, 3), (2, 5, 3), (2, 5, 2), (4, 5)])
    bias[1] = bias[2, 3:] = -np.inf
    mask = np.ones((4, 5), bool)
    mask[3] = mask[2, :3] = False
    options = {} if f is attention else {"block": 2}
    for allowed, empty in [(None, [1]), (mask, [1, 2, 3])]:
        same_both_ways(f, Q, K, V, allowed, bias, **options)
        leaves = [leaf(x) for x in (Q, K, V, bias)]
        Z = f(*leaves[:3], allowed, leaves[3], **options)
        assert_array_equal(Z.data[:, empty], 0)
        by_Q, *_, by_bias = gradients(Z, leaves, np.ones(Z.shape))
        assert_array_equal(by_Q[:, empty], 0)
        assert_array_equal(by_bias[empty], 0)


@each_kernel
def test_integers_are_read_as_floats(f):
    Q, K, V = np.array([[1, 2], [3, 4]]), np.array([[5, 6], [-7, 8]]), np.array([[1, 2], [3, 4]])
    assert_allclose(f(Q, K, V), f.definition(Q.astype(float), K.astype(float), V.astype(float)), rtol=1e-14)


@each_kernel
def test_scales_that_are_none(f):
    for call in (f, f.definition):
        for bad in (np.nan, np.inf, "x"):
            with pytest.raises(ValueError, match=r"scale is a number in \(-inf, inf\); got"):
                call(np.eye(3), np.eye(3), np.eye(3), scale=bad)
        with pytest.raises(ValueError, match=r"Without features, Q \(2, 0\), there is no 1/√d_k; give a scale"):
            call(np.ones((2, 0)), np.ones((3, 0)), np.eye(3))
        assert_allclose(call(np.ones((2, 0)), np.ones((3, 0)), np.eye(3), scale=1.0), np.full((2, 3), 1 / 3), rtol=1e-15)


@each_kernel
def test_nothing_to_read_or_to_ask(f):
    for lead in [(), (2,), (2, 3), (0, 3)]:
        for n, m, e in [(0, 3, 2), (3, 0, 2), (0, 0, 2), (3, 2, 0)]:
            Q, K, V = leaf(normal(*lead, n, 2)), leaf(normal(*lead, m, 2)), leaf(normal(*lead, m, e))
            Z = f(Q, K, V, causal=True)
            assert_array_equal(Z.data, np.zeros((*lead, n, e)))
            for x, g in zip((Q, K, V), gradients(Z, [Q, K, V], np.ones(Z.shape)), strict=True):
                assert_array_equal(g, np.zeros(x.shape))


@each_kernel
def test_what_is_masked_is_not_looked_at(f):
    """Not even if its score is NaN."""
    K = normal(3, 2)
    K[1] = np.nan
    V, Q = normal(3, 2), normal(1, 2)
    assert_allclose(f(Q, K, V, np.array([True, False, True])), f(Q, K[::2], V[::2]), rtol=1e-14)


@each_kernel
@pytest.mark.parametrize("tracked", ["Q", "K", "V", "bias"])
def test_some_are_constants(f, tracked):
    arrays = {"Q": normal(3, 2), "K": normal(3, 2), "V": normal(3, 2), "bias": normal(3, 3)}
    x = leaf(arrays[tracked])
    some = gradients(f(**{**arrays, tracked: x}), [x], np.ones((3, 2)))[0]
    leaves = {name: leaf(array) for name, array in arrays.items()}
    assert_array_equal(some, gradients(f(**leaves), [leaves[tracked]], np.ones((3, 2)))[0])


@each_kernel
def test_errors_of_shapes(f):
    good = np.zeros((2, 3))
    for call in [f, f.definition]:
        for Q, K, V in [(good, np.zeros((2, 4)), good), (good, good, np.zeros((3, 3))), (np.zeros(3), good, good)]:
            with pytest.raises(ValueError, match=r"attention takes Q \(…, n, d_k\), K \(…, m, d_k\), V \(…, m, d_v\); got"):
                call(leaf(Q), K, V)
        with pytest.raises(TypeError, match="A mask is boolean, True where a query may read a key"):
            call(leaf(good), good, good, np.ones((2, 2)))
        for shape in [(3, 2), (1, 2, 2), (2, 3)]:
            with pytest.raises(ValueError, match=r"mask must broadcast to the scores' shape \(2, 2\); got"):
                call(leaf(good), good, good, np.ones(shape, bool))
        for wrong in (np.ones((2, 2), bool), [["a", "b"]] * 2):
            with pytest.raises(TypeError, match="A bias is numbers, added to the scores; got dtype"):
                call(leaf(good), good, good, None, wrong)
        with pytest.raises(
            ValueError, match=r"axes before the last two of Q, K, V must broadcast to each other; got \(2, 2, 3\)"
        ):
            call(leaf(np.zeros((2, 2, 3))), np.zeros((3, 2, 3)), np.zeros((3, 2, 3)))
        with pytest.raises(ValueError, match=r"bias must broadcast to the scores' shape \(2, 2\); got \(4, 2, 2\)"):
            call(leaf(good), good, good, None, np.ones((4, 2, 2)))


def test_tiled_memory_is_linear():
    """Forward and backward, of length n: far below the n² numbers of S, and about twice as much for 2n."""
    peaks = []
    for n in (2048, 4096):
        Q, K, V = (leaf(normal(n, 8, dtype=np.float32)) for _ in range(3))
        tracemalloc.start()
        gradients(tiled_attention(Q, K, V, causal=True), [Q, K, V], np.ones((n, 8)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 4096**2 * 4 / 20
    assert peaks[1] < 2.2 * peaks[0]


# Masks


def test_causal_mask():
    assert_array_equal(causal_mask(3, 3), np.tril(np.ones((3, 3), dtype=bool)))
    assert_array_equal(causal_mask(1, 3), [[True, True, True]])
    assert_array_equal(causal_mask(2, 3), [[True, True, False], [True, True, True]])
    assert causal_mask(2, 2).dtype == bool
    for wrong in [(-1, 2), (2, 2.5)]:
        with pytest.raises(ValueError, match="is a whole number, at least 0"):
            causal_mask(*wrong)
    for n, m in [(3, 3), (2, 4), (4, 2)]:
        Q, K, V = normal(n, 2), normal(m, 2), normal(m, 2)
        assert_allclose(attention(Q, K, V, causal=True), attention(Q, K, V, causal_mask(n, m)), rtol=1e-15)


def test_padding_mask():
    ids, pad = np.array([[5, 6, 0], [7, 0, 0]]), 0
    wanted = [[[[True, True, False]]], [[[True, False, False]]]]
    assert_array_equal(padding_mask(ids != pad), wanted)
    assert_array_equal(padding_mask(ids[0] != pad), wanted[0])
    assert_array_equal(padding_mask([2, 1], 3), wanted)
    assert padding_mask([2, 1]).shape == (2, 1, 1, 2)
    for wrong in (ids, [0.5], np.array(True), (ids != pad)[None]):
        with pytest.raises(
            TypeError, match=r"padding_mask takes booleans \(B, m\), such as ids != pad, or lengths \(B,\); got"
        ):
            padding_mask(wrong)
    with pytest.raises(ValueError, match="length is a whole number, at least 5; got 3"):
        padding_mask([5, 2], 3)
    with pytest.raises(ValueError, match="The shortest length is a whole number, at least 0; got -1"):
        padding_mask([-1, 2])


@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(causal):
    attn = Attention(4, 2, causal=causal, std=0.5)
    x = normal(2, 5, 4)
    alone = attn(x[:1, :3]).data
    x[0, 3:] = 1e6  # whatever stands there
    y = attn(x, mask=padding_mask([3, 5])).data
    assert_allclose(y[:1, :3], alone, rtol=1e-12)
    assert_allclose(y[1], attn(x[1]).data, rtol=1e-12)


# The module


def test_parameters_and_shapes():
    attn = Attention(6, 3, n_kv_head=1, d_head=4, d_value=5, bias=True)
    shapes = {path: parameter.shape for path, parameter in attn.named_parameters()}
    weights = {"WQ": (6, 12), "WK": (6, 4), "WV": (6, 5), "WO": (15, 6)}
    assert shapes == weights | {"bQ": (12,), "bK": (4,), "bV": (5,), "bO": (6,)}
    assert [path for path, _ in Attention(4).named_parameters()] == ["WQ", "WK", "WV", "WO"]
    assert [path for path, _ in Attention(4, out_bias=True).named_parameters()] == ["WQ", "WK", "WV", "WO", "bO"]
    assert Attention(4, bias=True, out_bias=False).bO is None
    for lead in [(), (2,), (2, 3), (0,)]:
        assert attn(normal(*lead, 5, 6)).shape == (*lead, 5, 6)
    assert attn(normal(2, 0, 6)).shape == (2, 0, 6)


def test_initial_weights():
    attn = Attention(64, 4, std=0.1, seed=3)
    assert_allclose(attn.WQ.data.std(), 0.1, rtol=0.05)
    assert_array_equal(attn.WQ.data, Attention(64, 4, std=0.1, seed=np.random.default_rng(3)).WQ.data)
    assert not np.any(attn.WQ.data == attn.WK.data)
    with default_dtype(np.float32):
        assert {p.dtype for p in Attention(4, bias=True).parameters()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtype_is_kept(dtype, tiled):
    with default_dtype(dtype):
        attn = Attention(4, 2, n_kv_head=1, bias=True, causal=True, rope=Rope(), tiled=tiled)
        y = attn(normal(3, 4, dtype=dtype), bias=alibi(2, 3))
    assert y.dtype == dtype
    y.backward(np.ones(y.shape))
    assert {p.grad.dtype for p in attn.parameters()} == {np.dtype(dtype)}


def test_nodes_have_the_names_of_the_notes():
    class Block(nn.Module):
        def __init__(self):
            self.attn = Attention(4, 2, causal=True, rope=Rope())

        def forward(self, x):
            return named("loss", np.sum(self.attn(x) ** 2))

    class Model(nn.Module):
        def __init__(self):
            self.blocks = [Block()]

        def forward(self, x):
            return self.blocks[0](x)

    loss = Model()(normal(2, 3, 4))
    shapes = {node.path: node.shape for node in ancestors(opened(loss, everything=False)[0]) if node.name}
    for name, shape in {"Q": (3, 2), "K": (3, 2), "V": (3, 2), "S": (3, 3), "A": (3, 3), "Z": (3, 2)}.items():
        assert shapes[f"blocks.0.attn.{name}"] == (2, 2, *shape)
    assert find(loss, "blocks.0.attn.Z").primitive is attention
    assert trace(loss, "WQ[1,0]").check().verdict == "ok"


def test_one_head_by_hand():
    """x = (0, 0), (ln 2, 0) reads itself: query and key the identity, so the second row's scores are (0, ln²2 / √2)."""
    same = np.eye(2)
    attn = with_weights(Attention(2), WQ=same, WK=same, WV=same, WO=[[0, 3], [1, 0]])
    s = np.exp(np.log(2) ** 2 / np.sqrt(2))
    wanted = np.array([[0, 3 * np.log(2) / 2], [0, 3 * np.log(2) * s / (1 + s)]])
    assert_allclose(attn(np.array([[0, 0], [np.log(2), 0]])).data, wanted, rtol=1e-14, atol=1e-300)


def test_grouped_queries_are_repeated_heads():
    """Ainslie et al. 2023: the same numbers as with each key and value head repeated; gradients are the sums over a group."""
    grouped, full = Attention(8, 4, n_kv_head=2, bias=True, std=0.5), Attention(8, 4, bias=True)

    def repeated(w):
        return np.repeat(w.reshape(*w.shape[:-1], 2, 1, 2), 2, -2).reshape(*w.shape[:-1], 8)

    grouped.bK.data, grouped.bV.data = normal(4), normal(4)
    for name, parameter in grouped.named_parameters():
        getattr(full, name).data = repeated(parameter.data) if name in ("WK", "WV", "bK", "bV") else parameter.data
    x = normal(2, 3, 8)
    y, z = grouped(x), full(x)
    assert find(y, "K").shape == (2, 2, 3, 2)
    assert_allclose(y.data, z.data, rtol=1e-13)
    u = normal(*y.shape)
    y.backward(u)
    z.backward(u)
    for name, parameter in grouped.named_parameters():
        g = getattr(full, name).grad
        if name in ("WK", "WV", "bK", "bV"):
            g = g.reshape(*g.shape[:-1], 2, 2, 2).sum(-2).reshape(parameter.shape)
        assert_allclose(parameter.grad, g, rtol=1e-11, atol=1e-13)


def test_cross_attention():
    attn = Attention(6, 2, d_context=4, std=0.5)
    x, context = normal(2, 3, 6), normal(2, 5, 4)
    y = attn(x, context)
    assert y.shape == (2, 3, 6)
    assert find(y, "Q").shape == (2, 2, 3, 3)
    assert find(y, "K").shape == (2, 2, 5, 3)
    Q, K, V = (np.stack(np.split(a, 2, -1), 1) for a in (x @ attn.WQ.data, context @ attn.WK.data, context @ attn.WV.data))
    Z = attention.definition(Q, K, V)
    assert_allclose(y.data, np.concatenate([Z[:, 0], Z[:, 1]], -1) @ attn.WO.data, rtol=1e-12)
    short = attn(x, context, mask=padding_mask([5, 2])).data
    assert_allclose(short[1], attn(x[1], context[1, :2]).data, rtol=1e-12)
    with pytest.raises(ValueError, match="Make the module that reads it without rope"):
        Attention(4, rope=Rope())(normal(3, 4), normal(2, 4))


def test_a_bias_is_trained():
    attn, slopes = Attention(4, 2, std=0.5), leaf(np.array([0.5, 0.25]))
    y = attn(normal(3, 4), bias=slopes[:, None, None] * alibi(1, 3))
    assert trace(np.sum(y**2), slopes[1]).check().verdict == "ok"


@pytest.mark.parametrize("causal", [False, True])
def test_tiled_module_is_the_same(causal):
    plain, tiled = (Attention(4, 2, causal=causal, std=0.5, tiled=tiled, seed=0) for tiled in (False, True))
    x = normal(2, 200, 4)
    y, z = plain(x), tiled(x)
    assert find(z, "Z").primitive is tiled_attention
    assert_allclose(y.data, z.data, rtol=1e-11)
    for out in (y, z):
        np.sum(out**2).backward()
    for a, b in zip(plain.parameters(), tiled.parameters(), strict=True):
        assert_allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12)


def test_the_pattern_is_kept_on_request():
    attn = Attention(4, 2, causal=True, std=0.5)
    x = normal(2, 3, 4)
    y = attn(x)
    assert attn.pattern is None
    attn.keep_pattern = True
    kept = attn(x)
    assert attn.pattern.shape == (2, 2, 3, 3)
    assert_array_equal(attn.pattern, find(kept, "A").data)
    assert_array_equal(np.triu(attn.pattern, 1), 0)
    assert_allclose(attn.pattern.sum(-1), 1, rtol=1e-14)
    assert_allclose(kept.data, y.data, rtol=1e-13)
    with no_grad():
        attn(x[:1])
    assert attn.pattern.shape == (1, 2, 3, 3)


def test_tiled_attention_has_no_pattern_to_keep_or_to_drop_from():
    with pytest.raises(ValueError, match=r"dropout=0\.5 needs the whole pattern A, which tiled attention never holds"):
        Attention(4, 2, tiled=True, dropout=0.5)
    attn = Attention(4, 2, tiled=True)
    attn.keep_pattern = True
    with pytest.raises(ValueError, match=r"keep_pattern needs the whole pattern A.*Use tiled=False"):
        attn(np.ones((3, 4)))


def test_attention_reads_rows():
    with pytest.raises(ValueError, match=r"reads rows, x \(…, n, d_model\); got one alone"):
        Attention(4)(np.ones(4))
    assert Attention(4)([[1.0, 2.0, 3.0, 4.0]]).shape == (1, 4)
    for bias in (False, True):
        with pytest.raises(ValueError, match=r"takes x \(…, d_in\), W \(d_in, d_out\).*; got \(3, 5\)"):
            Attention(4, bias=bias)(np.ones((3, 5)))
    for head in (2, -1):
        with pytest.raises(ValueError, match=f"Heads are counted from 0 to 1; got {head}"):
            Attention(4, 2).value_factors(head)


def test_dropout_of_the_pattern():
    attn = Attention(4, 2, dropout=0.5, causal=True, std=0.5)
    x = normal(5, 4)
    plain = attn.eval()(x)
    assert find(plain, "Z").primitive is attention
    attn.train().dropout.rng = np.random.default_rng(7)
    y = attn(x)
    A, V = find(y, "A").data, find(y, "V").data
    keep = np.random.default_rng(7).random(A.shape, dtype=np.float32) >= 0.5
    assert_allclose(find(y, "Z").data, (2 * A * keep) @ V, rtol=1e-13)
    assert not np.allclose(y.data, plain.data)
    assert_allclose(attn.eval()(x).data, plain.data, rtol=0)


def test_heads_that_do_not_fit():
    with pytest.raises(ValueError, match="3 heads must divide d_model = 8"):
        Attention(8, 3)
    with pytest.raises(ValueError, match="3 must divide n_head = 4"):
        Attention(8, 4, n_kv_head=3)
    assert Attention(8, 3, d_head=2).WQ.shape == (8, 6)


def test_opened_module_has_the_same_gradients():
    attn = Attention(4, 2, n_kv_head=1, causal=True, rope=Rope(halves=True), bias=True, std=0.5)
    x = normal(2, 3, 4)
    y = attn(x)
    with open_fused():
        z = attn(x)
    parameters = attn.parameters()
    for a, b in zip(gradients(np.sum(y**2), parameters), gradients(np.sum(z**2), parameters), strict=True):
        assert_allclose(a, b, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("masked", [False, True])
def test_wide_softmax_goes_by_blocks(masked):
    """Rows of any kind among the blocks: usual ones, huge scores, and a row that reads nothing."""
    S = normal(3, 700, 150)
    S[1, 5] *= 1e300
    S[2, 9] -= 1e4
    mask = RNG.random((700, 150)) < 0.5 if masked else None
    if masked:
        mask[3] = False
    assert S.nbytes > 4 * 128 * 1024
    A = nn.softmax(leaf(S), mask)
    wanted = nn.softmax.definition(S, mask)
    assert_allclose(A.data, wanted, rtol=1e-11, atol=1e-300)
    assert_array_equal(A.data == 0, wanted == 0)


@pytest.mark.parametrize("m", [64, 65], ids=["one block", "just more than one"])
@pytest.mark.parametrize("causal", [False, True])
def test_at_the_limit_of_one_block(m, causal, monkeypatch):
    """Values and gradients do not depend on which way is taken, and both ways are."""
    monkeypatch.setattr(attention_module, "BLOCK", 2 * 16 * 64 * 8)  # bytes: 2 heads, 16 queries, 64 keys
    taken = []
    one_block = attention_module._is_one_block
    monkeypatch.setattr(attention_module, "_is_one_block", lambda *QKV: taken.append(one_block(*QKV)) or taken[-1])
    Q, K, V = (Tensor(RNG.standard_normal((1, 2, rows, 4)), requires_grad=True) for rows in (16, m, m))
    g = RNG.standard_normal(Q.shape)
    Z = attention(Q, K, V, causal=causal)
    assert taken == [m == 64]
    expected = attention.definition(Q, K, V, causal=causal)
    assert_allclose(Z.data, expected.data, rtol=1e-12, atol=1e-14)
    for found, right in zip(gradients(Z, [Q, K, V], g), gradients(expected, [Q, K, V], g), strict=True):
        assert_allclose(found, right, rtol=1e-12, atol=1e-14)
