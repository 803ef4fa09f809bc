"""A campaign that goes on where it stopped: `pytest --resume FILE`.

FILE holds the commit and the tests that passed at it. They are left out of the next run at that
commit; another commit, or changes to tracked files, begin anew.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Resume:
    """Writes the passed tests as they pass, and deselects them in the next run."""

    def __init__(self, path: Path, version: str, writes: bool) -> None:
        self.path, self.version, self.writes = path, version, writes
        lines = path.read_text().splitlines() if path.exists() else []
        self.passed = set(lines[1:]) if lines[:1] == [version] else set()
        if writes and not self.passed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(version + "\n")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        done = [item for item in items if item.nodeid in self.passed]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self.passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.writes and report.when == "call" and report.passed:
            with self.path.open("a") as file:
                file.write(report.nodeid + "\n")


def version() -> str:
    """The commit, and a mark if tracked files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return f"{git('rev-parse', 'HEAD')}{' changed' if changed else ''}"


def register(config: pytest.Config) -> None:
    """Add the plugin if `--resume` is given."""
    path = config.getoption("--resume")
    if path:
        writes = not hasattr(config, "workerinput")
        config.pluginmanager.register(Resume(Path(path), version(), writes), "resume")
