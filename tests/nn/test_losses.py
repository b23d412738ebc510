"""Losses: numbers by hand, what does not count, the extremes, and what is refused.

The kernel of cross_entropy against its definition: tests/nn/test_fused.py; derivatives: tests/autograd/test_primitives.py.
"""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, nn
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.describe import rule_text
from chainrule.autograd.scalar import values
from chainrule.nn import kernels

RNG = np.random.default_rng(0)
both = pytest.mark.parametrize("opened", [False, True], ids=["kernel", "definition"])
LN2 = np.log(2.0)


def leaf(data):
    return Tensor(data, requires_grad=True)


# cross_entropy: which positions count


@both
def test_the_mean_is_over_the_valid_targets_only(opened):
    """notes 11.7. The losses are ln 4/3, ln 2 and ln 4; the second position does not count."""
    logits = leaf(np.log([[1.0, 3.0], [1.0, 1.0], [1.0, 3.0]]))
    mean = (np.log(4 / 3) + np.log(4)) / 2
    slope = [[1 / 8, -1 / 8], [0, 0], [-3 / 8, 3 / 8]]
    for options in [
        {"target": [1, -100, 0], "ignore_index": -100},
        {"target": [1, 7, 0], "ignore_index": 7},
        {"target": [1, 0, 0], "loss_mask": [True, False, True]},
        {"target": [1, 99, 0], "loss_mask": np.array([True, False, True])},
    ]:
        with open_fused(opened):
            loss = nn.cross_entropy(logits, **options)
        assert_allclose(loss.data, mean, rtol=1e-15)
        found = gradients(loss, [logits])[0]
        assert_allclose(found, slope, rtol=1e-15)
        assert_array_equal(found[1], 0)


@both
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_logits_that_do_not_count_may_be_anything(opened, bad, reduction, smoothing):
    """Loss and gradient are those of any other logits there, without a warning."""
    options = {"reduction": reduction, "label_smoothing": smoothing}
    good = RNG.standard_normal((2, 3, 4))
    logits, target, skipped = good.copy(), np.array([[3, -1, 0], [1, 2, -1]]), ([0, 1], [1, 2])
    logits[skipped] = bad
    logits[0, 1, 1] = 2.0
    u = np.ones(target.shape if reduction == "none" else ())
    for which in [{"target": target, "ignore_index": -1}, {"target": np.abs(target), "loss_mask": target >= 0}]:
        x, right = leaf(logits), leaf(good)
        with open_fused(opened), np.errstate(all="raise"):
            loss, wanted = nn.cross_entropy(x, **which, **options), nn.cross_entropy(right, **which, **options)
            found = gradients(loss, [x], u)[0]
        assert_array_equal(loss.data, wanted.data)
        assert_array_equal(found, gradients(wanted, [right], u)[0])
        assert_array_equal(found[skipped], 0)
        assert np.all(np.isfinite(found))


@both
def test_logits_that_count_are_not_mended(opened):
    x = leaf(np.array([[np.nan, 0.0], [np.nan, 0.0], [1.0, 2.0]]))
    with open_fused(opened):
        losses = nn.cross_entropy(x, [0, -1, 1], ignore_index=-1, reduction="none")
        total = nn.cross_entropy(x, [0, -1, 1], ignore_index=-1)
    assert_array_equal(np.isnan(losses.data), [True, False, False])
    assert np.isnan(total.data)
    assert np.isnan(gradients(total, [x])[0][0]).all()
    assert_array_equal(gradients(losses, [x], np.ones(3))[0][1], 0)


def test_one_pass_over_several_blocks_some_of_whose_rows_do_not_count():
    """With two threads too."""
    logits = RNG.standard_normal((9000, 60))
    target = RNG.integers(0, 60, 9000)
    mask = RNG.random(9000) < 0.5
    expected = grad(lambda x: nn.cross_entropy(x, target, loss_mask=mask))(logits)
    assert_allclose(expected[mask], grad(nn.cross_entropy)(logits[mask], target[mask]), rtol=1e-12, atol=1e-18)
    logits[~mask] = np.nan
    assert logits.nbytes >= kernels.SHARED
    before = kernels.threads()
    try:
        for count in (1, 2):
            kernels.set_threads(count)
            found = grad(lambda x: nn.cross_entropy(x, target, loss_mask=mask))(logits)
            assert_array_equal(found, expected)
            assert_array_equal(found[~mask], 0)
    finally:
        kernels.set_threads(before)


