"""The Tensor: what it holds, what it refuses, and how it takes part in NumPy."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import Tensor, named
from chainrule.autograd import default_dtype
from chainrule.autograd.modes import Scope
from chainrule.autograd.tensor import value_of


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


# Making one


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, np.float64),
        (1.5, np.float64),
        ([1, 2], np.float64),
        ([[1.0], [2.0]], np.float64),
        (True, np.bool_),
        (np.float32(1), np.float32),
        (np.array([1, 2]), np.array([1, 2]).dtype),
        (np.zeros(2, np.float16), np.float16),
        (Tensor(np.zeros(2, np.float32)), np.float32),
    ],
)
def test_dtype_of_a_leaf(data, dtype):
    assert Tensor(data).dtype == dtype
    assert Tensor(data, dtype=np.float32).dtype == np.float32


def test_default_dtype_is_for_python_numbers_only():
    with default_dtype(np.float32):
        assert Tensor([1, 2.5]).dtype == np.float32
        assert Tensor(np.ones(2)).dtype == np.float64
    assert Tensor([1, 2.5]).dtype == np.float64
    with pytest.raises(TypeError, match="floating dtype; got int64"):
        default_dtype(np.int64)


def test_a_leaf_is_a_copy_and_read_only():
    array = np.zeros(3)
    x = leaf(array)
    array[0] = 7
    assert_array_equal(x.data, [0, 0, 0])
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 1
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([1, 2]), "Only floating-point tensors can have a gradient; got dtype int64 for 'ids'"),
        (np.array([True]), "got dtype bool"),
        (np.array([1j]), "Complex tensors are not supported"),
        ("text", "A tensor holds real numbers; got dtype <U4 from str"),
        (None, "A tensor holds real numbers; got dtype object from NoneType"),
        ([Tensor(1.0, requires_grad=True)], r"To join tensors use np\.stack"),
    ],
)
def test_what_cannot_be_a_leaf(data, message):
    with pytest.raises(TypeError, match=message):
        leaf(data, name="ids")


def test_integer_tensors_hold_data_without_a_gradient():
    ids = Tensor(np.array([1, 2]))
    assert not ids.requires_grad
    assert not (ids + 1).requires_grad
    assert (leaf([1.0, 2.0]) * ids).requires_grad


def test_data_of_a_leaf_can_be_replaced():
    x = leaf(np.zeros(2, np.float32), name="x")
    new = np.array([1.0, 2.0])
    x.data = new
    new[0] = 7
    assert x.dtype == np.float32
    assert_array_equal(x.data, [1, 2])
    with pytest.raises(ValueError, match=r"keep the shape \(2,\) of x; got \(3,\)"):
        x.data = np.zeros(3)
    y = named("y", x * 2)
    with pytest.raises(TypeError, match="y was computed by multiply; only the data of a leaf"):
        y.data = np.zeros(2)


def test_replacing_data_leaves_earlier_graphs_as_they_were():
    x = leaf([3.0])
    y = x * x
    x.data = [5.0]
    y.backward()
    assert_array_equal(x.grad, [6.0])


# What it is


def test_attributes_mirror_the_array():
    x = leaf([[1.0, 2.0, 3.0]])
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((1, 3), 2, 3, np.float64, 1)
    assert x.tolist() == [[1.0, 2.0, 3.0]]
    assert (x.argmax(), x.argmin(axis=1).tolist()) == (2, [0])
    assert x.is_leaf
    assert not (x + 1).is_leaf
    assert np.shape(x) == (1, 3)


def test_conversion_to_a_python_number():
    x = leaf(2.0)
    assert (x.item(), float(x), int(x), bool(x), f"{x:.2f}") == (2.0, 2.0, 2, True, "2.00")
    assert [10, 20, 30][Tensor(np.array(1))] == 20
    with pytest.raises(ValueError, match="size 1"):
        leaf([1.0, 2.0]).item()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(leaf([1.0, 2.0]))


def test_iteration_and_unpacking_keep_the_graph():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    first, second = x
    (np.sum(first) + 10 * np.sum(second)).backward()
    assert_array_equal(x.grad, [[1, 1], [10, 10]])
    with pytest.raises(TypeError, match="unsized"):
        len(leaf(1.0))


def test_labels_paths_and_repr():
    with Scope("blocks"), Scope("0"):
        x = leaf([1.0], name="x")
        y = x + 1
    assert x.path == "blocks.0.x"
    assert y.label == f"add#{y.index}"
    assert y.path == f"blocks.0.add#{y.index}"
    assert named("y", y) is y
    assert y.path == "y"  # named here, outside of the scope it was made in
    assert repr(x) == "Tensor([1.], name='x', requires_grad=True)"
    assert repr(y) == "Tensor([2.], name='y', from add)"
    assert repr(Tensor(np.float32(1))) == "Tensor(1., dtype=float32)"
    assert named("K", leaf([[1.0, 2.0]])).T.label == "Kᵀ"


def test_named_passes_other_things_through():
    array = np.zeros(2)
    assert named("x", array) is array


def test_functions_are_numpys_not_methods():
    with pytest.raises(AttributeError, match="no attribute 'tanh'"):
        leaf(1.0).tanh()
    assert not hasattr(leaf(1.0), "device")


def test_no_attribute_can_be_added():
    with pytest.raises(AttributeError):
        leaf(1.0).colour = "red"


def test_tensors_are_keys_by_identity_and_compare_by_value():
    x, y = leaf([1.0, 2.0]), leaf([1.0, 3.0])
    assert {x: 1, y: 2} | {x: 3} == {x: 3, y: 2}
    for result, expected in [
        (x == y, [True, False]),
        (x != y, [False, True]),
        (x < 2, [True, False]),
        (x <= y, [True, True]),
        (np.array([1.5, 1.5]) > x, [True, False]),
        (np.float64(2) >= y, [True, False]),
    ]:
        assert type(result) is np.ndarray
        assert_array_equal(result, expected)


# Nothing is dropped or changed in silence


@pytest.mark.parametrize(
    "convert", [np.asarray, np.array, np.ascontiguousarray, lambda x: np.array([x, x]), lambda x: np.sum([x[0], x[1]])]
)
def test_conversion_to_an_array_would_drop_the_gradient(convert):
    with pytest.raises(TypeError, match="to an ndarray would silently drop its gradient"):
        convert(leaf([1.0, 2.0]))


def test_a_constant_converts_to_an_array():
    x = Tensor([1.0, 2.0])
    assert_array_equal(np.asarray(x), [1, 2])
    assert np.array(x, dtype=np.float32).dtype == np.float32
    assert np.array(x).flags.writeable


def test_items_cannot_be_assigned():
    x = leaf([1.0, 2.0], name="x")
    with pytest.raises(TypeError, match=r"cannot be assigned \(x\[\.\.\.\] = \.\.\.\).*np\.where"):
        x[0] = 3


def test_in_place_operators_make_new_nodes():
    x = leaf([1.0, 2.0])
    y = x
    y += 1
    y *= 2
    y -= 3
    y /= 4
    y **= 2
    assert_array_equal(x.data, [1, 2])
    assert y is not x
    np.sum(y).backward()
    assert_array_equal(x.grad, 2 * ((np.array([1, 2]) + 1) * 2 - 3) / 4 * 2 / 4)


def test_an_array_is_not_updated_in_place_by_a_tensor():
    array, x = np.zeros(2), leaf([1.0, 2.0])
    with pytest.raises(TypeError, match=r"np\.add\(\.\.\., out=\.\.\.\) would overwrite"):
        array += x
    assert_array_equal(array, [0, 0])


@pytest.mark.parametrize("call", [np.exp, np.negative, lambda x, out: np.add(x, 1, out=out), lambda x, out: np.add(1, x, out)])
def test_out_is_refused(call):
    with pytest.raises(TypeError, match=r"np\.\w+\(\.\.\., out=\.\.\.\) would overwrite"):
        call(leaf([1.0]), out=np.zeros(1))


@pytest.mark.parametrize("call", [lambda x, out: np.sum(x, out=out), lambda x, out: np.max(x, 0, out)])
def test_out_is_refused_by_functions_too(call):
    with pytest.raises(TypeError, match="out"):
        call(leaf([1.0]), out=np.zeros(()))


def test_ignored_arguments_are_refused():
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="exp on Tensors has no argument 'where'"):
        np.exp(x, where=np.array([True, False]))
    with pytest.raises(TypeError, match="sum on Tensors has no argument 'initial'"):
        np.sum(x, initial=3.0)
    assert_array_equal(np.sum(x, axis=0, dtype=None, out=None).data, 3)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (np.fft.fft, "np.fft.fft"),
        (np.i0, "np.i0"),
        (np.add.outer, "np.add.outer"),
        (lambda x, *_: np.add.at(np.zeros(2), [0], x), "np.add.at"),
        (np.bitwise_count, "np.bitwise_count"),
    ],
)
def test_functions_without_a_rule_raise_and_are_named(call, name):
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError) as caught:
        call(x, x) if "outer" in name else call(x)
    assert str(caught.value).startswith(f"{name} is not covered for Tensors.")
    assert f"@primitive({name})" in str(caught.value)


# Other operands


@pytest.mark.parametrize(
    "make",
    [lambda: np.array([2.0, 4.0]), lambda: np.float64(2), lambda: np.array(2.0), lambda: 2, lambda: 2.0, lambda: [2.0, 4.0]],
    ids=["array", "np.float64", "0-d", "int", "float", "list"],
)
def test_operators_with_arrays_and_numbers_on_either_side(make):
    x = leaf([1.0, 3.0])
    for operate in [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a**b,
    ]:
        for a, b in [(x, make()), (make(), x)]:
            y = operate(a, b)
            assert isinstance(y, Tensor)
            assert y.requires_grad
            assert_array_equal(y.data, operate(np.array(value_of(a)), np.array(value_of(b))))


def test_matmul_with_arrays_on_either_side():
    x, array = leaf([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [2.0, 3.0]])
    assert_array_equal((x @ array).data, x.data @ array)
    assert_array_equal((array @ x).data, array @ x.data)
    assert (array @ x).requires_grad


def test_number_types_do_not_widen_float32():
    x = leaf(np.ones(2, np.float32))
    for y in [x * 2, 2 * x, x + 0.5, x / 3, x**2, np.float32(2) * x, np.maximum(x, 0), np.where(x > 0, x, 0.0), np.mean(x)]:
        assert y.dtype == np.float32


# Copies


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_leaves_can_be_copied(twin_of):
    with Scope("part"):
        x = leaf(np.array([1.0, 2.0], np.float32), name="x")
    np.sum(x * x).backward()
    twin = twin_of(x)
    assert twin is not x
    assert (twin.name, twin.path, twin.requires_grad, twin.dtype, twin.is_leaf) == ("x", "part.x", True, np.float32, True)
    assert_array_equal(twin.data, x.data)
    assert_array_equal(twin.grad, x.grad)
    assert not np.shares_memory(twin.grad, x.grad)
    assert not twin.data.flags.writeable


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, pickle.dumps])
def test_interior_nodes_refuse_to_be_copied(twin_of):
    y = named("y", leaf([1.0]) * 2)
    with pytest.raises(TypeError, match="y is an interior node"):
        twin_of(y)
    assert_array_equal(copy.deepcopy(y.detach()).data, [2.0])


def test_detach_is_a_constant_of_the_same_values():
    x = leaf([2.0], name="x")
    constant = (x * x).detach()
    assert not constant.requires_grad
    assert constant.is_leaf
    (x * constant).backward()
    assert_array_equal(x.grad, [4.0])
