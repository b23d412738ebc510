"""The table of primitives, continued: products and linear algebra."""

import numpy as np
from table import Domain, Kink, Row, distinct, nonzero, real, row

from chainrule.autograd.primitives.linalg import cofactor

invertible = Domain(lambda rng, shape: 0.5 * rng.standard_normal(shape) + 2 * np.eye(shape[-1]))
singular = Domain(lambda rng, shape: rng.standard_normal((*shape[:-1], 1)) * rng.standard_normal((*shape[:-2], 1, shape[-1])))
positive_definite = Domain(lambda rng, shape: (lambda b: b @ b.mT + 2 * np.eye(shape[-1]))(rng.standard_normal(shape)))
spread = Domain(lambda rng, shape: np.diag(2.0 * np.arange(shape[-1])) + 0.3 * rng.standard_normal(shape))  # eigenvalues apart
tall = Domain(lambda rng, shape: np.eye(*shape[-2:]) * (1.5 + np.arange(shape[-1])) + 0.3 * rng.standard_normal(shape))


def _cofactors(a):
    both = np.stack([a, a[::-1]])
    return np.linalg.det(both)[:, None, None] * np.swapaxes(np.linalg.inv(both), -1, -2)


ROWS: list[Row] = [
    # Products
    row("dot batch matrix", np.dot, real(2, 3, 4), real(4, 2)),
    row("dot matrix batch", np.dot, real(2, 3), real(2, 3, 4)),
    row("dot batch batch", np.dot, real(2, 2, 3), real(2, 3, 2)),
    row("dot vector batch", np.dot, real(3), real(2, 3, 2)),
    row("dot batch vector", np.dot, real(2, 2, 3), real(3)),
    row("x.dot()", lambda x: x.dot(x), real(3, 3)),
    row("vdot", np.vdot, real(2, 3), real(2, 3)),
    row("inner vectors", np.inner, real(3), real(3)),
    row("inner matrices", np.inner, real(2, 3), real(4, 3)),
    row("inner batch vector", np.inner, real(2, 2, 3), real(3)),
    row("inner number", np.inner, real(), real(3)),
    row("outer", np.outer, real(3), real(4)),
    row("outer matrices", np.outer, real(2, 2), real(3)),
    row("linalg.outer", np.linalg.outer, real(3), real(4)),
    row("vecdot", np.vecdot, real(2, 3), real(3)),
    row("vecdot axis", lambda x, z: np.vecdot(x, z, axis=0), real(3, 2), real(3, 2)),
    row("linalg.vecdot", lambda x, z: np.linalg.vecdot(x, z, axis=-2), real(3, 2), real(3, 2)),
    row("linalg.matmul", np.linalg.matmul, real(2, 3), real(3, 2)),
    row("kron", np.kron, real(2, 3), real(3, 2)),
    row("kron vectors", np.kron, real(2), real(3)),
    row("kron of different ranks", np.kron, real(2), real(2, 1, 2)),
    row("cross", np.cross, real(3), real(3)),
    row("cross broadcast", np.cross, real(2, 1, 3), real(4, 3)),
    row("cross axis", lambda x, z: np.cross(x, z, axis=0), real(3, 2), real(3, 2)),
    row("cross axes", lambda x, z: np.cross(x, z, axisa=0, axisb=1, axisc=0), real(3, 2), real(2, 3)),
    row("linalg.cross", lambda x, z: np.linalg.cross(x, z, axis=0), real(3, 2), real(3, 2)),
    row("convolve", np.convolve, real(5), real(3)),
    row("convolve same", lambda a, v: np.convolve(a, v, "same"), real(5), real(4)),
    row("convolve same, longer second", lambda a, v: np.convolve(a, v, "same"), real(2), real(5)),
    row("convolve valid", lambda a, v: np.convolve(a, v, mode="valid"), real(3), real(5)),
    row("convolve number", np.convolve, real(), real(3)),
    row("correlate", np.correlate, real(5), real(3)),
    row("correlate same", lambda a, v: np.correlate(a, v, "same"), real(6), real(4)),
    row("correlate same, longer second", lambda a, v: np.correlate(a, v, "same"), real(4), real(5)),
    row("correlate full", lambda a, v: np.correlate(a, v, "full"), real(2), real(4)),
    row("correlate valid, longer second", np.correlate, real(2), real(4)),
    row("tensordot", np.tensordot, real(2, 3, 2), real(3, 2, 2)),
    row("tensordot 0", lambda a, b: np.tensordot(a, b, 0), real(2, 3), real(2)),
    row("tensordot axis", lambda a, b: np.tensordot(a, b, (0, -1)), real(3, 2), real(2, 3)),
    row("tensordot axes", lambda a, b: np.tensordot(a, b, ([2, 0], [0, 1])), real(2, 3, 4), real(4, 2, 2)),
    row("tensordot negative axes", lambda a, b: np.tensordot(a, b, ((0, -1), (-1, 0))), real(2, 3, 4), real(4, 3, 2)),
    row("tensordot all axes", lambda a, b: np.tensordot(a, b, ((0, 1), (1, 0))), real(2, 3), real(3, 2)),
    row("linalg.tensordot", lambda a, b: np.linalg.tensordot(a, b, axes=1), real(2, 3), real(3, 2)),
    row("multi_dot two", lambda *xs: np.linalg.multi_dot(xs), real(2, 3), real(3, 2)),
    row("multi_dot", lambda *xs: np.linalg.multi_dot(xs), real(4, 2), real(2, 5), real(5, 3), real(3, 1)),
    row("multi_dot vectors", lambda *xs: np.linalg.multi_dot(xs), real(2), real(2, 3), real(3)),
    # einsum
    row("einsum ij,jk->ik", lambda *xs: np.einsum("ij,jk->ik", *xs), real(2, 3), real(3, 4)),
    row("einsum implicit", lambda *xs: np.einsum("kj, ji", *xs), real(2, 3), real(3, 4)),
    row("einsum ii", lambda x: np.einsum("ii", x), real(3, 3)),
    row("einsum ii->i", lambda x: np.einsum("ii->i", x), real(3, 3)),
    row("einsum iij,jk->ik", lambda *xs: np.einsum("iij,jk->ik", *xs), real(2, 2, 3), real(3, 2)),
    row("einsum iii->i", lambda x: np.einsum("iii->i", x), real(2, 2, 2)),
    row("einsum ijk->j", lambda x: np.einsum("ijk->j", x), real(2, 3, 2)),
    row("einsum i,j->", lambda *xs: np.einsum("i,j->", *xs), real(2), real(3)),
    row("einsum ij->ji", lambda x: np.einsum("ij->ji", x), real(2, 3)),
    row("einsum ellipsis", lambda *xs: np.einsum("...ij,...jk->...ik", *xs), real(2, 2, 3), real(1, 3, 2)),
    row("einsum implicit ellipsis", lambda *xs: np.einsum("...ij,jk", *xs), real(2, 2, 3), real(3, 2)),
    row("einsum ellipses of different ranks", lambda *xs: np.einsum("i...,...i->...", *xs), real(3, 2, 1), real(4, 3)),
    row("einsum length 1", lambda *xs: np.einsum("ij,ij->i", *xs), real(2, 1), real(2, 3)),
    row("einsum three operands", lambda *xs: np.einsum("ij,jk,kl->il", *xs, optimize=True), real(2, 3), real(3, 2), real(2, 3)),
    row(
        "einsum four operands",
        lambda *xs: np.einsum("a,ab,bc,c", *xs, optimize="greedy"),
        real(2),
        real(2, 3),
        real(3, 2),
        real(2),
    ),
    row("einsum lists", lambda *xs: np.einsum(xs[0], [0, 1], xs[1], [1, 2], [2, 0]), real(2, 3), real(3, 4)),
    row("einsum lists implicit", lambda *xs: np.einsum(xs[0], [..., 1, 0], xs[1], [0, 2]), real(2, 2, 3), real(3, 2)),
    row("einsum number", lambda *xs: np.einsum(",i", *xs), real(), real(3)),
    row("einsum empty", lambda *xs: np.einsum("ij,jk->ik", *xs), real(2, 0), real(0, 3)),
    # Trace and its kind
    row("trace", np.trace, real(3, 4)),
    row("trace offset", lambda x: np.trace(x, offset=1), real(3, 4)),
    row("trace offset below", lambda x: np.trace(x, -1), real(4, 3)),
    row("trace axes", lambda x: np.trace(x, 1, 2, 0), real(3, 2, 4)),
    row("x.trace()", lambda x: x.trace(1, 2, 1), real(2, 3, 4)),
    row("linalg.trace", lambda x: np.linalg.trace(x, offset=-1), real(2, 3, 4)),
    row("linalg.diagonal", lambda x: np.linalg.diagonal(x, offset=1), real(2, 3, 4)),
    row("linalg.matrix_transpose", np.linalg.matrix_transpose, real(2, 3, 4)),
]

