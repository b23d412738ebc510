"""BERT: an encoder, which reads in both directions (Devlin et al. 2019; notes 15.9).

Every position attends to every other: there is no causal mask, and so no next token to predict. It learns to restore tokens
that were masked (`mask_tokens`, `masked_logits`), and its rows, averaged, serve as vectors of whole sentences (`embed`;
Reimers and Gurevych 2019).

    BERTConfig(vocab_size=30522, context=512, n_layer=12, n_head=12, d_model=768)                            # BERT base
    BERTConfig(vocab_size=30522, context=512, n_layer=6, n_head=12, d_model=384, d_ff=1536, head=False)      # MiniLM-L6
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autograd import default_dtype, named
from chainrule.autograd.modes import MODE
from chainrule.models.configs import Pretrained, check_sizes, sequences
from chainrule.models.counting import check_memory
from chainrule.models.datasets import IGNORE, Ids
from chainrule.nn import init
from chainrule.nn.activations import ACTIVATIONS
from chainrule.nn.attention import Attention, mask_of_tokens
from chainrule.nn.blocks import Block, FeedForward
from chainrule.nn.checks import check_number, check_size
from chainrule.nn.dropout import Dropout, reseed
from chainrule.nn.linear import Embedding, Linear, checked_ids, embedding
from chainrule.nn.module import Module
from chainrule.nn.norms import LayerNorm
from chainrule.nn.positions import LearnedPositions

STD = 0.02  # of all weights at the start (Devlin et al. 2019)


@dataclass(frozen=True)
class BERTConfig:
    """What a BERT is made of.

    Args:
        vocab_size, context: the tokens there are, and the most that are read at once. n_layer, n_head, d_model: its size.
        d_ff: hidden entries of the position-wise network; 4 · d_model if not given. activation: see `nn.ACTIVATIONS`.
        norm_eps: the ε inside the root of every LayerNorm. n_segment: kinds of segments (first and second sentence); 0: none.
        dropout: rate on the embeddings, the attention patterns and each part's output, in training.
        pooler: with the map of the first row that BERT classifies by. head: with the head that predicts masked tokens.
    Raises:
        ValueError: for sizes that are not positive or do not divide, an activation that is not known, and numbers out of range.
    """

    vocab_size: int
    context: int
    n_layer: int
    n_head: int
    d_model: int
    d_ff: int | None = None
    activation: str = "gelu"
    norm_eps: float = 1e-12
    n_segment: int = 2
    dropout: float = 0.0
    pooler: bool = False
    head: bool = True

    def __post_init__(self) -> None:
        check_sizes(self, "vocab_size", "context", "n_layer", "n_head", "d_model", "d_ff")
        check_size("n_segment", self.n_segment, 0)
        if self.d_model % self.n_head:
            raise ValueError(f"n_head must divide d_model; got {self.n_head} heads of {self.d_model}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}; got {self.activation!r}.")
        check_number("norm_eps", self.norm_eps)
        check_number("dropout", self.dropout, high=1)


class MaskedHead(Module):
    """Logits of the tokens that were masked: LayerNorm(σ(h W + b)) Eᵀ + c, with the embedding E of the model.

    h (…, d) -> (…, vocabulary). Parameters W (d, d), b (d,), norm.gamma, norm.beta (d,) and c (vocabulary,).
    """

    def __init__(self, config: BERTConfig, rng: init.Seed) -> None:
        self.activation = ACTIVATIONS[config.activation]
        self.dense = Linear(config.d_model, config.d_model, std=STD, seed=rng)
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.c = init.constant((config.vocab_size,), 0)

    def forward(self, h: Any, E: Any) -> Any:
        return self.norm(self.activation(self.dense(h))) @ E.T + self.c


class BERT(Pretrained):
    """ids (B, T) or (T,) -> hidden rows (B, T, d) or (T, d): each token, as its context makes it.

    Parameters: E (vocabulary, d), positions.P (context, d), segments.E (n_segment, d), norm.gamma, norm.beta;
    blocks.0.attn.WQ, blocks.0.norm1.gamma, blocks.0.ffn.W1 and so on; head.dense.W, head.norm.gamma, head.c and pooler.W.
    Norms stand after the residual sums (Post-LN). Nodes are called X, blocks.0.attn.Q K V S A Z and h.

    Args:
        seed: of the numbers the parameters start from. dtype: theirs; float64, or what `default_dtype` says, if not given.
    """

    def __init__(self, config: BERTConfig, *, seed: init.Seed = 0, dtype: Any = None) -> None:
        self.config = config
        check_memory(config, dtype)
        d = config.d_model
        with default_dtype(dtype or MODE.get().dtype):
            rng = init.generator(seed)
            self.E = init.normal((config.vocab_size, d), STD, rng)
            self.positions = LearnedPositions(config.context, d, seed=rng)
            if config.n_segment:
                self.segments = Embedding(config.n_segment, d, std=STD, seed=rng)
            self.norm = LayerNorm(d, config.norm_eps)
            self.dropout = Dropout(config.dropout)
            self.blocks = [self._block(config, rng) for _ in range(config.n_layer)]
            if config.pooler:
                self.pooler = Linear(d, d, std=STD, seed=rng)
            if config.head:
                self.head = MaskedHead(config, rng)
            reseed(self, int(rng.integers(2**63)))

    @staticmethod
    def _block(config: BERTConfig, rng: init.Seed) -> Block:
        d = config.d_model
        attn = Attention(d, config.n_head, bias=True, dropout=config.dropout, seed=rng, std=STD)
        ffn = FeedForward(d, config.d_ff or 4 * d, config.activation, std=STD, out_std=STD, seed=rng)
        norm1, norm2 = LayerNorm(d, config.norm_eps), LayerNorm(d, config.norm_eps)
        return Block(attn, ffn, norm1, norm2, pre_norm=False, dropout=config.dropout)

    def forward(self, ids: Any, *, mask: Any = None, segments: Any = None) -> Any:
        """The hidden rows h.

        Args:
            ids: integers (B, T) or (T,).
            mask: boolean (B, T) or (T,), as the ids: True at tokens, False at padding, which is not read.
            segments: integers of the same shape, the segment of each token; 0 if not given.
        Raises:
            TypeError: for a mask that is not boolean.
            ValueError: for more positions than the context, a mask or segments of another shape, or segments where the model
                has none.
        """
        ids = sequences(ids)
        T = ids.shape[-1]
        if self.config.context < T:
            raise ValueError(f"The context is {self.config.context} positions; got {T}. Cut the text, or read it in parts.")
        X = embedding(self.E, ids) + self.positions(T)  # (B, T, d)
        if self.config.n_segment:
            segments = np.zeros_like(ids) if segments is None else np.asarray(segments)
            if segments.shape != ids.shape:
                raise ValueError(f"Segments have the shape {ids.shape} of the ids; got {segments.shape}.")
            X = X + self.segments(segments)
        elif segments is not None:
            raise ValueError("This BERT has no segments (n_segment=0); leave them out.")
        x = self.dropout(named("X", self.norm(X)))
        keys = mask_of_tokens(mask, ids.shape)  # (B, 1, 1, T)
        for block in self.blocks:
            x = block(x, mask=keys)
        return named("h", x)  # (B, T, d)

    def masked_logits(self, h: Any) -> Any:
        """What each token may have been before it was masked: h (…, d) -> logits (…, vocabulary)."""
        if not self.config.head:
            raise ValueError("This BERT has no head for masked tokens; make it with head=True.")
        return named("logits", self.head(h, self.E))

    def pooled(self, h: Any) -> Any:
        """tanh(h₀ W + b) of the first row, [CLS], by which BERT classifies: h (…, T, d) -> (…, d)."""
        if not self.config.pooler:
            raise ValueError("This BERT has no pooler; make it with pooler=True.")
        return np.tanh(self.pooler(h[..., 0, :]))

    def embed(self, ids: Any, mask: Any = None) -> Any:
        """Unit vectors of sentences: the mean of the rows of their tokens, divided by its length (Reimers and Gurevych 2019).

        ids (B, T) or (T,), mask as in `forward` -> (B, d) or (d,). The dot product of two of them is their cosine.
        Raises ValueError for a sentence without a token.
        """
        mask = np.ones(np.shape(ids), bool) if mask is None else np.asarray(mask)
        count = mask.sum(axis=-1, keepdims=True)
        if not count.all():
            raise ValueError("The mean over no token is undefined: each row of the mask needs a True.")
        h = self(ids, mask=mask)
        weights = (mask / count).astype(h.dtype)[..., None]  # (B, T, 1)
        mean = np.sum(h * weights, axis=-2)  # (B, d)
        return named("sentence", mean / np.linalg.norm(mean, axis=-1, keepdims=True))


def mask_tokens(
    ids: Any, rng: np.random.Generator, *, vocab_size: int, mask_id: int, special: Collection[int] = (), rate: float = 0.15
) -> tuple[Ids, Ids]:
    """(inputs, targets): tokens to restore, for training (Devlin et al. 2019, 3.1 and A.1).

    In each row a share `rate` of the tokens is chosen, at least one. Of those, 80 % become mask_id, 10 % a random token and
    10 % stay. The targets are the tokens where chosen, else IGNORE: nn.cross_entropy(logits, targets, ignore_index=IGNORE).

    Args:
        ids: integers (B, T) or (T,). special: ids, such as padding, that are neither chosen nor put in; mask_id is one.
    Raises:
        TypeError: for ids that are not integers. ValueError: for a rate outside (0, 1], and a vocabulary that has no token
            but special ones, or not these ids.
    """
    check_number("rate", rate, 0, 1, "(]")
    check_size("vocab_size", vocab_size)
    ids = checked_ids(ids, vocab_size)
    reserved = [int(token) for token in checked_ids([mask_id, *special], vocab_size)]
    free = ~np.isin(ids, reserved)
    n_free = free.sum(axis=-1, keepdims=True)
    n_chosen = np.minimum(n_free, np.maximum(1, np.rint(rate * n_free)))
    lottery = np.where(free, rng.random(ids.shape), np.inf)
    chosen = lottery.argsort(axis=-1).argsort(axis=-1) < n_chosen  # those with the smallest numbers
    fate = rng.random(ids.shape)
    ordinary = np.setdiff1d(np.arange(vocab_size), reserved)
    if not ordinary.size:
        raise ValueError(f"A random token is none of the special ones; of {vocab_size} in the vocabulary, all are special.")
    inputs = np.where(chosen & (fate < 0.8), mask_id, ids)
    inputs = np.where(chosen & (fate >= 0.9), rng.choice(ordinary, ids.shape), inputs)
    return inputs, np.where(chosen, ids, IGNORE)
