"""The table of primitives, continued: shape, order, padding and indexing."""

import numpy as np
from table import Kink, distinct, halves, positive, real, row, whole

from chainrule import Tensor
from chainrule.autograd.primitives.indexing import At

MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
IDS = np.array([[0, 2], [2, 1], [0, 0]])
ALONG_ROWS = np.array([[3, 0, 0], [1, 1, -1], [2, 0, 1]])  # three picks in each row of (3, 4)
PLACES = np.array([0.0, 0.5, 2.0, 2.25])  # not evenly spaced


def joined(parts):
    """All parts in one vector, so that functions that return several arrays have one output."""
    return np.concatenate([np.ravel(part) for part in parts])


def weighted(parts):
    """As joined, told apart by their shapes: a wrong split would show."""
    return joined([part * (i + 1) for i, part in enumerate(parts)])


def scattered(x, key, v, operate):
    """x.at[key] by NumPy's own in-place operations, on arrays."""
    y = x.copy()
    operate(y, key, v)
    return y


def assign(y, key, v):
    y[key] = v


def at_row(id, change, key, operate, *domains):
    """x.at[key].change(v), held against NumPy's operation in place."""

    def call(x, v):
        return getattr(At(x)[key], change)(v)  # x.at[key] of a Tensor

    return row(id, call, *domains, reference=lambda x, v: scattered(x, key, v, operate))


