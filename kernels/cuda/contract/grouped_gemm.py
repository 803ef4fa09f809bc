"""Contractions, and reductions beside them, whose blocks are those of one launch, one kernel behind
the other (a grouped product).

Each contraction has the tile and the parts of k that suit it where the others take their share of
the device: as though as many like it were computed at once as would take the time of all. A block
plays the part that its number falls to (`play_one` in block.cuh), whose text is that of a joined
launch's; a second launch adds the parts of all. What has more threads than the contraction that
takes longest has launches of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate

from graphc.kernels.cuda.contract.contract_kernel import (
    contract_candidates,
    contract_cycles,
    lower_contract,
)
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.reduce.reduction_kernel import lower_reduce
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import (
    RESIDENT,
    SHARED_BYTES,
    THREADS,
    entry,
    launch_bounds,
    symbol_of,
)
from graphc.kernels.cuda.shared.launches import part_function, parts_text, shared_parts
from graphc.kernels.program.kernel import GridLaunch, Kernel, moved_bytes, origin_of
from graphc.ops.cost import node_bytes
from graphc.ops.fused import KernelNode, kernels_in

ALIGNMENT = 256
"""Bytes of which the workspace of each begins at a multiple."""
Member = tuple[Kernel, list[str]]
"""A kernel, and the addresses of its arguments."""


def lower_group(node: KernelNode) -> Kernel:
    """The kernel of a node whose body's nodes are contractions that read nothing of each other."""
    body, nodes = node.body, kernels_in(node.body)
    kernels = members_of(nodes)
    limit = max(k.launches[0].block[0] for k in kernels if k.template == "contract")
    sizes = (-(-k.workspace // ALIGNMENT) * ALIGNMENT for k in kernels)
    *offsets, workspace = accumulate(sizes, initial=0)
    numbers = {v: f"p{i}" for i, v in enumerate((*body.inputs, *body.outputs))}
    members = [
        (kernel, [numbers[v] for v in (*n.inputs, *n.outputs)] + own)
        for n, kernel, offset in zip(nodes, kernels, offsets, strict=True)
        for own in [[f"workspace + {offset}"] if kernel.workspace else []]
    ]
    names = [*numbers.values(), *(["workspace"] if workspace else [])]
    owners = shared_parts(kernels)
    launched = _launches(node, members, limit, owners)
    functions = ["\n".join(_function(names, *each)) for each in launched]
    distinct = {kernel.name: kernel for kernel in owners.values()}.values()
    space = f"graphc::{symbol_of(node, 'text')}"
    return Kernel(
        node.op.kernel,
        node.op.template,
        parts_text(distinct, space, "\n\n".join(functions)),
        phases=(),
        workspace=workspace,
        flops=sum(k.flops for k in kernels),
        bytes=moved_bytes(node),
        launches=tuple(launch for launch, *_ in launched),
        choice="; ".join(f"{k.name}: {k.choice}" for k in kernels if k.choice),
        note="; ".join(f"{k.name}: {k.note}" for k in kernels if k.note),
        origin=origin_of(node),
    )


def members_of(nodes: Sequence[KernelNode]) -> list[Kernel]:
    """The kernel of each member of a group, as it is there: with launches of its own its results
    have the same bits. Blocks fit the launch of the contraction that takes longest, if any do: they
    have no more threads, with no more registers each."""
    alone = [
        contract_cycles(n) if n.op.template == "contract" else node_bytes(n) / GPU.l2_rate
        for n in nodes
    ]
    concurrent = [max(1, round(sum(alone) / cycles)) for cycles in alone]
    _, longest = max((c, i) for i, c in enumerate(alone) if nodes[i].op.template == "contract")
    first = lower_contract(nodes[longest], ContractOptions(concurrent=concurrent[longest]))
    most = first.launches[0].block[0]

    def fits(kernel: Kernel) -> bool:
        return kernel.launches[0].block[0] <= most and _threads(kernel) >= _threads(first)

    found = []
    for node, count in zip(nodes, concurrent, strict=True):
        if node.op.template == "reduce":
            found.append(lower_reduce(node))
            continue
        tried = contract_candidates(node, ContractOptions(concurrent=count))
        best = next(tried)
        found.append(best if fits(best) else next(filter(fits, tried), best))
    return found


def _threads(kernel: Kernel, number: int = 0) -> int:
    """Those of a launch that a multiprocessor shall hold at least, which bounds their registers."""
    assert kernel.device_functions is not None, f"{kernel.name} can be a part"
    threads, resident = kernel.launches[number].block[0], kernel.device_functions.resident[number]
    return threads * resident or max(threads, THREADS * RESIDENT)


def _launches(
    node: KernelNode, members: Sequence[Member], limit: int, owners: Mapping[str, Kernel]
) -> list[tuple[GridLaunch, int, list[str]]]:
    """The launches, one after another: of the first of all kernels, then of the second; of those
    with at most `limit` threads, then of the others. With them the blocks a multiprocessor shall
    hold, and the statements, which call the functions of a kernel's equal among the `owners`."""
    found = []
    for number in range(max(len(kernel.launches) for kernel, _ in members)):
        there = [m for m in members if number < len(m[0].launches)]
        threads = [m[0].launches[number].block[0] for m in there]
        few = [m for m, count in zip(there, threads, strict=True) if count <= limit]
        many = [m for m, count in zip(there, threads, strict=True) if count > limit]
        part = "finish" if number else "kernel"
        for each, name in ((few, part), (many, f"{part}_wide")):
            found += [_launch(symbol_of(node, name), number, each, owners)] if each else []
    return found


def _launch(
    symbol: str, number: int, members: Sequence[Member], owners: Mapping[str, Kernel]
) -> tuple[GridLaunch, int, list[str]]:
    """One of `_launches`, of the launches of this number. What takes its blocks longest comes
    first."""
    ordered = sorted(members, key=lambda m: -m[0].flops / m[0].launches[number].grid[0])
    first, lines = 0, []
    for kernel, pointers in ordered:
        launch = kernel.launches[number]
        columns, rows, _ = launch.grid
        blocks, last = columns * rows, kernel is ordered[-1][0]
        arguments = ["block", *(f"Argument{{{p}}}" for p in pointers)]
        play = f"play_one<{launch.block[0]}, {SHARED_BYTES}, {columns}>"
        place = f"blockIdx.x - {first}" if first else "blockIdx.x"
        lines += [] if last else [f"if (blockIdx.x < {first + blocks})"]
        owner = owners[kernel.name]
        function = f"{owner.name}_part::{part_function(owner.launches[number].symbol)}("
        call = [
            f"{'' if last else 'return '}{play}({place}, dynamic_shared, [&](const auto& block) {{",
            f"  {function}{', '.join(arguments)});",
            "});",
        ]
        lines += call if last else textwrap.indent("\n".join(call), "  ").split("\n")
        first += blocks
    launches = [kernel.launches[number] for kernel, _ in members]
    threads = max(launch.block[0] for launch in launches)
    shared = max(_shared(kernel, number) for kernel, _ in members)
    resident = min(_threads(kernel, number) // threads for kernel, _ in members)
    grid = GridLaunch(symbol, (first, 1, 1), (threads, 1, 1), shared)
    return grid, resident, lines


def _shared(kernel: Kernel, number: int) -> int:
    """The bytes of shared memory that a launch may need: who adds parts of k needs none."""
    adds = number > 0 and kernel.template == "contract"
    return kernel.launches[number].shared_bytes or (0 if adds else SHARED_BYTES)


def _function(
    names: Sequence[str], launch: GridLaunch, resident: int, lines: Sequence[str]
) -> list[str]:
    parameters = [f"unsigned char* {name}" for name in names]
    threads = launch.block[0]
    few = threads <= THREADS and resident == 1  # small blocks may lie beside the largest
    bounds = launch_bounds(threads, 0 if few else resident)
    return entry(launch.symbol, bounds, parameters, ["begin_launch();", *lines])
