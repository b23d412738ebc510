"""Whole models against PyTorch and Hugging Face's transformers, weight by weight, in float64. Run with `pytest -m parity`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.autograd import gradients
from chainrule.models.bert import BERT, BERTConfig
from chainrule.models.datasets import IGNORE
from chainrule.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.word2vec import Word2Vec, Word2VecConfig, training_pairs
from chainrule.nn.losses import cross_entropy, squared_cost
from chainrule.nn.optim import SGD

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
transformers = pytest.importorskip("transformers", reason="transformers is the extra `parity`")
F = torch.nn.functional


def assert_same(ours, theirs, wanted):
    assert_allclose(ours, wanted.detach(), rtol=1e-12, atol=1e-13, err_msg=theirs)


# BERT

BERT_CONFIG = BERTConfig(vocab_size=13, context=9, n_layer=2, n_head=2, d_model=8, d_ff=20, pooler=True)


def bert_names(n_layer):
    """Our name of a parameter -> the one in transformers, and whether it is transposed there."""
    names = {"E": ("bert.embeddings.word_embeddings.weight", False)}
    names["positions.P"] = ("bert.embeddings.position_embeddings.weight", False)
    names["segments.E"] = ("bert.embeddings.token_type_embeddings.weight", False)

    def norm(ours, theirs):
        names[f"{ours}.gamma"], names[f"{ours}.beta"] = (f"{theirs}.weight", False), (f"{theirs}.bias", False)

    def linear(W, b, theirs):
        names[W], names[b] = (f"{theirs}.weight", True), (f"{theirs}.bias", False)

    norm("norm", "bert.embeddings.LayerNorm")
    for i in range(n_layer):
        ours, theirs = f"blocks.{i}", f"bert.encoder.layer.{i}"
        for letter, part in {"Q": "self.query", "K": "self.key", "V": "self.value", "O": "output.dense"}.items():
            linear(f"{ours}.attn.W{letter}", f"{ours}.attn.b{letter}", f"{theirs}.attention.{part}")
        norm(f"{ours}.norm1", f"{theirs}.attention.output.LayerNorm")
        linear(f"{ours}.ffn.W1", f"{ours}.ffn.b1", f"{theirs}.intermediate.dense")
        linear(f"{ours}.ffn.W2", f"{ours}.ffn.b2", f"{theirs}.output.dense")
        norm(f"{ours}.norm2", f"{theirs}.output.LayerNorm")
    linear("pooler.W", "pooler.b", "bert.pooler.dense")
    linear("head.dense.W", "head.dense.b", "cls.predictions.transform.dense")
    norm("head.norm", "cls.predictions.transform.LayerNorm")
    names["head.c"] = ("cls.predictions.bias", False)
    return names


@pytest.fixture(scope="module")
def berts():
    """Ours, and transformers' with the same random weights; every bias and norm is random as well."""
    ours = BERT(BERT_CONFIG)
    theirs = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=13,
            max_position_embeddings=9,
            num_hidden_layers=2,
            num_attention_heads=2,
            hidden_size=8,
            intermediate_size=20,
            pad_token_id=None,  # or row 0 of E would get no gradient from the input
            attn_implementation="eager",
        )
    )
    theirs = theirs.double().eval()
    rng = np.random.default_rng(0)
    state = {name: 1.0 * ("gamma" in name) + 0.5 * rng.standard_normal(p.shape) for name, p in ours.named_parameters()}
    ours.load_state_dict(state)
    parameters = dict(theirs.named_parameters())
    names = bert_names(2)
    assert {name for name, _ in names.values()} | {"cls.seq_relationship.weight", "cls.seq_relationship.bias"} == set(
        parameters
    )
    for name, (other, transposed) in names.items():
        parameters[other].data = torch.tensor(state[name].T if transposed else state[name])
    theirs.tie_weights()
    return ours, theirs


