"""What elementwise operations and reductions are called in PyTorch, by the row's id; see test_torch.py."""

import numpy as np
import pytest
import rows_elementwise

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")

HOLES = torch.from_numpy(rows_elementwise.HOLES)


def holed(function):
    return lambda x: function(x.masked_fill(HOLES, torch.nan))


def constant(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def average(x, w, dim):
    return (x * w).sum(dim) / w.expand_as(x).sum(dim)


TORCH = {
    "power whole exponents": lambda x: x**3,
    "power of negatives": lambda x: x ** constant(0, 1, 2, -3),
    "array ** x": lambda x: constant(0.5, 1, 2) ** x,
    "float_power 3": lambda x: torch.float_power(x, 3),
    "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
    "hypot number": lambda x: torch.hypot(x, constant(3)),
    "remainder 0.75": lambda x: torch.remainder(x + 10.1, 0.75),
    "remainder of numbers": lambda b: torch.remainder(constant(7.3, -7.3, 50), b),
    "fmod of numbers": lambda b: torch.fmod(constant(7.3, -7.3, 50), b),
    "%": lambda x, z: torch.remainder(x, z) + torch.remainder(constant(5), z),
    "divmod": lambda x, z: torch.remainder(x, z) + torch.floor(x / z) + torch.remainder(x, 3),
    "modf": lambda x: torch.frac(x + 3),
    "ldexp": lambda x: torch.ldexp(x, torch.tensor(3)),
    "ldexp array": lambda x: x * constant(0.5, 1, 4)[:, None],  # torch.ldexp has derivative 0 for negative exponents
    "frexp": lambda x: torch.frexp(x)[0],
    "logaddexp number": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "sinc near 0": torch.sinc,
    **dict.fromkeys(["deg2rad", "radians"], torch.deg2rad),
    **dict.fromkeys(["rad2deg", "degrees"], torch.rad2deg),
    **dict.fromkeys(["clip", "clip keywords", "x.clip()"], lambda x: torch.clip(x, -1.25, 2.25)),
    "clip below": lambda x: torch.clip(x, min=-1.25),
    "clip above": lambda x: torch.clip(x, max=1.25),
    "x.clip(max=)": lambda x: torch.clip(x, max=2.25),
    "clip between": lambda x, low: torch.clip(x, low, low + 4),
    "nan_to_num of nan": holed(lambda x: torch.nan_to_num(x, nan=7.0)),
    **dict.fromkeys(["conjugate", "real", "real_if_close", "x.conj().real", "clip nothing", "prod no axes"], torch.clone),
    **dict.fromkeys(["average", "average weights"], torch.mean),
    "average axis": lambda x: x.mean(-1, keepdim=True),
    "average weights of x's shape": lambda x, w: average(x, w, (0, 1)),
    "average weights of an axis": lambda x, w: average(x, w[:, None], 0),
    "average weights of two axes": lambda x, w: average(x, w.T[:, None], (0, 2)),
    "average constant weights": lambda x: (x @ constant(1, 2, 0, 4) / 7)[:, None],
    "average returned": lambda x, w: x @ w / w.sum() + w.sum(),
    "logsumexp": lambda x: torch.logsumexp(x, (0, 1)),
    "logsumexp axes": lambda x: torch.logsumexp(x, (0, -1), keepdim=True),
    "logsumexp number": lambda x: torch.logsumexp(x, 0),
    "logaddexp.reduce": lambda x: torch.logsumexp(x, 0),
    **dict.fromkeys(["prod", "prod number", "prod all zeros"], torch.prod),
    **dict.fromkeys(["prod axis 0", "prod empty", "multiply.reduce"], lambda x: torch.prod(x, 0)),
    **dict.fromkeys(["prod one zero", "prod two zeros", "x.prod()"], lambda x: torch.prod(x, -1)),
    "prod axes keepdims": lambda x: x.prod(2, keepdim=True).prod(0, keepdim=True),
    "cumsum": lambda x: torch.cumsum(x.ravel(), 0),
    **dict.fromkeys(["cumsum axis", "add.accumulate"], lambda x: torch.cumsum(x, 0)),
    **dict.fromkeys(["cumsum number", "cumprod number"], lambda x: x.reshape(1)),
    "x.cumsum()": lambda x: torch.cumsum(x, 1),
    **dict.fromkeys(["cumprod", "cumprod two zeros"], lambda x: torch.cumprod(x.ravel(), 0)),
    **dict.fromkeys(["cumprod axis", "x.cumprod()", "multiply.accumulate"], lambda x: torch.cumprod(x, 0)),
    **dict.fromkeys(["cumprod one zero", "cumprod empty"], lambda x: torch.cumprod(x, 1)),
    "var": lambda x: torch.var(x, correction=0),
    "var axis ddof": lambda x: torch.var(x, 0),
    "var axes keepdims": lambda x: torch.var(x, (-1, 0), correction=0, keepdim=True),
    "var number": lambda x: torch.var(x, correction=0),
    "x.var()": lambda x: torch.var(x, 1),
    "std": lambda x: torch.std(x, correction=0),
    "std axis ddof": lambda x: torch.std(x, -1, correction=1.5),
    "std axes keepdims": lambda x: torch.std(x, (0, 2), correction=0, keepdim=True),
    "x.std()": lambda x: torch.std(x, 0, correction=0),
    "ptp": lambda x: x.max() - x.min(),
    "ptp axis": lambda x: x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True),
    "median odd": torch.median,
    "median even": lambda x: torch.quantile(x, 0.5, 1),
    "median axes keepdims": lambda x: torch.quantile(x.transpose(0, 1).reshape(3, 4), 0.5, 1).reshape(1, 3, 1),
    "median number": torch.median,
    "quantile": lambda x: torch.quantile(x, 0.3),
    "quantile several": lambda x: torch.quantile(x, constant(0, 0.3, 1), 0),
    "quantile lower": lambda x: torch.quantile(x, 0.3, -1, keepdim=True, interpolation="lower"),
    "quantile higher": lambda x: torch.quantile(x.transpose(0, 1).reshape(3, 4), 0.3, 1, interpolation="higher"),
    "quantile midpoint": lambda x: torch.quantile(x, constant(0.3, 0.5), 1, interpolation="midpoint").reshape(2, 1, 3, 1),
    "quantile nearest": lambda x: torch.quantile(x, 0.4, 1, interpolation="nearest"),
    "percentile": lambda x: torch.quantile(x, constant(0.2, 0.75), 1),
    "nansum": holed(torch.nansum),
    "nanprod": holed(lambda x: torch.nan_to_num(x, nan=1.0).prod(1)),
    "nancumsum": holed(lambda x: torch.nan_to_num(x).cumsum(0)),
    "nancumprod": holed(lambda x: torch.nan_to_num(x, nan=1.0).ravel().cumprod(0)),
    "nanmean": holed(torch.nanmean),
    "nanmean axis": holed(lambda x: torch.nanmean(x, -1, keepdim=True)),
    "nanvar": lambda x: torch.var(x[~HOLES], correction=0),
    "nanvar axis ddof": lambda x: torch.stack([torch.var(row[~holes]) for row, holes in zip(x, HOLES, strict=True)]),
    "nanstd": lambda x: torch.stack([torch.std(z[~h], correction=0) for z, h in zip(x.T, HOLES.T, strict=True)])[None],
    "nanmax": lambda x: x.masked_fill(HOLES, -torch.inf).amax(1),
    "nanmin": lambda x: x[~HOLES].min(),
    "nanmedian": holed(lambda x: torch.nanquantile(x, 0.5, 1)),
    "nanquantile": holed(lambda x: torch.nanquantile(x, constant(0.2, 0.7), 0)),
    "nanpercentile": holed(lambda x: torch.nanquantile(x, 0.6).reshape(1, 1)),
}

