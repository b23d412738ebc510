"""The table of primitives, continued: elementwise operations and reductions."""

import numpy as np
from table import Domain, Kink, Row, distinct, each, halves, nonzero, positive, real, row, whole

from chainrule import logsumexp

unit = Domain(lambda rng, shape: rng.uniform(-0.8, 0.8, shape))
above_1 = Domain(lambda rng, shape: rng.uniform(1.2, 3.0, shape))
within = Domain(lambda rng, shape: rng.uniform(0.5, 1.8, shape) * rng.choice([-1.0, 1.0], shape))  # of a divisor
steady = Domain(lambda rng, shape: rng.uniform(2.21, 2.24, shape))  # 50 and 7.3 stay away from its multiples
divisor = Domain(lambda rng, shape: rng.uniform(2.1, 2.5, shape) * rng.choice([-1.0, 1.0], shape))

HOLES = np.array([[True, False, False, True], [False, False, True, False], [False, True, False, False]])


def with_zeros(*places):
    """Numbers with zeros at these places of the flattened array."""

    def draw(rng, shape):
        x = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
        x.flat[list(places)] = 0
        return x

    return Domain(draw)


def holed(function):
    """The function of x with NaN in some places."""
    return lambda x, *args, **options: function(np.where(HOLES, np.nan, x), *args, **options)


def numpy_logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


