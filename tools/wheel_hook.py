"""Puts the objects that `build_wheel.py` has built into a wheel, which is then of one platform."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER, TAG = "GRAPHC_WHEEL_OBJECTS", "GRAPHC_WHEEL_TAG"
"""Environment variables: the folder of the objects, and the platform's tag. Without them a wheel is
for any platform."""


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling finds it by its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the objects, if there are any."""
        if folder := os.environ.get(FOLDER):
            build_data["force_include"][folder] = "graphc/runtime/shipped"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ[TAG]}"
