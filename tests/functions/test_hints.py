"""A name that graphc has not gives an error that names the nearest thing it has."""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType

import pytest

import graphc
from graphc import functions
from graphc.functions.hints import OTHER_NAMES
from tests.tools import need_module


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("view", "graphc has no 'view'; the nearest is graphc.reshape"),
        ("cat", "graphc has no 'cat'; the nearest is graphc.concat"),
        ("unsqueeze", "graphc has no 'unsqueeze'; the nearest is graphc.expand_dims"),
        ("max_pool4d", "graphc has no 'max_pool4d'; the nearest is graphc.max_pool3d"),
        ("sofmax", "graphc has no 'sofmax'; the nearest is graphc.softmax"),
        ("qwzx", "graphc has no 'qwzx'"),
        ("exp_", "graphc has no 'exp_'; the nearest is graphc.exp"),
        (
            "native_layer_norm",
            "graphc has no 'native_layer_norm'; the nearest is graphc.layer_norm",
        ),
        (
            "svd",
            "graphc has no 'svd': graphc.linalg factors matrices: cholesky, det, eigh, inv, qr, "
            "slogdet, solve, svd, triangular_solve",
        ),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(name: str, message: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(graphc, name)
    assert str(error.value) == message
    assert not hasattr(graphc, name)


def test_every_hint_names_a_function_and_stands_for_none() -> None:
    known = set(graphc.__all__)
    assert set(OTHER_NAMES.values()) <= known
    assert not set(OTHER_NAMES) & known


def test_functions_can_be_pickled_and_keep_their_signatures() -> None:
    for name in functions.__all__:
        function = getattr(graphc, name)
        assert pickle.loads(pickle.dumps(function)) is function
    assert list(inspect.signature(graphc.sum).parameters) == ["x", "axis", "dtype", "keepdims"]


MACHINERY = {
    "assert_int_or_pair",
    "boolean_dispatch",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
}


@pytest.mark.parametrize("place", ["torch", "torch.nn.functional"])
def test_every_name_of_torchs_exists_or_has_a_neighbour_or_a_remedy(place: str) -> None:
    torch: ModuleType = need_module("torch")
    module = torch if place == "torch" else torch.nn.functional
    lost = []
    for name, thing in vars(module).items():
        typing = getattr(thing, "__module__", None) in ("typing", "collections.abc")
        if name.startswith("_") or not callable(thing) or typing or name in MACHINERY:
            continue
        if not hasattr(graphc, name):
            with pytest.raises(AttributeError) as error:
                getattr(graphc, name)
            if str(error.value) == f"graphc has no {name!r}":
                lost.append(name)
    assert lost == []


def test_every_layer_of_torchs_exists_or_has_a_neighbour() -> None:
    layers: ModuleType = need_module("torch").nn
    lost = []
    names = [n for n in dir(layers) if n[0].isupper() and not n.endswith("Options")]
    for name in (n for n in names if not hasattr(graphc.nn, n)):
        with pytest.raises(AttributeError) as error:
            getattr(graphc.nn, name)
        if str(error.value) == f"graphc.nn has no {name!r}":
            lost.append(name)
    assert lost == []