@both
def test_ignore_index_may_be_a_class(opened):
    logits = leaf(np.log([[1.0, 3.0], [1.0, 1.0], [1.0, 3.0]]))
    with open_fused(opened):
        loss = nn.cross_entropy(logits, [1, 0, 0], ignore_index=0)
    assert_allclose(loss.data, np.log(4 / 3), rtol=1e-15)
    assert_allclose(gradients(loss, [logits])[0], [[1 / 4, -1 / 4], [0, 0], [0, 0]], rtol=1e-15)


@both
def test_mask_and_ignore_index_together(opened):
    logits, target = RNG.standard_normal((2, 3, 5)), np.array([[0, 1, 4], [4, 2, 3]])
    mask = np.array([[True, False, True], [True, True, False]])
    with open_fused(opened):
        loss = nn.cross_entropy(leaf(logits), target, ignore_index=4, loss_mask=mask)
    p = nn.softmax(logits)
    assert_allclose(loss.data, -(np.log(p[0, 0, 0]) + np.log(p[1, 1, 2])) / 2, rtol=1e-14)


@both
def test_reductions(opened):
    logits, target = leaf(np.log([[1.0, 3.0], [1.0, 1.0], [1.0, 3.0]])), [1, -1, 0]
    with open_fused(opened):
        losses = nn.cross_entropy(logits, target, ignore_index=-1, reduction="none")
        total = nn.cross_entropy(logits, target, ignore_index=-1, reduction="sum")
    assert_allclose(losses.data, [np.log(4 / 3), 0, np.log(4)], rtol=1e-15)
    assert losses.data[1] == 0
    assert_allclose(total.data, np.log(16 / 3), rtol=1e-15)
    assert_allclose(gradients(losses, [logits], [2.0, 5.0, 4.0])[0], [[1 / 2, -1 / 2], [0, 0], [-3, 3]], rtol=1e-15)
    assert_allclose(gradients(total, [logits])[0], [[1 / 4, -1 / 4], [0, 0], [-3 / 4, 3 / 4]], rtol=1e-15)


@both
def test_label_smoothing_by_hand(opened):
    """p = (1/4, 3/4), target 1, ε = 0.2: q = (0.1, 0.9)."""
    logits = leaf(np.log([[1.0, 3.0]]))
    with open_fused(opened):
        loss = nn.cross_entropy(logits, [1], label_smoothing=0.2)
    assert_allclose(loss.data, 0.1 * np.log(4) + 0.9 * np.log(4 / 3), rtol=1e-15)
    assert_allclose(gradients(loss, [logits])[0], [[0.15, -0.15]], rtol=1e-14)


