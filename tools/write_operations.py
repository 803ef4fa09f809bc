"""Write kernels/prebuilt/operations.h: python tools/write_operations.py."""

from __future__ import annotations

from pathlib import Path

from graphc.kernels.prebuilt.operations import header_text

HEADER = Path(__file__).parent.parent / "kernels" / "prebuilt" / "operations.h"


if __name__ == "__main__":
    HEADER.write_text(header_text())
