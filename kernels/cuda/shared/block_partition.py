"""Block partition: find the arguments of which each block of a product touches only its own rows.

Of loop nests the accesses say it (`loops/shares.py`); the loops of a product are its template's. In
a joined launch one block runs the same block of each part in every iteration of a loop, so that
values in such arguments pass between parts and iterations without a barrier of all blocks.
"""

from __future__ import annotations

from graphc.ir import ROW_MAJOR, Graph, Value


def owned(body: Graph, blocks: int, sums: Value) -> tuple[int, ...]:
    """The numbers of the arguments (inputs, then outputs) of which block i of `blocks` touches only
    the i-th equal part.

    Block i computes the i-th equal part of the rows, the first axis, of `sums`, from which the
    outputs are computed. Empty if outputs or sums have different rows, or rows that
    do not divide evenly.
    """
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
    if sums not in by_row or sums in whole:
        return ()
    return tuple(
        i
        for i, v in enumerate((*body.inputs, *body.outputs))
        if v in by_row and v not in whole and v.type.layout == ROW_MAJOR
    )
