"""The encoder-decoder: who reads whom, exactly; generation; and the task of reversing digits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, no_grad
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.graph import ancestors
from chainrule.models.datasets import IGNORE
from chainrule.models.encoder_decoder import BOS, EOS, EncoderDecoder, EncoderDecoderConfig, reversals
from chainrule.models.generation import probabilities, sample
from chainrule.nn.cache import KVCache
from chainrule.nn.losses import cross_entropy
from chainrule.nn.optim import AdamW

SMALL = EncoderDecoderConfig(source_vocab=9, target_vocab=7, context=6, n_layer=2, n_head=2, d_model=8)
SOURCE = np.array([[1, 4, 2, 8, 3], [1, 5, 5, 3, 0]])
TARGET = np.array([[6, 2, 0, 1], [6, 3, 3, 4]])
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])


def scrambled(config=SMALL, **options):
    """A model whose numbers are all random: biases too, and large enough to matter."""
    model = EncoderDecoder(config, **options)
    rng = np.random.default_rng(0)
    model.load_state_dict({k: ("gamma" in k) + 0.5 * rng.standard_normal(p.shape) for k, p in model.named_parameters()})
    return model


def inputs_of(logits):
    """The nodes X of the encoder and of the decoder."""
    nodes = {node.path: node for node in ancestors(logits)}
    return nodes["encoder.X"], nodes["decoder.X"]


def test_shapes_and_names():
    model = EncoderDecoder(SMALL)
    logits = model(SOURCE, TARGET)
    assert logits.shape == (2, 4, 7)
    shapes = {path: p.shape for path, p in model.named_parameters()}
    assert shapes["encoder.E"] == (9, 8)
    assert shapes["decoder.E"] == (7, 8)
    assert shapes["decoder.blocks.1.cross.WK"] == (8, 8)
    assert not any("cross" in path for path in shapes if path.startswith("encoder"))
    assert "U" not in shapes
    with open_fused():
        paths = {node.path: node.shape for node in ancestors(model(SOURCE, TARGET))}
    assert paths["encoder.blocks.0.attn.A"] == (2, 2, 5, 5)
    assert paths["decoder.blocks.0.attn.A"] == (2, 2, 4, 4)
    assert paths["decoder.blocks.0.cross.A"] == (2, 2, 4, 5)  # target × source (T36)
    assert paths["decoder.blocks.0.cross.Q"] == (2, 2, 4, 4)  # from the decoder: d_k = 4
    assert paths["decoder.blocks.0.cross.K"] == (2, 2, 5, 4)  # from the encoder
    assert paths["encoder.h"] == (2, 5, 8)


def test_the_decoder_does_not_see_ahead():
    """∂logits_t/∂X_u of the target is exactly 0 for u > t, and the past is read (notes 8.6)."""
    logits = scrambled()(SOURCE, TARGET)
    _, X = inputs_of(logits)
    for t in range(4):
        (g,) = gradients(np.sum(logits[:, t] ** 2), [X])
        assert_array_equal(g[:, t + 1 :], 0)
        assert g[:, : t + 1].any(axis=-1).all()


def test_every_output_reads_the_whole_source_but_its_padding():
    logits = scrambled()(SOURCE, TARGET, MASK)
    X, _ = inputs_of(logits)
    for t in range(4):
        (g,) = gradients(np.sum(logits[:, t] ** 2), [X])
        assert_array_equal(g.any(axis=-1), MASK)


def test_examples_of_a_batch_do_not_mix():
    logits = scrambled()(SOURCE, TARGET)
    for g in gradients(np.sum(logits[0] ** 2), inputs_of(logits)):
        assert_array_equal(g[1], 0)
        assert g[0].any()


def test_padding_changes_nothing():
    model = scrambled()
    padded = model(SOURCE, TARGET, MASK).data[1]
    assert_allclose(padded, model(SOURCE[1, :3], TARGET[1]).data, rtol=0, atol=1e-13)
    other = np.where(MASK, SOURCE, 7)
    assert_array_equal(padded, model(other, TARGET, MASK).data[1])


def test_the_cross_pattern_is_target_by_source():
    model = scrambled()
    cross = model.decoder.blocks[0].cross
    cross.keep_pattern = True
    model(SOURCE, TARGET, MASK)
    assert cross.pattern.shape == (2, 2, 4, 5)
    assert_allclose(cross.pattern.sum(axis=-1), 1, rtol=1e-14)
    assert_array_equal(cross.pattern[1, :, :, 3:], 0)


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_fused_and_opened_agree(pre_norm, positions):
    config = EncoderDecoderConfig(9, 7, context=6, n_layer=1, n_head=2, d_model=8, pre_norm=pre_norm, positions=positions)
    model, results = scrambled(config), []
    for opened in (False, True):
        with open_fused(opened):
            loss = cross_entropy(model(SOURCE, TARGET, MASK), TARGET)
        results.append([loss.data, *gradients(loss, model.parameters())])
    assert all(g.any() for g in results[0])
    for fused, plain in zip(*results, strict=True):
        assert_allclose(fused, plain, rtol=0, atol=1e-13)


def test_tied_and_untied():
    """Tied, the target's embedding receives two gradients: what U gets, and what E gets, when they are apart (notes 12.3)."""
    apart = scrambled(EncoderDecoderConfig(9, 7, context=6, n_layer=1, n_head=2, d_model=8, tied=False))
    tied = EncoderDecoder(EncoderDecoderConfig(9, 7, context=6, n_layer=1, n_head=2, d_model=8))
    state = apart.state_dict()
    state["U"] = state["decoder.E"].T
    apart.load_state_dict(state)
    del state["U"]
    tied.load_state_dict(state)
    g_E, g_U = gradients(cross_entropy(apart(SOURCE, TARGET), TARGET), [apart.decoder.E, apart.U])
    (g,) = gradients(cross_entropy(tied(SOURCE, TARGET), TARGET), [tied.decoder.E])
    assert g_E.any()
    assert_allclose(g, g_E + g_U.T, rtol=0, atol=1e-14)


