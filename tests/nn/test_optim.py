"""Optimisers: their formulas by hand, what a step leaves alone, resuming, clipping.

Against PyTorch, step by step: tests/parity/test_optim.py.
"""

import copy
import gc
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, nn
from chainrule.nn import kernels, optim

MAKERS = {
    "SGD": lambda parameters: nn.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: nn.SGD(parameters, lr=0.1, momentum=0.9),
    "Nesterov": lambda parameters: nn.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: nn.Adam(parameters, lr=0.1),
    "AdamW": lambda parameters: nn.AdamW(parameters, lr=0.1, weight_decay=0.1),
}
each_optimizer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
BIG = (150, 300)  # more numbers than a step takes at a time


class Net(nn.Module):
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.b = nn.Parameter(rng.standard_normal(3))
        self.W = nn.Parameter(rng.standard_normal((3, 2)))
        self.big = nn.Parameter(rng.standard_normal(BIG))
        self.E = nn.Parameter(rng.standard_normal((4, 3)).astype(np.float32))
        self.scale = nn.Parameter(rng.standard_normal(()))

    def forward(self, ids):
        return np.sum(np.tanh((self.E[ids] + self.b) @ self.W) * self.scale) + np.mean(self.big**2)


def train(net, optimizer, ids, first=0):
    losses = []
    for step, id in enumerate(ids, first):
        optimizer.lr = 0.1 / (step + 1)
        optimizer.zero_grad()
        loss = net([id, 0])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_formula(make, arrays, gradients):
    """The steps in plain NumPy, one parameter after the other."""
    found = []
    for x, slopes in zip(arrays, gradients, strict=True):
        optimizer, x, m, v = make([nn.Parameter(0.0)]), np.array(x), 0.0, 0.0
        for t, g in enumerate(slopes, 1):
            if isinstance(optimizer, nn.SGD):
                v = optimizer.momentum * v + g
                x = x - 0.1 * (g + optimizer.momentum * v if optimizer.nesterov else v)
            else:
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                decay = getattr(optimizer, "weight_decay", 0) * (x.ndim >= 2)
                x = x - 0.1 * decay * x - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        found.append(x)
    return found


# The formulas


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sgd_steps_against_the_gradient(dtype):
    w, unused = nn.Parameter(np.array([1.0, 2.0], dtype)), nn.Parameter([5.0])
    optimizer = nn.SGD(iter([w, unused]), lr=0.25)
    np.sum(w * w).backward()
    optimizer.step()
    assert_array_equal(w.data, [0.5, 1.0])
    assert_array_equal(unused.data, [5.0])
    assert w.dtype == dtype
    optimizer.step()  # the gradient stays until it is forgotten
    assert_array_equal(w.data, [0.0, 0.0])
    optimizer.zero_grad()
    assert w.grad is None
    optimizer.step()
    assert_array_equal(w.data, [0.0, 0.0])


def test_momentum_by_hand():
    """Gradient 1 at every step, μ = 1/2, η = 1: v is 1, 3/2, 7/4."""
    for nesterov, expected in [(False, [-1, -2.5, -4.25]), (True, [-1.5, -3.25, -5.125])]:
        w = nn.Parameter(0.0)
        optimizer = nn.SGD([w], lr=1.0, momentum=0.5, nesterov=nesterov)
        for value in expected:
            w.grad = np.ones(())
            optimizer.step()
            assert w.item() == value


def test_adams_first_step_is_the_rate():
    """m̂ / √v̂ = g / |g|: the size of the gradient does not matter."""
    w = nn.Parameter([1.0, 1.0, 1.0])
    w.grad = np.array([1e-3, -1e3, 0.0])
    nn.Adam([w], lr=0.1).step()
    assert_allclose(w.data, [0.9, 1.1, 1.0], rtol=1e-5)


