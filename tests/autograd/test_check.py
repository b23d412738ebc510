"""Gradcheck: right gradients pass, wrong ones are caught, and what has no derivative is neither."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import Tensor, named, nn
from chainrule.autograd import elementwise, primitive
from chainrule.autograd.check import (
    GradcheckReport,
    central,
    check_direction,
    check_entry,
    check_graph,
    differences,
    gradcheck,
    ridders,
)
from chainrule.models import WorkedExample

METHODS = ("ridders", "complex", "central")
BY_CALLING = ("ridders", "central")
EPS = 2.0**-52


def verdicts(report):
    return [entry.verdict for entry in report.entries]


def random(*shape):
    return np.random.default_rng(0).normal(size=shape)


# The worked example: 24 parameters, three ways


def worked_loss(E, WQ, WK, WV, WO, U):
    """The worked example as a function of its six arrays."""
    X = E[[0, 1]]
    A = nn.softmax((X @ WQ) @ (X @ WK).T, nn.causal_mask(2, 2))
    h = (X + A @ (X @ WV) @ WO)[-1]
    return nn.cross_entropy(h @ U, 2)


NAMES = ("E", "WQ", "WK", "WV", "WO", "U")
NOTED = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text(encoding="utf-8"))["grads"]


def check_worked_example(method, **options):
    model = WorkedExample()
    report = gradcheck(worked_loss, *(getattr(model, name) for name in NAMES), method=method, **options)
    assert report.ok, report
    assert len(report.entries) == 24
    noted = [float(np.array(NOTED[entry.name])[entry.index]) for entry in report.entries]
    return report.entries, noted


def test_worked_example_by_central_differences():
    entries, noted = check_worked_example("central", step=1e-5)
    assert max(abs(entry.expected - value) for entry, value in zip(entries, noted, strict=True)) < 3e-11


def test_worked_example_by_ridders():
    entries, noted = check_worked_example("ridders")
    errors = [abs(entry.expected - value) for entry, value in zip(entries, noted, strict=True)]
    assert max(errors) <= 1e-11
    assert all(error <= entry.bar for error, entry in zip(errors, entries, strict=True))
    assert max(entry.bar for entry in entries) <= 1e-11


def test_worked_example_by_the_complex_step():
    entries, noted = check_worked_example("complex")
    assert max(abs(entry.expected - value) for entry, value in zip(entries, noted, strict=True)) <= 1e-15


@pytest.mark.parametrize("method", METHODS)
def test_recorded_worked_example(method):
    report = check_graph(WorkedExample()(), method=method)
    assert report.ok, report
    assert sorted({entry.name for entry in report.entries}) == sorted(NAMES)
    assert len(report.entries) == 24
    bound = {"ridders": 1e-11, "complex": 1e-15, "central": 3e-11}[method]
    assert max(entry.error for entry in report.entries) <= bound


# Right gradients pass


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (lambda x, W: np.tanh(x @ W), (random(3, 2), random(2, 4))),
        (lambda x, b: np.sum(x * x + b), (random(3, 2), random(2))),
        (lambda x: x, (random(3),)),
        (lambda x: np.exp(x[[0, 0, 2]]), (random(3),)),
        (lambda x: nn.softmax(x), (random(2, 3),)),
        (lambda Q, K, V: nn.attention(Q, K, V, nn.causal_mask(3, 3)), (random(3, 2), random(3, 2), random(3, 4))),
        (lambda x: nn.cross_entropy(x, np.array([0, 2])), (random(2, 3),)),
        (lambda x: np.sum(nn.softmax(x)) - 1, (random(3),)),  # a value, and a gradient, that are rounding alone
        (lambda x: np.mean(x - np.mean(x)), (random(5),)),
        (lambda x: np.sum(np.sin(x) / 7 - np.mean(np.sin(x) / 7)), (1e-3 * random(7),)),  # small values, larger slopes
        (lambda x, unused: x * 1e6, (random(2), random(2))),
        (lambda x: np.where(x > 0, np.sqrt(x), 0.0), (np.array([-1.0, 2.0]),)),
    ],
)  # fmt: skip
def test_right_gradients_pass(f, inputs, method):
    gradcheck(f, *inputs, method=method).assert_ok()


CONFIDENT = np.array([[31.0, 7.0, 24.0, 9.0], [2.0, 19.0, 28.5, 1.0]])  # by logits of 30, a loss of 5e-4


@pytest.mark.parametrize("method", METHODS)
def test_a_small_difference_of_large_terms_accuses_nobody(method):
    """A trained model's loss is rounded like its logits, also where the subtraction is inside a fused operation."""
    W = Tensor(0.3 * random(4, 4), requires_grad=True, name="W")
    for scale in np.linspace(0.9, 1.1, 21):
        loss = nn.cross_entropy(scale * CONFIDENT + np.tanh(CONFIDENT / 40) @ W, np.array([0, 2]))
        verdict_of = Counter(entry.verdict for entry in gradcheck(loss, "W", method=method).entries)
        assert verdict_of["wrong"] == verdict_of["kink"] == 0, verdict_of
        assert verdict_of["ok"] == 16
        loss.backward()
        small, large = (1, 3), (1, 2)  # 3e-10, which central differences cannot tell, and 1e-4
        for index in [large] if method == "central" else [small, large]:
            assert check_entry(loss, W, index, 1.1 * float(W.grad[index]), method=method).verdict == "wrong"
        W.grad = None


