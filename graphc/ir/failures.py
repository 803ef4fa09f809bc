"""Report a failing compiler stage as a bug in graphc, with the stage, node and user's line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.base.errors import BUGS, PlanError, described
from graphc.ir import Node


@contextmanager
def stage(name: str, node: Node | None = None) -> Iterator[None]:
    """Turn a bug met inside into a PlanError about the stage `name` and about `node`.

    Without `node`, it is about the node that the failing code had in a local variable. The four
    exceptions of graphc pass unchanged.
    """
    try:
        yield
    except BUGS as bug:
        found = node or _at_hand(bug)
        about = "" if found is None else f" at {_shown(found)}"
        raise PlanError(
            f"{name}: graphc failed{about} by a bug of its own: {described(bug)}; "
            "device='reference' computes the program without kernels"
        ) from bug


def _at_hand(bug: BaseException) -> Node | None:
    """Return the node among the local variables of the innermost function that has one."""
    frames = []
    trace = bug.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames[2:]):  # behind `stage` and the function that it stands in
        nodes = [v for v in frame.f_locals.values() if isinstance(v, Node)]
        if nodes:
            return nodes[-1]
    return None


def _shown(node: Node) -> str:
    lines = f" ({', '.join(node.where.lines)})" if node.where.lines else ""
    name = getattr(node.op, "kernel", node.op.name)
    return f"{', '.join(map(str, node.outputs))} = {name}{lines}"
