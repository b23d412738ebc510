"""A graph is a record: what has been given new data since does not change what it says."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import Tensor, checkpoint, gradcheck, gradients, named, nn, no_grad, primitive, scalar_graph, trace, viz
from chainrule.autograd.graph import as_recorded


def stepped():
    w = nn.Parameter(np.array([1.0, 2.0]), name="w")
    loss = named("loss", np.sum(w**3))
    loss.backward()
    nn.SGD([w], lr=0.1).step()
    return w, loss


def test_after_a_step_the_old_graph_says_what_it_said():
    w, loss = stepped()
    assert w.data[0] == pytest.approx(0.7)
    t = trace(loss, w[0])
    assert t.total == 3
    assert_array_equal(t["w"].value, [1, 2])
    assert t.check().verdict == "ok"
    assert gradcheck(loss).ok
    assert gradcheck(loss, "w[1]").ok
    assert gradcheck(loss, w, method="complex").ok
    assert scalar_graph(loss).data == 9
    drawn = next(node for node in viz.draw(loss).model.nodes if node.label == "w")
    assert drawn.value.rows == [[1.0, 2.0]]
    w.grad = None
    loss.backward()
    assert_array_equal(w.grad, [3, 12])


def test_what_would_mix_old_and_new_is_refused():
    w, loss = stepped()
    for again in (lambda: loss.backward(create_graph=True), lambda: gradients(loss, [w], create_graph=True)):
        with pytest.raises(ValueError, match=r"w changed after loss was computed \(by optimizer.step\(\)\?\)"):
            again()
    x = Tensor([1.0, 2.0], requires_grad=True, name="x")
    y = x * x
    x.data = [3.0, 4.0]
    z = named("z", np.sum(y * x))
    with pytest.raises(ValueError, match="x was given new data while z was being computed"):
        as_recorded(z)


def test_fused_operations_are_opened_at_the_recorded_values():
    rng = np.random.default_rng(0)
    leaves = Q, _, _ = [nn.Parameter(rng.normal(size=(3, 2)), name=name) for name in "QKV"]
    loss = np.sum(nn.attention(*leaves) ** 2)
    loss.backward()
    nn.SGD(leaves, lr=0.5).step()
    t = trace(loss, Q[0, 0])
    assert t.total == pytest.approx(Q.grad[0, 0], abs=1e-15)
    assert t.check().verdict == "ok"
    assert trace(loss, "A[0,1]").check().verdict == "ok"  # a name inside the attention


def test_complex_numbers_are_refused():
    x = Tensor([1.0, 2.0], requires_grad=True)
    for f in (lambda: x * 1j, lambda: np.array([1j, 2]) * x, lambda: np.exp(1j * x), lambda: np.where([True, False], x, 1j)):
        with pytest.raises(TypeError, match="complex tensors are not supported"):
            f()

    @primitive()
    def odd(x):
        return np.array(x)

    odd.rule("x", "∂L/∂{x} = i ∂L/∂{y}")(lambda g, y, x: g * 1j)
    with pytest.raises(TypeError, match="returned complex numbers"):
        odd(x).backward(np.ones(2))


def test_rules_that_return_the_wrong_thing():
    def broken(rule, joint=False):
        @primitive()
        def f(a, b):
            return a + b

        if joint:
            f.joint_rule({"a": "∂L/∂{a} = …", "b": "∂L/∂{b} = …"})(rule)
        else:
            f.rule("a", "∂L/∂{a} = …")(rule)
        return f(Tensor([1.0, 2.0], requires_grad=True, name="x"), np.ones(2))

    with pytest.raises(TypeError, match="a rule of f returned NoneType for x"):
        broken(lambda g, y, a, b: None).backward(np.ones(2))
    with pytest.raises(TypeError, match="a rule of f returned NoneType for x"):
        list(broken(lambda g, y, a, b: None).backward_steps(np.ones(2)))
    with pytest.raises(TypeError, match="a rule of f returned list"):
        broken(lambda g, y, a, b: [1.0, 2.0]).backward(np.ones(2))
    with pytest.raises(ValueError, match=r"has the shape of its input; a rule of f returned \(3,\)"):
        broken(lambda g, y, a, b: np.ones(3)).backward(np.ones(2))
    with pytest.raises(ValueError, match="f's joint rule owes 2 contributions; got 1"):
        broken(lambda g, y, a, b: [g], joint=True).backward(np.ones(2))


def test_constants_of_borrowed_memory_are_copied():
    memory = bytearray(np.ones(2).tobytes())
    constant = np.frombuffer(memory)
    constant.flags.writeable = False
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = np.sum(x * constant)
    memory[:] = np.full(2, 7.0).tobytes()
    assert_array_equal(gradients(y, [x])[0], [1, 1])
    a = np.ones(2)
    y = checkpoint(lambda x, a: np.sum(x * a))(x, a)
    a[:] = 7
    assert_array_equal(gradients(y, [x])[0], [1, 1])


def test_masked_arrays_objects_and_odd_names():
    x = Tensor([1.0, 2.0], requires_grad=True)
    for f in (lambda: x * np.ma.array([1.0, 2.0], mask=[True, False]), lambda: Tensor(np.ma.array([1.0]))):
        with pytest.raises(TypeError, match="mask"):
            f()
    with pytest.raises(TypeError, match="an array of objects: convert it first"):
        x * np.array([1.0, 2.0], dtype=object)
    with pytest.raises(TypeError, match="A name is a string; got int 5"):
        Tensor(1.0, name=5)
    y = named("\x1b[31mred\n", np.sum(Tensor([1.0], requires_grad=True, name="a\tb") * 2))
    assert "\x1b" not in str(trace(y, "a\tb[0]"))
    assert Tensor(np.ones(2, ">f8"), requires_grad=True).dtype.isnative


def test_hooks_see_arrays_that_are_not_the_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    kept = []
    x.register_hook(kept.append)
    np.sum(x * 3).backward()
    x.grad *= 0
    assert_array_equal(kept[0], [3, 3])
    z = Tensor([1.0, 2.0], requires_grad=True)
    z.register_hook(lambda g: Tensor([5.0, 5.0]))
    np.sum(z).backward()
    assert_array_equal(z.grad, [5, 5])
    z.grad = np.ones((3, 2))
    with pytest.raises(ValueError, match=r"grad has shape \(3, 2\)"):
        np.sum(z).backward()


def test_one_manager_in_several_threads_and_around_generators():
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    manager, together = no_grad(), Barrier(4)

    def work(_):
        with manager:
            together.wait()
            return (Tensor(1.0, requires_grad=True) * 2).requires_grad

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [False] * 4
    with pytest.raises(TypeError, match="is a generator"):

        @no_grad()
        def numbers():
            yield 1


def test_powers_have_numpys_dtype():
    for array, exponent in [
        (np.array([3_000_000]), 3.0),
        (np.array([1, 2]), 3),
        (np.ones(2, np.float32), np.float64(3)),
        (np.ones(2), 3),
    ]:
        y = Tensor(array) ** exponent
        assert y.dtype == (array**exponent).dtype
        assert_array_equal(y.data, array**exponent)
