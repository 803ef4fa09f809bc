"""`PipelineParallel`, what users give to `compile` for a model that is cut into stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from graphc.base.errors import GraphError

if TYPE_CHECKING:
    from graphc.parallel.group import Group


class PipelineParallel:
    """Training of one model whose stages several processes, the ranks, have: one each.

    All ranks run the same script. The batch, the first axis of every array, is cut into equal
    micro-batches, which follow each other through the stages. The first object that is made in a
    process waits for the other ranks.

    Args:
        micro_batches: The number of micro-batches of a step.
        stages: The names of the modules with which stages 1, 2, ... begin, such as `blocks.4`, in
            the order in which they are called, one fewer than there are ranks. By default the
            function is cut so that stages have about as much to compute, and little is sent.
        transport: "mpi", "tcp" or "none"; by default MPI under `mpiexec`, else TCP if
            GRAPHC_ADDRESS is set, else none.
        timeout: The seconds that a rank waits for others.

    Attributes:
        rank: The number of this process, and of its stage, from 0 up.
        ranks: The number of processes.

    Raises:
        GraphError: An argument is wrong.
        RunError: The other ranks do not come.

    Example:
        >>> parallel = graphc.PipelineParallel(micro_batches=4)
        >>> parallel.rank, parallel.ranks
        (0, 1)
    """

    def __init__(
        self,
        micro_batches: int,
        stages: Sequence[str] | None = None,
        *,
        transport: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        whole = isinstance(micro_batches, int) and not isinstance(micro_batches, bool)
        if not whole or micro_batches < 1:
            raise GraphError(f"micro_batches: expected a number from 1 up, got {micro_batches!r}")
        names = None if stages is None else _names(stages)
        from graphc.parallel.join import join

        self.group: Group = join(transport, float(timeout))
        self.rank, self.ranks = self.group.rank, self.group.ranks
        if names is not None and len(names) != self.ranks - 1:
            raise GraphError(
                f"stages: expected the beginnings of {self.ranks - 1} stages behind the first, one "
                f"for each other rank, got {list(names)}"
            )
        self.micro_batches, self.stages = micro_batches, names
        self._owners: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @property
    def active(self) -> bool:
        """Whether there are several stages."""
        return self.ranks > 1

    def owner(self, buffer: Any) -> int | None:
        """Return the stage that an earlier program gave a parameter's buffer; None if none did."""
        return self._owners.get(buffer)

    def give(self, owners: Mapping[Any, int]) -> None:
        """Note the stages of parameters' buffers, which later programs keep to."""
        self._owners.update(owners)


def _names(stages: Iterable[Any]) -> tuple[str, ...]:
    names = None if isinstance(stages, str) else tuple(stages)
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"stages: expected a list of names of modules, got {stages!r}")
    return names
