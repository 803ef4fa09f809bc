"""Skip what cannot be built or run here."""

from __future__ import annotations

from benchmarks.exported import MissingError, check
from tests.tools import missing


def need_target(target: str) -> None:
    """Skips the test unless the target's programs can be built and run; fails where CI=true."""
    try:
        check(target)
    except MissingError as reason:
        missing(str(reason))
