"""What ops state of themselves is so, and passes ask for it instead of naming ops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from graphc.ir import Type
from graphc.ops import REGISTRY, Op
from graphc.ops.base import Pointwise, Reduction, View
from graphc.ops.pointwise.elementary import Relu
from tests.ops.sample import for_each_op
from tests.ops.samples import CORE, Sample
from tests.tools import ROOT

FEWEST = 44
"""Places in passes that may yet ask for the class or the name of an op."""


def asks(tree: ast.AST) -> Iterator[ast.expr | ast.pattern]:
    """Where a module asks for the class or the name of an object, or gives a class to
    `behind`, which does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                yield node
        elif isinstance(node, ast.Compare) and any(map(names_kind, [node.left, *node.comparators])):
            yield node
        elif isinstance(node, ast.Subscript) and names_kind(node.slice):
            yield node
        elif isinstance(node, ast.match_case):
            yield from (p for p in ast.walk(node.pattern) if isinstance(p, ast.MatchClass))


def names_kind(part: ast.expr) -> bool:
    """Whether it is `op.name`, `node.op.name` or `type(op)`."""
    if isinstance(part, ast.Call):
        return ast.unparse(part.func) == "type"
    return isinstance(part, ast.Attribute) and ast.unparse(part).endswith("op.name")


def test_few_places_in_passes_ask_which_op_it_is() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{found.lineno} {ast.unparse(found)}"
        for path in sorted(Path(ROOT, "graphc", "passes").rglob("*.py"))
        for found in asks(ast.parse(path.read_text()))
    ]
    assert 0 < len(places) <= FEWEST, "\n".join(places)


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(node.op, View)",
        'node.op.name == "relu"',
        'inner.op.name in ("matmul", "conv2d")',
        "type(op) is View",
        "RULES[node.op.name]",
        "match node.op:\n    case View():\n        pass",
    ],
)
def test_asking_which_op_it_is_would_be_found(text: str) -> None:
    assert len(list(asks(ast.parse(text)))) == 1


def having(fact: str) -> Callable[[Callable[[Sample], None]], object]:
    """A test for each op that states this fact, of its samples."""
    samples = [s for s in CORE if getattr(s.op, fact) not in (False, None)]
    assert samples, fact
    return for_each_op(samples)


def result(op: Op, *arrays: np.ndarray) -> np.ndarray:
    return op.evaluate(*arrays)[0]


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()


@having("moves")
def test_what_moves_elements_makes_no_others(sample: Sample) -> None:
    (x,) = sample.arrays()
    assert set(result(sample.op, x).ravel().tolist()) <= set(x.ravel().tolist())


@having("moves_sums")
def test_what_moves_sums_makes_the_sum_of_what_it_makes_of_the_terms(sample: Sample) -> None:
    x, y = sample.arrays(0), sample.arrays(1)
    if x[0].dtype == np.bool_:
        return
    sums = [a + b for a, b in zip(x, y, strict=True)]
    assert_same_bits(result(sample.op, *sums), result(sample.op, *x) + result(sample.op, *y))


@having("takes_narrow")
def test_what_takes_narrow_floats_does_no_arithmetic(sample: Sample) -> None:
    """Each element of the output is one of the inputs', or the same one each time."""
    arrays = sample.arrays()
    if sample.op.keeps_value and not sample.op.moves:
        return  # a conversion, which rounds once
    made = set(result(sample.op, *arrays).ravel().tolist())
    given = {e for a in arrays for e in a.ravel().tolist()}
    others = {0.0, *np.atleast_1d(sample.op.attributes.get("value", 0.0)).tolist()}
    if sample.op.array is None:
        assert all(e in given | others or e != e for e in made)


@having("adds")
def test_what_adds_gives_the_sum(sample: Sample) -> None:
    a, b = sample.arrays()
    assert_same_bits(result(sample.op, a, b), np.asarray(a + b))


@having("neutral")
def test_a_neutral_number_leaves_the_other_operand_as_it_is(sample: Sample) -> None:
    number, places = sample.op.neutral or (0.0, ())
    dtype = sample.inputs[0].numpy_dtype
    x = np.array([1, 3, 0], dtype)
    if dtype.kind == "f":
        x = np.array([1.5, -3e30, 0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    for place in places:
        operands = [x, x]
        operands[place] = np.full_like(x, number)
        assert_same_bits(result(sample.op, *operands), x)


@having("keeps_largest")
def test_the_largest_may_be_found_before_or_after(sample: Sample) -> None:
    x = np.array([[-1, 2, 3], [-5, -2, -0.0], [np.nan, 1, 2], [-np.inf, 0.0, np.inf]], np.float32)
    assert_same_bits(result(sample.op, x).max(1), result(sample.op, x.max(1)))


@having("keeps_value")
def test_what_keeps_a_value_has_one_input(sample: Sample) -> None:
    assert len(sample.inputs) == 1


@having("joined_axis")
def test_outputs_that_are_joined_differ_in_one_axis_alone(sample: Sample) -> None:
    kinds = sample.op.infer(*sample.inputs)
    axis = sample.op.joined_axis
    assert axis is not None
    assert len({t.rank for t in kinds}) == 1 and 0 <= axis < kinds[0].rank


@having("reduced_axes")
def test_reduced_axes_are_those_of_the_sum_that_the_axes_tell(sample: Sample) -> None:
    (axes,) = sample.op.axis_map(*sample.inputs)[0]
    assert tuple(a for a, d in enumerate(axes) if d == -1) == sample.op.reduced_axes


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_facts_do_not_contradict_each_other(name: str) -> None:
    op = REGISTRY[name]
    assert op.pointwise == issubclass(op, Pointwise) and op.moves == issubclass(op, View)
    assert sum((op.pointwise, op.moves, op.contracts, op.is_source, issubclass(op, Reduction))) <= 1
    assert not op.computes_reads or op.own_template
    assert not op.converts_reads or (op.pointwise and op.keeps_value)


def test_what_derives_from_an_op_has_its_facts() -> None:
    class Capped(Relu):
        """No name: it is not registered."""

    assert Capped().keeps_largest and not Capped().adds
    assert not Op().pointwise and Op().section(Type((4,))) is None
