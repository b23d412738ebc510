"""Hugging Face folders, written here by hand: names, splits, transposes, dtypes, and everything that is refused."""

import json
import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule.cli import main
from chainrule.models import checkpoints, pretrained
from chainrule.models.bert import BERT, BERTConfig
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.tokenizers import BPETokenizer

rng = np.random.default_rng(0)

GPT2 = {"model_type": "gpt2", "vocab_size": 7, "n_positions": 5, "n_layer": 1, "n_head": 2, "n_embd": 4}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 7,
    "hidden_size": 8,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 5,
}
BERT_BASE = {
    "model_type": "bert",
    "vocab_size": 7,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 5,
}

GPT2_SHAPES = {
    "wte.weight": (7, 4),
    "wpe.weight": (5, 4),
    "h.0.ln_1.weight": (4,),
    "h.0.ln_1.bias": (4,),
    "h.0.attn.c_attn.weight": (4, 12),
    "h.0.attn.c_attn.bias": (12,),
    "h.0.attn.c_proj.weight": (4, 4),
    "h.0.attn.c_proj.bias": (4,),
    "h.0.ln_2.weight": (4,),
    "h.0.ln_2.bias": (4,),
    "h.0.mlp.c_fc.weight": (4, 16),
    "h.0.mlp.c_fc.bias": (16,),
    "h.0.mlp.c_proj.weight": (16, 4),
    "h.0.mlp.c_proj.bias": (4,),
    "ln_f.weight": (4,),
    "ln_f.bias": (4,),
}
LLAMA_SHAPES = {
    "embed_tokens.weight": (7, 8),
    "layers.0.input_layernorm.weight": (8,),
    "layers.0.self_attn.q_proj.weight": (8, 8),
    "layers.0.self_attn.k_proj.weight": (4, 8),
    "layers.0.self_attn.v_proj.weight": (4, 8),
    "layers.0.self_attn.o_proj.weight": (8, 8),
    "layers.0.post_attention_layernorm.weight": (8,),
    "layers.0.mlp.gate_proj.weight": (6, 8),
    "layers.0.mlp.up_proj.weight": (6, 8),
    "layers.0.mlp.down_proj.weight": (8, 6),
    "norm.weight": (8,),
    "lm_head.weight": (7, 8),
}
BERT_SHAPES = {
    "embeddings.word_embeddings.weight": (7, 4),
    "embeddings.position_embeddings.weight": (5, 4),
    "embeddings.token_type_embeddings.weight": (2, 4),
    "embeddings.LayerNorm.weight": (4,),
    "embeddings.LayerNorm.bias": (4,),
    **{f"encoder.layer.0.attention.{name}.weight": (4, 4) for name in ("self.query", "self.key", "self.value", "output.dense")},
    **{f"encoder.layer.0.attention.{name}.bias": (4,) for name in ("self.query", "self.key", "self.value", "output.dense")},
    "encoder.layer.0.attention.output.LayerNorm.weight": (4,),
    "encoder.layer.0.attention.output.LayerNorm.bias": (4,),
    "encoder.layer.0.intermediate.dense.weight": (6, 4),
    "encoder.layer.0.intermediate.dense.bias": (6,),
    "encoder.layer.0.output.dense.weight": (4, 6),
    "encoder.layer.0.output.dense.bias": (4,),
    "encoder.layer.0.output.LayerNorm.weight": (4,),
    "encoder.layer.0.output.LayerNorm.bias": (4,),
}
SHAPES = {"gpt2": GPT2_SHAPES, "llama": LLAMA_SHAPES, "bert": BERT_SHAPES}
CONFIGS = {"gpt2": GPT2, "llama": LLAMA, "bert": BERT_BASE}


