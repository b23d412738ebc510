"""Which models there are, and what several of them share: checks of what they are given, and folders of Hugging Face's."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chainrule.nn.module import Module

# Class name -> its file
MODELS = {"GPT": "gpt", "BERT": "bert", "EncoderDecoder": "encoder_decoder", "MLP": "mlp", "Word2Vec": "word2vec"}


def model_and_config(name: str) -> tuple[Any, Any]:
    """The class of that name among MODELS, and that of its configurations. Imported here: their files import this one."""
    module = importlib.import_module(f"chainrule.models.{MODELS[name]}")
    return getattr(module, name), getattr(module, f"{name}Config")


class Pretrained(Module):
    """A model that Hugging Face folders hold: GPT and BERT."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: DTypeLike | None = None) -> Self:
        """The model in a Hugging Face folder of safetensors; see `pretrained.load`."""
        from chainrule.models import pretrained  # it imports the models

        model: Self = pretrained.load(folder, cls, dtype)
        return model

    def save_pretrained(self: Any, folder: str | Path) -> None:
        """Write a Hugging Face folder; see `pretrained.save`."""
        from chainrule.models import pretrained

        pretrained.save(self, folder)


def check_sizes(config: Any, *names: str) -> None:
    """Raise ValueError unless these fields are positive whole numbers; one that may be None, by its default, passes as None."""
    for name in names:
        size = getattr(config, name)
        if size is None and getattr(type(config), name, 0) is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is a positive whole number; got {size!r}.")


def sequences(ids: Any) -> NDArray[Any]:
    """The ids that a model reads, as an array. ValueError for rows of several lengths and a single id, TypeError for no ids."""
    array = rectangular(ids)
    if not array.ndim:
        if array.dtype.kind not in "iu":
            raise TypeError(f"ids are integers (B, T) or (T,); got {ids!r}. Encode the text first.")
        raise ValueError("A model reads sequences, ids (B, T) or (T,); got one number. Put it in a list.")
    return array


def rectangular(ids: Any) -> NDArray[Any]:
    """Ids as an array. ValueError for a batch of sequences that are not equally long."""
    try:
        return np.asarray(ids)
    except ValueError:
        raise ValueError("The sequences of a batch, ids (B, T), are equally long; got several lengths. Pad them.") from None


def json_object(content: str | bytes, what: str) -> dict[str, Any]:
    """The JSON object that `content` is. ValueError, which says of `what`, for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:  # also for what is not UTF-8, or nested without end
        raise ValueError(f"{what} is not JSON, or is damaged or cut short ({error}).") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is a JSON object, {{…}}; got a {type(found).__name__}.")
    return found