def test_float32_stays_float32():
    model = scrambled(dtype=np.float32)
    loss = cross_entropy(model(SOURCE, TARGET, MASK), TARGET)
    assert {node.dtype for node in ancestors(loss)} == {np.dtype(np.float32)}
    assert {g.dtype for g in gradients(loss, model.parameters())} == {np.dtype(np.float32)}


# Generation


def greedy(model, source, n, mask=None):
    """The same without a cache, all of it again for each token."""
    ids = np.full((len(source), 1), 6)
    for _ in range(n):
        new = model(source, ids, mask).data[:, -1].argmax(axis=-1)
        ids = np.concatenate([ids, new[:, None]], axis=1)
    return ids[:, 1:]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_generation_is_greedy_and_runs_the_encoder_once(positions, monkeypatch):
    config = EncoderDecoderConfig(9, 7, context=6, n_layer=2, n_head=2, d_model=8, positions=positions)
    model = scrambled(config)
    wanted = greedy(model, SOURCE, 6, MASK)
    before = {path: value.tobytes() for path, value in model.state_dict().items()}
    calls = []
    encode = EncoderDecoder.encode
    monkeypatch.setattr(EncoderDecoder, "encode", lambda *inputs: calls.append(1) or encode(*inputs))
    found = model.generate(SOURCE, 6, bos=6, source_mask=MASK)
    assert_array_equal(found, wanted)
    assert len(calls) == 1
    assert not isinstance(found, Tensor)
    assert model.training
    assert {path: value.tobytes() for path, value in model.state_dict().items()} == before
    assert_array_equal(model.generate(SOURCE[0], 3, bos=6), wanted[0, :3])


def test_generation_stops_at_the_end_token():
    model = scrambled()
    free = model.generate(SOURCE, 6, bos=6)
    for eos in range(7):
        found = model.generate(SOURCE, 6, bos=6, eos=eos)
        ends = [list(row).index(eos) if eos in row else 6 for row in free]
        assert found.shape == (2, min(6, max(ends) + 1))
        for row, plain, end in zip(found, free, ends, strict=True):
            assert_array_equal(row[:end], plain[: min(end, len(row))])
            assert_array_equal(row[end:], eos)
    assert model.generate(SOURCE, 0, bos=6).shape == (2, 0)


def drawn(model, source, n, options, seed):
    """The same without a cache: each row has a generator of its own."""
    rngs = np.random.default_rng(seed).spawn(len(source))
    ids = np.full((len(source), 1), 6)
    for _ in range(n):
        p = probabilities(model(source, ids).data[:, -1], **options)
        ids = np.concatenate([ids, sample(p, [rng.random() for rng in rngs])[:, None]], axis=1)
    return ids[:, 1:]


@pytest.mark.parametrize(
    "options", [{"temperature": 2.0}, {"temperature": 3.0, "top_k": 2}, {"temperature": 1.0, "top_p": 0.6}]
)
def test_generation_draws_as_that_of_gpt(options):
    model = scrambled()
    made = model.generate(SOURCE, 6, bos=6, seed=5, **options)
    assert_array_equal(made, drawn(model, SOURCE, 6, options, 5))
    assert_array_equal(made, model.generate(SOURCE, 6, bos=6, seed=5, **options))
    assert any(not np.array_equal(made, model.generate(SOURCE, 6, bos=6, seed=seed, **options)) for seed in range(6, 12))
    assert_array_equal(made[:1], model.generate(SOURCE[:1], 6, bos=6, seed=5, **options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 2}, "top_p"),
        ({"max_new_tokens": 2.5}, "max_new_tokens"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
    ],
)
def test_options_of_generation_out_of_range(options, said):
    with pytest.raises(ValueError, match=said):
        scrambled().generate(SOURCE, **{"max_new_tokens": 2, "bos": 6, **options})


