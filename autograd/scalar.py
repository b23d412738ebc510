"""Scalar mode: the same NumPy code, run on arrays of Values, so that every single number is a node.

    W = values([[0.5, -1.0]], name="W")       # an array of Values called W[0,0] and W[0,1]
    y = np.sum(np.tanh(W @ np.ones((2, 1))))  # a Value
    y.backward()
    W.grad                                    # an array of numbers

    with scalar_mode(model) as parameters:    # a model of Tensors, its code unchanged
        model(ids).backward()
    parameters["WQ"].grad

    scalar_graph(loss)                        # the computation of a recorded Tensor, number by number
    as_graph(value)                           # and back: Values as Tensors of shape (), for debug and drawings

What only moves numbers (indexing, transposing, np.where) makes no nodes: the same Values stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from chainrule.autograd import graph
from chainrule.autograd.modes import MODE, Mode, mode_set_to
from chainrule.autograd.primitives.elementwise import relu, sigmoid
from chainrule.autograd.reverse import quiet
from chainrule.autograd.rules import Primitive, stop_gradient
from chainrule.autograd.tensor import DISPATCH, PLAIN, Array, Tensor, frozen, named, options_of
from chainrule.autograd.value import Value, ancestors, node

AS_OPERATORS = {np.add, np.subtract, np.multiply, np.negative}  # NumPy's loops over objects use the elements' operators


class ValueArray(np.ndarray[Any, Any]):
    """An array of Values, and of plain numbers among them.

    NumPy's functions do with it what they do with a Tensor, by the same primitives, and NumPy's loops over objects carry
    those out: a matrix product becomes multiplications and additions of Values. (An array of objects of NumPy's own, such
    as np.array([v, w]), will do for arithmetic and np.exp; but there np.maximum picks the first of equal Values, and a plain
    number has no method exp.)
    """

    @property
    def grad(self) -> Array:
        """∂L/∂entry, entry by entry; 0 for a plain number."""
        return np.array([getattr(entry, "grad", 0.0) for entry in self.flat], dtype=float).reshape(self.shape)

    def astype(self, dtype: Any, **options: Any) -> Any:  # type: ignore[override]
        """Itself: a Value is as precise as a float64, and a conversion to numbers would drop the graph."""
        return self

    at = Tensor.at
    # As methods these call NumPy's functions, as a Tensor's do
    sum, mean, max, min, prod = Tensor.sum, Tensor.mean, Tensor.max, Tensor.min, Tensor.prod  # type: ignore[assignment]
    var, std, cumsum, cumprod = Tensor.var, Tensor.std, Tensor.cumsum, Tensor.cumprod  # type: ignore[assignment]
    clip, dot, argmax, argmin = Tensor.clip, Tensor.dot, Tensor.argmax, Tensor.argmin  # type: ignore[assignment]

    # `x += y` rebinds x to x + y, as with Tensors

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self + other

    def __isub__(self, other: Any) -> Any:  # type: ignore[misc]
        return self - other

    def __imul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self * other

    def __itruediv__(self, other: Any) -> Any:  # type: ignore[misc]
        return self / other

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and ufunc in AS_OPERATORS and not options:
            return as_values(ufunc(*map(plain, inputs)))
        if method == "__call__" and ufunc in PLAIN:
            return ufunc(*map(stop_gradient, inputs), **options)
        if ufunc is np.add and method == "at":  # of scatter_add, on an array it has just made
            return np.add.at(*map(plain, inputs))
        return kept(ufunc, Tensor.__array_ufunc__(self, ufunc, method, *map(as_array, inputs), **options))  # type: ignore[arg-type]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in PLAIN:
            return function(*mapped(stop_gradient, args), **mapped(stop_gradient, kwargs))
        if function in RUNNING.get():  # the engine's own definition of it asks NumPy for the rest
            return mapped(as_array, function(*mapped(plain, args), **mapped(plain, kwargs)))
        token = RUNNING.set((*RUNNING.get(), function))
        try:
            result = Tensor.__array_function__(self, function, types, mapped(as_array, args), mapped(as_array, kwargs))  # type: ignore[arg-type]
        finally:
            RUNNING.reset(token)
        return kept(function, result)


RUNNING: ContextVar[tuple[Any, ...]] = ContextVar("chainrule.scalar.running", default=())  # NumPy functions being carried out


def values(data: Any, name: str = "") -> ValueArray:
    """An array of new Values from numbers, an array or a Tensor; called `name[i,j]` if a name is given."""
    numbers = np.asarray(data.data if isinstance(data, Tensor) else data, dtype=float)
    array = np.empty(numbers.shape, dtype=object)
    for index in np.ndindex(numbers.shape):
        array[index] = Value(float(numbers[index]), entry_label(name, index) if name else "")
    return array.view(ValueArray)


def entry_label(name: str, index: tuple[int, ...]) -> str:
    """S and (1, 0) -> S[1,0]; a single number has no index."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def label_entries(name: str, array: Any) -> None:
    """Call the Values in an array `scope.name[i,j]`. One that has a label keeps it: X = E[ids] holds the entries of E."""
    scope = MODE.get().scope
    path = f"{scope}.{name}" if scope else name
    array = np.asarray(array, dtype=object)
    for index in np.ndindex(array.shape):
        entry = array[index]
        if isinstance(entry, Value) and not entry.name:
            entry.label = entry_label(path, index)


