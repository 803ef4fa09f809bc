"""Write docs/modules.md, the index of modules, each with the first sentence of its docstring.

Run `python tools/write_module_index.py`; a test detects when it is out of date.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "modules.md"
TREES = ("graphc", "kernels", "runtime")
HEADING = "# Every module\n"
HEADERS = (".h", ".cuh", ".cpp")


def page() -> str:
    """The page as it ought to be: a section per folder, a line per module. A header of the same
    name is on its module's line."""
    lines = [HEADING, "Written by `tools/write_module_index.py` from the first sentence of each.\n"]
    for folder, files in groupby(sources(), key=lambda path: path.parent):
        package, *others = files
        title = f"### `{folder.relative_to(ROOT)}/`"
        if package.name == "__init__.py":
            lines.append(f"{title}: {purpose(package)}")
        else:
            lines.append(title)
            others = [package, *others]
        for _, same in groupby(others, key=lambda path: path.stem):
            module, *headers = sorted(same, key=lambda path: path.suffix != ".py")
            names = ", ".join(f"`{path.name}`" for path in (module, *headers))
            lines.append(f"- {names}: {purpose(module)}")
        lines.append("")
    return "\n".join(lines)


def sources() -> list[Path]:
    """Python modules and headers, a folder's own files before its folders, `__init__.py` first.
    The links to the trees beside graphc are not followed."""
    paths = [path for tree in TREES for path in (ROOT / tree).rglob("*") if not _linked(path)]
    found = [path for path in paths if path.suffix in (".py", *HEADERS)]
    return sorted(found, key=lambda p: (p.parent.parts, p.name != "__init__.py", p.stem, p.name))


def _linked(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] in (("graphc", "kernels"), ("graphc", "runtime"))


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring or of a header's comment."""
    text = path.read_text()
    if path.suffix in HEADERS:
        comment = re.match(r"(?://.*\n)*", text)
        assert comment is not None
        said = re.sub(r"^// ?", "", comment[0], flags=re.M).removeprefix(f"{path.name}: ")
    else:
        said = ast.get_docstring(ast.parse(text)) or ""
    assert said, f"{path.relative_to(ROOT)} does not say what it is for"
    sentence = re.split(r"(?<=[.:])\s*\n\s*\n|(?<=[\w+)][.])\s+(?=[A-Z`])|\n\s*\n", said.strip())[0]
    return " ".join(sentence.split()).rstrip(".:")


if __name__ == "__main__":
    PAGE.write_text(page())
