"""Every row of the table of primitives, held against NumPy, against differences, and forward mode against reverse."""

import gc
import itertools

import numpy as np
import pytest
from differences import complex_step, numerical_gradient, ridders
from numpy.testing import assert_allclose, assert_array_equal
from primitive_table import KINKS, ROWS, each_elementwise_row, each_kink, each_row

from chainrule import Tensor, grad, jvp, vjp
from chainrule.autograd import Primitive, gradients
from chainrule.autograd.describe import forward_text, rule_text
from chainrule.autograd.graph import ancestors, opened, replay
from chainrule.autograd.tensor import DISPATCH, PLAIN

SHAPES = {  # by number of inputs, some that broadcast
    1: [((4,),), ((2, 1, 4),), ((1, 4),)],
    2: [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3, 4)), ((2, 3, 4), (3, 1)), ((1,), ())],
}

SEVERAL_ALIKE = [row for row in ROWS if len(row.domains) > 1 and len({domain.shape for domain in row.domains}) == 1]


def leaves_of(arrays):
    return [Tensor(x, requires_grad=True) for x in arrays]


def some(*shape):
    """Numbers to weigh outputs or to go along, the same on every call."""
    return np.random.default_rng(1).uniform(0.5, 1.5, shape)


def gradient_by_differences(y, leaves, u):
    """∂⟨u, y⟩/∂leaf by replaying the graph, with the complex step where its operations have one; and how exact that is."""
    graph, _ = opened(y)
    analytic = all(node.primitive.analytic for node in ancestors(graph) if node.primitive)

    def weighted(*values):
        return np.sum(u * replay(y, dict(zip(leaves, values, strict=True))))

    derivative, tolerance = (complex_step, 1e-12) if analytic else (ridders, 1e-8)
    return numerical_gradient(weighted, [x.data for x in leaves], derivative), tolerance


def check_gradient(call, arrays):
    leaves = leaves_of(arrays)
    y = call(*leaves)
    u = some(*y.shape)
    expected, tolerance = gradient_by_differences(y, leaves, u)
    for x, found, wanted in zip(leaves, gradients(y, leaves, u), expected, strict=True):
        assert found.shape == x.shape
        assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


# Values


@each_row
def test_value_is_numpys(row):
    arrays = row.arrays()
    y = row.call(*leaves_of(arrays))
    expected = (row.reference or row.call)(*arrays)
    assert y.requires_grad
    assert y.shape == np.shape(expected)
    assert y.dtype == expected.dtype
    assert_allclose(y.data, expected, rtol=1e-14, atol=1e-15)


@each_row
def test_replay_computes_the_value_again(row):
    leaves = leaves_of(row.arrays())
    y = row.call(*leaves)
    moved = [x.data + 0.125 for x in leaves]
    assert_array_equal(replay(y, {}), y.data)
    assert_array_equal(replay(y, dict(zip(leaves, leaves, strict=True))).data, y.data)
    assert_allclose(replay(y, dict(zip(leaves, moved, strict=True))), row.call(*leaves_of(moved)).data, rtol=1e-13, atol=1e-14)


# Derivatives


@each_row
def test_gradient_equals_differences(row):
    check_gradient(row.call, row.arrays())


@each_elementwise_row
def test_gradient_of_broadcast_inputs(row):
    for shapes in SHAPES[len(row.domains)]:
        check_gradient(row.call, row.arrays(*shapes))


@each_elementwise_row
def test_numbers_and_empty_inputs(row):
    for shape in [(), (0,), (2, 0)]:
        check_gradient(row.call, row.arrays(*[shape] * len(row.domains)))


@each_row
def test_forward_mode_is_the_transpose_of_reverse(row):
    arrays = row.arrays()
    y, pullback = vjp(row.call, *arrays)
    u = some(*y.shape)
    back = pullback(u)
    for picked in [*([i] for i in range(len(arrays))), range(len(arrays))]:
        v = [some(*x.shape) * (i in picked) for i, x in enumerate(arrays)]
        same_y, forward = jvp(row.call, arrays, v)
        assert forward.shape == y.shape
        assert_array_equal(same_y, y)
        assert_allclose(np.vdot(u, forward), sum(map(np.vdot, back, v)), rtol=1e-12, atol=1e-12)


