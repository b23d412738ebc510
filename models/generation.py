"""Generation: choose a token from the last row's distribution, put it behind the prefix, and again (notes 14).

No parameter changes on the way (notes 14.5): the model runs without recording and with dropout off. With `use_cache` each
layer keeps the keys and values of the tokens before, so that a new token costs one row of work (notes 14.4).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from math import prod
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chainrule.autograd.tensor import Tensor, value_of
from chainrule.models.configs import rectangular
from chainrule.models.datasets import Ids, as_int64
from chainrule.models.tokenizers import Tokenizer
from chainrule.nn import init
from chainrule.nn.module import Module

Choice = Callable[[Any], Any]  # logits (…, V) -> tokens (…)


class Decoder(Protocol):
    """What a tokeniser must offer here: `models.tokenizers` has several."""

    def decode(self, ids: Any, /) -> str: ...


# From logits to a token (notes 14.3)


def probabilities(
    logits: ArrayLike, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> NDArray[np.float64]:
    """p = softmax(logits / temperature), cut to the likeliest tokens and divided by what is left of the sum (notes 14.3).

    logits (…, V) -> p (…, V), float64, each row summing to 1. The cuts come in this order:
    top_k keeps the k likeliest tokens; top_p the fewest likeliest whose probabilities sum to at least top_p (Holtzman et al.
    2020). Of equal ones the lower id is likelier. Temperature 0 is the limit T → 0, all on the likeliest token; nothing is
    divided by 0.

    Raises:
        ValueError: for options out of range, and for logits without a finite maximum (a NaN or +inf among them, all -inf).
    """
    check_choice(temperature, top_k, top_p)
    scores = np.asarray(value_of(logits), dtype=np.float64)
    top = _checked_maximum(scores)
    p: NDArray[np.float64]
    if temperature == 0:
        p = (np.argmax(scores, axis=-1)[..., None] == np.arange(scores.shape[-1])).astype(np.float64)
        return p
    with np.errstate(over="ignore"):  # far below the maximum and a low temperature: e^-inf = 0 is right
        weights = np.exp((scores - top) / temperature)
    if top_k is not None and top_k < scores.shape[-1]:
        weights = np.where(_largest(scores, top_k), weights, 0)
    p = weights / np.sum(weights, axis=-1, keepdims=True)
    if top_p is not None and top_p < 1:
        p = np.where(_nucleus(p, scores, top_p), p, 0)
        p /= np.sum(p, axis=-1, keepdims=True)
    return p


def _checked_maximum(scores: Any) -> Any:
    top = np.max(scores, axis=-1, keepdims=True)
    if not np.all(np.isfinite(top)):
        raise ValueError(f"Logits need a finite maximum; got {top[~np.isfinite(top)][0]}. Has training diverged?")
    return top


def _largest(scores: Any, k: int) -> Any:
    """True at the k largest entries of each row; of equal ones at the first."""
    kth = np.partition(scores, -k, axis=-1)[..., -k, None]
    above, equal = scores > kth, scores == kth
    room = k - np.sum(above, axis=-1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=-1) <= room))


def _nucleus(p: Any, scores: Any, top_p: float) -> Any:
    """True at the fewest likeliest entries of each row whose sum reaches top_p; of equal ones at the first.

    Likeliest by their scores: other scores may have the same p, to rounding.
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    ordered = np.take_along_axis(p, order, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered  # what the likelier ones sum to
    kept = np.empty(p.shape, bool)
    np.put_along_axis(kept, order, before < top_p, axis=-1)
    return kept


def sample(p: ArrayLike, u: ArrayLike) -> Ids:
    """The token at which the running sum of p (…, V) passes u (…), numbers in [0, 1): never one of probability 0."""
    sums = np.cumsum(p, axis=-1)
    total = sums[..., -1]  # 1 to rounding
    mark = np.minimum(np.asarray(u) * total, np.nextafter(total, 0))
    token: Ids = np.argmax(sums > mark[..., None], axis=-1)
    return token


def likeliest(logits: Any) -> Any:
    """The token with the largest logit: (…, V) -> (…). Raises ValueError for logits without a finite maximum."""
    _checked_maximum(logits)
    return np.argmax(logits, axis=-1)


def chosen(choose: Choice, logits: Any, step: int) -> Any:
    """What `choose` makes of the logits of step 0, 1, …; where it refuses them, the error says at which new token."""
    try:
        return choose(logits)
    except ValueError as error:
        raise ValueError(f"New token {step + 1}: {error}") from error


def choice(temperature: float, top_k: int | None, top_p: float | None, seed: init.Seed, shape: tuple[int, ...]) -> Choice:
    """How the next tokens are chosen from logits (*shape, V): see `probabilities`. Each sequence has a generator of its own."""
    check_choice(temperature, top_k, top_p)
    if temperature == 0:
        return likeliest
    rngs = init.generator(seed).spawn(prod(shape))

    def drawn(logits: Any) -> Ids:
        u = np.array([rng.random() for rng in rngs]).reshape(shape)
        return sample(probabilities(logits, temperature, top_k, top_p), u)

    return drawn


def _among_tokens(choose: Choice, tokenizer: Decoder | None) -> Choice:
    """The same choice, among the ids that have a token."""
    if not isinstance(tokenizer, Tokenizer):
        return choose
    n = tokenizer.vocab_size
    return lambda logits: choose(logits[..., :n])


def check_choice(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError for options that `probabilities` does not take."""
    if not _is(Real, temperature) or not 0 <= temperature < np.inf:
        raise ValueError(f"temperature is 0 (always the likeliest token) or more, and finite; got {temperature!r}.")
    if top_k is not None and (not _is(Integral, top_k) or top_k < 1):
        raise ValueError(f"top_k is a number of tokens, at least 1; got {top_k!r}.")
    if top_p is not None and (not _is(Real, top_p) or not 0 < top_p <= 1):
        raise ValueError(f"top_p is a probability, more than 0 and at most 1; got {top_p!r}.")


def check_count(max_new_tokens: int) -> None:
    """Raise ValueError unless it is a number of tokens."""
    if not _is(Integral, max_new_tokens) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is a whole number, 0 or more; got {max_new_tokens!r}.")


def _is(kind: Any, value: Any) -> bool:
    """Whether `value` is such a number, of Python or NumPy; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


# One token after the other (notes 14.1)


def generate(
    model: Any,
    ids: ArrayLike,
    max_new_tokens: int = 20,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    stop_strings: str | Sequence[str] | None = None,
    tokenizer: Decoder | None = None,
    seed: init.Seed = 0,
    use_cache: bool = True,
) -> Ids:
    """ids (T,) or (B, T) with the new tokens behind them: (T + new,) or (B, T + new), int64.

    A sequence ends with a token of `stop` (which is kept), with the token that completes one of `stop_strings` in the text
    that is new, or after `max_new_tokens`. In a batch, a sequence that has ended repeats its last token until all have.

    The model reads the last `context` tokens of a longer prompt. When the context is full, it goes on with the last
    context // 2 tokens, read anew from position 0, then adds to them; the same with and without the cache.

    Args:
        model: `GPT`, or one like it: model(ids, cache=…) -> logits, model.new_cache(), model.config.context. If its forward
            takes `last`, it is asked for the logits of the last row alone.
        temperature, top_k, top_p: see `probabilities`; temperature 0 is greedy.
        tokenizer: decodes the new tokens, to look for stop_strings. Of one in `models.tokenizers`, only its tokens are chosen:
            a model may have more rows, which fill its vocabulary up to a round number.
        seed: the same seed gives the same tokens. Each sequence of a batch draws from a generator of its own, by its place.
        use_cache: False computes the whole prefix again for every token.
    Raises:
        TypeError: for ids or stop tokens that are not integers, and stop_strings that are no strings or without a tokenizer.
        ValueError: for an empty prompt (give it a token to begin with), options out of range, and logits that are not finite.
        IndexError: for ids that the model does not have.
    """
    prompt = _checked_prompt(ids, max_new_tokens)
    choose = _among_tokens(choice(temperature, top_k, top_p, seed, prompt.shape[:-1]), tokenizer)
    ended = _ending(prompt.shape[:-1], stop, _strings(stop_strings, tokenizer), tokenizer)
    new = _tokens(on_arrays(model), prompt, max_new_tokens, choose, ended, use_cache)
    return np.concatenate([prompt, *(tokens[..., None] for tokens in new)], axis=-1)


def stream(
    model: Any,
    ids: ArrayLike,
    max_new_tokens: int = 20,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    stop_strings: str | Sequence[str] | None = None,
    tokenizer: Decoder | None = None,
    seed: init.Seed = 0,
    use_cache: bool = True,
) -> Iterator[Any]:
    """The new tokens of one sequence, ids (T,), as they are made: the same that `generate` gives.

    With a tokenizer, pieces of text instead: whole characters, up to the stop token or stop string and without it. The
    parameters are those at the call. Arguments and errors are those of `generate`.
    """
    prompt = _checked_prompt(ids, max_new_tokens)
    if prompt.ndim != 1:
        raise ValueError(f"A stream is of one sequence, ids (T,); got {prompt.shape}. Use generate for a batch.")
    strings, stops = _strings(stop_strings, tokenizer), stop_ids(stop)
    choose = _among_tokens(choice(temperature, top_k, top_p, seed, ()), tokenizer)
    ended = _ending((), stop, (), None)  # stop strings are the text's affair
    new = _tokens(on_arrays(model), prompt, max_new_tokens, choose, ended, use_cache)
    tokens = (int(token) for token in new)
    if tokenizer is None:
        return tokens
    return _until(_characters((token for token in tokens if token not in stops), tokenizer), strings)


def on_arrays(model: Module) -> Any:
    """A copy for use without gradients: parameters are the plain arrays themselves, so nothing is recorded; dropout is off.

    The same model code runs on arrays as on Tensors, only faster. The model itself keeps its mode and its parameters.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Module):
            return on_arrays(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, (Module, Tensor)) for item in value):
            return [plain(item) for item in value]
        return value_of(value)

    copy: Any = object.__new__(type(model))
    vars(copy).update({name: plain(value) for name, value in vars(model).items()}, training=False, _plain=True)
    return copy


def _tokens(
    model: Any, ids: Ids, count: int, choose: Choice, ended: Callable[[Ids], Any], use_cache: bool
) -> Iterator[NDArray[Any]]:
    """At most `count` times the next token of each sequence, (B,) for ids (B, T), () for (T,)."""
    context = model.config.context
    last = {"last": True} if "last" in inspect.signature(getattr(model, "forward", model)).parameters else {}
    cache = model.new_cache() if use_cache else None
    window = unread = ids[..., -context:]  # what the model sees, and what of it is not in the cache
    done = np.zeros(ids.shape[:-1], bool)
    tokens = ids[..., -1]
    for step in range(count):
        if window.shape[-1] > context:
            window = unread = window[..., -max(1, context // 2) :]
            if cache is not None:
                cache.clear()
        logits = model(window, **last) if cache is None else model(unread, cache=cache, **last)
        foretold = chosen(choose, value_of(logits)[..., -1, :], step)  # by the last row (notes 14.2)
        tokens = np.where(done, tokens, foretold)
        yield tokens
        done = done | ended(tokens)
        if np.all(done):
            return
        unread = tokens[..., None]
        window = np.concatenate([window, unread], axis=-1)


# When to stop, and text (notes 14.5)


def _ending(
    shape: tuple[int, ...], stop: int | Sequence[int] | None, strings: Sequence[str], tokenizer: Decoder | None
) -> Callable[[Ids], Any]:
    """A function that is given each round's tokens, of this shape, and says which sequences end with them."""
    stops = np.array(stop_ids(stop), np.int64)

    def stopped(tokens: Ids) -> Any:
        return (tokens[..., None] == stops).any(axis=-1)

    if tokenizer is None or not strings:
        return stopped
    texts: list[list[int]] = [[] for _ in range(prod(shape))]
    tail = 4 * max(map(len, strings))  # a token has a byte at least, a character 4 at most

    def ended(tokens: Ids) -> Any:
        for text, token in zip(texts, tokens.flat, strict=True):
            text.append(int(token))
        said = [tokenizer.decode(text[-tail:]) for text in texts]
        found = np.array([any(string in end for string in strings) for end in said])
        return found.reshape(shape) | stopped(tokens)

    return ended


def _characters(tokens: Iterator[int], tokenizer: Decoder) -> Iterator[str]:
    """The text of tokens, in pieces of whole characters: a token may end inside of one."""
    ids: list[int] = []  # the last piece said (some tokens decode otherwise at the start), and what is new
    n_said, said, text = 0, "", ""
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids)
        if len(text) > len(said) and not text.endswith("\ufffd"):
            yield text[len(said) :]
            ids = ids[n_said:]
            n_said, said = len(ids), tokenizer.decode(ids)
            text = said
    if len(text) > len(said):
        yield text[len(said) :]  # it stopped inside of a character


def _until(pieces: Iterator[str], strings: Sequence[str]) -> Iterator[str]:
    """The pieces up to the first of `strings`; what may be the beginning of one is held back until that is known."""
    held = ""
    for piece in pieces:
        held += piece
        found = [held.index(string) for string in strings if string in held]
        if found:
            if min(found):
                yield held[: min(found)]
            return
        beginnings = [n for string in strings for n in range(1, len(string)) if held.endswith(string[:n])]
        ready = len(held) - max(beginnings, default=0)
        if ready:
            yield held[:ready]
        held = held[ready:]
    if held:
        yield held


# Arguments


def _checked_prompt(ids: ArrayLike, max_new_tokens: int) -> Ids:
    prompt = rectangular(value_of(ids))
    if prompt.ndim in (1, 2) and prompt.size == 0:
        raise ValueError(f"A prompt has at least one token, such as the one a text begins with; got ids {prompt.shape}.")
    if prompt.ndim not in (1, 2) or prompt.dtype.kind not in "iu":
        raise TypeError(f"ids are integers (T,) or (B, T); got {prompt.dtype} {prompt.shape}. Encode the text first.")
    check_count(max_new_tokens)
    return as_int64(prompt)


def stop_ids(stop: int | Sequence[int] | None) -> tuple[int, ...]:
    """The ids of the tokens to stop at, none for None. Raises TypeError for what is no integer."""
    tokens = np.array([] if stop is None else stop).reshape(-1)
    if tokens.size and tokens.dtype.kind not in "iu":
        raise TypeError(f"stop is the id of a token, or several; got {stop!r}.")
    return tuple(int(token) for token in as_int64(tokens))


def _strings(strings: str | Sequence[str] | None, tokenizer: Decoder | None) -> tuple[str, ...]:
    strings = (strings,) if isinstance(strings, str) else tuple(strings or ())
    if not all(isinstance(string, str) for string in strings):
        raise TypeError(f"stop_strings are texts; got {strings!r}.")
    if strings and tokenizer is None:
        raise TypeError("stop_strings are looked for in the text: give the tokenizer, too.")
    if "" in strings:
        raise ValueError("A stop string has at least one character; an empty one would stop everywhere.")
    return strings
