"""Measure graphc: `python -m benchmarks.run --workload mnist-cnn-b100 --mode train --threads 2`.

Prints one JSON line; `check` holds the first five losses or outputs. Variants: `default`, and
`streams2`, `streams4` (`tf32_streams2`) on so many streams, `tuned` and `libraries` with kernels
chosen by measurement, of graphc's own or of cuBLASLt's and cuDNN's too, `early` with launches that
begin early, `winograd`, `tf32` and `bfloat16` with that as `precision`, the latter also with
`_libraries`, and `bfloat16_pairs`, where a CPU with AMX multiplies pairs as those without it do;
`tf32_clusters` is tf32 whose parts of k clusters add, `tf32_launches` that whose parts second
launches add, no last block; `wgmma` is bfloat16 by products of warp groups, `wgmma_tma` those of
what TMA copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import graphc
from benchmarks.kernel_times import kernel_times
from benchmarks.measure import Case, GpuStep, TieredStep, main
from benchmarks.workload import RATES, Data, Workload
from graphc import nn, optim
from graphc.program import Program
from graphc.runtime.compilers import shared_objects
from graphc.runtime.cuda import CudaExecutable

VARIANTS = (
    "default",
    "streams2",
    "streams4",
    "tf32_streams2",
    "tuned",
    "libraries",
    "early",
    "winograd",
    "tf32",
    "tf32_libraries",
    "tf32_clusters",
    "tf32_launches",
    "bfloat16",
    "bfloat16_libraries",
    "bfloat16_pairs",
    "wgmma",
    "wgmma_tma",
)
TUNES: dict[str, bool | str] = {"tuned": True}
TUNES |= dict.fromkeys(("libraries", "tf32_libraries", "bfloat16_libraries"), "libraries")
STREAMS = {"streams2": 2, "streams4": 4, "tf32_streams2": 2}
PRECISIONS = {"winograd": "winograd"}
PRECISIONS |= dict.fromkeys(
    ("tf32", "tf32_streams2", "tf32_libraries", "tf32_clusters", "tf32_launches"), "tf32"
)
PRECISIONS |= dict.fromkeys(
    ("bfloat16", "bfloat16_libraries", "bfloat16_pairs", "wgmma", "wgmma_tma"), "bfloat16"
)


class Model(nn.Module):
    """A workload's model in graphc."""

    def __init__(self, workload: Workload, data: Data) -> None:
        self.workload = workload
        self.tensors = {
            **{name: nn.Parameter(a) for name, a in data.parameters.items()},
            **{name: nn.Parameter(a, trainable=False) for name, a in data.statistics.items()},
        }

    def forward(self, x: graphc.Tensor, training: bool = False) -> graphc.Tensor:
        return self.workload.forward(graphc, self.tensors, x, training)


def loss_fn(model: Model, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return model.workload.loss(graphc, model(x, training=True), y)


def backward(model: Model, x: graphc.Tensor, y: graphc.Tensor) -> list[graphc.Tensor]:
    """The gradients of x and of the parameters where that of the outputs is y."""

    def weighed(model: Model, x: graphc.Tensor) -> graphc.Tensor:
        return graphc.sum(model(x) * y)

    parameters, dx = graphc.grad(weighed, (0, 1))(model, x)
    return [dx, *parameters.values()]


def compiled(
    workload: Workload, data: Data, mode: str, options: Mapping[str, Any], dtype: str = "float32"
) -> Any:
    """A workload's training step or forward pass, by `graphc.compile` with these options; `dtype`
    is that of parameters and of inputs that are no labels."""
    model = Model(workload, data).to(dtype)
    dtypes = (dtype if a.dtype == np.float32 else a.dtype for a in (data.x, data.y))
    x, y = map(graphc.spec, (data.x.shape, data.y.shape), dtypes)
    if mode == "forward":
        return graphc.compile(model, x, **options)
    if workload.rule is None:
        return graphc.compile(backward, model, x, y, **options)
    rule = getattr(optim, workload.rule)(**RATES[workload.rule])
    return graphc.compile(loss_fn, model, x, y, update=rule, **options)


def prepare(case: Case) -> Callable[[], Any]:
    options: dict[str, Any] = {
        "device": case.device,
        "threads": case.threads,
        "streams": STREAMS.get(case.variant, 1),
        "tune": TUNES.get(case.variant),
        "precision": PRECISIONS.get(case.variant, "float32"),
    }
    if case.variant == "early":
        os.environ["GRAPHC_EARLY_LAUNCH"] = "1"
    if case.variant == "tf32_clusters":
        os.environ["GRAPHC_CLUSTERS"] = "1"
    if case.variant == "tf32_launches":
        os.environ["GRAPHC_TICKETS"] = "0"
    if case.variant in ("wgmma", "wgmma_tma"):
        os.environ["GRAPHC_WGMMA"] = "1"
        os.environ["GRAPHC_TMA"] = str(int(case.variant == "wgmma_tma"))
    if case.variant == "bfloat16_pairs":
        target = replace(shared_objects.cpu_target(), multiplies_tiles=False)
        shared_objects.cpu_target = lambda: target
    data, workload = case.workload.data(), case.workload
    x, y, step = data.x, data.y, compiled(workload, data, case.mode, options)
    if case.mode == "forward":
        return _step(step, (x,), lambda: step(x))
    if workload.rule is None:
        return _step(step, (x, y), lambda: step(x, y)[0])
    return _step(step, (x, y), lambda: step(x, y))


def _step(program: Program, inputs: tuple[Any, ...], call: Callable[[], Any]) -> Callable[[], Any]:
    """`call`, which calls the program with `inputs`; on a GPU with its times."""
    executable: Any = program._executable
    if not isinstance(executable, CudaExecutable):
        return TieredStep(call, program.wait)
    alone = partial(executable.replays, inputs)
    return GpuStep(call, alone, partial(kernel_times, executable, inputs))


if __name__ == "__main__":
    main("graphc", VARIANTS, prepare)
