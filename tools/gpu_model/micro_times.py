"""The times of micro-kernels by the model, with which the fit of its constants is rehearsed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphc.runtime.cuda.compile import Cubin, compile_cuda
from tools.gpu_check.micro import RINGS, SOURCE, Micro
from tools.gpu_model.compiled import CompiledLaunch
from tools.gpu_model.joined_time import joined_timed, work_of
from tools.gpu_model.launch_time import Traffic, timed
from tools.gpu_model.machine import Machine
from tools.gpu_model.profile import shares_of
from tools.gpu_model.sass import disassembled, find_nvdisasm
from tools.gpu_model.walk import Code

UNKNOWN = 8 * 32
"""Bytes that the model takes for those of a load of eight per lane, whose addresses it does not
know."""


@dataclass
class ModelClock:
    """Says how long a micro-kernel takes on `machine`, by walks of its machine code. Raises
    CompileError and NoDisassemblerError."""

    machine: Machine
    _codes: dict[str, Code] = field(default_factory=dict)
    _cubin: Cubin | None = None

    def seconds(self, micros: Sequence[Micro]) -> dict[str, float]:
        return {micro.name: self._seconds(micro) for micro in micros}

    def _seconds(self, micro: Micro) -> float:
        m = self.machine
        if micro.symbol == "empty":
            return m.node
        if micro.copied:
            return m.gap + 2 * micro.copied / m.copy
        if micro.name.startswith("spin"):  # until the clock says so
            return m.gap + micro.costs["cycle"] / m.clock
        launch = self._launch(micro)
        if micro.cooperative:
            return joined_timed(launch, work_of(launch, m), Traffic(0, 0, 0, 0), m).seconds
        return timed(launch, shares_of(launch, m), _traffic(micro), m).seconds

    def _launch(self, micro: Micro) -> CompiledLaunch:
        if self._cubin is None:
            self._cubin = compile_cuda(SOURCE.read_text(), "micro", self.machine.arch)
            found = disassembled(self._cubin.image, find_nvdisasm())
            self._codes = {symbol: Code(blocks) for symbol, blocks in found.items()}
        used = self._cubin.usage[micro.symbol]
        shape = (micro.blocks, 1, 1), (micro.threads, 1, 1)
        resources = used.registers, used.spilled, used.shared, 0
        return CompiledLaunch(micro.symbol, *shape, *resources, self._codes[micro.symbol])


def _traffic(micro: Micro) -> Traffic:
    """What a launch reads, by what it was made for."""
    if micro.ring == "l1":
        return Traffic(RINGS["l1"].count * UNKNOWN, 0, 0, 0)
    if micro.ring:
        return Traffic(math.inf, 0, 0, float(micro.ring == "memory"))
    return Traffic(micro.costs.get("read", 0), 0, 0, 0)
