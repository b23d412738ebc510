"""Products: of matrices, of vectors, and sums of products over any axes (tensordot, einsum).

All are linear in each operand, so the contribution to one is the adjoint's product with the others. A zero in the adjoint
contributes exactly zero even where another operand is infinite; the chain rule sees to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy import ndarray

from chainrule.autograd.broadcasting import unbroadcast
from chainrule.autograd.rules import implements, primitive
from chainrule.autograd.tensor import PLAIN, Tensor


def transposed(a: Any) -> Any:
    """aᵀ in the last two axes."""
    return a.T if a.ndim == 2 else np.swapaxes(a, -1, -2)


def as_operand(a: Any) -> Any:
    """`a`, with numbers and lists as arrays."""
    return a if isinstance(a, Tensor) else np.asarray(a)


def at_the_end(x: Any, *axes: int) -> Any:
    """`x` with these axes moved to the end; `x` itself if they stand there."""
    x = as_operand(x)
    last = tuple(range(-len(axes), 0))
    return x if tuple(axis - x.ndim if axis >= 0 else axis for axis in axes) == last else np.moveaxis(x, axes, last)


def sequence(x: Any) -> Any:
    """`x` as a vector, if it is a number."""
    x = as_operand(x)
    return x if x.ndim else np.reshape(x, 1)


# Matrices


@primitive(np.matmul, linear="each")
def matmul(a: Any, b: Any) -> Any:
    """y = a @ b.  a (…, n, k), b (…, k, m) -> y (…, n, m); vectors as in np.matmul"""
    try:
        if a.ndim == b.ndim == 2:
            return a.dot(b)  # the same product as np.matmul's, which takes longer to start
    except AttributeError:
        raise TypeError(f"a @ b multiplies matrices and vectors; got {a!r} @ {b!r}. For a number use a * b.") from None
    if a.ndim > 2 and b.ndim == 2:  # one large product instead of many small ones
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1]) if a.size else np.matmul(a, b)
    return np.matmul(a, b)


@matmul.rule("a", "∂L/∂{a} = ∂L/∂{y} @ {b}ᵀ")
def matmul_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    if a.ndim == b.ndim == 2:
        return g.dot(b.T)
    if b.ndim == 1:
        return unbroadcast(np.expand_dims(g, -1) * b, a.shape)
    if a.ndim == 1:
        return unbroadcast(np.sum(b * np.expand_dims(g, -2), axis=-1), a.shape)
    return unbroadcast(g @ transposed(b), a.shape)


@matmul.rule("b", "∂L/∂{b} = {a}ᵀ @ ∂L/∂{y}")
def matmul_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    if a.ndim == b.ndim == 2:
        return a.T.dot(g) if type(g) is ndarray else np.dot(a.T, g)
    if a.ndim == 1 and b.ndim == 1:
        return g * a
    if a.ndim == 1:
        return unbroadcast(np.expand_dims(a, -1) * np.expand_dims(g, -2), b.shape)
    if b.ndim == 1:
        return unbroadcast(np.sum(a * np.expand_dims(g, -1), axis=-2), b.shape)
    if b.ndim == 2 and a.size and g.size:  # the sum over the batch is part of the product
        return np.reshape(a, (-1, a.shape[-1])).T @ np.reshape(g, (-1, g.shape[-1]))
    return unbroadcast(transposed(a) @ g, b.shape)


@implements(np.linalg.matmul)
def linalg_matmul(a: Any, b: Any) -> Any:
    """np.linalg.matmul"""
    return matmul(a, b)


@implements(np.dot)
def dot(a: Any, b: Any) -> Any:
    """np.dot: over the last axis of a and the last but one of b."""
    a, b = as_operand(a), as_operand(b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    return matmul(a, b) if b.ndim <= 2 else np.tensordot(a, b, (-1, -2))


def matvec(a: Any, v: Any) -> Any:
    """np.matvec: a (…, n, k), v (…, k) -> (…, n)"""
    return np.squeeze(matmul(a, np.expand_dims(v, -1)), -1)


def vecmat(v: Any, a: Any) -> Any:
    """np.vecmat: v (…, k), a (…, k, m) -> (…, m)"""
    return np.squeeze(matmul(np.expand_dims(v, -2), a), -2)


if hasattr(np, "matvec"):  # since NumPy 2.2
    implements(np.matvec)(matvec)
    implements(np.vecmat)(vecmat)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any]) -> Any:
    """np.linalg.multi_dot: the product of matrices, in the order of fewest multiplications. The ends may be vectors."""
    arrays = [as_operand(array) for array in arrays]
    n = len(arrays)
    if n < 2:
        raise ValueError(f"multi_dot multiplies at least two arrays; got {n}.")
    rows = [array.shape[-2] if array.ndim == 2 else array.shape[-1] for array in arrays]
    if arrays[0].ndim == 1:
        rows[0] = 1
    sizes = [*rows, arrays[-1].shape[-1] if arrays[-1].ndim == 2 else 1]  # arrays[i] is (sizes[i], sizes[i + 1])
    cost = {(i, i): 0 for i in range(n)}  # of the product of arrays[first] … arrays[last]
    middle = {}  # where it splits
    for length in range(1, n):
        for first in range(n - length):
            last = first + length
            ends = sizes[first] * sizes[last + 1]
            splits = [(cost[first, k] + cost[k + 1, last] + ends * sizes[k + 1], k) for k in range(first, last)]
            cost[first, last], middle[first, last] = min(splits)

    def product(first: int, last: int) -> Any:
        if first == last:
            return arrays[first]
        k = middle[first, last]
        return dot(product(first, k), product(k + 1, last))

    return product(0, n - 1)


# Vectors


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    """np.vdot: every entry of a times its partner in b, summed."""
    return matmul(np.ravel(a), np.ravel(b))


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    """np.inner: over the last axis of both."""
    a, b = as_operand(a), as_operand(b)
    return np.tensordot(a, b, (-1, -1)) if a.ndim and b.ndim else a * b


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """np.vecdot: over one axis of both; the others broadcast."""
    if np.shape(x1)[axis] != np.shape(x2)[axis]:
        raise ValueError(f"vecdot needs axis {axis} of one length; got the shapes {np.shape(x1)} and {np.shape(x2)}.")
    return np.einsum("...i,...i->...", at_the_end(x1, axis), at_the_end(x2, axis))


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any) -> Any:
    """np.outer: every entry of a times every entry of b."""
    return np.expand_dims(np.ravel(a), 1) * np.ravel(b)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    """np.kron: every entry of a times all of b, block by block."""
    a, b = as_operand(a), as_operand(b)
    ndim = max(a.ndim, b.ndim)
    a = np.reshape(a, (1,) * (ndim - a.ndim) + a.shape)
    b = np.reshape(b, (1,) * (ndim - b.ndim) + b.shape)
    blocks = np.expand_dims(a, tuple(range(1, 2 * ndim, 2))) * np.expand_dims(b, tuple(range(0, 2 * ndim, 2)))
    return np.reshape(blocks, tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@primitive(linear="each")
def cross(a: Any, b: Any) -> Any:
    """y = a × b, of vectors in space along the last axis"""
    return np.cross(a, b)


@cross.rule("a", "∂L/∂{a} = {b} × ∂L/∂{y}")
def cross_wrt_a(g: Any, y: Any, a: Any, b: Any) -> Any:
    return unbroadcast(np.cross(b, g), a.shape)


@cross.rule("b", "∂L/∂{b} = ∂L/∂{y} × {a}")
def cross_wrt_b(g: Any, y: Any, a: Any, b: Any) -> Any:
    return unbroadcast(np.cross(g, a), b.shape)


@implements(np.cross)
def numpy_cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """np.cross, of vectors with three components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = at_the_end(a, axisa), at_the_end(b, axisb)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(
            f"np.cross on Tensors takes vectors of 3 components; got {a.shape[-1]} and {b.shape[-1]}. "
            "In the plane, write a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]."
        )
    y = cross(a, b)
    return y if axisc == -1 else np.moveaxis(y, -1, axisc)