ROWS: list[Row] = [
    # Arithmetic
    each("power whole exponents", lambda x: np.power(x, 3.0), nonzero),
    each("power 4", lambda x: x**4, real),
    row("power of negatives", lambda x: x ** np.array([0.0, 1.0, 2.0, -3.0]), nonzero(3, 4)),
    row("power both", lambda x, b: x**b, positive(3, 4), whole(4)),
    row("array ** x", lambda x: np.array([0.5, 1.0, 2.0]) ** x, real(2, 3)),
    each("float_power", np.float_power, positive, real),
    each("float_power 3", lambda x: np.float_power(x, 3), real),
    each("cbrt", np.cbrt, nonzero),
    each("hypot", np.hypot, nonzero, real),
    each("hypot number", lambda x: np.hypot(x, 3), real),
    each("copysign", np.copysign, nonzero, nonzero),
    each("heaviside", np.heaviside, nonzero, real),
    row("heaviside at 0", lambda h: np.heaviside(np.array([0.0, -1.0, 1.0]), h), real(2, 3)),
    each("remainder", np.remainder, within, divisor),
    each("remainder 0.75", lambda x: np.remainder(x + 10.1, 0.75), Domain(lambda rng, shape: rng.uniform(0, 0.2, shape))),
    row("remainder of numbers", lambda b: np.remainder([7.3, -7.3, 50.0], b), steady(2, 1)),
    each("%", lambda x, z: x % z + 5 % z, within, divisor),
    each("fmod", np.fmod, within, divisor),
    row("fmod of numbers", lambda b: np.fmod([7.3, -7.3, 50.0], b), steady(2, 1)),
    each("divmod", lambda x, z: np.divmod(x, z)[1] + divmod(x, z)[0] + divmod(x, 3)[1], within, divisor),
    each("modf", lambda x: np.modf(x + 3)[0], unit),
    each("ldexp", lambda x: np.ldexp(x, 3), real),
    row("ldexp array", lambda x: np.ldexp(x, [[-1], [0], [2]]), real(3, 4)),
    each("frexp", lambda x: np.frexp(x)[0], above_1),
    # Exponentials and logarithms
    each("exp2", np.exp2, real),
    each("log2", np.log2, positive),
    each("log10", np.log10, positive),
    each("logaddexp", np.logaddexp, real, real),
    each("logaddexp number", lambda x: np.logaddexp(x, 0), real),
    each("logaddexp2", np.logaddexp2, real, real),
    # Trigonometric and hyperbolic
    each("tan", np.tan, unit),
    each("arcsin", np.arcsin, unit),
    each("arccos", np.arccos, unit),
    each("arctan", np.arctan, real),
    each("arctan2", np.arctan2, nonzero, nonzero),
    each("sinh", np.sinh, real),
    each("cosh", np.cosh, real),
    each("arcsinh", np.arcsinh, real),
    each("arccosh", np.arccosh, above_1),
    each("arctanh", np.arctanh, unit),
    each("sinc", np.sinc, real),
    each("sinc near 0", np.sinc, unit),
    each("deg2rad", np.deg2rad, real),
    each("radians", np.radians, real),
    each("rad2deg", np.rad2deg, real),
    each("degrees", np.degrees, real),
    # Choosing
    each("fmax", np.fmax, whole, halves),
    each("fmin", np.fmin, whole, halves),
    each("clip", lambda x: np.clip(x, -1.25, 2.25), whole),
    each("clip keywords", lambda x: np.clip(x, a_min=-1.25, a_max=2.25), whole),
    each("clip below", lambda x: np.clip(x, -1.25, None), whole),
    each("clip above", lambda x: np.clip(x, None, 1.25), whole),
    row("clip nothing", lambda x: np.clip(x, None, None), real(3, 4), reference=np.copy),  # NumPy 2.0 refuses it
    each("clip between", lambda x, low: np.clip(x, low, low + 4), whole, halves),
    each("x.clip()", lambda x: x.clip(-1.25, 2.25), whole),
    each("x.clip(max=)", lambda x: x.clip(max=2.25), whole),
    each("nan_to_num", np.nan_to_num, real),
    row("nan_to_num of nan", holed(lambda x: np.nan_to_num(x, nan=7.0)), real(3, 4)),
    # The same value
    each("conjugate", np.conjugate, real),
    each("real", np.real, real),
    each("real_if_close", np.real_if_close, real),
    each("x.conj().real", lambda x: x.conj().conjugate().real, real),
    # Reductions
    row("average", np.average, real(3, 4)),
    row("average axis", lambda x: np.average(x, axis=-1, keepdims=True), real(3, 4)),
    row("average weights", np.average, real(3, 4)),
    row("average weights of x's shape", lambda x, w: np.average(x, weights=w), real(3, 4), positive(3, 4)),
    row("average weights of an axis", lambda x, w: np.average(x, 0, w), real(3, 4), positive(3)),
    row("average weights of two axes", lambda x, w: np.average(x, (2, 0), w), real(2, 3, 4), positive(4, 2)),
    row("average constant weights", lambda x: np.average(x, axis=1, weights=[1.0, 2.0, 0.0, 4.0], keepdims=True), real(3, 4)),
    row("average returned", lambda x, w: sum(np.average(x, -1, w, returned=True)), real(3, 4), positive(4)),
    row("logsumexp", logsumexp, real(3, 4), reference=numpy_logsumexp),
    row(
        "logsumexp axes",
        lambda x: logsumexp(x, axis=(0, -1), keepdims=True),
        real(2, 3, 4),
        reference=lambda x: numpy_logsumexp(x, (0, -1), True),
    ),
    row("logsumexp number", logsumexp, real(), reference=numpy_logsumexp),
    row("logaddexp.reduce", np.logaddexp.reduce, real(3, 4)),
    row("prod", np.prod, real(2, 3)),
    row("prod axis 0", lambda x: np.prod(x, axis=0), real(3, 4)),
    row("prod axes keepdims", lambda x: np.prod(x, axis=(-1, 0), keepdims=True), nonzero(2, 3, 2)),
    row("prod no axes", lambda x: np.prod(x, axis=()), real(2, 3)),
    row("prod number", np.prod, real()),
    row("prod empty", lambda x: np.prod(x, axis=0), real(0, 3)),
    row("prod one zero", lambda x: np.prod(x, axis=-1), with_zeros(1, 4)(2, 4)),
    row("prod two zeros", lambda x: np.prod(x, axis=-1), with_zeros(1, 3)(2, 4)),
    row("prod all zeros", np.prod, with_zeros(0, 1, 2)(3)),
    row("x.prod()", lambda x: x.prod(1), real(3, 4)),
    row("multiply.reduce", np.multiply.reduce, real(3, 4)),
    row("cumsum", np.cumsum, real(3, 4)),
    row("cumsum axis", lambda x: np.cumsum(x, axis=-2), real(3, 4)),
    row("cumsum number", np.cumsum, real()),
    row("x.cumsum()", lambda x: x.cumsum(1), real(3, 4)),
    row("add.accumulate", np.add.accumulate, real(3, 4)),
    row("cumprod", np.cumprod, nonzero(2, 3)),
    row("cumprod axis", lambda x: np.cumprod(x, axis=-2), real(5, 2)),
    row("cumprod one zero", lambda x: np.cumprod(x, axis=1), with_zeros(0, 6)(2, 4)),
    row("cumprod two zeros", np.cumprod, with_zeros(1, 3)(7)),
    row("cumprod number", np.cumprod, real()),
    row("cumprod empty", lambda x: np.cumprod(x, axis=1), real(2, 0)),
    row("x.cumprod()", lambda x: x.cumprod(0), real(3, 4)),
    row("multiply.accumulate", np.multiply.accumulate, real(3, 4)),
    row("var", np.var, real(3, 4)),
    row("var axis ddof", lambda x: np.var(x, axis=0, ddof=1), real(3, 4)),
    row("var axes keepdims", lambda x: np.var(x, axis=(-1, 0), keepdims=True), real(2, 3, 2)),
    row("var number", np.var, real()),
    row("x.var()", lambda x: x.var(1, ddof=1), real(3, 4)),
    row("std", np.std, real(3, 4)),
    row("std axis ddof", lambda x: np.std(x, axis=-1, ddof=1.5), real(3, 4)),
    row("std axes keepdims", lambda x: np.std(x, axis=(0, 2), keepdims=True), real(2, 3, 2)),
    row("x.std()", lambda x: x.std(0), real(3, 4)),
    row("ptp", np.ptp, distinct(3, 4)),
    row("ptp axis", lambda x: np.ptp(x, axis=-1, keepdims=True), distinct(3, 4)),
    row("median odd", np.median, distinct(3, 3)),
    row("median even", lambda x: np.median(x, axis=1), distinct(3, 4)),
    row("median axes keepdims", lambda x: np.median(x, axis=(0, -1), keepdims=True), distinct(2, 3, 2)),
    row("median number", np.median, distinct()),
    row("quantile", lambda x: np.quantile(x, 0.3), distinct(3, 4)),
    row("quantile several", lambda x: np.quantile(x, [0.0, 0.3, 1.0], axis=0), distinct(4, 3)),
    row("quantile lower", lambda x: np.quantile(x, 0.3, axis=-1, method="lower", keepdims=True), distinct(3, 5)),
    row("quantile higher", lambda x: np.quantile(x, 0.3, axis=(0, 2), method="higher"), distinct(2, 3, 2)),
    row("quantile midpoint", lambda x: np.quantile(x, [[0.3], [0.5]], 1, method="midpoint", keepdims=True), distinct(3, 5)),
    row("quantile nearest", lambda x: np.quantile(x, 0.4, axis=1, method="nearest"), distinct(3, 5)),
    row("percentile", lambda x: np.percentile(x, [20, 75], axis=1), distinct(3, 4)),
    # Without the NaN
    row("nansum", holed(np.nansum), real(3, 4)),
    row("nanprod", holed(lambda x: np.nanprod(x, axis=1)), real(3, 4)),
    row("nancumsum", holed(lambda x: np.nancumsum(x, axis=0)), real(3, 4)),
    row("nancumprod", holed(np.nancumprod), nonzero(3, 4)),
    row("nanmean", holed(np.nanmean), real(3, 4)),
    row("nanmean axis", holed(lambda x: np.nanmean(x, axis=-1, keepdims=True)), real(3, 4)),
    row("nanvar", holed(np.nanvar), real(3, 4)),
    row("nanvar axis ddof", holed(lambda x: np.nanvar(x, axis=1, ddof=1)), real(3, 4)),
    row("nanstd", holed(lambda x: np.nanstd(x, axis=0, keepdims=True)), real(3, 4)),
    row("nanmax", holed(lambda x: np.nanmax(x, axis=1)), distinct(3, 4)),
    row("nanmin", holed(np.nanmin), distinct(3, 4)),
    row("nanmedian", holed(lambda x: np.nanmedian(x, axis=1)), distinct(3, 4)),
    row("nanquantile", holed(lambda x: np.nanquantile(x, [0.2, 0.7], axis=0)), distinct(3, 4)),
    row("nanpercentile", holed(lambda x: np.nanpercentile(x, 60, keepdims=True)), distinct(3, 4)),
]

