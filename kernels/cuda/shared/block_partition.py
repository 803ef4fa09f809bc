"""Block partition: the arguments of a kernel of which each block touches its own rows alone.

In a joined launch such a block is played by the same one in each iteration of a loop, so that what
passes from part to part, and from iteration to iteration, needs no wait of all blocks.
"""

from __future__ import annotations

from graphc.ir import ROW_MAJOR, Graph, Value


def owned(body: Graph, blocks: int, sums: Value | None = None) -> tuple[int, ...]:
    """The numbers of the arguments, inputs and then outputs, of which block i of so many touches
    the i-th of equal parts alone, if it computes the i-th of equal parts of the outputs' rows, the
    first axis; or those of `sums`, of which outputs are made. Empty if the outputs have not the
    same rows, or others than the sums, or those not equal parts."""
    heads = {v.type.shape[:1] for v in body.outputs}
    if len(heads) != 1 or () in heads or next(iter(heads))[0] % blocks:
        return ()
    by_row, whole = set(body.outputs), set[Value]()
    for node in reversed(body.nodes):
        maps = node.op.axis_map(*(v.type for v in node.inputs))
        for output, places in zip(node.outputs, maps, strict=True):
            if output in whole:
                whole.update(node.inputs)
            if output not in by_row:
                continue
            for value, axes in zip(node.inputs, places, strict=True):
                rows = axes[:1] == (0,) and value.type.shape[0] == output.type.shape[0]
                (by_row if rows else whole).add(value)
    if sums is not None and (sums not in by_row or sums in whole):
        return ()
    return tuple(
        i
        for i, v in enumerate((*body.inputs, *body.outputs))
        if v in by_row and v not in whole and v.type.layout == ROW_MAJOR
    )
