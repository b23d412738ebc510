"""assert_gradients, its directions and its narrowing, and the pytest fixture."""

import numpy as np
import pytest

from chainrule import Tensor, nn, primitive
from chainrule.autograd.reverse import gradients
from chainrule.testing import assert_gradients, wrong_rules

pytest_plugins = ["pytester"]

RNG = np.random.default_rng(0)
X, W, B = RNG.normal(size=(8, 30)), RNG.normal(size=(30, 40)) / 5, RNG.normal(size=40)


def layer(x, w, b):
    return np.tanh(x @ w + b)


def broken(rule):
    """y = sin x with this in place of its rule."""

    @primitive()
    def my_sin(x):
        return np.sin(x)

    my_sin.rule("x", "∂L/∂{x} = ∂L/∂{y} · something")(rule)
    return my_sin


def one_entry_wrong(g, y, x):
    found = g * np.cos(x)
    if found.shape == (8, 40):
        found[3, 7] *= 1.01
    return found


def test_right_gradients_pass():
    report = assert_gradients(layer, X[:2, :3], W[:3, :4], B[:4])
    assert len(report.entries) == 6 + 12 + 4
    report = assert_gradients(layer, X, W, B)
    assert len(report.entries) == 3 * 4
    assert "random directions" in report.notes[0]


@pytest.mark.parametrize(
    "rule",
    [
        lambda g, y, x: -g * np.cos(x),
        lambda g, y, x: 2 * g * np.cos(x),
        lambda g, y, x: g,
        lambda g, y, x: g * np.cos(x).T if x.shape[0] == x.shape[-1] else 0 * g,
        one_entry_wrong,
    ],
)
def test_wrong_rules_are_found_and_named(rule):
    my_sin = broken(rule)

    def f(x, w, b):
        return np.tanh(my_sin(x @ w) + b)

    with pytest.raises(AssertionError) as caught:
        assert_gradients(f, X, W, B)
    message = str(caught.value)
    assert "my_sin" in message
    assert "np.tanh(my_sin(x @ w) + b)" in message  # the line
    assert "rule: ∂L/∂(argument_0@argument_1) = " in message
    assert "The entry that shows it:" in message


def test_the_worst_entries_stand_side_by_side():
    my_sin = broken(lambda g, y, x: g * np.cos(x) * np.where(np.arange(3) == 1, 1.5, 1))
    with pytest.raises(AssertionError) as caught:
        assert_gradients(my_sin, np.array([0.1, 0.2, 0.3]))
    lines = str(caught.value).splitlines()
    assert "1 wrong, 2 ok" in lines[0]
    assert lines[1].split() == ["verdict", "entry", "received", "expected", "±", "bar"]
    assert lines[2].startswith("wrong ")
    assert "[1]" in lines[2]


def test_one_wrong_entry_of_many_is_narrowed_down():
    my_sin = broken(one_entry_wrong)
    with pytest.raises(AssertionError) as caught:
        assert_gradients(lambda x: my_sin(x * 1.5), RNG.normal(size=(8, 40)))
    assert "argument_0[3, 7]" in str(caught.value)


def test_no_unlucky_direction_hides_an_error():
    hidden = 0
    for seed in range(20):
        place = int(np.random.default_rng(seed).integers(400))

        def rule(g, y, x, place=place):
            found = np.array(g * np.cos(x))
            found.flat[place] += 1e-4
            return found

        try:
            assert_gradients(broken(rule), RNG.normal(size=400))
            hidden += 1
        except AssertionError:
            pass
    assert hidden == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_numbers_of_a_recorded_loss_are_checked_along_directions(dtype):
    W = Tensor(RNG.normal(size=(27, 190)).astype(dtype), requires_grad=True, name="W")
    loss = nn.cross_entropy(W[:8], np.arange(8))
    report = assert_gradients(loss)
    assert len(report.entries) == 4
    assert "random directions" in report.notes[0]
    assert len(assert_gradients(loss, "W[:2]").entries) == 4
    assert len(assert_gradients(loss, "W[0, :9]").entries) == 9


@pytest.mark.parametrize("few", [10, 1000])
def test_a_wrong_rule_in_a_recorded_loss_is_named(few):
    W = Tensor(RNG.normal(size=(8, 40)), requires_grad=True, name="W")
    loss = np.sum(broken(one_entry_wrong)(W * 1.5))
    with pytest.raises(AssertionError) as caught:
        assert_gradients(loss, few=few)
    message = str(caught.value)
    assert "W[3, 7]" in message
    assert "The operation that makes it:\n  my_sin" in message
    assert len(assert_gradients(loss, "W[:3]", few=few).entries) == (4 if few == 10 else 120)  # its other entries are right


def test_dependence_that_is_not_recorded():
    def f(x):
        return x * np.sum(x.data)

    with pytest.raises(AssertionError, match=r"in a way that its graph does not record.*\.data"):
        assert_gradients(f, RNG.normal(size=500))
    with pytest.raises(TypeError, match="returned float"):
        assert_gradients(lambda x: 1.0, RNG.normal(size=500))


def test_wrong_rules_of_a_graph():
    x = Tensor(RNG.normal(size=(3, 2)), requires_grad=True, name="x")
    loss = np.sum(broken(lambda g, y, x: g * np.cos(x) + 1e-3)(np.exp(x)))
    assert [rule.node.primitive.name for rule in wrong_rules(loss)] == ["my_sin"]
    assert wrong_rules(np.sum(np.exp(x) / np.cosh(x) + np.max(x, axis=0))) == []
    assert gradients(loss, [x])[0].shape == (3, 2)


def test_the_fixture(gradcheck):
    assert gradcheck(lambda a, b: a @ b, RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))).ok
    with pytest.raises(AssertionError, match="wrong"):
        gradcheck(broken(lambda g, y, x: g), RNG.normal(size=3))


def test_the_fixture_in_another_project(pytester):
    pytester.makepyfile(
        """
        import numpy as np

        def test_right(gradcheck):
            gradcheck(np.tanh, np.array([0.5, 1.0]))

        def test_kink(gradcheck):
            gradcheck(np.abs, np.array([0.0, 1.0]))
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*kink*"])