@each_optimizer
def test_steps_are_the_formulas(make):
    rng = np.random.default_rng(0)
    shapes = [(3,), (3, 2), BIG, (), (2, 1, 2), (20000,)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    slopes = [[rng.standard_normal(shape) for _ in range(5)] for shape in shapes]
    parameters = [nn.Parameter(x) for x in arrays]
    optimizer = make(parameters)
    for t in range(5):
        for parameter, g in zip(parameters, slopes, strict=True):
            parameter.grad = g[t]
        optimizer.step()
    for parameter, expected in zip(parameters, by_formula(make, arrays, slopes), strict=True):
        assert_allclose(parameter.data, expected, rtol=1e-12, atol=1e-14)


@each_optimizer
def test_a_gradient_may_lie_in_memory_as_it_likes(make):
    one, other = nn.Parameter(np.ones(BIG)), nn.Parameter(np.ones(BIG))
    g = np.random.default_rng(0).standard_normal(BIG[::-1]).T
    one.grad, other.grad = g, np.ascontiguousarray(g)
    make([one]).step()
    make([other]).step()
    assert_array_equal(one.data, other.data)


def test_only_matrices_decay():
    W, b, tied = nn.Parameter(np.ones((2, 2))), nn.Parameter(np.ones(2)), nn.Parameter(np.ones((1, 2)))
    optimizer = nn.AdamW([b, W, tied, tied], lr=0.5, weight_decay=0.25)
    for parameter in [W, b, tied]:
        parameter.grad = np.zeros(parameter.shape)
    optimizer.step()
    assert_array_equal(W.data, 0.875)
    assert_array_equal(tied.data, 0.875)  # once, though given twice
    assert_array_equal(b.data, 1)


@each_optimizer
def test_precision_is_kept(make):
    """float16 parameters stay so, while what is summed up over the steps is kept in float32."""
    parameters = [nn.Parameter(np.ones(2, dtype)) for dtype in (np.float16, np.float32, np.float64)]
    optimizer = make(parameters)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = np.array([0.5, 2e-4], parameter.dtype)
        optimizer.step()
    for parameter in parameters:
        assert parameter.dtype == parameter.grad.dtype
        assert_allclose(parameter.data, parameters[-1].data, rtol=2 * np.finfo(parameter.dtype).eps)


def test_float16_gradients_whose_squares_overflow():
    w = nn.Parameter(np.zeros(BIG, np.float16))
    w.grad = np.full(BIG, 300, np.float16)
    nn.Adam([w], lr=0.5).step()
    assert_array_equal(w.data, -0.5)


# What a step leaves alone


def test_all_parameters_step_from_the_same_point():
    a, b = nn.Parameter(2.0), nn.Parameter(3.0)
    optimizer = nn.SGD([a, b], lr=1.0)
    (a * b).backward()
    optimizer.step()
    assert (a.item(), b.item()) == (-1.0, 1.0)


@each_optimizer
def test_steps_leave_every_graph_as_it_was(make):
    """Also when the arrays of older steps are used again: not those that something still holds."""
    w = nn.Parameter([3.0, 1.0])
    optimizer = make([w])
    losses, values, views, later = [], [], [], []
    for _ in range(6):
        loss = np.sum(w * w * w)
        losses.append(loss)
        values.append(w.data.copy())
        views.append(w.data[1:])
        later.append(np.sum(w[:1]))
        w.grad = None
        loss.backward()
        optimizer.step()
    for loss, value, view, part in zip(losses, values, views, later, strict=True):
        w.grad = None
        loss.backward()
        assert_array_equal(w.grad, 3 * value**2)
        assert_array_equal(view, value[1:])
        assert part.item() == value[0]
        w.grad = None
        part.backward()
        assert_array_equal(w.grad, [1, 0])
    assert len({tuple(value) for value in values}) == 6


def test_parameters_are_read_only_after_a_step():
    net = Net()
    train(net, nn.AdamW(net.parameters()), [1, 2, 3])
    for parameter in net.parameters():
        with pytest.raises(ValueError, match="read-only"):
            parameter.data[...] = 0


@each_optimizer
def test_memory_is_used_again(make):
    """Two arrays take turns, as soon as no graph holds the older one."""
    w = nn.Parameter(np.ones((4, 4)))
    optimizer = make([w])
    seen = []
    for _ in range(8):
        w.grad = np.ones((4, 4))
        optimizer.step()
        seen.append(w.data.ctypes.data)
    assert len(set(seen)) == 2
    held = [w.data]
    w.grad = np.ones((4, 4))
    optimizer.step()
    held.append(w.data)
    before = [x.copy() for x in held]
    optimizer.step()
    assert w.data.ctypes.data not in {x.ctypes.data for x in held}
    for x, value in zip(held, before, strict=True):
        assert_array_equal(x, value)


@each_optimizer
def test_a_step_starts_from_data_that_was_assigned(make):
    rng = np.random.default_rng(0)
    one, other = [[nn.Parameter(np.ones((2, 2))), nn.Parameter(np.ones(3))] for _ in range(2)]
    first, second = make(one), make(other)
    slopes = [[rng.standard_normal((2, 2)), rng.standard_normal(3)] for _ in range(3)]
    for t in range(3):
        if t == 2:
            one[0].data = np.full((2, 2), 7.0)  # the steps before are in the state, not in the data
            other[0].data = np.full((2, 2), 7.0)
            other[1].data = other[1].data.copy()
        for parameters in (one, other):
            for parameter, g in zip(parameters, slopes[t], strict=True):
                parameter.grad = g
        first.step()
        second.step()
        for x, y in zip(one, other, strict=True):
            assert_array_equal(x.data, y.data)
    assert np.all(np.abs(one[0].data - 7) < 1)


@each_optimizer
def test_a_parameter_without_a_gradient_waits(make):
    """Neither its value nor what is kept of it changes, and its own steps are counted from its first."""
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((6, 2))
    a, b, alone = (nn.Parameter([1.0, 2.0]) for _ in range(3))
    both, single = make([a, b]), make([alone])
    for t, g in enumerate(slopes):
        a.grad, b.grad = g, g if t % 2 else None
        before = b.data.copy()
        both.step()
        if t % 2 == 0:
            assert_array_equal(b.data, before)
        else:
            alone.grad = g
            single.step()
            assert_array_equal(b.data, alone.data)
    assert both.steps == [6, 3]


def test_a_gradient_that_can_be_differentiated_again():
    w = nn.Parameter([1.0, 2.0])
    np.sum(w**3).backward(create_graph=True)
    assert isinstance(w.grad, Tensor)
    nn.SGD([w], lr=0.1).step()
    assert_allclose(w.data, [0.7, 0.8], rtol=1e-14)
    w.grad = None


def test_no_reference_cycles():
    net = Net()
    optimizer = nn.AdamW(net.parameters())
    train(net, optimizer, [1, 2])
    gc.collect()
    gc.disable()
    try:
        train(net, optimizer, [1, 2, 3])
        assert gc.collect() == 0
    finally:
        gc.enable()


@each_optimizer
def test_training_reaches_the_minimum(make):
    w = nn.Parameter([5.0, -3.0])
    optimizer = make([w])
    for step in range(1000):
        optimizer.lr = 0.2 * 0.99**step
        optimizer.zero_grad()
        np.sum((w - np.array([1.0, 2.0])) ** 2).backward()
        optimizer.step()
    assert_allclose(w.data, [1.0, 2.0], rtol=1e-3)


# Resuming


@each_optimizer
def test_training_resumes_bit_for_bit(make):
    ids = [1, 2, 3, 1, 2, 3]
    net = Net()
    whole = train(net, make(net.parameters()), ids)

    first = Net()
    optimizer = make(first.parameters())
    start = train(first, optimizer, ids[:3])
    values, state = first.state_dict(), optimizer.state_dict()
    train(first, optimizer, ids[3:])  # what was saved is a copy

    second = Net(seed=1)
    optimizer = make(second.parameters())
    second.load_state_dict(values)
    optimizer.load_state_dict(state)
    assert start + train(second, optimizer, ids[3:], first=3) == whole
    for x, y in zip(net.parameters(), second.parameters(), strict=True):
        assert_array_equal(x.data, y.data)


def out_of_band(x):
    """Through a pickle whose arrays are handed over beside it, in memory that cannot be written."""
    buffers = []
    pickled = pickle.dumps(x, 5, buffer_callback=buffers.append)
    return pickle.loads(pickled, buffers=[buffer.raw().tobytes() for buffer in buffers])


TWINS = {f"protocol {n}": lambda x, n=n: pickle.loads(pickle.dumps(x, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)}
TWINS |= {"out of band": out_of_band, "deepcopy": copy.deepcopy}


@each_optimizer
@pytest.mark.parametrize("twin_of", TWINS.values(), ids=TWINS.keys())
@pytest.mark.parametrize("steps", [0, 3])
def test_a_copy_goes_on_bit_for_bit(make, twin_of, steps):
    """With parameters of several dtypes and sizes, one of which waits; and neither changes the other."""
    net, ids = Net(), [1, 2, 3, 1, 2, 3]
    optimizer = make(net.parameters())
    train(net, optimizer, ids[:steps])
    net.b.requires_grad = False
    twin, twin_optimizer = twin_of((net, optimizer))
    for x, y in zip(twin.parameters(), twin_optimizer.parameters, strict=True):
        assert x is y
    start = [parameter.data.copy() for parameter in net.parameters()]
    losses = train(twin, twin_optimizer, ids, first=steps)
    for parameter, value in zip(net.parameters(), start, strict=True):
        assert_array_equal(parameter.data, value)
    assert train(net, optimizer, ids, first=steps) == losses
    for x, y in zip(net.parameters(), twin.parameters(), strict=True):
        assert_array_equal(x.data, y.data)
    state = optimizer.state_dict()
    for name, array in twin_optimizer.state_dict().items():
        assert_array_equal(array, state[name])


@pytest.mark.parametrize("twin_of", TWINS.values(), ids=TWINS.keys())
def test_the_gradients_of_a_copy_are_clipped_the_same(twin_of):
    parameters = with_gradients([3.0, 0.7], 4.0)
    twins = twin_of(parameters)
    assert nn.clip_grad_norm(twins, 0.3) == nn.clip_grad_norm(parameters, 0.3)
    for x, y in zip(parameters, twins, strict=True):
        assert_array_equal(x.grad, y.grad)


def test_names_of_the_state():
    net = Net()
    state = nn.Adam(net.parameters()).state_dict()
    assert state.keys() == {"step", *(f"{kind}.{name}" for kind in "mv" for name in ("b", "W", "big", "E", "scale"))}
    assert state["m.W"].shape == (3, 2)
    assert_array_equal(state["step"], [0] * 5)
    assert nn.SGD(net.parameters(), 0.1).state_dict().keys() == {"step"}
    a, b = nn.Parameter(1.0), nn.Parameter([2.0], name="b")
    assert nn.SGD([a, b], 0.1, momentum=0.5).state_dict().keys() == {"step", "v.0", "v.1"}


def test_state_by_hand():
    w = nn.Parameter([1.0, 2.0], name="w")
    optimizer = nn.Adam([w])
    w.grad = np.array([4.0, -2.0])
    optimizer.step()
    state = optimizer.state_dict()
    assert_allclose(state["m.w"], [0.4, -0.2], rtol=1e-15)
    assert_allclose(state["v.w"], [0.016, 0.004], rtol=1e-13)
    assert_array_equal(state["step"], [1])


def test_a_state_that_does_not_fit_changes_nothing():
    w, b = nn.Parameter([1.0, 2.0], name="w"), nn.Parameter([1.0], name="b")
    optimizer = nn.SGD([w, b], lr=0.1, momentum=0.5)
    w.grad = np.ones(2)
    optimizer.step()
    before = optimizer.state_dict()
    good = {"step": [3, 3], "v.w": np.zeros(2), "v.b": np.zeros(1)}
    with pytest.raises(KeyError, match=r"The state does not fit this SGD; missing: v\.w; unknown: m\.w"):
        optimizer.load_state_dict({"step": [3, 3], "m.w": np.zeros(2), "v.b": np.zeros(1)})
    with pytest.raises(ValueError, match=r"v\.b has shape \(1,\); the state has \(2,\)"):
        optimizer.load_state_dict(good | {"v.b": np.zeros(2)})
    with pytest.raises(ValueError, match=r"step has shape \(2,\); the state has \(1,\)"):
        optimizer.load_state_dict(good | {"step": [3]})
    for name, array in optimizer.state_dict().items():
        assert_array_equal(array, before[name])
    optimizer.load_state_dict(good)
    assert optimizer.steps == [3, 3]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"v.b": ["x"]}, TypeError, r"v\.b has dtype float64; the state has <U1"),
        ({"v.b": [1j]}, TypeError, r"v\.b has dtype float64; the state has complex128"),
        ({"m.h": [1e300]}, ValueError, r"m\.h has dtype float32; the state has numbers too large"),
        ({"step": [1.5, 2.0, 3.0]}, TypeError, "step has dtype int64; the state has float64"),
        ({"step": [1, 2, -3]}, ValueError, "how often each parameter was changed, from 0; the state has -3"),
    ],
    ids=str,
)
def test_a_state_of_other_kinds_changes_nothing(change, error, message):
    parameters = [nn.Parameter([1.0], name="w"), nn.Parameter([1.0], name="b"), nn.Parameter(np.ones(1, np.float16), name="h")]
    optimizer = nn.Adam(parameters)
    before = optimizer.state_dict()
    with pytest.raises(error, match=message):
        optimizer.load_state_dict({name: array + 1 for name, array in before.items()} | change)
    for name, array in optimizer.state_dict().items():
        assert_array_equal(array, before[name])