@each_row
def test_second_order(row):
    """With f = ⟨u, y⟩, its Hessian times v: by differences of the gradient along v, and by each mode over the other."""
    arrays = row.arrays()
    u = some(*np.shape(row.call(*arrays)))
    v = [some(*x.shape) for x in arrays]
    everything = tuple(range(len(arrays)))

    def f(*xs):
        return np.sum(u * row.call(*xs))

    def flat_gradient(*xs):
        return np.concatenate([np.ravel(g) for g in grad(f, everything)(*xs)])

    def slope_by_reverse(*xs):
        return np.sum(flat_gradient(*xs) * np.concatenate(list(map(np.ravel, v))))

    def slope_by_forward(*xs):
        return jvp(f, xs, v)[1]

    expected = ridders(lambda t: flat_gradient(*(x + t * along for x, along in zip(arrays, v, strict=True))))
    for found in [
        np.concatenate(list(map(np.ravel, grad(slope_by_reverse, everything)(*arrays)))),
        np.concatenate(list(map(np.ravel, grad(slope_by_forward, everything)(*arrays)))),
        jvp(flat_gradient, arrays, v)[1],
    ]:
        assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("row", SEVERAL_ALIKE, ids=lambda row: row.id)
def test_one_tensor_as_two_inputs(row):
    """A tensor used as several inputs gets the contributions of all of them."""
    array = row.arrays()[0]
    x = Tensor(np.abs(array) + 0.5, requires_grad=True)
    twins = leaves_of([x.data for _ in row.domains])
    once, apart = row.call(*[x for _ in row.domains]), row.call(*twins)
    u = some(*once.shape)
    assert_allclose(gradients(once, [x], u)[0], sum(gradients(apart, twins, u)), rtol=1e-13, atol=1e-14)


# What every operation owes its inputs and the graph


@each_row
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dtype_is_kept(row, dtype):
    """The value has NumPy's dtype; each gradient has its input's, and is the float64 one to the precision of the dtype."""
    arrays = row.arrays(dtype=dtype)
    if dtype is np.float16 and not row.half:
        with pytest.raises(TypeError, match="float16"):
            row.call(*leaves_of(arrays))
        return
    leaves, exact = leaves_of(arrays), leaves_of([x.astype(float) for x in arrays])
    y, expected = row.call(*leaves), row.call(*exact)
    assert y.dtype == np.result_type((row.reference or row.call)(*arrays))
    tolerance = 50 * np.finfo(dtype).eps
    assert_allclose(y.data, expected.data, rtol=tolerance, atol=tolerance)
    u = some(*y.shape).astype(y.dtype)
    for x, found, wanted in zip(leaves, gradients(y, leaves, u), gradients(expected, exact, u), strict=True):
        assert found.dtype == x.dtype
        assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@each_row
def test_zero_adjoint_gives_zero_gradient(row):
    leaves = leaves_of(row.arrays())
    y = row.call(*leaves)
    for found in gradients(y, leaves, np.zeros(y.shape)):
        assert not found.any()


