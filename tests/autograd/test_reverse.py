"""The chain rule: its steps, what it leaves in `.grad`, how it behaves where derivatives are infinite, and its memory."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, grad, named, nn, no_grad
from chainrule.autograd import backward_steps, gradients, primitive
from chainrule.autograd.graph import ancestors
from chainrule.autograd.tensor import value_of


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


# Edges and steps


def test_x_times_x_has_two_edges():
    x = leaf(3.0)
    y = x * x
    assert y.inputs == (x, x)
    step = next(y.backward_steps())
    assert step.contributions == [3.0, 3.0]
    assert step.before == [None, 3.0]
    assert step.after == [3.0, 6.0]
    y.backward()
    assert x.grad == 6.0


def test_steps_of_a_small_graph():
    x, w = leaf([1.0, 2.0], name="x"), leaf([3.0, 4.0], name="w")
    product = named("product", x * w)
    total = named("total", np.sum(product + 1))
    steps = list(total.backward_steps())
    assert [step.node for step in steps] == sorted(ancestors(total), key=lambda node: -node.index)
    assert [step.node.label.partition("#")[0] for step in steps] == ["total", "add", "product", "w", "x"]
    assert repr(steps[2]) == "Step(product -> x, w)"
    at_add, at_product, at_w = steps[1:4]
    assert len(at_add.contributions) == 2
    assert at_add.contributions[1] is None  # the constant 1
    assert at_add.after[1] is None
    assert_array_equal(at_product.adjoint, [1, 1])
    assert_array_equal(at_product.contributions, [w.data, x.data])
    assert_array_equal(at_w.adjoint, x.data)
    assert not len(at_w.contributions)
    assert x.grad is w.grad is None


def test_a_node_comes_after_everything_that_uses_it():
    x = leaf(2.0)
    a = x * 3
    b = a + x
    c = a * b
    y = c + a
    met = []
    for step in y.backward_steps():
        used_by = [node for node in ancestors(y) if any(i is step.node for i in node.inputs)]
        assert all(user in met for user in used_by)
        met.append(step.node)
    assert len(met) == len(ancestors(y))


def test_contributions_sum_to_the_adjoint():
    x = leaf([0.5, -1.0, 2.0])
    y = np.sum(np.tanh(x * x) + x * np.sin(x))
    arrived = {}
    for step in y.backward_steps():
        if step.node in arrived:
            assert_allclose(step.adjoint, arrived[step.node], rtol=1e-15)
        for node, contribution, after in zip(step.node.inputs, step.contributions, step.after, strict=False):
            if contribution is not None:
                arrived[node] = arrived.get(node, 0) + contribution
                assert_allclose(after, arrived[node], rtol=1e-15)


# Long graphs, memory


@pytest.fixture(scope="module")
def chain():
    """x, and a chain of 100,000 nodes on it."""
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = np.sin(y) * 1.0
    return x, y


def test_long_chain_backward_and_gradients(chain):
    x, y = chain
    y.backward()
    expected, value = 1.0, 1.0
    for _ in range(50_000):
        value, expected = np.sin(value), expected * np.cos(value)
    assert_allclose(x.grad, expected, rtol=1e-9)
    assert_allclose(gradients(y, [x])[0], expected, rtol=1e-9)
    assert sum(1 for _ in y.backward_steps()) == 100_001


def test_long_chain_second_order():
    def f(x):
        for _ in range(25_000):
            x = x * 1.0 * 1.0
        return x * x

    assert grad(grad(f))(3.0) == 2.0


def test_long_chain_is_deleted_without_recursion():
    y = x = leaf(1.0)
    for _ in range(100_000):
        y = y + 1
    last = weakref.ref(y)
    del y
    assert last() is None
    assert x.item() == 1.0


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_the_graph_of_a_loss_dies_with_it(no_collector):
    x = leaf(np.ones((4, 4)))
    inner = np.tanh(x @ x)
    loss = np.sum(inner * inner)
    nodes = [weakref.ref(node) for node in ancestors(loss) if node is not x]
    loss.backward(retain_grad=True)
    list(loss.backward_steps())
    del loss, inner
    assert not [node() for node in nodes if node() is not None]


def test_recorded_gradients_make_no_cycle(no_collector):
    x = leaf([1.0, 2.0])
    loss = np.sum(np.exp(x) * x)
    (slope,) = gradients(loss, [x], create_graph=True)
    np.sum(slope * slope).backward()
    nodes = [weakref.ref(loss), weakref.ref(slope)]
    del loss, slope
    assert [node() for node in nodes] == [None, None]


def test_memory_of_a_training_loop_stays_flat(no_collector):
    W = nn.Parameter(np.full((32, 32), 0.1))
    X = np.ones((8, 32))
    optimizer = nn.SGD([W], lr=1e-3)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = np.mean(np.tanh(nn.softmax(X @ W) @ W) ** 2)
            loss.backward()
            optimizer.step()

    train(2500)  # Python keeps up to 2,000 freed tuples of each length for reuse; let it fill
    tracemalloc.start()
    try:
        train(20)
        objects, memory = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
        train(200)
        grown, more = tracemalloc.get_traced_memory()[0] - memory, len(gc.get_objects()) - objects
    finally:
        tracemalloc.stop()
    assert more <= 2
    assert grown < 4096  # half of one W


# What is left in .grad


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 0, 3)])
def test_grad_has_shape_and_dtype_of_data(shape, dtype):
    x = leaf(np.ones(shape, dtype))
    for y, slope in [(np.sum(x * 2.0), 2), (np.sum(x * np.ones(shape)), 1), (np.sum(x.astype(np.float64) * 2), 2)]:
        x.grad = None
        y.backward()
        y.backward()
        assert type(x.grad) is np.ndarray
        assert x.grad.dtype == dtype
        assert x.grad.shape == shape
        assert_array_equal(x.grad, np.full(shape, 2 * slope))


def test_leaves_accumulate_and_interior_adjoints_are_fresh():
    x = leaf([1.0, 2.0])
    y = x * 3
    loss = np.sum(y * y)
    for times in (1, 2, 3):
        loss.backward(retain_grad=True)
        assert_array_equal(x.grad, times * 18 * x.data)
        assert_array_equal(y.grad, 2 * y.data)
        assert_array_equal(loss.grad, 1.0)


def test_two_losses_that_share_a_graph():
    x = leaf(2.0)
    shared = x * x
    np.exp(shared).backward()
    np.sin(shared).backward()
    assert_allclose(x.grad, 4 * (np.exp(4.0) + np.cos(4.0)), rtol=1e-15)


def test_a_leaf_can_be_the_output():
    x = leaf(2.0)
    x.backward()
    assert x.grad == 1.0
    assert gradients(x, [x]) == [1.0]


def test_retain_grad_of_one_node():
    x = leaf([1.0, 2.0])
    y = (x * 2).retain_grad()
    z = y * 3
    np.sum(z).backward()
    assert_array_equal(y.grad, [3, 3])
    assert z.grad is None
    np.sum(z).backward()
    assert_array_equal(y.grad, [3, 3])
    assert_array_equal(x.grad, [12, 12])


def test_gradient_argument():
    x = leaf(np.array([1.0, 2.0], np.float32))
    y = x * x
    y.backward([1, 10])
    assert_array_equal(x.grad, [2, 40])
    for seed in [np.array([1.0, 10.0]), Tensor([1.0, 10.0])]:
        assert gradients(y, [x], seed)[0].dtype == np.float32
        assert gradients(y, [y], seed)[0].dtype == np.float32
        assert_array_equal(next(y.backward_steps(seed)).adjoint, [1, 10])


def test_errors_of_backward():
    x = leaf([1.0, 2.0], name="x")
    with pytest.raises(ValueError, match=r"x has shape \(2,\).*np\.sum, or pass gradient"):
        x.backward()
    with pytest.raises(ValueError, match=r"gradient must have the shape \(2,\) of x; got \(3,\)"):
        x.backward(np.ones(3))
    with pytest.raises(ValueError, match="gradient must have the shape"):
        x.backward(1.0)
    with pytest.raises(ValueError, match="y does not depend on anything that requires a gradient"):
        named("y", Tensor(1.0) * 2).backward()
    with no_grad():
        y = np.sum(x)
    with pytest.raises(ValueError, match=r"outside no_grad\(\)"):
        y.backward()
    with pytest.raises(TypeError, match="Gradients start from a Tensor; got float"):
        next(backward_steps(2.0))


def test_inputs_without_influence_get_zeros():
    x, other = leaf(np.ones(3, np.float32)), leaf(np.ones(2, np.float32))
    y = np.sum(x)
    plain, recorded = gradients(y, [other])[0], gradients(y, [other], create_graph=True)[0]
    assert_array_equal(plain, [0, 0])
    assert plain.dtype == recorded.dtype == np.float32
    assert isinstance(recorded, Tensor)
    y.backward()
    assert other.grad is None


def test_gradients_of_interior_nodes():
    x = leaf([1.0, 2.0])
    y = np.exp(x)
    z = np.sum(y * y)
    for create_graph in (False, True):
        found = gradients(z, [y, x, z], create_graph=create_graph)
        for g, expected in zip(found, [2 * y.data, 2 * y.data * y.data, 1.0], strict=True):
            assert_allclose(value_of(g), expected, rtol=1e-15)
    assert x.grad is y.grad is None


def test_gradients_by_name_of_a_missing_rule():
    @primitive()
    def half_known(a, b):
        return a + b

    @half_known.rule("a", "∂L/∂{a} = ∂L/∂{y}")
    def half_known_wrt_a(g, y, a, b):
        return g

    x = leaf(1.0, name="x")
    assert gradients(half_known(x, 2.0), [x]) == [1.0]
    with pytest.raises(TypeError, match="half_known has no derivative with respect to 'b', yet x requires a gradient"):
        half_known(2.0, x).backward()


def test_a_rule_of_the_wrong_shape_is_named():
    @primitive()
    def wrong(x):
        return x * 1

    @wrong.rule("x", "∂L/∂{x} = ?")
    def wrong_wrt_x(g, y, x):
        return g[:1]

    with pytest.raises(ValueError, match=r"a rule of wrong returned \(1,\) for .*\(3,\)"):
        wrong(leaf(np.ones(3))).backward(np.ones(3))


def test_a_primitive_of_any_number_of_inputs_needs_a_joint_rule():
    @primitive()
    def joined(*parts):
        return np.concatenate(parts)

    with pytest.raises(TypeError, match=r"joined takes any number of inputs; declare @joined\.joint_rule"):
        joined.rule("parts", "∂L/∂{parts} = ?")
    x = leaf([1.0], name="x")
    with pytest.raises(TypeError, match=r"respect to 'parts\[1\]', yet x requires a gradient.*@joined\.joint_rule"):
        joined([2.0], x).backward(np.ones(2))


# No aliases


def no_two_share(arrays):
    return not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


TEMPTING = [
    lambda x, z: x + z,
    lambda x, z: x + x + z,
    lambda x, z: x.T + z.reshape(4).reshape(2, 2),
    lambda x, z: np.concatenate([x, z]),
    lambda x, z: np.stack([x, z, x]),
    lambda x, z: np.copy(x) + np.positive(z),
    lambda x, z: np.sum(x) + np.sum(z),
    lambda x, z: np.where(np.eye(2) == 1, x, z),
]


def test_gradients_share_no_memory():
    for f in TEMPTING:
        leaves = leaf(np.ones((2, 2))), leaf(np.full((2, 2), 2.0))
        y = f(*leaves)
        seed, nodes = np.ones(y.shape), ancestors(y)
        y.backward(seed, retain_grad=True)
        assert no_two_share([seed, *(node.grad for node in nodes), *(x.data for x in leaves)])
        assert all(node.grad.flags.writeable for node in nodes)
        expected = [x.grad.copy() for x in leaves]
        for node in nodes:
            node.grad += 100
        for x in leaves:
            x.grad = None
        y.backward(seed)
        for x, wanted in zip(leaves, expected, strict=True):
            assert_array_equal(x.grad, wanted)


def test_a_rule_may_return_one_array_for_several_inputs():
    @primitive()
    def both(a, b):
        return a + b

    @both.joint_rule({"a": "∂L/∂{a} = 2 ∂L/∂{y}", "b": "∂L/∂{b} = 2 ∂L/∂{y}"})
    def both_wrt_inputs(g, y, a, b):
        shared = 2 * g
        return shared, shared

    x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = np.sum(both(x, z))
    y.backward()
    assert no_two_share([x.grad, z.grad])
    assert no_two_share(gradients(y, [x, z]))
    assert_array_equal([x.grad, z.grad], np.full((2, 2), 2.0))


def test_gradients_that_are_returned_belong_to_the_caller():
    for f in TEMPTING:
        leaves = leaf(np.ones((2, 2))), leaf(np.full((2, 2), 2.0))
        y = f(*leaves)
        seed = np.ones(y.shape)
        found = gradients(y, [y, *leaves], seed)
        assert no_two_share([seed, *found, *(x.data for x in leaves)])
        assert all(g.flags.writeable for g in found)


def test_adjoints_of_steps_cannot_be_written():
    x = leaf([1.0, 2.0])
    for step in np.sum(np.tanh(x) * 2).backward_steps():
        if not step.node.is_leaf:
            with pytest.raises(ValueError, match="read-only"):
                np.asarray(step.adjoint)[...] = 0


def test_a_users_rule_cannot_write_into_what_it_is_given():
    x, z = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    for written in ("g", "y", "a", "b"):

        @primitive()
        def product(a, b):
            return a * b

        @product.rule("a", "∂L/∂{a} = ∂L/∂{y} · {b}")
        def product_wrt_a(g, y, a, b, written=written):
            array = {"g": g, "y": y, "a": a, "b": b}[written]
            array *= b
            return array

        for before in (lambda y: y, lambda y: y.reshape(2, 1), lambda y: y + z):
            with pytest.raises(ValueError, match="read-only"):
                np.sum(before(product(x, np.ones(2)))).backward()
    assert x.grad is z.grad is None


def test_an_adjoint_that_a_users_rule_keeps_is_no_gradient():
    kept = []

    @primitive()
    def same(x):
        return x * 1

    @same.rule("x", "∂L/∂{x} = ∂L/∂{y}")
    def same_wrt_x(g, y, x):
        kept.append(g)
        return g

    x, z = leaf(np.ones((2, 2))), leaf(np.full((2, 2), 2.0))
    for through in (lambda y: y, np.transpose, lambda y: y.reshape(4).reshape(2, 2)):
        (np.tanh(through(same(x)) + z) * 2).backward(np.ones((2, 2)))
        assert no_two_share([kept.pop(), x.grad, z.grad, x.data, z.data])
        x.grad = z.grad = None


# Writes between forward and backward


@pytest.mark.parametrize("constant", [np.array([1.0, 2.0]), np.arange(4.0)[::2], np.ones((2, 2)).T[0], np.array([0, 1])])
def test_constants_may_be_written_after_use(constant):
    x = leaf([3.0, 4.0])
    original = constant.copy()
    y = np.sum(x * constant)
    constant[...] = 9
    y.backward()
    assert_array_equal(x.grad, original)


def test_a_readonly_view_of_a_writable_array_is_copied():
    x, base = leaf([3.0, 4.0]), np.array([1.0, 2.0])
    view = base[:]
    view.flags.writeable = False
    y = np.sum(x * view)
    base[...] = 9
    y.backward()
    assert_array_equal(x.grad, [1, 2])


def test_index_arrays_and_masks_may_be_written_after_use():
    x = leaf([3.0, 4.0, 5.0])
    index, mask, target, allowed = np.array([0, 0]), np.array([True, False, True]), np.array(1), np.array([True, True, False])
    where = np.array([True, False, False])
    outputs = [
        np.sum(x[index]),
        np.sum(x[mask]),
        np.sum(x[(index,)]),
        np.sum(np.where(where, x, 0)),
        nn.cross_entropy(x, target),
        np.sum(nn.softmax(x, allowed) * [1.0, 2.0, 3.0]),
    ]
    expected = [gradients(y, [x])[0] for y in outputs]
    index[...], mask[...], target[...], allowed[...], where[...] = 2, False, 0, False, True
    for y, wanted in zip(outputs, expected, strict=True):
        assert_array_equal(gradients(y, [x])[0], wanted)


def test_values_of_nodes_and_views_of_them_cannot_be_written():
    x = leaf(np.ones((2, 2)))
    for node in [x, x * 2, x.T, x[0], x.reshape(4), np.broadcast_to(x, (2, 2, 2)), np.sum(x), np.concatenate([x, x])]:
        for array in [node.data, node.data[...], node.data.T]:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 5


# Where derivatives are infinite


GUARDED = [  # f, x, f'(x), f''(x): the branch not taken has a derivative that is infinite or NaN
    (lambda x: np.where(x > 0, np.sqrt(x), 0), [0.0, 4.0], [0, 1 / 4], [0, -1 / 32]),
    (lambda x: np.where(x > 0, np.log(x), x), [0.0, 2.0], [1, 1 / 2], [0, -1 / 4]),
    (lambda x: np.where(x > 0, x * np.log(x), 0), [0.0, 1.0], [0, 1], [0, 1]),
    (lambda x: np.where(x == 0, 0, 1 / x), [0.0, 2.0], [0, -1 / 4], [0, 1 / 4]),
    (lambda x: np.where(x > 0, np.sin(x) / x, 1), [0.0, np.pi], [0, -1 / np.pi], [0, 2 / np.pi**2]),
    (lambda x: np.where(x > 700, x, np.exp(x)), [1000.0, 0.0], [1, 1], [0, 1]),
    (lambda x: np.where(x > 0, x**0.5, 0), [0.0, 4.0], [0, 1 / 4], [0, -1 / 32]),
    (lambda x: np.where(x > 0, np.reciprocal(x) ** 2, 0), [0.0, 1.0], [0, -2], [0, 6]),
    (lambda x: np.sqrt(x) * np.array([0.0, 1.0]), [0.0, 4.0], [0, 1 / 4], [0, -1 / 32]),
    (lambda x: 0 * np.log(x), [0.0, 1.0], [0, 0], [0, 0]),
]


@pytest.mark.parametrize(("f", "x", "slope", "curvature"), GUARDED)
def test_zero_adjoint_contributes_zero(f, x, slope, curvature):
    def total(x):
        return np.sum(f(x))

    close = {"rtol": 1e-14, "atol": 1e-15}
    with np.errstate(all="ignore"):
        assert_allclose(grad(total)(x), slope, **close)
        assert_allclose(grad(lambda x: np.sum(grad(total)(x)))(x), curvature, **close)
        node = leaf(x)
        total(node).backward()
        assert_allclose(node.grad, slope, **close)
        (last,) = [step.adjoint for step in total(node).backward_steps() if step.node is node]
        assert_allclose(last, slope, **close)


def test_infinite_gradients_are_not_hidden():
    with np.errstate(divide="ignore"):
        assert_array_equal(grad(lambda x: np.sum(np.sqrt(x)))([0.0, 4.0]), [np.inf, 0.25])
        assert grad(np.log)(0.0) == np.inf
        assert np.isnan(grad(lambda x: np.sum(x * np.nan))(1.0))


def test_backward_raises_no_warning_in_branches_not_taken():
    with np.errstate(all="ignore"):
        x = leaf([0.0, 4.0])
        y = np.sum(np.where(x > 0, np.sqrt(x) + np.log(x) + 1 / x, 0))
    y.backward()
    assert np.isfinite(x.grad).all()


# Recorded gradients


def test_create_graph_gives_tensors_that_differentiate_again():
    x = leaf([1.0, 2.0])
    y = np.sum(x**3)
    y.backward(create_graph=True)
    first = x.grad
    assert isinstance(first, Tensor)
    assert_array_equal(first.data, 3 * x.data**2)
    x.grad = None
    np.sum(first).backward()
    assert_array_equal(x.grad, 6 * x.data)


def test_third_and_fourth_order():
    def f(x):
        return x**5 + np.exp(2 * x)

    for order, expected in enumerate([5 * 0.5**4, 20 * 0.5**3, 60 * 0.5**2, 120 * 0.5], start=1):
        f = grad(f)
        assert_allclose(f(0.5), expected + 2**order * np.e, rtol=1e-14)


def test_recorded_and_plain_gradients_accumulate_together():
    x = leaf([1.0, 2.0])
    y = np.sum(x * x)
    for first, second in [(True, False), (False, True), (True, True)]:
        x.grad = None
        y.backward(create_graph=first)
        y.backward(create_graph=second)
        assert_array_equal(value_of(x.grad), 4 * x.data)


def test_create_graph_works_inside_no_grad():
    x = leaf(3.0)
    y = x * x
    with no_grad():
        (slope,) = gradients(y, [x], create_graph=True)
    assert gradients(slope, [x]) == [2.0]


def test_steps_can_be_recorded():
    x = leaf(3.0)
    y = x * x * x
    slope = [step.adjoint for step in y.backward_steps(create_graph=True) if step.node is x]
    assert gradients(slope[0], [x]) == [18.0]
