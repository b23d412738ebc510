"""The loss curve: right places, readable ticks, safe text."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.viz.curves import BINS, loss_curve, ticks

NAN = float("nan")
SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg, name, element="polyline"):
    root = ElementTree.fromstring(svg)
    found = next(child for child in root.iter(SVG + element) if child.get("class") == name)
    return [tuple(map(float, point.split(","))) for point in found.get("points").split()]


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(SVG + "text")]


def test_points_are_where_the_numbers_are():
    svg = loss_curve([(0, NAN, 4.0), (50, 3.0, 2.0), (100, 1.0, 3.0)])
    (x0, y4), (x50, y2), (x100, y3) = drawn(svg, "validation")
    assert y4 < y3 < y2  # a smaller loss is lower
    assert x50 == pytest.approx((x0 + x100) / 2, abs=0.1)
    assert y3 == pytest.approx((y4 + y2) / 2, abs=0.1)
    assert [x for x, _ in drawn(svg, "train")] == [x50, x100]  # no training loss before the first step
    assert {"step", "loss", "0", "100", "training 1.000", "validation 3.000"} <= set(texts(svg))


def test_every_step_counts_in_the_mean_and_in_the_band():
    losses = [3.0, 1.0] * (5 * BINS)
    svg = loss_curve([(0, NAN, 3.0), (10 * BINS, 2.0, 1.0)], losses)
    curve, band = drawn(svg, "train"), drawn(svg, "band", "polygon")
    assert len(curve) == BINS
    assert len(band) == 2 * BINS
    (x0, top), (x1, bottom) = drawn(svg, "validation")
    np.testing.assert_allclose([y for _, y in curve], (top + bottom) / 2, atol=0.1)
    assert {y for _, y in band} == {top, bottom}
    assert all(x0 <= x <= x1 for x, _ in curve + band)


def test_the_number_beside_the_curve_is_that_of_the_last_row():
    losses = np.linspace(2.0, 1.0, 4 * BINS)
    assert {"training 1.125", "validation 1.500"} <= set(texts(loss_curve([(4 * BINS, 1.125, 1.5)], losses)))
    assert "training 1.005" in texts(loss_curve([(0, NAN, 2.0)], losses))  # stopped before the first row: the curve's end


def test_names_do_not_overlap():
    svg = loss_curve([(0, 2.0, 2.0), (10, 1.0, 1.001)])
    heights = [float(y) for y in re.findall(r'-ink" x="\d+" y="([\d.]+)"', svg)]
    assert abs(heights[0] - heights[1]) >= 16


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (1.9, 4.3, [1.5, 2, 2.5, 3, 3.5, 4, 4.5]),
        (0.0012, 0.0031, [0.001, 0.0015, 0.002, 0.0025, 0.003, 0.0035]),
        (2, 2, [2.0, 2.5]),
        (0, 0, [0, 0.2]),
    ],
)
def test_ticks_are_round_and_enclose(low, high, expected):
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    np.testing.assert_allclose(found, expected)


def test_steps_are_whole():
    assert ticks(0, 3, whole=True) == [0, 1, 2, 3]


def test_titles_are_text():
    svg = loss_curve([(0, 1.0, 1.0)], title='名 <script>alert("x")</script>')
    assert '名 <script>alert("x")</script>' in texts(svg)
    assert "<script>" not in svg
    assert "a��b" in texts(loss_curve([(0, 1.0, 1.0)], title="a\udce9\x01b"))  # XML has no such characters


def test_what_is_not_finite_is_left_out():
    svg = loss_curve([(0, NAN, 3.0), (1, float("inf"), NAN), (2, 1.0, 2.0)], [1.0, float("inf")])
    assert len(drawn(svg, "validation")) == 2
    assert "inf" not in svg
    assert "nan" not in svg
    with pytest.raises(ValueError, match="at least one loss that is finite"):
        loss_curve([(0, NAN, NAN)])
    with pytest.raises(ValueError, match="at least one loss"):
        loss_curve([])
