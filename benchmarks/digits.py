"""Handwritten digits with the brief's 13,002 numbers, by us and by PyTorch: `python benchmarks/digits.py`.

784-16-16-10 sigmoids, squared cost, mini-batch SGD on 8,000 MNIST images; 2,000 others test it. Both start from the same
numbers and see the same batches. In float64 they also end alike; in float32 the rounding of thousands of steps drives any two
runs apart. (The brief's 96 % needs all 60,000 images: `--mnist FOLDER` with the four IDX files.)
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy is loaded

import argparse
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

# The repository has a folder `autograd` of its own, which must not stand for another package of that name.
sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.dirname(os.path.dirname(__file__))]

import numpy as np

from chainrule.models import datasets
from chainrule.models.datasets import Digits
from chainrule.models.mlp import MLP, MLPConfig, one_hot, pixels
from chainrule.nn.losses import squared_cost
from chainrule.nn.optim import SGD

LEARNING_RATE = 1.0
BATCH = 16


def batches(train: Digits, epochs: int, dtype: Any) -> Iterator[tuple[Any, Any]]:
    """(x (16, 784), y (16, 10)): all images once an epoch, each time in another order."""
    X, Y = pixels(train.images, dtype), one_hot(train.labels, 10, dtype)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(train))
        for start in range(0, len(train), BATCH):
            rows = order[start : start + BATCH]
            yield X[rows], Y[rows]


def with_chainrule(train: Digits, images: Any, epochs: int, dtype: Any) -> Any:
    """The digits that our network sees in `images`, once trained."""
    model = MLP(MLPConfig(), dtype=dtype)
    optimizer = SGD(model.parameters(), LEARNING_RATE)
    for x, y in batches(train, epochs, dtype):
        loss = squared_cost(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.predict(pixels(images, dtype))


def with_torch(train: Digits, images: Any, epochs: int, dtype: Any) -> Any:
    """The same by PyTorch, from the same start, on the same batches."""
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = []
    state = MLP(MLPConfig(), dtype=dtype).state_dict()
    for number in (1, 2, 3):
        W, b = torch.from_numpy(state[f"W{number}"]), torch.from_numpy(state[f"b{number}"])
        layer = torch.nn.Linear(*W.shape)
        layer.weight.data, layer.bias.data = W.T.contiguous(), b
        layers += [layer, torch.nn.Sigmoid()]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for x, y in batches(train, epochs, dtype):
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).sum() / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return model(torch.from_numpy(pixels(images, dtype))).argmax(-1).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description="Handwritten digits, by us and by PyTorch.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images (15)")
    parser.add_argument("--mnist", metavar="FOLDER", help="read MNIST's four IDX files instead of the digits shipped")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    arguments = parser.parse_args()
    train, test = datasets.mnist_folder(arguments.mnist) if arguments.mnist else datasets.digits().split(8000)

    contenders = {"chainrule": with_chainrule}
    try:
        import torch  # noqa: F401
    except ImportError:
        print("PyTorch is not installed: pip install torch", file=sys.stderr)
    else:
        contenders["PyTorch"] = with_torch
    setting = f"batches of {BATCH}, learning rate {LEARNING_RATE}, {arguments.dtype}"
    print(f"{len(train):,} digits, {arguments.epochs} epochs in {setting}")
    for name, trained in contenders.items():
        start = perf_counter()
        found = trained(train, test.images, arguments.epochs, arguments.dtype)
        right = int(np.sum(found == test.labels))
        seconds = perf_counter() - start
        print(f"{name:9}  {right:,} of {len(test):,} test digits right, {right / len(test):.2%}, after {seconds:.1f} s")


if __name__ == "__main__":
    main()
