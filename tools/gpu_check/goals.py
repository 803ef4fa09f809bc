"""Goals for a GPU: workloads, and the variants of graphc and PyTorch that are compared in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.workloads import WORKLOADS

EAGER = ("eager_fused", "graphs")
COMPILED = ("compile", "compile_overhead", "compile_autotune")
TF32 = tuple(f"{way}_tf32" for way in (*EAGER, *COMPILED))
BFLOAT16 = tuple(f"{way}_bf16" for way in (*EAGER, *COMPILED))
IMAGES_LAST = ("channels_last_tf32", "channels_last_bf16")


@dataclass(frozen=True)
class Goal:
    """What training steps of `workloads` should reach. The first variants matter most."""

    text: str
    workloads: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


GOALS = (
    Goal(
        "at most 20 us of the GPU; twice as fast as the best",
        ("mlp-4x256-b16",),
        ("default",),
        ("eager", *EAGER, *COMPILED, *TF32),
    ),
    Goal(
        "1.5 times as fast as the best of eager, graphs and torch.compile",
        ("mnist-cnn-b100", "flux-conv-b1000", "mnist-cnn-b1000", "flux-conv-b100"),
        ("tf32", "default"),
        (*TF32[:2], *EAGER, *TF32[2:], *COMPILED, *IMAGES_LAST),
    ),
    Goal(
        "h64 twice as fast as the best, h512 as fast as cuDNN's layers (all but cells)",
        ("lstm-h64-b256", "gru-h64-b256", "lstm-h512-b64", "gru-h512-b64"),
        ("default", "tf32"),
        ("cells", *EAGER, "cells_tf32", *TF32[:2], *COMPILED, *TF32[2:]),
    ),
    Goal(
        "0.8 times as fast as the best generated alone, 1.05 times with libraries",
        ("resnet50-b32", "resnet50-b256"),
        ("tf32", "tf32_libraries", "bfloat16", "bfloat16_libraries", "default", "libraries"),
        (IMAGES_LAST[0], *TF32[:2], IMAGES_LAST[1], *BFLOAT16[:2], *TF32[2:], *BFLOAT16[2:]),
    ),
    Goal(
        "two streams 1.05 times as fast as one, never below 0.99",
        ("conv-backward-b8", "conv-backward-b16", "conv-backward-b32"),
        ("tf32", "tf32_streams2", "default", "streams2", "streams4"),
        (*TF32[:2], *EAGER, IMAGES_LAST[0]),
    ),
    Goal(
        "as fast as the best",
        ("gpt12-d768-b8",),
        ("bfloat16", "bfloat16_libraries", "wgmma", "wgmma_tma"),
        BFLOAT16,
    ),
    Goal(
        "85 % of copy bandwidth (the stage bandwidth says how much)",
        ("pw-chain", "pw-softmax", "pw-layernorm", "pw-batchnorm"),
        ("default",),
        (*EAGER, *COMPILED),
    ),
)
OTHERS = Goal(
    "",
    ("resnet18-b8", "gpt4-b8", "resnet18-b32", "lstm-h1024-b32", "pw-gelu"),
    ("tf32", "default"),
    (*TF32[:2], *EAGER, *TF32[2:], *COMPILED),
)
"""Workloads without a goal, whose kernels have other shapes; other requested workloads are measured
like these."""
CHOSEN = (*(name for goal in GOALS for name in goal.workloads), *OTHERS.workloads)
FIRST = 2
"""Variants of each side of a goal that are measured before all others."""
FURTHER = (
    *("early", "tuned", "libraries", "streams2", "streams4"),
    *("tf32_libraries", "tf32_launches", "tf32_clusters", "tf32_streams2"),
    *("bfloat16", "bfloat16_libraries", "wgmma", "wgmma_tma"),
)
"""Further variants of graphc in which training steps are measured."""


NEEDED = {
    "early": (9.0, 99.0),
    "tf32_clusters": (9.0, 99.0),
    "wgmma": (9.0, 9.0),
    "wgmma_tma": (9.0, 9.0),
}
"""The least and the greatest compute capability of variants of graphc that not every GPU has."""
TENSOR_CORES = 8.0
"""The least compute capability with tensor cores for tf32 and bfloat16."""


Part = Callable[[Goal], Iterator[tuple[str, str]]]
"""Some of a goal's variants, with the library that they belong to."""


@dataclass(frozen=True)
class Measurement:
    peer: str
    variant: str
    workload: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.mode} {self.peer}:{self.variant}"

    @property
    def precision(self) -> str:
        """The precision of its products: "float32", "tf32" or "bfloat16"."""
        if "bf16" in self.variant or self.variant.startswith(("bfloat16", "wgmma")):
            return "bfloat16"
        return "tf32" if "tf32" in self.variant else "float32"


def why_not(each: Measurement, capability: float) -> str:
    """Why a GPU of this compute capability cannot take a measurement of graphc; "" if it can."""
    if each.peer != "graphc":
        return ""
    least, most = NEEDED.get(each.variant, (0.0, 99.0))
    if each.precision != "float32":
        least = max(least, TENSOR_CORES)
    if least <= capability <= most:
        return ""
    needed = f"{least}" if least == most else f"{least} or more"
    return f"{each.variant} needs compute capability {needed}, this GPU has {capability}"


def goal_of(workload: str) -> Goal:
    return next((goal for goal in GOALS if workload in goal.workloads), OTHERS)


def decisive(workloads: Sequence[str]) -> list[Measurement]:
    """The measurements that first tell whether goals are met: training steps in a few variants."""
    return list(_taken("train", workloads, _first))


def measurements(workloads: Sequence[str]) -> list[Measurement]:
    """All measurements, the most valuable first: training steps of the goals, those of
    torch.compile after the others, as compiling takes a minute; those of other workloads; forward
    passes."""
    named = [w for w in workloads if goal_of(w) is not OTHERS]
    others = [w for w in workloads if goal_of(w) is OTHERS]
    train = (_first, _later, _compiled, _further)
    rounds = (
        *(("train", named, part) for part in train),
        *(("train", others, part) for part in train),
        *(("forward", [*named, *others], part) for part in train[:-1]),
    )
    return [each for mode, chosen, part in rounds for each in _taken(mode, chosen, part)]


def _taken(mode: str, workloads: Sequence[str], part: Part) -> Iterator[Measurement]:
    for workload in workloads:
        if mode in WORKLOADS[workload].modes:
            for peer, variant in part(goal_of(workload)):
                yield Measurement(peer, variant, workload, mode)


def _first(goal: Goal) -> Iterator[tuple[str, str]]:
    yield from (("graphc", variant) for variant in goal.ours[:FIRST])
    yield from (("torch", variant) for variant in goal.theirs[:FIRST])


def _later(goal: Goal) -> Iterator[tuple[str, str]]:
    yield from (("graphc", variant) for variant in goal.ours[FIRST:])
    yield from (("torch", variant) for variant in goal.theirs[FIRST:] if "compile" not in variant)


def _compiled(goal: Goal) -> Iterator[tuple[str, str]]:
    yield from (("torch", variant) for variant in goal.theirs[FIRST:] if "compile" in variant)


def _further(goal: Goal) -> Iterator[tuple[str, str]]:
    yield from (("graphc", variant) for variant in FURTHER if variant not in goal.ours)
