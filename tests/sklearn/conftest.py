"""The tests of estimators are left out where scikit-learn is not installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

collect_ignore_glob: list[str] = []
if find_spec("sklearn") is None and os.environ.get("CI") != "true":
    collect_ignore_glob.append("test_*.py")


@pytest.fixture(autouse=True)
def prebuilt_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs keep their prebuilt kernels, which have the same bits: there are many sizes."""
    monkeypatch.setenv("GRAPHC_TIER", "0")