def test_the_first_and_the_last_token_are_ids():
    with pytest.raises(TypeError, match="Token ids are integers"):
        scrambled().generate(SOURCE, 2, bos=1.0)
    with pytest.raises(TypeError, match="the id of a token, or several"):
        scrambled().generate(SOURCE, 2, bos=6, eos=1.0)


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_of_nan_are_refused_with_the_step(temperature):
    model = scrambled()
    model.decoder.positions.P.data = model.decoder.positions.P.data * np.where(
        np.arange(6)[:, None] == 1, np.nan, 1
    )  # the second token reads it
    with pytest.raises(ValueError, match="New token 2: Logits need a finite maximum"):
        model.generate(SOURCE, 4, bos=6, temperature=temperature)


def test_a_call_that_raises_leaves_the_cache_as_it_was(monkeypatch):
    """Its own keys and, read once, those of the memory."""
    model = scrambled()
    with no_grad():
        memory = model.encode(SOURCE, MASK)
        whole = model.decode(TARGET, memory, MASK).data
        cache = KVCache(2 * model.config.n_layer)
        for start, stop in [(0, 1), (1, 4)]:
            part, before = TARGET[:, start:stop], [layer.length for layer in cache.layers]
            with monkeypatch.context() as broken:
                broken.setattr(model.decoder.blocks[-1], "ffn", None)
                with pytest.raises(TypeError, match="NoneType"):
                    model.decode(part, memory, MASK, cache=cache)
            assert [layer.length for layer in cache.layers] == before
            found = model.decode(part, memory, MASK, cache=cache).data
            assert_allclose(found, whole[:, start:stop], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 5), (2, 1, 1, 5), (5,), (2, 4)])
def test_a_source_mask_of_another_shape(shape):
    model = scrambled()
    mask = np.ones(shape, bool)
    for call in (model.encode, lambda ids, mask: model.decode(TARGET, model.encode(ids), mask)):
        with pytest.raises(ValueError, match=r"shape of the ids.*\(2, 5\): True at tokens"):
            call(SOURCE, mask)


# The task


def test_reversals():
    source, mask, inputs, targets = reversals(500, 5, np.random.default_rng(0))
    assert source.shape == mask.shape == (500, 5)
    assert inputs.shape == targets.shape == (500, 6)
    for row, there, x, y in zip(source, mask, inputs, targets, strict=True):
        digits = row[there].tolist()
        assert_array_equal(y[: len(digits) + 1], [*digits[::-1], EOS])
        assert_array_equal(y[len(digits) + 1 :], IGNORE)
        assert_array_equal(x[: len(digits) + 1], [BOS, *digits[::-1]])
    assert set(mask.sum(axis=1)) == {1, 2, 3, 4, 5}


def test_it_learns_to_reverse_digits():
    """Sequences of up to 3 digits, after 200 batches: over 99 % of 1,000 come out exactly."""
    config = EncoderDecoderConfig(source_vocab=12, target_vocab=12, context=4, n_layer=1, n_head=4, d_model=32)
    model, rng = EncoderDecoder(config, dtype=np.float32), np.random.default_rng(0)
    optimizer = AdamW(model.parameters(), lr=0.01)
    for step in range(200):
        optimizer.lr = 0.01 * min(1, (step + 1) / 40, (210 - step) / 80)
        source, mask, inputs, targets = reversals(32, 3, rng)
        loss = cross_entropy(model(source, inputs, mask), targets, ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, mask, _, targets = reversals(1000, 3, np.random.default_rng(99))
    written = model.generate(source, 4, bos=BOS, eos=EOS, source_mask=mask)
    assert np.mean((written == np.where(targets == IGNORE, EOS, targets)).all(axis=1)) > 0.99


# Errors


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source_vocab": 0}, "source_vocab"),
        ({"d_ff": 2.5}, "d_ff"),
        ({"n_head": 3}, "3 heads of 8"),
        ({"activation": "swish"}, "swish"),
        ({"positions": "rope"}, "rope"),
    ],
)
def test_nonsense(wrong, said):
    sizes = {"source_vocab": 9, "target_vocab": 7, "context": 6, "n_layer": 1, "n_head": 2, "d_model": 8}
    with pytest.raises(ValueError, match=said):
        EncoderDecoderConfig(**{**sizes, **wrong})


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_the_context_ends(positions):
    model = EncoderDecoder(EncoderDecoderConfig(9, 7, context=4, n_layer=1, n_head=2, d_model=8, positions=positions))
    with pytest.raises(ValueError, match="context is 4 positions; got 5"):
        model(SOURCE, TARGET)
    with pytest.raises(ValueError, match="context is 4 positions; got 5"):
        model.generate(SOURCE[:, :4], 5, bos=6)
    assert model.training


def test_sources_of_several_lengths():
    model = EncoderDecoder(EncoderDecoderConfig(source_vocab=5, target_vocab=5, context=4, n_layer=1, n_head=1, d_model=4))
    for use in (lambda ids: model(ids, [[1], [1]]), model.encode, lambda ids: model.generate(ids, 2, bos=1, eos=2)):
        with pytest.raises(ValueError, match="are equally long; got several lengths"):
            use([[1, 2], [1]])
