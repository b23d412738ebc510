"""Questions about a recorded graph: order, finding by name, opening fused nodes, replay."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import Tensor, named, nn
from chainrule.autograd import gradients, primitive
from chainrule.autograd.graph import ancestors, find, opened, replay
from chainrule.autograd.modes import Scope
from chainrule.autograd.tensor import options_of
from chainrule.models import WorkedExample


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


# ancestors


def test_ancestors_are_each_node_once_oldest_first():
    x, constant = leaf(2.0), Tensor(3.0)
    a = x * constant
    b = a + x
    y = a * b
    assert ancestors(y) == [x, a, b, y]
    assert ancestors(x) == [x]


def test_every_input_is_older_than_its_node():
    loss = WorkedExample()()
    for node in ancestors(loss):
        assert all(x.index < node.index for x in node.inputs if isinstance(x, Tensor))


# find


def test_find_by_path_label_and_end_of_path():
    with Scope("blocks"), Scope("0"):
        S = named("S", leaf(1.0) * 2)
    with Scope("blocks"), Scope("1"):
        T = named("T", S * 3)
    y = T + S
    assert find(y, "blocks.0.S") is S
    assert find(y, "0.S") is S
    assert find(y, "T") is T
    assert find(y, y.label) is y


def test_find_prefers_a_full_path():
    short = named("S", leaf(1.0) * 2)
    with Scope("block"):
        long = named("S", short * 2)
    assert find(long, "S") is short
    assert find(long, "block.S") is long


def test_find_says_what_there_is():
    loss = WorkedExample()()
    with pytest.raises(KeyError, match=r"No node is called 'WQQ'\. Did you mean WQ.*The names are: E, WQ, WK"):
        find(loss, "WQQ")
    with pytest.raises(KeyError, match=r"The names are: \(none\)"):
        find(leaf(1.0) * 2, "S")
    with Scope("0"):
        a = named("S", leaf(1.0) * 2)
    with Scope("1"):
        b = named("S", a * 2)
    with pytest.raises(KeyError, match=r"'S' is the name of 2 nodes: 0\.S, 1\.S"):
        find(b, "S")


def test_names_end_at_dots():
    y = named("logits", leaf(1.0) * 2)
    with pytest.raises(KeyError):
        find(y, "its")


# opened


def test_opened_has_the_same_values_and_gradients():
    Q, K, V = (leaf(np.random.default_rng(i).standard_normal((3, 2)), name="QKV"[i]) for i in range(3))
    with Scope("attn"):
        Z = named("Z", nn.attention(Q, K, V, nn.causal_mask(3, 3)))
    loss = nn.cross_entropy(Z * 2, np.array([0, 1, 1]))
    open_loss, renewed = opened(loss)
    assert_allclose(open_loss.data, loss.data, rtol=1e-15)
    assert renewed[loss] is open_loss
    assert not {Q, K, V} & renewed.keys()
    assert all(node.primitive.definition is None for node in ancestors(open_loss) if node.primitive)
    for name in ("S", "A", "Z"):
        assert find(open_loss, name).path == f"attn.{name}"
    assert find(open_loss, "Z") is renewed[Z]
    for found, wanted in zip(gradients(open_loss, [Q, K, V]), gradients(loss, [Q, K, V]), strict=True):
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-16)


def test_opened_only_where_names_are_inside():
    Q = leaf(np.eye(2))
    loss = nn.cross_entropy(nn.attention(Q, Q, Q), np.array([0, 1]))
    partly, _ = opened(loss, everything=False)
    assert [node.primitive.name for node in ancestors(partly) if node.primitive and node.primitive.definition] == [
        "softmax",
        "cross_entropy",
    ]
    assert find(partly, "A").primitive is nn.softmax


def test_opened_leaves_plain_graphs_and_the_original_alone():
    x = leaf([1.0, 2.0])
    plain = np.sum(x * x)
    assert opened(plain) == (plain, {})
    y = np.sum(nn.softmax(x) * [1.0, 2.0])
    before = [(node, node.inputs, node.index) for node in ancestors(y)]
    opened(y)
    assert [(node, node.inputs, node.index) for node in ancestors(y)] == before


def test_opened_is_linear_in_the_size_of_a_definition():
    """A definition may reuse its parts: 60 doublings make 2⁶⁰ paths and 60 nodes."""

    @primitive()
    def doubled(x):
        return x * 2.0**60

    @doubled.rule("x", "∂L/∂{x} = 2⁶⁰ ∂L/∂{y}")
    def doubled_wrt_x(g, y, x):
        return g * 2.0**60

    @doubled.defined_by
    def doubled_definition(x):
        for _ in range(60):
            x = x + x
        return x

    x = leaf(1.0)
    y, _ = opened(doubled(x))
    assert y.item() == 2.0**60
    assert gradients(y, [x]) == [2.0**60]


def test_opened_inside_a_long_graph():
    """Nodes on both sides of a fused one are joined to the new one."""
    x = leaf([0.5, 1.0])
    before = named("before", x * 2)
    A = named("A", nn.softmax(before))
    after = named("after", A * A)
    new, renewed = opened(after)
    assert renewed.keys() == {A, after}
    assert find(new, "before") is before
    assert new.inputs == (renewed[A], renewed[A])
    assert new.grad is None


# replay


def test_replay_with_other_values():
    x, w = leaf([1.0, 2.0]), leaf(3.0)
    middle = x * w
    y = np.sum(middle**2)
    assert replay(y, {}) == 45
    assert replay(y, {w: np.array(1.0)}) == 5
    assert replay(y, {x: np.array([0.0, 1.0]), w: np.array(2.0)}) == 4
    assert replay(y, {middle: np.array([1.0, 1.0])}) == 2
    assert replay(y, {y: 7}) == 7
    assert y.item() == 45


def test_replay_by_the_complex_step():
    x = leaf([0.3, 0.7])
    y = np.sum(np.tanh(x) / (1 + np.exp(x)) + nn.softmax(x)[0])
    h = np.array([1e-30j, 0])
    assert_allclose(replay(y, {x: x.data + h}).imag / 1e-30, gradients(y, [x])[0][0], rtol=1e-14)


def test_replay_keeps_constants_and_records_for_tensors():
    mask = np.array([True, False])
    x = leaf([1.0, 2.0])
    y = np.sum(np.where(mask, x, -1.0))
    other = leaf([5.0, 6.0])
    again = replay(y, {x: other})
    assert again.item() == 4
    again.backward()
    assert_array_equal(other.grad, [1, 0])


def test_options_of_a_node():
    x = leaf(np.ones((2, 3)))
    assert options_of(np.sum(x, axis=1)) == {"axis": 1}
    loss = nn.cross_entropy(x, [0, 1])
    assert "saved" in loss.options
    assert options_of(loss) == {}


# Size


def test_hundred_thousand_nodes():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1e-5
    assert len(ancestors(y)) == 100_001
    assert_allclose(replay(y, {x: np.array(2.0)}), 3.0, rtol=1e-9)
    assert find(named("end", y), "end") is y
    softened = nn.softmax(np.stack([y, x]))
    assert len(opened(softened)[1]) == 1