def test_a_sum_that_cancels_accuses_nobody():
    for method in METHODS:
        assert "wrong" not in verdicts(gradcheck(np.sum, np.array([1e12, 0.3, -1e12]), method=method)), method


def test_where_value_and_derivatives_are_0():
    """Nothing but the function farther away says how large 1e-10 is; central differences at 1e-5 do not look there."""
    expected = {"ridders": "ok", "complex": "ok", "central": "inconclusive"}
    assert {method: gradcheck(lambda x: x**3, 0.0, method=method).entries[0].verdict for method in METHODS} == expected


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e30])
def test_the_scale_of_the_loss_changes_no_verdict(scale):
    assert gradcheck(lambda x: np.sum(np.sin(x)) * scale, random(3))
    wrong = elementwise()(lambda x: np.sin(x))
    wrong.rule("x", "")(lambda g, y, x: g * np.cos(x) * 1.001)
    assert verdicts(gradcheck(lambda x: np.sum(wrong(x)) * scale, random(3))) == ["wrong"] * 3


# Wrong rules are caught


def with_rules(forward, *rules, **properties):
    made = primitive(**properties)(forward)
    for name, rule in zip(made.input_names, rules, strict=True):
        made.rule(name, "")(rule)
    return made


def unary(forward, rule):
    def operation(x):
        return forward(x)

    return with_rules(operation, rule, elementwise=True)


def product(a, b):
    return a @ b


def reversed_rows(x):
    return x[::-1]