# Arrays, and what stands in them


def as_array(x: Any) -> Any:
    """A Value, or an array of objects, as a ValueArray; anything else as it is."""
    if isinstance(x, Value):
        array = np.empty((), dtype=object)
        array[()] = x
        return array.view(ValueArray)
    return as_values(x)


def as_values(x: Any) -> Any:
    """An array of objects as a ValueArray; anything else as it is."""
    return x.view(ValueArray) if isinstance(x, np.ndarray) and x.dtype == object else x


def mapped(convert: Callable[[Any], Any], x: Any) -> Any:
    """`convert(x)`, inside lists, tuples and dictionaries too."""
    if type(x) in (list, tuple):
        return type(x)(mapped(convert, item) for item in x)
    return {key: mapped(convert, item) for key, item in x.items()} if type(x) is dict else convert(x)


def kept(function: Any, result: Any) -> Any:
    """The result, if it still consists of Values."""
    if isinstance(result, Tensor) or (isinstance(result, np.ndarray) and result.dtype.kind == "f"):
        raise TypeError(
            f"np.{function.__name__} turns Values into plain numbers, and would lose their gradient: not in scalar mode."
        )
    return result


def plain(x: Any) -> Any:
    """The same as NumPy's own array, on which its own loops run."""
    return as_array(x).view(np.ndarray) if isinstance(x, (Value, np.ndarray)) else x


def apply(primitive: Primitive, *inputs: Any, **options: Any) -> Any:
    """The primitive on arrays of Values: entry by entry, or by NumPy's loops over objects if it is a sum of products."""
    name = primitive.name
    if primitive.definition is not None:
        return primitive.definition(*inputs, **options)
    if name in EXTREMES:
        return extreme(EXTREMES[name], *inputs, **options)
    if name == "astype":
        return inputs[0]
    if name in SIMPLER:
        return SIMPLER[name](*inputs, **options)
    if name in ("where", "copy"):  # they move numbers and compute none
        return as_values(primitive.forward(*map(plain, inputs)))
    if primitive.elementwise:
        of_entries = np.frompyfunc(partial(apply_to_entries, primitive, **options), len(inputs), 1)
        with quiet():
            return as_values(of_entries(*map(plain, inputs)))
    if not primitive.linear and name not in BY_LOOPS:
        raise TypeError(
            f"{name} has no definition in simpler operations, so it cannot run on single numbers. "
            f"Keep it out of scalar mode, or give it one: @{name}.defined_by."
        )
    y = primitive.forward(*map(plain, inputs), **options)
    return as_values(y[0] if primitive.saves else y)


