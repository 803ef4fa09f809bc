from __future__ import annotations

import graphc
from graphc.base.target import KINDS, kind_of
from graphc.ir import Graph, Value
from graphc.ops.cost import node_bytes, node_flops
from graphc.ops.fused import Fused, KernelNode


def traced(*shapes: tuple[int, ...], function: object) -> Graph:
    return graphc.trace(function, *(graphc.spec(shape) for shape in shapes))


def test_matmul_takes_two_operations_per_step() -> None:
    graph = traced((3, 4), (4, 5), function=lambda a, b: graphc.matmul(a, b))
    assert node_flops(graph.nodes[0]) == 2 * 3 * 4 * 5


def test_convolution_takes_two_operations_per_step() -> None:
    graph = traced((2, 3, 8, 8), (5, 3, 3, 3), function=lambda x, w: graphc.conv2d(x, w))
    assert node_flops(graph.nodes[0]) == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)


def test_causal_attention_takes_two_products_of_what_is_seen() -> None:
    def function(q: graphc.Tensor, v: graphc.Tensor) -> graphc.Tensor:
        return graphc.scaled_dot_product_attention(q, q, v, is_causal=True)

    graph = traced((2, 3, 4, 8), (2, 3, 4, 16), function=function)
    seen = 1 + 2 + 3 + 4
    assert node_flops(graph.nodes[0]) == 2 * (2 * 3 * seen) * (8 + 16)


def test_pointwise_and_reduction_take_one_operation_per_element_and_views_none() -> None:
    def function(x: graphc.Tensor) -> graphc.Tensor:
        return graphc.sum(graphc.exp(graphc.permute_dims(x, (1, 0))), axis=0)

    graph = traced((3, 4), function=function)
    assert [node_flops(n) for n in graph.nodes] == [0, 12, 12]


def test_fused_kernel_costs_its_body_and_moves_its_own_inputs_and_outputs() -> None:
    body = traced((3, 4), function=lambda x: graphc.exp(graphc.exp(x)))
    (x,), (y,) = body.inputs, body.outputs
    node = KernelNode(Fused("k", body), (x,), (Value("out", y.type),))
    assert node_flops(node) == 24
    assert node_bytes(node) == 2 * 12 * 4


def test_input_that_is_read_twice_is_moved_once() -> None:
    graph = traced((3, 4), function=lambda x: x * x)
    assert node_bytes(graph.nodes[0]) == 2 * 12 * 4


def test_number_of_the_device_does_not_matter_and_what_plays_on_the_cpu_counts_as_cpu() -> None:
    assert kind_of("cuda:1").rates is KINDS["cuda"].rates
    assert kind_of("reference").rates is kind_of("sim").rates is KINDS["cpu"].rates