if hasattr(np, "matvec"):
    ROWS += [
        row("matvec", np.matvec, real(2, 2, 3), real(3)),
        row("matvec batch", np.matvec, real(2, 1, 2, 3), real(4, 3)),
        row("vecmat", np.vecmat, real(3), real(2, 3, 2)),
        row("vecmat batch", np.vecmat, real(4, 3), real(2, 1, 3, 2)),
    ]


def signed(vectors):
    """The columns with their first entries positive: LAPACK leaves their signs to chance."""
    return vectors * np.sign(vectors[..., :1, :])


def linalg(id, call, *domains, reference=None):
    """A row whose function NumPy has in float32 and float64 only."""
    return row(id, call, *domains, reference=reference)._replace(half=False)


ROWS += [
    # Inverses
    linalg("inv", np.linalg.inv, invertible(3, 3)),
    linalg("inv batch", np.linalg.inv, invertible(2, 3, 3)),
    linalg("inv 1 x 1", np.linalg.inv, nonzero(1, 1)),
    linalg("inv empty batch", np.linalg.inv, invertible(0, 2, 2)),
    linalg("solve vector", np.linalg.solve, invertible(3, 3), real(3)),
    linalg("solve matrix", np.linalg.solve, invertible(3, 3), real(3, 2)),
    linalg("solve batch", np.linalg.solve, invertible(2, 3, 3), real(2, 3, 1)),
    linalg("solve batch vector", np.linalg.solve, invertible(2, 3, 3), real(3)),
    linalg("solve broadcast", np.linalg.solve, invertible(3, 3), real(2, 3, 2)),
    linalg("solve broadcast both", np.linalg.solve, invertible(2, 1, 2, 2), real(3, 2, 2)),
    linalg("pinv tall", np.linalg.pinv, tall(4, 2)),
    linalg("pinv wide", lambda a: np.linalg.pinv(a.mT, rcond=1e-12), tall(3, 2)),
    linalg("pinv square batch", np.linalg.pinv, invertible(2, 3, 3)),
    linalg("lstsq tall", lambda a, b: np.linalg.lstsq(a, b)[0], tall(4, 2), real(4)),
    linalg("lstsq wide", lambda a, b: np.linalg.lstsq(a.mT, b)[0], tall(3, 2), real(2, 2)),
    linalg("lstsq residuals", lambda a, b: np.linalg.lstsq(a, b)[1], tall(4, 2), real(4, 3)),
    linalg("lstsq singular values", lambda a: np.linalg.lstsq(a, np.ones(3, a.dtype))[3], tall(3, 2)),
    row("matrix_power 3", lambda a: np.linalg.matrix_power(a, 3), real(3, 3)),
    row("matrix_power 6 batch", lambda a: np.linalg.matrix_power(a, 6), real(2, 2, 2)),
    row("matrix_power 1", lambda a: np.linalg.matrix_power(a, 1) * 1, real(3, 3)),
    row("matrix_power 0", lambda a: np.linalg.matrix_power(a, 0), real(3, 3)),
    linalg("matrix_power -2", lambda a: np.linalg.matrix_power(a, -2), invertible(3, 3)),
    linalg(
        "tensorsolve",
        np.linalg.tensorsolve,
        Domain(lambda rng, shape: invertible.draw(rng, (6, 6)).reshape(shape))(2, 3, 6),
        real(2, 3),
    ),
    linalg(
        "tensorsolve axes",
        lambda a, b: np.linalg.tensorsolve(a, b, axes=(0, 2)),
        Domain(lambda rng, shape: invertible.draw(rng, (4, 4)).reshape(4, 2, 2).transpose(1, 0, 2))(2, 4, 2),
        real(4),
    ),
    linalg(
        "tensorinv",
        lambda a: np.linalg.tensorinv(a, ind=1),
        Domain(lambda rng, shape: invertible.draw(rng, (4, 4)).reshape(shape))(4, 2, 2),
    ),
    # Determinants
    linalg("det", np.linalg.det, real(3, 3)),
    linalg("det batch", np.linalg.det, real(2, 4, 4)),
    linalg("det of either sign", lambda a: np.linalg.det(np.stack([a, a[::-1]])), real(3, 3)),
    linalg("det singular", np.linalg.det, singular(3, 3)),
    linalg("det identity", np.linalg.det, Domain(lambda rng, shape: np.eye(3))(3, 3)),
    linalg("det zero", np.linalg.det, Domain(lambda rng, shape: np.zeros(shape))(3, 3)),
    linalg("det 1 x 1", np.linalg.det, real(1, 1)),
    linalg("cofactor of either sign", lambda a: cofactor(np.stack([a, a[::-1]])), invertible(3, 3), reference=_cofactors),
    linalg("cofactor", cofactor, invertible(3, 3), reference=lambda a: np.linalg.det(a) * np.linalg.inv(a).T),
    linalg("slogdet", lambda a: np.linalg.slogdet(a).logabsdet, invertible(3, 3)),
    linalg("slogdet batch", lambda a: np.linalg.slogdet(a)[1], invertible(2, 3, 3)),
    # Factorisations
    linalg("cholesky", np.linalg.cholesky, positive_definite(3, 3)),
    linalg("cholesky batch", np.linalg.cholesky, positive_definite(2, 2, 2)),
    linalg("cholesky upper", lambda a: np.linalg.cholesky(a, upper=True), positive_definite(3, 3)),
    linalg("eigh values", lambda a: np.linalg.eigh(a).eigenvalues, spread(3, 3)),
    linalg("eigh vectors", lambda a: signed(np.linalg.eigh(a)[1]), spread(3, 3)),
    linalg("eigh upper batch", lambda a: signed(np.linalg.eigh(a, UPLO="U").eigenvectors), spread(2, 2, 2)),
    linalg("eigh both", lambda a: (lambda w, v: (v * np.exp(w)) @ v.mT)(*np.linalg.eigh(a)), spread(3, 3)),
    linalg("eigvalsh", np.linalg.eigvalsh, spread(3, 3)),
    linalg("eigvalsh upper batch", lambda a: np.linalg.eigvalsh(a, "U"), spread(2, 3, 3)),
    linalg("svd U", lambda a: signed(np.linalg.svd(a, full_matrices=False).U), tall(4, 3)),
    linalg("svd S", lambda a: np.linalg.svd(a, full_matrices=False).S, tall(4, 3)),
    linalg("svd Vh", lambda a: signed(np.linalg.svd(a, full_matrices=False).Vh.mT), tall(4, 3)),
    linalg("svd wide", lambda a: (lambda u, s, vh: (u * s**2) @ vh)(*np.linalg.svd(a.mT, full_matrices=False)), tall(4, 3)),
    linalg("svd square batch", lambda a: (lambda u, s, vh: (u * s[:, None] ** 2) @ vh)(*np.linalg.svd(a)), tall(2, 3, 3)),
    linalg("svd values alone", lambda a: np.linalg.svd(a, compute_uv=False), tall(4, 3)),
    linalg("svdvals", np.linalg.svdvals, tall(2, 4, 3)),
    linalg("qr Q", lambda a: np.linalg.qr(a).Q, tall(4, 3)),
    linalg("qr R", lambda a: np.linalg.qr(a)[1], tall(4, 3)),
    linalg("qr mode r batch", lambda a: np.linalg.qr(a, mode="r"), invertible(2, 3, 3)),
    linalg("qr wide Q", lambda a: np.linalg.qr(a.mT).Q, tall(4, 3)),
    linalg("qr wide R", lambda a: np.linalg.qr(a.mT, mode="complete").R, tall(4, 3)),
    # Norms
    row("norm", np.linalg.norm, real(5)),
    row("norm of all", np.linalg.norm, real(2, 3, 2)),
    row("norm number", np.linalg.norm, real()),
    row("norm axis", lambda x: np.linalg.norm(x, axis=-1), real(3, 4)),
    row("norm axis keepdims", lambda x: np.linalg.norm(x, 2, 0, True), real(3, 4)),
    row("norm 1", lambda x: np.linalg.norm(x, 1), nonzero(4)),
    row("norm inf", lambda x: np.linalg.norm(x, np.inf, axis=0), Domain(lambda rng, s: distinct.draw(rng, s) + 2)(3, 4)),
    row("norm -inf", lambda x: np.linalg.norm(x, -np.inf, axis=(1,)), Domain(lambda rng, s: distinct.draw(rng, s) + 2)(3, 4)),
    row("norm 0", lambda x: np.linalg.norm(x, 0, axis=1), nonzero(3, 4)),
    row("norm 3", lambda x: np.linalg.norm(x, 3), nonzero(4)),
    row("norm 1.5 axis", lambda x: np.linalg.norm(x, 1.5, axis=1, keepdims=True), nonzero(3, 4)),
    row("norm -1", lambda x: np.linalg.norm(x, -1), nonzero(4)),
    row("norm fro", lambda x: np.linalg.norm(x, "fro"), real(3, 4)),
    row("norm axes", lambda x: np.linalg.norm(x, axis=(0, -1)), real(2, 3, 2)),
    row("norm matrix 1", lambda x: np.linalg.norm(x, 1), nonzero(3, 4)),
    row("norm matrix -1", lambda x: np.linalg.norm(x, -1), nonzero(3, 4)),
    row("norm matrix inf", lambda x: np.linalg.norm(x, np.inf, axis=(2, 0), keepdims=True), nonzero(3, 2, 4)),
    row("norm matrix -inf", lambda x: np.linalg.norm(x, -np.inf), nonzero(3, 4)),
    linalg("norm nuc", lambda x: np.linalg.norm(x, "nuc"), tall(4, 3)),
    linalg(
        "norm matrix 2",
        lambda x: np.linalg.norm(x, 2, axis=(0, 2), keepdims=True),
        Domain(lambda rng, s: tall.draw(rng, (2, 4, 3)).transpose(1, 0, 2))(4, 2, 3),
    ),
    linalg("norm matrix -2", lambda x: np.linalg.norm(x, -2), tall(4, 3)),
    row("vector_norm", np.linalg.vector_norm, real(2, 3)),
    row("vector_norm 3 axes", lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=3, keepdims=True), nonzero(2, 3, 2)),
    row("matrix_norm", lambda x: np.linalg.matrix_norm(x, keepdims=True), real(2, 3, 2)),
    row("matrix_norm 1", lambda x: np.linalg.matrix_norm(x, ord=1), nonzero(2, 3, 2)),
    linalg("cond", np.linalg.cond, tall(4, 3)),
    linalg("cond -2 batch", lambda x: np.linalg.cond(x, -2), tall(2, 3, 3)),
    linalg("cond fro", lambda x: np.linalg.cond(x, "fro"), invertible(3, 3)),
]