def test_one_pass_over_several_blocks_of_rows():
    """More rows than the kernel takes at a time, each with a top of its own."""
    logits = RNG.standard_normal((3000, 60)) + RNG.integers(-900, 900, (3000, 1))
    target = RNG.integers(0, 60, 3000)
    for options in [{}, {"label_smoothing": 0.1}, {"ignore_index": 7, "reduction": "none"}]:
        x = leaf(logits)
        y = nn.cross_entropy(x, target, **options)
        with open_fused():
            z = nn.cross_entropy(x, target, **options)
        assert_allclose(y.data, z.data, rtol=1e-12)
        u = np.ones(y.shape)
        assert_allclose(gradients(y, [x], u)[0], gradients(z, [x], u)[0], rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@both
def test_options_keep_the_dtype(opened, dtype):
    x = leaf(RNG.standard_normal((2, 3)).astype(dtype))
    for reduction in ["mean", "sum", "none"]:
        with open_fused(opened):
            y = nn.cross_entropy(x, [0, -100], ignore_index=-100, label_smoothing=0.1, reduction=reduction)
        assert y.dtype == dtype
        assert gradients(y, [x], np.ones(y.shape, dtype))[0].dtype == dtype


def test_logits_may_lie_in_memory_as_they_like():
    logits, target = RNG.standard_normal((5, 4)), np.array([0, 3, 1, 2, 2])
    expected = grad(nn.cross_entropy)(logits, target)
    for x in [np.asfortranarray(logits), np.repeat(logits, 2, axis=1)[:, ::2], logits[::-1].copy()[::-1]]:
        assert_array_equal(grad(nn.cross_entropy)(x, target), expected)
    stacked = np.stack([logits, logits]).transpose(1, 0, 2)  # (5, 2, 4)
    assert_allclose(grad(nn.cross_entropy)(stacked, np.stack([target] * 2, axis=1))[:, 0], expected / 2, rtol=1e-15)


def test_the_backward_pass_may_run_twice():
    x = leaf(RNG.standard_normal((2, 3)))
    loss = nn.cross_entropy(x, [0, 2], label_smoothing=0.1)
    assert_array_equal(gradients(loss, [x])[0], gradients(loss, [x])[0])


def test_a_mask_written_to_later_changes_no_gradient():
    x, mask, target = leaf(RNG.standard_normal((2, 3))), np.array([True, False]), np.array([0, 2])
    loss = nn.cross_entropy(x, target, loss_mask=mask)
    before = gradients(loss, [x])[0]
    mask[:] = [False, True]
    target[:] = 1
    assert_array_equal(gradients(loss, [x])[0], before)


def test_cross_entropy_number_by_number():
    logits, target = RNG.standard_normal((3, 4)), [1, -1, 3]
    options = {"ignore_index": -1, "label_smoothing": 0.1}
    x = values(logits)
    loss = nn.cross_entropy(x, target, **options)
    loss.backward()
    assert_allclose(loss.data, nn.cross_entropy(logits, target, **options), rtol=1e-14)
    expected = grad(lambda x: nn.cross_entropy(x, target, **options))(logits)
    assert_allclose(x.grad, expected, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize(
    ("target", "options", "text"),
    [
        (1, {}, "p - 1[target]"),
        ([1, 0], {}, "(p - 1[target]) / 2"),
        ([1, 0], {"loss_mask": [True, False]}, "(p - 1[target]) / valid targets"),
        ([1, 0], {"reduction": "sum"}, "p - 1[target]"),
        ([1, 0], {"label_smoothing": 0.1}, "(p - q) / 2,  q = (1 - 0.1) · 1[target] + 0.1 / classes"),
    ],
)
def test_the_rule_in_words(target, options, text):
    x = leaf(np.zeros((*np.shape(target), 3)))
    loss = nn.cross_entropy(x, target, **options)
    assert rule_text(loss, 0, loss).partition(" = ")[2] == text


def test_cross_entropy_options_errors():
    logits = leaf(np.zeros((2, 3)))
    for call in [nn.cross_entropy, nn.cross_entropy.definition]:
        with pytest.raises(ValueError, match="The mean loss over no target is undefined; every target is ignored or masked"):
            call(logits, [5, 5], ignore_index=5)
        with pytest.raises(ValueError, match="every target is ignored or masked"):
            call(logits, [0, 1], loss_mask=[False, False])
        with pytest.raises(ValueError, match=r"Targets must lie in 0\.\.2; got 0\.\.3"):
            call(logits, [-100, 3], ignore_index=-100)
        with pytest.raises(ValueError, match=r"Targets must lie in 0\.\.2; got -1\.\.0"):
            call(logits, [-1, -100], ignore_index=-100)
        with pytest.raises(TypeError, match="A loss mask is boolean, True where a target counts; got dtype int64"):
            call(logits, [0, 1], loss_mask=[1, 0])
        with pytest.raises(ValueError, match=r"A loss mask has the shape \(2,\) of the targets; got \(1,\)"):
            call(logits, [0, 1], loss_mask=[True])
        with pytest.raises(ValueError, match=r"label_smoothing is a number in \[0, 1\]; got 1\.5"):
            call(logits, [0, 1], label_smoothing=1.5)
        with pytest.raises(ValueError, match=r'The reduction is "mean", "sum" or "none"; got \'max\''):
            call(logits, [0, 1], reduction="max")
        assert call(logits, [5, 5], ignore_index=5, reduction="sum").item() == 0
        assert_array_equal(call(logits, [5, 5], ignore_index=5, reduction="none").data, [0, 0])


def test_logits_and_targets_that_are_none():
    for call in [nn.cross_entropy, nn.cross_entropy.definition]:
        for logits in (np.zeros((2, 0)), np.zeros((0, 0)), np.zeros(()), np.float64(3)):
            with pytest.raises(ValueError, match=r"Logits are scores of classes, \(…, classes\), one at least; got logits"):
                call(logits, np.zeros(np.shape(logits)[:-1], int), reduction="sum")
        with pytest.raises(ValueError, match=r"Targets must lie in 0\.\.2; got 0\.\.18446744073709551615"):
            call(np.zeros((2, 3)), np.array([0, 2**64 - 1], np.uint64))
        for wrong in (1.5, "none", [1]):
            with pytest.raises(TypeError, match="ignore_index is a target, an integer; got"):
                call(np.zeros((2, 3)), [0, 1], ignore_index=wrong)


@both
@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int16])
def test_integers_as_targets_and_as_logits(opened, dtype):
    logits, target = [[1, 3, 0], [2, 0, 1]], np.array([1, 2], dtype)
    wanted = nn.cross_entropy(np.array(logits, float), [1, 2])
    with open_fused(opened):
        x = leaf(np.array(logits, float))
        loss = nn.cross_entropy(x, target)
        assert_allclose(loss.data, wanted, rtol=1e-15)
        assert_array_equal(gradients(loss, [x])[0], grad(nn.cross_entropy)(x.data, [1, 2]))
        for ints in (logits, np.array(logits, dtype), Tensor(np.array(logits, dtype))):
            loss = nn.cross_entropy(ints, target, ignore_index=-100)
            assert loss.dtype == np.float64
            assert_allclose(np.asarray(loss), wanted, rtol=1e-15)


