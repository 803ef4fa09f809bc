"""Write docs/ops.md, the list of all ops and functions, from their classes and docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from graphc import fft, functions, linalg
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
from graphc.ops.linear.matrices import Matrices
from graphc.ops.prefix import Prefix
from graphc.ops.sort import Sort

PAGE = Path(__file__).parent.parent / "docs" / "ops.md"
MADE_BY_PASSES = frozenset(
    {"kernel", "deviations", "relayout", "widen", "round_tf32", "read_tf32", "read_bf16"}
)
FAMILIES: tuple[tuple[str, type], ...] = (
    ("reduction", Reduction),
    ("contraction", Contraction),
    ("window", Window),
    ("view", View),
    ("index", Index),
    ("random", Random),
    ("source", Source),
    ("prefix", Prefix),
    ("sort", Sort),
    ("matrices", Matrices),
    ("other", Op),
)
KINDS = {
    NUMBERS: "numbers",
    FLOATS: "floats",
    INTEGERS: "integers",
    ("bool",): "booleans",
    tuple(DTYPES): "all",
}
HEAD = """# Functions and ops

Written by `tools/write_ops_page.py` from the docstrings; do not edit. Every function and op works
on every device: `reference`, `cpu`, `cuda` and `sim`.

"""
OPS = """## Ops

Functions are made of these ops. A formula names the inputs a, b, c or x, in order; pointwise inputs
broadcast as in NumPy. Gradient "yes" is a rule in traced tensors, so it has gradients itself; "0"
means that none flows.

Units and cost are of a float32 element on a CPU. "units" is the largest error over all of float32
in units of the last place; 0.5 is exact but for the rounding. "cost" is the time in units of 5
picoseconds, by which passes decide what to store and what to compute again; 1 stands for all ops of
about one instruction. It is measured on one core of an AMD EPYC with AVX-512 by
`python -m tests.ops.operation_costs`, and a test holds every figure to a factor of two.
`tests/torch/subject.py` and `tests/functions/test_special_values.py` list where results differ from
PyTorch's, with the reasons.

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
    pointwise = [_pointwise_row(op) for op in ops if issubclass(op, Pointwise)]
    others = [
        _op_row(title, op)
        for title, members in _families([op for op in ops if not issubclass(op, Pointwise)])
        for op in members
    ]
    calls = [_function_row(functions, name) for name in sorted(functions.NAMES)]
    folders = [
        _table(
            f"## {module.__name__} ({len(module.__all__)})",
            "function result",
            [_function_row(module, name) for name in module.__all__],
        )
        for module in (linalg, fft)
    ]
    absent = [f"| `{name}` | {reason} |" for name, reason in ABSENT.items()]
    return "\n".join(
        [
            HEAD + _table(f"## Functions ({len(calls)})", "function result", calls),
            *folders,
            _table("## Array API functions without a counterpart", "function reason", absent),
            OPS
            + _table(
                f"### Pointwise ({len(pointwise)})",
                "op formula dtypes gradient units cost",
                pointwise,
            ),
            _table(f"### Others ({len(others)})", "family op formula gradient", others),
        ]
    )


def _table(title: str, columns: str, rows: list[str]) -> str:
    names = columns.split()
    head = [f"| {' | '.join(names)} |", f"| {' | '.join('---' for _ in names)} |"]
    return "\n".join([title, "", *head, *rows, ""])


def _families(ops: list[type[Op]]) -> Iterator[tuple[str, list[type[Op]]]]:
    """The ops by the first family that each belongs to."""
    for title, family in FAMILIES:
        yield title, [op for op in ops if issubclass(op, family)]
        ops = [op for op in ops if not issubclass(op, family)]


def _is_public(name: str, op: type[Op]) -> bool:
    return op.__module__.startswith("graphc.") and name not in MADE_BY_PASSES


def _pointwise_row(op: type[Pointwise]) -> str:
    gives = f" to {op.gives}" if op.gives else ""
    cells = (_first(op), KINDS[tuple(op.accepts)] + gives, _gradient(op), f"{op.units:g}")
    return f"| `{op.name}` | {' | '.join(cells)} | {op.operations} |"


def _op_row(family: str, op: type[Op]) -> str:
    return f"| {family} | `{op.name}` | {_first(op)} | {_gradient(op)} |"


def _function_row(module: ModuleType, name: str) -> str:
    function = getattr(module, name)
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
