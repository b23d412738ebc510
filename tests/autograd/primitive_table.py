"""The one table of what can be differentiated. A row here is a test of everything in test_primitives.py.

A row says how to call the function, in plain NumPy, and which numbers to try it on. The numbers stay away from kinks and
poles; what happens there is a convention, and stands in KINKS.
"""

import numpy as np
import pytest
import rows_attention
import rows_elementwise
import rows_layers
import rows_linalg
import rows_losses
import rows_shape
from table import Kink, distinct, each, halves, nonzero, positive, real, row, whole

from chainrule import checkpoint, nn
from chainrule.autograd.primitives.indexing import scatter_add

PATTERN = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
REPEATS = np.array([[0, 2], [2, 1], [0, 0]])
CAUSAL = nn.causal_mask(3, 3)

ROWS = [
    # Arithmetic
    each("add", np.add, real, real),
    each("subtract", np.subtract, real, real),
    each("multiply", np.multiply, real, real),
    each("divide", np.divide, real, nonzero),
    each("power", np.power, positive, real),
    each("power 0", lambda x: x**0, real),
    each("power 1", lambda x: x**1, real),
    each("power 2", lambda x: x**2, real),
    each("power 3", lambda x: x**3, real),
    each("power -2", lambda x: x**-2, nonzero),
    each("power 0.5", lambda x: x**0.5, positive),
    row("power array", lambda x: x ** np.array([0, 1, 2, 3]), real(3, 4)),
    each("number ** x", lambda x: 2.0**x, real),
    each("negative", np.negative, real),
    each("positive", np.positive, real),
    each("reciprocal", np.reciprocal, nonzero),
    each("square", np.square, real),
    each("sqrt", np.sqrt, positive),
    each("absolute", np.absolute, nonzero),
    each("fabs", np.fabs, nonzero),
    each("sign", np.sign, nonzero),
    each("operators", lambda x, z: 2 - x * z / (3 + -x * x) + abs(+z) ** 2 - 1 / (4 + z * z), real, nonzero),
    each("reused", lambda x: x * x * x + x, real),
    # Exponentials, logarithms, trigonometry
    each("exp", np.exp, real),
    each("expm1", np.expm1, real),
    each("log", np.log, positive),
    each("log1p", np.log1p, positive),
    each("sin", np.sin, real),
    each("cos", np.cos, real),
    each("tanh", np.tanh, real),
    # Choosing
    each("maximum", np.maximum, whole, halves),
    each("minimum", np.minimum, whole, halves),
    each("maximum number", lambda x: np.maximum(x, 0.25), whole),
    row("where", lambda x, z: np.where(PATTERN, x, z), real(3, 4), real(3, 4)),
    row("where broadcast", lambda x, z: np.where(PATTERN, x, z), real(4), real(3, 1)),
    each("where number", lambda x: np.where(x > 0, x, 2.0), nonzero),
    # The same value
    each("copy", np.copy, real),
    each("astype", lambda x: x.astype(np.float64), real),
    # Products
    row("matmul matrix matrix", np.matmul, real(2, 3), real(3, 4)),
    row("matmul vector vector", np.matmul, real(3), real(3)),
    row("matmul vector matrix", np.matmul, real(3), real(3, 4)),
    row("matmul matrix vector", np.matmul, real(2, 3), real(3)),
    row("matmul batch batch", np.matmul, real(2, 2, 3), real(2, 3, 2)),
    row("matmul batch matrix", np.matmul, real(2, 2, 3), real(3, 2)),
    row("matmul matrix batch", np.matmul, real(2, 3), real(2, 3, 2)),
    row("matmul batch vector", np.matmul, real(2, 2, 3), real(3)),
    row("matmul vector batch", np.matmul, real(3), real(2, 3, 2)),
    row("matmul broadcast", np.matmul, real(2, 1, 2, 3), real(3, 3, 2)),
    row("matmul repeated batch", np.matmul, real(1, 2, 3), real(2, 3, 1)),
    row("matmul empty batch", np.matmul, real(0, 2, 3), real(3, 2)),
    row("matmul empty inner", np.matmul, real(2, 0), real(0, 3)),
    row("@", lambda x, z: x @ z, real(2, 3), real(3, 2)),
    row("dot matrix matrix", np.dot, real(2, 3), real(3, 4)),
    row("dot vector vector", np.dot, real(3), real(3)),
    row("dot numbers", np.dot, real(), real()),
    row("dot number matrix", np.dot, real(), real(2, 3)),
    # Reductions
    row("sum", np.sum, real(3, 4)),
    row("sum axis 0", lambda x: np.sum(x, axis=0), real(3, 4)),
    row("sum axis -1 keepdims", lambda x: np.sum(x, axis=-1, keepdims=True), real(3, 4)),
    row("sum axes", lambda x: np.sum(x, axis=(0, -1)), real(2, 3, 2)),
    row("sum no axes", lambda x: np.sum(x, axis=()), real(2, 3)),
    row("sum number", np.sum, real()),
    row("sum empty", lambda x: np.sum(x, axis=0), real(0, 3)),
    row("x.sum()", lambda x: x.sum(0), real(3, 4)),
    row("add.reduce", np.add.reduce, real(3, 4)),
    row("mean", np.mean, real(3, 4)),
    row("mean axis 0", lambda x: np.mean(x, axis=0), real(3, 4)),
    row("mean axes keepdims", lambda x: np.mean(x, axis=(-1, 0), keepdims=True), real(2, 3, 2)),
    row("mean number", np.mean, real()),
    row("x.mean()", lambda x: x.mean(-1), real(3, 4)),
    row("max", np.max, distinct(3, 4)),
    row("amax", np.amax, distinct(3, 4)),
    row("max axis 0", lambda x: np.max(x, axis=0), distinct(3, 4)),
    row("max axes keepdims", lambda x: np.max(x, axis=(0, 2), keepdims=True), distinct(2, 3, 2)),
    row("max number", np.max, distinct()),
    row("x.max()", lambda x: x.max(-1), distinct(3, 4)),
    row("maximum.reduce", np.maximum.reduce, distinct(3, 4)),
    row("min", np.min, distinct(3, 4)),
    row("amin", np.amin, distinct(3, 4)),
    row("min axis -1", lambda x: np.min(x, axis=-1), distinct(3, 4)),
    row("x.min()", lambda x: x.min(0, keepdims=True), distinct(3, 4)),
    # Shape and order
    row("reshape", lambda x: np.reshape(x, (2, 6)), real(3, 4)),
    row("reshape -1", lambda x: np.reshape(x, (2, -1, 2)), real(3, 4)),
    row("reshape number", lambda x: np.reshape(x, (1, 1)), real()),
    row("x.reshape()", lambda x: x.reshape(4, -1), real(3, 4)),
    row("ravel", np.ravel, real(3, 4)),
    row("x.ravel()", lambda x: x.ravel(), real(3, 4)),
    row("x.flatten()", lambda x: x.flatten(), real(3, 4)),
    row("expand_dims", lambda x: np.expand_dims(x, 1), real(3, 4)),
    row("expand_dims axes", lambda x: np.expand_dims(x, (0, -1)), real(3, 4)),
    row("squeeze", np.squeeze, real(1, 3, 1)),
    row("squeeze axis", lambda x: np.squeeze(x, axis=-1), real(1, 3, 1)),
    row("x.squeeze()", lambda x: x.squeeze(0), real(1, 3, 1)),
    row("transpose", np.transpose, real(3, 4)),
    row("transpose axes", lambda x: np.transpose(x, (2, 0, 1)), real(2, 3, 4)),
    row("transpose negative axes", lambda x: np.transpose(x, (-1, 0, 1)), real(2, 3, 4)),
    row("x.T", lambda x: x.T, real(2, 3, 4)),
    row("x.transpose()", lambda x: x.transpose(1, 0, 2), real(2, 3, 4)),
    row("swapaxes", lambda x: np.swapaxes(x, 0, -1), real(2, 3, 4)),
    row("x.swapaxes()", lambda x: x.swapaxes(1, 2), real(2, 3, 4)),
    row("moveaxis", lambda x: np.moveaxis(x, 0, -1), real(2, 3, 4)),
    row("moveaxis two", lambda x: np.moveaxis(x, (0, 1), (-1, 0)), real(2, 3, 4)),
    row("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 4)), real(3, 1)),
    row("broadcast_to number", lambda x: np.broadcast_to(x, (2, 3)), real()),
    row("concatenate", lambda *xs: np.concatenate(xs), real(2, 3), real(1, 3), real(0, 3)),
    row("concatenate axis -1", lambda *xs: np.concatenate(xs, axis=-1), real(2, 3), real(2, 1)),
    row("concatenate flat", lambda *xs: np.concatenate(xs, axis=None), real(2, 3), real(2)),
    row("concatenate twice", lambda x: np.concatenate([x, x]), real(2, 3)),
    row("stack", lambda *xs: np.stack(xs), real(2, 3), real(2, 3)),
    row("stack axis -1", lambda *xs: np.stack(xs, axis=-1), real(2, 3), real(2, 3)),
    row("stack numbers", lambda *xs: np.stack(xs), real(), real(), real()),
    # Indexing
    row("x[1]", lambda x: x[1], real(3, 4)),
    row("x[-1, 2]", lambda x: x[-1, 2], real(3, 4)),
    row("x[::-2]", lambda x: x[::-2], real(3, 4)),
    row("x[:, 1:3]", lambda x: x[:, 1:3], real(3, 4)),
    row("x[..., None, 0]", lambda x: x[..., None, 0], real(3, 4)),
    row("x[()]", lambda x: x[()], real()),
    row("x[list]", lambda x: x[[2, 0, 2]], real(3, 4)),
    row("x[repeats]", lambda x: x[REPEATS], real(3, 4)),
    row("x[rows, columns]", lambda x: x[REPEATS[:, 0], REPEATS[:, 1]], real(3, 4)),
    row("x[:, repeats]", lambda x: x[:, REPEATS], real(2, 3)),
    row("x[mask]", lambda x: x[PATTERN], real(3, 4)),
    row("x[empty list]", lambda x: x[[]], real(3, 4)),
    row(
        "scatter_add",
        lambda x: scatter_add(x, key=REPEATS, shape=(3,)),
        real(3, 2),
        reference=lambda x: np.bincount(REPEATS.ravel(), x.ravel(), 3).astype(x.dtype),
    ),
    # Fused
    row("linear", nn.linear, real(2, 3, 4), real(4, 2), real(2), reference=nn.linear.definition),
    row("linear of one row", nn.linear, real(4), real(4, 2), real(2), reference=nn.linear.definition),
    row("linear of no rows", nn.linear, real(2, 0, 4), real(4, 2), real(2), reference=nn.linear.definition),
    row("embedding", lambda E: nn.embedding(E, REPEATS), real(4, 3), reference=lambda E: E[REPEATS]),
    row("embedding, large", lambda E: nn.embedding(E, REPEATS), real(600, 2), reference=lambda E: E[REPEATS]),
    row("embedding of none", lambda E: nn.embedding(E, REPEATS[:0]), real(4, 3), reference=lambda E: E[REPEATS[:0]]),
    row("softmax", nn.softmax, real(3, 4), reference=nn.softmax.definition),
    row("softmax axis 0", lambda S: nn.softmax(S, axis=0), real(3, 4), reference=lambda S: nn.softmax.definition(S, axis=0)),
    row(
        "softmax masked",
        lambda S: nn.softmax(S, PATTERN),
        real(2, 3, 4),
        reference=lambda S: nn.softmax.definition(S, PATTERN),
    ),
    row(
        "cross_entropy",
        lambda logits: nn.cross_entropy(logits, REPEATS),
        real(3, 2, 3),
        reference=lambda logits: nn.cross_entropy.definition(logits, REPEATS),
    ),
    row("attention", nn.attention, real(3, 2), real(4, 2), real(4, 3), reference=nn.attention.definition),
    row(
        "attention causal heads",
        lambda Q, K, V: nn.attention(Q, K, V, CAUSAL),
        real(2, 2, 3, 2),
        real(2, 1, 3, 2),
        real(3, 2),
        reference=lambda Q, K, V: nn.attention.definition(Q, K, V, CAUSAL),
    ),
]

ROWS += rows_elementwise.ROWS
ROWS += [
    each("relu", nn.relu, nonzero),
    each("sigmoid", nn.sigmoid, real),
    row("checkpoint", checkpoint(lambda x: np.sin(x) * x), real),
]
ROWS += rows_attention.ROWS
ROWS += rows_layers.ROWS
ROWS += rows_linalg.ROWS
ROWS += rows_losses.ROWS
ROWS += rows_shape.ROWS

each_row = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
each_elementwise_row = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.elementwise], ids=[row.id for row in ROWS if row.elementwise]
)