ROWS = [
    # Shape
    row("reshape F", lambda x: np.reshape(x, (2, -1), order="F"), real(3, 4)),
    row("reshape F flat", lambda x: np.reshape(x, -1, order="F"), real(3, 4)),
    row("x.reshape F", lambda x: x.reshape(2, 6, order="F"), real(3, 4)),
    row("ravel F", lambda x: np.ravel(x, "F"), real(2, 3, 2)),
    row("x.flatten F", lambda x: x.flatten("F"), real(3, 4)),
    row("atleast_1d", np.atleast_1d, real()),
    row("atleast_2d", np.atleast_2d, real(3)),
    row("atleast_2d number", np.atleast_2d, real()),
    row("atleast_3d", np.atleast_3d, real(3)),
    row("atleast_3d matrix", np.atleast_3d, real(2, 3)),
    row("atleast_2d several", lambda x, z: joined(np.atleast_2d(x, z, 1.0)), real(), real(2, 2)),
    row("permute_dims", lambda x: np.permute_dims(x, (1, 0)), real(2, 3)),
    row("matrix_transpose", np.matrix_transpose, real(2, 3, 4)),
    row("x.mT", lambda x: x.mT, real(2, 3, 4)),
    row("rollaxis", lambda x: np.rollaxis(x, 2), real(2, 3, 4)),
    row("rollaxis start", lambda x: np.rollaxis(x, 0, 2), real(2, 3, 4)),
    row("rollaxis negative", lambda x: np.rollaxis(x, -3, -1), real(2, 3, 4)),
    row("flip", np.flip, real(2, 3)),
    row("flip axis", lambda x: np.flip(x, axis=-1), real(2, 3)),
    row("flip axes", lambda x: np.flip(x, (0, 2)), real(2, 3, 2)),
    row("flip number", np.flip, real()),
    row("fliplr", np.fliplr, real(2, 3)),
    row("flipud", np.flipud, real(2, 3)),
    row("rot90", np.rot90, real(2, 3)),
    row("rot90 k axes", lambda x: np.rot90(x, 3, (0, 2)), real(2, 3, 2)),
    row("rot90 back", lambda x: np.rot90(x, -1), real(2, 3)),
    row("roll", lambda x: np.roll(x, 2), real(2, 3)),
    row("roll axis", lambda x: np.roll(x, -1, axis=1), real(2, 3)),
    row("roll tuples", lambda x: np.roll(x, (1, 2), axis=(0, -1)), real(2, 3)),
    row("roll one axis twice", lambda x: np.roll(x, (1, 1), axis=(0, 0)), real(3, 2)),
    row("roll one shift, axes", lambda x: np.roll(x, 1, axis=(0, 1)), real(3, 2)),
    row("broadcast_arrays", lambda x, z: joined(np.broadcast_arrays(x, z)), real(3, 1), real(2)),
    row("meshgrid", lambda x, z: joined(np.meshgrid(x, z)), real(2), real(3)),
    row("meshgrid ij", lambda x, z: joined(np.meshgrid(x, z, indexing="ij")), real(2), real(3)),
    row("meshgrid sparse", lambda x, z: joined(np.meshgrid(x, z, sparse=True)), real(2), real(3)),
    row("meshgrid three", lambda x, z, w: np.stack(np.meshgrid(x, z, w)), real(2), real(3), real(2)),
    row("tile", lambda x: np.tile(x, 2), real(2, 3)),
    row("tile longer", lambda x: np.tile(x, (2, 1, 3)), real(2, 2)),
    row("tile shorter", lambda x: np.tile(x, (2,)), real(2, 2, 2)),
    row("tile number", lambda x: np.tile(x, (2, 3)), real()),
    row("tile none", lambda x: np.tile(x, 0), real(3)),
    row("tile no reps", lambda x: np.tile(x, ()), real(3)),
    row("repeat", lambda x: np.repeat(x, 2), real(2, 3)),
    row("repeat axis", lambda x: np.repeat(x, 3, axis=-1), real(2, 3)),
    row("repeat counts", lambda x: np.repeat(x, [2, 0, 1], axis=1), real(2, 3)),
    row("repeat flat counts", lambda x: np.repeat(x, [1, 2, 0, 3]), real(2, 2)),
    row("repeat one count", lambda x: np.repeat(x, [2], axis=0), real(2, 3)),
    row("repeat number", lambda x: np.repeat(x, 3), real()),
    row("repeat none", lambda x: np.repeat(x, 0), real(3)),
    row("x.repeat()", lambda x: x.repeat(2, 0), real(2, 3)),
    row("resize", lambda x: np.resize(x, (2, 4)), real(2, 3)),
    row("resize smaller", lambda x: np.resize(x, 2), real(2, 3)),
    # Joining and parting
    row("vstack", lambda *xs: np.vstack(xs), real(3), real(2, 3)),
    row("hstack", lambda *xs: np.hstack(xs), real(2, 3), real(2, 1)),
    row("hstack vectors", lambda *xs: np.hstack(xs), real(), real(3)),
    row("dstack", lambda *xs: np.dstack(xs), real(2, 3), real(2, 3)),
    row("dstack vectors", lambda *xs: np.dstack(xs), real(3), real(3)),
    row("column_stack", lambda *xs: np.column_stack(xs), real(3), real(3, 2)),
    row("concat", lambda *xs: np.concat(xs, axis=1), real(2, 3), real(2, 1)),
    row("concatenate with a number's array", lambda x: np.concatenate([x, np.ones(2, x.dtype)]), real(3)),
    row("block", lambda a, b, c, d: np.block([[a, b], [c, d]]), real(2, 2), real(2, 1), real(1, 2), real(1, 1)),
    row("block vector", lambda a, b: np.block([a, b, 1.0]), real(2), real()),
    row("block ranks", lambda a, b: np.block([[[a]], [[b]]]), real(2), real(1, 1, 2)),
    row("block alone", np.block, real(2, 3)),
    row("append", lambda x, z: np.append(x, z), real(2, 3), real(2)),
    row("append axis", lambda x, z: np.append(x, z, axis=0), real(2, 3), real(1, 3)),
    row("split", lambda x: weighted(np.split(x, 2)), real(4, 3)),
    row("split at", lambda x: weighted(np.split(x, [1, 3], axis=-1)), real(2, 4)),
    row("array_split", lambda x: weighted(np.array_split(x, 3)), real(4, 2)),
    row("array_split more parts than entries", lambda x: weighted(np.array_split(x, 4)), real(3)),
    row("array_split backwards", lambda x: weighted(np.array_split(x, [3, 1])), real(4)),
    row("hsplit", lambda x: weighted(np.hsplit(x, 2)), real(2, 4)),
    row("hsplit vector", lambda x: weighted(np.hsplit(x, [1])), real(3)),
    row("vsplit", lambda x: weighted(np.vsplit(x, 2)), real(4, 2)),
    row("dsplit", lambda x: weighted(np.dsplit(x, 2)), real(2, 1, 4)),
    row("apply_along_axis to numbers", lambda x: np.apply_along_axis(lambda v: np.sum(v * v), 0, x), real(2, 3)),
    row("apply_along_axis to matrices", lambda x: np.apply_along_axis(lambda v: v[:, None] * v, 1, x), real(2, 3, 2)),
    row("apply_over_axes", lambda x: np.apply_over_axes(np.sum, x, [0, -1]), real(2, 3, 2)),
    # Padding
    row("pad", lambda x: np.pad(x, 1), real(2, 3)),
    row("pad pairs", lambda x: np.pad(x, ((1, 0), (2, 3))), real(2, 3)),
    row("pad constants", lambda x: np.pad(x, (1, 2), constant_values=((1, 2), (3, 4))), real(2, 3)),
    row("pad one constant", lambda x: np.pad(x, 1, constant_values=0.5), real(2)),
    row("pad empty", lambda x: np.pad(x, 1), real(0, 2)),
    row("pad number", lambda x: np.pad(x, 1), real()),
    row("pad edge", lambda x: np.pad(x, (1, 2), "edge"), real(2, 3)),
    row("pad reflect", lambda x: np.pad(x, (1, 4), "reflect"), real(2, 3)),
    row("pad symmetric", lambda x: np.pad(x, (3, 4), mode="symmetric"), real(2, 3)),
    row("pad wrap", lambda x: np.pad(x, (3, 4), "wrap"), real(2, 3)),
    row("pad reflect odd", lambda x: np.pad(x, (1, 4), "reflect", reflect_type="odd"), real(2, 3)),
    row("pad symmetric odd", lambda x: np.pad(x, ((0, 1), (2, 3)), "symmetric", reflect_type="odd"), real(2, 3)),
    row("pad linear_ramp", lambda x: np.pad(x, 2, "linear_ramp"), real(2, 3)),
    row("pad linear_ramp ends", lambda x: np.pad(x, (2, 1), "linear_ramp", end_values=((1, 2), (3, 4))), real(2, 3)),
    row("pad mean", lambda x: np.pad(x, ((1, 2), (0, 3)), "mean"), real(2, 3)),
    row("pad mean stat_length", lambda x: np.pad(x, 2, "mean", stat_length=((1, 2), (2, 9))), real(2, 3)),
    row("pad median", lambda x: np.pad(x, ((2, 0), (1, 1)), "median"), distinct(3, 4)),
    row("pad maximum", lambda x: np.pad(x, 1, "maximum"), distinct(2, 3)),
    row("pad minimum stat_length", lambda x: np.pad(x, 1, "minimum", stat_length=2), distinct(2, 3)),
    # Order
    row("sort", np.sort, distinct(3, 4)),
    row("sort axis 0", lambda x: np.sort(x, axis=0), distinct(3, 4)),
    row("sort flat", lambda x: np.sort(x, axis=None), distinct(3, 4)),
    row("sort kind", lambda x: np.sort(x, 1, "stable"), distinct(2, 2, 3)),
    row("sort empty", np.sort, distinct(2, 0)),
    row("partition", lambda x: np.partition(x, 1, axis=0)[1], distinct(3, 4)),
    row("partition flat", lambda x: np.partition(x, (2, 5), axis=None)[[2, 5]], distinct(3, 4)),
    row("partition all", lambda x: np.partition(x, range(4)), distinct(3, 4)),
    row("diag of a vector", np.diag, real(3)),
    row("diag k", lambda x: np.diag(x, -1), real(3)),
    row("diag of a matrix", lambda x: np.diag(x, 1), real(3, 4)),
    row("diagonal", np.diagonal, real(3, 4)),
    row("diagonal axes", lambda x: np.diagonal(x, 1, -1, 0), real(3, 2, 4)),
    row("diagonal outside", lambda x: np.diagonal(x, 7), real(3, 4)),
    row("x.diagonal()", lambda x: x.diagonal(-1), real(3, 4)),
    row("diagflat", lambda x: np.diagflat(x, 1), real(2, 2)),
    row("tril", np.tril, real(3, 4)),
    row("tril k", lambda x: np.tril(x, -1), real(2, 3, 3)),
    row("tril of a vector", np.tril, real(3)),
    row("triu", np.triu, real(3, 4)),
    row("triu k", lambda x: np.triu(x, k=1), real(2, 3, 3)),
    row("triu of a vector", np.triu, real(3)),
    row("diff", np.diff, real(3, 4)),
    row("diff axis", lambda x: np.diff(x, axis=0), real(3, 4)),
    row("diff n", lambda x: np.diff(x, n=3), real(3, 5)),
    row("diff 0", lambda x: np.diff(x * 1, n=0), real(3)),
    row("diff of one", np.diff, real(2, 1)),
    row("diff of none", np.diff, real(2, 0)),
    row("diff prepend", lambda x, a: np.diff(x, prepend=a, append=0), real(2, 3), real(2, 2)),
    row("diff prepend number", lambda x, a: np.diff(x, axis=0, append=a), real(2, 3), real()),
    row("ediff1d", np.ediff1d, real(2, 3)),
    row("ediff1d ends", lambda x, a: np.ediff1d(x, to_end=a, to_begin=[1.0]).astype(x.dtype), real(4), real(2)),
    row("gradient", lambda x: joined(np.gradient(x)), real(3, 4)),
    row("gradient spacing", lambda x: np.gradient(x, 0.5, axis=1), real(3, 4)),
    row("gradient spacings", lambda x: joined(np.gradient(x, 2, 0.25)), real(3, 4)),
    row("gradient places", lambda x: np.gradient(x, PLACES, axis=-1), real(3, 4)),
    row("gradient places edge 2", lambda x: np.gradient(x, PLACES, axis=1, edge_order=2), real(3, 4)),
    row("gradient edge 2", lambda x: joined(np.gradient(x, edge_order=2)), real(3, 4)),
    row("gradient one axis of two", lambda x: joined(np.gradient(x, 2.0, axis=(0, -1))), real(3, 2, 4)),
    # Indexing
    row("x[3:0:-2, ...]", lambda x: x[3:0:-2, ...], real(4, 2)),
    row("x[Tensor]", lambda x: x[Tensor(IDS)] if isinstance(x, Tensor) else x[IDS], real(3, 2)),
    row("x[negative ids]", lambda x: x[np.array([-1, 2, -3, -1])], real(3, 2)),
    row("x[ix_]", lambda x: x[np.ix_([0, 2, 0], [1, 1])], real(3, 2)),
    row("x[ids, None, slice]", lambda x: x[IDS[:, 0], None, ::-1], real(3, 2)),
    row("x[ids, slice, ids]", lambda x: x[[0, 0, 1], :, [1, 1, 0]], real(2, 3, 2)),
    row("x[number, ids]", lambda x: x[1, [0, 0, 2]], real(2, 3)),
    row("x[mask, ids]", lambda x: x[[True, False, True], [1, 1]], real(3, 2)),
    row("x[mask of rows]", lambda x: x[MASK[:, 0]], real(3, 2)),
    row("x[mask, 1]", lambda x: x[MASK[:, 0], 1], real(3, 2)),
    row("x[True]", lambda x: x[True], real(2)),
    row("x[..., 0-d]", lambda x: x[..., np.array(1)], real(2, 3)),
    row("x[ids] of none", lambda x: x[np.zeros((0, 2), int)], real(3, 2)),
    row("take", lambda x: np.take(x, IDS), real(3, 2)),
    row("take axis", lambda x: np.take(x, [2, 0, 2], axis=-1), real(2, 3)),
    row("take one", lambda x: np.take(x, 1, axis=0), real(2, 3)),
    row("take wrap", lambda x: np.take(x, [-4, 5, 3], axis=0, mode="wrap"), real(3, 2)),
    row("take clip", lambda x: np.take(x, [-4, 5, 1], 1, mode="clip"), real(2, 3)),
    row("take from a number", lambda x: np.take(x, [0, 0]), real()),
    row("x.take()", lambda x: x.take([1, 1], 1), real(2, 3)),
    row("take_along_axis", lambda x: np.take_along_axis(x, ALONG_ROWS, axis=1), real(3, 4)),
    row("take_along_axis flat", lambda x: np.take_along_axis(x, np.array([5, 5, 0]), axis=None), real(3, 4)),
    row("take_along_axis broadcast", lambda x: np.take_along_axis(x, np.array([[2, 2]]), axis=1), real(3, 4)),
    row("compress", lambda x: np.compress([True, False, True], x, axis=1), real(2, 4)),
    row("compress flat", lambda x: np.compress([False, True, True], x), real(2, 4)),
    row("x.compress()", lambda x: x.compress([False, True], 0), real(2, 4)),
    row("extract", lambda x: np.extract(MASK, x), real(3, 4)),
    row("delete", lambda x: np.delete(x, 1), real(2, 3)),
    row("delete several", lambda x: np.delete(x, [0, -1], axis=1), real(2, 4)),
    row("delete slice", lambda x: np.delete(x, slice(0, 3, 2), axis=0), real(4, 2)),
    row("insert number", lambda x, v: np.insert(x, 1, v), real(2, 2), real()),
    row("insert row", lambda x, v: np.insert(x, -1, v, axis=0), real(3, 2), real(2)),
    row("insert column", lambda x, v: np.insert(x, 1, v, axis=1), real(3, 2), real(3)),
    row("insert columns", lambda x, v: np.insert(x, [1], v, axis=1), real(3, 2), real(3, 2)),
    row("insert several", lambda x, v: np.insert(x, [2, 0, 2], v, axis=0), real(3, 2), real(3, 2)),
    row("insert slice", lambda x, v: np.insert(x, slice(0, 2), v), real(3), real(2)),
    row(
        "insert mask",
        lambda x, v: np.insert(x, MASK[0, :3], v),
        real(3),
        real(2),
        reference=lambda x, v: np.insert(x, [0, 2], v),  # NumPy 2.0 itself took the mask for numbers
    ),
    row("insert nowhere", lambda x: np.insert(x, [], 5.0), real(3)),
    # Choosing
    row("select", lambda x, z: np.select([x > 0.5, MASK], [x * x, x * z], z), whole(3, 4), real(3, 4)),
    row("select broadcast", lambda x, z: np.select([MASK, MASK[:, :1]], [x, 2 * z], default=z), real(4), real()),
    row("select without default", lambda x: np.select([MASK, ~MASK & MASK[::-1]], [x, -x]), real(3, 4)),
    row("choose", lambda x, z: np.choose([1, 0, 1], [x, z]), real(3), real(3)),
    row("choose broadcast", lambda x, z: np.choose(IDS, [x, z, 0.5 * x]), real(3, 1), real()),
    row("choose wrap", lambda x: np.choose([4, -1], x, mode="wrap"), real(3, 2)),
    row("choose clip", lambda x: np.choose([4, -1], x, mode="clip"), real(3, 2)),
    row("piecewise", lambda x: np.piecewise(x, [x < 0, x > 3.5], [lambda v: v * v, 2.0, np.exp]), whole(3, 4)),
    row("piecewise one", lambda x: np.piecewise(x, MASK[0], [np.tanh, lambda v: 2 * v]), real(4)),
    row("piecewise overlap", lambda x: np.piecewise(x, [MASK, MASK[::-1]], [np.sin, np.cos]), real(3, 4)),
    row("piecewise arguments", lambda x: np.piecewise(x, [MASK], [lambda v, a, b: a * v + b], 2.0, b=1.0), real(3, 4)),
    row(
        "full_like",
        lambda v: np.full_like(Tensor(np.zeros((2, 3), v.dtype)), v),
        real(3),
        reference=lambda v: np.full((2, 3), v, v.dtype),
    ),
    # A changed copy
    at_row("at set", "set", 1, assign, real(3, 2), real(2)),
    at_row("at set slice", "set", np.s_[::2, None], assign, real(3, 2), real()),
    at_row("at set repeats", "set", IDS, assign, real(3), real(3, 2)),
    at_row("at set repeats broadcast", "set", IDS[:, 0], assign, real(3, 2), real(1)),
    at_row("at set mask", "set", MASK, assign, real(3, 4), real(7)),
    at_row("at add", "add", IDS, np.add.at, real(3, 2), real(2, 1)),
    at_row("at add slice", "add", np.s_[:, 1], np.add.at, real(3, 2), real(3)),
    at_row("at subtract", "subtract", [0, 0], np.subtract.at, real(3), real(2)),
    at_row("at multiply", "multiply", IDS, np.multiply.at, real(3), real(3, 2)),
    at_row("at multiply slice", "multiply", np.s_[1:], np.multiply.at, real(3, 2), real(2)),
    at_row("at divide", "divide", (IDS, 1), np.divide.at, real(3, 2), positive(3, 2)),
    at_row("at power", "power", IDS, np.power.at, positive(3), real(2)),
    at_row("at min", "min", IDS, np.minimum.at, whole(3), halves(3, 1)),
    at_row("at max", "max", 0, np.maximum.at, whole(3, 2), halves()),
    row("at get", lambda x: At(x)[IDS].get(), real(3, 2), reference=lambda x: x[IDS]),
]

if hasattr(np, "unstack"):  # NumPy 2.1
    ROWS += [row("unstack", lambda x: weighted(np.unstack(x, axis=-1)), real(2, 3))]
if hasattr(np, "astype"):
    ROWS += [row("np.astype", lambda x: np.astype(x, np.float64), real(2, 3))]

KINKS = [
    Kink("sort of equals", lambda x: np.sort(x) * np.array([1.0, 2.0, 3.0]), ([2.0, 2.0, 1.0],), ([2.0, 3.0, 1.0],)),
    Kink("pad maximum of equals", lambda x: np.pad(x, (1, 0), "maximum"), ([1.0, 1.0],), ([1.5, 1.5],)),
    Kink("at max of equals", lambda x: x.at[0].max(1.0), ([1.0, 3.0],), ([0.5, 1.0],)),
    Kink("√x at 0, not set", lambda x: x.at[x > 0].set(np.sqrt(x[x > 0])), ([0.0, 4.0],), ([1.0, 0.25],)),
]
