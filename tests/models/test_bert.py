"""BERT reads in both directions, does not read padding, and learns to restore masked tokens."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor
from chainrule.autograd import gradients, no_grad, open_fused
from chainrule.autograd.graph import ancestors
from chainrule.models.bert import BERT, BERTConfig, mask_tokens
from chainrule.models.datasets import IGNORE
from chainrule.nn.losses import cross_entropy
from chainrule.nn.optim import AdamW

SMALL = BERTConfig(vocab_size=11, context=7, n_layer=2, n_head=2, d_model=8, pooler=True)
IDS = np.array([[1, 4, 2, 9, 3], [1, 5, 5, 3, 0]])


def scrambled(config=SMALL, seed=0, **options):
    """A model whose numbers are all random: biases too, and large enough to matter."""
    model = BERT(config, **options)
    rng = np.random.default_rng(seed)
    model.load_state_dict({k: ("gamma" in k) + 0.5 * rng.standard_normal(p.shape) for k, p in model.named_parameters()})
    return model


def test_parameters():
    shapes = {path: p.shape for path, p in BERT(SMALL).named_parameters()}
    outside = {path: shape for path, shape in shapes.items() if not path.startswith("blocks.")}
    assert outside == {
        "E": (11, 8),
        "positions.P": (7, 8),
        "segments.E": (2, 8),
        "norm.gamma": (8,),
        "norm.beta": (8,),
        "pooler.W": (8, 8),
        "pooler.b": (8,),
        "head.dense.W": (8, 8),
        "head.dense.b": (8,),
        "head.norm.gamma": (8,),
        "head.norm.beta": (8,),
        "head.c": (11,),
    }
    assert shapes["blocks.1.ffn.W1"] == (8, 32)
    assert len(shapes) == len(outside) + 2 * 16
    bare = BERTConfig(vocab_size=11, context=7, n_layer=1, n_head=2, d_model=8, d_ff=5, n_segment=0, head=False)
    assert {path for path, _ in BERT(bare).named_parameters() if "blocks" not in path} == {
        "E",
        "positions.P",
        "norm.gamma",
        "norm.beta",
    }


def layer_norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_one_layer_written_out():
    """Post-LN, head by head, in plain NumPy."""
    config = BERTConfig(vocab_size=11, context=7, n_layer=1, n_head=2, d_model=8, d_ff=5, activation="tanh")
    model = scrambled(config)
    p = model.state_dict()
    ids, segments = IDS[0], [0, 0, 1, 1, 1]
    x = layer_norm(p["E"][ids] + p["positions.P"][:5] + p["segments.E"][segments], p["norm.gamma"], p["norm.beta"])
    a = {k.removeprefix("blocks.0."): v for k, v in p.items()}
    Q, K, V = (x @ a[f"attn.W{c}"] + a[f"attn.b{c}"] for c in "QKV")
    heads = [softmax(Q[:, h] @ K[:, h].T / 2) @ V[:, h] for h in (slice(0, 4), slice(4, 8))]
    x = layer_norm(x + np.concatenate(heads, -1) @ a["attn.WO"] + a["attn.bO"], a["norm1.gamma"], a["norm1.beta"])
    hidden = np.tanh(x @ a["ffn.W1"] + a["ffn.b1"]) @ a["ffn.W2"] + a["ffn.b2"]
    x = layer_norm(x + hidden, a["norm2.gamma"], a["norm2.beta"])
    h = model(ids, segments=segments)
    assert_allclose(h.data, x, rtol=0, atol=1e-13)
    logits = layer_norm(np.tanh(x @ p["head.dense.W"] + p["head.dense.b"]), p["head.norm.gamma"], p["head.norm.beta"])
    assert_allclose(model.masked_logits(h).data, logits @ p["E"].T + p["head.c"], rtol=0, atol=1e-13)


def test_every_position_reads_every_other():
    """∂h_i/∂X_j is nowhere zero: what a causal mask would forbid (notes 15.9)."""
    h = scrambled()(IDS[0])
    X = next(node for node in ancestors(h) if node.name == "X")
    for i in range(5):
        assert gradients(np.sum(h[i]), [X])[0].any(axis=-1).all()


def test_padding_changes_nothing():
    model = scrambled()
    alone = model(IDS[1, :3])
    padded = model(IDS, mask=[[True] * 5, [True, True, True, False, False]])
    assert_allclose(padded.data[1, :3], alone.data, rtol=0, atol=1e-13)
    X = next(node for node in ancestors(padded) if node.name == "X")
    (g,) = gradients(np.sum(padded[1, :3]), [X])
    assert_array_equal(g[1, 3:], 0)
    assert_array_equal(g[0], 0)
    assert g[1, :3].any(axis=-1).all()


def test_the_shared_embedding_receives_both_gradients():
    """E is read at the input and, transposed, at the output: its gradient is the sum (notes 12.3)."""
    model = scrambled()
    targets = np.where(IDS == 5, 5, IGNORE)
    loss = cross_entropy(model.masked_logits(model(IDS)), targets, ignore_index=IGNORE)
    (both,) = gradients(loss, [model.E])
    with no_grad():
        h = model(IDS)
    at_output = gradients(cross_entropy(model.masked_logits(h), targets, ignore_index=IGNORE), [model.E])[0]
    E = Tensor(model.E.data)
    logits = model.head(model(IDS), E)
    at_input = gradients(cross_entropy(logits, targets, ignore_index=IGNORE), [model.E])[0]
    assert at_input.any()
    assert at_output.any()
    assert_allclose(both, at_input + at_output, rtol=0, atol=1e-13)


def test_sentence_vectors():
    model = scrambled()
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    vectors = model.embed(IDS, mask)
    assert vectors.shape == (2, 8)
    assert_allclose(np.linalg.norm(vectors.data, axis=-1), 1, rtol=1e-14)
    mean = model(IDS[1, :3]).data.mean(axis=0)
    assert_allclose(vectors.data[1], mean / np.sqrt(mean @ mean), rtol=0, atol=1e-13)
    assert_allclose(model.embed(IDS[1, :3]).data, vectors.data[1], rtol=0, atol=1e-13)
    cosine = np.sum(vectors[0] * vectors[1])
    found = gradients(cosine, [model.blocks[0].attn.WQ, model.E])
    assert all(np.isfinite(g).all() and g.any() for g in found)
    with pytest.raises(ValueError, match="no token"):
        model.embed(IDS, [[True] * 5, [False] * 5])


def test_fused_and_opened_agree():
    model = scrambled()
    results = []
    for opened in (False, True):
        with open_fused(opened):
            loss = np.sum(model.embed(IDS)[0] * model.pooled(model(IDS))[1])
        results.append([loss.data, *gradients(loss, [model.E, model.blocks[0].attn.WK, model.blocks[1].ffn.W1])])
    for fused, plain in zip(*results, strict=True):
        assert_allclose(fused, plain, rtol=0, atol=1e-13)


def test_float32_stays_float32():
    model = scrambled(dtype=np.float32)
    loss = cross_entropy(model.masked_logits(model(IDS, mask=IDS > 0)), IDS) + np.sum(model.embed(IDS, IDS > 0)[0])
    assert {node.dtype for node in ancestors(loss)} == {np.dtype(np.float32)}
    assert {g.dtype for g in gradients(loss, [model.E, model.head.c, model.segments.E])} == {np.dtype(np.float32)}


def test_dropout_only_in_training():
    model = BERT(BERTConfig(vocab_size=11, context=7, n_layer=1, n_head=2, d_model=8, dropout=0.5)).eval()
    assert_array_equal(model(IDS).data, model(IDS).data)
    model.train()
    assert (model(IDS).data != model(IDS).data).any()


# Masking


def masked(shape=(200, 100), **options):
    ids = np.random.default_rng(1).integers(3, 50, size=shape)
    ids[:, ::10] = 2  # special
    options = {"vocab_size": 50, "mask_id": 1, "special": (0, 2), **options}
    inputs, targets = mask_tokens(ids, np.random.default_rng(0), **options)
    return ids, inputs, targets


def test_masking_shares():
    """Of 90 ordinary tokens in each row 14 are chosen (15 %, rounded); 80 % of those masked, 10 % random, 10 % kept."""
    ids, inputs, targets = masked()
    chosen = targets != IGNORE
    assert_array_equal(chosen.sum(axis=1), 14)
    assert_array_equal(targets[chosen], ids[chosen])
    assert_array_equal(inputs[~chosen], ids[~chosen])
    assert not chosen[:, ::10].any()
    became = inputs[chosen]
    assert 0.78 < np.mean(became == 1) < 0.82
    random = became[(became != 1) & (became != ids[chosen])]
    assert 0.08 < len(random) / len(became) < 0.12
    assert set(random) == set(range(3, 50))  # never special, never the mask


def test_masking_is_seeded_and_takes_a_row():
    first, again = masked(), masked()
    for a, b in zip(first, again, strict=True):
        assert_array_equal(a, b)
    inputs, targets = mask_tokens([5, 6, 2], np.random.default_rng(0), vocab_size=9, mask_id=1, special=[2])
    assert inputs.shape == targets.shape == (3,)
    assert (targets != IGNORE).sum() == 1
    assert targets[2] == IGNORE


def test_a_row_without_ordinary_tokens_has_no_target():
    _, targets = mask_tokens([[2, 0], [3, 2]], np.random.default_rng(0), vocab_size=9, mask_id=1, special=[0, 2])
    assert_array_equal(targets, [[IGNORE, IGNORE], [3, IGNORE]])


def test_all_tokens_can_be_chosen():
    ids, _, targets = masked((3, 20), rate=1.0)
    assert_array_equal(targets, np.where(ids == 2, IGNORE, ids))


TEXT = """the cat drinks warm milk in the kitchen
the dog chews old bones in the yard
the bird sings short songs in the tree
the fish swims slow rounds in the pond
the horse eats fresh grass in the field"""


def test_it_learns_to_restore_words():
    """Every masked word of five sentences can be told from the others, on either side of it."""
    words = ["[mask]", *sorted(set(TEXT.split()))]
    ids = np.array([[words.index(word) for word in line.split()] for line in TEXT.splitlines()])
    config = BERTConfig(vocab_size=len(words), context=8, n_layer=2, n_head=2, d_model=32, d_ff=64)
    model, rng = BERT(config, dtype=np.float32), np.random.default_rng(0)
    optimizer = AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(250):
        inputs, targets = mask_tokens(np.tile(ids, (4, 1)), rng, vocab_size=len(words), mask_id=0)
        loss = cross_entropy(model.masked_logits(model(inputs)), targets, ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[:5]) > 3
    assert np.mean(losses[-20:]) < 0.5
    for position in (1, 4, 7):  # cat, milk, kitchen; dog, …
        blanked = ids.copy()
        blanked[:, position] = 0
        restored = model.masked_logits(model(blanked)).data[:, position].argmax(axis=-1)
        assert [words[i] for i in restored] == [words[i] for i in ids[:, position]]


# Errors


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"vocab_size": 0}, "vocab_size"),
        ({"n_layer": 1.5}, "n_layer"),
        ({"d_ff": -1}, "d_ff"),
        ({"n_segment": -1}, "n_segment"),
        ({"n_head": 3}, "3 heads of 8"),
        ({"activation": "swish"}, "swish"),
    ],
)
def test_nonsense(wrong, said):
    with pytest.raises(ValueError, match=said):
        BERTConfig(**{"vocab_size": 11, "context": 7, "n_layer": 1, "n_head": 2, "d_model": 8, **wrong})


def test_refusals():
    bare = BERT(BERTConfig(vocab_size=11, context=4, n_layer=1, n_head=2, d_model=8, n_segment=0, head=False))
    h = bare(IDS[:, :4])
    with pytest.raises(ValueError, match="context is 4 positions; got 5"):
        bare(IDS)
    with pytest.raises(ValueError, match="no segments"):
        bare(IDS[:, :4], segments=np.zeros((2, 4), int))
    with pytest.raises(ValueError, match="head=True"):
        bare.masked_logits(h)
    with pytest.raises(ValueError, match="pooler=True"):
        bare.pooled(h)
    with pytest.raises(TypeError, match="boolean"):
        bare(IDS[:, :4], mask=np.ones((2, 4)))
    for shape in [(4, 4), (2, 1, 1, 4), (4,)]:
        for read in (bare, lambda ids, mask: bare.embed(ids, mask)):
            with pytest.raises(ValueError, match=r"shape of the ids.*\(2, 4\): True at tokens"):
                read(IDS[:, :4], mask=np.ones(shape, bool))
    with pytest.raises(ValueError, match=r"Segments have the shape \(2, 5\) of the ids; got \(2, 1\)"):
        scrambled()(IDS, segments=[[0], [1]])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rate": 0}, ValueError, r"rate is a number in \(0, 1\]; got 0"),
        ({"rate": "x"}, ValueError, "rate is a number"),
        ({"vocab_size": 2.5}, ValueError, "vocab_size is a positive whole number"),
        ({"ids": [[1.5, 2]]}, TypeError, "Token ids are integers"),
        ({"ids": [[1, 77]]}, IndexError, r"Token ids lie in 0\.\.10"),
        ({"mask_id": 11}, IndexError, r"Token ids lie in 0\.\.10"),
        ({"special": range(11)}, ValueError, "of 11 in the vocabulary, all are special"),
    ],
    ids=str,
)
def test_masks_that_cannot_be_drawn(change, error, message):
    with pytest.raises(error, match=message):
        mask_tokens(**{"ids": IDS, "rng": np.random.default_rng(0), "vocab_size": 11, "mask_id": 1, **change})
