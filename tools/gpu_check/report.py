"""The JSON file of a check, complete and readable after every stage."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tools.gpu_check.process import ROOT


class CheckReport:
    """The results so far, stored in `path`. A file of the same commit and machine is continued."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        """`about` has at least the commit, the date and the machine; without a path the file is
        benchmarks/results/DATE-GPU.json."""
        self.path = path or default_path(about)
        self.results: dict[str, Any] = {**about, "stages": {}, "benchmarks": [], "failures": []}
        before = self._before()
        if before and all(before.get(k) == about.get(k) for k in ("commit", "machine")):
            self.results = before
        self.write()

    @property
    def capability(self) -> float:
        """The compute capability of the first GPU; 9.0 if it is not known."""
        gpus = self.results["machine"]["gpus"]
        last = gpus[0].rpartition(",")[2].strip() if gpus else ""
        return float(last) if re.fullmatch(r"\d+\.\d", last) else 9.0

    def stage(self, name: str) -> dict[str, Any] | None:
        """The result of a stage in an earlier run, if it finished."""
        found: dict[str, Any] | None = self.results["stages"].get(name)
        return None if found is None or "skipped" in found else found

    def add_stage(self, name: str, found: dict[str, Any]) -> None:
        """Store the result of a stage; its `failure`, if there is one, is also listed among all
        failures."""
        self.results["stages"][name] = found
        self._note(name, found.get("failure", ""))

    def add_measurement(self, name: str, line: dict[str, Any]) -> None:
        """Store a measurement, or how it failed, under its unique name."""
        others = [b for b in self.results["benchmarks"] if b["name"] != name]
        self.results["benchmarks"] = [*others, {"name": name, **line}]
        self._note(name, line.get("failure", ""))

    def measured(self, name: str) -> bool:
        """Whether a measurement of this name succeeded."""
        found = [b for b in self.results["benchmarks"] if b["name"] == name]
        return any("failure" not in b for b in found)

    def tried(self, name: str) -> bool:
        """Whether a measurement of this name succeeded or failed."""
        return any(b["name"] == name for b in self.results["benchmarks"])

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(self.path.name + ".part")
        partial.write_text(json.dumps(self.results, indent=1) + "\n")
        partial.replace(self.path)

    def _note(self, name: str, failure: str) -> None:
        others = [f for f in self.results["failures"] if f["name"] != name]
        new = [{"name": name, "failure": failure}] if failure else []
        self.results["failures"] = [*others, *new]
        self.write()

    def _before(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and "stages" in found else None


def default_path(about: dict[str, Any]) -> Path:
    """benchmarks/results/2026-11-21-h200.json: the date, and the GPU without its maker."""
    first = (about["machine"]["gpus"] or ["no GPU"])[0].split(",")[0]
    name = re.sub(r"[^a-z0-9]+", "-", first.lower().removeprefix("nvidia")).strip("-")
    return ROOT / "benchmarks" / "results" / f"{about['date']}-{name}.json"
