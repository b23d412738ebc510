"""The loss curve of a training run, as SVG: training and validation, with axes. Nothing in it is ever run or fetched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from chainrule.viz.graph_model import clean

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 44, 52  # margins; the names of the curves stand in the right one
BINS = 80  # points of the training curve at most: each the mean of its share of the steps

STYLE = """
svg { background: #ffffff; font-family: Helvetica, Arial, 'Liberation Sans', 'Noto Sans CJK SC', sans-serif; font-size: 13px; }
.title { fill: #1f2933; font-size: 15px; font-weight: bold; }
.label, .tick { fill: #6b7683; }
.tick { font-size: 12px; }
.grid { stroke: #e8edf2; }
.axis { stroke: #9aa5b1; }
.train { stroke: #2563a8; } .validation { stroke: #c2600f; }
.train, .validation { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
.band { fill: #2563a8; opacity: 0.15; }
.train-ink { fill: #2563a8; } .validation-ink { fill: #c2600f; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; }
  .title { fill: #e6eaef; } .label, .tick { fill: #96a2ae; }
  .grid { stroke: #2b333c; } .axis { stroke: #71808e; }
  .train { stroke: #71aaec; } .validation { stroke: #f09a50; }
  .band, .train-ink { fill: #71aaec; } .validation-ink { fill: #f09a50; }
}
"""


def loss_curve(history: Iterable[Any], losses: Sequence[float] = (), title: str = "") -> str:
    """The SVG text of a run's losses.

    Args:
        history: rows that begin with (step, training loss, validation loss), as `Trainer.history`.
        losses: of every step, as `Trainer.losses`: then the training curve is their running mean, in a band from the least
            to the largest; else it goes through the rows. Either way the number beside it is that of the last row, as the
            terminal and the log have it: the mean since the row before.
        title: above the picture.
    Raises:
        ValueError: if nothing in it is finite.
    """
    rows = np.array([row[:3] for row in history], dtype=float).reshape(-1, 3)
    validation = _finite(rows[:, [0, 2]])
    train, band = (_finite(rows[:, :2]), []) if len(losses) == 0 else _binned(np.asarray(losses, dtype=float))
    points = [*train, *validation]
    if not points:
        raise ValueError("A loss curve needs at least one loss that is finite; got none.")
    y_ticks = ticks(min(y for _, y in points), max(y for _, y in points))
    x_ticks = ticks(0, max(x for x, _ in points), whole=True)
    x_end, y_low, y_high = max(x for x, _ in points) or 1, y_ticks[0], y_ticks[-1]
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        y = min(max(y, y_low), y_high)
        return round(LEFT + inner_width * x / x_end, 1), round(TOP + inner_height * (y_high - y) / (y_high - y_low), 1)

    parts = [f'<text class="title" x="{LEFT}" y="24">{escape(clean(title))}</text>'] if title else []
    for y in y_ticks:
        height = at((0, y))[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{height + 4}" text-anchor="end">{_number(y, y_ticks)}</text>')
    floor = HEIGHT - BOTTOM
    for x in x_ticks:
        if x <= x_end:
            place = at((x, y_low))[0]
            parts.append(f'<line class="axis" x1="{place}" x2="{place}" y1="{floor}" y2="{floor + 5}"/>')
            parts.append(f'<text class="tick" x="{place}" y="{floor + 19}" text-anchor="middle">{_number(x, x_ticks)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    middle = LEFT + inner_width / 2
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">step</text>')
    centre = TOP + inner_height / 2
    parts.append(
        f'<text class="label" x="16" y="{centre}" text-anchor="middle" transform="rotate(-90 16 {centre})">loss</text>'
    )
    if band:
        parts.append(f'<polygon class="band" points="{_points(map(at, band))}"/>')
    names = []
    for name, curve in (("train", train), ("validation", validation)):
        if not curve:
            continue
        parts.append(f'<polyline class="{name}" points="{_points(map(at, curve))}"/>')
        if name == "validation" or not band:
            parts += [f'<circle class="{name}-ink" cx="{x}" cy="{y}" r="2.5"/>' for x, y in map(at, curve)]
        said, column = ("training", 1) if name == "train" else (name, 2)
        told = _finite(rows[:, [0, column]]) or curve
        names.append((at(curve[-1])[1], name, f"{said} {told[-1][1]:.3f}"))
    names.sort()
    if len(names) == 2 and (gap := 17 - (names[1][0] - names[0][0])) > 0:  # names that would overlap move apart
        names = [(names[0][0] - gap / 2, *names[0][1:]), (names[1][0] + gap / 2, *names[1][1:])]
    for height, name, said in names:
        parts.append(f'<text class="{name}-ink" x="{WIDTH - RIGHT + 10}" y="{height + 4:.1f}">{said}</text>')
    drawn = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{escape(clean(title) or 'Loss curve')}</title>\n<style>{STYLE}</style>\n{drawn}\n</svg>\n"
    )


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """4 to 9 round numbers, 1, 2 or 5 times a power of ten apart, from at most `low` to at least `high`."""
    spread = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(spread / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if spread / (step * factor) <= 7)
    if whole:
        step = max(step, 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, max(last, first + 1) + 1)]


def _finite(points: Any) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points.tolist() if math.isfinite(y)]


def _binned(losses: Any) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(curve, band): the mean of each bin of steps at its middle; the outline of the least and largest in each."""
    curve, low, high = [], [], []
    for bin_ in np.array_split(np.arange(len(losses)), min(BINS, len(losses))):
        values = losses[bin_][np.isfinite(losses[bin_])]
        if len(values):
            x = float(bin_.mean())  # the loss of a step is that of the parameters before it
            curve.append((x, float(values.mean())))
            low.append((x, float(values.min())))
            high.append((x, float(values.max())))
    return curve, [*high, *reversed(low)]


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _number(x: float, all_ticks: Sequence[float]) -> str:
    decimals = max(0, -math.floor(math.log10(all_ticks[1] - all_ticks[0]) + 1e-9))
    return f"{x:,.{decimals}f}"