def filled(shapes, dtype=np.float32):
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def write(folder, config, arrays, file="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    checkpoints.save(folder / file, arrays, {"format": "pt"})
    return folder


# What becomes what


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2(tmp_path, prefix):
    arrays = filled(GPT2_SHAPES)
    model = GPT.from_pretrained(write(tmp_path, GPT2, {prefix + name: array for name, array in arrays.items()}))
    assert model.config == GPTConfig(vocab_size=7, context=5, n_layer=1, n_head=2, d_model=4)
    attn, ffn = model.blocks[0].attn, model.blocks[0].ffn
    assert_array_equal(attn.WQ.data, arrays["h.0.attn.c_attn.weight"][:, :4])  # (in, out): as it is
    assert_array_equal(attn.WK.data, arrays["h.0.attn.c_attn.weight"][:, 4:8])
    assert_array_equal(attn.WV.data, arrays["h.0.attn.c_attn.weight"][:, 8:])
    assert_array_equal(attn.bK.data, arrays["h.0.attn.c_attn.bias"][4:8])
    assert_array_equal(attn.WO.data, arrays["h.0.attn.c_proj.weight"])
    assert_array_equal(ffn.W2.data, arrays["h.0.mlp.c_proj.weight"])
    assert_array_equal(model.blocks[0].norm2.beta.data, arrays["h.0.ln_2.bias"])
    assert_array_equal(model.E.data, arrays["wte.weight"])
    assert_array_equal(model.positions.P.data, arrays["wpe.weight"])
    assert_array_equal(model.norm.gamma.data, arrays["ln_f.weight"])
    for parameter in model.parameters():
        assert parameter.dtype == np.float32
        assert parameter.data.flags.c_contiguous
        assert not parameter.data.flags.writeable
        assert parameter.requires_grad


def test_llama(tmp_path):
    arrays = filled(LLAMA_SHAPES)
    named = {name if name.startswith("lm_head") else f"model.{name}": array for name, array in arrays.items()}
    model = GPT.from_pretrained(write(tmp_path, {**LLAMA, "rope_theta": 500, "rms_norm_eps": 1e-5}, named))
    assert (model.config.rope_base, model.config.rope_halves, model.config.norm_eps) == (500, True, 1e-5)
    assert (model.config.n_kv_head, model.config.tied, model.config.activation) == (2, False, "swiglu")
    attn, ffn = model.blocks[0].attn, model.blocks[0].ffn
    assert_array_equal(attn.WK.data, arrays["layers.0.self_attn.k_proj.weight"].T)  # (out, in) in the file
    assert_array_equal(attn.WO.data, arrays["layers.0.self_attn.o_proj.weight"].T)
    assert_array_equal(ffn.W1.data, arrays["layers.0.mlp.gate_proj.weight"].T)  # inside silu
    assert_array_equal(ffn.W3.data, arrays["layers.0.mlp.up_proj.weight"].T)
    assert_array_equal(ffn.W2.data, arrays["layers.0.mlp.down_proj.weight"].T)
    assert_array_equal(model.U.data, arrays["lm_head.weight"].T)
    assert attn.WQ.data.flags.c_contiguous


def test_bert(tmp_path):
    arrays = filled(BERT_SHAPES)
    model = BERT.from_pretrained(write(tmp_path, BERT_BASE, {f"bert.{name}": array for name, array in arrays.items()}))
    assert (model.config.pooler, model.config.head, model.config.d_ff) == (False, False, 6)
    attn = model.blocks[0].attn
    assert_array_equal(attn.WV.data, arrays["encoder.layer.0.attention.self.value.weight"].T)
    assert_array_equal(attn.bO.data, arrays["encoder.layer.0.attention.output.dense.bias"])
    assert_array_equal(model.blocks[0].norm1.gamma.data, arrays["encoder.layer.0.attention.output.LayerNorm.weight"])
    assert_array_equal(model.blocks[0].norm2.gamma.data, arrays["encoder.layer.0.output.LayerNorm.weight"])
    assert_array_equal(model.segments.E.data, arrays["embeddings.token_type_embeddings.weight"])


def test_bert_in_the_old_spelling_with_pooler_and_head(tmp_path):
    arrays = filled({
        **BERT_SHAPES,
        "pooler.dense.weight": (4, 4),
        "pooler.dense.bias": (4,),
        "cls.predictions.transform.dense.weight": (4, 4),
        "cls.predictions.transform.dense.bias": (4,),
        "cls.predictions.transform.LayerNorm.weight": (4,),
        "cls.predictions.transform.LayerNorm.bias": (4,),
        "cls.predictions.bias": (7,),
        "cls.seq_relationship.weight": (2, 4),
        "cls.seq_relationship.bias": (2,),
    })  # fmt: skip
    arrays["cls.predictions.decoder.weight"] = arrays["embeddings.word_embeddings.weight"]
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value for name, value in arrays.items()}
    old = {name if name.startswith("cls.") else f"bert.{name}": value for name, value in old.items()}
    old["bert.embeddings.position_ids"] = np.arange(5)[None]
    model = BERT.from_pretrained(write(tmp_path, BERT_BASE, old))
    assert_array_equal(model.norm.gamma.data, arrays["embeddings.LayerNorm.weight"])
    assert_array_equal(model.head.dense.W.data, arrays["cls.predictions.transform.dense.weight"].T)
    assert_array_equal(model.head.norm.beta.data, arrays["cls.predictions.transform.LayerNorm.bias"])
    assert_array_equal(model.head.c.data, arrays["cls.predictions.bias"])
    assert_array_equal(model.pooler.W.data, arrays["pooler.dense.weight"].T)


