"""docs/a-target.md runs and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from types import ModuleType

import pytest

from tests.tools import ROOT, missing, need_command

PAGE = ROOT / "docs" / "a-target.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n(?:\n```(?:text|c)\n(.*?)^```\n)?", PAGE.read_text(), re.M | re.S
)
"""Each block of Python and what it prints."""
CROSS = ("aarch64-linux-gnu-g++", "qemu-aarch64")
FIRST = next(i for i, (text, _) in enumerate(BLOCKS) if "aarch64" in text)
"""The first block that needs the cross compiler."""


def printed(page: ModuleType, text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(text, "page", "exec", dont_inherit=True), vars(page))
    return output.getvalue()


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The page behind the blocks that this machine's compiler builds."""
    need_command("gcc")
    module = ModuleType("page_of_a_target")
    for text, output in BLOCKS[:FIRST]:
        assert printed(module, text).strip() == output.strip()
    yield module
    shutil.rmtree(module.FOLDER)


def test_its_nest_is_printed_as_c(page: ModuleType) -> None:
    assert len(BLOCKS) > FIRST > 4
    assert len(page.wanted) == 4 * 6 * 37
    assert max(len(line) for text, _ in BLOCKS for line in text.splitlines()) <= 100


def test_its_vector_type_is_ported_to_neon(page: ModuleType) -> None:
    for tool in CROSS:
        if not shutil.which(tool):
            missing(f"{tool} is not on the PATH: apt install g++-aarch64-linux-gnu qemu-user")
    for text, output in BLOCKS[FIRST:]:
        assert printed(page, text).strip() == output.strip()