def apply_to_entries(primitive: Primitive, *entries: Any, **options: Any) -> Any:
    """The primitive of these numbers and Values: by the operator or method of Value, else by the primitive's own rules."""
    numbers = [np.float64(x.data) if isinstance(x, Value) else x for x in entries]
    if not any(isinstance(x, Value) for x in entries):
        return primitive.forward(*numbers, **options)
    if primitive.name in OPERATORS:
        return OPERATORS[primitive.name](*entries)
    if len(entries) > 2 or options:
        raise TypeError(f"A Value has at most two inputs and no options; {primitive.name} was given more.")
    y = primitive.forward(*numbers)
    slopes = [
        float(rule(np.float64(1.0), y, *numbers)) if isinstance(x, Value) and rule is not None else None
        for x, rule in zip(entries, primitive.rules, strict=True)
    ]
    BY_NAME[primitive.name] = primitive
    pairs = [part for pair in zip(entries, slopes, strict=True) for part in pair]
    return node(primitive.name, float(y), *pairs)


def variance(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    deviation = x - np.mean(x, axis=axis, keepdims=True)
    total = np.sum(deviation * deviation, axis=axis, keepdims=keepdims)
    return total / max(x.size / max(np.size(total), 1) - ddof, 0)


def root(x: Any) -> Any:
    """√x, and the constant 0 at 0: the conventions std'(0) = norm'(0) = 0."""
    return np.sqrt(np.where(x == 0, 0.0, x))


SIMPLER: dict[str, Callable[..., Any]] = {  # definitions of primitives that have none
    "var": variance,
    "std": lambda x, **options: root(variance(x, **options)),
    "euclidean_norm": lambda x, **options: root(np.sum(x * x, **options)),
}
BY_LOOPS = {"prod", "cumprod", "sort", "partition", "pad", "convolve"}
EXTREMES: dict[str, Callable[..., Any]] = {"max": max, "min": min}

OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negative": lambda x: -x,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "absolute": abs,
    "maximum": lambda a, b: a.maximum(b) if isinstance(a, Value) else b.maximum(a),
    "minimum": lambda a, b: a.minimum(b) if isinstance(a, Value) else b.minimum(a),
    "exp": Value.exp,
    "log": Value.log,
    "sqrt": Value.sqrt,
    "sin": Value.sin,
    "cos": Value.cos,
    "tanh": Value.tanh,
    "sign": lambda x: float(np.sign(x.data)),  # a constant
}