def test_masks_among_the_arrays_are_no_parameters(tmp_path):
    arrays = filled(GPT2_SHAPES)
    masks = {"h.0.attn.bias": np.tri(5, dtype=np.uint8)[None, None], "h.0.attn.masked_bias": np.float32([-1e4])}
    model = GPT.from_pretrained(write(tmp_path, GPT2, {**arrays, **masks}))
    assert model.E.dtype == np.float32


def test_a_tied_unembedding_may_be_written_twice(tmp_path):
    arrays = filled(GPT2_SHAPES)
    twice = {**arrays, "lm_head.weight": arrays["wte.weight"]}
    model = GPT.from_pretrained(write(tmp_path / "twice", GPT2, twice))
    assert_array_equal(model.E.data, arrays["wte.weight"])
    other = {**arrays, "lm_head.weight": arrays["wte.weight"] + 1}
    with pytest.raises(ValueError, match=r"lm_head\.weight should equal wte\.weight"):
        GPT.from_pretrained(write(tmp_path / "other", GPT2, other))
    untied = GPT.from_pretrained(write(tmp_path / "untied", {**GPT2, "tie_word_embeddings": False}, other))
    assert_array_equal(untied.U.data, other["lm_head.weight"].T)


def test_options_of_gpt2(tmp_path):
    said = {**GPT2, "n_inner": 6, "activation_function": "relu", "layer_norm_epsilon": 1e-3, "scale_attn_weights": True}
    arrays = filled({**GPT2_SHAPES, "h.0.mlp.c_fc.weight": (4, 6), "h.0.mlp.c_fc.bias": (6,), "h.0.mlp.c_proj.weight": (6, 4)})
    config = GPT.from_pretrained(write(tmp_path, said, arrays)).config
    assert (config.d_ff, config.activation, config.norm_eps) == (6, "relu", 1e-3)


# Files and dtypes