# float16: what the outputs fit into, sums and counts of them may not


MANY = 70_000  # float16 ends at 65,504
HALF = np.random.default_rng(2).standard_normal((MANY, 3)).astype(np.float16)


def same_as_in_float64(loss, *arrays):
    """A loss of float16 arrays, and its gradients, are those of the same numbers in float64, rounded to float16."""
    leaves = [leaf(x) for x in arrays]
    wide = [leaf(x.astype(float)) for x in arrays]
    found, wanted = loss(*leaves), loss(*wide)
    assert found.dtype == np.float16
    assert_allclose(found.data, wanted.data, rtol=1e-3)
    for g, right in zip(gradients(found, leaves), gradients(wanted, wide), strict=True):
        assert g.dtype == np.float16
        assert_allclose(g, right, rtol=2e-3, atol=6e-8)  # 6e-8: the least positive float16
        assert np.any(g)


@both
@pytest.mark.parametrize(
    "options",
    [{}, {"label_smoothing": 0.1}, {"loss_mask": np.arange(MANY) % 50 != 0}, {"ignore_index": 1}, {"reduction": "none"}],
    ids=str,
)
def test_many_targets_in_float16(opened, options):
    target = np.arange(MANY) % 3 if "ignore_index" not in options else np.where(np.arange(MANY) % 100 == 0, 1, 2)

    def loss(x):
        y = nn.cross_entropy(x, target, **options)
        return y if y.ndim == 0 else y[17]

    with open_fused(opened):
        same_as_in_float64(loss, HALF)


@both
def test_many_classes_in_float16(opened):
    logits = np.full((2, MANY), 3, np.float16)
    with open_fused(opened):
        same_as_in_float64(lambda x: nn.cross_entropy(x, [0, 1], label_smoothing=0.1), logits)


