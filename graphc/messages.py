"""What graphc says on standard error while it works, as much as GRAPHC_LOG asks for."""

from __future__ import annotations

import sys

from graphc.config import LOG_LEVELS, log_level


def log(level: str, message: str) -> None:
    """Print `message` if `level`, one of `LOG_LEVELS`, is at most the level of GRAPHC_LOG."""
    if LOG_LEVELS.index(level) <= LOG_LEVELS.index(log_level()):
        print(f"graphc: {message}", file=sys.stderr)
