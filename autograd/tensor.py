"""The Tensor: an array, and the record of the operation that made it.

A Tensor is its own graph node. It keeps the inputs of its operation as an ordered tuple (`x * x` has two edges), the
arrays they held at that moment, and the primitive whose rules differentiate it. Nodes point only at older nodes, so
creation order is a topological order and there are no reference cycles.

NumPy hands every `np.` function of a Tensor to `__array_ufunc__` or `__array_function__`; `DISPATCH` says what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from weakref import WeakSet

import numpy as np
from numpy import absolute, add, divide, matmul, multiply, negative, power, subtract
from numpy.typing import ArrayLike, DTypeLike, NDArray

from chainrule.autograd.modes import MODE

if TYPE_CHECKING:
    from chainrule.autograd.primitives.indexing import At
    from chainrule.autograd.reverse import Step
    from chainrule.autograd.rules import Primitive

Array = NDArray[Any]

DISPATCH: dict[Callable[..., Any], Callable[..., Any]] = {}  # NumPy function -> what it does with Tensors
CHAIN_RULE: dict[str, Callable[..., Any]] = {}  # backward, backward_steps: put here by reverse.py, which builds on this file
PLAIN: set[Callable[..., Any]] = set()  # NumPy functions without a derivative: they see plain arrays

OBJECTS = np.dtype(object)  # of a Value, and of an array of them

creation_order = count()


class Source(NamedTuple):
    """The line of code that made a node."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def frozen(array: Array) -> Array:
    """`array` itself when nobody can write to it, else a read-only copy.

    A graph holds only such arrays, so no write between forward and backward can bend a gradient.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
            return array
        base = base.base
    if base is None or isinstance(base, bytes):
        return array
    return array.copy()  # of memory that something else may write to: a bytearray, a file


def value_of(x: Any) -> Any:
    """The plain value of `x`: the array of a Tensor, the same inside lists and tuples, anything else as it is."""
    if isinstance(x, Tensor):
        return x._array
    if type(x) in (list, tuple):
        return type(x)(value_of(item) for item in x)
    return x


def options_of(node: Tensor) -> dict[str, Any]:
    """The options the operation was called with, without what its kernel saved for the rules."""
    return {key: value for key, value in node.options.items() if key != "saved"}


class Watch:
    """What was asked of one node: to keep its adjoint, and hooks to call with it."""

    __slots__ = ("__weakref__", "hooks", "retain")

    def __init__(self) -> None:
        self.retain = False
        self.hooks: list[Callable[[Any], Any]] = []


HOOKED: WeakSet[Watch] = WeakSet()  # those with hooks


class Tensor:
    """An array whose operations are recorded, so that gradients can be followed back node by node.

    Args:
        data: numbers, nested lists, or a NumPy array of a real dtype; it is copied. Python numbers become float64 (or
            the `default_dtype`); arrays keep their dtype.
        requires_grad: whether `backward()` should leave ∂L/∂self in `self.grad`.
        name: what ledgers, drawings and the debugger call it.
        dtype: convert to this dtype.

    Attributes:
        data: the array, read-only. Assign a new array of the same shape and dtype to change a leaf.
        grad: after `backward()`, an array of the shape and dtype of `data`; None before. Leaves accumulate; an interior
            node has one only if asked by `retain_grad()` or `backward(retain_grad=True)`, fresh each time.
        inputs: what the operation was applied to, in order: Tensors, arrays, numbers. Empty for a leaf.
        values: the same with each Tensor replaced by the array it held then.
        primitive: the operation; None for a leaf. `options` are its keyword arguments.
        index: creation number; every input has a smaller one.
        scope, source: the module, and (if recorded) the line of code, that made the node.

    Raises:
        TypeError: for integers that ask for a gradient, complex numbers, objects, or a list that holds Tensors.
    """

    __slots__ = (
        "__weakref__", "_array", "_watch", "grad", "index", "inputs", "name", "options", "primitive", "requires_grad",
        "scope", "source", "values",
    )  # fmt: skip
    __hash__ = object.__hash__  # nodes are keys by identity; == compares values, as in NumPy

    _array: Array
    grad: Any
    requires_grad: bool
    name: str | None
    inputs: tuple[Any, ...]
    values: tuple[Any, ...]
    options: dict[str, Any]
    primitive: Primitive | None
    index: int
    scope: str
    source: Source | None
    _watch: Watch | None

    def __init__(self, data: Any, requires_grad: bool = False, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        self._array = _as_leaf_array(data, dtype)
        if requires_grad and self._array.dtype.kind != "f":
            raise TypeError(
                f"Only floating-point tensors can have a gradient; got dtype {self._array.dtype}"
                f"{f' for {name!r}' if name else ''}. Convert it first: data.astype(float)."
            )
        check_name(name)
        self.grad = self.source = None
        self.requires_grad = requires_grad
        self.name = name
        self.inputs = self.values = ()
        self.options = {}
        self.primitive = None
        self.index = next(creation_order)
        self.scope = MODE.get().scope
        self._watch = None

    # What it is

    @property
    def data(self) -> Array:
        """The array, read-only."""
        return self._array

    @data.setter
    def data(self, array: ArrayLike) -> None:
        if self.primitive is not None:
            raise TypeError(f"{self.path} was computed by {self.primitive.name}; only the data of a leaf can be replaced.")
        new = np.asarray(value_of(array))
        if new.shape != self._array.shape:
            raise ValueError(f"New data must keep the shape {self._array.shape} of {self.path}; got {new.shape}.")
        self._array = frozen(new.astype(self._array.dtype, copy=False))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def is_leaf(self) -> bool:
        """True if no operation made it."""
        return self.primitive is None

    @property
    def label(self) -> str:
        """Its name; `Kᵀ` or `(Z@WO)` if made so from named tensors; else operation and number, such as `tanh#12`."""
        if self.name:
            return self.name
        operation = self.primitive.name if self.primitive else "tensor"
        names = [getattr(x, "name", None) for x in self.inputs]
        if operation in ("transpose", "swapaxes") and self.ndim == 2 and names[0]:
            return f"{names[0]}ᵀ"
        if operation == "matmul" and all(names):
            return f"({names[0]}@{names[1]})"
        return f"{operation}#{self.index}"

    @property
    def path(self) -> str:
        """Its label under its scope, such as `blocks.0.attn.S`."""
        return f"{self.scope}.{self.label}" if self.scope else self.label

    def __repr__(self) -> str:
        text = np.array2string(self._array, separator=", ", prefix="Tensor(")
        dtype = f", dtype={self.dtype}" if self.dtype != np.float64 else ""
        name = f", name={self.name!r}" if self.name else ""
        made = f", from {self.primitive.name}" if self.primitive else ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({text}{dtype}{name}{made})"

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self._array)))

    def item(self) -> Any:
        """The one number in it. Raises ValueError if it holds more."""
        return self._array.item()

    def __float__(self) -> float:
        return float(self._array.item())

    def __int__(self) -> int:
        return int(self._array.item())

    def __index__(self) -> int:
        return self._array.__index__()

    def __bool__(self) -> bool:
        return bool(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if self.requires_grad:
            raise TypeError(
                f"Converting {self.path} to an ndarray would silently drop its gradient. "
                f"Use np. functions on the tensor itself, or .data for the plain values."
            )
        return np.array(self._array, dtype=dtype, copy=copy)

    # Gradients

    def backward(self, gradient: ArrayLike | None = None, *, create_graph: bool = False, retain_grad: bool = False) -> None:
        """Add ∂self/∂leaf to the `.grad` of every leaf that requires one. See `chainrule.autograd.reverse`."""
        CHAIN_RULE["backward"](self, gradient, create_graph=create_graph, retain_grad=retain_grad)

    def backward_steps(self, gradient: ArrayLike | None = None, *, create_graph: bool = False) -> Iterator[Step]:
        """The chain rule, one `Step` a node, from self to the leaves; no `.grad` is touched."""
        steps: Iterator[Step] = CHAIN_RULE["backward_steps"](self, gradient, create_graph=create_graph)
        return steps

    def retain_grad(self) -> Tensor:
        """Ask that backward leave this interior node's adjoint in `.grad`, fresh each time. Returns self."""
        self._watched().retain = True
        return self

    def register_hook(self, hook: Callable[[Any], Any]) -> Callable[[], None]:
        """Have `hook(adjoint)` called whenever the chain rule has this tensor's adjoint complete.

        What it returns, unless None, takes the adjoint's place from there on; it must have the same shape. While any tensor
        has a hook, backward takes the slower way that checks every contribution, so that hooks run once. Returns the
        function that removes the hook again. Raises ValueError if the tensor requires no gradient.
        """
        if not self.requires_grad:
            raise ValueError(f"{self.path} requires no gradient, so a hook on it would never be called.")
        watch = self._watched()
        watch.hooks.append(hook)
        HOOKED.add(watch)

        def remove() -> None:
            if hook in watch.hooks:
                watch.hooks.remove(hook)
            if not watch.hooks:
                HOOKED.discard(watch)

        return remove

    def _watched(self) -> Watch:
        if self._watch is None:
            self._watch = Watch()
        return self._watch

    def detach(self) -> Tensor:
        """The same values as a constant: no gradient flows through it."""
        return Tensor(self._array, name=self.name)

    # Operators. `x += y` rebinds x to x + y: a node is never changed.

    def __add__(self, other: Any) -> Any:
        return DISPATCH[add](self, other)

    def __radd__(self, other: Any) -> Any:
        return DISPATCH[add](other, self)

    def __sub__(self, other: Any) -> Any:
        return DISPATCH[subtract](self, other)

    def __rsub__(self, other: Any) -> Any:
        return DISPATCH[subtract](other, self)

    def __mul__(self, other: Any) -> Any:
        return DISPATCH[multiply](self, other)

    def __rmul__(self, other: Any) -> Any:
        return DISPATCH[multiply](other, self)

    def __truediv__(self, other: Any) -> Any:
        return DISPATCH[divide](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return DISPATCH[divide](other, self)

    def __pow__(self, other: Any) -> Any:
        return DISPATCH[power](self, other)

    def __rpow__(self, other: Any) -> Any:
        return DISPATCH[power](other, self)

    def __matmul__(self, other: Any) -> Any:
        return DISPATCH[matmul](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return DISPATCH[matmul](other, self)

    def __floordiv__(self, other: Any) -> Any:
        return np.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return np.floor_divide(other, self)

    def __divmod__(self, other: Any) -> Any:
        return np.divmod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return np.divmod(other, self)

    def __mod__(self, other: Any) -> Any:
        return np.remainder(self, other)

    def __rmod__(self, other: Any) -> Any:
        return np.remainder(other, self)

    def __neg__(self) -> Any:
        return DISPATCH[negative](self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Any:
        return DISPATCH[absolute](self)

    def __eq__(self, other: Any) -> Any:
        return self._array == value_of(other)

    def __ne__(self, other: Any) -> Any:
        return self._array != value_of(other)

    def __lt__(self, other: Any) -> Any:
        return self._array < value_of(other)

    def __le__(self, other: Any) -> Any:
        return self._array <= value_of(other)

    def __gt__(self, other: Any) -> Any:
        return self._array > value_of(other)

    def __ge__(self, other: Any) -> Any:
        return self._array >= value_of(other)

    def __getitem__(self, key: Any) -> Any:
        return DISPATCH[getitem](self, value_of(key))

    @property
    def at(self) -> At:
        """`x.at[key].set(v)`, `.add(v)`, `.multiply(v)`, …: a copy changed at [key], with gradients to x and v."""
        from chainrule.autograd.primitives.indexing import At

        return At(self)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"A node's values cannot be assigned ({self.path}[...] = ...): the graph would no longer be true. "
            "Build a new tensor instead: x = x.at[...].set(value), or np.where(mask, value, x)."
        )

    # Methods of ndarray

    @property
    def T(self) -> Any:
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        return np.matrix_transpose(self)

    @property
    def real(self) -> Tensor:
        return self

    @property
    def imag(self) -> Any:
        return np.imag(self)

    def conj(self) -> Any:
        return np.conjugate(self)

    def conjugate(self) -> Any:
        return np.conjugate(self)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        return np.clip(self, min, max)

    def round(self, decimals: int = 0) -> Any:
        return np.round(self, decimals)

    def sum(self, axis: Any = None, dtype: None = None, out: None = None, keepdims: bool = False) -> Any:
        return np.sum(self, axis, dtype, out, keepdims)

    def mean(self, axis: Any = None, dtype: None = None, out: None = None, keepdims: bool = False) -> Any:
        return np.mean(self, axis, dtype, out, keepdims)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return np.max(self, axis, out, keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return np.min(self, axis, out, keepdims)

    def prod(self, axis: Any = None, dtype: None = None, out: None = None, keepdims: bool = False) -> Any:
        return np.prod(self, axis, dtype, out, keepdims)

    def var(self, axis: Any = None, dtype: None = None, out: None = None, ddof: float = 0, keepdims: bool = False) -> Any:
        return np.var(self, axis, dtype, out, ddof, keepdims)

    def std(self, axis: Any = None, dtype: None = None, out: None = None, ddof: float = 0, keepdims: bool = False) -> Any:
        return np.std(self, axis, dtype, out, ddof, keepdims)

    def cumsum(self, axis: int | None = None, dtype: None = None, out: None = None) -> Any:
        return np.cumsum(self, axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: None = None, out: None = None) -> Any:
        return np.cumprod(self, axis, dtype, out)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.any(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        return np.all(self, axis=axis, keepdims=keepdims)

    def dot(self, other: Any) -> Any:
        return np.dot(self, other)

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def ravel(self, order: Any = "C") -> Any:
        return np.ravel(self, order)

    def flatten(self, order: Any = "C") -> Any:
        return np.ravel(self, order)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        return np.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Any:
        return np.squeeze(self, axis=axis)

    def repeat(self, repeats: Any, axis: int | None = None) -> Any:
        return np.repeat(self, repeats, axis)

    def take(self, indices: Any, axis: int | None = None, out: None = None, mode: Any = "raise") -> Any:
        return np.take(self, indices, axis, out, mode)

    def compress(self, condition: Any, axis: int | None = None) -> Any:
        return np.compress(condition, self, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        return np.diagonal(self, offset, axis1, axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        return np.trace(self, offset, axis1, axis2)

    def choose(self, choices: Any, out: None = None, mode: Any = "raise") -> Any:
        return np.choose(self, choices, out, mode)

    def sort(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"x.sort() sorts in place, but a node never changes ({self.path}). Use np.sort(x), a sorted copy.")

    def partition(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"x.partition() works in place, but a node never changes ({self.path}). Use np.partition(x, kth).")

    def astype(self, dtype: DTypeLike) -> Any:
        if np.dtype(dtype).kind != "f":
            return Tensor(self._array.astype(dtype))  # integers have no gradient
        return DISPATCH[np.ndarray.astype](self, dtype=np.dtype(dtype))

    def copy(self) -> Any:
        return np.copy(self)

    def argmax(self, axis: int | None = None) -> Any:
        return np.argmax(self._array, axis=axis)

    def argmin(self, axis: int | None = None) -> Any:
        return np.argmin(self._array, axis=axis)

    def argsort(self, axis: int | None = -1, kind: Any = None) -> Any:
        return np.argsort(self._array, axis, kind)

    def argpartition(self, kth: Any, axis: int | None = -1) -> Any:
        return np.argpartition(self._array, kth, axis)

    def nonzero(self) -> Any:
        return np.nonzero(self._array)

    def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> Any:
        return np.searchsorted(self._array, value_of(v), side, sorter)

    def tolist(self) -> Any:
        return self._array.tolist()

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        handler = DISPATCH.get(ufunc) if method == "__call__" else None
        if handler is not None and not kwargs:
            return handler(*inputs)
        name = f"np.{ufunc.__name__}" if method == "__call__" else f"np.{ufunc.__name__}.{method}"
        if kwargs.pop("out", None) is not None:
            raise TypeError(f"{name}(..., out=...) would overwrite values that a graph may need. Use the returned tensor.")
        if handler is not None:
            return handler(*inputs, **kwargs)
        if method == "__call__" and ufunc in PLAIN:
            return ufunc(*map(value_of, inputs), **kwargs)
        if (reduction := REDUCTIONS.get((ufunc, method))) is not None:
            kwargs.setdefault("axis", 0)
            return reduction(*inputs, **kwargs)
        raise TypeError(_no_derivative(name))

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if func in DISPATCH:
            return DISPATCH[func](*args, **kwargs)
        if func in PLAIN:
            return func(*map(value_of, args), **{key: value_of(value) for key, value in kwargs.items()})
        name = f"{func.__module__.replace('numpy', 'np')}.{func.__name__}"
        if func in IN_PLACE:
            raise TypeError(f"{name} writes into its argument, but a node never changes. Use {IN_PLACE[func]} instead.")
        raise TypeError(_no_derivative(name))

    # Copies

    def __reduce__(self) -> Any:
        if self.primitive is not None:
            raise TypeError(
                f"{self.path} is an interior node: a copy would carry a second graph with gradients of its own. "
                "Copy or pickle leaves and modules, or copy .detach()."
            )
        return _rebuild, (type(self), np.array(self._array), self.requires_grad, self.name, self.scope, self.grad)

    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        build, (*fields, grad) = self.__reduce__()
        twin: Tensor = build(*fields, grad.copy() if isinstance(grad, np.ndarray) else grad)
        memo[id(self)] = twin
        return twin


REDUCTIONS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}


IN_PLACE: dict[Callable[..., Any], str] = {  # NumPy functions that write into an argument -> what to use instead
    np.copyto: "np.where(mask, value, x) or x.at[key].set(value)",
    np.put: "np.ravel(x).at[indices].set(values)",
    np.place: "x.at[mask].set(values)",
    np.putmask: "np.where(mask, values, x)",
    np.put_along_axis: "x.at[key].set(values)",
    np.fill_diagonal: "x.at[np.arange(n), np.arange(n)].set(values)",
}


def check_name(name: str | None) -> None:
    """Raise TypeError unless it is a string or None."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"A name is a string; got {type(name).__name__} {name!r}.")


def named(name: str, x: Any) -> Any:
    """`x`, called `name` in ledgers, drawings and the debugger: `Q = named("Q", X @ WQ)`.

    In an array of Values each gets its own, such as `S[1,0]`, unless it has one. On anything else it does nothing, so that
    model code also runs on plain arrays.
    """
    check_name(name)
    if isinstance(x, Tensor):
        x.name = name
        if x.primitive is not None:
            x.scope = MODE.get().scope  # of who names it: h = named("h", self.norm(x)) is h, not norm.h
    elif getattr(x, "dtype", None) is OBJECTS:  # a Value, or an array of them
        from chainrule.autograd.scalar import label_entries

        label_entries(name, x)
    return x


def _rebuild(cls: type[Tensor], data: Array, requires_grad: bool, name: str | None, scope: str, grad: Any) -> Tensor:
    tensor = cls.__new__(cls)
    Tensor.__init__(tensor, data, requires_grad, name)
    tensor.scope, tensor.grad = scope, grad
    return tensor


def _as_leaf_array(data: Any, dtype: DTypeLike | None) -> Array:
    """A read-only array for a leaf, ours alone."""
    if isinstance(data, Tensor):
        data = data._array
    try:
        array = np.array(data, dtype=dtype)
    except TypeError as error:
        raise TypeError(
            f"A tensor is made of numbers; got {type(data).__name__}: {error} To join tensors use np.stack(...)."
        ) from None
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)) and (array.dtype.kind in "iu" or array.dtype == float):
        array = array.astype(MODE.get().dtype)
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError("A tensor has no mask. Keep the mask as a boolean array beside it, for np.where.")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "c":
        raise TypeError("Complex tensors are not supported, for now. Keep the real and imaginary parts as two tensors.")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"A tensor holds real numbers; got dtype {array.dtype} from {type(data).__name__}.")
    array.flags.writeable = False
    return array


def _no_derivative(name: str) -> str:
    return (
        f"{name} is not covered for Tensors. If it needs no gradient, call it on .data; otherwise add it:\n"
        f"    from chainrule.autograd import primitive\n\n"
        f"    @primitive({name})\n"
        f"    def my_function(x): return {name}(x)\n\n"
        f"    @my_function.rule('x', '∂L/∂{{x}} = …')\n"
        f"    def my_function_wrt_x(g, y, x): ...  # ∂L/∂x from g = ∂L/∂y, in plain NumPy"
    )


PLAIN.update({
    np.shape, np.ndim, np.size, np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.argpartition,
    np.count_nonzero, np.nonzero, np.flatnonzero, np.argwhere, np.searchsorted, np.digitize, np.any, np.all,
    np.array_equal, np.array_equiv, np.allclose, np.isclose, np.iscomplexobj, np.isrealobj, np.isposinf, np.isneginf,
    np.zeros_like, np.ones_like, np.empty_like, np.ix_, np.lexsort, np.diag_indices_from, np.tril_indices_from,
    np.triu_indices_from, np.unravel_index, np.ravel_multi_index, np.result_type, np.can_cast, np.common_type,
    np.min_scalar_type, np.shares_memory, np.may_share_memory, np.array2string, np.array_repr, np.array_str,
    np.unique, np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values, np.union1d, np.intersect1d,
    np.setdiff1d, np.setxor1d, np.isin, np.histogram, np.bincount,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.logical_and, np.logical_or,
    np.logical_not, np.logical_xor, np.isnan, np.isinf, np.isfinite, np.signbit, np.floor, np.ceil, np.rint, np.trunc,
    np.floor_divide, np.spacing, np.nextafter, np.fix, np.round, np.around, np.imag, np.angle, np.isreal, np.iscomplex,
})  # fmt: skip