KINKS: list[Kink] = [
    Kink("norm at 0", np.linalg.norm, ([0.0, 0.0],), ([0.0, 0.0],)),
    Kink("norm at 0 by row", lambda x: np.linalg.norm(x, axis=1), ([[0.0, 0.0], [3.0, 4.0]],), ([[0.0, 0.0], [0.6, 0.8]],)),
    Kink("norm 1 at 0", lambda x: np.linalg.norm(x, 1), ([0.0, -2.0],), ([0.0, -1.0],)),
    Kink("norm 3 at 0", lambda x: np.linalg.norm(x, 3), ([0.0, 0.0],), ([0.0, 0.0],)),
    Kink("norm 1/2 with a 0", lambda x: np.linalg.norm(x, 0.5), ([0.0, 4.0],), ([0.0, 1.0],)),
    Kink("norm inf of equals", lambda x: np.linalg.norm(x, np.inf), ([2.0, -2.0],), ([0.5, -0.5],)),
    Kink("nuclear norm at 0", lambda x: np.linalg.norm(x, "nuc"), ([[0.0, 0.0], [0.0, 0.0]],), ([[0.0, 0.0], [0.0, 0.0]],)),
    Kink("matrix_power 0", lambda x: np.linalg.matrix_power(x, 0), ([[0.0, 1.0], [0.0, 0.0]],), ([[0.0, 0.0], [0.0, 0.0]],)),
]