@pytest.mark.parametrize(
    ("loss", "arrays"),
    [
        (lambda a: nn.squared_cost(a, np.zeros_like(HALF)), [HALF]),
        (lambda z: nn.binary_cross_entropy(z, np.zeros(HALF.shape)), [HALF]),
        (lambda s, t: nn.negative_sampling(s, t), [HALF[:, 0], HALF]),
    ],
    ids=["squared_cost", "binary_cross_entropy", "negative_sampling"],
)
def test_many_examples_in_float16(loss, arrays):
    same_as_in_float64(loss, *arrays)


def test_losses_of_integers_and_lists():
    """In float64: bytes would go round, 0 - 16 = 240."""
    a, y = [[0, 100], [200, 3]], [[16, 90], [250, 3]]
    for ints in (a, np.array(a, np.uint8), np.array(a)):
        assert nn.squared_cost(ints, np.array(y, np.uint8)) == (256 + 100 + 2500) / 2
        assert_allclose(nn.binary_cross_entropy(ints, [[0, 1], [1, 0.5]]), (LN2 + 1.5 + np.log1p(np.exp(-3))) / 4, rtol=1e-14)
        assert_allclose(
            nn.negative_sampling([0, 100], np.array(a, np.uint8)),
            nn.negative_sampling(np.array([0.0, 100.0]), np.array(a, float)),
            rtol=1e-15,
        )
    with pytest.raises(TypeError, match="A loss is made of numbers; got dtype <U1"):
        nn.squared_cost(["a"], [1.0])


# squared_cost


def test_squared_cost_by_hand():
    """One example costs 0.5² + 1² = 1.25, the other 2² = 4: 2.625 on average."""
    a, y = leaf([[0.5, 0.0], [1.0, 3.0]]), np.array([[1, 1], [1, 1]])
    cost = nn.squared_cost(a, y)
    assert cost.item() == 2.625
    assert_array_equal(gradients(cost, [a])[0], [[-0.5, -1], [0, 2]])


def test_one_axis_is_one_example():
    a = leaf([0.5, 0.0])
    cost = nn.squared_cost(a, [1, 1])
    assert cost.item() == 1.25
    assert_array_equal(gradients(cost, [a])[0], [-1, -2])  # 2 (a - y), as in the chain rule for one example
    assert nn.squared_cost(leaf(3.0), 1.0).item() == 4


def test_squared_cost_errors():
    with pytest.raises(ValueError, match=r"the same shape; got \(4, 1\) and \(4,\)"):
        nn.squared_cost(leaf(np.zeros((4, 1))), np.zeros(4))
    with pytest.raises(ValueError, match=r"The mean cost over no example is undefined; got shape \(0, 3\)"):
        nn.squared_cost(leaf(np.zeros((0, 3))), np.zeros((0, 3)))


# binary_cross_entropy, negative_sampling


def test_binary_cross_entropy_by_hand():
    """σ(ln 3) = 3/4."""
    z = leaf(np.log([3.0, 3.0, 1.0]))
    loss = nn.binary_cross_entropy(z, [1, 0, 0.5])
    assert_allclose(loss.data, (np.log(4 / 3) + np.log(4) + LN2) / 3, rtol=1e-15)
    assert_allclose(gradients(loss, [z])[0], np.array([-1 / 4, 3 / 4, 0]) / 3, atol=1e-16)
    assert_allclose(nn.binary_cross_entropy(z, [1, 0, 0.5], reduction="none").data, [np.log(4 / 3), np.log(4), LN2])
    assert_allclose(nn.binary_cross_entropy(z, [1, 0, 0.5], reduction="sum").data, 3 * loss.data)