@pytest.mark.parametrize("padded", [False, True])
def test_bert(berts, padded):
    ours, theirs = berts
    rng = np.random.default_rng(1)
    ids, segments, targets = rng.integers(13, size=(3, 7)), rng.integers(2, size=(3, 7)), rng.integers(13, size=(3, 7))
    mask = np.arange(7) < np.array([[7], [4], [5]]) if padded else None
    targets[rng.random((3, 7)) < 0.5] = IGNORE

    h = ours(ids, mask=mask, segments=segments)
    logits, pooled = ours.masked_logits(h), ours.pooled(h)
    loss = cross_entropy(logits, targets, ignore_index=IGNORE) + np.sum(pooled**2)

    theirs_h, theirs_pooled = theirs.bert(
        torch.tensor(ids),
        attention_mask=None if mask is None else torch.tensor(mask.astype(int)),
        token_type_ids=torch.tensor(segments),
        return_dict=False,
    )
    theirs_logits = theirs.cls.predictions(theirs_h)
    theirs_loss = F.cross_entropy(theirs_logits.reshape(-1, 13), torch.tensor(targets).reshape(-1), ignore_index=IGNORE)
    theirs_loss = theirs_loss + (theirs_pooled**2).sum()

    assert_same(h.data, "hidden rows", theirs_h)
    assert_same(logits.data, "logits", theirs_logits)
    assert_same(pooled.data, "pooled", theirs_pooled)
    assert_same(loss.data, "loss", theirs_loss)

    theirs.zero_grad()
    theirs_loss.backward()
    theirs_parameters = dict(theirs.named_parameters())
    named = dict(ours.named_parameters())
    assert named.keys() == bert_names(2).keys()
    for name, found in zip(named, gradients(loss, named.values()), strict=True):
        other, transposed = bert_names(2)[name]
        wanted = theirs_parameters[other].grad
        assert_same(found, other, wanted.T if transposed else wanted)


# The perceptron


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_mlp_trains_alike(activation):
    """Ten steps of SGD on the squared cost: the weights stay equal."""
    ours = MLP(MLPConfig(sizes=(6, 5, 4, 3), activation=activation))
    weights = {path: torch.tensor(value, requires_grad=True) for path, value in ours.state_dict().items()}
    mine, other = SGD(ours.parameters(), 0.5), torch.optim.SGD(weights.values(), 0.5)
    rng = np.random.default_rng(0)
    for _ in range(10):
        x, y = rng.random((7, 6)), rng.random((7, 3))
        cost = squared_cost(ours(x), y)
        a = torch.tensor(x)
        for layer in (1, 2, 3):
            a = getattr(torch, activation)(a @ weights[f"W{layer}"] + weights[f"b{layer}"])
        theirs = F.mse_loss(a, torch.tensor(y), reduction="sum") / 7
        for optimizer, loss in ((mine, cost), (other, theirs)):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_same(cost.data, "cost", theirs)
    for path, parameter in ours.named_parameters():
        assert_same(parameter.data, path, weights[path])


# Word vectors


@pytest.mark.parametrize("loss", ["softmax", "negative"])
@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
@pytest.mark.parametrize("vocab_size", [9, 600])  # 600: above the size at which embedding changes its way of adding up
def test_word2vec(mode, loss, vocab_size):
    ours = Word2Vec(Word2VecConfig(vocab_size, d=5, mode=mode, window=2, loss=loss, negatives=4))
    rng = np.random.default_rng(0)
    ours.load_state_dict({path: rng.normal(size=p.shape) for path, p in ours.named_parameters()})
    E, U = (torch.tensor(p.data, requires_grad=True) for p in ours.parameters())
    inputs, targets = training_pairs(rng.integers(9, size=12), 2, mode)
    noise = rng.integers(vocab_size, size=(len(targets), 4))
    value = ours.loss(inputs, targets, noise)

    near = torch.tensor(inputs).reshape(len(targets), -1)
    h = torch.stack([E[row[row != IGNORE]].mean(0) for row in near])
    if loss == "softmax":
        theirs = F.cross_entropy(h @ U.T, torch.tensor(targets))
    else:
        scores = torch.stack([U[torch.tensor(words)] @ row for words, row in zip(np.c_[targets, noise], h, strict=True)])
        wishes = torch.zeros_like(scores)
        wishes[:, 0] = 1
        theirs = F.binary_cross_entropy_with_logits(scores, wishes, reduction="sum") / len(targets)
    theirs.backward()
    assert_same(value.data, "loss", theirs)
    g_E, g_U = gradients(value, [ours.E, ours.U])
    assert_same(g_E, "E", E.grad)
    assert_same(g_U, "U", U.grad)


