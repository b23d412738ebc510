"""Reductions: sums, products, means, spreads and extremes over axes; and the running sums and products.

`axis` is None (all), an integer or a tuple, negative ones counted from the end, as in NumPy. Arguments that are not listed
(`where`, `initial`, `dtype`, `out`) raise a TypeError. Reductions that skip NaN give those entries the gradient 0.

Conventions: entries that are equally the largest (the smallest, the median) share evenly; where all entries are equal, the
standard deviation has derivative 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.autograd.primitives.elementwise import over
from chainrule.autograd.reverse import zero_where_zero
from chainrule.autograd.rules import implements, primitive, stop_gradient
from chainrule.autograd.tensor import REDUCTIONS, Tensor


def with_reduced_axes(y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """`y`, a reduction of `x`, with the reduced axes back as axes of length 1, so that it broadcasts against x."""
    if keepdims or y.ndim == x.ndim:
        return y
    return np.reshape(y, (1,) * x.ndim) if axis is None else np.expand_dims(y, axis)


def _reduced_axes(x: Any, axis: Any) -> tuple[int, ...]:
    """The axes that `axis` means, none negative."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def _count(x: Any, axis: Any) -> int:
    """How many entries each result is reduced from."""
    n = 1
    for a in _reduced_axes(x, axis):
        n *= x.shape[a]
    return n


