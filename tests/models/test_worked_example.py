"""The worked example of the notes, chapter 13: each of its numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
from differences import complex_step, numerical_gradient, ridders
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import nn
from chainrule.autograd import gradients, open_fused
from chainrule.autograd.graph import ancestors, find, replay
from chainrule.models import WorkedExample
from chainrule.models.worked_example import IDS, TARGET

NUMBERS = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text())
exactly = {"rtol": 0, "atol": 1e-15}


@pytest.fixture
def model():
    return WorkedExample()


def test_it_has_24_parameters(model):
    shapes = {path: parameter.shape for path, parameter in model.named_parameters()}
    assert shapes == {"E": (3, 2), "WQ": (2, 1), "WK": (2, 1), "WV": (2, 2), "WO": (2, 2), "U": (2, 3)}
    assert sum(parameter.size for parameter in model.parameters()) == 24


@pytest.mark.parametrize("name", [name for name in NUMBERS["forward"] if name != "p"])
@pytest.mark.parametrize("fused", [True, False])
def test_forward(model, name, fused):
    with open_fused(not fused):
        assert_allclose(find(model(), name).data, NUMBERS["forward"][name], **exactly)


def test_probabilities(model):
    p = nn.softmax(find(model(), "logits")).data
    assert_allclose(p, NUMBERS["forward"]["p"], **exactly)
    assert_allclose(model().item(), -np.log(p[TARGET]), **exactly)


@pytest.mark.parametrize("name", NUMBERS["grads"])
@pytest.mark.parametrize("fused", [True, False])
def test_gradient(model, name, fused):
    with open_fused(not fused):
        loss = model()
    node = find(loss, name)
    wanted = np.array(NUMBERS["grads"][name])
    loss.backward(retain_grad=True)
    assert_allclose(node.grad, wanted, **exactly)
    assert_allclose(gradients(loss, [node])[0], wanted, **exactly)
    assert_allclose(gradients(loss, [node], create_graph=True)[0].data, wanted, **exactly)
    assert [step.adjoint.shape for step in loss.backward_steps() if step.node is node] == [wanted.shape]


def test_every_parameter_and_named_node_has_its_number_in_the_data(model):
    names = {node.name for node in ancestors(model()) if node.name}
    assert names == NUMBERS["grads"].keys() | {"loss"}
    assert {path for path, _ in model.named_parameters()} <= NUMBERS["grads"].keys()


def test_gradients_equal_differences(model):
    loss, parameters = model(), model.parameters()
    expected = numerical_gradient(
        lambda *values: replay(loss, dict(zip(parameters, values, strict=True))), [p.data for p in parameters], complex_step
    )
    for found, wanted in zip(gradients(loss, parameters), expected, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=1e-15)


def test_one_step_of_sgd(model):
    updated = NUMBERS["updated"]
    optimizer = nn.SGD(model.parameters(), lr=updated["lr"])
    model().backward()
    optimizer.step()
    for path, value in updated["params"].items():
        assert_allclose(model.state_dict()[path], value, **exactly)
    loss = model()
    assert_allclose(find(loss, "A").data[1, 0], updated["attention_to_prefix"], **exactly)
    assert_allclose(nn.softmax(find(loss, "logits")).data[TARGET], updated["p_target"], **exactly)
    assert_allclose(loss.data, updated["loss"], **exactly)


def flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def test_second_derivatives(model):
    """All 24 × 24: by gradients of gradients, by the complex step of the recorded gradient, by differences of the plain one."""
    parameters = model.parameters()
    first = gradients(model(), parameters, create_graph=True)
    hessian = [
        flat(gradients(slope[entry], parameters)) if slope.requires_grad else np.zeros(24)
        for slope in first
        for entry in np.ndindex(slope.shape)
    ]

    def with_step(parameter, entry, t):
        moved = parameter.data.astype(np.result_type(parameter.data, t))
        moved[entry] += t
        return moved

    by_complex_step, by_differences = [], []
    for parameter in parameters:
        original = parameter.data
        for entry in np.ndindex(parameter.shape):

            def recorded(t, parameter=parameter, entry=entry):
                return flat(replay(slope, {parameter: with_step(parameter, entry, t)}) for slope in first)

            def afresh(t, parameter=parameter, entry=entry, original=original):
                parameter.data = original
                parameter.data = with_step(parameter, entry, t)
                return flat(gradients(model(), parameters))

            by_complex_step.append(complex_step(recorded))
            by_differences.append(ridders(afresh))
            parameter.data = original
    assert np.shape(hessian) == (24, 24)
    assert np.count_nonzero(hessian) > 100
    assert_allclose(hessian, by_complex_step, rtol=0, atol=1e-15)
    assert_allclose(hessian, np.transpose(hessian), rtol=0, atol=1e-15)
    assert_allclose(hessian, by_differences, rtol=0, atol=1e-10)


def test_the_prefix_is_read_and_the_future_is_not(model):
    A = find(model(), "A").data
    assert A[0, 1] == 0.0
    assert_array_equal(A.sum(axis=1), [1, 1])
    assert model(IDS, TARGET).item() == model().item()