def extreme(choose: Callable[..., Any], x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest (smallest) entries over the axes: the entry itself, or the mean of equal ones, who share its gradient."""
    x = plain(as_array(x))
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % max(x.ndim, 1)) if x.ndim else ()
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    rows = np.transpose(x, kept + axes).reshape(*(x.shape[i] for i in kept), -1)
    found = np.empty(rows.shape[:-1], dtype=object)
    for index in np.ndindex(found.shape):
        row = list(rows[index])
        if not row:
            raise ValueError(f"The {choose.__name__} of no entry is undefined; got shape {x.shape}.")
        top = choose(map(float, row))
        equal = [entry for entry in row if float(entry) == top]
        found[index] = sum(equal[1:], equal[0]) / len(equal) if len(equal) > 1 else equal[0] if equal else np.nan
    if keepdims:
        found = found.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
    return as_values(found) if found.ndim else found[()]


# Models and graphs


@contextmanager
def scalar_mode(module: Any) -> Iterator[dict[str, ValueArray]]:
    """Inside, the parameters of the module are arrays of Values, and so its forward makes a node for every number.

    Gives {path: array of Values}; after `loss.backward()` each array's `.grad` is ∂L/∂parameter. The parameters are the
    module's own again afterwards, in case of an exception too.
    """
    paths = dict(module.named_parameters())
    arrays: dict[Any, ValueArray] = {parameter: values(parameter, path) for path, parameter in paths.items()}

    def replaced(x: Any) -> Any:
        if type(x) in (list, tuple):
            return type(x)(map(replaced, x))
        return arrays.get(x, x) if isinstance(x, Tensor) else x

    owners = [owner for _, owner in module.named_modules()]
    saved = [dict(vars(owner)) for owner in owners]
    try:
        for owner in owners:
            vars(owner).update({name: replaced(value) for name, value in vars(owner).items()})
        yield {path: arrays[parameter] for path, parameter in paths.items()}
    finally:
        for owner, attributes in zip(owners, saved, strict=True):
            vars(owner).update(attributes)


def scalar_nodes(loss: Tensor) -> dict[Tensor, ValueArray]:
    """The recorded computation of `loss` with Values: for every node of its graph the array of its entries' Values.

    Fused operations run their definition. Recorded constants (masks, dropout) stay numbers. Raises ValueError if a leaf has
    been given new data since.
    """
    if graph.as_recorded(loss)[1]:
        raise ValueError(f"Leaves of {loss.path} have new data since it was computed. Compute it again, or use `scalar_graph`.")
    found: dict[Tensor, Any] = {}
    for tensor in graph.ancestors(loss):
        primitive = tensor.primitive
        if primitive is None:
            found[tensor] = values(tensor, tensor.path if tensor.name else "")
            continue
        inputs = [
            found.get(x, value) if isinstance(x, Tensor) else value
            for x, value in zip(tensor.inputs, tensor.values, strict=True)
        ]
        with mode_set_to(Mode(scope=tensor.scope)):
            found[tensor] = as_array(primitive(*inputs, **options_of(tensor)))
            if tensor.name:
                named(tensor.name, found[tensor])
    return found


def scalar_graph(loss: Tensor) -> Value:
    """The recorded computation of a single number, with a Value for every number in it. See `scalar_nodes`.

    Raises ValueError if the loss is not a single number.
    """
    if loss.size != 1:
        raise ValueError(
            f"A scalar graph ends in a single number; {loss.path} has shape {loss.shape}. Reduce it, as by np.sum."
        )
    loss, _ = graph.as_recorded(loss)
    value = scalar_nodes(loss)[loss].item()
    return value if isinstance(value, Value) else Value(value)


def as_graph(output: Value) -> Tensor:
    """The graph of a Value as Tensors of shape (), for what reads those, such as `debug` and `viz.draw`."""
    return as_tensors(output)[output]


def of_tensors(f: Callable[..., Value]) -> Callable[..., Tensor]:
    """A function of Values as one of Tensors of shape (), for what differentiates those, such as `gradcheck`."""

    def on_tensors(*inputs: Tensor) -> Tensor:
        own = [Value(x.item(), x.name or "") for x in inputs]
        y = f(*own)
        if not isinstance(y, Value):
            raise TypeError(f"A function of Values returns a Value; got {type(y).__name__}.")
        return as_tensors(y, dict(zip(own, inputs, strict=True)))[y]

    return on_tensors


def as_tensors(output: Value, leaves: Mapping[Value, Tensor] | None = None) -> dict[Value, Tensor]:
    """For every Value in the graph of `output` a Tensor of shape () with its number, operation and label, oldest first.

    `leaves` are Tensors that stand for some Values already.
    """
    tensors = dict(leaves or {})
    with mode_set_to(Mode()), quiet():
        for value in ancestors(output):
            if value in tensors:
                continue
            inputs = [tensors[x] if isinstance(x, Value) else x for x in value.inputs]
            tensor = BY_NAME[value.op](*inputs) if value.op else Tensor(value.data, requires_grad=True)
            tensor._array = frozen(np.array(value.data))  # to the last digit: Python's tanh need not be NumPy's
            tensor.scope, _, tensor.name = value.name.rpartition(".") if value.name else ("", "", None)
            tensors[value] = tensor
    return tensors


BY_NAME: dict[str, Primitive] = {"relu": relu, "sigmoid": sigmoid}  # those of Value, and what `apply_to_entries` met
_dispatched = [getattr(handler, "__self__", None) for handler in DISPATCH.values()]  # whose bound calls these are
BY_NAME.update({p.name: p for p in _dispatched if isinstance(p, Primitive) and p.elementwise})
