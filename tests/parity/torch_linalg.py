"""What products and linear algebra are called in PyTorch, by the row's id; see test_torch.py."""

import pytest
import rows_linalg

torch = pytest.importorskip("torch", reason="PyTorch is the extra `parity`")
linalg, einsum, conv1d = torch.linalg, torch.einsum, torch.nn.functional.conv1d


def convolve(a, v):
    """The full convolution."""
    return conv1d(a[None, None], v.flip(0)[None, None], padding=len(v) - 1)[0, 0]


def lower(a):
    """The symmetric matrix that NumPy reads from the lower triangle."""
    return a.tril() + a.tril(-1).mT


def upper(a):
    return lower(a.mT)


def signed(vectors):
    return vectors * torch.sign(vectors[..., :1, :].detach())


TORCH = {
    "dot batch matrix": torch.matmul,
    "dot matrix batch": lambda a, b: torch.tensordot(a, b, ([-1], [-2])),
    "dot batch batch": lambda a, b: torch.tensordot(a, b, ([-1], [-2])),
    "dot vector batch": lambda a, b: torch.tensordot(a, b, ([-1], [-2])),
    "dot batch vector": torch.matmul,
    "x.dot()": lambda x: x.mm(x),
    "vdot": lambda a, b: torch.vdot(a.ravel(), b.ravel()),
    **dict.fromkeys(["inner vectors", "inner matrices", "inner batch vector", "inner number"], torch.inner),
    **dict.fromkeys(["outer", "outer matrices", "linalg.outer"], lambda a, b: torch.outer(a.ravel(), b.ravel())),
    "vecdot": linalg.vecdot,
    "vecdot axis": lambda a, b: linalg.vecdot(a, b, dim=0),
    "linalg.vecdot": lambda a, b: linalg.vecdot(a, b, dim=-2),
    **dict.fromkeys(["linalg.matmul", "matvec"], torch.matmul),
    "matvec batch": lambda a, v: (a @ v[..., None])[..., 0],
    "vecmat": torch.matmul,
    "vecmat batch": lambda v, a: (v[..., None, :] @ a)[..., 0, :],
    **dict.fromkeys(["kron", "kron vectors", "kron of different ranks"], torch.kron),
    "cross": linalg.cross,
    "cross broadcast": lambda a, b: linalg.cross(*torch.broadcast_tensors(a, b)),
    "cross axis": lambda a, b: linalg.cross(a, b, dim=0),
    "cross axes": lambda a, b: linalg.cross(a.T, b).T,
    "linalg.cross": lambda a, b: linalg.cross(a, b, dim=0),
    "convolve": convolve,
    "convolve same": lambda a, v: convolve(a, v)[1:-2],
    "convolve same, longer second": lambda a, v: convolve(a, v)[:-1],
    "convolve valid": lambda a, v: convolve(a, v)[2:-2],
    "convolve number": torch.mul,
    "correlate": lambda a, v: conv1d(a[None, None], v[None, None])[0, 0],
    "correlate same": lambda a, v: convolve(a, v.flip(0))[1:-2],
    "correlate same, longer second": lambda a, v: convolve(a, v.flip(0))[2:-1],
    "correlate full": lambda a, v: convolve(a, v.flip(0)),
    "correlate valid, longer second": lambda a, v: conv1d(v[None, None], a[None, None])[0, 0].flip(0),
    "tensordot": lambda a, b: torch.tensordot(a, b, 2),
    "tensordot 0": lambda a, b: torch.tensordot(a, b, 0),
    "tensordot axis": lambda a, b: torch.tensordot(a, b, ([0], [-1])),
    "tensordot axes": lambda a, b: torch.tensordot(a, b, ([2, 0], [0, 1])),
    "tensordot negative axes": lambda a, b: torch.tensordot(a, b, ([0, -1], [-1, 0])),
    "tensordot all axes": lambda a, b: torch.tensordot(a, b, ([0, 1], [1, 0])),
    "linalg.tensordot": lambda a, b: torch.tensordot(a, b, 1),
    **dict.fromkeys(["multi_dot two", "multi_dot", "multi_dot vectors"], lambda *xs: linalg.multi_dot(xs)),
    "einsum implicit": lambda *xs: einsum("kj,ji", *xs),
    **{
        f"einsum {subscripts}": lambda *xs, subscripts=subscripts: einsum(subscripts, *xs)
        for subscripts in ["ij,jk->ik", "ii", "ii->i", "iij,jk->ik", "iii->i", "ijk->j", "i,j->", "ij->ji"]
    },
    "einsum ellipsis": lambda *xs: einsum("...ij,...jk->...ik", *xs),
    "einsum implicit ellipsis": lambda *xs: einsum("...ij,jk", *xs),
    "einsum ellipses of different ranks": lambda *xs: einsum("i...,...i->...", *xs),
    "einsum length 1": lambda *xs: einsum("ij,ij->i", *xs),
    "einsum three operands": lambda *xs: einsum("ij,jk,kl->il", *xs),
    "einsum four operands": lambda *xs: einsum("a,ab,bc,c", *xs),
    "einsum lists": lambda *xs: einsum("ij,jk->ki", *xs),
    "einsum lists implicit": lambda *xs: einsum("...ba,ac->...bc", *xs),
    "einsum number": lambda *xs: einsum(",i", *xs),
    "einsum empty": lambda *xs: einsum("ij,jk->ik", *xs),
    "trace": lambda x: x.diagonal().sum(),
    "trace offset": lambda x: x.diagonal(1).sum(),
    "trace offset below": lambda x: x.diagonal(-1).sum(),
    "trace axes": lambda x: x.diagonal(1, 2, 0).sum(-1),
    "x.trace()": lambda x: x.diagonal(1, 2, 1).sum(-1),
    "linalg.trace": lambda x: x.diagonal(-1, -2, -1).sum(-1),
    "linalg.diagonal": lambda x: linalg.diagonal(x, offset=1),
    "linalg.matrix_transpose": lambda x: x.mT,
    # Linear algebra
    **dict.fromkeys(["inv", "inv batch", "inv 1 x 1", "inv empty batch"], linalg.inv),
    **dict.fromkeys(["solve vector", "solve matrix", "solve batch"], linalg.solve),
    **dict.fromkeys(["solve broadcast", "solve broadcast both"], linalg.solve),
    "solve batch vector": lambda a, b: linalg.solve(a, b[:, None])[..., 0],
    **dict.fromkeys(["pinv tall", "pinv square batch"], linalg.pinv),
    "pinv wide": lambda a: linalg.pinv(a.mT),
    "lstsq tall": lambda a, b: linalg.lstsq(a, b[:, None]).solution[:, 0],
    "lstsq wide": lambda a, b: linalg.pinv(a.mT) @ b,
    "lstsq residuals": lambda a, b: ((b - a @ linalg.lstsq(a, b).solution) ** 2).sum(0),
    "lstsq singular values": linalg.svdvals,
    "matrix_power 3": lambda a: linalg.matrix_power(a, 3),
    "matrix_power 6 batch": lambda a: linalg.matrix_power(a, 6),
    "matrix_power 0": lambda a: torch.eye(3, dtype=a.dtype) + 0 * a,
    "matrix_power 1": lambda a: linalg.matrix_power(a, 1),
    "matrix_power -2": lambda a: linalg.matrix_power(a, -2),
    "tensorsolve": linalg.tensorsolve,
    "tensorsolve axes": lambda a, b: linalg.tensorsolve(a, b, dims=(0, 2)),
    "tensorinv": lambda a: linalg.tensorinv(a, ind=1),
    **dict.fromkeys(["det", "det batch", "det singular", "det identity", "det 1 x 1"], linalg.det),
    "det of either sign": lambda a: linalg.det(torch.stack([a, a.flip(0)])),
    "cofactor": lambda a: linalg.det(a) * linalg.inv(a).T,
    "cofactor of either sign": lambda a: torch.stack([linalg.det(m) * linalg.inv(m).T for m in (a, a.flip(0))]),
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "slogdet batch": lambda a: linalg.slogdet(a).logabsdet,
    "cholesky": lambda a: linalg.cholesky(lower(a)),
    "cholesky batch": lambda a: linalg.cholesky(lower(a)),
    "cholesky upper": lambda a: linalg.cholesky(upper(a), upper=True),
    "eigh values": lambda a: linalg.eigh(lower(a)).eigenvalues,
    "eigh vectors": lambda a: signed(linalg.eigh(lower(a)).eigenvectors),
    "eigh upper batch": lambda a: signed(linalg.eigh(upper(a)).eigenvectors),
    "eigh both": lambda a: (lambda w, v: (v * torch.exp(w)) @ v.mT)(*linalg.eigh(lower(a))),
    "eigvalsh": lambda a: linalg.eigvalsh(lower(a)),
    "eigvalsh upper batch": lambda a: linalg.eigvalsh(upper(a)),
    "svd U": lambda a: signed(linalg.svd(a, full_matrices=False).U),
    "svd Vh": lambda a: signed(linalg.svd(a, full_matrices=False).Vh.mT),
    "svd S": lambda a: linalg.svd(a, full_matrices=False).S,
    "svd wide": lambda a: (lambda u, s, vh: (u * s**2) @ vh)(*linalg.svd(a.mT, full_matrices=False)),
    "svd square batch": lambda a: (lambda u, s, vh: (u * s[:, None] ** 2) @ vh)(*linalg.svd(a)),
    **dict.fromkeys(["svd values alone", "svdvals"], linalg.svdvals),
    "qr Q": lambda a: linalg.qr(a).Q,
    "qr R": lambda a: linalg.qr(a).R,
    "qr mode r batch": lambda a: linalg.qr(a).R,
    "qr wide Q": lambda a: linalg.qr(a.mT).Q,
    "qr wide R": lambda a: linalg.qr(a.mT).R,
    **dict.fromkeys(["norm", "norm of all", "norm number"], linalg.norm),
    "norm axis": lambda x: linalg.norm(x, dim=-1),
    "norm axis keepdims": lambda x: linalg.norm(x, 2, 0, True),
    "norm 1": lambda x: linalg.norm(x, 1),
    "norm inf": lambda x: linalg.norm(x, torch.inf, dim=0),
    "norm -inf": lambda x: linalg.norm(x, -torch.inf, dim=1),
    "norm 0": lambda x: (x != 0).sum(1) + 0 * x.sum(1),
    "norm 3": lambda x: linalg.norm(x, 3),
    "norm 1.5 axis": lambda x: linalg.norm(x, 1.5, dim=1, keepdim=True),
    "norm -1": lambda x: linalg.norm(x, -1),
    "norm fro": lambda x: linalg.norm(x, "fro"),
    "norm axes": lambda x: linalg.norm(x, dim=(0, -1)),
    "norm matrix 1": lambda x: linalg.norm(x, 1),
    "norm matrix -1": lambda x: linalg.norm(x, -1),
    "norm matrix inf": lambda x: linalg.norm(x, torch.inf, dim=(2, 0), keepdim=True),
    "norm matrix -inf": lambda x: linalg.norm(x, -torch.inf),
    "norm nuc": lambda x: linalg.norm(x, "nuc"),
    "norm matrix 2": lambda x: linalg.norm(x, 2, dim=(0, 2), keepdim=True),
    "norm matrix -2": lambda x: linalg.norm(x, -2),
    "vector_norm": linalg.vector_norm,
    "vector_norm 3 axes": lambda x: linalg.vector_norm(x, 3, dim=(0, 2), keepdim=True),
    "matrix_norm": lambda x: linalg.matrix_norm(x, keepdim=True),
    "matrix_norm 1": lambda x: linalg.matrix_norm(x, 1),
    "cond": linalg.cond,
    "cond -2 batch": lambda x: linalg.cond(x, -2),
}

WITHOUT = {
    "det zero",  # torch's second derivative is NaN
    "cond fro",  # torch cannot differentiate it
}

KINKS = {
    "norm at 0": linalg.norm,
    "norm at 0 by row": lambda x: linalg.norm(x, dim=1),
    "norm 1 at 0": lambda x: linalg.norm(x, 1),
    "norm 3 at 0": lambda x: linalg.norm(x, 3),
    "norm inf of equals": lambda x: linalg.norm(x, torch.inf),
}

TORCH = {row.id: TORCH[row.id] for row in rows_linalg.ROWS if row.id not in WITHOUT}  # some rows need a newer NumPy
