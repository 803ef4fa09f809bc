"""Helpers of test_guide.py and of tests beside it."""

from __future__ import annotations

import re

from tests.tools import ROOT


def blocks(document: str) -> list[tuple[str, str]]:
    """(section, text) of each Python block."""
    found, section = [], ""
    text = (ROOT / document).read_text()
    for part in re.findall(r"^## [^\n]*$|^```python\n.*?^```$", text, re.M | re.S):
        if part.startswith("## "):
            section = part[3:]
        else:
            found.append((section, part.removeprefix("```python\n").removesuffix("```")))
    return found
