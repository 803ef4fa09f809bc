"""Measure PyTorch on the same workloads.

Variants: `eager`, `eager_fused` (fused optimizer), `channels_last` (that, with images and filters
in that order of memory), `compile`, `compile_overhead` and `compile_autotune` (torch.compile with
the fused optimizer; its modes default, reduce-overhead and max-autotune), `frozen` (a compiled
forward pass whose weights are constants), `graphs` (a whole step captured once as a CUDA graph) and
`cells` (recurrent layers as loops of cells, one op after another; others are cuDNN's on a GPU).
Each is float32; with `_tf32` behind the name products and convolutions may round their operands to
tf32. PyTorch's own default is tf32 in convolutions alone. With `_bf16` the model runs under
`torch.autocast` to bfloat16.

Parameters are plain tensors in a dict, not modules, which costs PyTorch less Python per step. On a
GPU a step copies its inputs from the host's memory and ends when the result is back there, as a
call of graphc's programs does.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.families.recurrent import Recurrent
from benchmarks.measure import Case, GpuStep, main
from benchmarks.workload import RATES, Array

COMPILED = {
    "compile": "default",
    "compile_overhead": "reduce-overhead",
    "compile_autotune": "max-autotune",
    "frozen": "default",
}
WAYS = ("eager", "eager_fused", "channels_last", "graphs", "cells", *COMPILED)
AUTOCAST = tuple(way for way in WAYS if way != "frozen")
VARIANTS = (*WAYS, *(f"{way}_tf32" for way in WAYS), *(f"{way}_bf16" for way in AUTOCAST))
WARM_STEPS = 3
"""Steps before a capture, in which PyTorch and its libraries set themselves up."""


class Functions:
    """PyTorch's functions, wherever they live."""

    def __getattr__(self, name: str) -> Any:
        return getattr(F if hasattr(F, name) else torch, name)


