"""micrograd's demo: one step of training with micrograd, with Value, and with Tensor.

A perceptron 2-16-16-1 on 100 points of two half-moons, all of them in each step; hinge loss, and 1e-4 times the squared
weights. The same `loss` runs on arrays of Values and on Tensors. And micrograd's own code runs on Values too: there the two
engines do the same work, node for node.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from chainrule import Tensor
from chainrule.autograd.scalar import values
from chainrule.autograd.value import Value, zero_grad

LEARNING_RATE = 0.1
SHAPES = [(2, 16), (16,), (16, 16), (16,), (16, 1), (1,)]

Step = Callable[[], float]


def data() -> tuple[Any, Any]:
    """X (100, 2) and y (100,), -1 or 1."""
    rng = np.random.default_rng(1337)
    t = np.linspace(0, np.pi, 50)
    moons = np.concatenate([np.stack([np.cos(t), np.sin(t)], axis=1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1)])
    return moons + 0.1 * rng.standard_normal((100, 2)), np.repeat([-1.0, 1.0], 50)


def weights() -> list[Any]:
    """The weights and biases that all three start from, as micrograd draws them."""
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, shape) if len(shape) == 2 else np.zeros(shape) for shape in SHAPES]


def relu(x: Any) -> Any:
    return np.where(x > 0, x, 0.0)


def loss(parameters: list[Any], X: Any, y: Any) -> Any:
    W1, b1, W2, b2, W3, b3 = parameters
    h = relu(X @ W1 + b1)  # (100, 16)
    h = relu(h @ W2 + b2)  # (100, 16)
    scores = (h @ W3 + b3)[:, 0]  # (100,)
    hinge = np.mean(relu(1 - y * scores))
    return hinge + 1e-4 * sum(np.sum(p * p) for p in parameters)


def with_tensors() -> Step:
    X, y = data()
    parameters = [Tensor(w, requires_grad=True) for w in weights()]

    def step() -> float:
        L = loss(parameters, X, y)
        for p in parameters:
            p.grad = None
        L.backward()
        for p in parameters:
            p.data = p.data - LEARNING_RATE * p.grad
        return float(L)

    return step


def with_values() -> Step:
    X, y = data()
    parameters = [values(w) for w in weights()]

    def step() -> float:
        L = loss(parameters, X, y)
        for p in parameters:
            zero_grad(p)
        L.backward()
        for p in parameters:
            for v in p.flat:
                v.data -= LEARNING_RATE * v.grad
        return float(L)

    return step


def micrograd_model(value: Any) -> tuple[Any, Callable[[], Any]]:
    """micrograd's model on a class of values, with our weights in it, and its loss, as in micrograd's demo."""
    from micrograd import nn

    X, y = data()
    theirs, nn.Value = nn.Value, value
    try:
        model = nn.MLP(2, [16, 16, 1])
    finally:
        nn.Value = theirs
    ours = iter(weights())
    for layer in model.layers:
        W, b = next(ours), next(ours)
        for j, neuron in enumerate(layer.neurons):
            neuron.b.data = float(b[j])
            for w, number in zip(neuron.w, W[:, j], strict=True):
                w.data = float(number)

    def micrograd_loss() -> Any:
        inputs = [list(map(value, row)) for row in X.tolist()]
        scores = list(map(model, inputs))
        losses = [(1 + -yi * score).relu() for yi, score in zip(y.tolist(), scores, strict=True)]
        return sum(losses) * (1.0 / len(losses)) + 1e-4 * sum(p * p for p in model.parameters())

    return model, micrograd_loss


def with_micrograd_code(value: Any) -> Step:
    model, micrograd_loss = micrograd_model(value)

    def step() -> float:
        L = micrograd_loss()
        model.zero_grad()
        L.backward()
        for p in model.parameters():
            p.data -= LEARNING_RATE * p.grad
        return float(L.data)

    return step


def starts() -> dict[str, Callable[[], Step]]:
    """The contenders by name, each from the same weights; those of micrograd only if it is installed."""
    contenders: dict[str, Callable[[], Step]] = {"chainrule": with_tensors, "Value": with_values}
    try:
        from micrograd.engine import Value as MicrogradValue
    except ImportError:
        print("micrograd is not installed: pip install micrograd", file=sys.stderr)
    else:
        contenders["Value, micrograd's code"] = partial(with_micrograd_code, Value)
        contenders["micrograd"] = partial(with_micrograd_code, MicrogradValue)
    return contenders


def check_equal(contenders: dict[str, Callable[[], Step]], steps: int = 4) -> None:
    """The losses of several steps from the same weights; AssertionError where they differ by 1e-9."""
    runs = {name: start() for name, start in contenders.items()}
    history = {name: [step() for _ in range(steps)] for name, step in runs.items()}
    for name, losses in history.items():
        np.testing.assert_allclose(losses, history["chainrule"], rtol=0, atol=1e-9, err_msg=f"{name} computes something else")


def bytes_per_node(value: Any, inputs_of: Callable[[Any], Any]) -> tuple[float, int]:
    """Memory per node that the loss of micrograd's code holds after backward, and the number of its nodes."""
    _, make = micrograd_model(value)
    gc.collect()
    tracemalloc.start()
    try:
        L = make()
        L.backward()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    seen = {L}
    unread = [L]
    while unread:
        for x in inputs_of(unread.pop()):
            if isinstance(x, value) and x not in seen:
                seen.add(x)
                unread.append(x)
    return held / len(seen), len(seen)


def memory_report() -> str:
    """Bytes a node of Value and of micrograd; needs micrograd."""
    from micrograd.engine import Value as MicrogradValue

    ours, our_nodes = bytes_per_node(Value, lambda v: v.inputs)
    theirs, their_nodes = bytes_per_node(MicrogradValue, lambda v: v._prev)
    return (
        f"micrograd's code holds {ours:.0f} bytes a node on Value ({our_nodes:,} nodes), "
        f"{theirs:.0f} on micrograd ({their_nodes:,} nodes)"
    )


def moons() -> tuple[str, dict[str, Callable[[], Any]]]:
    """The contenders for run.py, after a check that their losses agree."""
    contenders = starts()
    check_equal(contenders)
    text = "one step of micrograd's demo on two moons, a perceptron 2-16-16-1, 100 points, float64"
    if "micrograd" in contenders:
        text += f"\n  {memory_report()}"
    return text, {name: start() for name, start in contenders.items()}