def test_several_files(tmp_path):
    arrays = filled(GPT2_SHAPES)
    names = list(arrays)
    parts = {"a.safetensors": names[:6], "b.safetensors": names[6:]}
    for file, part in parts.items():
        write(tmp_path, GPT2, {name: arrays[name] for name in part}, file)
    places = {name: file for file, part in parts.items() for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    model = GPT.from_pretrained(tmp_path)
    assert_array_equal(model.E.data, arrays["wte.weight"])
    assert_array_equal(model.norm.beta.data, arrays["ln_f.bias"])
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.safetensors is missing"):
        GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_is_that_of_the_file_or_as_asked(tmp_path, dtype):
    folder = write(tmp_path, GPT2, filled(GPT2_SHAPES, dtype))
    assert {p.dtype for p in GPT.from_pretrained(folder).parameters()} == {np.dtype(dtype)}
    assert {p.dtype for p in GPT.from_pretrained(folder, dtype=np.float64).parameters()} == {np.dtype(np.float64)}


def test_numbers_too_large_for_the_dtype_that_is_asked_for(tmp_path):
    arrays = filled(GPT2_SHAPES)
    arrays["ln_f.bias"][0] = 1e5
    folder = write(tmp_path, GPT2, arrays)
    with pytest.raises(ValueError, match=r"ln_f\.bias has numbers too large for float16"):
        GPT.from_pretrained(folder, dtype=np.float16)
    arrays["ln_f.bias"][0] = np.inf
    assert np.isinf(GPT.from_pretrained(write(tmp_path, GPT2, arrays), dtype=np.float16).norm.beta.data[0])


def write_halves(folder, config, arrays, halves):
    """The same with the arrays named in `halves` in bfloat16, which is the upper half of a float32's bits."""
    header, numbers = {}, b""
    for name, array in arrays.items():
        half = name in halves
        content = (array.view("<u4") >> 16).astype("<u2").tobytes() if half else array.tobytes()
        offsets = [len(numbers), len(numbers) + len(content)]
        header[name] = {"dtype": "BF16" if half else "F32", "shape": list(array.shape), "data_offsets": offsets}
        numbers += content
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_bfloat16_becomes_float32(tmp_path):
    arrays = filled(GPT2_SHAPES)
    arrays["wte.weight"] = np.resize(np.float32([1, -3, 3.140625]), (7, 4))  # none has more than 8 binary digits
    model = GPT.from_pretrained(write_halves(tmp_path, GPT2, arrays, ["wte.weight"]))
    assert_array_equal(model.E.data, arrays["wte.weight"])
    assert_array_equal(model.positions.P.data, arrays["wpe.weight"])
    assert model.E.dtype == np.float32


def test_a_folder_in_bfloat16_with_its_tokenizer_writes(tmp_path, capsys):
    """The whole way: a Llama as most are kept, its tokenizer.json, and the command that lets it write."""
    tokenizer = BPETokenizer.train("", 257)
    config = {**LLAMA, "vocab_size": 257, "max_position_embeddings": 16}
    shapes = {name: (257, 8) if shape[0] == 7 else shape for name, shape in LLAMA_SHAPES.items()}
    arrays = filled(shapes)
    folder = write_halves(tmp_path, config, arrays, arrays)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer.to_dict()["model"]))
    model, found, metadata = checkpoints.load_model(folder)
    assert found == tokenizer
    assert metadata == {}
    expected = "one" + tokenizer.decode(model.generate(tokenizer.encode("one"), 9, temperature=0)[3:])
    assert main(["sample", str(folder), "--prompt", "one", "--max-new-tokens", "9", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == expected + "\n"
    (folder / "tokenizer.json").unlink()
    assert checkpoints.load_model(folder)[1] is None
    assert main(["sample", str(folder)]) == 2
    assert "without a tokenizer. A Hugging Face folder needs its tokenizer.json" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [250, 300])
def test_a_tokenizer_that_has_not_as_many_tokens_as_the_model_rows(rows, tmp_path, capsys):
    """Fewer rows are refused; of more, which are padding, none is ever drawn."""
    tokenizer = BPETokenizer.train("", 257)
    shapes = {name: (rows, 8) if shape[0] == 7 else shape for name, shape in LLAMA_SHAPES.items()}
    folder = write(tmp_path, {**LLAMA, "vocab_size": rows, "max_position_embeddings": 16}, filled(shapes))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer.to_dict()["model"]))
    code = main(["sample", str(folder), "--prompt", "one", "--max-new-tokens", "99", "--temperature", "5"])
    printed = capsys.readouterr()
    if rows < 257:
        assert code == 2
        assert "the tokenizer has 257 tokens, but the model has rows for 250. Is it the model's?" in printed.err
        return
    assert code == 0
    assert printed.out.startswith("one")
    model = checkpoints.load_model(folder)[0]
    ids = [model.generate(tokenizer.encode("one"), 99, tokenizer=given, temperature=5) for given in (tokenizer, None)]
    assert [drawn.max() >= 257 for drawn in ids] == [False, True]