@each_elementwise_row
def test_zero_adjoint_contributes_zero_at_poles(row):
    """Where the adjoint is 0, so is the contribution, and its derivative: also where the operation's is infinite or NaN."""
    special = [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        for values in itertools.product(special, repeat=len(row.domains)):
            leaves = leaves_of([np.full((2,), value) for value in values])
            y = row.call(*leaves)
            nothing = np.zeros(y.shape)
            for found in gradients(y, leaves, nothing):
                assert_array_equal(found, 0)
            for found in gradients(y, leaves, nothing, create_graph=True):
                assert_array_equal(found.data, 0)


@each_row
def test_constants_are_frozen(row):
    """A plain array beside a Tensor is held as a read-only copy: a later write to it changes no gradient."""
    for position in range(len(row.domains)):
        arrays = row.arrays()
        x = Tensor(arrays[position], requires_grad=True)
        y = row.call(*arrays[:position], x, *arrays[position + 1 :])
        u = some(*y.shape)
        expected = gradients(y, [x], u)[0]
        for node in ancestors(y):
            held = [node.data, *node.values]
            assert not any(value.flags.writeable for value in held if isinstance(value, np.ndarray))
        for array in arrays:
            array[...] = np.nan
        assert_array_equal(gradients(y, [x], u)[0], expected)


@each_row
def test_what_the_caller_gave_is_left_alone(row):
    """Neither the numbers nor the writeable flag of any array that was passed in changes."""
    arrays = row.arrays()
    y = row.call(*leaves_of(arrays))
    u, v = some(*y.shape), [some(*x.shape) for x in arrays]
    given = [*arrays, u, *v]
    originals = [x.copy() for x in given]
    gradients(y, ancestors(y), u)
    y.backward(u)
    jvp(row.call, arrays, v)
    vjp(row.call, *arrays)[1](u)
    for x, original in zip(given, originals, strict=True):
        assert x.flags.writeable
        assert_array_equal(x, original)


@each_row
def test_without_gradients_nothing_is_recorded(row):
    y = row.call(*map(Tensor, row.arrays()))
    assert not y.requires_grad
    assert y.is_leaf
    assert y.inputs == y.values == ()


# Conventions


@each_kink
def test_convention_at_kinks(kink):
    with np.errstate(all="ignore"):
        leaves = leaves_of(map(np.array, kink.inputs))
        y = kink.call(*leaves)
        found = gradients(y, leaves, np.ones(y.shape))
        recorded = gradients(y, leaves, np.ones(y.shape), create_graph=True)
        forward = jvp(lambda *xs: np.sum(kink.call(*xs)), kink.inputs, [some(*x.shape) for x in leaves])[1]
    for gradient, again, wanted in zip(found, recorded, kink.gradients, strict=True):
        assert_array_equal(gradient, wanted)
        assert_array_equal(again.data, wanted)
    assert_allclose(forward, sum(np.vdot(some(*x.shape), g) for x, g in zip(leaves, kink.gradients, strict=True)), rtol=1e-15)


# The table is complete


def test_rows_have_names_of_their_own():
    for table in (ROWS, KINKS):
        names = [entry.id for entry in table]
        assert len(set(names)) == len(names)


def test_every_function_that_differentiates_is_in_a_row(monkeypatch):
    called, running = set(), []  # what the rows call themselves, not what runs inside it

    def noting(function, handler):
        def noted(*args, **kwargs):
            if not running:
                called.add(function)
            running.append(function)
            try:
                return handler(*args, **kwargs)
            finally:
                running.pop()

        return noted

    for function, handler in list(DISPATCH.items()):
        monkeypatch.setitem(DISPATCH, function, noting(function, handler))
    for row in ROWS:
        row.call(*leaves_of(row.arrays()))
    missing = DISPATCH.keys() - called
    assert not missing, f"In no row of the table: {', '.join(sorted(f.__name__ for f in missing))}"


def test_every_primitive_is_in_a_row_and_says_its_rules():
    met = set()
    for row in ROWS:
        y = row.call(*leaves_of(row.arrays()))
        for node in {*ancestors(y), *ancestors(opened(y)[0])}:
            met.add(node.primitive)
            assert not set("{}") & set(forward_text(node))
            for position, x in enumerate(node.inputs):
                if isinstance(x, Tensor) and x.requires_grad:
                    text = rule_text(node, position)
                    assert text.startswith(f"∂L/∂{x.label}")
                    assert " = " in text
                    assert not set("{}") & set(text)
    declared = {p for p in gc.get_objects() if type(p) is Primitive and p.__module__.startswith("chainrule.")}
    missing = declared - met
    assert not missing, f"In no row of the table: {', '.join(sorted(p.name for p in missing))}"


def test_what_differentiates_is_not_also_plain():
    assert not DISPATCH.keys() & PLAIN