WRONG = {
    "sign flipped": (unary(np.cos, lambda g, y, x: g * np.sin(x)), (random(3),)),
    "factor 2 dropped": (unary(np.square, lambda g, y, x: g * x), (random(3),)),
    "factor 2 added": (unary(np.tanh, lambda g, y, x: 2 * g * (1 - y * y)), (random(3),)),
    "term dropped": (unary(lambda x: x * np.sin(x), lambda g, y, x: g * np.sin(x)), (random(3),)),
    "off by a thousandth": (unary(np.exp, lambda g, y, x: g * y * 1.001), (random(3),)),
    "off by a millionth": (unary(np.exp, lambda g, y, x: g * y * 1.000001), (random(3),)),
    "zero": (unary(np.sin, lambda g, y, x: g * 0), (random(3),)),
    "g forgotten": (unary(np.sin, lambda g, y, x: np.cos(x) + g * 0), (np.array(0.5),)),
    "g squared": (unary(np.sin, lambda g, y, x: np.cos(x) * g * g), (np.array(0.5),)),
    "|g|": (unary(np.sin, lambda g, y, x: np.cos(x) * np.abs(g)), (np.array(0.5),)),
    "index swapped": (with_rules(reversed_rows, lambda g, y, x: g), (random(4),)),
    "matrix not transposed": (
        with_rules(product, lambda g, y, a, b: g @ b, lambda g, y, a, b: a.T @ g),
        (random(3, 3), random(3, 3) + 1),
    ),
    "arguments swapped": (
        with_rules(product, lambda g, y, a, b: a.T @ g, lambda g, y, a, b: g @ b.T),
        (random(3, 3), random(3, 3) + 1),
    ),
    "not summed over positions": (
        with_rules(lambda x: np.sum(x, axis=0), lambda g, y, x: np.broadcast_to(g, x.shape) / len(x)),
        (random(3, 2),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", WRONG)
def test_wrong_rules_are_caught(fault, method):
    f, inputs = WRONG[fault]
    step = {"step": 1e-4} if method == "central" else {}
    report = gradcheck(f, *inputs, method=method, **step)
    assert not report.ok
    assert "wrong" in verdicts(report), report
    assert set(verdicts(report)) <= {"wrong", "ok"}
    if fault not in ("matrix not transposed", "arguments swapped", "index swapped"):
        assert set(verdicts(report)) == {"wrong"}
    with pytest.raises(AssertionError, match="wrong"):
        report.assert_ok()


def test_only_the_wrong_argument_is_accused():
    f, inputs = WRONG["matrix not transposed"]
    assert {entry.argument for entry in gradcheck(f, *inputs).entries if entry.verdict == "wrong"} == {0}


@pytest.mark.parametrize("method", BY_CALLING)
def test_a_dependence_that_was_not_recorded_is_caught(method):
    assert verdicts(gradcheck(lambda x: np.sum(x * x.detach()), np.array([1.0, 2.0]), method=method)) == ["wrong"] * 2
    assert verdicts(gradcheck(lambda x: Tensor(3 * x.data), 1.0, method=method)) == ["wrong"]


# Kinks


@pytest.mark.parametrize("method", BY_CALLING)
@pytest.mark.parametrize(
    ("f", "x", "kinks"),
    [
        (np.abs, np.array([-1.0, 0.0, 0.5]), [1]),
        (lambda x: np.maximum(x, 0), np.array([0.0, 1.0, -1.0]), [0]),
        (lambda x: np.where(x > 0, x, 0), np.array([0.0, 1.0, -1.0]), [0]),  # a relu with the gradient 0 at 0
        (lambda x: np.where(x >= 0, x, 0), np.array([0.0, 1.0, -1.0]), [0]),  # and 1
        (np.max, np.array([1.0, 3.0, 3.0, 2.0]), [1, 2]),
        (lambda x: 100 + np.exp(x) + 0.01 * np.abs(x), np.array([0.0]), [0]),
        (lambda x: np.maximum(x, 0) ** 2 + 1, np.array([1.0]), []),
    ],
)
def test_kinks(f, x, kinks, method):
    report = gradcheck(f, x, method=method)
    assert verdicts(report) == ["kink" if i in kinks else "ok" for i in range(len(x))], report
    assert report.ok is not bool(kinks)


def test_a_kink_shows_both_slopes():
    (entry,) = gradcheck(lambda x: np.maximum(2 * x, -x), 0.0).entries
    assert (entry.left, entry.right) == pytest.approx((-1, 2), abs=1e-9)
    assert "left -1, right 2" in str(entry)


def test_a_gradient_beyond_both_slopes_is_wrong():
    relu = unary(lambda x: np.maximum(x, 0), lambda g, y, x: 5 * g)
    assert verdicts(gradcheck(relu, 0.0)) == ["wrong"]


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_beside_a_kink_there_is_a_derivative(distance):
    assert verdicts(gradcheck(np.abs, np.array([distance, -distance]))) == ["ok", "ok"]


def test_strong_curvature_is_no_kink():
    """With the first few steps alone, this looks like one."""
    a, b, c = 0.01, 0.6, 12.0
    for x in np.linspace(-0.08, 0.08, 41):
        assert verdicts(gradcheck(lambda t: a + b * t + c * t**5, float(x))) == ["ok"]


@pytest.mark.parametrize(
    ("x", "offset", "a", "b"),
    [
        (-0.008565293245676123, 1000, -0.3826385404844987, 1.0),
        (0.39704260537549346, 0, -3.2064047496413175, 19.688293083517973),
        (15.448314342706594, 0, -12.066947022893972, 28.97223320941868),
        (6.84986105710628, 0, 0.2551814843846088, 19.438409706907343),
        (1203.7635590881953, 0, 1.7831626375686844, -20.21262729106288),
        (194.85701626953062, 1000, 4.138389840864649, 1.0),
        (455.4395076186371, 1000, 0.43534436244400737, 1.0),
        (71.31592691248956, 0, 0.5459542385158936, 8.34878785825708),
    ],
)
def test_many_periods_within_the_first_step_are_no_kink(x, offset, a, b):
    """At each of these points some rows of the extrapolation agree by coincidence on a wrong slope."""
    report = gradcheck(lambda t: offset + a * np.sin(b * t), x)
    assert report, report


def test_smooth_where_two_branches_meet():
    assert verdicts(gradcheck(lambda x: np.maximum(x, 0) ** 2, 0.0)) == ["ok"]


# NaN, infinities and the edges of domains


def test_nan_in_the_gradient_is_wrong():
    broken = unary(np.sin, lambda g, y, x: g * np.nan)
    for method in METHODS:
        assert verdicts(gradcheck(broken, random(3), method=method)) == ["wrong"] * 3
        assert verdicts(gradcheck(lambda x: broken(x) + np.inf, 0.5, method=method)) == ["wrong"]
    broken_at_a_kink = unary(np.abs, lambda g, y, x: g * np.nan)
    assert verdicts(gradcheck(broken_at_a_kink, 0.0)) == ["wrong"]


@pytest.mark.parametrize("method", METHODS)
def test_nan_in_the_value_never_passes(method):
    report = gradcheck(lambda x: np.sqrt(x) + 0 * x, np.array([-1.0]), method=method)
    assert verdicts(report)[0] in ("wrong", "inconclusive")
    report = gradcheck(lambda x: np.where(np.isnan(x), 0 * x, x) * np.nan, np.array([1.0]), method=method)
    assert verdicts(report)[0] in ("wrong", "inconclusive")
    assert "not finite" in str(report)


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_gradient_never_passes(method):
    infinite = unary(np.sin, lambda g, y, x: g * np.inf)
    assert verdicts(gradcheck(infinite, 0.5, method=method)) == ["wrong"]
    assert verdicts(gradcheck(np.exp, 1000.0, method=method)) == ["inconclusive"]  # infinite, gradient and value


@pytest.mark.parametrize("x", [1e-300, 1e-30, 1e-12, 1e-5, 1.0, 1e30, 1e300])
@pytest.mark.parametrize("f", [np.log, np.sqrt, lambda x: x * np.log(x)])
def test_near_the_edge_of_a_domain(f, x):
    (entry,) = gradcheck(f, x).entries
    assert entry.verdict == "ok"
    assert entry.bar <= 1e-9 * abs(entry.expected)


def test_a_wrong_log_is_caught_near_0():
    halved = unary(np.log, lambda g, y, x: g / x / 2)
    for x in (1e-300, 1e-12, 1e-5, 1.0, 1e12, 1e300):
        assert verdicts(gradcheck(halved, x)) == ["wrong"]


def test_at_the_edge_of_a_domain_nothing_is_decided():
    assert verdicts(gradcheck(np.sqrt, 0.0)) == ["inconclusive"]
    assert verdicts(gradcheck(np.log, 0.0)) == ["inconclusive"]
    assert verdicts(gradcheck(lambda x: np.where(x > 0, np.sqrt(x), 0), 0.0)) == ["inconclusive"]
    assert verdicts(gradcheck(np.sign, 0.0)) == ["inconclusive"]


def test_near_underflow():
    """Numbers below 2e-308 have few digits left."""
    assert gradcheck(lambda x: np.exp(3.7 * x), np.array([-194.42968392120935, -197.04993128721944, -200.0]))


def test_near_overflow():
    (entry,) = gradcheck(np.exp, 709.0).entries
    assert entry.verdict == "ok"
    assert entry.expected == pytest.approx(math.exp(709), rel=1e-10)


def test_a_step_that_is_lost_beside_x_decides_nothing():
    assert verdicts(gradcheck(np.sin, 1.0, method="central", step=1e-30)) == ["inconclusive"]


# Precision


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("method", METHODS)
def test_low_precision_inputs_are_checked_in_float64(dtype, method):
    report = gradcheck(lambda x, W: np.tanh(x @ W), random(2, 3).astype(dtype), random(3, 2), method=method)
    assert report.ok
    assert report.notes == (f"argument 0 is {np.dtype(dtype)}; it was checked in float64",)
    assert f"argument 0 is {np.dtype(dtype)}" in str(report)
    assert max(entry.error for entry in report.entries) < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_a_graph_recorded_in_float32(method):
    Q, K, V = (Tensor(random(3, 2).astype(np.float32) + i, requires_grad=True, name=name) for i, name in enumerate("QKV"))
    loss = np.sum(np.square(nn.attention(Q, K, V)))
    assert loss.dtype == np.float32
    loss.backward()
    assert check_graph(loss, method=method).ok
    assert check_entry(loss, V, (0, 0), 1.01 * V.grad[0, 0], method=method).verdict == "wrong"
    assert check_entry(loss, Q, (0, 0), -Q.grad[0, 0], method=method).verdict == "wrong"


def test_what_single_precision_rounds_in_the_gradient_accuses_nobody():
    """p - 1 at p ≈ 1 has few digits left in float32: 4 of the 7 at a logit of 9."""
    for logit in range(16):
        x = Tensor(np.float32([1]), requires_grad=True)
        loss = nn.cross_entropy(x * np.float32([logit, 0, 0]), 0)
        assert verdicts(gradcheck(loss)) == ["ok"], logit


@pytest.mark.parametrize(
    ("dtype", "loss", "wrong"),
    [
        (np.float32, lambda x: (np.tanh(x) * np.float32(1e-3)).sum() + np.float32(1000), [0, 9e-4]),
        (np.float16, lambda x: (np.tanh(x) + np.float16(1000)).sum() - np.float16(998), [0, -1, 5, 0.8]),
        (np.float32, lambda x: (nn.layer_norm(np.stack([x, 2 * x, 3 * x**2], -1)) ** 2).sum(), [1e-4]),
    ],
)
def test_large_terms_excuse_no_wrong_gradient_in_low_precision(dtype, loss, wrong):
    x = Tensor(dtype([0.3]), requires_grad=True)
    assert verdicts(check_graph(loss(x))) == ["ok"]
    for gradient in wrong:
        assert check_entry(loss(x), x, (0,), gradient).verdict == "wrong", gradient


@pytest.mark.parametrize("method", BY_CALLING)
def test_an_infinite_slope_is_not_decided(method):
    assert verdicts(gradcheck(lambda x: np.cbrt(x), 0.0, method=method)) == ["inconclusive"]


def test_a_rule_that_takes_arrays_alone_is_checked_in_single_precision_too():
    cube = unary(lambda x: x * x * x, lambda g, y, x: np.asarray(g) * 3 * np.asarray(x) ** 2)
    x = Tensor(np.float32([1.5, -2]), requires_grad=True)
    assert verdicts(check_graph(np.sum(cube(x)))) == ["ok", "ok"]


def test_single_precision_inside_a_function_is_not_trusted_beyond_it():
    def f(x):
        return np.sum(np.sin(x.astype(np.float32)).astype(np.float64))

    assert set(verdicts(gradcheck(f, random(4)))) == {"inconclusive"}


# Differences of functions of one number

SMOOTH = {
    "sin": (np.sin, np.cos),
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "exp": (np.exp, np.exp),
    "bell": (lambda t: 1 / (1 + t * t), lambda t: -2 * t / (1 + t * t) ** 2),
    "root": (lambda t: np.sqrt(1 + t * t), lambda t: t / np.sqrt(1 + t * t)),
    "cube": (lambda t: t**3, lambda t: 3 * t**2),
}
coefficient = st.floats(-3, 3, allow_subnormal=False)
terms = st.lists(st.tuples(st.sampled_from(sorted(SMOOTH)), coefficient, coefficient, coefficient), min_size=1, max_size=4)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(terms, st.floats(-4, 4))
def test_the_error_bar_holds(terms, x):
    """L(x) = Σ a·φ(bx + c): the derivative lies within the bar, and smooth functions have no kinks."""

    def value(t):
        return sum(a * SMOOTH[name][0](b * t + c) for name, a, b, c in terms)

    parts = [np.longdouble(a) * b * SMOOTH[name][1](np.longdouble(b) * x + c) for name, a, b, c in terms]
    exact, rounding = float(sum(parts)), 4 * EPS * float(sum(map(abs, parts)))  # the reference is rounded too
    size = float(sum(abs(a) * (1 + abs(b * x) + abs(c) + abs(SMOOTH[name][0](b * x + c))) for name, a, b, c in terms))

    derivative, bar = ridders(value, x, size=size)
    assert abs(derivative - exact) <= bar + rounding
    assert bar <= 1e-8 * max(1, size, float(sum(map(abs, parts))))  # and it is worth something

    for slopes in (differences(value, x, size=size), central(value, x, size=size)):
        assert abs(slopes.derivative - exact) <= slopes.bar + rounding
        assert not slopes.kink


@settings(derandomize=True, max_examples=200, deadline=None)
@given(coefficient, coefficient, st.floats(0.01, 3), st.floats(-3, 3))
def test_a_kink_is_seen_beside_a_smooth_function(a, b, jump, x):
    slopes = differences(lambda t: a * math.sin(b * t) + jump * abs(t - x), x, size=4.0)
    middle = a * b * math.cos(b * x)
    assert slopes.kink
    assert slopes.left == pytest.approx(middle - jump, abs=1e-6)
    assert slopes.right == pytest.approx(middle + jump, abs=1e-6)


def test_ridders_needs_few_evaluations():
    count = 0

    def g(t):
        nonlocal count
        count += 1
        return math.exp(t)

    derivative, bar = ridders(g, 1.0)
    assert abs(derivative - math.e) <= bar <= 1e-11
    assert count <= 20


def test_ridders_gives_up_where_there_is_no_derivative():
    count = 0

    def g(t):
        nonlocal count
        count += 1
        return math.sqrt(max(t, 0))

    derivative, bar = ridders(g, 0.0)
    assert bar > 0.1 * derivative
    assert count <= 100


def test_ridders_sees_a_spike_narrower_than_its_first_steps():
    x = 5e-4
    derivative, bar = ridders(lambda t: math.exp(-((1000 * t) ** 2)), x)
    assert abs(derivative + 2e6 * x * math.exp(-((1000 * x) ** 2))) <= bar <= 1e-6


@pytest.mark.parametrize("by", [differences, central])
def test_what_looks_like_a_kink_from_afar_is_none(by):
    slopes = by(lambda t: math.sqrt(t * t + 1), 0.0, step=1e5)
    assert not slopes.kink
    assert abs(slopes.derivative) <= slopes.bar
    assert by(lambda t: abs(t) + t / 3 + t * t, 0.0, step=1e-2).kink


def test_ridders_far_from_0():
    derivative, bar = ridders(math.sin, 1e8)
    assert abs(derivative - math.cos(1e8)) <= bar <= 1e-11


@pytest.mark.parametrize(
    ("x", "b"),
    [
        (822.9131868860205, 14.591585232726167),
        (1215.7230803435211, 9.510769354141013),
        (1372.5929963031685, 19.377913885689306),
    ],
)
def test_agreement_by_coincidence_is_overruled_by_smaller_steps(x, b):
    derivative, bar = ridders(lambda t: math.sin(b * t), x, size=b * x)
    assert abs(derivative - b * math.cos(b * x)) <= bar <= 1e-7 * b


def test_a_bar_is_not_widened_by_the_bend_of_a_far_smaller_step():
    derivative, bar = ridders(lambda t: 1 + 1e-3 * t + 1e7 * t**3, 0.0)
    assert abs(derivative - 1e-3) <= bar <= 1e-11


def test_central_differences_are_central_differences():
    slopes = central(math.exp, 0.0, step=1e-3)
    assert slopes.derivative == (math.exp(1e-3) - math.exp(-1e-3)) / 2e-3
    assert abs(slopes.derivative - 1) <= slopes.bar <= 1e-6
    assert slopes.derivative != 1
    assert central(math.sin, 1e8).bar > 0.1  # the step has grown with x, and a smaller one disagrees


def test_differences_of_what_is_not_finite():
    assert ridders(lambda t: math.nan)[1] == math.inf
    assert ridders(lambda t: 0.0 if t == 0 else math.nan)[1] == math.inf
    assert ridders(lambda t: 5.0) == (0.0, pytest.approx(0, abs=1e-12))


# The recorded graph


def test_a_recorded_graph_keeps_its_random_numbers():
    x = Tensor(random(4), requires_grad=True, name="x")
    mask = np.array([1.0, 0.0, 1.0, 1.0])
    loss = np.sum(np.tanh(x) * mask * np.random.default_rng().normal(size=4))
    loss.backward()
    entries = [check_entry(loss, x, i, x.grad[i]) for i in range(4)]
    assert [entry.verdict for entry in entries] == ["ok"] * 4
    assert entries[1].expected == 0
    assert entries[1].place == "x[1]"
    assert check_entry(loss, x, 0, x.grad[0] + 1e-6).verdict == "wrong"


@pytest.mark.parametrize("method", METHODS)
def test_an_interior_node_of_a_recorded_graph(method):
    report = check_graph(WorkedExample()(), "S", method=method)
    assert report.ok
    assert [entry.index for entry in report.entries] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert report.entries[2].expected == pytest.approx(0.13356231995910944, abs=1e-9)


def test_part_of_a_recorded_graph():
    (entry,) = check_graph(WorkedExample()(), "WQ[1,0]").entries
    assert (entry.place, entry.received) == ("WQ[1, 0]", pytest.approx(0.13356231995910944, abs=1e-15))
    assert [entry.index for entry in check_graph(WorkedExample()(), "U[1]").entries] == [(1, 0), (1, 1), (1, 2)]
    with pytest.raises(KeyError, match="WX"):
        check_graph(WorkedExample()(), "WX")
    with pytest.raises(IndexError):
        check_graph(WorkedExample()(), "WQ[5,0]")


@pytest.mark.parametrize("method", METHODS)
def test_a_direction(method):
    model = WorkedExample()
    loss = model()
    loss.backward()
    squared = float(np.sum(model.U.grad**2))
    entry = check_direction(loss, model.U, model.U.grad, squared, method=method)
    assert (entry.verdict, entry.index, entry.place) == ("ok", None, "U")
    assert check_direction(loss, model.U, model.U.grad, 1.00001 * squared, method=method).verdict == "wrong"
    assert check_direction(loss, model.U, -model.U.grad, squared, method=method).verdict == "wrong"
    assert check_direction(loss, model.U, np.zeros((2, 3)), 0.0, method=method).verdict == "ok"


def test_a_direction_of_one_entry_is_that_entry():
    model = WorkedExample()
    loss = model()
    direction = np.zeros((2, 1))
    direction[1, 0] = 1
    assert check_direction(loss, model.WQ, direction, 0.5) == check_entry(loss, model.WQ, (1, 0), 0.5)


def test_what_a_recorded_graph_refuses():
    x = Tensor(random(2, 2), requires_grad=True, name="x")
    other = Tensor(1.0, requires_grad=True, name="other")
    loss = np.sum(x * x)
    with pytest.raises(ValueError, match="single number"):
        check_entry(x * 2, x, (0, 0), 2.0)
    with pytest.raises(ValueError, match="does not depend on other"):
        check_entry(loss, other, (), 0.0)
    with pytest.raises(IndexError, match="one entry of x"):
        check_entry(loss, x, 0, 0.0)
    with pytest.raises(IndexError):
        check_entry(loss, x, (0, 5), 0.0)
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        check_direction(loss, x, np.ones(2), 0.0)
    with pytest.raises(ValueError, match="does not depend on other"):
        gradcheck(loss, other)
    with pytest.raises(ValueError, match="The methods are"):
        check_graph(loss, x, method="forward")


def test_checking_leaves_no_trace():
    model = WorkedExample()
    loss = model()
    check_graph(loss)
    assert all(parameter.grad is None for parameter in model.parameters())
    x = Tensor(random(3), requires_grad=True)
    before = x.data.copy()
    gradcheck(np.sin, x)
    assert x.grad is None
    assert np.array_equal(x.data, before)


# The complex step and its limits


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (np.abs, "absolute"),
        (lambda x: np.maximum(x, 0), "maximum"),
        (lambda x: np.sin(np.max(x)), "max"),
        (lambda x: x.astype(np.float32), "astype"),
    ],
)
def test_the_complex_step_names_what_it_cannot_do(f, name):
    with pytest.raises(TypeError, match=rf"extend to complex numbers; {name} .* method=\"ridders\""):
        gradcheck(f, random(3), method="complex")


def test_the_complex_step_looks_inside_fused_operations():
    @primitive()
    def relu_norm(x):
        return np.sum(np.maximum(x, 0))

    relu_norm.rule("x", "")(lambda g, y, x: g * (x > 0))
    relu_norm.defined_by(lambda x: np.sum(np.maximum(x, 0)))
    with pytest.raises(TypeError, match="maximum"):
        gradcheck(relu_norm, random(3), method="complex")
    assert gradcheck(relu_norm, random(3))


def test_a_coarse_complex_step_accuses_nobody():
    assert verdicts(gradcheck(lambda x: x**3, 0.0, method="complex", step=1e-10)) == ["inconclusive"]
    assert gradcheck(np.sin, random(3), method="complex", step=1e-10)


def test_the_complex_step_asks_only_of_what_lies_between():
    x, w = Tensor(random(3), requires_grad=True, name="x"), Tensor(random(3), requires_grad=True, name="w")
    loss = np.sum(np.abs(w) * np.sin(x))
    loss.backward()
    assert check_entry(loss, x, 0, x.grad[0], method="complex").verdict == "ok"
    with pytest.raises(TypeError, match="absolute"):
        check_entry(loss, w, 0, w.grad[0], method="complex")


# What gradcheck refuses


@pytest.mark.parametrize("x", [np.array([1, 2]), np.int32(3), Tensor(np.array([1, 2])), np.array([True]), np.array([1j])])
def test_only_floating_inputs(x):
    with pytest.raises(TypeError, match="argument 1 has dtype"):
        gradcheck(lambda a, b: a * 1.0, 1.0, x)


def test_python_numbers_are_floats():
    assert gradcheck(lambda x, y: x * y, 3, [1, 2])


def test_random_functions_are_refused():
    generator = np.random.default_rng(0)

    def dropout(x):
        return x * (generator.random(x.shape) > 0.5)

    with pytest.raises(ValueError, match=r"same value each time; dropout gave .* and then"):
        gradcheck(dropout, random(20))
    with pytest.raises(ValueError, match="one shape of output"):
        gradcheck(lambda x: x[: generator.integers(1, 1000)], random(1000))


def test_outputs_are_floating_tensors():
    with pytest.raises(TypeError, match="returned ndarray"):
        gradcheck(lambda x: x.data, 1.0)
    with pytest.raises(TypeError, match="returned tuple"):
        gradcheck(lambda x: (x, x), 1.0)
    with pytest.raises(TypeError, match="dtype int"):
        gradcheck(lambda x: Tensor(np.array([1, 2])), 1.0)


def test_unknown_methods_and_missing_inputs():
    with pytest.raises(ValueError, match="'forward'"):
        gradcheck(np.sin, 1.0, method="forward")
    with pytest.raises(ValueError, match="at least one input"):
        gradcheck(lambda: Tensor(1.0))


# The report


def test_the_report_names_function_argument_index_received_and_expected():
    def twice_wrong(x, W):
        return WRONG["factor 2 dropped"][0](x) * np.sum(W)

    x, W = Tensor([1.0, 2.0], name="x"), Tensor(np.ones((1, 1)), name="W")
    report = gradcheck(twice_wrong, x, W)
    worst = report.worst_first()[0]
    assert (worst.function, worst.argument, worst.name, worst.index) == ("twice_wrong", 0, "x", (1,))
    assert worst.expected == pytest.approx(2 * worst.received)
    text = str(report)
    assert text.splitlines()[0] == "gradcheck of twice_wrong by ridders: 2 wrong, 1 ok"
    first = text.splitlines()[2]
    assert first.startswith("wrong")
    assert "argument 0, x[1]" in first
    assert f"{worst.received:.10g}" in first
    assert f"{worst.expected:.10g}" in first
    assert text.splitlines()[-1].startswith("ok")
    assert repr(report) == text


def test_the_worst_comes_first():
    broken = unary(
        lambda x: np.where(x > 1, np.abs(x), np.abs(x)), lambda g, y, x: np.where(x == 3, np.nan, g * np.sign(x) * 1.0)
    )
    entries = gradcheck(lambda x: np.sum(broken(x)), np.array([1.0, 0.0, 3.0])).worst_first()
    assert [entry.verdict for entry in entries] == ["wrong", "kink", "ok"]
    assert math.isnan(entries[0].received)


def test_long_reports_are_cut():
    lines = str(gradcheck(np.abs, np.zeros(25))).splitlines()
    assert lines[:2] == ["gradcheck of absolute by ridders: 25 kink", "the worst 20:"]
    assert lines[-1] == "… and 5 more"
    assert len(lines) == 24


def test_of_many_entries_that_are_ok_the_worst_few_are_shown():
    report = gradcheck(np.sin, np.linspace(0, 1, 25))
    lines = str(report).splitlines()
    assert lines[:2] == ["gradcheck of sin by ridders: 25 ok", "the 5 with the largest errors:"]
    worst = sorted(report.entries, key=lambda entry: -abs(entry.received - entry.expected))[:5]
    assert [" ".join(line.split()[1:4]) for line in lines[3:]] == [f"{entry.place} {entry.received:.10g}" for entry in worst]
    assert len(str(gradcheck(np.sin, np.zeros(5))).splitlines()) == 7  # a few are shown all


def test_a_sample_of_the_entries():
    report, again = (gradcheck(np.add, random(50), random(1), sample=5) for _ in range(2))
    assert [entry.argument for entry in report.entries] == [0] * 5 + [1]
    assert len({entry.index for entry in report.entries[:5]}) == 5
    assert report.entries == again.entries
    assert len(check_graph(WorkedExample()(), sample=2).entries) == 12
    assert len(check_graph(WorkedExample()(), "U[1]", sample=2).entries) == 2


def test_no_entries():
    report = gradcheck(np.sin, np.zeros((0, 3)))
    assert report.entries == ()
    assert str(report) == "gradcheck of sin by ridders: no entries"


def test_truth_of_a_report():
    good, kink = gradcheck(np.abs, 1.0), gradcheck(np.abs, 0.0)
    assert good
    assert not kink
    assert isinstance(good, GradcheckReport)
    good.assert_ok()
    with pytest.raises(AssertionError, match="kink"):
        kink.assert_ok()


def test_an_entry_as_plain_data():
    (entry,) = gradcheck(np.exp, 1000.0).entries
    assert json.loads(json.dumps(entry.to_dict(), allow_nan=False)) == {
        "function": "exp", "argument": 0, "name": None, "index": [], "received": None, "expected": None, "bar": None,
        "left": None, "right": None, "verdict": "inconclusive",
    }  # fmt: skip


def test_names_of_inputs_are_seen_by_the_function():
    seen = []
    gradcheck(lambda x: seen.append(x.name) or np.sin(named("y", x)), Tensor(1.0, name="x"))
    assert seen[0] == "x"
