"""Word vectors: the pairs they learn from, both losses by hand, vectors that learn, and analogies on real ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.autograd import gradients
from chainrule.models import datasets
from chainrule.models.datasets import IGNORE
from chainrule.models.word2vec import NoiseWords, Word2Vec, Word2VecConfig, WordVectors, subsample, training_pairs
from chainrule.nn.optim import AdamW

# Pairs


def listed(inputs, targets):
    return sorted(zip(np.array(inputs).tolist(), targets.tolist(), strict=True))


def test_skipgram_pairs():
    """Of the text 7 8 9 7: every word with its neighbours, by the definition."""
    text = [7, 8, 9, 7]
    for window in (1, 2, 3, 10):
        wanted = [(text[i], text[j]) for i in range(4) for j in range(4) if i != j and abs(i - j) <= window]
        assert listed(*training_pairs(text, window)) == sorted(wanted)


def test_cbow_pairs():
    inputs, targets = training_pairs([7, 8, 9, 7], 2, "cbow")
    assert_array_equal(targets, [7, 8, 9, 7])
    _ = IGNORE
    assert_array_equal(inputs, [[_, _, 8, 9], [_, 7, 9, 7], [7, 8, 7, _], [8, 9, _, _]])


@pytest.mark.parametrize("wrong", [[3], [[1, 2], [3, 4]], [0.5, 1.5]])
def test_pairs_of_no_text(wrong):
    with pytest.raises(ValueError, match="two or more words"):
        training_pairs(wrong, 2)


def test_frequent_words_are_thinned_out():
    text = np.repeat([0, 1, 2], [100_000, 100, 1])
    counts = np.bincount(subsample(text, np.random.default_rng(0), threshold=1e-3), minlength=3)
    assert_allclose(counts[0], 100_000 * np.sqrt(1e-3 / (100_000 / 100_101)), rtol=0.05)
    assert_array_equal(counts[1:], [100, 1])  # at or below the threshold
    for wrong in ([0.5, 1.5], [-1, 2], [[1, 2]]):
        with pytest.raises(ValueError, match="A text is of words"):
            subsample(wrong, np.random.default_rng(0))
    with pytest.raises(ValueError, match="threshold is a number"):
        subsample([1, 2], np.random.default_rng(0), threshold=np.nan)


def test_noise_is_the_unigram_to_three_quarters():
    noise = NoiseWords([16, 0, 1, 81])
    assert_allclose(noise.probabilities, np.array([8, 0, 1, 27]) / 36, rtol=1e-15)
    drawn = noise.draw((400, 100), np.random.default_rng(0))
    assert drawn.shape == (400, 100)
    assert_allclose(np.bincount(drawn.ravel()) / 40_000, noise.probabilities, atol=0.01)
    assert not (drawn == 1).any()
    assert_array_equal(drawn, noise.draw((400, 100), np.random.default_rng(0)))
    for wrong in ([0, 0], [1, -1], [[1]], [1, np.nan], [np.inf, 1], ["x"], [True, False], []):
        with pytest.raises(ValueError, match="counts say how often each word occurs, finite numbers"):
            NoiseWords(wrong)
    with pytest.raises(ValueError, match=r"power is a number in \[0, inf\); got nan"):
        NoiseWords([1, 2], power=np.nan)


# Losses


def model_of(**options):
    model = Word2Vec(Word2VecConfig(vocab_size=7, d=3, window=2, negatives=2, **options))
    rng = np.random.default_rng(1)
    model.load_state_dict({path: rng.normal(size=p.shape) for path, p in model.named_parameters()})
    return model, model.E.data, model.U.data


def softplus(x):
    return np.log1p(np.exp(x))


def test_softmax_loss_by_hand():
    model, E, U = model_of()
    scores = E[[4, 2]] @ U.T
    wanted = np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[[0, 1], [5, 2]])
    assert_allclose(model.loss([4, 2], [5, 2]).data, wanted, rtol=1e-14)


def test_negative_sampling_by_hand():
    model, E, U = model_of(loss="negative")
    inputs, targets, noise = [4, 2, 4], [5, 2, 0], [[1, 1], [5, 3], [0, 6]]
    wanted = np.zeros(2)
    total, g_E, g_U = 0.0, np.zeros((7, 3)), np.zeros((7, 3))
    for i, t, words in zip(inputs, targets, noise, strict=True):
        for word, sign in [(t, 1), *((w, -1) for w in words)]:
            score = E[i] @ U[word]
            total += softplus(-sign * score) / 3
            slope = -sign / (1 + np.exp(sign * score)) / 3
            g_E[i] += slope * U[word]
            g_U[word] += slope * E[i]
    loss = model.loss(inputs, targets, noise)
    assert_allclose(loss.data, total, rtol=1e-14)
    for found, wanted in zip(gradients(loss, [model.E, model.U]), (g_E, g_U), strict=True):
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-15)


def test_cbow_guesses_from_the_mean_of_those_there():
    model, E, _ = model_of(mode="cbow")
    h = model([[1, 1, 2], [4, IGNORE, IGNORE]])
    assert_allclose(h.data, [(2 * E[1] + E[2]) / 3, E[4]], rtol=1e-14)
    (g,) = gradients(np.sum(h), [model.E])
    assert_allclose(g[:, 0], [0, 2 / 3, 1 / 3, 0, 1, 0, 0], rtol=1e-14)


def test_cbow_does_not_guess_from_no_word():
    model, _, _ = model_of(mode="cbow")
    with pytest.raises(ValueError, match="The mean over no word is undefined: row 1 of the inputs has only IGNORE"):
        model.loss([[1, IGNORE], [IGNORE, IGNORE]], [1, 2])


def test_the_noise_must_fit():
    model, _, _ = model_of(loss="negative")
    for noise in (None, [[1, 2, 3]]):
        with pytest.raises(ValueError, match=r"noise of shape \(1, 2\)"):
            model.loss([1], [2], noise)


@pytest.mark.parametrize("loss", ["softmax", "negative"])
@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
def test_float32(mode, loss):
    model = Word2Vec(Word2VecConfig(vocab_size=7, d=3, window=1, negatives=2, mode=mode, loss=loss), dtype=np.float32)
    inputs, targets = training_pairs([1, 2, 3], 1, mode)
    value = model.loss(inputs, targets, np.ones((len(targets), 2), int) if loss == "negative" else None)
    assert value.dtype == np.float32
    assert {g.dtype for g in gradients(value, [model.E, model.U])} == {np.dtype(np.float32)}


# Learning


GROUPS = [["cat", "dog", "horse"], ["red", "green", "blue"], ["runs", "eats", "sleeps"]]


@pytest.mark.parametrize("loss", ["softmax", "negative"])
@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
def test_words_of_like_company_end_up_near_each_other(mode, loss):
    """Sentences "the <colour> <animal> <verb>": which words stand for one another shows in their company alone (brief)."""
    rng = np.random.default_rng(0)
    words = ["the", *(word for group in GROUPS for word in group)]
    choice = rng.integers(3, size=(400, 3))
    text = np.stack([np.zeros(400, int), 4 + choice[:, 0], 1 + choice[:, 1], 7 + choice[:, 2]], axis=1).ravel()
    model = Word2Vec(Word2VecConfig(vocab_size=10, d=8, mode=mode, window=2, loss=loss))
    noise = NoiseWords(np.bincount(text))
    inputs, targets = training_pairs(text, 2, mode)
    optimizer = AdamW(model.parameters(), lr=0.05, weight_decay=0.0)
    for _ in range(150):
        rows = rng.integers(len(targets), size=128)
        value = model.loss(inputs[rows], targets[rows], noise.draw((128, 5), rng) if loss == "negative" else None)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    vectors = model.word_vectors(words)
    for group in GROUPS:
        for word in group:
            assert {near for near, _ in vectors.neighbours(word, 2)} == set(group) - {word}


# Real vectors


@pytest.fixture(scope="module")
def glove():
    return WordVectors(*datasets.word_vectors())


def test_analogies_of_glove(glove):
    pairs = datasets.word_pairs()
    assert glove.analogies(pairs["capital-common-countries"]) == (411, 506)
    assert glove.analogies(pairs["family"]) == (374, 506)


def test_king_minus_man_plus_woman(glove):
    assert glove.analogy("man", "king", "woman")[0][0] == "queen"
    assert glove.analogy("athens", "greece", "baghdad", k=2)[0][0] == "iraq"
    assert "queen" in dict(glove.neighbours("king", 5))


def test_neighbours_are_sorted_cosines(glove):
    found = glove.neighbours("france", 20)
    cosines = [cosine for _, cosine in found]
    assert cosines == sorted(cosines, reverse=True)
    assert "france" not in dict(found)
    word, cosine = found[0]
    a, b = glove["france"], glove[word]
    assert_allclose(cosine, a @ b / np.sqrt((a @ a) * (b @ b)), rtol=1e-5)
    assert_allclose(cosine, glove.cosine("france", word), rtol=1e-6)


def test_analogies_are_those_of_analogy():
    """On four pairs in the plane, asked one by one."""
    rng = np.random.default_rng(0)
    vectors = WordVectors("abcdefgh", rng.normal(size=(8, 2)))
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    right = [vectors.analogy(*p, q[0])[0][0] == q[1] for p in pairs for q in pairs if p != q]
    assert vectors.analogies(pairs) == (sum(right), 12)
    assert 0 < sum(right) < 12


def test_a_parallelogram():
    """b - a + c, exactly, with vectors of length 1; the three given are never the answer."""
    vectors = WordVectors(["a", "b", "c", "d", "e"], [[1, 0], [0, 2], [-3, 0], [0, -1], [-1, 0.5]])
    # (0, 1) - (1, 0) + (-1, 0) = (-2, 1), the direction of e and next to c
    ((word, cosine), (second, _)) = vectors.analogy("a", "b", "c", k=5)
    assert (word, second) == ("e", "d")
    assert_allclose(cosine, 1, rtol=1e-15)


def test_unknown_words_and_misfits(glove):
    with pytest.raises(KeyError, match="france"):
        glove.neighbours("frannce")
    with pytest.raises(ValueError, match=r"2 words need vectors \(2, d\)"):
        WordVectors(["a", "b"], np.ones((3, 2)))
    with pytest.raises(ValueError, match="twice"):
        WordVectors(["a", "a"], np.ones((2, 2)))
    with pytest.raises(ValueError, match="direction"):
        WordVectors(["a", "b"], [[1, 0], [0, 0]])
    for vector in (np.zeros(50), np.full(50, np.nan)):
        with pytest.raises(ValueError, match="no direction, and so no cosine"):
            glove.nearest(vector)
    assert "king" in glove
    assert "frannce" not in glove
    assert len(glove) == 8346


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"d": 0}, "d is"), ({"window": 1.5}, "window"), ({"mode": "glove"}, "glove"), ({"loss": "hinge"}, "hinge")],
)
def test_nonsense(wrong, said):
    with pytest.raises(ValueError, match=said):
        Word2VecConfig(**{"vocab_size": 7, "d": 3, **wrong})
