"""Checkpoints: arrays and what they mean in one safetensors file, so that nothing in it is ever run.

The format is a length, a JSON header and the numbers (github.com/huggingface/safetensors). What a model is (its class, its
config, its tokenizer) is JSON in the header: a checkpoint needs no other file.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.models.configs import MODELS, json_object, model_and_config
from chainrule.models.counting import check_memory
from chainrule.models.tokenizers import Tokenizer
from chainrule.nn import init

Arrays = dict[str, NDArray[Any]]

CHECKPOINT = "checkpoint.safetensors"  # its name in the folder of a run
KEY = "chainrule"  # our entry in the header
TRAINING = "training."  # prefix of what only training needs; no parameter's path begins so: Module.training is a bool


def save(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays by name, with texts by name beside them. Replaces a file of that name at once, or not at all.

    A crash at any moment leaves the old file or the new one: all is written beside it, forced to the disk, then renamed.
    Of a symbolic link, the file that it leads to is replaced.

    Raises:
        ImportError: without the package safetensors. OSError: if the folder cannot be written, or `path` is not a file.
        TypeError: for a dtype that the format does not have. ValueError: for a name that it does not have.
    """
    safetensors = safetensors_library()
    rows = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # the format knows no strides
    for name, array in rows.items():
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"A checkpoint holds floats, integers and booleans; {name} has dtype {array.dtype}.")
        if name == "__metadata__":
            raise ValueError("The name __metadata__ is taken by the format of checkpoints; give the array another.")
    try:
        content = safetensors.numpy.save(rows, metadata=dict(metadata or {}))
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"Names and texts in a checkpoint are Unicode; {half!r} is half of a surrogate pair.") from None
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise FileExistsError(errno.EEXIST, "A folder, a device or a circle of links is in the way", str(path))
    _clear(target.parent)
    tmp = target.parent / f".chainrule-{secrets.token_hex(8)}.tmp"  # nobody else's
    try:
        with tmp.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # of its class, with the name the caller knows
    finally:
        with suppress(OSError):  # where it could not be made, it cannot be removed
            tmp.unlink()


def _clear(folder: Path) -> None:
    """Remove what saves that were killed left over: no save takes a day."""
    for left_over in folder.glob(".chainrule-*.tmp"):
        with suppress(OSError):  # another process was faster
            if time() - left_over.stat().st_mtime > 24 * 3600:
                left_over.unlink()


DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def load(path: str | Path) -> tuple[Arrays, dict[str, str]]:
    """(arrays, metadata) of a safetensors file; dtypes and bits as they were saved.

    NumPy has no bfloat16: such arrays come as float32, which has all their values.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is something else, damaged or cut short, or has a dtype that
            NumPy does not have.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    with opened(path) as file:
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (not a dict)
        for name, kind in kinds.items():
            if kind not in DTYPES:
                raise ValueError(f"{path}: {name} is kept as {kind}; supported are {', '.join(DTYPES)}.")
        widened = _bfloat16(path, [name for name, kind in kinds.items() if kind == "BF16"])
        arrays = {name: widened[name] if name in widened else file.get_tensor(name) for name in kinds}
        return arrays, dict(file.metadata() or {})


def _bfloat16(path: Path, names: list[str]) -> Arrays:
    """The bfloat16 arrays of these names as float32, whose upper half their bits are.

    The file is the length of the header (8 bytes), the header (JSON), the numbers.
    """
    if not names:
        return {}
    arrays = {}
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(length))
        for name in names:
            start, end = entries[name]["data_offsets"]
            file.seek(8 + length + start)
            bits = np.frombuffer(file.read(end - start), "<u2")
            arrays[name] = (bits.astype(np.uint32) << 16).view(np.float32).reshape(entries[name]["shape"])
    return arrays


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
    Numbers that are not finite are kept as they are, so that a model which diverged can be looked at; `Trainer.save` refuses
    them, which would replace a checkpoint to go on from.

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
    # One entry: the package writes several in an order that changes from run to run. In ASCII: any token can be said.
    save(path, {**parameters, **further}, {KEY: json.dumps(metadata)})


def load_model(path: str | Path) -> tuple[Any, Any, dict[str, Any]]:
    """(model, tokenizer or None, metadata) of a file that `save_model` wrote, or of the run in a folder.

    A Hugging Face folder is as good (see `pretrained.load`); it has no metadata.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is no such file, or parameters and config do not fit, or the
            tokenizer has tokens that the model has no row for. (Rows without a token are common: see `generate`.)
    """
    path = Path(path)
    if (path / "config.json").is_file() and not (path / CHECKPOINT).exists():
        from chainrule.models import pretrained  # it imports this file

        model, tokenizer = pretrained.load(path), pretrained.tokenizer(path)
        _check_rows(path, model, tokenizer)
        return model, tokenizer, {}
    arrays, metadata = load_run(path)
    return *model_of(path, arrays, metadata), metadata


def load_run(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """(all arrays, metadata) of a file that `save_model` wrote, or of the run in a folder; raises as `load_model` does."""
    path = Path(path)
    arrays, header = load(path / CHECKPOINT if path.is_dir() else path)
    if KEY not in header:
        raise ValueError(f"{path} holds arrays but not what model they belong to: it was not written by save_model.")
    return arrays, json_object(header[KEY], f"{path}: the entry {KEY!r} of the header")


def model_of(path: str | Path, arrays: Arrays, metadata: Mapping[str, Any]) -> tuple[Any, Any]:
    """(model, tokenizer) from what `load_run` read. ValueError, which names the file, if they do not fit together."""
    try:
        model, tokenizer = _model(arrays, metadata), _tokenizer(metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error.args[0]}") from None
    _check_rows(path, model, tokenizer)
    return model, tokenizer


def _check_rows(path: str | Path, model: Any, tokenizer: Tokenizer | None) -> None:
    rows = getattr(model.config, "vocab_size", None)
    if tokenizer is not None and rows is not None and tokenizer.vocab_size > rows:
        raise ValueError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, but the model has rows for {rows}. Is it the model's?"
        )


def _model(arrays: Arrays, metadata: Mapping[str, Any]) -> Any:
    kind, said = metadata.get("model"), metadata.get("config")
    if kind not in list(MODELS):
        raise ValueError(f"It holds a {kind}; this version knows {', '.join(MODELS)}.")
    if not isinstance(said, dict):
        raise ValueError(f"The metadata need the model's config; got {said!r}.")
    model_class, config_class = model_and_config(kind)
    config = config_of(config_class, said)
    parameters = {name: array for name, array in arrays.items() if not name.startswith(TRAINING)}
    dtypes = sorted({str(array.dtype) for array in parameters.values()})
    if len(dtypes) != 1 or not dtypes[0].startswith("float"):
        raise ValueError(f"All parameters of a model have one floating dtype; got {', '.join(dtypes) or 'no parameters'}.")
    check_memory(config, dtypes[0])
    with init.shapes_only():  # no numbers are drawn only to be replaced
        model = model_class(config, dtype=np.dtype(dtypes[0]))
    model.load_state_dict(parameters)
    return model


def config_of(config_class: Any, said: Mapping[str, Any], complete: bool = False) -> Any:
    """A config from its fields as JSON has them; `complete`: also those that have a default. ValueError if they make none."""
    known = {field.name: field for field in fields(config_class)}
    needed = {name for name, field in known.items() if complete or field.default is MISSING}
    unknown, missing = said.keys() - known.keys(), needed - said.keys()
    if unknown or missing:
        faults = [f"here has no {', '.join(sorted(unknown))}, which a newer version may have written"] * bool(unknown)
        faults += [f"needs {', '.join(sorted(missing))}"] * bool(missing)
        raise ValueError(f"The config does not fit: a {config_class.__name__} {'; it '.join(faults)}.")
    try:
        return config_class(**{key: _tupled(value) for key, value in said.items()})
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"The config {said} makes no {config_class.__name__}: {error}") from None


def _tokenizer(metadata: Mapping[str, Any]) -> Tokenizer | None:
    saved = metadata.get("tokenizer")
    return None if saved is None else Tokenizer.from_dict(saved)


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
