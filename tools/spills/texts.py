"""Identify kernels whose texts differ only in names, such as those of the layers of a stack."""

from __future__ import annotations

import functools
import re

from graphc.runtime.cuda.compile import HEADERS

WORDS = re.compile(r"\d[\w.]*|[A-Za-z_]\w*")
KEPT = frozenset(
    """auto bool break case char class const constexpr continue decltype default do double else
    enum extern false float for if inline int long namespace nullptr operator public return short
    signed sizeof static struct switch template this true typedef typename union unsigned
    using void volatile while C""".split()
)
"""Words of the language in generated texts that headers need not contain; words that begin with two
underscores count too."""


def plain(text: str) -> tuple[str, dict[str, str]]:
    """A CUDA text without comments, with names unknown to the headers replaced by numbers; and the
    original of each."""
    numbered: dict[str, str] = {}
    known = KEPT | _of_headers()

    def number(found: re.Match[str]) -> str:
        word = found.group()
        if word in known or word[0].isdigit() or word.startswith("__"):
            return word
        return numbered.setdefault(word, f"name_{len(numbered)}")

    lines = (line.strip() for line in text.splitlines())
    wanted = [line for line in lines if line and not line.startswith("//")]
    changed = [line if line.startswith("#") else WORDS.sub(number, line) for line in wanted]
    return "\n".join(changed) + "\n", {new: old for old, new in numbered.items()}


@functools.cache
def _of_headers() -> frozenset[str]:
    files = (*(HEADERS / "cuda").rglob("*.cuh"), *HEADERS.glob("*.h"))
    words = {word for path in files for word in WORDS.findall(path.read_text())}
    assert not any(re.fullmatch(r"name_\d+", word) for word in words)
    return frozenset(words)