KINKS = [
    Kink("|x| at 0", np.absolute, ([0.0, -0.0],), ([0.0, 0.0],)),
    Kink("fabs at 0", np.fabs, ([0.0],), ([0.0],)),
    Kink("sign at 0", np.sign, ([0.0],), ([0.0],)),
    Kink("x ** 0", lambda x: x**0, ([-1.0, 0.0, 2.0],), ([0.0, 0.0, 0.0],)),
    Kink("0 ** b", np.power, ([0.0, 0.0, 0.0], [0.0, 1.0, 2.0]), ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0])),
    Kink("maximum of equals", np.maximum, ([1.0], [1.0]), ([0.5], [0.5])),
    Kink("maximum of itself", lambda x: np.maximum(x, x), ([1.0],), ([1.0],)),
    Kink("minimum of equals", np.minimum, ([1.0], [1.0]), ([0.5], [0.5])),
    Kink("max of equals", np.max, ([[3.0, 1.0], [3.0, 3.0]],), ([[1 / 3, 0.0], [1 / 3, 1 / 3]],)),
    Kink("max of equals by row", lambda x: np.max(x, axis=1), ([[3.0, 1.0], [3.0, 3.0]],), ([[1.0, 0.0], [0.5, 0.5]],)),
    Kink("min of equals", np.min, ([1.0, 2.0, 1.0],), ([0.5, 0.0, 0.5],)),
    Kink("relu at 0", nn.relu, ([0.0, 1.0, -1.0],), ([0.0, 1.0, 0.0],)),
    Kink("relu by where, at 0", lambda x: np.where(x > 0, x, 0), ([0.0, 1.0],), ([0.0, 1.0],)),
    Kink("√x at 0, not taken", lambda x: np.where(x > 0, np.sqrt(x), 0), ([0.0, 4.0],), ([0.0, 0.25],)),
]

KINKS += rows_elementwise.KINKS
KINKS += rows_linalg.KINKS
KINKS += rows_shape.KINKS

each_kink = pytest.mark.parametrize("kink", KINKS, ids=[kink.id for kink in KINKS])
