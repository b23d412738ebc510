"""Us and the peers, in one process, each on one thread, or on so many: `python benchmarks/run.py --threads 2`.

Needs the extra `bench` (PyTorch, HIPS autograd). Each contender runs in turn, round after round, so that a change of the
machine's speed meets all alike; the ratio is taken within each round, and the median over the rounds is printed.
"""

from __future__ import annotations

import argparse
import os

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
arguments.add_argument("which", nargs="*", help="benchmarks; all but `kernels` by default")
arguments.add_argument("--rounds", type=int, default=15)
arguments.add_argument("--seconds", type=float, default=0.2, help="for each contender in each round")
arguments.add_argument("--threads", type=int, default=1, help="for each contender")
chosen = arguments.parse_args()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[variable] = str(chosen.threads)  # before NumPy is loaded

import gc
import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

# The repository has a folder `autograd` of its own: HIPS autograd must come from site-packages.
sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.dirname(os.path.dirname(__file__))]

import generation
import kernels
import memory
import numpy as np
import training
from moons import moons

from chainrule import Tensor

Contenders = dict[str, Callable[[], Any]]


def chain() -> tuple[str, Contenders]:
    """32 nodes: ten times h = tanh(h @ W + b), h (8, 16), then the sum of squares; forward and backward, float64."""
    rng = np.random.default_rng(0)
    h0, W0, b0 = rng.normal(size=(8, 16)), rng.normal(size=(16, 16)) / 4, rng.normal(size=16)

    h_in, W, b = Tensor(h0), Tensor(W0, requires_grad=True), Tensor(b0, requires_grad=True)

    def chainrule_chain() -> tuple[Any, Any]:
        W.grad = b.grad = None
        h: Any = h_in
        for _ in range(10):
            h = np.tanh(h @ W + b)
        np.sum(h * h).backward()
        return W.grad, b.grad

    contenders: Contenders = {"chainrule": chainrule_chain}

    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: pip install torch", file=sys.stderr)
    else:
        h_torch = torch.tensor(h0)
        W_torch, b_torch = torch.tensor(W0, requires_grad=True), torch.tensor(b0, requires_grad=True)

        def torch_chain() -> tuple[Any, Any]:
            W_torch.grad = b_torch.grad = None
            h = h_torch
            for _ in range(10):
                h = torch.tanh(h @ W_torch + b_torch)
            (h * h).sum().backward()
            return W_torch.grad, b_torch.grad

        contenders["PyTorch eager"] = torch_chain

    try:
        import autograd.numpy as anp

        import autograd
    except ImportError:
        print("HIPS autograd is not installed: pip install autograd", file=sys.stderr)
    else:

        def loss(W: Any, b: Any) -> Any:
            h = h0
            for _ in range(10):
                h = anp.tanh(anp.dot(h, W) + b)
            return anp.sum(h * h)

        gradient = autograd.grad(loss, (0, 1))
        contenders["HIPS autograd"] = lambda: gradient(W0, b0)

    reference = chainrule_chain()
    for name, run in contenders.items():
        for ours, theirs in zip(reference, run(), strict=True):
            np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-12, err_msg=f"{name} computes something else")
    return chain.__doc__ or "", contenders


BENCHMARKS = {
    "chain": chain,
    "moons": moons,
    "microgpt": training.microgpt,
    "gpt_4x128": training.gpt_4x128,
    "gpt_6x384": training.gpt_6x384,
    "trace_4x128": training.trace_4x128,
    "generate_4x128": generation.generate_4x128,
    "generate_6x384": generation.generate_6x384,
}


def compare(contenders: Contenders, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each contender, one figure a round: the median of calls over `seconds`."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            gc.collect()  # nobody pays for another's garbage
            start = perf_counter()
            for _ in range(5):
                if perf_counter() < start + seconds:
                    run()
            taken = []
            end = perf_counter() + seconds
            while perf_counter() < end:
                start = perf_counter()
                run()
                taken.append(perf_counter() - start)
            times[name].append(statistics.median(taken))
    return times


def main() -> None:
    for name in chosen.which or [*BENCHMARKS, "memory"]:
        if name == "memory":
            memory.report()
            continue
        if name == "kernels":
            kernels.report(chosen.rounds, chosen.seconds, chosen.threads)
            continue
        if name not in BENCHMARKS:
            arguments.error(f"there is no benchmark {name!r}; there are {', '.join([*BENCHMARKS, 'memory', 'kernels'])}")
        text, contenders = BENCHMARKS[name]()
        times = compare(contenders, chosen.rounds, chosen.seconds)
        print(f"{name}: {text}")
        print(f"  {'':24} {'µs':>11} {'ratio to it':>12}   (medians of {chosen.rounds} rounds; lowest to highest ratio)")
        for peer, taken in times.items():
            ratios = sorted(ours / theirs for ours, theirs in zip(times["chainrule"], taken, strict=True))
            spread = f"   ({ratios[0]:.3g} to {ratios[-1]:.3g})" if peer != "chainrule" else ""
            print(f"  {peer:24} {statistics.median(taken) * 1e6:11.1f} {statistics.median(ratios):12.3g}{spread}")


if __name__ == "__main__":
    main()