def _joined(x: Any, axis: Any) -> Any:
    """x (…, n): the reduced axes joined to one, at the end."""
    axes = _reduced_axes(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    return np.reshape(np.transpose(x, (*kept, *axes)), (*(x.shape[a] for a in kept), _count(x, axis)))


def _parted(z: Any, x: Any, axis: Any) -> Any:
    """z (…, n), an array for each entry of `_joined(x, axis)`, in the shape of x again."""
    axes = _reduced_axes(x, axis)
    order = [*(a for a in range(x.ndim) if a not in axes), *axes]
    return np.transpose(np.reshape(z, tuple(x.shape[a] for a in order)), tuple(order.index(a) for a in range(x.ndim)))


def _times(g: Any, slope: Any) -> Any:
    """g · slope, and 0 where g is 0, even if the slope is infinite."""
    return zero_where_zero(g, g * slope)


# Sums and means


@primitive(np.sum, linear="each")
def sum_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = Σ x over the axes"""
    return np.add.reduce(x, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]


@sum_.rule("x", "∂L/∂{x} = ∂L/∂{y}, repeated along the summed axes")
def sum_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is None and not keepdims:
        return g * np.ones(x.shape, x.dtype)
    return np.broadcast_to(with_reduced_axes(g, x, axis, keepdims), x.shape)


@primitive(np.mean, linear="each")
def mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = Σ x / n over the axes"""
    return np.mean(x, axis=axis, keepdims=keepdims)


@mean.rule("x", "∂L/∂{x} = ∂L/∂{y} · {y.size} / {x.size}, repeated along the averaged axes")
def mean_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    n = x.size / max(y.size, 1)
    return np.broadcast_to(with_reduced_axes(_divided(g, n), x, axis, keepdims), x.shape)


@implements(np.average)
def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """np.average: Σ w x / Σ w over the axes; with `returned`, also Σ w. Gradients flow to the weights too.

    The weights have the shape of x, or of its axes `axis`. Raises TypeError or ValueError for others, ZeroDivisionError if
    they sum to 0.
    """
    keepdims = keepdims is not np._NoValue and bool(keepdims)
    if weights is None:
        y = np.mean(x, axis=axis, keepdims=keepdims)
        return (y, np.full(y.shape, _count(x, axis), y.dtype)) if returned else y
    x, weights = (z if isinstance(z, Tensor) else np.asarray(z) for z in (x, weights))
    if weights.shape != x.shape:
        axes = axis if isinstance(axis, tuple) else (axis,)
        if axis is None or weights.shape != tuple(x.shape[a] for a in axes):
            raise (TypeError if axis is None else ValueError)(
                f"Weights have the shape of x, {x.shape}, or of its axes `axis`; got {weights.shape} and axis={axis}."
            )
        places = [a % x.ndim for a in axes]
        weights = np.transpose(weights, np.argsort(places))
        weights = np.reshape(weights, tuple(n if a in places else 1 for a, n in enumerate(x.shape)))
        weights = np.broadcast_to(weights, x.shape)
    total = np.sum(weights, axis=axis, keepdims=keepdims)
    if np.any(total == 0):
        raise ZeroDivisionError("The weights of an average sum to 0, so it is undefined.")
    y = np.sum(x * weights, axis=axis, keepdims=keepdims) / total
    return (y, total) if returned else y


@primitive(saves=True)
def logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = ln Σ eˣ over the axes (None: all), the smooth maximum; x of any shape and floating dtype.

    It stays finite for any finite x. Where all entries are -∞, y is -∞ and has derivative 0.
    """
    x = np.asarray(x) if np.asarray(x).dtype.kind == "f" else np.asarray(x, float)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    total = np.sum(np.exp(x - top), axis=axis, keepdims=True)
    log_sum = np.log(total, where=total > 0, out=np.full_like(total, -np.inf))
    y = log_sum + top
    return y if keepdims else np.squeeze(y, axis=_reduced_axes(x, axis)), (top, log_sum)


@logsumexp.rule("x", "∂L/∂{x} = ∂L/∂{y} · e^({x} - {y})")
def logsumexp_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False, saved: Any = None) -> Any:
    top, log_sum = saved  # kept apart: in their sum a large top would swallow log_sum
    return _times(with_reduced_axes(g, x, axis, keepdims), np.exp(x - top - np.where(log_sum == -np.inf, 0, log_sum)))


@logsumexp.defined_by
def logsumexp_definition(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(stop_gradient(x), axis=axis, keepdims=True, initial=-np.inf)  # shifting by it changes nothing
    nothing = top == -np.inf
    top = np.where(nothing, 0, top)
    total = np.sum(np.exp(x - top), axis=axis, keepdims=True)
    y = np.log(total) + top if not np.any(nothing) else np.where(nothing, -np.inf, np.log(np.where(nothing, 1, total)) + top)
    return y if keepdims else np.reshape(y, np.sum(top, axis=axis).shape)


REDUCTIONS[np.logaddexp, "reduce"] = logsumexp


# Products


@primitive(np.prod)
def prod(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = Π x over the axes"""
    return np.multiply.reduce(x, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]


@prod.rule("x", "∂L/∂{x} = ∂L/∂{y} · the product of the other entries")
def prod_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    # those before times those after: without a division, so that zeros need no care
    z = _joined(x, axis)
    before = _shifted(np.cumprod(z, axis=-1), 1, fill=1)
    after = _shifted(np.cumprod(z[..., ::-1], axis=-1), 1, fill=1)[..., ::-1]
    return _times(with_reduced_axes(g, x, axis, keepdims), _parted(before * after, x, axis))


# Running sums and products


@primitive(np.cumsum, linear="each")
def cumsum(x: Any, *, axis: int | None = None) -> Any:
    """y_k = x_1 + … + x_k along the axis; of all entries, in order, if it is None"""
    return np.cumsum(x, axis=axis)


@cumsum.rule("x", "∂L/∂{x} = Σ_(k ≥ i) (∂L/∂{y})_k at each place i")
def cumsum_wrt_x(g: Any, y: Any, x: Any, axis: int | None = None) -> Any:
    g = _joined(np.reshape(g, x.shape), axis)
    return _parted(np.cumsum(g[..., ::-1], axis=-1)[..., ::-1], x, axis)


@primitive(np.cumprod)
def cumprod(x: Any, *, axis: int | None = None) -> Any:
    """y_k = x_1 · … · x_k along the axis; of all entries, in order, if it is None"""
    return np.cumprod(x, axis=axis)


@cumprod.rule("x", "∂L/∂{x} = Σ_(k ≥ i) (∂L/∂{y})_k · Π_(j ≤ k, j ≠ i) {x}_j at each place i")
def cumprod_wrt_x(g: Any, y: Any, x: Any, axis: int | None = None) -> Any:
    g, y, z = _joined(np.reshape(g, x.shape), axis), _joined(np.reshape(y, x.shape), axis), _joined(x, axis)
    return _parted(_times(_sum_of_products(g, z), _shifted(y, 1, fill=1)), x, axis)


def _sum_of_products(g: Any, z: Any) -> Any:
    """s_i = Σ_(k ≥ i) g_k · Π_(i < j ≤ k) z_j along the last axis, which is s_i = g_i + z_(i+1) · s_(i+1).

    By doubling: when s_i holds the terms k < i + reach, and f_i = Π_(i < j ≤ i + reach) z_j, the next terms are
    f_i · s_(i + reach). So there are log₂ n steps, and no division: zeros need no care.
    """
    s, f = g, _shifted(z, -1, fill=0)
    reach = 1
    while reach < z.shape[-1]:
        s = s + _times(_shifted(s, -reach, fill=0), f)
        f = f * _shifted(f, -reach, fill=0)
        reach *= 2
    return s


def _shifted(z: Any, k: int, fill: float) -> Any:
    """z moved along its last axis, k places to the end (to the start if negative); `fill` comes in."""
    n = z.shape[-1]
    new = np.full((*z.shape[:-1], min(abs(k), n)), fill, z.dtype)
    return np.concatenate([new, z[..., : max(n - k, 0)]] if k > 0 else [z[..., -k:], new], axis=-1)


def _cumulative(running: Callable[..., Any], first: float) -> Callable[..., Any]:
    def cumulative(x: Any, /, *, axis: int | None = None, include_initial: bool = False) -> Any:
        """np.cumulative_sum and np.cumulative_prod: along one axis, if asked from the empty sum or product on."""
        if axis is None and x.ndim != 1:
            raise ValueError(f"An axis is needed where there is not exactly one; got the shape {x.shape}.")
        axis = np.lib.array_utils.normalize_axis_index(axis or 0, x.ndim)
        if include_initial:
            start = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), first, x.dtype)
            return np.concatenate([start, running(x, axis=axis)], axis=axis)
        return running(x, axis=axis)

    return cumulative


