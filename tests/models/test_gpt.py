"""GPT: no leak from the future or from padding, positions, tied weights, names, and the account of one entry of WQ."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, gradients, nn, no_grad, trace
from chainrule.autograd.graph import ancestors, find
from chainrule.models.gpt import GPT, GPTConfig

SIZE = {"vocab_size": 11, "context": 8, "n_layer": 4, "n_head": 2, "d_model": 8}
KINDS = {
    "GPT-2": {},
    "Llama": {"norm": "rms", "positions": "rope", "activation": "swiglu", "bias": False, "n_kv_head": 1, "tied": False},
    "tiled, sinusoidal": {"tiled": True, "positions": "sinusoidal", "pre_norm": False},
    "ALiBi": {"positions": "alibi"},
    "none": {"positions": "none"},
}
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 11, (3, 8))


def gpt(kind="GPT-2", **changes):
    """A model whose parameters are larger than they start, so that attention is not flat."""
    model = GPT(GPTConfig(**(SIZE | KINDS[kind] | changes)))
    rng = np.random.default_rng(1)
    model.load_state_dict({path: value + rng.normal(0, 0.3, value.shape) for path, value in model.state_dict().items()})
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaks_from_the_future(kind):
    """∂h_i/∂x_j is exactly 0 for j > i, by the gradient itself, and not for j ≤ i (notes 8.6)."""
    model = gpt(kind)
    h = find(model(IDS), "h")
    X = find(h, "X")
    for i in range(8):
        at_i = np.zeros(h.shape)
        at_i[:, i] = RNG.standard_normal((3, 8))
        g = gradients(h, [X], at_i)[0]
        assert_array_equal(g[:, i + 1 :], 0)
        assert np.all(np.any(g[:, : i + 1] != 0, axis=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_not_read(kind):
    """Padding stands before the tokens: behind them, the causal mask alone would hide it."""
    model = gpt(kind)
    tokens = np.arange(8) >= np.array([0, 3, 6])[:, None]
    padding = ~tokens
    logits = model(IDS, mask=tokens)
    assert np.all(np.abs(logits.data - model(IDS).data)[1:, -1].max(axis=-1) > 1e-3)  # it was read without the mask
    X = find(logits, "X")
    g = gradients(logits, [X], np.where(padding[..., None], 0, RNG.standard_normal(logits.shape)))[0]
    assert_array_equal(g[padding], 0)
    other = np.where(padding, 3, IDS)
    assert_array_equal(model(other, mask=tokens).data[tokens], logits.data[tokens])
    assert_allclose(model(IDS[1], mask=tokens[1]).data[3:], logits.data[1, 3:], rtol=0, atol=1e-12)
    cache = model.new_cache()
    with no_grad():
        found = [model(IDS[:, t : t + 1], mask=tokens[:, : t + 1], cache=cache).data for t in range(8)]
    assert_allclose(np.concatenate(found, axis=1)[tokens], logits.data[tokens], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "alibi"])
def test_a_call_that_raises_leaves_the_cache_as_it_was(positions, monkeypatch):
    model = gpt(positions=positions)
    with no_grad():
        whole = model(IDS).data
        cache = model.new_cache()
        model(IDS[:, :5], cache=cache)
        with pytest.raises(ValueError, match=r"\(3, 8\): True at tokens, such as ids != pad; got \(3, 3\)"):
            model(IDS[:, 5:], cache=cache, mask=np.ones((3, 3), bool))
        with monkeypatch.context() as broken:
            broken.setattr(model.blocks[1], "ffn", None)
            with pytest.raises(TypeError, match="NoneType"):
                model(IDS[:, 5:], cache=cache)
        assert [layer.length for layer in cache.layers] == [5] * len(cache)
        assert_allclose(model(IDS[:, 5:], cache=cache).data, whole[:, 5:], rtol=0, atol=1e-12)
        with pytest.raises(ValueError, match=r"cache has 4 layers; got one of 1\. Make it with KVCache\(4\)"):
            model(IDS, cache=nn.KVCache(1))


def test_without_mask_and_positions_a_permutation_of_the_input_permutes_the_output():
    model = gpt("none")
    for block in model.blocks:
        block.attn.causal = False
    order = RNG.permutation(8)
    assert_allclose(model(IDS[:, order]).data, model(IDS).data[:, order], rtol=1e-12, atol=1e-12)
    with_mask = gpt("none")
    assert not np.allclose(with_mask(IDS[:, order]).data, with_mask(IDS).data[:, order])
    with_positions = gpt("GPT-2")
    for block in with_positions.blocks:
        block.attn.causal = False
    assert not np.allclose(with_positions(IDS[:, order]).data, with_positions(IDS).data[:, order])


@pytest.mark.parametrize("positions", ["rope", "alibi", "sinusoidal"])
def test_positions_without_parameters_are_told_apart(positions):
    """The same numbers with and without them: from the second position on the logits differ."""
    with_none = gpt("none", positions="none")
    with_them = gpt("none", positions=positions)
    assert_array_equal(with_them.E.data, with_none.E.data)
    change = np.abs(with_them(IDS).data - with_none(IDS).data).max(axis=-1)
    assert np.all(change[:, 1:] > 1e-3)


def test_a_tied_matrix_receives_both_gradients():
    model = gpt()
    loss = nn.cross_entropy(model(IDS), IDS)
    loss.backward()
    untied = gpt(tied=False)
    untied.load_state_dict({**model.state_dict(), "U": model.E.data.T})
    nn.cross_entropy(untied(IDS), IDS).backward()
    assert_allclose(model.E.grad, untied.E.grad + untied.U.grad.T, rtol=1e-12, atol=1e-15)
    used = np.isin(np.arange(11), IDS)
    assert_array_equal(untied.E.grad[~used], 0)


def test_nodes_have_dotted_names():
    logits = gpt()(IDS)
    paths = {node.path for node in ancestors(logits)}
    names = {f"blocks.{i}.attn.{name}" for i in range(4) for name in ("WQ", "Q", "K", "V", "Z")}
    assert names | {"E", "positions.P", "X", "h", "logits", "blocks.0.ffn.H", "blocks.3.norm2.gamma"} <= paths


@pytest.mark.parametrize("kind", KINDS)
def test_the_account_of_one_entry_of_WQ_balances(kind):
    model = gpt(kind)
    loss = nn.cross_entropy(model(IDS), IDS)
    loss.backward()
    W = model.blocks[0].attn.WQ
    t = trace(loss, W[1, 2])
    assert_allclose(t.total, W.grad[1, 2], rtol=1e-12)
    scale = max(sum(float(np.abs(flow).sum()) for _, flow in cut.parts) for cut in t.cuts(every=True))
    assert t.residual <= 1e-13 * scale
    assert all(cut.residual <= 1e-13 * scale for cut in t.cuts())
    names = [cut.name for cut in t.cuts()]
    assert [name for name in names if name.startswith("blocks.0.attn")][:4] == [
        "blocks.0.attn.WQ", "blocks.0.attn.Q", "blocks.0.attn.S", "blocks.0.attn.A",
    ]  # fmt: skip
    assert t.check().verdict == "ok"


def test_one_sequence_and_a_batch_of_it_agree():
    model = gpt()
    assert_allclose(model(IDS[1]).data, model(IDS).data[1], rtol=1e-12, atol=1e-14)
    assert_allclose(model(IDS[:, :3]).data, model(IDS).data[:, :3], rtol=1e-12, atol=1e-14)


def test_dtype_and_seed():
    half = GPT(GPTConfig(**SIZE), dtype=np.float32)
    logits = half(IDS)
    nn.cross_entropy(logits, IDS).backward()
    assert {node.dtype for node in ancestors(logits)} == {np.dtype(np.float32)}
    assert all(p.grad.dtype == np.float32 for p in half.parameters())
    same, other = GPT(GPTConfig(**SIZE), dtype=np.float32), GPT(GPTConfig(**SIZE), seed=1, dtype=np.float32)
    assert_array_equal(same(IDS).data, logits.data)
    assert not np.allclose(other(IDS).data, logits.data)


def test_dropout_only_in_training():
    model = gpt(dropout=0.5)
    assert not np.allclose(model(IDS).data, model(IDS).data)
    nn.reseed(model, 7)
    first = model(IDS).data
    nn.reseed(model, 7)
    assert_array_equal(model(IDS).data, first)
    model.eval()
    assert_array_equal(model(IDS).data, gpt()(IDS).data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_head": 3}, "n_head must divide d_model"),
        ({"n_layer": 0}, "n_layer is a positive whole number; got 0"),
        ({"d_model": 8.0}, "d_model is a positive whole number; got 8.0"),
        ({"norm": "batch"}, 'norm is "layer" or "rms"; got \'batch\''),
        ({"positions": "rotary"}, "positions is"),
        ({"activation": "gleu"}, "activation is one of"),
        ({"dropout": 1.0}, r"dropout is a number in \[0, 1\); got 1.0"),
        ({"n_head": 4, "n_kv_head": 3}, "n_kv_head must divide n_head; got 3 of 4"),
        ({"positions": "rope", "d_head": 3}, "RoPE rotates pairs"),
    ],
)
def test_configurations_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**(SIZE | changes))


def test_inputs_that_cannot_be():
    model = gpt()
    with pytest.raises(ValueError, match="The context is 8 positions; got 9"):
        model(np.zeros(9, int))
    with pytest.raises(ValueError, match="reads sequences"):
        model(np.array(3))
    with pytest.raises(IndexError, match=r"Token ids lie in 0\.\.10; got 0\.\.11"):
        model(np.array([0, 11]))
    with pytest.raises(TypeError, match="Token ids are integers; got dtype float64"):
        model(np.zeros(3))
    with pytest.raises(TypeError, match="boolean"):
        model(IDS, mask=np.ones((8, 8)))
    for shape in [(8, 8), (3, 1, 1, 8), (8,), (1, 8), (3, 7)]:  # attention's mask, or one that might be meant for each row
        with pytest.raises(ValueError, match=r"shape of the ids, with those in a cache, \(3, 8\): True at tokens"):
            model(IDS, mask=np.ones(shape, bool))
    assert isinstance(model(IDS), Tensor)
