"""The encoder-decoder: one sequence in, another out, as in translation (Vaswani et al. 2017; notes 15.9; brief, 交叉注意力).

The encoder reads the source in both directions. The decoder predicts the next token of the target: it reads what it has
written so far (causal self-attention), and the encoder's rows (cross-attention: queries from the decoder, keys and values
from the encoder, so the pattern is target length × source length).

    model = EncoderDecoder(EncoderDecoderConfig(source_vocab=12, target_vocab=12, context=16, n_layer=2, n_head=4, d_model=64))
    logits = model(source_ids, target_ids, source_mask)         # teacher forcing: position t predicts token t + 1
    model.generate(source_ids, max_new_tokens=9, bos=10, eos=11)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from chainrule.autograd import default_dtype, named
from chainrule.autograd.modes import MODE
from chainrule.autograd.tensor import value_of
from chainrule.models.configs import check_sizes, sequences
from chainrule.models.counting import check_memory
from chainrule.models.datasets import IGNORE, Ids
from chainrule.models.generation import check_count, choice, chosen, stop_ids
from chainrule.nn import init
from chainrule.nn.attention import Attention, mask_of_tokens
from chainrule.nn.blocks import Block, FeedForward, check_activation
from chainrule.nn.cache import AllOrNothing, KVCache
from chainrule.nn.checks import check_number
from chainrule.nn.dropout import Dropout, reseed
from chainrule.nn.linear import embedding
from chainrule.nn.module import Module, evaluating
from chainrule.nn.norms import LayerNorm
from chainrule.nn.positions import LearnedPositions, sinusoidal


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """What an encoder-decoder is made of.

    Args:
        source_vocab, target_vocab: the tokens on either side. context: the most that are read on either side.
        n_layer: blocks of the encoder, and as many of the decoder. n_head, d_model: their size.
        d_ff: hidden entries of the position-wise network; 4 · d_model if not given. activation: see `nn.FeedForward`.
        norm_eps: the ε inside the root of every LayerNorm. pre_norm: False puts the norms after the residual sums.
        positions: "learned" or "sinusoidal". tied: the unembedding is the transposed embedding of the target (notes 12.3).
        dropout: rate on the embeddings and on each part's output, in training.
    Raises:
        ValueError: for sizes that are not positive or do not divide, words that are not known, and numbers out of range.
    """

    source_vocab: int
    target_vocab: int
    context: int
    n_layer: int
    n_head: int
    d_model: int
    d_ff: int | None = None
    activation: str = "relu"
    norm_eps: float = 1e-5
    pre_norm: bool = True
    positions: Literal["learned", "sinusoidal"] = "learned"
    tied: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(self, "source_vocab", "target_vocab", "context", "n_layer", "n_head", "d_model", "d_ff")
        if self.d_model % self.n_head:
            raise ValueError(f"n_head must divide d_model; got {self.n_head} heads of {self.d_model}.")
        check_activation(self.activation)
        check_number("norm_eps", self.norm_eps)
        check_number("dropout", self.dropout, high=1)
        if self.positions not in ("learned", "sinusoidal"):
            raise ValueError(f'positions is "learned" or "sinusoidal"; got {self.positions!r}.')


class Side(Module):
    """One of the two sides, up to its last norm: ids (B, T) -> rows (B, T, d).

    Parameters: E (vocabulary, d), positions.P (context, d), blocks.0.attn.WQ and so on; in the decoder blocks.0.cross.WQ;
    norm.gamma.
    """

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int, decoder: bool, rng: np.random.Generator) -> None:
        self.config = config
        self.E = init.normal((vocab_size, config.d_model), 0.02, rng)
        if config.positions == "learned":
            self.positions = LearnedPositions(config.context, config.d_model, seed=rng)
        self.dropout = Dropout(config.dropout)
        self.blocks = [self._block(config, decoder, rng) for _ in range(config.n_layer)]
        if config.pre_norm:
            self.norm = LayerNorm(config.d_model, config.norm_eps)

    @staticmethod
    def _block(config: EncoderDecoderConfig, decoder: bool, rng: np.random.Generator) -> Block:
        d, n_head = config.d_model, config.n_head
        attn = Attention(d, n_head, bias=True, causal=decoder, seed=rng)
        cross = Attention(d, n_head, bias=True, seed=rng) if decoder else None
        return Block(
            attn,
            FeedForward(d, config.d_ff or 4 * d, config.activation, seed=rng),
            LayerNorm(d, config.norm_eps),
            LayerNorm(d, config.norm_eps),
            cross=cross,
            norm_cross=LayerNorm(d, config.norm_eps) if decoder else None,
            pre_norm=config.pre_norm,
            dropout=config.dropout,
        )

    def forward(
        self, ids: Any, memory: Any = None, *, mask: Any = None, memory_mask: Any = None, cache: KVCache | None = None
    ) -> Any:
        """ids (B, T) or (T,), memory (B, S, d), masks as `padding_mask` makes them (B, 1, 1, T or S) -> (B, T, d)."""
        ids = sequences(ids)
        X = embedding(self.E, ids)  # (B, T, d)
        if cache is not None:
            cache.check_layers(2 * self.config.n_layer)
        start = 0 if cache is None else cache.length
        T, context = X.shape[-2], self.config.context
        if start + T > context:
            raise ValueError(
                f"The context is {context} positions; got {start + T}. Use shorter sequences, or a longer context."
            )
        if self.config.positions == "learned":
            X = X + self.positions(T, start)
        else:
            X = X + sinusoidal(start + T, self.config.d_model, X.dtype)[start:]
        with AllOrNothing(cache):
            x = self.dropout(named("X", X))
            for i, block in enumerate(self.blocks):
                own, crossed = (None, None) if cache is None else (cache[i], cache[self.config.n_layer + i])
                x = block(x, memory, context_mask=memory_mask, mask=mask, cache=own, cross_cache=crossed)
            return named("h", self.norm(x) if self.config.pre_norm else x)


class EncoderDecoder(Module):
    """source (B, S), target (B, T) -> logits (B, T, target vocabulary): what may follow each position of the target.

    Both come without B as well. Parameters: encoder.E, encoder.blocks.0.attn.WQ, …, decoder.E, decoder.blocks.0.attn.WQ,
    decoder.blocks.0.cross.WQ, …, and U (d, target vocabulary) unless tied. Nodes: encoder.X, decoder.blocks.0.cross.A, logits.

    Args:
        seed: of the numbers the parameters start from. dtype: theirs; float64, or what `default_dtype` says, if not given.
    """

    def __init__(self, config: EncoderDecoderConfig, *, seed: init.Seed = 0, dtype: Any = None) -> None:
        self.config = config
        check_memory(config, dtype)
        with default_dtype(dtype or MODE.get().dtype):
            rng = init.generator(seed)
            self.encoder = Side(config, config.source_vocab, False, rng)
            self.decoder = Side(config, config.target_vocab, True, rng)
            if not config.tied:
                self.U = init.normal((config.d_model, config.target_vocab), 0.02, rng)
            reseed(self, int(rng.integers(2**63)))

    def forward(self, source_ids: Any, target_ids: Any, source_mask: Any = None) -> Any:
        """The logits of every position, the target being known up to it (teacher forcing).

        Args:
            source_ids, target_ids: integers (B, S) and (B, T). Padding after the end of a target needs no mask: no earlier
                position reads it. Leave it out of the loss.
            source_mask: boolean (B, S), True at tokens, False at padding, which is not read.
        Raises:
            TypeError: for a mask that is not boolean.
            ValueError: for more positions than the context, and a mask of another shape.
        """
        return self.decode(target_ids, self.encode(source_ids, source_mask), source_mask)

    def encode(self, source_ids: Any, source_mask: Any = None) -> Any:
        """The encoder's rows: source (B, S) -> (B, S, d)."""
        source_ids = sequences(source_ids)
        return self.encoder(source_ids, mask=mask_of_tokens(source_mask, np.shape(source_ids)))

    def decode(self, target_ids: Any, memory: Any, source_mask: Any = None, *, cache: KVCache | None = None) -> Any:
        """The logits (B, T, vocabulary) of target (B, T), given the encoder's rows (B, S, d).

        With a cache, a `KVCache` of 2 · n_layer layers, `target_ids` are the tokens after those it holds.
        """
        keys = mask_of_tokens(source_mask, memory.shape[:-1])  # (B, 1, 1, S)
        h = self.decoder(target_ids, memory, memory_mask=keys, cache=cache)  # (B, T, d)
        return named("logits", h @ (self.decoder.E.T if self.config.tied else self.U))

    def generate(
        self,
        source_ids: Any,
        max_new_tokens: int,
        *,
        bos: int,
        eos: int | None = None,
        source_mask: Any = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: init.Seed = 0,
    ) -> Ids:
        """The target, token by token: source (B, S) or (S,) -> (B, n) or (n,), n at most max_new_tokens.

        It starts from `bos`, which is not returned. A target that has `eos` goes on with eos until all have it. The encoder
        runs once, and the decoder only for the new token (see `nn.KVCache`). Each token is the likeliest, unless a temperature
        is given: that, top_k, top_p and seed are `generation.generate`'s. It raises as that does.
        """
        source_ids = sequences(source_ids)
        check_count(max_new_tokens)
        stop_ids(eos)
        choose = choice(temperature, top_k, top_p, seed, source_ids.shape[:-1])
        last = np.full((*source_ids.shape[:-1], 1), bos)  # (B, 1)
        written = [last[..., :0]]
        with evaluating(self):
            memory = self.encode(source_ids, source_mask)
            cache = KVCache(2 * self.config.n_layer)  # of what is written, and of the memory
            for step in range(max_new_tokens):
                logits = value_of(self.decode(last, memory, source_mask, cache=cache))  # (B, 1, vocabulary)
                ended = (last == eos) & bool(written[1:])  # not by bos, which may be the same token
                last = np.where(ended, last, chosen(choose, logits[..., -1, :], step)[..., None])
                written.append(last)
                if (last == eos).all():
                    break
        return np.concatenate(written, axis=-1)


# A task to learn: reverse a sequence of digits

BOS, EOS = 10, 11


def reversals(batch: int, longest: int, rng: np.random.Generator) -> tuple[Ids, Any, Ids, Ids]:
    """(source, source_mask, inputs, targets) for 1 to `longest` digits: 3 1 4 -> 4 1 3 EOS.

    source (B, S), filled with EOS where source_mask (B, S) is False; inputs (B, S+1) begin with BOS; targets (B, S+1) are the
    digits backwards and EOS, then IGNORE.
    """
    place, length = np.arange(longest + 1), rng.integers(1, longest + 1, size=(batch, 1))
    digits = rng.integers(10, size=(batch, longest))
    source_mask = place[:-1] < length  # (B, S)
    source = np.where(source_mask, digits, EOS)
    backwards = np.take_along_axis(digits, np.maximum(length - 1 - place, 0), axis=1)  # (B, S+1)
    targets = np.where(place < length, backwards, np.where(place == length, EOS, IGNORE))
    inputs = np.concatenate([np.full((batch, 1), BOS), np.where(targets == IGNORE, EOS, targets)[:, :-1]], axis=1)
    return source, source_mask, inputs, targets
