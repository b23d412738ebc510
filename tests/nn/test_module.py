"""Modules and parameters: names, scopes, states, copies."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule import Tensor, named, nn
from chainrule.autograd.graph import ancestors


class Linear(nn.Module):
    def __init__(self, n=2):
        self.W = nn.Parameter(np.eye(n))

    def forward(self, x):
        return named("y", x @ self.W)


class Net(nn.Module):
    def __init__(self):
        self.embed = Linear()
        self.blocks = [Linear(), Linear()]
        self.pair = (nn.Parameter([1.0]), nn.Parameter([2.0]))
        self.scale = nn.Parameter(2.0)
        self.note = "not a parameter"

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return np.sum(x * self.scale)


PATHS = ["pair.0", "pair.1", "scale", "embed.W", "blocks.0.W", "blocks.1.W"]


def test_a_parameter_requires_a_gradient():
    assert nn.Parameter([1, 2]).requires_grad
    assert nn.Parameter([1, 2]).dtype == np.float64
    assert not nn.Parameter([1.0], requires_grad=False).requires_grad
    with pytest.raises(TypeError, match="Only floating-point"):
        nn.Parameter(np.array([1, 2]))


def test_paths_of_parameters_and_modules():
    net = Net()
    assert [path for path, _ in net.named_parameters()] == PATHS
    assert [parameter.path for parameter in net.parameters()] == PATHS
    assert [path for path, _ in net.named_modules()] == ["", "embed", "blocks.0", "blocks.1"]


def test_nodes_are_in_the_scope_of_their_module():
    net = Net()
    loss = net(np.ones((1, 2)))
    assert {node.path for node in ancestors(loss) if node.name} == {*PATHS[2:], "embed.y", "blocks.0.y", "blocks.1.y"}


def test_a_parameter_that_is_set_later_has_its_full_path():
    net = Net()
    net.embed.b = nn.Parameter([0.0])
    assert net.embed.b.path == "embed.b"
    assert net.embed.W.path == "embed.W"


def test_a_list_may_grow():
    net = Net()
    net.blocks.append(Linear())
    assert [path for path, _ in net.named_parameters()][-1] == "blocks.2.W"
    assert net.blocks[2].W.path == "blocks.2.W"
    assert "blocks.2.y" in {node.path for node in ancestors(net(np.ones((1, 2))))}


def test_a_shared_parameter_comes_once():
    net = Net()
    net.blocks[1].W = net.embed.W
    assert net.embed.W.path == "embed.W"
    assert [path for path, _ in net.named_parameters()] == PATHS[:-1]
    assert net.embed.W.path == "embed.W"
    net(np.ones((1, 2))).backward()
    assert_array_equal(net.embed.W.grad, [[4, 4], [4, 4]])


def test_a_tensor_to_be_trained_must_be_a_parameter():
    with pytest.raises(TypeError, match=r"Net\.W is trained only as a Parameter; wrap it"):
        Net().W = Tensor([1.0], requires_grad=True)
    net = Net()
    net.constant = Tensor([1.0])
    assert len(net.parameters()) == len(PATHS)


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match=r"Module defines no forward"):
        nn.Module()(1)


def test_zero_grad():
    net = Net()
    net(np.ones((1, 2))).backward()
    assert net.scale.grad is not None
    net.zero_grad()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_training_mode_reaches_all_modules():
    net = Net()
    assert net.training
    assert net.blocks[0].training
    assert net.eval() is net
    assert not any(module.training for _, module in net.named_modules())
    assert net.train().blocks[1].training


# States and copies


def test_state_round_trip():
    net, other = Net(), Net()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = parameter.data + i
    state = net.state_dict()
    assert list(state) == PATHS
    state["scale"][...] = 100
    assert net.scale.item() == 4.0
    other.load_state_dict(state)
    assert other.scale.item() == 100.0
    state["scale"][...] = 0
    assert other.scale.item() == 100.0
    for (path, parameter), value in zip(other.named_parameters(), state.values(), strict=True):
        if path != "scale":
            assert_array_equal(parameter.data, value)


def test_a_state_that_does_not_fit_changes_nothing():
    net = Net()
    state = net.state_dict()
    original = net.state_dict()
    del state["scale"]
    state["extra"] = np.zeros(1)
    with pytest.raises(KeyError, match="does not fit this Net; missing: scale; unknown: extra"):
        net.load_state_dict(state)
    wrong = {path: value + 1 for path, value in original.items()} | {"blocks.1.W": np.zeros(3)}
    with pytest.raises(ValueError, match=r"blocks\.1\.W has shape \(2, 2\); the state has \(3,\)"):
        net.load_state_dict(wrong)
    for path, value in net.state_dict().items():
        assert_array_equal(value, original[path])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (["x", "y"], TypeError, r"scale2 has dtype float32; the state has <U1"),
        ([1j, 2.0], TypeError, "scale2 has dtype float32; the state has complex128"),
        ([None, 1.0], TypeError, "scale2 has dtype float32; the state has object"),
        ([True, False], TypeError, "scale2 has dtype float32; the state has bool"),
        ([1e300, 1.0], ValueError, "scale2 has dtype float32; the state has numbers too large for it"),
        ([-1e39, 1.0], ValueError, "too large"),
    ],
    ids=str,
)
def test_a_state_of_other_kinds_changes_nothing(value, error, message):
    """The last entry is the wrong one: those before it stay, too."""
    net = Net()
    net.scale2 = nn.Parameter(np.zeros(2, np.float32))
    original = net.state_dict()
    with pytest.raises(error, match=message):
        net.load_state_dict({path: kept + 1 for path, kept in original.items()} | {"scale2": value})
    for path, kept in net.state_dict().items():
        assert_array_equal(kept, original[path])


def test_states_that_are_none():
    net = Net()
    with pytest.raises(TypeError, match="A state is values by name, as state_dict\\(\\) gives them; got list"):
        net.load_state_dict([1.0])
    with pytest.raises(ValueError, match=r"blocks\.1\.W has shape \(2, 2\); the state has no array of one shape"):
        net.load_state_dict(net.state_dict() | {"blocks.1.W": [[1.0, 2.0], [3.0]]})


def test_a_state_may_hold_other_real_numbers():
    """Infinity and NaN are what they were; integers and lists are as good as floats of the dtype."""
    net = Net()
    net.scale2 = nn.Parameter(np.zeros(3, np.float32))
    net.load_state_dict(net.state_dict() | {"scale2": [np.inf, np.nan, 1e-300], "scale": 3, "pair.0": Tensor([5.0])})
    assert_array_equal(net.scale2.data, np.array([np.inf, np.nan, 0], np.float32))
    assert (net.scale.item(), net.pair[0].item()) == (3.0, 5.0)
    assert net.scale2.dtype == np.float32


def test_a_module_is_not_part_of_itself():
    net, other = Net(), Net()
    names = [path for path, _ in net.named_modules()]
    for wrong in (net, [net], (Linear(), net)):
        with pytest.raises(ValueError, match=r"A module is not part of itself: Net\.again"):
            net.again = wrong
    other.inside = net
    with pytest.raises(ValueError, match="not part of itself"):
        net.around = other
    assert [path for path, _ in net.named_modules()] == names
    assert net(np.ones((1, 2))).size == 1
    net.blocks.append(net)
    with pytest.raises(ValueError, match=r"Net is inside of itself, as blocks\.2"):
        net.parameters()


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_are_independent_and_alike(twin_of):
    net = Net()
    net.blocks[1].W = net.embed.W
    loss = net(np.ones((1, 2)))
    loss.backward()
    twin = twin_of(net)
    assert [(path, p.path) for path, p in twin.named_parameters()] == [(path, path) for path in PATHS[:-1]]
    assert twin.blocks[1].W is twin.embed.W
    for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert type(theirs) is nn.Parameter
        assert theirs is not mine
        assert_array_equal(theirs.data, mine.data)
        assert_array_equal(np.array(theirs.grad, dtype=float), np.array(mine.grad, dtype=float))
    twin.scale.data = 0.0
    assert net.scale.item() == 2.0
    assert twin(np.ones((1, 2))).item() == 0.0
    twin.zero_grad()
    assert net.scale.grad is not None


def test_a_module_that_keeps_an_interior_node_refuses_to_be_copied():
    class Keeps(nn.Module):
        def forward(self, x):
            object.__setattr__(self, "last", x * 2)
            return self.last

    module = Keeps()
    module(Tensor(1.0, requires_grad=True))
    with pytest.raises(TypeError, match="is an interior node"):
        copy.deepcopy(module)