# What a gradient must be like

UNLIKE = [
    (np.ones(1), ValueError, r"b has shape \(2,\), and so has its gradient; got \(1,\)"),
    (np.ones(3), ValueError, r"got \(3,\)"),
    (np.ones((2, 1)), ValueError, r"got \(2, 1\)"),
    (np.float64(1), ValueError, r"got \(\)"),
    (1.0, TypeError, "b has dtype float64, and so has its gradient; got <class 'float'>"),
    ([1.0, 1.0], TypeError, "got <class 'list'>"),
    (np.ones(2, np.float32), TypeError, "got float32"),
    (np.ones(2, complex), TypeError, "got complex128"),
    (np.ones(2, int), TypeError, "got int64"),
]


@each_optimizer
@pytest.mark.parametrize(("gradient", "error", "message"), UNLIKE, ids=lambda x: str(x) if isinstance(x, np.ndarray) else None)
def test_a_gradient_unlike_its_parameter_changes_nothing(make, gradient, error, message):
    """Nor does it change what is kept, the counts of steps, or parameters of another dtype, which take their step apart."""
    parameters = [
        nn.Parameter([1.0, 2.0], name="a"),
        nn.Parameter(np.ones(2, np.float32), name="f"),
        nn.Parameter([1.0, 2.0], name="b"),
    ]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = np.ones(2, parameter.dtype)
    optimizer.step()
    state, values = optimizer.state_dict(), [parameter.data.copy() for parameter in parameters]
    parameters[2].grad = gradient
    with pytest.raises(error, match=message):
        optimizer.step()
    with pytest.raises(error, match=message):
        nn.clip_grad_norm(parameters, 1.0)
    assert optimizer.steps == [1, 1, 1]
    for name, array in optimizer.state_dict().items():
        assert_array_equal(array, state[name])
    for parameter, value in zip(parameters, values, strict=True):
        assert_array_equal(parameter.data, value)
    assert_array_equal(parameters[0].grad, 1)  # not scaled


