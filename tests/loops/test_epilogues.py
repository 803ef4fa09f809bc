"""Epilogues as nests: what devices do to the sums of a contraction is what the reference does, and
is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.ir import Type, Value
from graphc.kernels.cpu.contract import kernel_text
from graphc.kernels.cpu.lower import lower_cpu
from graphc.kernels.cuda.contract import epilogue as cuda_epilogue
from graphc.kernels.cuda.lower import lower_cuda
from graphc.kernels.loops.epilogues import SUMS, epilogue_nest
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.names import Pointers
from graphc.kernels.program.epilogue import Epilogue
from graphc.ops.base import Array
from tests.kernels import cuda_harness
from tests.kernels.c_harness import assert_same_bits
from tests.kernels.contract_samples import convolutions, matmuls
from tests.kernels.test_contract import _conv_pool
from tests.kernels.test_sum_orders import inputs_of

CPU = Target("cpu", 8)


def row_major(nodes: Sequence[Any]) -> list[Any]:
    return [n for n in nodes if all(v.type.layout.axis is None for v in (*n.inputs, *n.outputs))]


NODES = row_major((*matmuls(11, 20, 1), *convolutions(11, 12, 1)))


def epilogues(node: Any, target: Target) -> list[Epilogue]:
    """Those that lowering prints."""
    found: list[Epilogue] = []

    def spied(part: Epilogue) -> Nest:
        found.append(part)
        return epilogue_nest(part)

    with (
        patch.object(kernel_text, "epilogue_nest", spied),
        patch.object(cuda_epilogue, "epilogue_nest", spied),
    ):
        lower_cpu(node, target) if target.device == "cpu" else lower_cuda(node, target)
    return found


def outputs_of(node: Any, part: Epilogue, sums: Array) -> list[Array]:
    """What the interpreter makes of sums, which lie in the order of the epilogue's domain."""
    nest = epilogue_nest(part)
    verify_nest(nest)
    memory = {m.name: np.zeros(m.size, Type((), m.dtype).numpy_dtype) for m in nest.memory}
    for v, x in zip(node.inputs, inputs_of(node), strict=True):
        memory[part.pointers[v]] = x.ravel().copy()
    for name in {SUMS, "workspace"} & {*memory}:
        memory[name][: sums.size] = sums.ravel()
    interpret(nest, memory)
    return [memory[part.pointers[v]].reshape(v.type.shape) for v in node.outputs]


@pytest.mark.parametrize("number", range(len(NODES)))
def test_an_epilogue_does_what_the_reference_does(number: int):
    node = NODES[number]
    (inner,) = (n for n in node.op.body.nodes if n.op.contracts)
    whole = replace(node.op.body, outputs=(*node.outputs, inner.output))
    *want, sums = replace(node.op, body=whole).evaluate(*inputs_of(node))
    for part in epilogues(node, CPU):
        assert_same_bits(outputs_of(node, part, sums), want, node.op.body.name)
        assert parse_nest(nest_text(epilogue_nest(part))) == epilogue_nest(part)
    found = epilogues(node, cuda_harness.TARGET)
    assert found, "CUDA proves it as well"
    for part in found:
        verify_nest(epilogue_nest(part))


def test_pooled_sums_are_those_of_the_reference():
    node: Any = _conv_pool(Type((2, 2, 7, 9)), 4, 3, 1, (2, 2))
    (biased,) = (n.inputs[0] for n in node.op.body.nodes if n.op.name == "max_pool2d")
    (inner,) = (n for n in node.op.body.nodes if n.op.contracts)
    whole = replace(node.op.body, outputs=(*node.outputs, inner.output, biased))
    *want, sums, _ = replace(node.op, body=whole).evaluate(*inputs_of(node))
    (part,) = epilogues(node, CPU)
    tiles = sums[..., :6, :8].reshape(2, 4, 3, 2, 4, 2).transpose(3, 5, 0, 1, 2, 4)
    assert_same_bits(outputs_of(node, part, tiles), want)


def test_stores_beyond_an_output_are_refused():
    part = epilogues(NODES[0], CPU)[0]
    nest = epilogue_nest(part)
    memory = tuple(replace(m, size=m.size - 1) if m.written else m for m in nest.memory)
    with pytest.raises(GraphError, match=r"in \w+_data"):
        verify_nest(replace(nest, memory=memory))


def test_what_is_stored_may_have_the_pointer_of_a_reshaped_value():
    part = epilogues(NODES[0], CPU)[0]
    (output,) = part.outputs
    again = Value("again", Type((output.type.size,), output.type.dtype))
    pointers = Pointers({**part.pointers, again: part.pointers[output]})
    verify_nest(epilogue_nest(replace(part, pointers=pointers)))
