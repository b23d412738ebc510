"""Models in Hugging Face's layout, read and written: GPT-2 and Llama as `GPT`, BERT as `BERT`.

A folder has `config.json` and `model.safetensors`, or several files that `model.safetensors.index.json` lists. A *layout*
says which configuration a `config.json` means, and which array of the file is which parameter here. Two conventions differ:
rows are positions and a weight is (in, out) here, which most files keep as (out, in); GPT-2 keeps WQ, WK, WV side by side.
Only safetensors are read, never a pickle, which can run any code. Dropout is left at 0. Of config.json what changes the model
is read, or refused where the model here cannot do it; other keys are for other libraries and left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from chainrule.models import checkpoints
from chainrule.models.bert import BERT, BERTConfig
from chainrule.models.checkpoints import Arrays
from chainrule.models.configs import json_object
from chainrule.models.counting import check_memory
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.tokenizers import BPETokenizer, Tokenizer, WordPieceTokenizer
from chainrule.nn import init

Json = Mapping[str, Any]


class Entry(NamedTuple):
    """One array of a file: the parameters at `paths`, side by side; `transposed` if the file has it as (out, in)."""

    name: str
    paths: tuple[str, ...]
    transposed: bool = False


class Layout(NamedTuple):
    """How one family of models is kept.

    model: its class. prefix: what names may begin with. read, write: config.json to a configuration and back.
    entries: the arrays of a configuration. ignored: names of arrays that are no parameters (masks, positions, other heads).
    copies: names under which a file may have an array a second time, since two parts share it.
    """

    model: type[GPT] | type[BERT]
    prefix: str
    read: Callable[[Json, Arrays], Any]
    write: Callable[[Any], dict[str, Any]]
    entries: Callable[[Any], Iterator[Entry]]
    ignored: str
    copies: dict[str, str]


# GPT-2 (Radford et al. 2019)

OUR_ACTIVATION = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}
THEIR_NAMES = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def _gpt2_config(said: Json, arrays: Arrays) -> GPTConfig:
    _only(said, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return GPTConfig(
        vocab_size=_size(said, "vocab_size"),
        context=_size(said, "n_positions", 1024),
        n_layer=_size(said, "n_layer"),
        n_head=_size(said, "n_head"),
        d_model=_size(said, "n_embd"),
        d_ff=_size(said, "n_inner", None),
        activation=_activation(said, "activation_function", "gelu_new"),
        norm_eps=_number(said, "layer_norm_epsilon", 1e-5),
        tied=_flag(said, "tie_word_embeddings", True),
    )


def _gpt2_json(config: GPTConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.d_model,
        "n_inner": config.d_ff,
        "activation_function": THEIR_NAMES.get(config.activation),
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt2_entries(config: GPTConfig) -> Iterator[Entry]:
    yield Entry("wte.weight", ("E",))
    yield Entry("wpe.weight", ("positions.P",))
    for i in range(config.n_layer):
        h, block = f"h.{i}", f"blocks.{i}"
        yield from _norm(f"{h}.ln_1", f"{block}.norm1")
        yield Entry(f"{h}.attn.c_attn.weight", (f"{block}.attn.WQ", f"{block}.attn.WK", f"{block}.attn.WV"))
        yield Entry(f"{h}.attn.c_attn.bias", (f"{block}.attn.bQ", f"{block}.attn.bK", f"{block}.attn.bV"))
        yield Entry(f"{h}.attn.c_proj.weight", (f"{block}.attn.WO",))
        yield Entry(f"{h}.attn.c_proj.bias", (f"{block}.attn.bO",))
        yield from _norm(f"{h}.ln_2", f"{block}.norm2")
        yield Entry(f"{h}.mlp.c_fc.weight", (f"{block}.ffn.W1",))
        yield Entry(f"{h}.mlp.c_fc.bias", (f"{block}.ffn.b1",))
        yield Entry(f"{h}.mlp.c_proj.weight", (f"{block}.ffn.W2",))
        yield Entry(f"{h}.mlp.c_proj.bias", (f"{block}.ffn.b2",))
    yield from _norm("ln_f", "norm")
    if not config.tied:
        yield Entry("lm_head.weight", ("U",), transposed=True)


# Llama (Touvron et al. 2023), and what has its layout, such as SmolLM


def _llama_config(said: Json, arrays: Arrays) -> GPTConfig:
    _only(said, hidden_act="silu", attention_bias=False, mlp_bias=False, rope_scaling=None, partial_rotary_factor=1.0)
    rope = _value(said, "rope_parameters", {}, expected="an object", fits=lambda value: isinstance(value, dict))
    _only(rope, rope_type="default", partial_rotary_factor=1.0)
    return GPTConfig(
        vocab_size=_size(said, "vocab_size"),
        context=_size(said, "max_position_embeddings", 2048),
        n_layer=_size(said, "num_hidden_layers"),
        n_head=_size(said, "num_attention_heads"),
        d_model=_size(said, "hidden_size"),
        n_kv_head=_size(said, "num_key_value_heads", None),
        d_head=_size(said, "head_dim", None),
        d_ff=_size(said, "intermediate_size"),
        activation="swiglu",
        norm="rms",
        norm_eps=_number(said, "rms_norm_eps", 1e-6),
        positions="rope",
        rope_base=float(_number(rope, "rope_theta", _number(said, "rope_theta", 10000.0))),
        rope_halves=True,
        tied=_flag(said, "tie_word_embeddings", False),
        bias=False,
    )


def _llama_json(config: GPTConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.d_head,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama_entries(config: GPTConfig) -> Iterator[Entry]:
    yield Entry("embed_tokens.weight", ("E",))
    for i in range(config.n_layer):
        layer, block = f"layers.{i}", f"blocks.{i}"
        yield Entry(f"{layer}.input_layernorm.weight", (f"{block}.norm1.gamma",))
        for letter in "qkvo":
            yield Entry(f"{layer}.self_attn.{letter}_proj.weight", (f"{block}.attn.W{letter.upper()}",), transposed=True)
        yield Entry(f"{layer}.post_attention_layernorm.weight", (f"{block}.norm2.gamma",))
        for name, path in (("gate_proj", "W1"), ("up_proj", "W3"), ("down_proj", "W2")):
            yield Entry(f"{layer}.mlp.{name}.weight", (f"{block}.ffn.{path}",), transposed=True)
    yield Entry("norm.weight", ("norm.gamma",))
    if not config.tied:
        yield Entry("lm_head.weight", ("U",), transposed=True)


# BERT (Devlin et al. 2019), and what has its layout, such as MiniLM


def _bert_config(said: Json, arrays: Arrays) -> BERTConfig:
    _only(said, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False, tie_word_embeddings=True)
    return BERTConfig(
        vocab_size=_size(said, "vocab_size"),
        context=_size(said, "max_position_embeddings", 512),
        n_layer=_size(said, "num_hidden_layers"),
        n_head=_size(said, "num_attention_heads"),
        d_model=_size(said, "hidden_size"),
        d_ff=_size(said, "intermediate_size"),
        activation=_activation(said, "hidden_act", "gelu"),
        norm_eps=_number(said, "layer_norm_eps", 1e-12),
        n_segment=_size(said, "type_vocab_size", 2, least=0),
        pooler=any(name.startswith("pooler.") for name in arrays),  # config.json does not tell
        head=any(name.startswith("cls.predictions.") for name in arrays),
    )


def _bert_json(config: BERTConfig) -> dict[str, Any]:
    return {
        "architectures": ["BertForMaskedLM" if config.head else "BertModel"],
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "hidden_act": THEIR_NAMES.get(config.activation),
        "layer_norm_eps": config.norm_eps,
        "type_vocab_size": config.n_segment,
    }


def _bert_entries(config: BERTConfig) -> Iterator[Entry]:
    yield Entry("embeddings.word_embeddings.weight", ("E",))
    yield Entry("embeddings.position_embeddings.weight", ("positions.P",))
    if config.n_segment:
        yield Entry("embeddings.token_type_embeddings.weight", ("segments.E",))
    yield from _norm("embeddings.LayerNorm", "norm")
    for i in range(config.n_layer):
        layer, block = f"encoder.layer.{i}", f"blocks.{i}"
        for name, letter in (("self.query", "Q"), ("self.key", "K"), ("self.value", "V"), ("output.dense", "O")):
            yield from _dense(f"{layer}.attention.{name}", f"{block}.attn.W{letter}", f"{block}.attn.b{letter}")
        yield from _norm(f"{layer}.attention.output.LayerNorm", f"{block}.norm1")
        yield from _dense(f"{layer}.intermediate.dense", f"{block}.ffn.W1", f"{block}.ffn.b1")
        yield from _dense(f"{layer}.output.dense", f"{block}.ffn.W2", f"{block}.ffn.b2")
        yield from _norm(f"{layer}.output.LayerNorm", f"{block}.norm2")
    if config.pooler:
        yield from _dense("pooler.dense", "pooler.W", "pooler.b")
    if config.head:
        yield from _dense("cls.predictions.transform.dense", "head.dense.W", "head.dense.b")
        yield from _norm("cls.predictions.transform.LayerNorm", "head.norm")
        yield Entry("cls.predictions.bias", ("head.c",))


def _norm(name: str, path: str) -> Iterator[Entry]:
    yield Entry(f"{name}.weight", (f"{path}.gamma",))
    yield Entry(f"{name}.bias", (f"{path}.beta",))


def _dense(name: str, W: str, b: str) -> Iterator[Entry]:
    yield Entry(f"{name}.weight", (W,), transposed=True)
    yield Entry(f"{name}.bias", (b,))


LAYOUTS = {
    "gpt2": Layout(
        GPT, "transformer.", _gpt2_config, _gpt2_json, _gpt2_entries,
        r"h\.\d+\.attn\.(bias|masked_bias)", {"lm_head.weight": "wte.weight"},
    ),
    "llama": Layout(
        GPT, "model.", _llama_config, _llama_json, _llama_entries,
        r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", {"lm_head.weight": "embed_tokens.weight"},
    ),
    "bert": Layout(
        BERT, "bert.", _bert_config, _bert_json, _bert_entries,
        r"embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)",
        {
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    ),
}  # fmt: skip


# What a config.json says


def _value(said: Json, key: str, *default: Any, expected: str, fits: Callable[[Any], bool]) -> Any:
    """The value of a key; the default where there is none, or null."""
    value = said.get(key)
    if value is None:
        if not default:
            raise ValueError(f"config.json lacks {key}.")
        return default[0]
    if not fits(value):
        raise ValueError(f"config.json has {key}={value!r}; it is {expected}.")
    return value


def _size(said: Json, key: str, *default: Any, least: int = 1) -> Any:
    return _value(
        said, key, *default, expected=f"a whole number from {least}", fits=lambda value: type(value) is int and value >= least
    )


def _number(said: Json, key: str, *default: Any) -> Any:
    return _value(
        said, key, *default, expected="a positive number", fits=lambda value: type(value) in (int, float) and 0 < value < 1e300
    )


def _flag(said: Json, key: str, *default: Any) -> Any:
    return _value(said, key, *default, expected="true or false", fits=lambda value: isinstance(value, bool))


def _activation(said: Json, key: str, default: str) -> str:
    expected = f"one of {', '.join(OUR_ACTIVATION)}"
    return OUR_ACTIVATION[_value(said, key, default, expected=expected, fits=lambda value: value in list(OUR_ACTIVATION))]


def _only(said: Json, **values: Any) -> None:
    """Raise for what the model would have to compute otherwise than it does."""
    for key, value in values.items():
        if said.get(key, value) not in (value, None):
            raise ValueError(f"config.json has {key}={said[key]!r}; only {value!r} is supported.")


# Reading


def load(folder: str | Path, model: type[Any] | None = None, dtype: DTypeLike | None = None) -> Any:
    """The model in a folder with `config.json` and `model.safetensors` (or several, and their index).

    Args:
        model: the class that is expected, GPT or BERT; any if not given.
        dtype: of the parameters; that of the file if not given, with float32 for bfloat16, which NumPy does not have.
    Raises:
        FileNotFoundError: for a missing file. ImportError: without the package safetensors.
        ValueError: for an architecture, or an option of it, that is not known; and if names or shapes do not fit: all the
            missing and left-over names and all wrong shapes are named.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json, which says what model it is.")
    said = json_object((folder / "config.json").read_bytes(), str(folder / "config.json"))
    known = {kind: layout for kind, layout in LAYOUTS.items() if model is None or issubclass(model, layout.model)}
    if said.get("model_type") not in list(known):
        raise ValueError(f"{folder} has a model of type {said.get('model_type')!r}; expected one of {', '.join(known)}.")
    layout = known[said["model_type"]]
    arrays = _unified(_read(folder), layout, folder)
    if dtype is None:
        dtype = np.result_type(*(array.dtype for array in arrays.values())) if arrays else np.float32
    try:
        _only(said, quantization_config=None)
        config = layout.read(said, arrays)
        check_memory(config, dtype)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    with init.shapes_only():  # no numbers are drawn only to be replaced
        made = (model or layout.model)(config, dtype=dtype)
    _fill(made, layout, list(layout.entries(config)), arrays, folder)
    return made


