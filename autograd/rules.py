"""Primitives: an operation, and right beside it the rule that differentiates it.

    @primitive(np.matmul, linear="each")
    def matmul(a, b):
        return np.matmul(a, b)

    @matmul.rule("a", "∂L/∂{a} = ∂L/∂{y} @ {b}ᵀ")
    def matmul_wrt_a(g, y, a, b):
        return unbroadcast(g @ np.swapaxes(b, -1, -2), a.shape)

A rule takes `g` = ∂L/∂y, the output, the inputs and the options, and returns that input's contribution: ∂L/∂input by this
one use of it. It is linear in `g` and written in plain NumPy. Given arrays it runs at NumPy's speed; given Tensors it
records itself, which is how second derivatives come about; and forward mode transposes it.

A primitive with a `definition` is *fused*: the forward and its rules are a kernel, written for speed, and the definition
says the same in simpler operations. Ordinary training runs the kernel. `open_fused()`, higher orders, forward mode and
arrays of other kinds run the definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodDescriptorType
from typing import Any, Literal

import numpy as np
from numpy import ndarray  # Python finds it sooner than np.ndarray

from chainrule.autograd.anomaly import check_made
from chainrule.autograd.modes import MODE
from chainrule.autograd.sources import calling_line
from chainrule.autograd.tensor import DISPATCH, OBJECTS, Tensor, creation_order, frozen

Function = Callable[..., Any]

LIBRARY = __name__.partition(".")[0] + "."

_new_tensor = Tensor.__new__


class Primitive:
    """An operation on arrays with one derivative rule per input. Made by the decorators `primitive` and `elementwise`.

    Attributes:
        name: the operation's name, such as "matmul".
        forward: computes the output from arrays; for a fused primitive, the kernel.
        input_names: what the formulas call the inputs. `variadic` primitives take any number of one kind.
        rules: by input position, the rule or None where there is no derivative (a mask, an index).
        joint: one rule for all inputs at once, returning a sequence of contributions; used instead of `rules` where given.
        formulas: by input position, the rule as a line of text with {y} and the input names in braces; where the options
            change it, a function of them that gives the line.
        definition: the same operation in simpler ones; None unless fused.
        tangent: of a fused primitive, a kernel for forward mode; without it the tangents go through the definition.
        elementwise: output entry i depends on entry i of the (broadcast) inputs only. Its rules may return the
            contribution in the shape of the output; the chain rule sums it down.
        linear: "each" if the output is linear in each input separately, "all" if in all of them together, else "".
        symmetric: ∂y/∂x equals its own transpose (softmax's), so that the rule of the first input serves forward mode too.
        named_inside: its definition names nodes worth seeing (attention's S and A), so that a trace opens it.
        analytic: whether the forward extends to complex numbers, as the complex step needs.
        saves: the forward returns (y, saved), and the rules get the keyword `saved`.
        recomputes: the forward hands out a result computed before, so that a replay must open the node (checkpoints).
        guarded: a rule was declared outside the library, so the adjoint is made read-only before it is given to one. (The
            library's own write into nothing: where the chain rule is walked thoroughly they get it read-only, too.)
    """

    def __init__(
        self,
        forward: Function,
        *,
        elementwise: bool = False,
        linear: Literal["", "each", "all"] = "",
        symmetric: bool = False,
        named_inside: bool = False,
        analytic: bool = True,
        saves: bool = False,
        recomputes: bool = False,
    ) -> None:
        parameters = inspect.signature(forward).parameters.values()
        inputs = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.name = forward.__name__.rstrip("_")
        self.forward = forward
        self.input_names = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL))
        self.input_defaults = {p.name: p.default for p in inputs if p.default is not p.empty}
        self.option_names = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.option_order = self.option_names
        self.arity = -1 if self.variadic else len(inputs)
        self.rules: list[Function | None] = [None] * len(inputs)
        self.joint: Function | None = None
        self.formulas: dict[int, str | Function] = {}
        self.definition: Function | None = None
        self.tangent: Function | None = None
        self.elementwise = elementwise
        self.linear = linear
        self.symmetric = symmetric
        self.named_inside = named_inside
        self.analytic = analytic
        self.saves = saves
        self.recomputes = recomputes
        self.guarded = False
        self.__doc__ = forward.__doc__
        self.__name__ = self.name
        self.__module__ = forward.__module__
        self.__wrapped__ = forward  # so that inspect.signature and help() show the arguments

    def __repr__(self) -> str:
        return f"<primitive {self.name}({', '.join(self.input_names)})>"

    # Declaring

    def rule(self, input_name: str, formula: str | Function) -> Callable[[Function], Function]:
        """Decorator: the function is the rule for this input, and `formula` says it as a line of mathematics."""
        position = self._position(input_name)
        if self.variadic:
            raise TypeError(f"{self.name} takes any number of inputs; declare @{self.name}.joint_rule for all of them.")

        def declare(function: Function) -> Function:
            self.rules[position] = function
            self._guard_from(function)
            self.formulas[position] = formula
            return function

        return declare

    def joint_rule(self, formulas: Mapping[str, str | Function]) -> Callable[[Function], Function]:
        """Decorator: the function returns the contributions to all inputs at once (None where there is none)."""

        def declare(function: Function) -> Function:
            self.joint = function
            self._guard_from(function)
            self.formulas.update({self._position(name): formula for name, formula in formulas.items()})
            return function

        return declare

    def defined_by(self, function: Function) -> Function:
        """Decorator: the function says what the (fused) primitive is, in simpler operations."""
        self.definition = function
        return function

    def pushed_by(self, function: Function) -> Function:
        """Decorator: `function(tangents, y, *inputs, **options)` returns ẏ. An input that does not move has tangent None."""
        self.tangent = function
        return function

    def _guard_from(self, rule: Function) -> None:
        if not (getattr(rule, "__module__", None) or "").startswith(LIBRARY):
            self.guarded = True

    def _position(self, input_name: str) -> int:
        if input_name not in self.input_names:
            raise TypeError(f"{self.name} has the inputs {', '.join(self.input_names)}; got a rule for {input_name!r}.")
        return self.input_names.index(input_name)

    # Running

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; with a Tensor among the inputs, as a Tensor that remembers how."""
        if options or len(inputs) != self.arity:
            inputs, options = self._bind(inputs, options)
        values: Any
        if len(inputs) == 2 and isinstance(inputs[0], Tensor) and isinstance(inputs[1], Tensor):
            a, b = inputs  # the usual cases, without the loop
            values = (a._array, b._array)
            tracked = a.requires_grad or b.requires_grad
            is_tensor, real, constants, objects = True, True, False, False
        elif len(inputs) == 1 and isinstance(inputs[0], Tensor):
            (a,) = inputs
            values = (a._array,)
            tracked = a.requires_grad
            is_tensor, real, constants, objects = True, True, False, False
        else:
            values = []
            is_tensor = tracked = constants = objects = complex_ = False
            real = True
            for x in inputs:
                if isinstance(x, Tensor):
                    is_tensor = True
                    values.append(x._array)
                    if x.requires_grad:
                        tracked = True
                elif x is None:
                    values.append(x)
                elif type(x) is np.ndarray and x.dtype.kind == "f":
                    values.append(x)
                    constants = True
                else:
                    if isinstance(x, (list, tuple)):
                        x = np.asarray(x)
                    if isinstance(x, np.ma.MaskedArray):
                        raise TypeError(f"{self.name} on Tensors knows no masked arrays. Use np.where(mask, …) instead.")
                    values.append(x)
                    real = real and _is_real_array(x)
                    constants = constants or isinstance(x, np.ndarray)
                    objects = objects or getattr(x, "dtype", None) is OBJECTS
                    complex_ = complex_ or isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c"
            values = tuple(values)
            if complex_ and is_tensor:
                raise TypeError(f"{self.name} of a Tensor and complex numbers: complex tensors are not supported, for now.")
        mode = MODE.get()
        if self.definition is not None and (mode.open_fused or not real):
            return self.definition(*inputs, **options)
        if objects:
            if is_tensor and not holds_values(values):
                raise TypeError(f"{self.name} of a Tensor and an array of objects: convert it first, x.astype(float).")
            if is_tensor:
                raise TypeError(
                    f"{self.name} of Tensors and Values: they do not mix. Use `scalar_graph(loss)` or `as_graph(value)`."
                )
            from chainrule.autograd.scalar import apply

            return apply(self, *values, **options)
        y = self.forward(*values, **options) if options else self.forward(*values)
        if self.saves:
            y, saved = y
            options = {**options, "saved": saved}
        if not is_tensor:
            return y
        if type(y) is not ndarray:
            y = np.asarray(y)
        y.setflags(False)  # read-only

        node = _new_tensor(Tensor)
        node._array = y
        node.grad = node.name = node.source = node._watch = None
        node.scope = mode.scope
        node.index = next(creation_order)
        if mode.sources:
            node.source = calling_line()
            if mode.anomaly:
                check_made(self, inputs, values, y)
        if tracked and mode.record:
            if constants:
                values = tuple(frozen(v) if isinstance(v, ndarray) else v for v in values)
                inputs = tuple(x if isinstance(x, Tensor) else v for x, v in zip(inputs, values, strict=True))
            node.requires_grad = True
            node.primitive = self
            node.inputs = inputs
            node.values = values
            node.options = options
        else:
            node.requires_grad = False
            node.primitive = None
            node.inputs = node.values = ()
            node.options = {}
        return node

    def contribution(self, position: int, g: Any, y: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """∂L/∂input at this position, by its rule or by the joint one; None if there is neither."""
        if self.joint is not None:
            return self.joint(g, y, *inputs, **options)[position]
        rule = None if self.variadic else self.rules[position]
        return None if rule is None else rule(g, y, *inputs, **options)

    def _bind(self, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Sort the call's arguments into inputs and options, as the forward's signature has them."""
        if not self.variadic:
            if len(inputs) > self.arity:
                extra = inputs[self.arity :]
                if len(extra) > len(self.option_order):
                    raise TypeError(f"{self.name} takes at most {self.arity + len(self.option_order)} arguments.")
                options = {**dict(zip(self.option_order, extra, strict=False)), **options}
                inputs = inputs[: self.arity]
            for name in self.input_names[len(inputs) :]:
                if name in options:
                    inputs = (*inputs, options[name])
                    options = {key: value for key, value in options.items() if key != name}
                elif name in self.input_defaults:
                    inputs = (*inputs, self.input_defaults[name])
                else:
                    raise TypeError(f"{self.name} needs its input {name!r}.")
        kept = {}
        for key, value in options.items():
            if value is np._NoValue:
                continue
            if key in self.option_names:
                kept[key] = value
            elif value is not None and value is not IGNORABLE.get(key):
                raise TypeError(
                    f"{self.name} on Tensors has no argument {key!r} (got {value!r}); "
                    f"it takes {', '.join(self.input_names + self.option_names)}."
                )
        return inputs, kept

    def input_name(self, position: int) -> str:
        """What the formulas call the input at this position."""
        return f"{self.input_names[0]}[{position}]" if self.variadic else self.input_names[position]

    def formula(self, position: int, options: Mapping[str, Any]) -> str:
        """The rule for this input as text, with {y} and input names to fill in; empty if there is none."""
        formula = self.formulas.get(0 if self.variadic else position, "")
        return formula if isinstance(formula, str) else str(formula(**options))


IGNORABLE: dict[str, Any] = {"where": True, "casting": "same_kind", "order": "K", "subok": True}  # the defaults of ufuncs


def holds_values(inputs: Any) -> bool:
    """Whether a Value is among the inputs, or in an array of them."""
    from chainrule.autograd.value import Value

    objects = [x for x in inputs if getattr(x, "dtype", None) is OBJECTS]
    return any(isinstance(entry, Value) for x in objects for entry in ([x] if isinstance(x, Value) else np.ravel(x)))


def _is_real_array(value: Any) -> bool:
    return not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind in "fiub"


def primitive(*numpy_functions: Function, **properties: Any) -> Callable[[Function], Primitive]:
    """Decorator: make a function of arrays a `Primitive`, and what these NumPy functions do with Tensors.

    The function's parameters before `*` are the inputs, those after it the options. `properties` are the keyword
    arguments of `Primitive`.
    """

    def make(forward: Function) -> Primitive:
        made = Primitive(forward, **properties)
        for function in numpy_functions:
            DISPATCH[function] = made.__call__  # bound: calling the instance itself takes Python longer
            if not isinstance(function, (np.ufunc, MethodDescriptorType)):  # whose other arguments may stand in another order
                made.option_order = tuple(inspect.signature(function).parameters)[made.arity :]
        return made

    return make


def elementwise(*numpy_functions: Function, **properties: Any) -> Callable[[Function], Primitive]:
    """Decorator: a `primitive` whose output entry i depends on entry i of the (broadcast) inputs only."""
    return primitive(*numpy_functions, elementwise=True, **properties)


def implements(*numpy_functions: Function) -> Callable[[Function], Function]:
    """Decorator: the function, composed of primitives, is what these NumPy functions do with Tensors."""

    def register(function: Function) -> Function:
        for numpy_function in numpy_functions:
            DISPATCH[numpy_function] = function
        return function

    return register


def tracked(x: Any) -> bool:
    """True if gradients flow to `x`: a Tensor that requires one."""
    return isinstance(x, Tensor) and x.requires_grad


def stop_gradient(x: Any) -> Any:
    """The value of `x` as a constant: nothing that is computed from it depends on x, as far as derivatives go.

    A Tensor gives its array. Arrays of other kinds drop what they carry for derivatives (the imaginary part of the
    complex step, the graph of a `Value`).
    """
    if isinstance(x, Tensor):
        return x._array
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind == "c":
        return x.real
    if getattr(x, "dtype", None) is OBJECTS:
        return np.array(x, dtype=float)
    return x
