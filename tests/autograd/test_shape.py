"""Shape, order, padding and indexing: what the table of primitives cannot say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, jvp
from chainrule.autograd import gradients
from chainrule.autograd.graph import ancestors
from chainrule.autograd.primitives.indexing import scatter_add


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def matrix():
    return leaf(np.arange(6.0).reshape(2, 3), name="x")


# Results that are several arrays have NumPy's containers


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: np.split(x, 2), list),
        (lambda x: np.array_split(x, 2), list),
        (lambda x: np.hsplit(x, 3), list),
        (lambda x: np.vsplit(x, 2), list),
        (lambda x: np.gradient(x), (tuple, list)),
        (lambda x: np.meshgrid(x[0], x[1]), (tuple, list)),
        (lambda x: np.broadcast_arrays(x, 1.0), tuple),
        (lambda x: np.atleast_2d(x, 1.0), tuple),
    ],
)
def test_several_arrays(call, kind):
    x = matrix()
    ours, numpys = call(x), call(x.data)
    assert isinstance(ours, kind)
    assert len(ours) == len(numpys)
    for part, wanted in zip(ours, numpys, strict=True):
        assert part.shape == wanted.shape
        assert_array_equal(part.data, wanted)


def test_function_names_are_seen_in_the_graph():
    x = matrix()
    for y, name in [
        (np.flip(x, 0), "flip"),
        (np.roll(x, 1), "roll"),
        (np.tile(x, 2), "tile"),
        (np.repeat(x, 2), "repeat"),
        (np.pad(x, 1), "pad"),
        (np.sort(x), "sort"),
        (np.diff(x), "diff"),
        (np.diag(x), "diagonal"),
        (np.tril(x), "tril"),
        (np.rot90(x), "rot90"),
    ]:
        assert y.primitive.name == name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: np.reshape(x, 6, order="A"), TypeError, "order='A'"),
        (lambda x: np.reshape(x, (4, 2)), ValueError, "cannot reshape"),
        (lambda x: np.moveaxis(x, 5, 0), ValueError, "axis 5 is out of bounds"),
        (lambda x: np.rollaxis(x, 0, 7), ValueError, "start"),
        (lambda x: np.squeeze(x, 0), ValueError, "not equal to one"),
        (lambda x: np.repeat(x, 2, axis=2), ValueError, "axis 2 is out of bounds"),
        (lambda x: np.repeat(x, [1, 2, 3], axis=0), ValueError, "broadcast"),
        (lambda x: np.split(x, 2, axis=1), ValueError, "equal division"),
        (lambda x: np.dsplit(x, 2), ValueError, r"three or more axes; got shape \(2, 3\)"),
        (lambda x: np.vsplit(x[0], 3), ValueError, r"two or more axes; got shape \(3,\)"),
        (lambda x: np.hsplit(x[0, 0], 1), ValueError, "single number"),
        (lambda x: x[0].mT, ValueError, r"at least two axes; got shape \(3,\)"),
        (lambda x: np.matrix_transpose(x[0]), ValueError, "at least two axes"),
        (lambda x: np.block([[x], x]), ValueError, "depths are mismatched"),
        (lambda x: np.concatenate([x, x], dtype=np.float32), TypeError, "dtype"),
        (lambda x: np.stack([x, x], out=np.zeros((2, 2, 3))), TypeError, "out"),
        (lambda x: np.diag(np.reshape(x, (1, 2, 3))), ValueError, r"vector or a matrix; got shape \(1, 2, 3\)"),
        (lambda x: np.sort(x, order="field"), TypeError, "no argument 'order'"),
        (lambda x: np.partition(x, 1, order="field"), TypeError, "no argument 'order'"),
        (lambda x: np.partition(x, 9), ValueError, "out of bounds"),
        (lambda x: np.diff(x, n=-1), ValueError, "got n=-1"),
        (lambda x: np.diff(x[0, 0]), ValueError, "single number"),
        (lambda x: np.gradient(x, edge_order=3), ValueError, "edge_order 1 or 2; got 3"),
        (lambda x: np.gradient(x, 1, 2, 3), TypeError, "got 3"),
        (lambda x: np.gradient(x, axis=0, edge_order=2), ValueError, "needs 3 points along an axis; got 2"),
        (lambda x: np.gradient(x, np.arange(4.0), axis=1), ValueError, r"shape \(3,\); got \(4,\)"),
        (lambda x: np.pad(x, 1, "empty"), TypeError, "got mode='empty'"),
        (lambda x: np.pad(x, 1, lambda *_: None), TypeError, "got mode=<function"),
        (lambda x: np.pad(x, 1, "unheard of"), ValueError, "not supported"),
        (lambda x: np.pad(x, 1, "edge", constant_values=0), ValueError, "unsupported keyword arguments"),
        (lambda x: np.pad(x, -1), ValueError, "widths of 0 or more"),
        (lambda x: np.pad(x, 0.5), ValueError, "whole numbers"),
        (lambda x: np.pad(x, ((1, 1),) * 3), ValueError, "broadcast"),
        (lambda x: np.pad(x[:0], 1, "maximum"), ValueError, "empty axis has no maximum"),
        (lambda x: np.pad(x[:0], 1, "edge"), ValueError, "empty axis"),
        (lambda x: np.pad(x, 1, constant_values=leaf(1.0)), TypeError, "constant_values requires a gradient"),
        (lambda x: np.apply_along_axis(np.sum, 0, x[:, :0]), ValueError, "without a vector"),
        (lambda x: x[2], IndexError, "index 2 is out of bounds for axis 0 with size 2"),
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x[[0, 2]], IndexError, "out of bounds"),
        (lambda x: x[1.5], IndexError, "only integers"),
        (lambda x: x[[True, False, True]], IndexError, "boolean index did not match"),
        (lambda x: np.take(x, 6), IndexError, "out of bounds"),
        (lambda x: np.take(x, [0.5]), TypeError, "whole numbers as indices; got dtype float64"),
        (lambda x: np.take(x, 0, mode="near"), ValueError, "got 'near'"),
        (lambda x: np.take(x, 0, out=np.zeros(())), TypeError, "out="),
        (lambda x: np.take_along_axis(x, np.array([0]), 1), ValueError, r"as many axes as the array; got shapes \(1,\)"),
        (lambda x: np.delete(x, 9, axis=0), IndexError, "out of bounds"),
        (lambda x: np.insert(x, 9, 0.0, axis=0), IndexError, "out of bounds"),
        (lambda x: np.select([x.data > 0], [x, x]), ValueError, "got 1 and 2"),
        (lambda x: np.select([np.ones(3)], [x]), TypeError, "Conditions are boolean; got dtype float64"),
        (lambda x: np.choose([2, 0, 0], x), ValueError, "invalid entry in choice array"),
        (lambda x: np.choose([0, 0, 0], x, mode="near"), ValueError, "clipmode"),
        (lambda x: np.piecewise(x, [x > 0], [1, 2, 3]), ValueError, "got 3"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(matrix())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.sort(), r"in place.*\(x\)\. Use np\.sort\(x\)"),
        (lambda x: x.partition(1), r"in place.*Use np\.partition"),
        (lambda x: np.copyto(x, 0.0), r"np\.copyto writes into its argument.*np\.where\(mask, value, x\)"),
        (lambda x: np.copyto(np.zeros((2, 3)), x), r"np\.copyto writes"),
        (lambda x: np.put(x, [0], 1.0), r"np\.put writes.*\.at\[indices\]\.set"),
        (lambda x: np.place(x, x.data > 0, [1.0]), r"np\.place writes"),
        (lambda x: np.putmask(x, x.data > 0, 1.0), r"np\.putmask writes"),
        (lambda x: np.put_along_axis(x, np.array([[0]]), 1.0, 1), r"np\.put_along_axis writes"),
        (lambda x: np.fill_diagonal(x, 1.0), r"np\.fill_diagonal writes"),
        (lambda x: x.__setitem__(0, 1.0), r"x = x\.at\[\.\.\.\]\.set\(value\)"),
    ],
)
def test_nothing_is_written_in_place(call, message):
    x = matrix()
    with pytest.raises(TypeError, match=message):
        call(x)
    assert_array_equal(x.data, np.arange(6).reshape(2, 3))


def test_results_without_a_derivative_are_plain():
    x = leaf([3.0, 0.0, 2.0])
    for found, wanted in [
        (x.argsort(), [1, 2, 0]),
        (np.argsort(x), [1, 2, 0]),
        (x.argpartition(0)[0], 1),
        (x.nonzero(), ([0, 2],)),
        (np.nonzero(x), ([0, 2],)),
        (np.where(x), ([0, 2],)),
        (np.flatnonzero(x), [0, 2]),
        (np.triu_indices_from(np.diag(x)), np.triu_indices(3)),
        (np.sort(x.data).searchsorted(leaf(2.5).data), 2),
        (leaf([0.0, 2.0, 3.0]).searchsorted(2.5), 2),
        (np.full_like(x, 7), [7, 7, 7]),
        (np.zeros_like(x), [0, 0, 0]),
    ]:
        assert not isinstance(found, Tensor)
        assert_array_equal(found, wanted)


def test_methods_take_ndarrays_own_arguments():
    x = matrix()
    for call in [
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((3, 2), order="F"),
        lambda x: x.ravel("F"),
        lambda x: x.flatten("F"),
        lambda x: x.repeat([1, 2], axis=0),
        lambda x: x.take([[5, 0]]),
        lambda x: x.take([3], 1, None, "wrap"),
        lambda x: x.compress([True, False], axis=0),
        lambda x: x.diagonal(1),
        lambda x: x.squeeze(),
        lambda x: x.mT,
        lambda x: x.T,
    ]:
        assert_array_equal(call(x).data, call(x.data))
    which = np.array([1, 0])
    assert_array_equal(Tensor(which).choose(x[:, :2]).data, which.choose(x.data[:, :2]))


def test_pad_takes_a_dictionary():
    x = matrix()
    assert_array_equal(np.pad(x, {-1: (1, 2)}).data, np.pad(x.data, ((0, 0), (1, 2))))
    assert_array_equal(np.pad(x, {0: 1}, "edge").data, np.pad(x.data, ((1, 1), (0, 0)), "edge"))


def test_gradient_passes_derivatives_to_the_spacing():
    f = np.array([1.0, 4.0, 9.0])
    assert_allclose(grad(lambda h: np.gradient(f * Tensor(1.0), h)[1])(2.0), -(9 - 1) / 2 / 2**2, rtol=1e-15)
    places = np.array([0.0, 0.5, 2.0])
    found = grad(lambda s: np.gradient(f * Tensor(1.0), s)[0])(places)
    assert_allclose(found, [3 / 0.25, -3 / 0.25, 0], rtol=1e-15)


# Equal entries


def test_sorting_keeps_the_order_of_equal_entries():
    x = leaf([[2.0, 1.0, 2.0, 1.0]])
    found = gradients(np.sort(x), [x], np.array([[1.0, 2.0, 3.0, 4.0]]))[0]
    assert_array_equal(found, [[3, 1, 4, 2]])
    assert_array_equal(grad(lambda x: np.sum(grad(lambda x: np.sum(np.sort(x) ** 3))(x)))(x.data), 6 * x.data)


def test_nan_sorts_last_and_keeps_its_gradient():
    x = leaf([np.nan, 1.0])
    y = np.sort(x)
    assert_array_equal(y.data, [1, np.nan])
    assert_array_equal(gradients(y, [x], np.array([5.0, 7.0]))[0], [7, 5])


# Repeated indices


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "key_of",
    [
        lambda rng: rng.integers(-50, 50, 300),
        lambda rng: rng.integers(0, 50, (20, 30)),
        lambda rng: rng.integers(0, 50, 300).astype(np.uint8),
        lambda rng: (rng.integers(-50, 50, (200, 1)), rng.integers(0, 8, 9)),
        lambda rng: (3, rng.integers(-8, 8, 2000)),
        lambda rng: (slice(None), rng.integers(0, 8, 30)),
        lambda rng: (rng.integers(0, 50, 300), slice(2, 7)),
        lambda rng: (rng.integers(0, 50, 300), None),
        lambda rng: rng.random((50, 8, 4)) < 0.9,
    ],
    ids=["ids", "matrix", "bytes", "rows, columns", "number", "columns", "slice", "new axis", "mask"],
)
def test_many_repeated_indices_add_up(key_of, dtype):
    rng = np.random.default_rng(0)
    table = leaf(rng.integers(-9, 9, (50, 8, 4)).astype(dtype))
    key = key_of(rng)
    y = table[key]
    u = rng.integers(-9, 9, y.shape).astype(dtype)  # whole numbers: the sums are exact
    assert u.size > 1000
    expected = np.zeros_like(table.data)
    np.add.at(expected, key, u)
    found = gradients(y, [table], u)[0]
    assert found.dtype == dtype
    assert_array_equal(found, expected)
    assert_array_equal(scatter_add(u, key=key, shape=table.shape), expected)
    twice = grad(lambda x: np.sum(grad(lambda x: np.sum(x[key] ** 2 * u))(x) * x))(table.data)
    assert_allclose(twice, 4 * table.data * expected, rtol=1e-6 if dtype == np.float32 else 1e-15)


def test_an_index_array_is_copied():
    x, ids = matrix(), np.array([0, 0])
    y = x[ids]
    ids[:] = 1
    assert_array_equal(gradients(y, [x], np.ones((2, 3)))[0], [[2, 2, 2], [0, 0, 0]])


# A changed copy


def test_set_leaves_x_and_passes_both_gradients():
    x, v = matrix(), leaf([10.0, 20.0])
    y = x.at[:, 1].set(v)
    assert_array_equal(y.data, [[0, 10, 2], [3, 20, 5]])
    assert_array_equal(x.data, np.arange(6).reshape(2, 3))
    np.sum(y * y).backward()
    assert_array_equal(x.grad, [[0, 0, 4], [6, 0, 10]])
    assert_array_equal(v.grad, [20, 40])


def test_set_at_repeated_indices_keeps_the_last():
    x, v = leaf([1.0, 2.0, 3.0]), leaf([10.0, 20.0, 30.0])
    y = x.at[[0, 2, 0]].set(v)
    assert_array_equal(y.data, [30, 2, 20])
    found = gradients(y, [x, v], np.array([1.0, 2.0, 4.0]))
    assert_array_equal(found[0], [0, 2, 0])
    assert_array_equal(found[1], [0, 4, 1])
    number = leaf(5.0)
    assert_array_equal(gradients(x.at[[0, 2, 0]].set(number), [number], np.array([1.0, 2.0, 4.0]))[0], 5)


def test_updates_at_repeated_indices_apply_one_after_another():
    x = leaf([2.0, 3.0])
    for method, v, wanted in [
        ("add", [1.0, 2.0, 4.0], [9, 3]),
        ("subtract", [1.0, 2.0, 4.0], [-5, 3]),
        ("multiply", [1.0, 2.0, 4.0], [16, 3]),
        ("divide", [1.0, 2.0, 4.0], [0.25, 3]),
        ("power", [1.0, 2.0, 3.0], [64, 3]),
        ("min", [1.0, 2.0, 4.0], [1, 3]),
        ("max", [1.0, 2.0, 4.0], [4, 3]),
    ]:
        assert_array_equal(getattr(x.at[[0, 0, -2]], method)(v).data, wanted)
    factors = leaf([1.0, 2.0, 4.0])
    found = gradients(x.at[[0, 0, 0]].multiply(factors), [x, factors], np.array([1.0, 1.0]))
    assert_array_equal(found[0], [8, 1])
    assert_array_equal(found[1], [16, 8, 4])


def test_updates_of_nothing():
    x = leaf([1.0, 2.0])
    nowhere = x.at[np.zeros(0, int)]
    for y in [nowhere.set(np.zeros(0)), nowhere.add(3.0), nowhere.multiply(3.0), x.at[:0].max(9.0)]:
        assert_array_equal(y.data, [1, 2])
        assert_array_equal(gradients(y, [x], np.array([1.0, 2.0]))[0], [1, 2])
    number = leaf(2.0)
    assert_array_equal(gradients(number.at[()].multiply(number), [number])[0], 4)


def test_the_dtype_of_an_update_is_that_of_x():
    x = leaf(np.ones(3, np.float32))
    v = leaf(np.array([0.5, 0.25]))
    for method in ("set", "add", "multiply", "max"):
        y = getattr(x.at[:2], method)(v)
        assert y.dtype == np.float32
        found = gradients(y, [x, v], np.ones(3, np.float32))
        assert [g.dtype for g in found] == [np.float32, np.float64]


def test_what_an_update_refuses():
    x = matrix()
    with pytest.raises(ValueError, match=r"broadcast to the shape of x\[key\], \(3,\); got \(1, 3\)"):
        x.at[0].set(np.ones((1, 3)))
    with pytest.raises(ValueError, match="broadcast"):
        x.at[0].add([1.0, 2.0])
    with pytest.raises(IndexError, match="out of bounds"):
        x.at[5].set(0.0)
    with pytest.raises(TypeError, match=r"cannot flow into dtype int64.*x\.astype\(float\)\.at"):
        Tensor(np.array([1, 2])).at[0].set(leaf(0.5))


def test_updates_differentiate_twice_and_forwards():
    def f(x, v):
        y = x.at[[0, 0, 1]].set(v * v).at[1:].multiply(x[:2]).at[[0, 0]].add(v[1:])
        return np.sum(y * y * x)

    x, v = np.array([0.5, -1.5, 2.0]), np.array([1.0, 0.5, -0.75])
    dx, dv = np.array([1.0, 2.0, -1.0]), np.array([0.5, -1.0, 3.0])

    def slope(t):
        gx, gv = grad(f, (0, 1))(x + t * dx, v + t * dv)
        return np.sum(gx * dx) + np.sum(gv * dv)

    second = jvp(lambda x, v: jvp(f, [x, v], [dx, dv])[1], [x, v], [dx, dv])[1]
    h = 1e-4
    assert_allclose(second, (slope(h) - slope(-h)) / (2 * h), rtol=1e-6)
    assert_allclose(jvp(f, [x, v], [dx, dv])[1], slope(0.0), rtol=1e-14)


def test_an_update_is_a_short_piece_of_graph():
    x, v = matrix(), leaf(1.0)
    assert [node.primitive.name for node in ancestors(x.at[0].set(v)) if node.primitive] == ["index_set"]
    assert [node.primitive.name for node in ancestors(x.at[0].add(x[1])) if node.primitive] == [
        "getitem", "scatter_add", "add",
    ]  # fmt: skip
