"""The cache of keys and values: what comes out with it is what comes out without."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, no_grad
from chainrule.nn.attention import Attention, padding_mask
from chainrule.nn.cache import AllOrNothing, KVCache, LayerCache
from chainrule.nn.positions import Rope, alibi

RNG = np.random.default_rng(0)


def normal(*shape, dtype=float):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("parts", [[9], [1] * 9, [3, 1, 1, 4], [4, 5]])
@pytest.mark.parametrize("options", [{}, {"n_kv_head": 2, "rope": Rope(), "bias": True}, {"tiled": True, "d_value": 3}])
def test_cached_equals_computed_at_once(parts, options):
    layers = [Attention(8, 4, causal=True, std=0.5, seed=seed, **options) for seed in range(2)]
    x = normal(2, 9, 8)
    with no_grad():
        whole = layers[1](layers[0](x)).data
        cache, stop, found = KVCache(2), 0, []
        for n in parts:
            start, stop = stop, stop + n
            h = x[:, start:stop]
            assert cache.length == start
            for i, layer in enumerate(layers):
                h = layer(h, cache=cache[i])
            found.append(h.data)
    assert cache.length == 9
    assert_allclose(np.concatenate(found, axis=1), whole, rtol=1e-11, atol=1e-14)


def test_biases_and_padding_with_a_cache():
    """Of a batch padded on the left: the mask grows with the keys, the biases are those of the last queries."""
    attn, x = Attention(4, 2, causal=True, std=0.5), normal(2, 6, 4)
    mask = padding_mask(np.arange(6) >= np.array([[0], [2]]))  # the second sentence begins at position 2
    with no_grad():
        whole = attn(x, mask=mask, bias=alibi(2, 6)).data
        cache = LayerCache()
        for stop in range(1, 7):
            y = attn(x[:, stop - 1 : stop], mask=mask[..., :stop], bias=alibi(2, 1, stop), cache=cache).data
            assert_allclose(y[:, 0], whole[:, stop - 1], rtol=1e-12, atol=1e-300)
    assert_array_equal(whole[1, :2], 0)


def test_a_context_is_kept_at_the_first_call():
    attn, context, x = Attention(4, 2, d_context=3, std=0.5), normal(2, 5, 3), normal(2, 2, 4)
    cache = LayerCache()
    with no_grad():
        for i in range(2):
            y = attn(x[:, i : i + 1], context, cache=cache).data
            assert_allclose(y[:, 0], attn(x, context).data[:, i], rtol=1e-12)
            assert cache.length == 5


@pytest.mark.parametrize("kept", [0, 3])
def test_a_call_that_raises_leaves_the_cache_as_it_was(kept):
    """Whatever raises, and wherever: the keys of that call are not there, nor is its shape in a cache that was empty."""
    attn, x = Attention(4, 2, causal=True, std=0.5), normal(2, 5, 4)
    cache = LayerCache()
    with no_grad():
        whole = attn(x).data
        if kept:
            attn(x[:, :kept], cache=cache)
        for wrong in ({"mask": np.ones((7, 7), bool)}, {"mask": np.ones(5)}, {"bias": np.ones((3, 1, 9))}):
            with pytest.raises((ValueError, TypeError)):
                attn(np.ones((1 if kept == 0 else 2, 2, 4)), cache=cache, **wrong)
            assert cache.length == kept
        assert_allclose(attn(x[:, kept:], cache=cache).data, whole[:, kept:], rtol=1e-12)


def test_a_model_that_raises_in_a_later_layer_leaves_all_layers_as_they_were():
    layers = [Attention(4, 2, causal=True, std=0.5, seed=seed) for seed in range(2)]
    x, cache = normal(5, 4), KVCache(2)

    def model(x, broken=False):
        with AllOrNothing(cache):
            h = layers[0](x, cache=cache[0])
            if broken:
                raise KeyboardInterrupt
            return layers[1](h, cache=cache[1]).data

    with no_grad():
        whole = layers[1](layers[0](x)).data
        model(x[:3])
        with pytest.raises(KeyboardInterrupt):
            model(x[3:], broken=True)
        assert [layer.length for layer in cache.layers] == [3, 3]
        assert_allclose(model(x[3:]), whole[3:], rtol=1e-12)


def test_append_gives_all_so_far():
    cache = LayerCache()
    K, V = normal(2, 5, 3), normal(2, 5, 4)
    for i in range(5):
        all_K, all_V = cache.append(K[:, i : i + 1], Tensor(V[:, i : i + 1]))
        assert_array_equal(all_K, K[:, : i + 1])
        assert_array_equal(all_V, V[:, : i + 1])
        assert type(all_V) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        all_K[...] = 0
    assert_array_equal(cache.all()[0], K)


def test_crop_and_clear():
    cache = KVCache(2)
    for layer in cache:
        layer.append(normal(1, 4, 2), normal(1, 4, 2))
    cache.crop(6)
    assert cache.length == 4
    cache.crop(1)
    assert [layer.length for layer in cache] == [1, 1]
    new = normal(1, 2, 2)
    K, _ = cache[0].append(new, new)
    assert_array_equal(K[:, 1:], new)
    cache.clear()
    assert (cache.length, cache.nbytes) == (0, 0)
    cache[0].append(normal(3, 4, 1), normal(3, 4, 1))  # another batch, another width
    with pytest.raises(ValueError, match="length is a whole number, at least 0; got -1"):
        cache.crop(-1)


def test_memory():
    """K and V: 2 · layers · batch · heads · positions · d · bytes; copies grow as O(positions), not its square."""
    cache = KVCache(3)
    for _ in range(10):
        for layer in cache:
            layer.append(normal(2, 4, 1, 8, dtype=np.float32), normal(2, 4, 1, 8, dtype=np.float32))
    assert cache.nbytes == 2 * 3 * 2 * 4 * 10 * 8 * 4
    assert repr(cache) == "KVCache(3 layers, 10 positions, 15,360 bytes)"
    layer, moved = LayerCache(), 0
    for _ in range(1000):
        before = layer.all()[0].base if layer.length else None
        layer.append(np.zeros((1, 1)), np.zeros((1, 1)))
        moved += layer.length if layer.all()[0].base is not before else 0
    assert moved <= 2 * 1000 + 10


def test_dtype_is_kept():
    K, V = LayerCache().append(normal(2, 3, dtype=np.float16), normal(2, 3, dtype=np.float16))
    assert K.dtype == V.dtype == np.float16


def test_gradients_do_not_go_through_a_cache():
    attn = Attention(4, 2)
    with pytest.raises(ValueError, match=r"No gradient flows through a cache of keys and values.*no_grad"):
        attn(normal(3, 4), cache=LayerCache())


def test_what_does_not_continue_the_cache():
    cache = LayerCache()
    cache.append(normal(2, 3, 4), normal(2, 3, 5))
    for K, V in [
        (normal(1, 1, 4), normal(1, 1, 5)),
        (normal(2, 1, 3), normal(2, 1, 5)),
        (normal(2, 1, 4), normal(2, 1, 4)),
        (normal(2, 1, 4), normal(2, 2, 5)),
    ]:
        with pytest.raises(ValueError, match=r"The cache holds (keys|values) \(2, 3, [45]\), which .* do not continue"):
            cache.append(K, V)
    assert cache.length == 3
