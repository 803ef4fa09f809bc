"""Statements tell what they do without being printed."""

import graphc
from graphc.ir import Type
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.text import form_of
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.pointwise_nest import PointwiseNest, group_outputs, make_pointwise_nest
from tests.kernels.harness import traced

VECTOR, MATRIX = Type((6,), "f32"), Type((4, 6), "f32")


def part_of(fn, *inputs: Type) -> PointwiseNest:
    body = traced("part", fn, inputs).op.body
    (outputs,) = group_outputs(body)
    domain = Domain(body.outputs[0].type.shape, len(body.outputs[0].type.shape) - 1, 4)
    return make_pointwise_nest(body, outputs, domain, Identifiers().pointers(body))


def function_of(fn, *inputs: Type) -> object:
    return form_of(plain_nest(part_of(fn, *inputs)))


def test_a_program_names_its_memory_and_its_indices():
    program = part_of(lambda x, b: x * b, MATRIX, VECTOR).program
    assert program.pointers == ("x0_data", "x1_data", "multiply_data")
    assert program.used(("i", "j")) == {"i", "j"}
    bias = program.filter(lambda s: "x1_data" in s.pointers)
    assert bias.used(("i", "j")) == {"j"}


def test_parts_are_alike_whatever_their_names_and_lengths():
    one, other = Type((6,), "f32"), Type((9,), "f32")
    assert function_of(lambda x, y: x - y, one, one) == function_of(
        lambda a, b: a - b, other, other
    )


def test_parts_that_swap_operands_or_compute_otherwise_are_not_alike():
    kinds = [lambda x, y: x - y, lambda x, y: y - x + 0 * x, lambda x, y: graphc.exp(x) - y]
    assert len({function_of(fn, VECTOR, VECTOR) for fn in kinds}) == 3


def test_an_output_lies_in_an_input_that_is_read_where_it_is_written():
    def pairs(fn, *inputs: Type):
        body = traced("part", fn, inputs).op.body
        part = make_pointwise_nest(
            body, body.outputs, Domain(body.outputs[0].type.shape), pointers(body)
        )
        return inplace_pairs(body, [part.program], part.pointers)

    def pointers(body):
        return Identifiers().pointers(body)

    assert pairs(lambda x: graphc.exp(x), MATRIX) == ((0, 0),)
    assert pairs(lambda x: x + graphc.flip(x, 0), MATRIX) == ()
    # A guard leaves elements out; it reads no others.
    assert pairs(lambda x: graphc.pad(x[1:], ((1, 0), (0, 0))), MATRIX) == ((0, 0),)
    assert pairs(lambda x: graphc.pad(x[:-1], ((1, 0), (0, 0))), MATRIX) == ()