@implements(np.linalg.cross)
def linalg_cross(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """np.linalg.cross"""
    return numpy_cross(x1, x2, axis=axis)


# Sequences


@primitive(linear="each")
def convolve(a: Any, v: Any) -> Any:
    """y[k] = Σ a[i] · v[k - i], wherever the two overlap"""
    return np.convolve(a, v)


@convolve.rule("a", "∂L/∂{a} = Σ over j of ∂L/∂{y}[i + j] · {v}[j]")
def convolve_wrt_a(g: Any, y: Any, a: Any, v: Any) -> Any:
    return np.correlate(g, v, "valid")


@convolve.rule("v", "∂L/∂{v} = Σ over i of ∂L/∂{y}[i + j] · {a}[i]")
def convolve_wrt_v(g: Any, y: Any, a: Any, v: Any) -> Any:
    return np.correlate(g, a, "valid")


@implements(np.convolve)
def numpy_convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve: the full one, or the part of it that the mode asks for."""
    shorter, longer = sorted((np.size(a), np.size(v)))
    return _part(convolve(sequence(a), sequence(v)), shorter, longer, mode)


@implements(np.correlate)
def numpy_correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate: the convolution of a with v backwards."""
    a, v = sequence(a), sequence(v)
    if a.size >= v.size:
        return _part(convolve(a, v[::-1]), v.size, a.size, mode)
    return _part(convolve(v, a[::-1]), a.size, v.size, mode)[::-1]


def _part(full: Any, shorter: int, longer: int, mode: str) -> Any:
    """The part of a full convolution that a mode of NumPy's keeps."""
    match mode:
        case "full":
            return full
        case "same":
            start = (shorter - 1) // 2
            return full[start : start + longer]
        case "valid":
            return full[shorter - 1 : longer]
    raise ValueError(f"mode is 'full', 'same' or 'valid'; got {mode!r}.")


# Sums of products over any axes


@primitive(linear="each")
def tensordot(a: Any, b: Any, *, axes: Any) -> Any:
    """y = the sum of products over these axes of a and of b; y has the other axes of a, then those of b"""
    return np.tensordot(a, b, axes)


@tensordot.rule("a", "∂L/∂{a} = ∂L/∂{y} times {b}, summed over the other axes of {b}")
def tensordot_wrt_a(g: Any, y: Any, a: Any, b: Any, axes: Any) -> Any:
    of_a, of_b = axes
    kept, kept_b = _others(a.ndim, of_a), _others(b.ndim, of_b)
    product = np.tensordot(g, b, (tuple(range(len(kept), g.ndim)), kept_b))
    partners = (of_a[k] for k in _inverse(of_b))  # what is left of b stands in b's order
    return np.transpose(product, _inverse((*kept, *partners)))


@tensordot.rule("b", "∂L/∂{b} = {a} times ∂L/∂{y}, summed over the other axes of {a}")
def tensordot_wrt_b(g: Any, y: Any, a: Any, b: Any, axes: Any) -> Any:
    of_a, of_b = axes
    kept_a, kept = _others(a.ndim, of_a), _others(b.ndim, of_b)
    product = np.tensordot(a, g, (kept_a, tuple(range(len(kept_a)))))
    partners = (of_b[k] for k in _inverse(of_a))
    return np.transpose(product, _inverse((*partners, *kept)))


def _others(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis not in axes)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


@implements(np.tensordot, np.linalg.tensordot)
def numpy_tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """np.tensordot: `axes` is a number of axes, or the axes of a and those of b."""
    a, b = as_operand(a), as_operand(b)
    if not isinstance(axes, Iterable):
        axes = range(-axes, 0), range(axes)
    of_a, of_b = ([pair] if isinstance(pair, int) else list(pair) for pair in axes)
    if len(of_a) != len(of_b) or any(a.shape[i] != b.shape[j] for i, j in zip(of_a, of_b, strict=True)):
        raise ValueError(f"tensordot sums over axes of equal lengths; got {of_a} of {a.shape} and {of_b} of {b.shape}.")
    return tensordot(a, b, axes=(tuple(int(i) % a.ndim for i in of_a), tuple(int(j) % b.ndim for j in of_b)))


@primitive(linear="each")
def einsum(*operands: Any, subscripts: str, optimize: Any = False) -> Any:
    """y = the sum of products that the subscripts say, such as ij,jk->ik"""
    return np.einsum(subscripts, *operands, optimize=optimize)


@einsum.joint_rule({"operands": "∂L/∂{operands} = einsum of ∂L/∂{y} and the other operands, over {subscripts} turned round"})
def einsum_wrt_operands(g: Any, y: Any, *operands: Any, subscripts: str, optimize: Any = False) -> list[Any]:
    *terms, output = subscripts.replace("->", ",").split(",")
    return [_einsum_wrt(i, g, operands, terms, output, bool(optimize)) for i in range(len(operands))]


def _einsum_wrt(position: int, g: Any, operands: Sequence[Any], terms: Sequence[str], output: str, optimize: bool) -> Any:
    """The contribution to one operand: ij,jk->ik gives ik,jk->ij for the first.

    An index that the operand repeats (ii) has a derivative on the diagonal only: a factor I. Along an index that nobody else
    has, the contribution is the same everywhere; along an axis of length 1 that was repeated, it is summed.
    """
    x = operands[position]
    factors = [g, *(operand for i, operand in enumerate(operands) if i != position)]
    factor_terms = [output, *(term for i, term in enumerate(terms) if i != position)]
    unused = (letter for letter in ascii_letters if letter not in "".join(terms))
    indices = ""
    for axis, index in enumerate(terms[position]):
        if index in indices:
            twin = next(unused)
            factors.append(np.eye(x.shape[axis], dtype=x.dtype))
            factor_terms.append(index + twin)
            index = twin
        indices += index
    known = "".join(factor_terms)
    alike = tuple(axis for axis, index in enumerate(indices) if index not in known or x.shape[axis] == 1)
    kept = "".join(index for axis, index in enumerate(indices) if axis not in alike)
    contribution = np.einsum(f"{','.join(factor_terms)}->{kept}", *factors, optimize=optimize)
    contribution = np.expand_dims(contribution, alike)
    return contribution if contribution.shape == x.shape else np.broadcast_to(contribution, x.shape)


@implements(np.einsum)
def numpy_einsum(*operands: Any, optimize: Any = False) -> Any:
    """np.einsum, by subscripts or by lists of indices."""
    if isinstance(operands[0], str):
        inputs, arrow, output = operands[0].replace(" ", "").partition("->")
        terms, arrays, explicit = inputs.split(","), operands[1:], bool(arrow)
    else:
        arrays, lists = operands[0 : len(operands) // 2 * 2 : 2], operands[1::2]
        terms, explicit = [_letters(indices) for indices in lists], len(operands) % 2 == 1
        output = _letters(operands[-1]) if explicit else ""
    arrays = tuple(map(as_operand, arrays))
    if len(terms) != len(arrays):
        raise ValueError(f"einsum has subscripts for {len(terms)} operands; got {len(arrays)}.")

    # name the axes under an ellipsis, which are aligned at their right
    hidden = [array.ndim - len(term) + 3 if "..." in term else 0 for term, array in zip(terms, arrays, strict=True)]
    names = "".join(letter for letter in ascii_letters if letter not in "".join(terms))[: max(0, *hidden)]
    terms = [term.replace("...", names[len(names) - n :]) for term, n in zip(terms, hidden, strict=True)]
    if not explicit:
        labels = "".join(terms)
        output = names + "".join(sorted(index for index in set(labels) if index not in names and labels.count(index) == 1))
    elif names and "..." not in output:
        raise ValueError(f"einsum keeps the axes under an ellipsis: the output needs '...' too; got {output!r}.")
    return einsum(*arrays, subscripts=f"{','.join(terms)}->{output.replace('...', names)}", optimize=optimize)


def _letters(indices: Sequence[Any]) -> str:
    """A list of indices as subscripts; capitals first, as NumPy orders them."""
    return "".join("..." if index is Ellipsis else (ascii_uppercase + ascii_lowercase)[index] for index in indices)


# The trace


@primitive(linear="each")
def trace(x: Any, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """y = Σ x[i, i + offset]"""
    return np.trace(x, offset, axis1, axis2)


@trace.rule("x", "∂L/∂{x} = ∂L/∂{y} · I, its ones on the diagonal that was summed")
def trace_wrt_x(g: Any, y: Any, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    on_diagonal = np.eye(x.shape[axis1], x.shape[axis2], offset, dtype=bool)
    return np.moveaxis(np.where(on_diagonal, np.expand_dims(g, (-2, -1)), 0), (-2, -1), (axis1, axis2))


@implements(np.trace)
def numpy_trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.trace"""
    return trace(a, offset=offset, axis1=axis1, axis2=axis2)


@implements(np.linalg.trace)
def linalg_trace(x: Any, *, offset: int = 0) -> Any:
    """np.linalg.trace: of the matrices in the last two axes."""
    return trace(x, offset=offset, axis1=-2, axis2=-1)


@implements(np.linalg.diagonal)
def linalg_diagonal(x: Any, *, offset: int = 0) -> Any:
    """np.linalg.diagonal: of the matrices in the last two axes."""
    return np.diagonal(x, offset, axis1=-2, axis2=-1)


@implements(np.linalg.matrix_transpose)
def linalg_matrix_transpose(x: Any) -> Any:
    """np.linalg.matrix_transpose: of the matrices in the last two axes."""
    return transposed(x)


PLAIN.add(np.einsum_path)
