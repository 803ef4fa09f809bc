"""The documents name every module, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools import ROOT
from tools.write_module_index import HEADING, PAGE, TREES, page

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *PAGES])
EXAMPLE = re.compile(r"FILE|NAME|KEY|CMakeLists|(lenet|net|model)\.py|(model|kernels_0)\.cpp")
"""Names that stand for others."""


def files() -> set[str]:
    """Every file of the project, by its place, with `graphc/` before the two folders beside it."""
    folders = (*TREES, "benchmarks", "docs", "examples", "tests", "tools")
    found = {p.relative_to(ROOT) for folder in folders for p in (ROOT / folder).rglob("*")}
    own = {path.name for path in ROOT.glob("*.md")} | {"LICENSE"}
    return {str(p) for p in found} | {f"graphc/{p}" for p in found} | own


def test_the_index_of_modules_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python tools/write_module_index.py"


def test_every_module_is_named_in_the_index() -> None:
    index = PAGE.read_text().partition(HEADING)[2]
    missing = []
    for tree in TREES:
        for path in (ROOT / tree).rglob("*.py"):
            folder = path.relative_to(ROOT).parent
            title, _, rest = index.partition(f"### `{folder}/`")[2].partition("\n")
            section = "\n" + rest.partition("\n### ")[0]
            linked = folder.parts[:2] in (("graphc", "kernels"), ("graphc", "runtime"))
            named = title if path.name == "__init__.py" else f"\n- `{path.name}`" in section
            if not linked and not named:
                missing.append(str(path))
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text().partition(HEADING)[0]
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|h|cuh|cpp|cu|md|so|txt))`", text))
    ends = {"/" + name for name in files()}
    gone = [n for n in named if not any(e.endswith("/" + n) for e in ends)]
    assert [n for n in gone if not EXAMPLE.search(n)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    links = [link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
    places = [(document.parent / path if path else document, place) for path, _, place in links]
    assert [path for path, _ in places if not path.exists()] == []
    assert [place for path, place in places if place and place not in headings(path)] == []


def headings(page: Path) -> set[str]:
    """What links call the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_list_of_documents_is_whole() -> None:
    text = (ROOT / "docs" / "README.md").read_text()
    assert {page.name for page in PAGES if f"]({page.name})" not in text} == {"README.md"}


def test_counts_of_operators_add_up() -> None:
    """Each row of the table in docs/torch.md has as many operators as the text says."""
    text = (ROOT / "docs" / "torch.md").read_text()
    rows = re.findall(r"^\| (\w+), operators( again)? \|(.*)\|$", text, re.MULTILINE)
    sizes = {row[:2]: sum(map(int, row[2].split("|"))) for row in rows}
    said = (r"all (\d+) operators", r"(\d+)\s+random\s+operators", r"(\d+) operators were")
    whole, some, again = (int(n) for pattern in said for n in re.findall(pattern, text))
    assert sizes.pop(("float32", "")) == whole
    assert sizes.pop(("float32", " again")) == again
    assert set(sizes.values()) == {some} and len(sizes) == 6