if hasattr(np, "cumulative_sum"):  # NumPy 2.1
    implements(np.cumulative_sum)(_cumulative(cumsum, 0))
    implements(np.cumulative_prod)(_cumulative(cumprod, 1))


# Spread


def _divided(a: Any, n: Any) -> Any:
    """a / n, in the dtype of a. Float16 ends at 65,504, which counts do not."""
    return a / n if a.dtype != np.float16 else (a.astype(np.float32) / n).astype(np.float16)


def _counting(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype for numbers of entries by which `_divided` divides."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _deviation(x: Any, axis: Any, ddof: float) -> tuple[Any, Any]:
    """x - mean, and n - ddof."""
    return x - np.mean(x, axis=axis, keepdims=True), max(_count(x, axis) - ddof, 0)


def _deviation_without_nan(x: Any, axis: Any, ddof: float) -> tuple[Any, Any]:
    """x - mean (0 where x is NaN), and n - ddof, where the NaN do not count."""
    n = np.sum(~np.isnan(x), axis=axis, keepdims=True, dtype=_counting(x.dtype))
    return np.where(np.isnan(x), 0, x - nanmean(x, axis, keepdims=True)), np.maximum(n - ddof, 0)


def _all_equal(x: Any, axis: Any) -> Any:
    """Where all reduced entries, NaN aside, are equal. Rounding may leave their deviation a little off 0."""
    x = stop_gradient(x)
    smallest = np.fmin.reduce(x, axis=axis, keepdims=True, initial=np.inf)
    return np.fmax.reduce(x, axis=axis, keepdims=True, initial=-np.inf) == smallest


@primitive(np.var, analytic=False)
def var(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """y = Σ (x - mean)² / (n - ddof) over the axes"""
    return np.var(x, axis=axis, ddof=ddof, keepdims=keepdims)


@var.rule("x", "∂L/∂{x} = ∂L/∂{y} · 2 ({x} - mean) / (n - ddof)")
def var_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    deviation, divisor = _deviation(x, axis, ddof)
    return _times(with_reduced_axes(g, x, axis, keepdims), _divided(2 * deviation, divisor))


@primitive(np.std, analytic=False)
def std(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """y = √(Σ (x - mean)² / (n - ddof)) over the axes"""
    return np.std(x, axis=axis, ddof=ddof, keepdims=keepdims)


@std.rule("x", "∂L/∂{x} = ∂L/∂{y} · ({x} - mean) / ((n - ddof) · {y})")
def std_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    deviation, divisor = _deviation(x, axis, ddof)
    y = np.where(_all_equal(x, axis), 0, with_reduced_axes(y, x, axis, keepdims))
    return _times(with_reduced_axes(g, x, axis, keepdims), _divided(over(deviation, y), divisor))


@primitive(np.nanvar, analytic=False)
def nanvar(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """y = the variance of the entries that are not NaN"""
    return np.nanvar(x, axis=axis, ddof=ddof, keepdims=keepdims)


@nanvar.rule("x", "∂L/∂{x} = ∂L/∂{y} · 2 ({x} - mean) / (n - ddof), 0 where {x} is NaN")
def nanvar_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    deviation, divisor = _deviation_without_nan(x, axis, ddof)
    return np.where(np.isnan(x), 0, _times(with_reduced_axes(g, x, axis, keepdims), _divided(2 * deviation, divisor)))


@primitive(np.nanstd, analytic=False)
def nanstd(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """y = the standard deviation of the entries that are not NaN"""
    return np.nanstd(x, axis=axis, ddof=ddof, keepdims=keepdims)


@nanstd.rule("x", "∂L/∂{x} = ∂L/∂{y} · ({x} - mean) / ((n - ddof) · {y}), 0 where {x} is NaN")
def nanstd_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    deviation, divisor = _deviation_without_nan(x, axis, ddof)
    y = np.where(_all_equal(x, axis), 0, with_reduced_axes(y, x, axis, keepdims))
    return np.where(np.isnan(x), 0, _times(with_reduced_axes(g, x, axis, keepdims), _divided(over(deviation, y), divisor)))


# Extremes


def _share_of_equal(g: Any, y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """g to the entries of x equal to y, evenly where several are."""
    equal = x == with_reduced_axes(y, x, axis, keepdims)
    count = np.maximum(np.sum(equal, axis=axis, keepdims=True, dtype=x.dtype), 1)
    return np.where(equal, with_reduced_axes(g, x, axis, keepdims) / count, 0)


@primitive(np.max, np.amax, analytic=False)
def max_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the largest x over the axes"""
    return np.max(x, axis=axis, keepdims=keepdims)


@max_.rule("x", "∂L/∂{x} = ∂L/∂{y} at the largest entry, shared evenly by equal ones")
def max_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_equal(g, y, x, axis, keepdims)


@primitive(np.min, np.amin, analytic=False)
def min_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the smallest x over the axes"""
    return np.min(x, axis=axis, keepdims=keepdims)


@min_.rule("x", "∂L/∂{x} = ∂L/∂{y} at the smallest entry, shared evenly by equal ones")
def min_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_equal(g, y, x, axis, keepdims)


@implements(np.ptp)
def ptp(x: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """np.ptp: the largest minus the smallest."""
    return np.max(x, axis=axis, out=out, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


@primitive(np.nanmax, analytic=False)
def nanmax(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the largest of the entries that are not NaN"""
    return np.nanmax(x, axis=axis, keepdims=keepdims)


@nanmax.rule("x", "∂L/∂{x} = ∂L/∂{y} at the largest entry, shared evenly by equal ones")
def nanmax_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_equal(g, y, x, axis, keepdims)


@primitive(np.nanmin, analytic=False)
def nanmin(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the smallest of the entries that are not NaN"""
    return np.nanmin(x, axis=axis, keepdims=keepdims)


@nanmin.rule("x", "∂L/∂{x} = ∂L/∂{y} at the smallest entry, shared evenly by equal ones")
def nanmin_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _share_of_equal(g, y, x, axis, keepdims)


# Places in the order: the entries from the smallest to the largest have the places 0 … n - 1, and q is at q · (n - 1)

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")  # what to do between two places


def _weight_of_upper(place: Any, method: str) -> Any:
    """How much of the result is the entry above `place`; the rest is the one below."""
    below, above = np.floor(place), np.ceil(place)
    met = {"linear": place, "lower": below, "higher": above, "midpoint": (below + above) / 2, "nearest": np.rint(place)}
    return met[method] - below


def _to_neighbours(g: Any, x: Any, q: Any, axis: Any, method: str, keepdims: bool, skip_nan: bool = False) -> Any:
    """g to the entries just below and above the place of q, by their weights, evenly where several are equal."""
    if x.size == 0:
        return x * 0
    z = np.sort(_joined(stop_gradient(x), axis), axis=-1)  # NaN at the end
    n = np.sum(~np.isnan(z), axis=-1, keepdims=True) if skip_nan else np.full((*z.shape[:-1], 1), z.shape[-1])
    reduced = [1 if a in _reduced_axes(x, axis) else length for a, length in enumerate(x.shape)]
    q = np.asarray(stop_gradient(q))
    total = 0
    for i in np.ndindex(q.shape):
        place = np.maximum(q[i] * (n - 1), 0)
        upper = _weight_of_upper(place, method)
        for index, weight in [(np.floor(place), 1 - upper), (np.ceil(place), upper)]:
            neighbour = np.take_along_axis(z, index.astype(int), axis=-1).reshape(reduced)
            share = with_reduced_axes(g[i], x, axis, keepdims) * weight.reshape(reduced).astype(x.dtype)
            total = total + _share_of_equal(share, neighbour, x, axis, keepdims=True)
    return total


def _checked_method(method: str) -> str:
    if method not in METHODS:
        raise TypeError(f"Quantiles of Tensors take method={', '.join(map(repr, METHODS))}; got {method!r}.")
    return method


@primitive(np.median, analytic=False)
def median(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the middle entry in the order, or the mean of the middle two"""
    return np.median(x, axis=axis, keepdims=keepdims)


@median.rule("x", "∂L/∂{x} = ∂L/∂{y} at the middle entry, or half of it at each of the middle two")
def median_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _to_neighbours(g, x, 0.5, axis, "linear", keepdims)


@primitive(np.nanmedian, analytic=False)
def nanmedian(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = the median of the entries that are not NaN"""
    return np.nanmedian(x, axis=axis, keepdims=keepdims)


@nanmedian.rule("x", "∂L/∂{x} = ∂L/∂{y} at the middle entry, or half of it at each of the middle two")
def nanmedian_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _to_neighbours(g, x, 0.5, axis, "linear", keepdims, skip_nan=True)


@primitive(np.quantile, analytic=False)
def quantile(x: Any, q: Any, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    """y = the entry at the place q · (n - 1) in the order, or between its neighbours by the method; for each q"""
    return np.quantile(x, q, axis=axis, method=_checked_method(method), keepdims=keepdims)  # type: ignore[call-overload]


@quantile.rule("x", "∂L/∂{x} = ∂L/∂{y} at the entry there, or by their weights at its neighbours")
def quantile_wrt_x(g: Any, y: Any, x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    return _to_neighbours(g, x, q, axis, method, keepdims)


@primitive(np.nanquantile, analytic=False)
def nanquantile(x: Any, q: Any, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    """y = the quantile of the entries that are not NaN"""
    return np.nanquantile(x, q, axis=axis, method=_checked_method(method), keepdims=keepdims)  # type: ignore[call-overload]


@nanquantile.rule("x", "∂L/∂{x} = ∂L/∂{y} at the entry there, or by their weights at its neighbours")
def nanquantile_wrt_x(g: Any, y: Any, x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    return _to_neighbours(g, x, q, axis, method, keepdims, skip_nan=True)


def _part_of_100(q: Any) -> Any:
    return q / 100 if isinstance(q, (int, float, Tensor)) else np.asarray(q) / 100


@implements(np.percentile)
def percentile(x: Any, q: Any, *args: Any, **options: Any) -> Any:
    """np.percentile: the quantile at q / 100."""
    return quantile(x, _part_of_100(q), *args, **options)


@implements(np.nanpercentile)
def nanpercentile(x: Any, q: Any, *args: Any, **options: Any) -> Any:
    """np.nanpercentile: the nanquantile at q / 100."""
    return nanquantile(x, _part_of_100(q), *args, **options)


# Sums, products and means without the NaN


def _without_nan(x: Any, instead: float) -> Any:
    return np.where(np.isnan(x), instead, x)


@implements(np.nansum)
def nansum(x: Any, *args: Any, **options: Any) -> Any:
    """np.nansum: the sum with 0 for NaN."""
    return sum_(_without_nan(x, 0), *args, **options)


@implements(np.nanprod)
def nanprod(x: Any, *args: Any, **options: Any) -> Any:
    """np.nanprod: the product with 1 for NaN."""
    return prod(_without_nan(x, 1), *args, **options)


@implements(np.nancumsum)
def nancumsum(x: Any, *args: Any, **options: Any) -> Any:
    """np.nancumsum: the running sum with 0 for NaN."""
    return cumsum(_without_nan(x, 0), *args, **options)


@implements(np.nancumprod)
def nancumprod(x: Any, *args: Any, **options: Any) -> Any:
    """np.nancumprod: the running product with 1 for NaN."""
    return cumprod(_without_nan(x, 1), *args, **options)


@implements(np.nanmean)
def nanmean(x: Any, *args: Any, **options: Any) -> Any:
    """np.nanmean: the sum of the entries that are not NaN, divided by their number."""
    total = nansum(x, *args, **options)
    axis = args[0] if args else options.get("axis")
    return _divided(total, np.reshape(np.sum(~np.isnan(x), axis=axis, dtype=_counting(total.dtype)), total.shape))
