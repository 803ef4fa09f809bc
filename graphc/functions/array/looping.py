"""Loops under construction: the builder of a body, and the scan that the public loops are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from graphc import ops
from graphc.functions.array.tensors import as_tensor, cast, error, is_integer
from graphc.ir import FLOATS, Type, Value, tree
from graphc.ir.state import StateBuffer
from graphc.ops.base import Op
from graphc.ops.loops.scan import Scan
from graphc.trace import Builder, Tensor, current_builder


def run_scan(
    fn: Callable[..., Any],
    init: Any,
    xs: Any = None,
    reverse: bool = False,
    length: int | None = None,
    recompute: bool = False,
    name: str = "scan",
) -> tuple[Any, Any]:
    """Append the loop of `scan` for a function that returns (carry, y, guard).

    Iterations in which the guard, a bool [], is false leave the carry as it is and zeros in `y`.
    There is no guard where it is None.
    """
    outer = current_builder()
    first = tree.map_leaves(lambda _, leaf: as_tensor(leaf), init)
    scanned = tree.map_leaves(lambda _, leaf: as_tensor(leaf), xs)
    body = BodyBuilder(outer, length_of(scanned, length), name)
    with body.building():
        carry = tree.map_leaves(lambda path, leaf: body.carry(path, leaf), first)
        element = tree.map_leaves(lambda path, leaf: body.element(path, leaf), scanned)
        *result, guard = fn(carry, element)
        new, y = (tree.map_leaves(lambda _, leaf: as_tensor(leaf), part) for part in result)
        new = like_carry(first, new)
        check_carry(name, first, new)
        carries = [body.own(t) for _, t in tree.leaves(new)]
        stacks = [body.own(t) for _, t in tree.leaves(y)]
        own_guard = None if guard is None else body.own(guard)
    results = iter(body.emit_scan(carries, stacks, reverse, recompute, own_guard))
    last = tree.map_leaves(lambda _, __: next(results), new)
    return last, tree.map_leaves(lambda _, __: next(results), y)


def length_of(scanned: Any, length: int | None) -> int:
    """The number of iterations: the first extent of all leaves, or `length`."""
    found = {path: t.shape[:1] for path, t in tree.leaves(scanned)}
    if () in found.values():
        path = next(p for p, shape in found.items() if not shape)
        raise error(f"scan: xs{at(path)} is a scalar, expected a first axis to scan")
    extents: set[int] = {shape[0] for shape in found.values()}
    if length is not None:
        if not is_integer(length) or length < 0:
            raise error(f"scan: length expected a number of iterations, got {length!r}")
        extents.add(int(length))
    if len(extents) > 1:
        shown = ", ".join(f"xs{at(path)} {shape[0]}" for path, shape in found.items())
        wanted = "" if length is None else f", length {length}"
        raise error(f"scan: expected one number of iterations, got {shown}{wanted}")
    if not extents:
        raise error("scan: expected xs, or length=, got neither")
    return extents.pop()


def like_carry(old: Any, new: Any) -> Any:
    """Return a new carry; with mixed precision its floats have the dtypes of the old one."""
    if not current_builder().mixed or tree.structure(old) != tree.structure(new):
        return new
    before = iter([leaf for _, leaf in tree.leaves(old)])

    def alike(_: str, leaf: Tensor) -> Tensor:
        kind = next(before).dtype
        return cast(leaf, kind) if {kind, leaf.dtype} <= {*FLOATS} else leaf

    return tree.map_leaves(alike, new)


def check_carry(name: str, old: Any, new: Any) -> None:
    """Raise GraphError unless an iteration makes a carry of the type of the one before."""
    if (found := difference(old, new)) is not None:
        place, before, after = found
        raise error(f"{name}: the carry{place} begins as {before}, the function returns {after}")


def difference(one: Any, other: Any) -> tuple[str, Any, Any] | None:
    """Return where two trees of tensors differ first, and the structures or types there."""
    structures = tree.structure(one), tree.structure(other)
    if structures[0] != structures[1]:
        return "", *structures
    for (path, own), (_, found) in zip(tree.leaves(one), tree.leaves(other), strict=True):
        if own.value.type != found.value.type:
            return at(path), own.value.type, found.value.type
    return None


def at(path: str) -> str:
    """Return how messages name a place in a tree: " at 0.x", or "" for a tree that is a leaf."""
    return f" at {path}" if path else ""


def describe(result: Any) -> str:
    """Return the class of what a function returned, with the size of a tuple."""
    size = f" of {len(result)}" if isinstance(result, tuple) else ""
    return f"{type(result).__name__}{size}"


class BodyBuilder(Builder):
    """Build the graph of a scan's body.

    Tensors of the surrounding builder that the body reads become its constants. State that the body
    assigns is a carry: an iteration reads what the one before has left, and what the last one
    leaves is the state's next contents. Names are unique across both graphs.
    """

    in_loop: ClassVar[bool] = True

    def __init__(self, outer: Builder, length: int, kind: str = "scan") -> None:
        super().__init__(outer.fresh(".".join([*outer.modules, kind])))
        self.outer, self.length, self.kind = outer, length, kind
        self.training, self.modes, self.seed = outer.training, outer.modes, outer.seed
        self.mixed, self.ranks = outer.mixed, outer.ranks
        self.bounds = None if outer.bounds is None else []
        self.modules, self.where = list(outer.modules), outer.where
        self.trainable_read = outer.trainable_read
        self.names = outer.names
        self._symbols: dict[tuple[str, Value], Tensor] = {}
        """("value" or "contents", an outer value) -> what stands for it in the body: a constant,
        or the old carry where these are contents of state that the body assigns."""
        self.assigned: dict[Value, tuple[Value, Tensor]] = {}
        """State, as an outer value -> (its contents before the loop, an outer value; its last
        contents in the body)."""
        self.carries: list[tuple[Tensor, Tensor]] = []
        """(initial value, a tensor of `outer`; the old carry, an input of the body)."""
        self.elements: list[tuple[Tensor, Tensor]] = []
        """(scanned value, a tensor of `outer`; its element, an input of the body)."""
        self._iteration: Tensor | None = None

    def carry(self, name: str, initial: Tensor) -> Tensor:
        """Return the body's input for a carry that starts as `initial`, an outer tensor."""
        tensor = self._symbol(f"carry.{name}" if name else "carry", initial.value.type)
        self.carries.append((self.outer.own(initial), tensor))
        return tensor

    def element(self, name: str, scanned: Tensor) -> Tensor:
        """Return the body's input for one element of `scanned`, an outer tensor."""
        whole = scanned.value.type
        tensor = self._symbol(f"x.{name}" if name else "x", Type(whole.shape[1:], whole.dtype))
        self.elements.append((self.outer.own(scanned), tensor))
        return tensor

    def _symbol(self, name: str, type: Type) -> Tensor:
        return Tensor(Value(self.fresh(f"{self.name}.{name}"), type), self)

    def own(self, tensor: Tensor) -> Tensor:
        """Return `tensor` in the body, as a constant if it belongs to the surrounding builder."""
        return tensor if tensor.builder is self else self._enter("value", tensor)

    def _enter(self, kind: str, tensor: Tensor) -> Tensor:
        """Return what stands for a tensor from outside: a value, or contents of state."""
        source = self.outer.own(tensor)
        key = kind, source.value
        if key not in self._symbols:
            name = self.fresh(f"{self.name}.{source.value.name}")
            self._symbols[key] = Tensor(Value(name, source.value.type), self)
        return self._symbols[key]

    def read_state(self, buffer: StateBuffer, name: str = "state") -> Tensor:
        return self._enter("contents", self.outer.read_state(buffer, name))

    def contents(self, buffer: StateBuffer) -> Tensor:
        new = self.latest(buffer)
        return self.read_state(buffer) if new is None else new

    def note_read(self, parameter: Any) -> None:
        self.outer.note_read(parameter)

    def latest(self, buffer: StateBuffer) -> Tensor | None:
        if self.assigned and (state := self.outer.read_state(buffer).value) in self.assigned:
            return self.assigned[state][1]
        new = self.outer.latest(buffer)
        return None if new is None else self._enter("contents", new)

    def type_of(self, buffer: StateBuffer) -> Type:
        return self.outer.type_of(buffer)

    def _outside(self, state: Tensor) -> Tensor | None:
        """Return the outer state that `read_state` gave a tensor of this body for."""
        for (kind, value), tensor in self._symbols.items():
            if kind == "contents" and tensor.value == state.value:
                return Tensor(value, self.outer)
        return None

    def keeps(self, state: Tensor) -> bool:
        outside = self._outside(state)
        return outside is not None and self.outer.keeps(outside)

    def after(self, state: Tensor) -> Tensor:
        outside = self._outside(state)
        if outside is None:
            return super().after(state)
        if outside.value in self.assigned:
            return self.assigned[outside.value][1]
        return self._enter("contents", self.outer.after(outside))

    def update(self, old: Tensor, new: Tensor) -> None:
        outside = self._outside(old)
        assert outside is not None, "only what `read_state` returns is updated"
        before = self.outer.after(outside)
        self._enter("contents", before)
        self.assigned[outside.value] = before.value, new

    @property
    def constants(self) -> list[tuple[Value, Tensor]]:
        """(outer value, what stands for it in the body) of all that is the same in iterations."""
        moving = {("contents", before) for before, _ in self.assigned.values()}
        return [(key[1], t) for key, t in self._symbols.items() if key not in moving]

    def random_step(self) -> tuple[int, int, Tensor]:
        """Return a random key like the outer builder's, whose counter differs in each iteration."""
        with self.outer.building():
            seed, number, counter = self.outer.random_step()
            if self._iteration is None:
                (iota,) = self.outer.emit(ops.Iota((self.length,), 0))
                self._iteration = self.element("t", iota)
        return seed, number, self.own(counter) * self.length + self._iteration

    def random_offset(self) -> Tensor | None:
        key = self.outer.random_offset()
        return None if key is None else self.own(key)

    def emit(self, op: Op, *inputs: Tensor, name: str = "") -> tuple[Tensor, ...]:
        return super().emit(op, *map(self.own, inputs), name=name)

    def emit_scan(
        self,
        carries: list[Tensor],
        stacks: list[Tensor],
        reverse: bool,
        recompute: bool,
        guard: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Append the scan to the surrounding builder; the body returns the given tensors.

        Nothing is appended for a scan without results.
        """
        assigned = [
            (Tensor(before, self.outer), self._symbols["contents", before], new)
            for before, new in self.assigned.values()
        ]
        moving = [*self.carries, *((before, old) for before, old, _ in assigned)]
        inputs = [t for pairs in (self.constants, moving, self.elements) for _, t in pairs]
        self.inputs = [t.value for t in inputs]
        watched = self.watched()
        if not (carries or assigned or stacks or watched):
            return ()
        last = [*carries, *(self.own(new) for *_, new in assigned)]
        guards = [] if guard is None else [guard]
        body = self.graph([*last, *stacks, *(w.tensor for w in watched), *guards])
        counts = len(moving), len(self.elements)
        op = Scan(body, self.length, *counts, reverse, recompute, guard is not None)
        sources = [Tensor(v, self.outer) for v, _ in self.constants]
        sources += [t for t, _ in (*moving, *self.elements)]
        results = self.outer.emit(op, *sources)
        for state, new in zip(self.assigned, results[len(carries) :], strict=False):
            self.outer.update(Tensor(state, self.outer), new)
        stacked = len(results) - len(watched)
        self.hand_on(results[stacked:])
        return (*results[: len(carries)], *results[len(last) : stacked])

    def watched(self) -> list[Any]:
        """Return the tensors of this builder that bounds checks and `show` watch."""
        return [*(self.bounds or ()), *self.shown]

    def hand_on(self, tensors: Sequence[Tensor]) -> None:
        """Make the surrounding builder watch `tensors` of its own instead of those watched here."""
        found = [replace(w, tensor=t) for w, t in zip(self.watched(), tensors, strict=True)]
        count = len(self.bounds or ())
        if self.outer.bounds is not None:
            self.outer.bounds += found[:count]
        self.outer.shown += found[count:]
