"""The calls of PyTorch for the rows of rows_shape, by the row's id."""

import numpy as np
import pytest
import rows_shape
from rows_shape import ALONG_ROWS, IDS, MASK, PLACES

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
F = torch.nn.functional
INDEX, PATTERN, PICKS, SPOTS = map(torch.from_numpy, (IDS, MASK, ALONG_ROWS % 4, PLACES))


def joined(parts):
    return torch.cat([part.ravel() for part in parts])


def weighted(parts):
    return joined([part * (i + 1) for i, part in enumerate(parts)])


def put(key, accumulate=False, sign=1):
    """x with v (times sign) put at the index arrays of `key`, or added there."""
    key = tuple(map(torch.as_tensor, key))
    return lambda x, v: x.index_put(key, sign * v, accumulate=accumulate)


def changed(x, key, v):
    y = x.clone()
    y[key] = v
    return y


TORCH = {
    # Shape
    "reshape F": lambda x: x.T.reshape(6, 2).T,
    "reshape F flat": lambda x: x.T.ravel(),
    "x.reshape F": lambda x: x.T.reshape(6, 2).T,
    "ravel F": lambda x: x.permute(2, 1, 0).ravel(),
    "x.flatten F": lambda x: x.T.ravel(),
    "atleast_2d several": lambda x, z: joined([*torch.atleast_2d(x, z), torch.ones(1, 1)]),
    "atleast_2d": torch.atleast_2d,
    "atleast_1d": torch.atleast_1d,
    "atleast_2d number": torch.atleast_2d,
    "atleast_3d": torch.atleast_3d,
    "atleast_3d matrix": torch.atleast_3d,
    "permute_dims": torch.t,
    "matrix_transpose": lambda x: x.mT,
    "x.mT": lambda x: x.mT,
    "rollaxis": lambda x: torch.movedim(x, 2, 0),
    "rollaxis start": lambda x: torch.movedim(x, 0, 1),
    "rollaxis negative": lambda x: torch.movedim(x, 0, 1),
    "flip": lambda x: torch.flip(x, (0, 1)),
    "flip axis": lambda x: torch.flip(x, (-1,)),
    "flip axes": lambda x: torch.flip(x, (0, 2)),
    "flip number": torch.clone,
    "fliplr": torch.fliplr,
    "flipud": torch.flipud,
    "rot90": torch.rot90,
    "rot90 k axes": lambda x: torch.rot90(x, 3, (0, 2)),
    "rot90 back": lambda x: torch.rot90(x, -1),
    "roll": lambda x: torch.roll(x, 2),
    "roll axis": lambda x: torch.roll(x, -1, 1),
    "roll tuples": lambda x: torch.roll(x, (1, 2), (0, -1)),
    "roll one axis twice": lambda x: torch.roll(x, (1, 1), (0, 0)),
    "roll one shift, axes": lambda x: torch.roll(x, (1, 1), (0, 1)),
    "broadcast_arrays": lambda x, z: joined(torch.broadcast_tensors(x, z)),
    "meshgrid": lambda x, z: joined(torch.meshgrid(x, z, indexing="xy")),
    "meshgrid ij": lambda x, z: joined(torch.meshgrid(x, z, indexing="ij")),
    "meshgrid three": lambda x, z, w: torch.stack(torch.meshgrid(x, z, w, indexing="xy")),
    "tile": lambda x: torch.tile(x, (2,)),
    "tile longer": lambda x: torch.tile(x, (2, 1, 3)),
    "tile shorter": lambda x: torch.tile(x, (2,)),
    "tile number": lambda x: torch.tile(x, (2, 3)),
    "tile none": lambda x: torch.tile(x, (0,)),
    "tile no reps": torch.clone,
    "repeat": lambda x: torch.repeat_interleave(x, 2),
    "repeat axis": lambda x: torch.repeat_interleave(x, 3, -1),
    "repeat counts": lambda x: torch.repeat_interleave(x, torch.tensor([2, 0, 1]), 1),
    "repeat flat counts": lambda x: torch.repeat_interleave(x.ravel(), torch.tensor([1, 2, 0, 3])),
    "repeat one count": lambda x: torch.repeat_interleave(x, 2, 0),
    "repeat number": lambda x: torch.repeat_interleave(x.reshape(1), 3),
    "repeat none": lambda x: torch.repeat_interleave(x, 0),
    "x.repeat()": lambda x: torch.repeat_interleave(x, 2, 0),
    "resize": lambda x: torch.cat([x.ravel(), x.ravel()[:2]]).reshape(2, 4),
    "resize smaller": lambda x: x.ravel()[:2],
    # Joining and parting
    "vstack": lambda *xs: torch.vstack(xs),
    "hstack": lambda *xs: torch.hstack(xs),
    "hstack vectors": lambda *xs: torch.hstack(xs),
    "dstack": lambda *xs: torch.dstack(xs),
    "dstack vectors": lambda *xs: torch.dstack(xs),
    "column_stack": lambda *xs: torch.column_stack(xs),
    "concat": lambda *xs: torch.concat(xs, 1),
    "concatenate with a number's array": lambda x: torch.cat([x, torch.ones(2, dtype=x.dtype)]),
    "block": lambda a, b, c, d: torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)]),
    "block vector": lambda a, b: torch.cat([a, b[None], torch.ones(1)]),
    "block alone": torch.clone,
    "append": lambda x, z: joined([x, z]),
    "append axis": lambda x, z: torch.cat([x, z]),
    "split": lambda x: weighted(torch.tensor_split(x, 2)),
    "split at": lambda x: weighted(torch.tensor_split(x, [1, 3], -1)),
    "array_split": lambda x: weighted(torch.tensor_split(x, 3)),
    "array_split more parts than entries": lambda x: weighted(torch.tensor_split(x, 4)),
    "array_split backwards": lambda x: weighted(torch.tensor_split(x, [3, 1])),
    "hsplit": lambda x: weighted(torch.hsplit(x, 2)),
    "hsplit vector": lambda x: weighted(torch.hsplit(x, [1])),
    "vsplit": lambda x: weighted(torch.vsplit(x, 2)),
    "dsplit": lambda x: weighted(torch.dsplit(x, 2)),
    "unstack": lambda x: weighted(torch.unbind(x, -1)),
    "np.astype": lambda x: x.to(torch.float64),
    "apply_along_axis to numbers": lambda x: (x * x).sum(0),
    "apply_along_axis to matrices": lambda x: torch.einsum("aib,ajb->aijb", x, x),
    "apply_over_axes": lambda x: x.sum((0, -1), keepdim=True),
    # Padding
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad pairs": lambda x: F.pad(x, (2, 3, 1, 0)),
    "pad one constant": lambda x: F.pad(x, (1, 1), value=0.5),
    "pad empty": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad number": torch.clone,
    "pad edge": lambda x: F.pad(x[None, None], (1, 2, 1, 2), "replicate")[0, 0],
    # Order
    "sort": lambda x: torch.sort(x).values,
    "sort axis 0": lambda x: torch.sort(x, 0).values,
    "sort flat": lambda x: torch.sort(x.ravel()).values,
    "sort kind": lambda x: torch.sort(x, dim=1, stable=True).values,
    "sort empty": lambda x: torch.sort(x).values,
    "partition": lambda x: torch.kthvalue(x, 2, 0).values,
    "partition flat": lambda x: torch.sort(x.ravel()).values[[2, 5]],
    "partition all": lambda x: torch.sort(x).values,
    "diag of a vector": torch.diag,
    "diag k": lambda x: torch.diag(x, -1),
    "diag of a matrix": lambda x: torch.diag(x, 1),
    "diagonal": torch.diagonal,
    "diagonal axes": lambda x: torch.diagonal(x, 1, -1, 0),
    "diagonal outside": lambda x: torch.diagonal(x, 7),
    "x.diagonal()": lambda x: x.diagonal(-1),
    "diagflat": lambda x: torch.diagflat(x, 1),
    "tril": torch.tril,
    "tril k": lambda x: torch.tril(x, -1),
    "tril of a vector": lambda x: torch.tril(x.expand(3, 3)),
    "triu": torch.triu,
    "triu k": lambda x: torch.triu(x, 1),
    "triu of a vector": lambda x: torch.triu(x.expand(3, 3)),
    "diff": torch.diff,
    "diff axis": lambda x: torch.diff(x, dim=0),
    "diff n": lambda x: torch.diff(x, 3),
    "diff 0": torch.clone,
    "diff of one": torch.diff,
    "diff of none": torch.clone,
    "diff prepend": lambda x, a: torch.diff(x, prepend=a, append=torch.zeros(2, 1, dtype=x.dtype)),
    "diff prepend number": lambda x, a: torch.diff(x, dim=0, append=a.expand(1, 3)),
    "ediff1d": lambda x: torch.diff(x.ravel()),
    "ediff1d ends": lambda x, a: torch.cat([torch.ones(1), torch.diff(x), a]),
    "gradient": lambda x: joined(torch.gradient(x)),
    "gradient spacing": lambda x: torch.gradient(x, spacing=0.5, dim=1)[0],
    "gradient spacings": lambda x: joined(torch.gradient(x, spacing=(2.0, 0.25))),
    "gradient places": lambda x: torch.gradient(x, spacing=(SPOTS,), dim=1)[0],
    "gradient edge 2": lambda x: joined(torch.gradient(x, edge_order=2)),
    "gradient one axis of two": lambda x: joined(torch.gradient(x, spacing=2.0, dim=(0, -1))),
    # Indexing
    "x[3:0:-2, ...]": lambda x: x[[3, 1]],
    "x[Tensor]": lambda x: x[INDEX],
    "x[ix_]": lambda x: x[[0, 2, 0]][:, [1, 1]],
    "x[ids, None, slice]": lambda x: x.flip(1)[INDEX[:, 0], None],
    "x[number, ids]": lambda x: x[1, [0, 0, 2]],
    "x[mask, ids]": lambda x: x[[0, 2], [1, 1]],
    "x[mask of rows]": lambda x: x[PATTERN[:, 0]],
    "x[mask, 1]": lambda x: x[PATTERN[:, 0], 1],
    "x[..., 0-d]": lambda x: x[..., torch.tensor(1)],
    "x[ids] of none": lambda x: x[torch.zeros(0, 2, dtype=torch.int64)],
    "take": lambda x: torch.take(x, INDEX),
    "take axis": lambda x: torch.index_select(x, -1, torch.tensor([2, 0, 2])),
    "take one": lambda x: x[1],
    "take wrap": lambda x: x[[2, 2, 0]],
    "take clip": lambda x: x[:, [0, 2, 1]],
    "take from a number": lambda x: x.expand(2),
    "x.take()": lambda x: x[:, [1, 1]],
    "take_along_axis": lambda x: torch.take_along_dim(x, PICKS, 1),
    "take_along_axis flat": lambda x: torch.take_along_dim(x, torch.tensor([5, 5, 0])),
    "take_along_axis broadcast": lambda x: torch.take_along_dim(x, torch.tensor([[2, 2]]), 1),
    "compress": lambda x: x[:, [0, 2]],
    "compress flat": lambda x: x.ravel()[[1, 2]],
    "x.compress()": lambda x: x[[1]],
    "extract": lambda x: torch.masked_select(x, PATTERN),
    "delete": lambda x: x.ravel()[[0, 2, 3, 4, 5]],
    "delete several": lambda x: x[:, [1, 2]],
    "delete slice": lambda x: x[[1, 3]],
    "insert number": lambda x, v: torch.cat([x.ravel()[:1], v[None], x.ravel()[1:]]),
    "insert row": lambda x, v: torch.cat([x[:2], v[None], x[2:]]),
    "insert column": lambda x, v: torch.cat([x[:, :1], v[:, None], x[:, 1:]], 1),
    "insert columns": lambda x, v: torch.cat([x[:, :1], v, x[:, 1:]], 1),
    "insert several": lambda x, v: torch.cat([v[1:2], x[:2], v[[0, 2]], x[2:]]),
    "insert slice": lambda x, v: torch.stack([v[0], x[0], v[1], x[1], x[2]]),
    "insert mask": lambda x, v: torch.stack([v[0], x[0], x[1], v[1], x[2]]),
    "insert nowhere": torch.clone,
    # Choosing
    "select": lambda x, z: torch.where(x > 0.5, x * x, torch.where(PATTERN, x * z, z)),
    "select broadcast": lambda x, z: torch.where(PATTERN, x, torch.where(PATTERN[:, :1], 2 * z, z)),
    "select without default": lambda x: torch.where(PATTERN, x, torch.where(~PATTERN & PATTERN.flip(0), -x, 0.0)),
    "choose": lambda x, z: torch.stack([z[0], x[1], z[2]]),
    "choose wrap": lambda x: torch.stack([x[1, 0], x[2, 1]]),
    "choose clip": lambda x: torch.stack([x[2, 0], x[0, 1]]),
    "piecewise": lambda x: torch.where(x < 0, x * x, torch.where(x > 3.5, 2.0, torch.exp(x))),
    "piecewise one": lambda x: torch.where(PATTERN[0], torch.tanh(x), 2 * x),
    "piecewise overlap": lambda x: torch.where(PATTERN.flip(0), torch.cos(x), torch.where(PATTERN, torch.sin(x), 0.0)),
    "piecewise arguments": lambda x: torch.where(PATTERN, 2 * x + 1, 0.0),
    "full_like": lambda v: v.expand(2, 3),
    # A changed copy
    "at set": lambda x, v: changed(x, 1, v),
    "at set slice": lambda x, v: changed(x, np.s_[::2, None], v),
    "at set mask": lambda x, v: torch.masked_scatter(x, PATTERN, v),
    "at add": put([INDEX], accumulate=True),
    "at add slice": lambda x, v: torch.select_scatter(x, x[:, 1] + v, 1, 1),
    "at subtract": put([[0, 0]], accumulate=True, sign=-1),
    "at multiply slice": lambda x, v: torch.cat([x[:1], x[1:] * v]),
    "at max": lambda x, v: torch.cat([torch.maximum(x[:1], v), x[1:]]),
    "at get": lambda x: x[INDEX],
}

if not hasattr(np, "unstack"):  # NumPy 2.1
    del TORCH["unstack"]
if not hasattr(np, "astype"):
    del TORCH["np.astype"]

# Where torch has no such function: modes of padding, ties of other conventions, and updates one after another.
WITHOUT = {row.id for row in rows_shape.ROWS} - TORCH.keys()
