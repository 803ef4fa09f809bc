"""Audits: a line per training step with the digests of plan and state, to verify a run again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.files.fields import Fields
from graphc.files.safetensors import FormatError, parsed_json
from graphc.files.sealed import digest_of
from graphc.ir.state import contents
from graphc.program.program import Program
from graphc.program.sizes import SizedProgram


class Audit:
    """A file with the digests of a program's plan and state after each step.

    A step that the file has no line for gets one. A step that it has must end with the same state:
    so a run is verified by running it again with the same file, and a run that goes on from a
    checkpoint is verified where it repeats steps. Plans may differ, as results do not depend on
    them. Each step reads all state once, which takes about 1 ms per MB.

    Args:
        path: The file. What a killed process has left of its last line is ignored.

    Raises:
        GraphError: The file cannot be read or is no audit.

    Example:
        >>> step = graphc.compile(
        ...     lambda m: graphc.sum(m.weight**2), nn.Linear(2, 1), update=optim.Adam()
        ... )
        >>> audit = graphc.Audit("run.audit")
        >>> for number in range(3):
        ...     _ = step()
        ...     audit(number, step)
        >>> len(graphc.Audit("run.audit"))
        3
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._states: dict[int, str] = {}
        try:
            text = self._path.read_bytes() if self._path.exists() else b""
        except OSError as problem:
            raise GraphError(f"Audit: cannot read {path}: {problem.strerror}") from None
        *lines, unfinished = text.split(b"\n")
        self._size = len(text) - len(unfinished)
        """Bytes of whole lines."""
        self._plan: tuple[Program | None, str] = None, ""
        """The last program, and the digest of its plan."""
        for number, line in enumerate(lines, 1):
            try:
                fields = Fields(parsed_json(line), f"line {number}")
                self._states[fields.take("step", int)] = fields.take("state", str)
                fields.take("plan", str)
                fields.end()
            except FormatError as problem:
                raise GraphError(f"Audit: {path} is no audit: {problem}") from None

    def __len__(self) -> int:
        return len(self._states)

    def __call__(self, step: int, program: Program) -> None:
        """Append the line of a step, or compare with that of the file.

        Args:
            step: The number of the step.
            program: The program, after that step.

        Raises:
            GraphError: The file has another state for this step, or cannot be written.
        """
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(program, Program):
            raise error(f"Audit: expected a step and a program, got {step!r} and {program!r}")
        state = digest_of(contents(program.buffers, "Audit"))
        known = self._states.get(step)
        if known is None:
            self._append({"step": step, "plan": self._plan_of(program), "state": state})
            self._states[step] = state
        elif known != state:
            raise GraphError(
                f"Audit: {program.name}: after step {step} the state is {state[:16]}, "
                f"{self._path} has {known[:16]}"
            )

    def _plan_of(self, program: Program) -> str:
        if isinstance(program, SizedProgram):  # of which each size has a plan
            return ""
        if self._plan[0] is not program:
            digest = "" if program.plan is None else program.plan.verify().digest
            self._plan = program, digest
        return self._plan[1]

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line).encode() + b"\n"
        try:
            with open(self._path, "r+b" if self._path.exists() else "xb") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(text)
        except OSError as problem:
            raise GraphError(f"Audit: cannot write {self._path}: {problem.strerror}") from None
        self._size += len(text)
