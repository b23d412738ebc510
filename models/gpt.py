"""GPT: a decoder-only Transformer, which predicts the next token (notes 8-10; Radford et al. 2019).

GPT-2 and a Llama-like model are configurations of it:

    GPTConfig(vocab_size=50257, context=1024, n_layer=12, n_head=12, d_model=768)                       # GPT-2 small
    GPTConfig(vocab_size=49152, context=2048, n_layer=30, n_head=9, n_kv_head=3, d_model=576, d_ff=1536,
              norm="rms", positions="rope", activation="swiglu", bias=False)                            # Llama-like
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from chainrule.autograd import default_dtype, named
from chainrule.autograd.modes import MODE
from chainrule.models import generation
from chainrule.models.configs import Pretrained, check_sizes, sequences
from chainrule.models.counting import check_memory
from chainrule.nn import init
from chainrule.nn.attention import Attention, mask_of_tokens
from chainrule.nn.blocks import Block, FeedForward, check_activation
from chainrule.nn.cache import AllOrNothing, KVCache
from chainrule.nn.checks import check_number
from chainrule.nn.dropout import Dropout, reseed
from chainrule.nn.linear import embedding
from chainrule.nn.module import Module
from chainrule.nn.norms import LayerNorm, RMSNorm
from chainrule.nn.positions import LearnedPositions, Rope, alibi, sinusoidal


@dataclass(frozen=True)
class GPTConfig:
    """What a GPT is made of.

    Args:
        vocab_size, context: the tokens there are, and how many the model reads at once. n_layer, n_head, d_model: its size.
        n_kv_head: heads of keys and values, if fewer (grouped-query attention). d_head: d_model / n_head if not given.
        d_ff: hidden entries of the position-wise network; 4 · d_model if not given. activation: see `nn.FeedForward`.
        norm: "layer" or "rms"; before each part, or after it with pre_norm=False. norm_eps: the ε inside its root.
        positions: "learned", "sinusoidal", "rope", "alibi" or "none". rope_base: the base of RoPE's wavelengths;
            rope_halves: it pairs feature i with i + d/2, as Llama does, instead of 2i with 2i + 1.
        tied: the unembedding is Eᵀ (notes 12.3); else a matrix U of its own. bias: False leaves out all biases.
        dropout: rate on the embeddings and on each part's output, in training. tiled: attention in memory linear in length.
    Raises:
        ValueError: for sizes that are not positive or do not divide, words that are not known, and numbers out of range.
    """

    vocab_size: int
    context: int
    n_layer: int
    n_head: int
    d_model: int
    n_kv_head: int | None = None
    d_head: int | None = None
    d_ff: int | None = None
    activation: str = "gelu_tanh"
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    pre_norm: bool = True
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "none"] = "learned"
    rope_base: float = 10000.0
    rope_halves: bool = False
    tied: bool = True
    bias: bool = True
    dropout: float = 0.0
    tiled: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, "vocab_size", "context", "n_layer", "n_head", "d_model", "n_kv_head", "d_head", "d_ff")
        if self.norm not in ("layer", "rms"):
            raise ValueError(f'norm is "layer" or "rms"; got {self.norm!r}.')
        if self.positions not in ("learned", "sinusoidal", "rope", "alibi", "none"):
            raise ValueError(f'positions is "learned", "sinusoidal", "rope", "alibi" or "none"; got {self.positions!r}.')
        if self.d_head is None and self.d_model % self.n_head:
            raise ValueError(f"n_head must divide d_model, or d_head be given; got {self.n_head} heads of {self.d_model}.")
        if self.n_head % (self.n_kv_head or self.n_head):
            raise ValueError(f"n_kv_head must divide n_head; got {self.n_kv_head} of {self.n_head}.")
        if self.positions == "rope" and (self.d_head or self.d_model // self.n_head) % 2:
            raise ValueError("RoPE rotates pairs: a head has an even number of features. Choose another d_model or d_head.")
        check_activation(self.activation)
        check_number("norm_eps", self.norm_eps)
        check_number("rope_base", self.rope_base, ends="()")
        check_number("dropout", self.dropout, high=1)


class GPT(Pretrained):
    """ids (B, T) or (T,) -> logits (B, T, vocabulary) or (T, vocabulary): what may follow each position.

    Parameters: E (vocabulary, d), positions.P (context, d), blocks.0.attn.WQ and so on, norm.gamma, and U (d, vocabulary)
    unless tied. Nodes are called X, blocks.0.attn.Q K V S A Z, h and logits.

    Args:
        seed: of the numbers the parameters start from. dtype: theirs; float64, or what `default_dtype` says, if not given.
    """

    def __init__(self, config: GPTConfig, *, seed: init.Seed = 0, dtype: Any = None) -> None:
        self.config = config
        check_memory(config, dtype)
        with default_dtype(dtype or MODE.get().dtype):
            rng = init.generator(seed)
            self.E = init.normal((config.vocab_size, config.d_model), 0.02, rng)
            if config.positions == "learned":
                self.positions = LearnedPositions(config.context, config.d_model, seed=rng)
            self.dropout = Dropout(config.dropout)
            self.blocks = [self._block(config, rng) for _ in range(config.n_layer)]
            if config.pre_norm:
                self.norm = self._norm(config)
            if not config.tied:
                self.U = init.normal((config.d_model, config.vocab_size), 0.02, rng)
            reseed(self, int(rng.integers(2**63)))

    @staticmethod
    def _norm(config: GPTConfig) -> Module:
        if config.norm == "rms":
            return RMSNorm(config.d_model, config.norm_eps)
        return LayerNorm(config.d_model, config.norm_eps, bias=config.bias)

    @classmethod
    def _block(cls, config: GPTConfig, rng: init.Seed) -> Block:
        d, bias = config.d_model, config.bias
        out_std = 0.02 / sqrt(2 * config.n_layer)  # the residual path adds up 2 · n_layer parts (Radford et al. 2019, 2.3)
        d_head = config.d_head or d // config.n_head
        attn = Attention(
            d,
            config.n_head,
            n_kv_head=config.n_kv_head,
            d_head=d_head,
            bias=bias,
            causal=True,
            rope=Rope(config.rope_base, config.rope_halves) if config.positions == "rope" else None,
            tiled=config.tiled,
            out_std=out_std,
            seed=rng,
        )
        ffn = FeedForward(d, config.d_ff or 4 * d, config.activation, bias, std=0.02, out_std=out_std, seed=rng)
        return Block(attn, ffn, cls._norm(config), cls._norm(config), pre_norm=config.pre_norm, dropout=config.dropout)

    def forward(self, ids: Any, *, mask: Any = None, cache: KVCache | None = None, last: bool = False) -> Any:
        """The logits.

        Args:
            ids: integers (B, T) or (T,); with a cache, the tokens after those it holds.
            mask: boolean (B, T) or (T,), as the ids: True at tokens, False at padding, which is not read. With a cache, of all
                ids so far. Positions are counted with the padding.
            cache: what earlier calls computed, so that generation computes only what is new (see `nn.KVCache`). A call that
                raises leaves it as it was.
            last: only the logits (B, 1, vocabulary) of the last position, as generation needs them.
        Raises:
            TypeError: for a mask that is not boolean.
            ValueError: for more positions than the context, a mask of another shape, and a cache of another model's size.
        """
        config = self.config
        ids = sequences(ids)
        X = embedding(self.E, ids)  # (B, T, d)
        if cache is not None:
            cache.check_layers(config.n_layer)
        start = 0 if cache is None else cache.length
        T = X.shape[-2]
        if start + T > config.context:
            raise ValueError(f"The context is {config.context} positions; got {start + T}. Give the last {config.context} ids.")
        if config.positions == "learned":
            X = X + self.positions(T, start)
        elif config.positions == "sinusoidal":
            X = X + sinusoidal(start + T, config.d_model, X.dtype)[start:]
        bias = alibi(config.n_head, T, start + T, X.dtype) if config.positions == "alibi" else None
        keys = mask_of_tokens(mask, (*ids.shape[:-1], start + T))  # (B, 1, 1, start + T)
        with AllOrNothing(cache):
            x = self.dropout(named("X", X))
            for i, block in enumerate(self.blocks):
                x = block(x, mask=keys, bias=bias, cache=None if cache is None else cache[i])
            if last:
                x = x[..., -1:, :]
            h = named("h", self.norm(x) if config.pre_norm else x)  # (B, T, d)
            return named("logits", h @ (self.E.T if config.tied else self.U))  # (B, T, vocabulary)

    def new_cache(self) -> KVCache:
        """An empty cache for generation."""
        return KVCache(self.config.n_layer)

    generate = generation.generate
    stream = generation.stream
