"""Linear algebra: inverses, factorisations, norms. Matrices stand in the last two axes, leading axes are a batch.

Conventions:
- cholesky, eigh and eigvalsh read one triangle of a symmetric matrix. The gradient stands in that triangle: an entry off the
  diagonal has the contributions of both its places, an entry that is not read has 0. So it agrees with differences.
- Equal eigenvalues (or singular values) leave their vectors free to turn: these have no derivative, and contributions through
  them are infinite or very large. The values themselves are fine.
- Vectors come from LAPACK with an arbitrary sign. A loss should not depend on it.
- The derivative of a norm at 0 is 0, and so is that of a singular value that is 0.

A factorisation in several parts (U, S, Vᵀ) is one node that packs them into one array, and an indexing node for each part.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.primitives.products import as_operand, at_the_end, transposed
from chainrule.autograd.primitives.reductions import with_reduced_axes
from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import PLAIN, Tensor, value_of

_1x1: Any = np.eye(1)
EighResult: Any = type(np.linalg.eigh(_1x1))  # NumPy's own named tuples
SVDResult: Any = type(np.linalg.svd(_1x1))
QRResult: Any = type(np.linalg.qr(_1x1))
SlogdetResult: Any = type(np.linalg.slogdet(_1x1))


def diagonal_matrix(d: Any) -> Any:
    """The matrices with these diagonals. d (…, n) -> (…, n, n)"""
    return np.where(np.eye(d.shape[-1], dtype=bool), np.expand_dims(d, -1), 0)


def half_diagonal(n: int, dtype: Any) -> Any:
    """1 below the diagonal, 1/2 on it, 0 above."""
    return np.tri(n, dtype=dtype) - np.eye(n, dtype=dtype) / 2


# Inverses


@primitive(np.linalg.inv)
def inv(a: Any) -> Any:
    """y = a⁻¹"""
    return np.linalg.inv(a)


@inv.rule("a", "∂L/∂{a} = -{y}ᵀ @ ∂L/∂{y} @ {y}ᵀ")
def inv_wrt_a(g: Any, y: Any, a: Any) -> Any:
    return -(transposed(y) @ g @ transposed(y))


@primitive()
def solve(a: Any, b: Any) -> Any:
    """y = a⁻¹ @ b, without the inverse.  a (…, n, n), b (…, n, k) -> y (…, n, k)"""
    return np.linalg.solve(a, b)


@solve.rule("a", "∂L/∂{a} = -({a}⁻ᵀ @ ∂L/∂{y}) @ {y}ᵀ")
def solve_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return unbroadcast(-(np.linalg.solve(transposed(a), g) @ transposed(y)), a.shape)


@solve.rule("b", "∂L/∂{b} = {a}⁻ᵀ @ ∂L/∂{y}")
def solve_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return unbroadcast(np.linalg.solve(transposed(a), g), b.shape)


@implements(np.linalg.solve)
def numpy_solve(a: Any, b: Any) -> Any:
    """np.linalg.solve: b is a vector if it has one axis, else matrices."""
    a, b = as_operand(a), as_operand(b)
    return np.squeeze(solve(a, np.expand_dims(b, -1)), -1) if b.ndim == 1 else solve(a, b)


@primitive(analytic=False)
def pinv(a: Any, *, rcond: Any = None) -> Any:
    """y = a⁺, the pseudo-inverse"""
    return np.linalg.pinv(a) if rcond is None else np.linalg.pinv(a, rcond)


@pinv.rule("a", "∂L/∂{a} = -{y}ᵀ G {y}ᵀ + (I - {a} {y}) Gᵀ {y} {y}ᵀ + {y}ᵀ {y} Gᵀ (I - {y} {a}), with G = ∂L/∂{y}")
def pinv_wrt_a(g: Any, y: Any, a: Any, rcond: Any = None) -> Any:
    """True while the rank stays the same: always near a matrix of full rank, else only for changes that keep it."""
    gT, yT = transposed(g), transposed(y)
    left, right = gT @ y @ yT, yT @ y @ gT
    return left - a @ (y @ left) + right - (right @ y) @ a - yT @ g @ yT


@implements(np.linalg.pinv)
def numpy_pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """np.linalg.pinv: singular values below rcond (or rtol) times the largest count as 0."""
    if hermitian:
        raise TypeError("np.linalg.pinv on Tensors has no hermitian=True; leave it out: the result is the same.")
    cutoff = rtol if rcond is None and rtol is not np._NoValue else rcond
    return pinv(a, rcond=value_of(cutoff))


@primitive(analytic=False)
def lstsq(a: Any, b: Any, *, rcond: Any = None) -> Any:
    """y = the smallest of the y with the least |a y - b|²"""
    return np.linalg.lstsq(a, b, rcond)[0]


@lstsq.rule("a", "∂L/∂{a} = ({b} - {a} {y}) Gᵀ P Pᵀ + Pᵀ {y} Gᵀ (I - P {a}) - Pᵀ G {y}ᵀ, with P = {a}⁺, G = ∂L/∂{y}")
def lstsq_wrt_a(g: Any, y: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    p = np.linalg.pinv(a, rcond)
    pT, gT = transposed(p), transposed(g)
    rows = pT @ y @ gT
    return (b - a @ y) @ (gT @ p @ pT) + rows - (rows @ p) @ a - pT @ g @ transposed(y)


@lstsq.rule("b", "∂L/∂{b} = ({a}⁺)ᵀ @ ∂L/∂{y}")
def lstsq_wrt_b(g: Any, y: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    return transposed(np.linalg.pinv(a, rcond)) @ g


@implements(np.linalg.lstsq)
def numpy_lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """np.linalg.lstsq: the solution, the squared residuals, the rank (a plain number) and the singular values."""
    a, b = as_operand(a), as_operand(b)
    columns = np.expand_dims(b, -1) if b.ndim == 1 else b
    x = lstsq(a, columns, rcond=rcond)
    _, _, rank, _ = np.linalg.lstsq(value_of(a), value_of(columns), rcond)
    overdetermined = rank == a.shape[1] < a.shape[0]
    residuals = np.sum(np.square(columns - a @ x), axis=0) if overdetermined else Tensor(np.zeros(0, x.dtype))
    return np.squeeze(x, -1) if b.ndim == 1 else x, residuals, rank, svdvals(a)


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """np.linalg.matrix_power, by repeated squaring. The power 0 is I, with derivative 0."""
    n = operator.index(n)
    if n == 0:
        return np.where(False, a, np.eye(a.shape[-1], dtype=a.dtype))
    square, power, n = a if n > 0 else inv(a), None, abs(n)
    while n:
        if n % 2:
            power = square if power is None else power @ square
        n //= 2
        square = square @ square if n else square
    return power


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """np.linalg.tensorsolve: the x with tensordot(a, x, x.ndim) = b."""
    a, b = as_operand(a), as_operand(b)
    if axes is not None:
        a = np.moveaxis(a, axes, range(a.ndim - len(axes), a.ndim))
    matrix = np.reshape(a, (b.size, b.size))
    return np.reshape(numpy_solve(matrix, np.ravel(b)), a.shape[b.ndim :])


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    """np.linalg.tensorinv: the inverse for tensordot over `ind` axes."""
    if ind <= 0:
        raise ValueError(f"ind is the number of first axes that the inverse sums over, at least 1; got {ind}.")
    matrix = np.reshape(a, (int(np.prod(a.shape[:ind])), -1))
    return np.reshape(inv(matrix), a.shape[ind:] + a.shape[:ind])


# Determinants


@primitive(np.linalg.det)
def det(a: Any) -> Any:
    """y = det a"""
    return np.linalg.det(a)


@det.rule("a", "∂L/∂{a} = ∂L/∂{y} · cofactors of {a}  (= ∂L/∂{y} · {y} {a}⁻ᵀ, but also right where {a} has no inverse)")
def det_wrt_a(g: Any, y: Any, a: Any) -> Any:
    return np.expand_dims(g, (-2, -1)) * cofactor(a)


@primitive(analytic=False)
def cofactor(a: Any) -> Any:
    """y[i, j] = ±det of a without row i and column j

    With a = U S Vᵀ it is ± U C Vᵀ, where C is diagonal and its entry i is the product of all singular values but i. So nothing
    is divided by, and singular matrices are as good as others.
    """
    u, s, vh = np.linalg.svd(a)
    return _orientation(u, vh) * (u @ (np.expand_dims(_product_of_others(s), -1) * vh))


@cofactor.rule(
    "a", "∂L/∂{a} = ± U (diag(P g) - P ∘ Gᵀ) Vᵀ, with G = Uᵀ ∂L/∂{y} V, g = diag G, P[i, j] = product of all S but i, j"
)
def cofactor_wrt_a(g: Any, y: Any, a: Any) -> Any:
    """In the frame of U and V: entry (i, i) of the cofactors changes with all other (j, j), entry (i, j) with (j, i)."""
    u, s, vh = np.linalg.svd(a)
    inner = transposed(u) @ g @ transposed(vh)
    eye = np.eye(s.shape[-1], dtype=bool)
    others = np.where(eye, 0, _product_of_others(np.where(eye, 1, np.expand_dims(s, -2))))  # [i, j]: of all but i and j
    on_diagonal = np.sum(others * np.expand_dims(np.diagonal(inner, axis1=-2, axis2=-1), -2), axis=-1)
    return _orientation(u, vh) * (u @ (diagonal_matrix(on_diagonal) - others * transposed(inner)) @ vh)


def _product_of_others(s: Any) -> Any:
    """By entry, the product of all the others along the last axis, without a division."""
    eye = np.eye(s.shape[-1], dtype=bool)
    return np.prod(np.where(eye, 1, np.expand_dims(s, -2)), axis=-1)


def _orientation(u: Any, vh: Any) -> Any:
    """det U · det V, which is 1 or -1."""
    return np.sign(np.linalg.det(value_of(u) @ value_of(vh)))[..., None, None]


@primitive(analytic=False)
def logabsdet(a: Any) -> Any:
    """y = log |det a|"""
    return np.linalg.slogdet(a)[1]


@logabsdet.rule("a", "∂L/∂{a} = ∂L/∂{y} · {a}⁻ᵀ")
def logabsdet_wrt_a(g: Any, y: Any, a: Any) -> Any:
    g = np.expand_dims(g, (-2, -1))
    unused = (value_of(g) == 0) & np.expand_dims(np.isneginf(value_of(y)), (-2, -1))  # need not have an inverse
    return g * transposed(np.linalg.inv(np.where(unused, np.eye(a.shape[-1], dtype=a.dtype), a)))


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """np.linalg.slogdet: the sign, a constant, and log |det a|.

    At a singular matrix log |det a| is -inf; asked for its gradient there, the rule raises LinAlgError.
    """
    return SlogdetResult(Tensor(np.linalg.slogdet(a.data)[0]), logabsdet(a))


# Factorisations


def in_triangle(full: Any, lower: bool) -> Any:
    """A gradient by all entries of a symmetric matrix, as one by the entries of the triangle that is read."""
    weights = half_diagonal(full.shape[-1], full.dtype)
    return (full + transposed(full)) * (weights if lower else weights.T)


def ratio(a: Any, b: Any) -> Any:
    """a / b, and 0 where both are 0."""
    both = (value_of(a) == 0) & (value_of(b) == 0)
    return np.where(both, 0, a / np.where(both, 1, b))


@primitive(analytic=False)
def cholesky(a: Any) -> Any:
    """y = the lower triangular matrix with y @ yᵀ = a, from the lower triangle of a"""
    return np.linalg.cholesky(a)


@cholesky.rule(
    "a", "∂L/∂{a} = Φ(S + Sᵀ), with S = {y}⁻ᵀ Φ({y}ᵀ ∂L/∂{y}) {y}⁻¹; Φ keeps the lower triangle, half of the diagonal"
)
def cholesky_wrt_a(g: Any, y: Any, a: Any) -> Any:
    inner = half_diagonal(a.shape[-1], a.dtype) * (transposed(y) @ g)
    s = np.linalg.solve(transposed(y), transposed(np.linalg.solve(transposed(y), transposed(inner))))
    return in_triangle(s, lower=True)


@implements(np.linalg.cholesky)
def numpy_cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """np.linalg.cholesky"""
    return transposed(cholesky(transposed(a))) if upper else cholesky(a)


@primitive(analytic=False)
def eigh(a: Any, *, UPLO: Any = "L") -> Any:
    """y = the eigenvalues of a symmetric matrix in the first row, under each its eigenvector"""
    w, v = np.linalg.eigh(a, UPLO)
    return np.concatenate([w[..., None, :], v], axis=-2)


@eigh.rule("a", "∂L/∂{a} = V (diag ∂L/∂w + F ∘ (Vᵀ ∂L/∂V)) Vᵀ, with F[i, j] = 1 / (w[j] - w[i]), 0 on the diagonal")
def eigh_wrt_a(g: Any, y: Any, a: Any, UPLO: str = "L") -> Any:
    (w, v), (gw, gv) = _eigenparts(y), _eigenparts(g)
    turn = transposed(v) @ gv
    turn = (turn - transposed(turn)) / 2  # the part that turns the vectors
    inner = diagonal_matrix(gw) + ratio(turn, np.expand_dims(w, -2) - np.expand_dims(w, -1))
    return in_triangle(v @ inner @ transposed(v), UPLO.upper() == "L")


def _eigenparts(packed: Any) -> tuple[Any, Any]:
    return packed[..., 0, :], packed[..., 1:, :]


@implements(np.linalg.eigh)
def numpy_eigh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigh: (eigenvalues, eigenvectors) as Tensors."""
    return EighResult(*_eigenparts(eigh(a, UPLO=UPLO)))


