"""Learning rates by step: the ends, the middle, and what is refused."""

from math import cos, pi

import pytest

from chainrule.nn.schedules import constant, cosine, linear


def test_constant():
    schedule = constant(0.5)
    assert [schedule(step) for step in (0, 1, 1000)] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("schedule", [cosine(0.8, 3, 11), linear(0.8, 3, 11)])
def test_the_warm_up_is_a_line_that_reaches_lr(schedule):
    assert [schedule(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8], rel=1e-15)
    assert schedule(3) == 0.8


def test_cosine_by_hand():
    schedule = cosine(0.8, 3, 11, final=0.2)
    assert schedule(7) == pytest.approx(0.5, rel=1e-15)  # half way
    assert schedule(5) == pytest.approx(0.2 + 0.6 * (1 + cos(pi / 4)) / 2, rel=1e-15)
    assert schedule(11) == schedule(12) == schedule(10**9) == 0.2
    assert cosine(0.8, 3, 11)(11) == 0.08


def test_linear_by_hand():
    schedule = linear(0.8, 3, 11)
    assert [schedule(step) for step in (5, 7, 9)] == pytest.approx([0.6, 0.4, 0.2], rel=1e-15)
    assert schedule(11) == schedule(12) == 0
    assert linear(0.8, 0, 2, final=0.4)(1) == pytest.approx(0.6, rel=1e-15)
    assert linear(0.8, 0, 2, final=0.1)(2) == 0.1


def test_without_warm_up_the_first_rate_is_lr():
    assert cosine(0.3, 0, 10)(0) == linear(0.3, 0, 10)(0) == 0.3


@pytest.mark.parametrize("schedule", [cosine(1.0, 5, 50), linear(1.0, 5, 50)])
def test_it_rises_and_then_falls(schedule):
    rates = [schedule(step) for step in range(51)]
    assert rates[:6] == sorted(set(rates[:6]))
    assert rates[5:] == sorted(set(rates[5:]), reverse=True)
    assert max(rates) == rates[5] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: constant(0.0), r"lr is a number in \(0, inf\); got 0.0"),
        (lambda: constant(float("nan")), "lr is a number .* got nan"),
        (lambda: constant("fast"), "lr is a number .* got 'fast'"),
        (lambda: cosine(-1.0, 0, 10), "lr is a number .* got -1.0"),
        (lambda: cosine(1.0, -1, 10), "warmup is a whole number, at least 0; got -1"),
        (lambda: cosine(1.0, 1.5, 10), "warmup is a whole number, at least 0; got 1.5"),
        (lambda: cosine(1.0, 0, "ten"), "steps is a positive whole number; got 'ten'"),
        (lambda: linear(1.0, 10, 10), "warmup < steps; got warmup 10 and steps 10"),
        (lambda: linear(1.0, 0, 10, final=2.0), r"final is a number in \[0, 1\]; got 2\.0"),
        (lambda: cosine(1.0, 0, 10, final=-0.1), r"final is a number in \[0, 1\]; got -0\.1"),
        (lambda: linear(1.0, 0, 10)(-1), "Steps count from 0; got -1"),
        (lambda: constant(1.0)(-1), "Steps count from 0; got -1"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
