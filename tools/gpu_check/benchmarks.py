"""graphc beside PyTorch on one GPU, in measurements of a second each.

They are taken in order of value, each in a process of its own, so that an hour that ends early has
the important ones: first training steps in float32 of every workload, by graphc and by each way in
which PyTorch runs them; then forward passes, launches that begin early, kernels chosen by
measurement, several streams, tf32 with and without clusters that add, and bfloat16 with and without
wgmma, of what threads copy or what TMA does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.workloads import WORKLOADS
from tools.gpu_check.process import Clock, python
from tools.gpu_check.report import Report

CHOSEN = (
    "mlp-4x256-b16",
    "mnist-cnn-b100",
    "flux-conv-b1000",
    "lstm-h64-b256",
    "gru-h64-b256",
    "resnet18-b8",
    "gpt4-b8",
    "pw-chain",
    "mnist-cnn-b1000",
    "pw-layernorm",
    "resnet50-b8",
    "pw-softmax",
    "lstm-h1024-b32",
    "pw-gelu",
)
MODULES = {"graphc": "benchmarks.run", "torch": "benchmarks.peer_torch"}
STEPS = (
    ("graphc", "default"),
    ("torch", "eager_fused"),
    ("torch", "graphs"),
    ("torch", "compile"),
    ("torch", "compile_overhead"),
    ("torch", "compile_autotune"),
)
FURTHER = (
    ("graphc", "early"),
    ("graphc", "tuned"),
    ("graphc", "libraries"),
    ("graphc", "streams2"),
    ("graphc", "streams4"),
    ("torch", "eager"),
    ("graphc", "tf32"),
    ("graphc", "tf32_libraries"),
    ("graphc", "tf32_launches"),
    ("graphc", "tf32_clusters"),
    ("torch", "graphs_tf32"),
    ("torch", "eager_fused_tf32"),
    ("torch", "compile_tf32"),
    ("torch", "compile_overhead_tf32"),
    ("torch", "compile_autotune_tf32"),
    ("graphc", "bfloat16"),
    ("graphc", "bfloat16_libraries"),
    ("graphc", "wgmma"),
    ("graphc", "wgmma_tma"),
)
MOST_SECONDS = 90.0
"""Of one measurement, compiling included."""
LEAST_SECONDS = 10.0
"""What is begun with less left would be ended."""


@dataclass(frozen=True)
class Measurement:
    peer: str
    variant: str
    workload: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.mode} {self.peer}:{self.variant}"


def measurements(workloads: Sequence[str]) -> Iterator[Measurement]:
    """All of them, the most valuable first."""
    rounds = (("train", STEPS), ("forward", STEPS), ("train", FURTHER), ("forward", FURTHER))
    for mode, ways in rounds:
        for workload in workloads:
            if mode in WORKLOADS[workload].modes:
                for peer, variant in ways:
                    yield Measurement(peer, variant, workload, mode)


def take_all(report: Report, clock: Clock, device: str, workloads: Sequence[str]) -> int:
    """Take the measurements that the report lacks while there is time; how many are left."""
    left = 0
    for each in measurements(workloads):
        if report.measured(each.name):
            continue
        seconds = min(MOST_SECONDS, clock.left())
        if seconds < LEAST_SECONDS:
            left += 1
        else:
            report.add_measurement(each.name, measure(each, device, seconds))
    return left


def measure(each: Measurement, device: str, seconds: float) -> dict[str, object]:
    """The JSON line of a measurement, or its `failure`. Without a GPU PyTorch runs on the CPU."""
    place = device if each.peer == "graphc" or device.startswith("cuda") else "cpu"
    command = ["-m", MODULES[each.peer], "--variant", each.variant, "--workload", each.workload]
    command += ["--mode", each.mode, "--device", place, "--seconds", "1", "--json"]
    done = python(command, seconds)
    if done.failure:
        return {"failure": done.failure}
    try:
        line: dict[str, object] = json.loads(done.out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"failure": f"no JSON line was printed: {done.out[-500:]}{done.err[-500:]}"}
    return line