@primitive(np.linalg.eigvalsh, analytic=False)
def eigvalsh(a: Any, *, UPLO: Any = "L") -> Any:
    """y = the eigenvalues of a symmetric matrix, rising"""
    return np.linalg.eigvalsh(a, UPLO)


@eigvalsh.rule("a", "∂L/∂{a} = V diag(∂L/∂{y}) Vᵀ, with the eigenvectors V of {a}")
def eigvalsh_wrt_a(g: Any, y: Any, a: Any, UPLO: Any = "L") -> Any:
    v = np.linalg.eigh(a, UPLO)[1]
    return in_triangle((v * np.expand_dims(g, -2)) @ transposed(v), UPLO.upper() == "L")


@primitive(analytic=False)
def svd(a: Any) -> Any:
    """y = by row a left vector, its singular value, and the right vector: a = Σ over rows of value · left rightᵀ"""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.concatenate([np.swapaxes(u, -1, -2), s[..., None], vh], axis=-1)


@svd.rule(
    "a",
    "∂L/∂{a} = U (diag ∂L/∂S + (K S + S J) ∘ F) Vᵀ + (I - U Uᵀ) ∂L/∂U S⁻¹ Vᵀ + U S⁻¹ ∂L/∂Vᵀ (I - V Vᵀ), "
    "with F[i, j] = 1 / (S[j]² - S[i]²), K = Uᵀ ∂L/∂U - (…)ᵀ, J = Vᵀ ∂L/∂V - (…)ᵀ",
)
def svd_wrt_a(g: Any, y: Any, a: Any) -> Any:
    m, n = a.shape[-2:]
    (u, s, vh), (gu, gs, gvh) = _singular_parts(y, m), _singular_parts(g, m)
    of_row, of_column = np.expand_dims(s, -1), np.expand_dims(s, -2)
    turn_u, turn_v = transposed(u) @ gu, vh @ transposed(gvh)
    k, j = turn_u - transposed(turn_u), turn_v - transposed(turn_v)
    gaps = (of_column - of_row) * (of_column + of_row)
    contribution = u @ (diagonal_matrix(gs) + ratio(k * of_column + of_row * j, gaps)) @ vh
    if m > n:  # U can also leave its span
        contribution = contribution + ratio(gu - u @ turn_u, of_column) @ vh
    if n > m:
        contribution = contribution + u @ ratio(gvh - transposed(turn_v) @ vh, of_row)
    return contribution