def test_binary_cross_entropy_of_a_learned_target():
    """∂L/∂t = -z, for a loss of one entry."""
    z, t = leaf(1.5), leaf(0.25)
    assert_allclose(gradients(nn.binary_cross_entropy(z, t), [z, t]), [1 / (1 + np.exp(-1.5)) - 0.25, -1.5], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_binary_losses_are_finite_for_any_finite_logits(dtype):
    big = np.finfo(dtype).max
    z = leaf(np.array([big, -big, big, -big], dtype))
    losses = nn.binary_cross_entropy(z, [1, 0, 0, 1], reduction="none")
    assert losses.dtype == dtype
    assert_array_equal(losses.data, [0, 0, big, big])
    assert_array_equal(gradients(losses, [z], np.ones(4, dtype))[0], [0, 0, 1, -1])
    for s in [big / 4, -big / 4]:  # whose sum is finite too
        s_positive, s_negative = leaf(np.array([s], dtype)), leaf(np.array([[-s, 0]], dtype))
        loss = nn.negative_sampling(s_positive, s_negative)
        assert loss.dtype == dtype
        slopes = gradients(loss, [s_positive, s_negative], dtype(1))
        assert np.isfinite(slopes[0]).all()
        assert np.isfinite(slopes[1]).all()


def test_a_sure_right_answer_still_costs_something():
    z = leaf([40.0, -40.0])
    assert_allclose(nn.binary_cross_entropy(z, [1, 0], reduction="none").data, np.exp(-40.0), rtol=1e-14)


def test_negative_sampling_by_hand():
    s_positive, s_negative = leaf(np.log([3.0, 1.0])), leaf(np.log([[1.0, 3.0], [1.0, 1.0]]))
    loss = nn.negative_sampling(s_positive, s_negative)
    assert_allclose(loss.data, (np.log(4 / 3) + LN2 + np.log(4) + 3 * LN2) / 2, rtol=1e-15)
    to_positive, to_negative = gradients(loss, [s_positive, s_negative])
    assert_allclose(to_positive, [-1 / 8, -1 / 4], rtol=1e-14)
    assert_allclose(to_negative, [[1 / 4, 3 / 8], [1 / 4, 1 / 4]], rtol=1e-14)


def test_losses_keep_float32_beside_other_targets():
    a = leaf(np.ones((2, 3), np.float32))
    for loss in [nn.squared_cost(a, np.eye(2, 3)), nn.binary_cross_entropy(a, np.eye(2, 3, dtype=int))]:
        assert loss.dtype == np.float32
        assert gradients(loss, [a])[0].dtype == np.float32


@pytest.mark.parametrize("loss", [nn.squared_cost, nn.binary_cross_entropy])
def test_the_other_losses_number_by_number(loss):
    a, y = RNG.standard_normal((2, 3)), np.eye(2, 3)
    x = values(a)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = loss(x, y)
    found.backward()
    assert_allclose(found.data, loss(a, y), rtol=1e-14)
    assert_allclose(x.grad, grad(loss)(a, y), rtol=1e-13)


def test_binary_errors():
    z = leaf(np.zeros(2))
    with pytest.raises(ValueError, match=r"the same shape; got \(2,\) and \(2, 1\)"):
        nn.binary_cross_entropy(z, [[0], [1]])
    with pytest.raises(ValueError, match=r"Targets are probabilities, in \[0, 1\]; got 0\.0\.\.2\.0"):
        nn.binary_cross_entropy(z, [0, 2])
    with pytest.raises(ValueError, match=r"Targets are probabilities"):
        nn.binary_cross_entropy(z, [0, np.nan])
    with pytest.raises(ValueError, match=r'The reduction is "mean", "sum" or "none"'):
        nn.binary_cross_entropy(z, [0, 1], reduction="average")
    with pytest.raises(ValueError, match="over no target"):
        nn.binary_cross_entropy(leaf(np.zeros(0)), [])
    with pytest.raises(ValueError, match=r"need scores \(…, K\) of pairs that do not; got \(2,\) and \(3, 4\)"):
        nn.negative_sampling(z, np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"got \(\) and \(\)"):
        nn.negative_sampling(leaf(0.0), 1.0)
    with pytest.raises(ValueError, match="over no example"):
        nn.negative_sampling(leaf(np.zeros(0)), np.zeros((0, 3)))
