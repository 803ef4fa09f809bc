"""What graphc computes of a network, compared with PyTorch."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.differences import Results
from graphc import optim
from graphc.kernels.cuda.reduce import reduce, stage_text
from graphc.passes.pipeline import OPTIONAL
from graphc.program import making
from graphc.program.planning import make_plan_of
from graphc.runtime.reference import ReferenceExecutable
from tests.networks.kinds.heads import Array
from tests.networks.network import Network
from tests.networks.sides import graphc_names
from tests.networks.truth import RULES, STEPS, Known, gradient_name, truth
from tests.networks.write import Written, write

Options = dict[str, Any]


def check(network: Network, devices: tuple[str, ...]) -> list[str]:
    """What differs from PyTorch on these devices; a line each.

    Device "planned" is the CPU's program, all passes run, all kernels written and a plan proved
    for one stream and for three, but played in NumPy: no compiler is asked. "planned sim" is that
    of the simulated GPU. "large sim" is that GPU with kernels as large images have them.
    """
    written = write(network)
    expected = truth(written)
    wrong = []
    for device in devices:
        found = run(written, expected.weights, device)
        wrong += [f"{device}: {line}" for line in expected.differences(found)]
    source = random.Random(network.seed)
    left_out = tuple(source.sample(OPTIONAL, source.randint(1, 4)))
    if network.seed % 3 == 0:
        device = devices[-1]
        found = run(written, expected.weights, device, disable=left_out)
        wrong += [f"{device} without {left_out}: {x}" for x in expected.differences(found)]
    if "cpu" in devices and network.seed % 4 == 0:
        wrong += _other_bits(written, expected)
    return wrong


def _other_bits(written: Written, expected: Known) -> list[str]:
    """The results whose bits depend on streams, threads or memory."""
    one = run(written, expected.weights, "cpu", streams=1, threads=1)
    two = run(written, expected.weights, "cpu", streams=3, threads=2)
    lean = run(written, expected.weights, "cpu", streams=1, memory="lean")
    return [
        f"cpu: {name} has other bits {when}"
        for when, found in (
            ("with 3 streams and 2 threads", two),
            ("where kernels run again", lean),
        )
        for name, array in one.items()
        if not np.array_equal(array, found[name], equal_nan=True)
    ]


def run(written: Written, weights: Results, device: str, **options: Any) -> Results:
    """The results of a network by their names, as `truth` names them."""
    how, _, where = device.rpartition(" ")
    how, where = (where, "cpu") if where == "planned" else (how, where)
    with {"planned": _planned, "large": _large, "": nullcontext}[how]():
        return _run(written, weights, {**options, "device": where})


def _run(written: Written, weights: Results, options: Options) -> Results:
    network = written.network
    names = written.names(graphc_names())
    model = names["Network"]()
    if network.dtype != "float32":
        model.to(network.dtype)
    model.load_state_dict(weights)
    specs = [
        graphc.spec(a.shape, network.dtype if a.dtype.kind == "f" else a.dtype)
        for a in written.arrays
    ]
    if network.mode == "train":
        found = _train(network, names["loss"], model, specs, written.arrays, options)
    elif network.mode == "gradient":
        found = _gradients(network, names["loss"], model, specs, written.arrays, options)
    else:
        first, options = specs[: len(network.inputs)], {**options, "training": network.training}
        values = graphc.compile(model, *first, **options)(*written.inputs)
        found = _heads(network, values)
    found |= {f"{name} afterwards": array for name, array in model.state_dict().items()}
    return {name: np.asarray(array) for name, array in found.items()}


def _train(
    network: Network, loss: Any, model: Any, specs: list[Any], arrays: tuple[Array, ...],
    options: Options,
) -> dict[str, Any]:  # fmt: skip
    update = getattr(optim, network.rule)(**RULES[network.rule])
    step = graphc.compile(loss, model, *specs, update=update, **options)
    return {f"loss {number}": step(*arrays)[0] for number in range(STEPS)}


def _gradients(
    network: Network, loss: Any, model: Any, specs: list[Any], arrays: tuple[Array, ...],
    options: Options,
) -> dict[str, Any]:  # fmt: skip
    floats = [i for i in range(len(network.inputs)) if i not in network.symbols]
    function = graphc.value_and_grad(loss, (0, *(i + 1 for i in floats)))
    compiled = graphc.compile(function, model, *specs, training=network.training, **options)
    (value, *values), (of_model, *of_inputs) = compiled(*arrays)
    found = {"loss": value, **_heads(network, values)}
    found |= {gradient_name(name): array for name, array in of_model.items()}
    found |= {gradient_name(f"v{i}"): a for i, a in zip(floats, of_inputs, strict=True)}
    return found


def _heads(network: Network, values: Any) -> dict[str, Any]:
    return {f"v{head.value}": value for head, value in zip(network.heads, values, strict=True)}


@contextmanager
def _planned() -> Iterator[None]:
    """Programs are planned for their device and played in NumPy; what the passes made of them is
    compared with their traces."""
    load, check = making.load, os.environ.get("GRAPHC_CHECK", "")

    def plan(graph: Any, device: Any, target: Any, state: Any, _: Any, notes: Any, *__: Any) -> Any:
        make_plan_of(graph, target, 3, notes)
        planned = make_plan_of(graph, target, 1, notes)
        return ReferenceExecutable(graph, state), planned, None

    making.load, os.environ["GRAPHC_CHECK"] = plan, "meaning"
    try:
        yield
    finally:
        making.load, os.environ["GRAPHC_CHECK"] = load, check


@contextmanager
def _large() -> Iterator[None]:
    """Channels are reduced as if their images were large: no block has all of one, and convolutions
    add up the columns that are summed first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "ALONE_BYTES", 0)
        patch.setattr(stage_text, "GATHERED_BYTES", 0)
        patch.setenv("GRAPHC_PLAN_CACHE", "0")
        yield