def tokenizer(folder: str | Path) -> Tokenizer | None:
    """The tokeniser in such a folder: BERT's of word pieces, or byte pairs; None if it has none of their files."""
    said = json_object((Path(folder) / "config.json").read_bytes(), str(Path(folder) / "config.json"))
    kind = WordPieceTokenizer if said.get("model_type") == "bert" else BPETokenizer
    with suppress(FileNotFoundError):
        return kind.from_pretrained(folder)
    return None


def _read(folder: Path) -> Arrays:
    """All arrays of a folder, by name."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return checkpoints.load(folder / "model.safetensors")[0]
    if index.is_file():
        return _read_parts(folder, json_object(index.read_bytes(), str(index)).get("weight_map"), index)
    if (folder / "pytorch_model.bin").exists() or (folder / "pytorch_model.bin.index.json").exists():
        raise FileNotFoundError(
            f"{folder} has only pytorch_model.bin, a pickle, which can run any code when it is read. If you trust it, convert "
            f"it: transformers' AutoModel.from_pretrained(folder).save_pretrained(folder) writes model.safetensors."
        )
    raise FileNotFoundError(f"{folder} has neither model.safetensors nor {index.name}.")


def _read_parts(folder: Path, places: Any, index: Path) -> Arrays:
    """All arrays of the files that an index names: `places` says in which file each array is."""
    if not isinstance(places, dict) or not all(isinstance(file, str) and file == Path(file).name for file in places.values()):
        raise ValueError(f"{index}: weight_map says in which file of the folder each array is; got {str(places)[:80]}.")
    files = sorted(set(places.values()))
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} is not complete: {', '.join(missing)} is missing, which {index.name} names.")
    found = {file: checkpoints.load(folder / file)[0] for file in files}
    misplaced = [f"{name} in {file}" for name, file in places.items() if name not in found[file]]
    misplaced += [f"{name} in {file}" for file, part in found.items() for name in part if places.get(name) != file]
    if misplaced:
        raise ValueError(f"{index} and the files it names do not agree on: {', '.join(misplaced[:9])}.")
    return {name: found[file][name] for name, file in places.items()}


def _unified(arrays: Arrays, layout: Layout, folder: Path) -> Arrays:
    """The floating arrays under the names of the layout: without prefix, without what is ignored, each once."""
    unified: Arrays = {}
    for name, array in arrays.items():
        short = name.removeprefix(layout.prefix)
        short = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", short))
        if re.fullmatch(layout.ignored, short):
            continue
        if short in unified:
            raise ValueError(f"{folder} has {short} twice: as {name} and under another spelling.")
        if array.dtype.kind != "f":
            raise ValueError(f"{folder}: {name} is kept as {array.dtype}; parameters are floating numbers.")
        unified[short] = array
    return unified


def _fill(model: Any, layout: Layout, entries: list[Entry], arrays: Arrays, folder: Path) -> None:
    """Set the parameters. Nothing is changed unless everything fits."""
    parameters = dict(model.named_parameters())
    faults = []
    names = {entry.name for entry in entries}
    for copy, name in layout.copies.items():
        if copy in arrays and copy not in names:
            array = arrays.pop(copy)
            if not np.array_equal(array, arrays.setdefault(name, array), equal_nan=True):
                faults.append(f"{copy} should equal {name}, which the model shares, but does not")
    faults += [f"{name} is missing" for name in sorted(names - arrays.keys())]
    faults += [f"{name} is left over" for name in sorted(arrays.keys() - names)]
    for entry in entries:
        shapes = [parameters[path].shape for path in entry.paths]
        shape = (*shapes[0][:-1], sum(s[-1] for s in shapes))
        shape = shape[::-1] if entry.transposed else shape
        if entry.name in arrays and arrays[entry.name].shape != shape:
            faults.append(f"{entry.name} has shape {arrays[entry.name].shape} and should have {shape}")
    if faults:
        raise ValueError(f"{folder}: the arrays do not fit the configuration.\n  " + "\n  ".join(faults))
    for entry in entries:
        array = arrays.pop(entry.name)
        array = array.T if entry.transposed else array
        start = 0
        for path in entry.paths:
            parameter = parameters[path]
            given = array[..., start : start + parameter.shape[-1]]
            with np.errstate(over="ignore"):
                part = np.array(given, parameter.dtype, order="C")
            if parameter.dtype.itemsize < given.dtype.itemsize and np.any(np.isinf(part) & np.isfinite(given)):
                raise ValueError(f"{folder}: {entry.name} has numbers too large for {parameter.dtype}.")
            part.flags.writeable = False  # ours alone: the parameter takes it as it is
            parameter.data = part
            start += parameter.shape[-1]


# Writing


def save(model: GPT | BERT, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`, which `load` and transformers read; bit for bit the same parameters.

    Raises ValueError for a GPT that is neither GPT-2's nor Llama's, and ImportError without the package safetensors.
    """
    kind, layout, config = _layout_of(model)
    parameters = dict(model.named_parameters())
    arrays = {}
    for entry in layout.entries(config):
        array = np.concatenate([parameters[path].data for path in entry.paths], axis=-1)
        whole = entry.name.startswith(("lm_head.", "cls."))  # parts that stand beside the body of the model
        prefix = "" if whole or (kind == "bert" and not config.head) else layout.prefix
        arrays[prefix + entry.name] = array.T if entry.transposed else array
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.save(folder / "model.safetensors", arrays, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(layout.write(config), indent=2) + "\n", encoding="utf-8")


def _layout_of(model: GPT | BERT) -> tuple[str, Layout, Any]:
    """The layout whose config.json says all of the model's configuration, and that with its defaults filled in."""
    config = _complete(model.config)
    for kind, layout in LAYOUTS.items():
        if isinstance(model, layout.model):
            names = {entry.name: np.zeros(0) for entry in layout.entries(config)}
            with suppress(ValueError):  # of an option that the layout does not have
                if _complete(layout.read(layout.write(config), names)) == config:
                    return kind, layout, config
    raise ValueError(f"config.json has no words for all of this model; use checkpoints.save_model. Got {model.config}.")


def _complete(config: Any) -> Any:
    """The configuration with its defaults filled in, and without what is not kept: dropout and how attention is computed."""
    config = replace(config, d_ff=config.d_ff or 4 * config.d_model, dropout=0.0)
    if isinstance(config, GPTConfig):
        d_head = config.d_head or config.d_model // config.n_head
        return replace(config, n_kv_head=config.n_kv_head or config.n_head, d_head=d_head, tiled=False)
    return config