SAME_NAME = [
    *("float_power", "hypot", "copysign", "remainder", "fmod", "exp2", "log2", "log10", "logaddexp", "logaddexp2"),
    *("tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "sinc", "fmax", "fmin"),
    "nan_to_num",
]
SAME_CODE = ["power 4", "power both"]
CALLS = {row.id: row.call for row in rows_elementwise.ROWS}
TORCH |= {id: getattr(torch, id) for id in SAME_NAME} | {id: CALLS[id] for id in SAME_CODE}

if hasattr(np, "cumulative_sum"):
    TORCH |= {
        "cumulative_sum": lambda x: torch.cat([torch.zeros(2, 1, dtype=x.dtype), x.cumsum(1)], 1),
        "cumulative_prod": lambda x: x.cumprod(0),
        "cumulative_prod axis": lambda x: torch.cat([torch.ones(1, 2, dtype=x.dtype), x.cumprod(0)]),
    }

WITHOUT = {"heaviside", "heaviside at 0"}  # torch has no derivative of it

KINKS = {
    "sinc at 0": torch.sinc,
    "logaddexp far apart": torch.logaddexp,
    "nan_to_num": torch.nan_to_num,
    "remainder at its jump": torch.remainder,
    "fmod at its jump": torch.fmod,
    "negative ** whole": lambda x: x ** constant(2, 3, 0),
    "std of one number": lambda x: torch.std(x, correction=0),
    "product of zeros": torch.prod,
    "product with a zero": torch.prod,
    "cumprod with a zero": lambda x: torch.cumprod(x, 0),
    "arctan2 at the origin": torch.arctan2,
}