class Cells(Functions):
    """Those with a loop of Python's, in which a recurrent layer is one cell after another."""

    def __init__(self, device: str) -> None:
        self.device = device

    def zeros(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros(shape, device=self.device)

    def scan(self, step: Callable[..., Any], state: Any, xs: torch.Tensor) -> tuple[Any, Any]:
        stacked = []
        for x in xs:
            state, y = step(state, x)
            stacked.append(y)
        return state, torch.stack(stacked)


def prepare(case: Case) -> Callable[[], Any]:
    """A step of the workload; SystemExit for `graphs` without a GPU."""
    torch.set_num_threads(case.threads)
    rounded = case.variant.endswith("_tf32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounded
    autocast = case.variant.endswith("_bf16")
    case = replace(case, variant=case.variant.removesuffix("_tf32").removesuffix("_bf16"))
    if case.variant == "graphs":
        needs_gpu(case)
    workload = case.workload
    lib = Cells(case.device) if case.variant == "cells" else Functions()
    data = workload.data()
    last = case.variant == "channels_last"

    def tensor(array: Array, device: str = case.device) -> torch.Tensor:
        made = _tensor(array, device)
        return made.to(memory_format=torch.channels_last) if last and made.ndim == 4 else made

    parameters = {k: tensor(v).requires_grad_() for k, v in data.parameters.items()}
    if isinstance(workload, Recurrent):
        parameters |= _in_one_piece(workload, parameters)
    statistics = {k: tensor(v) for k, v in data.statistics.items()}
    tensors = {**parameters, **statistics}
    x, y = tensor(data.x, "cpu"), tensor(data.y, "cpu")

    def outputs(x: torch.Tensor, training: bool) -> torch.Tensor:
        kind = case.device.partition(":")[0]
        with torch.autocast(kind, torch.bfloat16, enabled=autocast):
            return workload.forward(lib, tensors, x, training).float()

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return workload.loss(lib, outputs(x, True), y)

    if case.variant == "frozen":
        return _frozen_step(case, tensors, x)
    if case.mode == "forward":
        return _forward_step(case, outputs, x)
    if workload.rule is None:
        return _gradient_step(case, outputs, parameters, x, y)
    compute = _compiled(loss_of, case)
    optimizer = _optimizer(case, parameters)
    counter = itertools.count()

    def train(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = compute(x, y)
        loss.backward()
        optimizer.step()
        return loss

    if case.variant == "graphs":
        return _captured(case, train, (x, y), tensors, optimizer)

    def step() -> Any:
        loss = train(x.to(case.device), y.to(case.device))
        read = next(counter) < 5 or case.device != "cpu"  # the first five are compared
        return loss.item() if read else loss

    return _timed(case, step, train, (x, y))


def _timed(
    case: Case,
    step: Callable[[], Any],
    compute: Callable[..., Any],
    inputs: tuple[torch.Tensor, ...] = (),
) -> Callable[[], Any]:
    """`step`, on a GPU with its times: those of `compute` on inputs that lie there."""
    if not case.device.startswith("cuda"):
        return step
    there = tuple(tensor.to(case.device) for tensor in inputs)

    def alone(repeats: int, rounds: int) -> list[float]:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
        compute(*there)
        marks[0].record()
        for mark in marks[1:]:
            for _ in range(repeats):
                compute(*there)
            mark.record()
        torch.cuda.synchronize()
        return [1000 * a.elapsed_time(b) / repeats for a, b in itertools.pairwise(marks)]

    return GpuStep(step, alone)


def _in_one_piece(
    workload: Recurrent, parameters: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights of the layers as torch.nn.LSTM and GRU hold them: cuDNN would copy others into
    one piece in every step."""
    device, hidden = parameters["head.bias"].device, workload.hidden
    layers = getattr(torch.nn, workload.cell.upper())(hidden, hidden, workload.layers).to(device)
    with torch.no_grad():
        for name, parameter in layers.named_parameters():
            parameter.copy_(parameters[name])
    return dict(layers.named_parameters())


def _tensor(array: Array, device: str) -> torch.Tensor:
    """A copy of the array; labels as PyTorch wants them."""
    tensor = torch.from_numpy(array.copy()).to(device)
    return tensor.long() if tensor.dtype == torch.int32 else tensor


def needs_gpu(case: Case) -> None:
    """SystemExit if there is none to capture on."""
    if not case.device.startswith("cuda"):
        raise SystemExit(f"{case.variant}: CUDA graphs need a GPU, got device {case.device!r}")


def _compiled(function: Callable[..., Any], case: Case) -> Callable[..., Any]:
    mode = COMPILED.get(case.variant)
    if not mode:
        return function
    with warnings.catch_warnings():  # Inductor's modules warn of PyTorch's own as they are imported
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.compile(function, mode=mode)


def _optimizer(case: Case, parameters: Mapping[str, torch.Tensor]) -> torch.optim.Optimizer:
    rule, settings = case.workload.rule, RATES[str(case.workload.rule)]
    fused = None if case.variant == "eager" else True
    more = {"capturable": True} if case.variant == "graphs" and rule == "Adam" else {}
    found: torch.optim.Optimizer = getattr(torch.optim, str(rule))(
        parameters.values(), **settings, fused=fused, **more
    )
    return found


def _forward_step(
    case: Case, outputs: Callable[[torch.Tensor, bool], torch.Tensor], x: torch.Tensor
) -> Callable[[], Any]:
    compute = _compiled(outputs, case)
    context = torch.no_grad if case.variant in COMPILED else torch.inference_mode

    def forward(x: torch.Tensor) -> torch.Tensor:
        with context():
            return compute(x, False)

    if case.variant == "graphs":
        return _captured(case, forward, (x,))
    return _timed(case, lambda: forward(x.to(case.device)).cpu(), forward, (x,))


def _frozen_step(
    case: Case, tensors: Mapping[str, torch.Tensor], x: torch.Tensor
) -> Callable[[], Any]:
    """SystemExit for training: weights that are constants cannot be trained."""
    if case.mode != "forward":
        raise SystemExit("frozen: forward passes alone")
    import torch._inductor.config as inductor

    inductor.freezing = True

    class Frozen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.names = list(tensors)
            self.weights = torch.nn.ParameterList(
                torch.nn.Parameter(t.detach(), requires_grad=False) for t in tensors.values()
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            named = dict(zip(self.names, self.weights, strict=True))
            found: torch.Tensor = case.workload.forward(Functions(), named, x, False)
            return found

    compute = _compiled(Frozen().eval(), case)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = compute(x)
        return found

    return forward


def _gradient_step(
    case: Case,
    outputs: Callable[[torch.Tensor, bool], torch.Tensor],
    parameters: dict[str, torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
) -> Callable[[], Any]:
    compute = _compiled(outputs, case)

    def gradients(x: torch.Tensor, y: torch.Tensor) -> Any:
        for parameter in parameters.values():
            parameter.grad = None
        leaf = x.detach().requires_grad_()
        compute(leaf, False).backward(y)
        return leaf.grad

    if case.variant == "graphs":
        return _captured(case, gradients, (x, y))

    def step() -> Any:
        return gradients(x.to(case.device), y.to(case.device)).cpu()

    return _timed(case, step, gradients, (x, y))


def _captured(
    case: Case,
    compute: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    tensors: Mapping[str, torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Callable[[], Any]:
    """A step that copies the inputs and launches `compute` as one CUDA graph. What the steps before
    the capture did to `tensors` and to the optimizer's state is undone."""
    before = {name: t.detach().clone() for name, t in (tensors or {}).items()}
    static = tuple(t.to(case.device) for t in inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_STEPS):
            compute(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute(*static)
    with torch.no_grad():
        for name, tensor in (tensors or {}).items():
            tensor.copy_(before[name])
        for state in optimizer.state.values() if optimizer else ():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()

    def step() -> Any:
        for there, here in zip(static, inputs, strict=True):
            there.copy_(here)
        graph.replay()
        return result.item() if result.ndim == 0 else result.cpu()

    return _timed(case, step, graph.replay)


if __name__ == "__main__":
    main("torch", VARIANTS, prepare)
