"""Averages over the ranks that train one model together, as nodes of the graph.

The gradients are cut into buckets in the order in which the graph computes them; each bucket is one
`all_reduce`, and so is the state that the function itself updates, such as running statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc import functions, ops
from graphc.ir import FLOATS, NARROW, Where
from graphc.optim.slices import Slices, ordered_sums
from graphc.parallel.options import DataParallel, buckets
from graphc.trace import Builder, Tensor

_WHERE = Where(derived=True)


def averaged(
    builder: Builder,
    parallel: DataParallel,
    pairs: Sequence[tuple[str, Tensor]],
    outputs: Sequence[Tensor],
    slices: Slices | None = None,
    by_kernels: bool = False,
) -> tuple[list[tuple[str, Tensor]], list[Tensor]]:
    """Return gradients and outputs, averaged over all ranks: of the outputs the loss, the first.

    With `slices`, this rank's slice of each gradient.

    Args:
        builder: The program under construction, with what the function updates.
        parallel: The ranks. Where they keep shards apart, gradients and the loss have them along
            their first axes.
        pairs: (name of a parameter, its gradient).
        outputs: What the program returns.
        slices: How the update is divided among ranks; None if it is not.
        by_kernels: Whether kernels add the gradients, in order, rather than messages.
    """
    with builder.at(_WHERE):
        _average_state(builder, parallel)
        made = {v: n for n, node in enumerate(builder.nodes) for v in node.outputs}
        pairs = sorted(pairs, key=lambda pair: made.get(pair[1].value, -1))
        found = [] if slices is None else _slice_means(builder, parallel, pairs, slices)
        tensors = [gradient for _, gradient in pairs] if slices is None else []
        averages_loss = bool(outputs) and _is_loss(outputs[0], parallel)
        if averages_loss:
            tensors.append(outputs[0])
        means = _means(builder, parallel, tensors, parallel.pieces, "bucket", by_kernels=by_kernels)
        if slices is None:
            found = [(name, mean) for (name, _), mean in zip(pairs, means, strict=False)]
        return found, [means[-1], *outputs[1:]] if averages_loss else list(outputs)


def _is_loss(output: Tensor, parallel: DataParallel) -> bool:
    """Whether the first output is a loss, or one of each shard."""
    apart = (parallel.pieces,) if parallel.shards is not None else ()
    return output.dtype in FLOATS and output.shape == apart


def _average_state(builder: Builder, parallel: DataParallel) -> None:
    """Average the floats that the function updates, so that they are the same on all ranks."""
    if parallel.ranks == 1:
        return
    changed = [(o, n) for o, n in builder.updates.items() if o.type.dtype in FLOATS]
    news = [Tensor(new, builder) for _, new in changed]
    for (old, _), mean in zip(
        changed, _means(builder, parallel, news, 1, "statistics", parallel.ranks), strict=True
    ):
        state = Tensor(old, builder)
        builder.update(state, functions.astype(mean, state.dtype))


def _means(
    builder: Builder,
    parallel: DataParallel,
    tensors: Sequence[Tensor],
    pieces: int,
    name: str,
    parts: int = 0,
    by_kernels: bool = False,
) -> list[Tensor]:
    """The means of tensors over all ranks and pieces, in buckets of one dtype each."""
    wide = _wide(parallel, tensors, pieces, parts)
    factor = 1 / (parts or parallel.parts)
    means: dict[int, Tensor] = {}
    op = ops.AllReduce(parallel.ranks, pieces)
    for members in _members(parallel, wide, pieces):
        terms = [wide[n] for n in members]
        if by_kernels:
            sums: Sequence[Tensor] = ordered_sums(builder, terms, parallel.ranks, pieces)
        else:
            sums = builder.emit(op, *terms, name=name)
        means.update((n, total * factor) for n, total in zip(members, sums, strict=True))
    return [means[n] for n in range(len(wide))]


def _slice_means(
    builder: Builder,
    parallel: DataParallel,
    pairs: Sequence[tuple[str, Tensor]],
    slices: Slices,
) -> list[tuple[str, Tensor]]:
    """This rank's slices of the means of gradients, with the names of their parameters."""
    pieces, factor = parallel.pieces, 1 / parallel.parts
    wide = _wide(parallel, [gradient for _, gradient in pairs], pieces)
    means: dict[int, Tensor] = {}
    for members in _members(parallel, wide, pieces):
        named = [(pairs[n][0], wide[n]) for n in members]
        sums = slices.reduced(builder, named, pieces)
        means.update((n, total * factor) for n, total in zip(members, sums, strict=True))
    return [(name, means[n]) for n, (name, _) in enumerate(pairs)]


def _wide(
    parallel: DataParallel, tensors: Sequence[Tensor], pieces: int, parts: int = 0
) -> list[Tensor]:
    """Tensors as they are added: without an axis of one piece, and not of narrow dtypes."""
    wide = [functions.astype(t, "f32") if t.dtype in NARROW else t for t in tensors]
    if parallel.shards is not None and pieces == 1 and not parts:
        return [functions.reshape(t, t.shape[1:]) for t in wide]
    return wide


def _members(parallel: DataParallel, wide: Sequence[Tensor], pieces: int) -> Iterator[list[int]]:
    """The numbers of the tensors of each bucket, which are of one dtype each."""
    limit = parallel.bucket_bytes()
    for dtype in dict.fromkeys(t.dtype for t in wide):
        alike = [n for n, t in enumerate(wide) if t.dtype == dtype]
        for group in buckets([wide[n].value.type.nbytes // pieces for n in alike], limit):
            yield [alike[m] for m in group]