def _singular_parts(packed: Any, m: int) -> tuple[Any, Any, Any]:
    return transposed(packed[..., :m]), packed[..., m], packed[..., m + 1 :]


@primitive(np.linalg.svdvals, analytic=False)
def svdvals(a: Any) -> Any:
    """y = the singular values, falling"""
    return np.linalg.svd(a, compute_uv=False)


@svdvals.rule("a", "∂L/∂{a} = U diag(∂L/∂{y}) Vᵀ, with the singular vectors U and V of {a}; 0 for a singular value 0")
def svdvals_wrt_a(g: Any, y: Any, a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return (u * np.expand_dims(np.where(value_of(y) == 0, 0, g), -2)) @ vh


@implements(np.linalg.svd)
def numpy_svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """np.linalg.svd: (U, S, Vh) as Tensors, or the singular values alone."""
    if hermitian:
        raise TypeError("np.linalg.svd on Tensors has no hermitian=True; leave it out, or use np.linalg.eigh.")
    if not compute_uv:
        return svdvals(a)
    m, n = a.shape[-2:]
    if full_matrices and m != n:
        raise TypeError(
            f"np.linalg.svd of a {m} x {n} matrix with full_matrices=True (NumPy's default) adds vectors that the matrix does "
            "not determine, so they have no derivative. Pass full_matrices=False."
        )
    return SVDResult(*_singular_parts(svd(a), m))


@primitive(analytic=False)
def qr(a: Any) -> Any:
    """y = Q above Rᵀ, where a = Q R, Q has orthonormal columns and R is upper triangular"""
    q, r = np.linalg.qr(a)
    return np.concatenate([q, np.swapaxes(r, -1, -2)], axis=-2)


@qr.rule("a", "∂L/∂{a} = (∂L/∂Q + Q M) R⁻ᵀ, with M the symmetric matrix of the lower triangle of R (∂L/∂R)ᵀ - (∂L/∂Q)ᵀ Q")
def qr_wrt_a(g: Any, y: Any, a: Any) -> Any:
    """For a wide a = [X Z], the formula is that of X = Q R, and Z = Q times the rest of R.

    Raises LinAlgError where R has no inverse: there a lacks full rank, and Q no derivative.
    """
    m = a.shape[-2]
    (q, r), (gq, gr) = _qr_parts(y, m), _qr_parts(g, m)
    k = q.shape[-1]
    gq = gq + a[..., k:] @ transposed(gr[..., k:])
    r, gr_rest, gr = r[..., :k], gr[..., k:], gr[..., :k]
    lower = half_diagonal(k, a.dtype) * (r @ transposed(gr) - transposed(gq) @ q)
    gx = transposed(np.linalg.solve(r, transposed(gq + q @ (lower + transposed(lower)))))
    return np.concatenate([gx, q @ gr_rest], axis=-1)


def _qr_parts(packed: Any, m: int) -> tuple[Any, Any]:
    return packed[..., :m, :], transposed(packed[..., m:, :])


@implements(np.linalg.qr)
def numpy_qr(a: Any, mode: str = "reduced") -> Any:
    """np.linalg.qr: (Q, R) as Tensors, or R alone with mode="r"."""
    m, n = a.shape[-2:]
    if mode not in ("reduced", "r", "complete") or (mode == "complete" and m > n):
        raise TypeError(
            f"np.linalg.qr on Tensors has the modes 'reduced' and 'r'; got {mode!r} for a {m} x {n} matrix. "
            "The further columns of a complete Q are not determined by the matrix, so they have no derivative."
        )
    q, r = _qr_parts(qr(a), m)
    return r if mode == "r" else QRResult(q, r)


# Norms


@primitive()
def euclidean_norm(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """y = √Σ x² over the axes"""
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


@euclidean_norm.rule("x", "∂L/∂{x} = ∂L/∂{y} · {x} / {y}, 0 where {y} is 0")
def euclidean_norm_wrt_x(g: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    g, y = with_reduced_axes(g, x, axis, keepdims), with_reduced_axes(y, x, axis, keepdims)
    at_0 = value_of(y) == 0
    return np.where(at_0, 0, g) * (x / np.where(at_0, 1, y))


@primitive(analytic=False)
def p_norm(x: Any, *, p: float, axis: Any = None, keepdims: bool = False) -> Any:
    """y = (Σ |x|ᵖ)^(1/p) over the axes"""
    return np.sum(np.abs(x) ** p, axis=axis, keepdims=keepdims) ** (1 / p)


@p_norm.rule("x", "∂L/∂{x} = ∂L/∂{y} · sign {x} · (|{x}| / {y})^({p} - 1), 0 where {x} is 0")
def p_norm_wrt_x(g: Any, y: Any, x: Any, p: float, axis: Any = None, keepdims: bool = False) -> Any:
    g, y = with_reduced_axes(g, x, axis, keepdims), with_reduced_axes(y, x, axis, keepdims)
    flat = (value_of(x) == 0) | (value_of(y) == 0)
    share = np.abs(np.where(flat, 1, x)) / np.where(flat, 1, y)
    return np.where(flat, 0, g) * np.sign(x) * share ** (p - 1)


def vector_norm_over(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    """The norm of the vectors along these axes."""
    if ord is None or ord == 2:
        return euclidean_norm(x, axis=axis, keepdims=keepdims)
    if ord == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if ord == 0:  # how many are not 0: a step function, with derivative 0
        return np.sum(np.abs(np.sign(x)), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order {ord!r} for vectors.")
    return p_norm(x, p=float(ord), axis=axis, keepdims=keepdims)


def matrix_norm_over(x: Any, ord: Any, axis: tuple[int, int], keepdims: bool) -> Any:
    """The norm of the matrices in these two axes."""
    if ord is None or ord == "fro":
        return euclidean_norm(x, axis=axis, keepdims=keepdims)
    x = at_the_end(x, *axis)
    match ord:
        case "nuc":
            norm = np.sum(svdvals(x), axis=-1)
        case 2:
            norm = np.max(svdvals(x), axis=-1)
        case -2:
            norm = np.min(svdvals(x), axis=-1)
        case 1:
            norm = np.max(np.sum(np.abs(x), axis=-2), axis=-1)
        case -1:
            norm = np.min(np.sum(np.abs(x), axis=-2), axis=-1)
        case np.inf:
            norm = np.max(np.sum(np.abs(x), axis=-1), axis=-1)
        case _ if ord == -np.inf:
            norm = np.min(np.sum(np.abs(x), axis=-1), axis=-1)
        case _:
            raise ValueError(f"Invalid norm order {ord!r} for matrices.")
    return np.expand_dims(norm, tuple(i % x.ndim for i in axis)) if keepdims else norm


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: of all entries, of a vector or matrix, or of those along the axis (or two axes)."""
    if axis is None and (ord is None or x.ndim == 1):
        return vector_norm_over(x, ord, None, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis) if np.ndim(axis) else (axis,)
    if len(axes) == 1:
        return vector_norm_over(x, ord, axes, keepdims)
    if len(axes) == 2:
        return matrix_norm_over(x, ord, axes, keepdims)
    raise ValueError(f"A norm is over one axis (vectors) or two (matrices); got {len(axes)}. See np.linalg.vector_norm.")


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm: over any axes, all if None."""
    return vector_norm_over(x, ord, axis, keepdims)


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm: of the matrices in the last two axes."""
    return matrix_norm_over(x, ord, (-2, -1), keepdims)


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    """np.linalg.cond: the largest singular value over the smallest, or |x| · |x⁻¹| in the norm p."""
    if p is None or p in (2, -2):
        s = svdvals(x)
        with np.errstate(divide="ignore"):  # a singular matrix: inf
            return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return matrix_norm_over(x, p, (-2, -1), False) * matrix_norm_over(inv(x), p, (-2, -1), False)


PLAIN.add(np.linalg.matrix_rank)