def test_the_tokenizer_of_a_bert(tmp_path):
    folder = write(tmp_path, BERT_BASE, filled(BERT_SHAPES))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    assert checkpoints.load_model(folder)[1].encode("b a") == [2, 6, 5, 3]


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_saved_is_what_was_loaded_bit_for_bit(tmp_path, kind):
    arrays = filled(SHAPES[kind])
    arrays[next(iter(arrays))].flat[0] = np.nan
    model = pretrained.load(write(tmp_path / "first", CONFIGS[kind], arrays))
    model.save_pretrained(tmp_path / "second")
    again = pretrained.load(tmp_path / "second")
    assert pretrained._complete(again.config) == pretrained._complete(model.config)
    for (path, a), (same, b) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert path == same
        assert a.data.tobytes() == b.data.tobytes()
    prefix = {"gpt2": "transformer.", "llama": "model.", "bert": ""}[kind]
    saved, metadata = checkpoints.load(tmp_path / "second" / "model.safetensors")
    assert metadata == {"format": "pt"}  # transformers asks for it
    expected = {name if name.startswith("lm_head") else prefix + name: array for name, array in arrays.items()}
    assert saved.keys() == expected.keys()
    for name, array in expected.items():
        assert saved[name].tobytes() == array.tobytes()


def test_a_model_of_our_own_is_saved(tmp_path):
    sizes = {"vocab_size": 7, "context": 5, "n_layer": 2, "n_head": 2, "d_model": 4}
    for config in (
        GPTConfig(**sizes, dropout=0.1, d_ff=6, tied=False),
        GPTConfig(**sizes, norm="rms", positions="rope", rope_halves=True, activation="swiglu", bias=False, d_head=4),
    ):
        model = GPT(config)
        model.save_pretrained(tmp_path / config.norm)
        assert_array_equal(GPT.from_pretrained(tmp_path / config.norm)([1, 2, 3]).data, model.eval()([1, 2, 3]).data)
    masked = BERT(BERTConfig(**sizes, pooler=True))
    masked.save_pretrained(tmp_path / "bert")
    assert BERT.from_pretrained(tmp_path / "bert").config == pretrained._complete(masked.config)


