"""The Value: one number, and the record of the operation that made it. The engine at its smallest.

    a, b = Value(2.0, "a"), Value(-3.0, "b")
    y = (a * b + 10).tanh()
    y.backward()
    a.grad, b.grad  # ∂y/∂a, ∂y/∂b

An operation y = f(a, b) keeps its inputs and, as plain numbers, its local derivatives da = ∂y/∂a and db = ∂y/∂b. They are
all that `backward` needs: each input receives ȳ · ∂y/∂input.

Arrays of Values are in `chainrule.autograd.scalar`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.reverse import Step
from chainrule.autograd.tensor import Tensor, creation_order

if TYPE_CHECKING:
    from chainrule.autograd.tensor import Source

Number = float | int | np.number[Any] | np.bool_
NUMBERS = (float, int, np.number, np.bool_)

_new = object.__new__
_age = attrgetter("index")


class Value:
    """A number whose operations are recorded.

    Operators take Values and numbers on either side; `np.exp(v)` and the like work too. The conventions at kinks are the
    Tensor's: relu'(0) = 0, |x|'(0) = 0, equal arguments of maximum and minimum share evenly, x**0 has derivative 0. Where
    Python raises (log 0, division by 0, overflow) a Value holds what NumPy gives: nan or infinity.

    Args:
        data: the number. label: what drawings and ledgers call it.

    Attributes:
        data: the number, a float. Changing it changes nothing that was already computed from it.
        grad: ∂L/∂self after `L.backward()`. A leaf adds up the gradients of all calls; an interior node holds the last.
        op: the operation, such as "multiply"; empty for a leaf.
        a, b: its inputs, each a Value or a number; b is None if there is one input.
        da, db: the local derivatives; None beside a number.
        inputs, slopes: the same as tuples.
        index: creation number; every input has a smaller one.
    """

    __slots__ = ("_label", "a", "b", "da", "data", "db", "grad", "index", "op")
    __hash__ = object.__hash__  # nodes are keys by identity; == compares numbers
    shape = ()
    ndim = 0
    size = 1
    dtype = np.dtype(object)
    source: Source | None = None

    data: float
    grad: float
    op: str
    a: Any
    b: Any
    da: float | None
    db: float | None
    index: int
    _label: str

    def __init__(self, data: float, label: str = "") -> None:
        if isinstance(data, (Value, Tensor)):
            raise TypeError(f"A Value is made of a number; got a {type(data).__name__}, whose gradient would be lost.")
        self.data = float(data)
        self.grad = 0.0
        self.op = ""
        self.a = self.b = self.da = self.db = None
        self.index = next(creation_order)
        self._label = label

    @property
    def label(self) -> str:
        """Its name, or operation and number, such as `tanh#12`."""
        return self.name or f"{self.op or 'value'}#{self.index}"

    @label.setter
    def label(self, label: str) -> None:
        self._label = label

    @property
    def name(self) -> str:
        """The label it was given; empty if none."""
        return getattr(self, "_label", "")  # operations leave it unset, to be quick

    @property
    def inputs(self) -> tuple[Any, ...]:
        return () if not self.op else (self.a,) if self.b is None else (self.a, self.b)

    @property
    def slopes(self) -> tuple[float | None, ...]:
        return () if not self.op else (self.da,) if self.b is None else (self.da, self.db)

    def __repr__(self) -> str:
        label = f", label={self.name!r}" if self.name else ""
        return f"Value({self.data!r}{label}{f', from {self.op}' if self.op else ''})"

    def __float__(self) -> float:
        return self.data

    def __bool__(self) -> bool:
        return self.data != 0

    def __format__(self, spec: str) -> str:
        return format(self.data, spec) if spec else repr(self)

    # Gradients

    def backward(self) -> None:
        """The chain rule: add ∂self/∂leaf to the `grad` of every leaf; interior nodes get theirs anew.

        A zero adjoint contributes zero, also where the local derivative is infinite. The grads are the walk's own storage,
        so let one thread walk a graph at a time.
        """
        zero = float("0")  # an object of its own: a node whose grad is this very object has been met in this walk
        nodes = []
        unread = [self] if self.op else []
        while unread:  # depth first: the nodes come nearly sorted
            y = unread.pop()
            nodes.append(y)
            a, b = y.a, y.b
            if y.da is not None and a.op and a.grad is not zero:
                a.grad = zero
                unread.append(a)
            if y.db is not None and b.op and b.grad is not zero:
                b.grad = zero
                unread.append(b)
        nodes.sort(key=_age, reverse=True)  # every user of a node is younger than the node
        self.grad = 1.0 if self.op else self.grad + 1.0
        for y in nodes:
            g = y.grad
            if g:
                da, db = y.da, y.db
                if da is not None:
                    y.a.grad += g * da
                if db is not None:
                    y.b.grad += g * db

    def __reduce__(self) -> Any:
        if self.op:
            raise TypeError(
                f"{self.label} is an interior node: a copy would carry a second graph. Copy or pickle leaves, or Value(v.data)."
            )
        return _rebuilt, (self.data, self._label, self.grad)

    def backward_steps(self) -> Iterator[Step]:
        """The same chain rule, one `Step` a node, from self to the leaves; no `grad` is touched."""
        adjoints: dict[Value, float] = {self: 1.0}
        frontier = [(-self.index, self)]
        while frontier:
            node: Any = heappop(frontier)[1]
            adjoint = adjoints.pop(node)
            contributions: list[float | None] = []
            before: list[float | None] = []
            for x, slope in zip(node.inputs, node.slopes, strict=True):
                if slope is None:
                    contributions.append(None)
                    before.append(None)
                    continue
                contribution = adjoint * slope if adjoint else 0.0
                contributions.append(contribution)
                before.append(adjoints.get(x))
                if x not in adjoints:
                    heappush(frontier, (-x.index, x))
                adjoints[x] = adjoints.get(x, 0.0) + contribution
            yield Step(node, adjoint, contributions, before)

    # Arithmetic. Each operation writes its node down in place: a helper would cost as much again.

    def __add__(self, other: Any) -> Any:
        y = _new(Value)
        if isinstance(other, Value):
            y.data = self.data + other.data
            y.db = 1.0
        elif isinstance(other, NUMBERS):
            y.data = self.data + float(other)
            y.db = None
        else:
            return NotImplemented
        y.grad = 0.0
        y.op = "add"
        y.a = self
        y.b = other
        y.da = 1.0
        y.index = next(creation_order)
        return y

    def __mul__(self, other: Any) -> Any:
        y = _new(Value)
        if isinstance(other, Value):
            y.data = self.data * other.data
            y.da = other.data
            y.db = self.data
        elif isinstance(other, NUMBERS):
            y.da = float(other)
            y.data = self.data * y.da
            y.db = None
        else:
            return NotImplemented
        y.grad = 0.0
        y.op = "multiply"
        y.a = self
        y.b = other
        y.index = next(creation_order)
        return y

    def __sub__(self, other: Any) -> Any:
        y = _new(Value)
        if isinstance(other, Value):
            y.data = self.data - other.data
            y.db = -1.0
        elif isinstance(other, NUMBERS):
            y.data = self.data - float(other)
            y.db = None
        else:
            return NotImplemented
        y.grad = 0.0
        y.op = "subtract"
        y.a = self
        y.b = other
        y.da = 1.0
        y.index = next(creation_order)
        return y

    def __radd__(self, number: Any) -> Any:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return node("add", float(number) + self.data, number, None, self, 1.0)

    def __rmul__(self, number: Any) -> Any:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return node("multiply", float(number) * self.data, number, None, self, float(number))

    def __rsub__(self, number: Any) -> Any:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return node("subtract", float(number) - self.data, number, None, self, -1.0)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Value):
            quotient = divided(self.data, other.data)
            return node("divide", quotient, self, divided(1.0, other.data), other, -divided(quotient, other.data))
        if isinstance(other, NUMBERS):
            return node("divide", divided(self.data, other), self, divided(1.0, other), other, None)
        return NotImplemented

    def __rtruediv__(self, number: Any) -> Any:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        quotient = divided(number, self.data)
        return node("divide", quotient, number, None, self, -divided(quotient, self.data))

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, (Value, *NUMBERS)):
            return NotImplemented
        x, n = self.data, float(exponent)
        y = raised(x, n)
        dx = n * raised(x, n - 1) if n else 0.0
        return node("power", y, self, dx, exponent, _log_slope(x, y) if isinstance(exponent, Value) else None)

    def __rpow__(self, base: Any) -> Any:
        if not isinstance(base, NUMBERS):
            return NotImplemented
        y = raised(float(base), self.data)
        return node("power", y, base, None, self, _log_slope(float(base), y))

    def __neg__(self) -> Value:
        return node("negative", -self.data, self, -1.0)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        x = self.data
        return node("absolute", abs(x), self, 1.0 if x > 0 else -1.0 if x < 0 else 0.0 if x == 0 else x)

    # Functions, under the names by which NumPy's loops over objects call them

    def relu(self) -> Value:
        """max(x, 0), with derivative 0 at 0."""
        x = self.data
        return node("relu", 0.0 if x <= 0 else x, self, 0.0 if x <= 0 else 1.0)

    def tanh(self) -> Value:
        y = math.tanh(self.data)
        return node("tanh", y, self, 1 - y * y)

    def sigmoid(self) -> Value:
        """1 / (1 + e⁻ˣ), with no overflow."""
        e = math.exp(-abs(self.data))
        return node("sigmoid", (1.0 if self.data >= 0 else e) / (1 + e), self, e / (1 + e) ** 2)

    def exp(self) -> Value:
        y = as_numpy(math.exp, np.exp, self.data)
        return node("exp", y, self, y)

    def log(self) -> Value:
        return node("log", as_numpy(math.log, np.log, self.data), self, divided(1.0, self.data))

    def sqrt(self) -> Value:
        y = as_numpy(math.sqrt, np.sqrt, self.data)
        return node("sqrt", y, self, divided(0.5, y))

    def sin(self) -> Value:
        return node("sin", as_numpy(math.sin, np.sin, self.data), self, as_numpy(math.cos, np.cos, self.data))

    def cos(self) -> Value:
        return node("cos", as_numpy(math.cos, np.cos, self.data), self, -as_numpy(math.sin, np.sin, self.data))

    def maximum(self, other: Value | Number) -> Value:
        """The larger; equal ones share the gradient evenly."""
        return _chosen("maximum", self, other, self > other, self < other)

    def minimum(self, other: Value | Number) -> Value:
        """The smaller; equal ones share the gradient evenly."""
        return _chosen("minimum", self, other, self < other, self > other)

    # Comparisons, by number

    def __eq__(self, other: object) -> Any:
        return self.data == (other.data if isinstance(other, Value) else other)

    def __ne__(self, other: object) -> Any:
        return self.data != (other.data if isinstance(other, Value) else other)

    def __lt__(self, other: Any) -> Any:
        return self.data < (other.data if isinstance(other, Value) else other)

    def __le__(self, other: Any) -> Any:
        return self.data <= (other.data if isinstance(other, Value) else other)

    def __gt__(self, other: Any) -> Any:
        return self.data > (other.data if isinstance(other, Value) else other)

    def __ge__(self, other: Any) -> Any:
        return self.data >= (other.data if isinstance(other, Value) else other)

    # NumPy's functions take a Value as an array of one, see chainrule.autograd.scalar

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from chainrule.autograd.scalar import as_array

        return getattr(ufunc, method)(*map(as_array, inputs), **kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        from chainrule.autograd.scalar import as_array, mapped

        return function(*mapped(as_array, args), **mapped(as_array, kwargs))


def node(op: str, data: float, a: Any, da: float | None, b: Any = None, db: float | None = None) -> Value:
    """The Value y = op(a, b) with its local derivatives; None beside a number or a missing b."""
    y = _new(Value)
    y.data = data
    y.grad = 0.0
    y.op = op
    y.a = a
    y.b = b
    y.da = da
    y.db = db
    y.index = next(creation_order)
    return y


def zero_grad(values: Any) -> None:
    """Set the `grad` of these Values (a sequence, or an array of any shape) to 0."""
    for value in np.asarray(values, dtype=object).flat:
        value.grad = 0.0


def ancestors(output: Value) -> list[Value]:
    """Every Value that `output` was computed from, itself included, oldest first."""
    seen = {output}
    unread = [output]
    while unread:
        for x in unread.pop().inputs:
            if isinstance(x, Value) and x not in seen:
                seen.add(x)
                unread.append(x)
    return sorted(seen, key=_age)


# Numbers, as NumPy has them: nan and infinity where Python raises


def as_numpy(function: Callable[..., float], numpy_function: Callable[..., Any], *numbers: float) -> float:
    """`function` of Python's; where it raises (outside the domain, overflow), the result of NumPy's."""
    try:
        return function(*numbers)
    except (ValueError, OverflowError, ZeroDivisionError):
        with np.errstate(all="ignore"):
            return float(numpy_function(*map(float, numbers)))


def divided(x: Any, by: Any) -> float:
    try:
        return float(x) / float(by)
    except ZeroDivisionError:
        with np.errstate(all="ignore"):
            return float(np.divide(float(x), float(by)))


def raised(x: float, n: float) -> float:
    """xⁿ; nan, not a complex number, for a negative x and a broken n."""
    return as_numpy(math.pow, np.power, x, n)


def _log_slope(base: float, y: float) -> float:
    """∂(baseⁿ)/∂n = y ln base, and 0 at base 0."""
    return y * as_numpy(math.log, np.log, base) if base else 0.0


def _chosen(op: str, a: Value, b: Any, a_wins: bool, b_wins: bool) -> Value:
    """max or min of a and b: all of the gradient to the winner, half to each of equals, none if one is nan."""
    equal = a.data == float(b)
    data = a.data if a_wins or equal else float(b) if b_wins else math.nan
    da = 1.0 if a_wins else 0.5 if equal else 0.0
    db = 1.0 if b_wins else 0.5 if equal else 0.0
    return node(op, data, a, da, b, db if isinstance(b, Value) else None)


def _rebuilt(data: float, label: str, grad: float) -> Value:
    value = Value(data, label)
    value.grad = grad
    return value
