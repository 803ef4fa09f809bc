"""Write docs/ops.md, the list of all ops and functions, from their classes and docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

from graphc import functions
from graphc.ir import DTYPES, FLOATS, INTEGERS
from graphc.ops import REGISTRY
from graphc.ops.base import (
    NUMBERS,
    Contraction,
    Index,
    Op,
    Pointwise,
    Random,
    Reduction,
    Source,
    View,
    Window,
)
from graphc.ops.prefix import Prefix
from graphc.ops.sort import Sort

PAGE = Path(__file__).parent.parent / "docs" / "ops.md"
MADE_BY_PASSES = frozenset(
    {"kernel", "deviations", "relayout", "widen", "round_tf32", "read_tf32", "read_bf16"}
)
FAMILIES: tuple[tuple[str, type], ...] = (
    ("Pointwise", Pointwise),
    ("Reductions", Reduction),
    ("Contractions", Contraction),
    ("Windows", Window),
    ("Views", View),
    ("Places named by data", Index),
    ("Random numbers", Random),
    ("Values without inputs", Source),
    ("Running results", Prefix),
    ("Orders", Sort),
    ("Joined and padded", Op),
)
KINDS = {
    NUMBERS: "numbers",
    FLOATS: "floats",
    INTEGERS: "integers",
    ("bool",): "booleans",
    tuple(DTYPES): "all",
}
HEAD = """# Ops and functions

Written by `tools/write_ops_page.py` from the classes; do not edit.

Every op has a NumPy reference and kernels for the CPU and for CUDA, whose text the simulated GPU
plays too; so the backends are `reference`, `cpu`, `cuda` and `sim` for each of them. The formula
names the inputs a, b, c or x, in order; pointwise inputs broadcast as NumPy's do. A gradient "yes"
is a rule in traced tensors, so it has gradients itself; "0" means that none flows. "units" is the
largest error of a float32 result on a CPU, in units of its last place, over all of float32: 0.5 is
exact but for the rounding. "cost" is the time of a float32 element in units of 5 picoseconds, by
which passes decide what is stored and what computed again: measured on one core of an AMD EPYC with
AVX-512 by `python -m tests.ops.operation_costs`. 1 stands for all operators of an instruction or
so; the campaign holds every figure to a factor of two. Where results are not those of PyTorch is
listed, with the reasons, in `tests/torch/subject.py` and
`tests/functions/test_special_values.py`.

"""


_COMPLEX = "there are no complex dtypes"
_BY_DATA = "the shape of its result depends on the data, and shapes are static"
_QUERY = "a question about dtypes, which NumPy answers"
ABSENT = {
    "broadcast_shapes": "a question about shapes, which NumPy answers",
    "can_cast": _QUERY,
    "conj": _COMPLEX,
    "empty": "no value may depend on what memory held before: `zeros`",
    "empty_like": "no value may depend on what memory held before: `zeros_like`",
    "finfo": _QUERY,
    "from_dlpack": "`asarray` and every function take what has `__dlpack__`",
    "iinfo": _QUERY,
    "imag": _COMPLEX,
    "isdtype": _QUERY,
    "nonzero": f"{_BY_DATA}: `where` and masks",
    "real": _COMPLEX,
    "result_type": _QUERY,
    "unique_all": _BY_DATA,
    "unique_counts": _BY_DATA,
    "unique_inverse": _BY_DATA,
    "unique_values": _BY_DATA,
}
"""Functions of the Python Array API (2023.12) that graphc lacks, and why."""


def page() -> str:
    """The whole text of docs/ops.md."""
    ops = [op for name, op in sorted(REGISTRY.items()) if _is_public(name, op)]
    sections = []
    for title, family in FAMILIES:
        members = [op for op in ops if issubclass(op, family)]
        ops = [op for op in ops if op not in members]
        rows = [_op_row(op) for op in members]
        head = ["| op | formula | dtypes | gradient |", "| --- | --- | --- | --- |"]
        if family is Pointwise:
            more = ("units | cost", "--- | ---")
            head = [f"{line} {cell} |" for line, cell in zip(head, more, strict=True)]
        sections.append("\n".join([f"## {title} ({len(rows)})", "", *head, *rows, ""]))
    calls = [_function_row(name) for name in sorted(functions.NAMES)]
    head = ["| function | result |", "| --- | --- |"]
    sections.append("\n".join([f"## Functions ({len(calls)})", "", *head, *calls, ""]))
    head = ["| function of the Array API | why it is not here |", "| --- | --- |"]
    rows = [f"| `{name}` | {reason} |" for name, reason in ABSENT.items()]
    sections.append(
        "\n".join(["## Array API functions without a counterpart", "", *head, *rows, ""])
    )
    return HEAD + "\n".join(sections)


def _is_public(name: str, op: type[Op]) -> bool:
    return op.__module__.startswith("graphc.") and name not in MADE_BY_PASSES


def _op_row(op: type[Op]) -> str:
    accepts = KINDS[tuple(op.accepts)] if issubclass(op, Pointwise | Prefix) else ""
    gives = f" to {op.gives}" if issubclass(op, Pointwise) and op.gives else ""
    row = f"| `{op.name}` | {_first(op)} | {accepts}{gives} | {_gradient(op)} |"
    return f"{row} {op.units:g} | {op.operations} |" if issubclass(op, Pointwise) else row


def _function_row(name: str) -> str:
    function = getattr(functions, name)
    names = ", ".join(inspect.signature(function).parameters)
    return f"| `{name}({names})` | {_first(function)} |"


def _first(documented: object) -> str:
    """The first paragraph of the docstring as one cell of a table."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def _gradient(op: type[Op]) -> str:
    """ "none" without a rule, "0" where the rule gives nothing else, or "yes"."""
    if op.grad is Op.grad:
        return "none"
    tree = ast.parse(textwrap.dedent(inspect.getsource(op.grad)))
    returned = [n.value for n in ast.walk(tree) if isinstance(n, ast.Return)]
    names = {
        n.id for r in returned if r is not None for n in ast.walk(r) if isinstance(n, ast.Name)
    }
    return "yes" if names - {"len", "inputs"} else "0"


if __name__ == "__main__":
    PAGE.write_text(page())