@pytest.mark.parametrize("changes", [
    {"positions": "alibi"}, {"pre_norm": False}, {"activation": "swiglu"}, {"activation": "sigmoid"}, {"bias": False},
    {"norm": "rms"}, {"n_kv_head": 1}, {"d_head": 6},
    {"norm": "rms", "positions": "rope", "activation": "swiglu", "bias": False},  # pairs of neighbours
])  # fmt: skip
def test_a_model_that_config_json_has_no_words_for_is_not_saved(tmp_path, changes):
    model = GPT(GPTConfig(**{"vocab_size": 7, "context": 5, "n_layer": 1, "n_head": 2, "d_model": 4, **changes}))
    with pytest.raises(ValueError, match="no words"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


# What is refused


def test_every_fault_is_named_at_once(tmp_path):
    arrays = filled(GPT2_SHAPES)
    del arrays["wpe.weight"], arrays["h.0.ln_2.bias"]
    arrays["h.1.ln_1.weight"] = np.ones(4, np.float32)
    arrays["ln_f.bias"] = np.ones(5, np.float32)
    arrays["h.0.attn.c_attn.weight"] = arrays["h.0.attn.c_attn.weight"].T
    with pytest.raises(ValueError, match="do not fit") as raised:
        GPT.from_pretrained(write(tmp_path, GPT2, arrays))
    for fault in (
        "wpe.weight is missing",
        "h.0.ln_2.bias is missing",
        "h.1.ln_1.weight is left over",
        "ln_f.bias has shape (5,) and should have (4,)",
        "h.0.attn.c_attn.weight has shape (12, 4) and should have (4, 12)",
    ):
        assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**GPT2, "activation_function": "mish"}, "activation_function='mish'"),
        ({**GPT2, "scale_attn_weights": False}, "scale_attn_weights=False"),
        ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention=True"),
        ({**GPT2, "model_type": "mamba"}, "'mamba'; expected one of gpt2, llama, bert"),
        ({key: value for key, value in GPT2.items() if key != "model_type"}, "None; expected one of"),
        ({key: value for key, value in GPT2.items() if key != "n_head"}, "lacks n_head"),
        ({**LLAMA, "hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({**LLAMA, "attention_bias": True}, "attention_bias=True"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling="),
        ({**LLAMA, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rope_type='llama3'"),
        ({**BERT_BASE, "position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({**BERT_BASE, "is_decoder": True}, "is_decoder=True"),
        ({**BERT_BASE, "hidden_act": "gelu_fast"}, "hidden_act='gelu_fast'"),
    ],
)
def test_options_that_are_not_known_are_refused_by_name(tmp_path, config, said):
    arrays = filled(SHAPES.get(config.get("model_type"), GPT2_SHAPES))
    with pytest.raises(ValueError, match=said):
        pretrained.load(write(tmp_path, config, arrays))


def test_a_folder_of_another_class(tmp_path):
    folder = write(tmp_path, GPT2, filled(GPT2_SHAPES))
    with pytest.raises(ValueError, match="'gpt2'; expected one of bert"):
        BERT.from_pretrained(folder)


def test_a_pickle_is_not_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor"):
        GPT.from_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(FileNotFoundError, match=r"a pickle.*save_pretrained"):
        GPT.from_pretrained(tmp_path)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        GPT.from_pretrained(tmp_path)
    folder = write(tmp_path, GPT2, filled(GPT2_SHAPES))
    whole = (folder / "model.safetensors").read_bytes()
    for content in (b"", b"not safetensors at all", whole[:-1]):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match="damaged or cut short"):
            GPT.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, bool])
@pytest.mark.parametrize("names", [["ln_f.bias"], list(GPT2_SHAPES)])
def test_parameters_are_floating_numbers(dtype, names, tmp_path):
    arrays = filled(GPT2_SHAPES)
    arrays |= {name: arrays[name].astype(dtype) for name in names}
    with pytest.raises(ValueError, match=rf"({'|'.join(names)}) is kept as {np.dtype(dtype)}; parameters are floating"):
        GPT.from_pretrained(write(tmp_path, GPT2, arrays))


def test_one_array_under_two_names(tmp_path):
    """With and without the prefix: which one is meant?"""
    arrays = filled(GPT2_SHAPES)
    with pytest.raises(ValueError, match=r"has wte\.weight twice: as .*wte\.weight and"):
        GPT.from_pretrained(write(tmp_path, GPT2, {**arrays, "transformer.wte.weight": arrays["wte.weight"] + 1}))
    norms = {"embeddings.LayerNorm.gamma": np.ones(4, np.float32)}
    with pytest.raises(ValueError, match=r"has embeddings\.LayerNorm\.weight twice"):
        BERT.from_pretrained(write(tmp_path, BERT_BASE, {**filled(BERT_SHAPES), **norms}))


@pytest.mark.parametrize("content", [b"", b'{"model_type": "gpt2"', b"\xff{}", b"[1]", b"null", b"[" * 100_000])
def test_a_config_that_is_no_json_object(content, tmp_path):
    folder = write(tmp_path, GPT2, filled(GPT2_SHAPES))
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is (not JSON|a JSON object)") as raised:
        GPT.from_pretrained(folder)
    assert not isinstance(raised.value, json.JSONDecodeError)