# The encoder-decoder


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("pre_norm", [True, False])
def test_encoder_decoder(pre_norm):
    """Against torch.nn.Transformer, padding and all, with the embeddings and positions written out."""
    config = EncoderDecoderConfig(11, 9, context=6, n_layer=2, n_head=2, d_model=8, d_ff=12, pre_norm=pre_norm)
    ours = EncoderDecoder(config)
    rng = np.random.default_rng(0)
    state = {path: 1.0 * ("gamma" in path) + 0.5 * rng.standard_normal(p.shape) for path, p in ours.named_parameters()}
    ours.load_state_dict(state)
    weights = {path: torch.tensor(value, requires_grad=True) for path, value in state.items()}
    theirs = torch.nn.Transformer(8, 2, 2, 2, 12, dropout=0.0, batch_first=True, norm_first=pre_norm, dtype=torch.float64)
    if not pre_norm:  # torch norms once more at the end of either side
        theirs.encoder.norm = theirs.decoder.norm = None
    placed = transformer_weights(weights, config)
    assert placed.keys() == dict(theirs.named_parameters()).keys()

    source, target, wanted = rng.integers(11, size=(3, 6)), rng.integers(9, size=(3, 5)), rng.integers(9, size=(3, 5))
    mask = np.arange(6) < np.array([[6], [4], [2]])
    padding, causal = torch.tensor(~mask), torch.ones(5, 5, dtype=torch.bool).triu(1)
    rows = [
        weights[f"{side}.E"][torch.tensor(ids)] + weights[f"{side}.positions.P"][: ids.shape[1]]
        for side, ids in (("encoder", source), ("decoder", target))
    ]
    options = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    h = torch.func.functional_call(theirs, placed, tuple(rows), options)
    theirs_logits = h @ weights["decoder.E"].T
    theirs_loss = F.cross_entropy(theirs_logits.flatten(0, 1), torch.tensor(wanted).flatten())
    theirs_loss.backward()

    logits = ours(source, target, mask)
    loss = cross_entropy(logits, wanted)
    assert_same(logits.data, "logits", theirs_logits)
    assert_same(loss.data, "loss", theirs_loss)
    named = dict(ours.named_parameters())
    for path, found in zip(named, gradients(loss, named.values()), strict=True):
        assert_same(found, path, weights[path].grad)


def transformer_weights(weights, config):
    """Our weights under torch's names, as functions of ours, so that gradients come back to ours."""
    placed = {}

    def attention(ours, theirs):
        for letter, part in (("W", "in_proj_weight"), ("b", "in_proj_bias")):
            placed[f"{theirs}.{part}"] = torch.cat([weights[f"{ours}.{letter}{name}"].t() for name in "QKV"])
        linear(f"{ours}.WO", f"{ours}.bO", f"{theirs}.out_proj")

    def linear(W, b, theirs):
        placed[f"{theirs}.weight"], placed[f"{theirs}.bias"] = weights[W].T, weights[b]

    def norm(ours, theirs):
        placed[f"{theirs}.weight"], placed[f"{theirs}.bias"] = weights[f"{ours}.gamma"], weights[f"{ours}.beta"]

    for side in ("encoder", "decoder"):
        if config.pre_norm:
            norm(f"{side}.norm", f"{side}.norm")
        for i in range(config.n_layer):
            ours, theirs = f"{side}.blocks.{i}", f"{side}.layers.{i}"
            attention(f"{ours}.attn", f"{theirs}.self_attn")
            norms = ["norm1", "norm2"]
            if side == "decoder":
                attention(f"{ours}.cross", f"{theirs}.multihead_attn")
                norms = ["norm1", "norm_cross", "norm2"]
            for number, name in enumerate(norms, start=1):
                norm(f"{ours}.{name}", f"{theirs}.norm{number}")
            linear(f"{ours}.ffn.W1", f"{ours}.ffn.b1", f"{theirs}.linear1")
            linear(f"{ours}.ffn.W2", f"{ours}.ffn.b2", f"{theirs}.linear2")
    return placed