def test_a_step_that_is_broken_off_moves_no_parameter_and_no_count():
    class Breaks(nn.SGD):
        def update(self, new, old, g, state, spare, step, matrix):
            super().update(new, old, g, state, spare, step, matrix)
            if old.dtype == np.float32:
                raise KeyboardInterrupt

    a, f = nn.Parameter([1.0]), nn.Parameter(np.ones(1, np.float32))
    a.grad, f.grad = np.ones(1), np.ones(1, np.float32)
    optimizer = Breaks([a, f], lr=0.5)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert (a.item(), f.item(), optimizer.steps) == (1.0, 1.0, [0, 0])
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert (a.item(), f.item(), optimizer.steps) == (1.0, 1.0, [0, 0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_that_is_broken_off_must_have_its_state_loaded_anew(threads):
    """1e30 has no square in float32. The numbers before it, or in other threads, have new m and v by then."""
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((3, 1100, 1000)).astype(np.float32)
    assert slopes[0].nbytes >= kernels.SHARED
    one, other = [nn.Parameter(np.ones(slopes[0].shape, np.float32)) for _ in range(2)]
    optimizer, right = nn.Adam([one]), nn.Adam([other])
    before = kernels.threads()
    try:
        kernels.set_threads(threads)
        one.grad = other.grad = slopes[0]
        optimizer.step()
        right.step()
        whole, value = optimizer.state_dict(), one.data
        one.grad = slopes[1].copy()
        one.grad[900, 0] = 1e30
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            optimizer.step()
        assert one.data is value
        assert optimizer.steps == [1]
        one.grad = other.grad = slopes[2]
        for call in (optimizer.step, copy.deepcopy(optimizer).step, optimizer.state_dict):
            with pytest.raises(
                RuntimeError, match=r"A step was broken off, and m, v of this Adam are changed in part\..*load_stat"
            ):
                call()
        with pytest.raises(KeyError):
            optimizer.load_state_dict({})
        with pytest.raises(RuntimeError, match="broken off"):
            optimizer.step()
        assert one.data is value
        optimizer.load_state_dict(whole)
        optimizer.step()
        right.step()
        assert_array_equal(one.data, other.data)
    finally:
        kernels.set_threads(before)


@pytest.mark.parametrize("make", [MAKERS["momentum"], MAKERS["Adam"]])
def test_a_warning_turned_into_an_error_breaks_a_step_off_too(make):
    w = nn.Parameter(np.ones(2, np.float32))
    optimizer = make([w])
    w.grad = np.full(2, 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            [optimizer.step() for _ in range(2)]
    with pytest.raises(RuntimeError, match="broken off"):
        optimizer.step()


# Gradients: clipping and scaling


def with_gradients(*gradients):
    parameters = [nn.Parameter(np.zeros(np.shape(g), np.asarray(g).dtype), name=f"p{i}") for i, g in enumerate(gradients)]
    for parameter, g in zip(parameters, gradients, strict=True):
        parameter.grad = np.array(g)
    return parameters


def test_clipping_by_hand():
    """‖(3, 0), 4‖ = 5, over all parameters together; one that is given twice counts once, one without gradient not at all."""
    a, b = with_gradients([3.0, 0.0], 4.0)
    assert nn.clip_grad_norm(iter([a, b, a, nn.Parameter(1.0)]), 1.0) == 5.0
    assert_allclose(a.grad, [0.6, 0], rtol=1e-15)
    assert_allclose(b.grad, 0.8, rtol=1e-15)
    a, b = with_gradients([3.0, 0.0], 4.0)
    assert nn.clip_grad_norm([a, b], 5.0) == 5.0
    assert_array_equal(a.grad, [3, 0])  # it was not too long
    assert nn.clip_grad_norm([nn.Parameter(1.0)], 5.0) == 0.0
    assert nn.clip_grad_norm(with_gradients([0.0]), 5.0) == 0.0


@pytest.mark.parametrize(
    ("dtype", "size"), [(np.float32, 3e38), (np.float32, 1e-30), (np.float16, 6e4), (np.float16, 1e-3), (np.float16, 1e-6)]
)
def test_norms_whose_squares_leave_the_range(dtype, size):
    parameters = with_gradients(np.array([size, -size], dtype), np.array([[size, size]], dtype))
    size = float(parameters[0].grad[0])
    assert_allclose(nn.clip_grad_norm(parameters, size / 2), 2 * size, rtol=1e-7)
    for parameter in parameters:
        assert parameter.grad.dtype == dtype
        assert_allclose(np.abs(parameter.grad), size / 4, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).smallest_subnormal)


def test_a_norm_beyond_float64_changes_nothing():
    parameters = with_gradients(1.5e308, 1.5e308, 1.5e308)
    with pytest.raises(FloatingPointError, match=r"The norm of the gradients is beyond float64: their largest is 1\.5e\+308"):
        nn.clip_grad_norm(parameters, 1.0)
    assert [parameter.grad for parameter in parameters] == [1.5e308] * 3
    parameters = with_gradients(9e307, 9e307, 9e307)
    assert_allclose(nn.clip_grad_norm(parameters, 1.0), 9e307 * np.sqrt(3), rtol=1e-15)
    assert_allclose([parameter.grad for parameter in parameters], np.sqrt(1 / 3), rtol=1e-15)


@pytest.mark.parametrize(
    ("dtype", "size", "most"),
    [
        (np.float64, 1e308, 1e-300),
        (np.float32, 3e38, 1e-3),
        (np.float32, 3e38, 1e-30),
        (np.float16, 6e4, 1.0),
        (np.float16, 6e4, 1e-3),
    ],
)
def test_clipping_by_a_factor_too_small_for_the_dtype(dtype, size, most):
    """max_norm / ‖g‖ would be 0, or of few digits; each scaled gradient is not."""
    parameters = with_gradients(np.array([size, -size], dtype), dtype(size))
    nn.clip_grad_norm(parameters, most)
    for parameter in parameters:
        assert parameter.grad.dtype == dtype
        assert_allclose(np.abs(parameter.grad), most / np.sqrt(3), rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "size", "factor"), [(np.float16, 1e-4, 1e5), (np.float32, 1e-30, 1e40), (np.float32, 1e38, 1e-40)]
)
def test_scaling_by_a_number_that_the_dtype_does_not_have(dtype, size, factor):
    (parameter,) = with_gradients(np.full(3, size, dtype))
    nn.scale_gradients([parameter], -factor)
    assert parameter.grad.dtype == dtype
    assert_allclose(parameter.grad, -size * factor, rtol=1e-3 if dtype == np.float16 else 1e-6)
    nn.scale_gradients([parameter], 0)
    assert_array_equal(parameter.grad, 0)


def test_the_norm_of_many_numbers_in_float32():
    g = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    assert_allclose(optim.grad_norm(with_gradients(g)), np.linalg.norm(g.astype(float)), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_clipping_refuses_what_is_not_finite(bad):
    parameters = with_gradients([1.0, 2.0], [1.0, bad])
    with pytest.raises(FloatingPointError, match=r"The gradient of p1 is not finite"):
        nn.clip_grad_norm(parameters, 1.0)
    assert_array_equal(parameters[0].grad, [1.0, 2.0])


def test_accumulated_gradients_of_parts_are_those_of_the_whole():
    whole, parts, ids = Net(), Net(), [1, 2, 3, 1]
    (sum(whole([id]) for id in ids) / 4).backward()
    for id in ids:
        parts([id]).backward()
    nn.scale_gradients([*parts.parameters(), nn.Parameter(1.0), parts.W], 1 / 4)
    for x, y in zip(whole.parameters(), parts.parameters(), strict=True):
        assert x.grad.dtype == y.grad.dtype == x.dtype
        assert_allclose(y.grad, x.grad, rtol=1e-6 if x.dtype == np.float32 else 1e-13)


# What is refused


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: nn.SGD([], 0.1), ValueError, "SGD got no parameters"),
        (lambda w: nn.AdamW(Net()), TypeError, r"AdamW takes the parameters of a module; say net\.parameters\(\)"),
        (lambda w: nn.Adam([w * 2]), TypeError, "Adam takes Parameters"),
        (lambda w: nn.Adam([np.ones(3)]), TypeError, r"Adam takes Parameters, such as model\.parameters\(\); got array"),
        (lambda w: nn.SGD([w], -0.1), ValueError, r"learning rate is a number in \[0, inf\); got -0.1"),
        (lambda w: nn.SGD([w], 0.1, momentum=1.0), ValueError, r"momentum is a number in \[0, 1\); got 1.0"),
        (lambda w: nn.SGD([w], 0.1, nesterov=True), ValueError, "Nesterov's momentum needs a momentum above 0"),
        (lambda w: nn.Adam([w], betas=(0.9, 1.0)), ValueError, r"of betas is a number in \[0, 1\); got 1.0"),
        (lambda w: nn.Adam([w], eps=-1.0), ValueError, r"eps is a number in \[0, inf\); got -1.0"),
        (lambda w: nn.AdamW([w], weight_decay=-1.0), ValueError, r"weight_decay is a number in \[0, inf\); got -1.0"),
        (lambda w: nn.clip_grad_norm([w], 0.0), ValueError, r"let through, is a number in \(0, inf\]; got 0.0"),
        (lambda w: nn.clip_grad_norm([np.ones(3)], 1.0), TypeError, "clip_grad_norm takes Parameters"),
        (lambda w: nn.scale_gradients([3], 1.0), TypeError, "scale_gradients takes Parameters"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(nn.Parameter([1.0]))
