"""The view of a compiled program that dumps and tables need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from graphc.base.target import Target
from graphc.ir import Graph
from graphc.runtime.plan.plan import Plan


class Subject(Protocol):
    """`graphc.Program` is one; it stands above this folder."""

    # fmt: off
    @property
    def name(self) -> str: ...
    @property
    def stages(self) -> Mapping[str, Graph]: ...
    @property
    def plan(self) -> Plan | None: ...
    @property
    def kernels(self) -> Mapping[str, str]: ...
    @property
    def target(self) -> Target: ...
    @property
    def closures(self) -> Mapping[str, tuple[str, ...]]: ...
    # fmt: on
