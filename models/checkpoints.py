"""Checkpoints: arrays and what they mean in one safetensors file, so that nothing in it is ever run.

The format is a length, a JSON header and the numbers (github.com/huggingface/safetensors). What a model is (its class, its
config, its tokenizer) is JSON in the header: a checkpoint needs no other file.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.models.tokenizers import Tokenizer
from chainrule.nn import init

Arrays = dict[str, NDArray[Any]]

# Class name -> its module and its config's name. Imported when needed: a checkpoint uses one of them.
MODELS = {
    "GPT": ("chainrule.models.gpt", "GPTConfig"),
    "BERT": ("chainrule.models.bert", "BERTConfig"),
    "EncoderDecoder": ("chainrule.models.encoder_decoder", "EncoderDecoderConfig"),
    "MLP": ("chainrule.models.mlp", "MLPConfig"),
    "Word2Vec": ("chainrule.models.word2vec", "Word2VecConfig"),
}

KEY = "chainrule"  # our entry in the header
TRAINING = "training."  # prefix of what only training needs; no parameter's path begins so: Module.training is a bool


def save(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays by name, with texts by name beside them. Replaces a file of that name at once, or not at all.

    A crash at any moment leaves the old file or the new one: all is written beside it, forced to the disk, then renamed.

    Raises:
        ImportError: without the package safetensors. OSError: if the folder cannot be written.
        TypeError: for a dtype that the format does not have.
    """
    safetensors = safetensors_library()
    path = Path(path)
    for left_over in path.parent.glob(f".{path.name}.*.tmp"):  # of a save that was killed
        left_over.unlink(missing_ok=True)
    tmp = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        for name, array in arrays.items():
            if array.dtype.kind not in "fiub":
                raise TypeError(f"A checkpoint holds floats, integers and booleans; {name} has dtype {array.dtype}.")
        rows = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # the format knows no strides
        content = safetensors.numpy.save(rows, metadata=dict(metadata or {}))
        with tmp.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(path)
        _sync_folder(path.parent)
    finally:
        tmp.unlink(missing_ok=True)


def load(path: str | Path) -> tuple[Arrays, dict[str, str]]:
    """(arrays, metadata) of a safetensors file; dtypes and bits as they were saved.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is something else, damaged or cut short.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    with opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118 (not a dict)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file, open. ValueError if it is something else, damaged or cut short."""
    safetensors = safetensors_library()
    try:
        with safetensors.safe_open(path, framework="np") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged or cut short ({error}).") from None


def save_model(
    path: str | Path,
    model: Any,
    tokenizer: Tokenizer | None = None,
    *,
    arrays: Mapping[str, NDArray[Any]] | None = None,
    **more: Any,
) -> None:
    """Write a model that `load_model` makes again: parameters by path, and class, config and tokenizer in the header.

    Args:
        arrays: further arrays by name, for training. more: anything JSON has, for the metadata.
    Raises:
        TypeError: for a model that is none of MODELS, or parameters of several dtypes.
    """
    kind = type(model).__name__
    if kind not in MODELS:
        raise TypeError(
            f"A checkpoint holds one of {', '.join(MODELS)}; got {kind}. Use checkpoints.save(path, model.state_dict())."
        )
    parameters = {name: parameter.data for name, parameter in model.named_parameters()}
    dtypes = {str(data.dtype) for data in parameters.values()}
    if len(dtypes) > 1:
        raise TypeError(f"All parameters of a model have one dtype; got {', '.join(sorted(dtypes))}.")
    metadata = {
        "model": kind,
        "config": asdict(model.config),
        "tokenizer": None if tokenizer is None else tokenizer.to_dict(),
        **more,
    }
    further = {TRAINING + name: array for name, array in (arrays or {}).items()}
    # One entry: the package writes several in an order that changes from run to run.
    save(path, {**parameters, **further}, {KEY: json.dumps(metadata, ensure_ascii=False)})


def load_model(path: str | Path) -> tuple[Any, Any, dict[str, Any]]:
    """(model, tokenizer or None, metadata) of a file that `save_model` wrote.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is no such file, or parameters and config do not fit.
    """
    arrays, metadata = load_run(path)
    return *model_of(path, arrays, metadata), metadata


def load_run(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """(all arrays, metadata) of a file that `save_model` wrote; raises as `load_model` does."""
    arrays, header = load(path)
    if KEY not in header:
        raise ValueError(f"{path} holds arrays but not what model they belong to: it was not written by save_model.")
    metadata: dict[str, Any] = json.loads(header[KEY])
    return arrays, metadata


def model_of(path: str | Path, arrays: Arrays, metadata: dict[str, Any]) -> tuple[Any, Any]:
    """(model, tokenizer) from what `load_run` read."""
    kind = metadata["model"]
    if kind not in MODELS:
        raise ValueError(f"{path} holds a {kind}; this version knows {', '.join(MODELS)}.")
    module_name, config_name = MODELS[kind]
    module = importlib.import_module(module_name)
    config = getattr(module, config_name)(**{key: _tupled(value) for key, value in metadata["config"].items()})
    parameters = {name: array for name, array in arrays.items() if not name.startswith(TRAINING)}
    with init.shapes_only():  # no numbers are drawn only to be replaced
        model = getattr(module, kind)(config, dtype=next(iter(parameters.values())).dtype)
    try:
        model.load_state_dict(parameters)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path}: {error.args[0]}") from None
    tokenizer = metadata["tokenizer"]
    return model, None if tokenizer is None else Tokenizer.from_dict(tokenizer)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


def _sync_folder(folder: Path) -> None:
    """Make the renaming last through a power cut, where the system lets a folder be opened (Windows does not)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def safetensors_library() -> Any:
    """The package, or an ImportError that says how to get it."""
    try:
        importlib.import_module("safetensors.numpy")
    except ImportError:
        raise ImportError('Checkpoints are safetensors files: pip install "chainrule[train]".') from None
    return importlib.import_module("safetensors")
