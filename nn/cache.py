"""A cache of keys and values, so that generating a token does not compute those of the earlier ones again (notes 14.7).

It is a thing of its own: training code knows nothing of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.autograd.rules import tracked
from chainrule.autograd.tensor import value_of
from chainrule.nn.checks import check_size


class LayerCache:
    """The keys (…, H, m, d_k) and values (…, H, m, d_v) of one attention layer so far; m is `length`."""

    def __init__(self) -> None:
        self.length = 0
        self._kept: list[Any] = []  # K and V with room to grow

    def append(self, K: Any, V: Any) -> tuple[Any, Any]:
        """Add the keys (…, H, n, d_k) and values (…, H, n, d_v) of n more positions; returns all so far, as plain arrays.

        The arrays returned are views of the cache, good until the next call. Room doubles when it runs out, so that m
        positions one by one cost O(m) copying in all.

        Raises:
            ValueError: if gradients are being recorded (none could flow through the cache), or the shapes do not continue
                what is there.
        """
        if tracked(K) or tracked(V):
            raise ValueError("No gradient flows through a cache of keys and values, yet these require one. Use no_grad().")
        start, end = self.length, self.length + K.shape[-2]
        if not start:  # nothing that they would have to continue
            self._kept = [np.empty((*new.shape[:-2], 0, new.shape[-1]), new.dtype) for new in (K, V)]
        for i, (kept, new) in enumerate(zip(self._kept, (K, V), strict=True)):
            if kept.shape[:-2] != new.shape[:-2] or kept.shape[-1] != new.shape[-1] or new.shape[-2] != end - start:
                raise ValueError(
                    f"The cache holds {('keys', 'values')[i]} {(*kept.shape[:-2], start, kept.shape[-1])}, which "
                    f"{new.shape} do not continue. Use a new cache, or clear(), for another batch."
                )
        for i, new in enumerate((K, V)):
            kept = self._kept[i]
            if end > kept.shape[-2]:
                grown = np.empty((*kept.shape[:-2], max(end, 2 * kept.shape[-2]), kept.shape[-1]), kept.dtype)
                grown[..., :start, :] = kept[..., :start, :]
                self._kept[i] = kept = grown
            kept[..., start:end, :] = value_of(new)
        self.length = end
        return self.all()

    def all(self) -> tuple[Any, Any]:
        """All keys and values so far; read-only views."""
        K, V = (kept[..., : self.length, :] for kept in self._kept)
        K.flags.writeable = V.flags.writeable = False
        return K, V

    def crop(self, length: int) -> None:
        """Forget all but the first `length` positions."""
        check_size("length", length, 0)
        self.length = min(self.length, length)

    def clear(self) -> None:
        """Forget everything, and let the memory go."""
        self.length, self._kept = 0, []

    @property
    def nbytes(self) -> int:
        """The bytes of the keys and values so far: length · Σ H · d · itemsize. (With the room to grow, at most twice that.)"""
        return sum(int(kept[..., : self.length, :].nbytes) for kept in self._kept)


class AllOrNothing:
    """`with AllOrNothing(cache):` if what is done inside raises, no layer keeps keys of this call that came to nothing.

    `cache` is a model's, the part of one layer, or None.
    """

    def __init__(self, cache: KVCache | LayerCache | None) -> None:
        layers = [] if cache is None else cache.layers if isinstance(cache, KVCache) else [cache]
        self.before = [(layer, layer.length) for layer in layers]

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            for layer, length in self.before:
                layer.crop(length)


class KVCache:
    """One `LayerCache` for each of `n_layer` attention layers: `cache[i]` is that of layer i (from 0).

    Use it inside `no_grad()`: call the model on the first tokens, then on one new token at a time, with the same cache. A model
    whose `forward` hands its layers their parts does so inside `AllOrNothing(cache)`.
    """

    def __init__(self, n_layer: int) -> None:
        check_size("n_layer", n_layer)
        self.layers = [LayerCache() for _ in range(n_layer)]

    def check_layers(self, n_layer: int) -> None:
        """Raise ValueError unless it has a part for each of so many layers."""
        if len(self) != n_layer:
            raise ValueError(
                f"The model's cache has {n_layer} layers; got one of {len(self)}. Make it with KVCache({n_layer})."
            )

    def __getitem__(self, layer: int) -> LayerCache:
        return self.layers[layer]

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def length(self) -> int:
        """How many positions are kept: where the next one stands."""
        return self.layers[0].length

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and values so far."""
        return sum(layer.nbytes for layer in self.layers)

    def crop(self, length: int) -> None:
        """Forget all but the first `length` positions of every layer."""
        for layer in self.layers:
            layer.crop(length)

    def clear(self) -> None:
        """Forget everything."""
        for layer in self.layers:
            layer.clear()

    def __repr__(self) -> str:
        return f"KVCache({len(self)} layers, {self.length} positions, {self.nbytes:,} bytes)"