if hasattr(np, "cumulative_sum"):
    ROWS += [
        row("cumulative_sum", lambda x: np.cumulative_sum(x, axis=-1, include_initial=True), real(2, 3)),
        row("cumulative_prod", np.cumulative_prod, real(4)),
        row("cumulative_prod axis", lambda x: np.cumulative_prod(x, axis=0, include_initial=True), nonzero(3, 2)),
    ]

inf, nan = np.inf, np.nan

KINKS: list[Kink] = [
    Kink("hypot at the origin", np.hypot, ([0.0], [0.0]), ([0.0], [0.0])),
    Kink("arctan2 at the origin", np.arctan2, ([0.0], [0.0]), ([0.0], [0.0])),
    Kink("sinc at 0", np.sinc, ([0.0, -0.0],), ([0.0, 0.0],)),
    Kink("copysign at 0", np.copysign, ([0.0], [-1.0]), ([0.0], [0.0])),
    Kink("heaviside jumps", np.heaviside, ([0.0], [0.5]), ([0.0], [1.0])),
    Kink("logaddexp of nothing", np.logaddexp, ([-inf, -inf], [-inf, 0.0]), ([0.0, 0.0], [0.0, 1.0])),
    Kink("logaddexp2 of nothing", np.logaddexp2, ([-inf], [-inf]), ([0.0], [0.0])),
    Kink("logaddexp far apart", np.logaddexp, ([1000.0], [-1000.0]), ([1.0], [0.0])),
    Kink("logsumexp of nothing", lambda x: logsumexp(x, axis=1), ([[-inf, -inf], [0.0, -inf]],), ([[0.0, 0.0], [1.0, 0.0]],)),
    Kink("logsumexp far out", logsumexp, ([1000.0, 1000.0, -1000.0],), ([0.5, 0.5, 0.0],)),
    Kink("fmax of equals", np.fmax, ([1.0, nan, 2.0], [1.0, 3.0, nan]), ([0.5, 0.0, 1.0], [0.5, 1.0, 0.0])),
    Kink("fmin of equals", np.fmin, ([1.0, nan, 2.0], [1.0, 3.0, nan]), ([0.5, 0.0, 1.0], [0.5, 1.0, 0.0])),
    Kink("clip at its bounds", lambda x: np.clip(x, 0, 1), ([-1.0, 0.0, 0.5, 1.0, 2.0],), ([0.0, 0.5, 1.0, 0.5, 0.0],)),
    Kink("nan_to_num", np.nan_to_num, ([nan, inf, 1.0],), ([0.0, 0.0, 1.0],)),
    Kink("remainder at its jump", np.remainder, ([6.0, -6.0], [3.0, 3.0]), ([1.0, 1.0], [-2.0, 2.0])),
    Kink("fmod at its jump", np.fmod, ([6.0, -7.5], [3.0, 3.0]), ([1.0, 1.0], [-2.0, 2.0])),
    Kink("negative ** whole", lambda x: np.power(x, [2.0, 3.0, 0.0]), ([-2.0, -1.0, -3.0],), ([-4.0, 3.0, 0.0],)),
    Kink("std of equals", np.std, ([0.1, 0.1, 0.1],), ([0.0, 0.0, 0.0],)),
    Kink("std of one number", np.std, ([2.0],), ([0.0],)),
    Kink("nanstd of equals", np.nanstd, ([0.1, nan, 0.1, 0.1],), ([0.0, 0.0, 0.0, 0.0],)),
    Kink("median of equals", np.median, ([1.0, 2.0, 2.0, 2.0],), ([0.0, 1 / 3, 1 / 3, 1 / 3],)),
    Kink("median between equals", np.median, ([1.0, 1.0, 2.0, 5.0],), ([0.25, 0.25, 0.5, 0.0],)),
    Kink("quantile of equals", lambda x: np.quantile(x, 0.25), ([3.0, 1.0, 1.0],), ([0.0, 0.5, 0.5],)),
    Kink("nanmax of equals", np.nanmax, ([2.0, nan, 2.0],), ([0.5, 0.0, 0.5],)),
    Kink("nanmean of nothing else", lambda x: np.nanmean(x, axis=1), ([[1.0, nan]],), ([[1.0, 0.0]],)),
    Kink("ptp of equals", np.ptp, ([1.0, 1.0],), ([0.0, 0.0],)),
    Kink("product of zeros", np.prod, ([0.0, 2.0, 0.0],), ([0.0, 0.0, 0.0],)),
    Kink("product with a zero", np.prod, ([0.0, 2.0, 3.0],), ([6.0, 0.0, 0.0],)),
    Kink("cumprod with a zero", np.cumprod, ([2.0, 0.0, 3.0],), ([1.0, 8.0, 0.0],)),
]