WHOLE_NUMBERS = {
    "gpt2": [*list(GPT2)[1:], "n_inner"],
    "llama": [*list(LLAMA)[1:], "head_dim"],
    "bert": [*list(BERT_BASE)[1:], "type_vocab_size"],
}
NUMBERS = {"gpt2": ["layer_norm_epsilon"], "llama": ["rms_norm_eps", "rope_theta"], "bert": ["layer_norm_eps"]}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        *((kind, key, value) for kind in CONFIGS for key in WHOLE_NUMBERS[kind] for value in (-1, 2.5, "4", [4], True)),
        *(
            (kind, key, value)
            for kind in CONFIGS
            for key in NUMBERS[kind]
            for value in (-1, 0, "x", np.nan, np.inf, 10**400, [1], True)
        ),
        *((kind, "tie_word_embeddings", value) for kind in ("gpt2", "llama") for value in (1, "yes", [])),
        *((kind, "model_type", value) for kind in CONFIGS for value in (None, 3, [], {})),
        *((kind, "quantization_config", {"bits": 4}) for kind in CONFIGS),
        *(("llama", "rope_parameters", value) for value in ([1], "default", 3)),
        *(("gpt2", "activation_function", value) for value in ([], {}, 3)),
    ],
)
def test_values_of_a_config_that_cannot_be(kind, key, value, tmp_path):
    """The error names the folder, the key and the value."""
    said = "of type" if key == "model_type" else f"config.json has {key}="
    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        pretrained.load(write(tmp_path, {**CONFIGS[kind], key: value}, filled(SHAPES[kind])))
    assert str(tmp_path) in str(raised.value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("key", ["vocab_size", "n_layer"])
def test_a_config_of_another_size_than_any_file(key, tmp_path):
    with pytest.raises(ValueError, match=r"This configuration has [\d,]+ parameters") as raised:
        GPT.from_pretrained(write(tmp_path, {**GPT2, key: 10**12}, filled(GPT2_SHAPES)))
    assert str(raised.value).startswith(str(tmp_path))


def test_null_is_as_if_it_were_not_there(tmp_path):
    nothing = dict.fromkeys(["n_inner", "activation_function", "layer_norm_epsilon", "tie_word_embeddings", "rope_scaling"])
    found = GPT.from_pretrained(write(tmp_path, {**GPT2, **nothing, "use_cache": True}, filled(GPT2_SHAPES)))
    assert found.config == GPTConfig(vocab_size=7, context=5, n_layer=1, n_head=2, d_model=4)
    with pytest.raises(ValueError, match="lacks n_layer"):
        GPT.from_pretrained(write(tmp_path, {**GPT2, "n_layer": None}, filled(GPT2_SHAPES)))


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("", "is not JSON"),
        ("[]", "is a JSON object"),
        ("{}", "weight_map says"),
        ('{"weight_map": []}', "weight_map says"),
        ('{"weight_map": {"wte.weight": 3}}', "weight_map says"),
        ('{"weight_map": {"wte.weight": "../a.safetensors"}}', "weight_map says"),
        (
            '{"weight_map": {"wte.weight": "a.safetensors", "x": "a.safetensors"}}',
            "do not agree on: x in a.safetensors, .* in a.safetensors",
        ),
    ],
)
def test_an_index_that_is_none(index, said, tmp_path):
    write(tmp_path, GPT2, filled(GPT2_SHAPES), "a.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=said) as raised:
        GPT.from_pretrained(tmp_path)
    assert "model.safetensors.index.json" in str(raised.value)


def test_without_safetensors(tmp_path, monkeypatch):
    folder = write(tmp_path, GPT2, filled(GPT2_SHAPES))
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"chainrule\[train\]"):
        GPT.from_pretrained(folder)
