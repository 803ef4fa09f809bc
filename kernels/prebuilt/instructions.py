"""Turn the statements of a body into instructions over strips (`strips.h`)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import SupportsIndex

from graphc.ir import DTYPES
from graphc.kernels.prebuilt.operations import KINDS, NUMBERS, OPERANDS, conversion
from graphc.kernels.prebuilt.places import (
    BYTES,
    FIRST,
    INDEX,
    INDEX_KINDS,
    INSIDE,
    LOAD_IF,
    PHILOX,
    SEARCH,
    STORE,
    TAKE,
    VALUE,
    WINDOW,
    Instruction,
    PlaceWriter,
    UnsupportedError,
)
from graphc.kernels.program.access import AffineAccess
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Literal,
    Load,
    NamedFunction,
    Register,
    Statement,
    Store,
)
from graphc.ops.pointwise.logic import C_TYPES

_EXACT = {"f32": 2**24, "f64": 2**53}
"""Up to where each dtype has all integers."""
_RAW = {1: "u8", 2: "u16", 4: "i32", 8: "i64"}
"""The type of a register of elements of so many bytes as memory has them."""


class InstructionWriter(PlaceWriter):
    """Writes the instructions of the program."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stores = 0
        for number, statement in enumerate(self.program.statements):
            if isinstance(statement, Store) and not stores:
                self._copy_overwritten(self.program.statements[number:])
            stores += isinstance(statement, Store)
            self._write(statement)
        self.number_places()

    def _write(self, statement: Statement) -> None:
        if isinstance(statement, Load):
            self._load(statement)
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Compute):
            self._compute(statement)
        elif isinstance(statement, Call) and statement.function in _CALLS:
            _CALLS[statement.function](self, statement)
        else:
            raise UnsupportedError(statement)

    def _load(self, statement: Load) -> None:
        ((name, _),) = statement.results
        if statement.plain:
            (address,) = statement.arguments
            assert isinstance(address, Address) and address.access is not None
            place = self._loaded(self._access(address.pointer, address.access))
            self._define(name, self._dtype(address.pointer), place)
            return
        condition, address, access = statement.arguments
        assert isinstance(address, Address) and isinstance(access, AffineAccess)
        dtype = self._dtype(address.pointer)
        raw = _RAW[DTYPES[dtype].itemsize]
        operands = (self._index(access), self._operand(condition, "bool"))
        settings = (access.divisor, *self._memory(address.pointer))
        place = self._value(raw, LOAD_IF, operands, self._axes_of(name), settings)
        self._define(name, dtype, place)

    def _copy_overwritten(self, statements: Iterable[Statement]) -> None:
        """Copy what stores read in place from memory that an earlier store may overwrite."""
        for statement in statements:
            for name in statement.operands:
                place = self._places.get(name, -1)
                if 0 <= place < len(self.accesses):
                    access = self.accesses[place]
                    if access.memory in self.overwritten:
                        kind, axes = self._kinds[name], self._axes_of(name)
                        copy = self._operation("a", kind, (kind,))
                        self._places[name] = self._value(kind, copy, (place,), axes)

    def _store(self, statement: Store) -> None:
        address, register = statement.arguments
        assert isinstance(address, Address) and address.access is not None
        own = self._access(address.pointer, address.access, statement.lanes)
        place, value = self._place(own), self._operand(register, self._dtype(address.pointer))
        dtype = self._dtype(address.pointer)
        _, write = conversion(dtype)
        kind = KINDS[dtype]
        code = FIRST + write if write is not None else self._operation("a", kind, (kind,))
        self.instructions += [
            Instruction(code, place, (value,), self.whole, moves=write is None),
            Instruction(STORE, place, (), self.whole),
        ]

    def _compute(self, statement: Compute) -> None:
        if len(statement.results) != 1:
            raise UnsupportedError(statement)
        (result,), formula = statement.results, statement.formula
        if isinstance(formula, NamedFunction) and formula.name in ("inside", "iota"):
            return self._of_index(result, formula, statement.arguments[0])
        kinds = tuple(self._kind(a) for a in statement.arguments)
        kind = KINDS[result.dtype] if result.dtype != "auto" else "bool"
        text = formula.scalar_expression(*OPERANDS[: len(kinds)])
        if isinstance(formula, NamedFunction) and formula.name == "both":
            text = "a & b"
        places = tuple(map(self._operand, statement.arguments))
        if kinds == (kind,) and text in ("a", f"convert<{C_TYPES[kind]}>(a)"):
            place = places[0]
        else:
            code = self._operation(text, kind, kinds)
            place = self._value(kind, code, places, self._axes_of(result.name))
        self._places[result.name], self._kinds[result.name] = place, kind

    def _of_index(self, result: Register, formula: NamedFunction, access: Argument) -> None:
        """A condition on an index, or an index as a number."""
        assert isinstance(access, AffineAccess)
        axes, index = self._axes_of_index(access), (self._index(access),)
        name, kind = result.name, "bool"
        if formula.name == "inside":
            _, high, divisor = formula.settings
            settings = (_whole(divisor), _whole(high))
            self._places[name] = self._value("bool", INSIDE, index, axes, settings)
        else:
            kind = result.dtype
            if kind not in BYTES or self._largest(access) > _EXACT.get(kind, 2**63):
                raise UnsupportedError(access)
            place = self._value("i64", INDEX, index, axes, (access.divisor,))
            if kind != "i64":
                code = self._operation(f"convert<{C_TYPES[kind]}>(a)", kind, ("i64",))
                place = self._value(kind, code, (place,), axes)
            self._places[name] = place
        self._kinds[name] = kind

    def _philox(self, call: Call) -> None:
        _, divisor = call.settings
        seed, number, step, access, word = call.arguments
        assert isinstance(access, AffineAccess) and isinstance(word, Literal)
        assert isinstance(seed, Literal) and isinstance(number, Literal)
        axes = self._axes_of_index(access)
        index = self._value("i64", INDEX, (self._index(access),), axes, (_whole(divisor),))
        ((name, _),) = call.results
        settings = int(seed.value), int(number.value), int(word.value)
        operands = (index, self._operand(step))
        self._places[name] = self._value("f32", PHILOX, operands, self._axes_of(name), settings)
        self._kinds[name] = "f32"

    def _take(self, call: Call) -> None:
        _, divisor, stride, extent, _ = call.settings
        condition, address, access, index = call.arguments
        assert isinstance(address, Address) and isinstance(access, AffineAccess)
        dtype, kind = self._dtype(address.pointer), self._kind(index)
        given = frozenset[int]().union(
            *(self._axes_of(r) for r in (condition, index) if isinstance(r, str))
        )
        raw = _RAW[DTYPES[dtype].itemsize]
        settings = (
            _whole(divisor), *self._memory(address.pointer), _whole(stride), _whole(extent),
            INDEX_KINDS[kind], sum(1 << d for d in given),
        )  # fmt: skip
        operands = self._index(access), self._operand(condition, "bool"), self._operand(index)
        ((name, _),) = call.results
        self._define(name, dtype, self._value(raw, TAKE, operands, self._axes_of(name), settings))

    def _search(self, call: Call) -> None:
        _, divisor, stride, extent, right = call.settings
        condition, address, access, value = call.arguments
        assert isinstance(address, Address) and isinstance(access, AffineAccess)
        dtype = self._dtype(address.pointer)
        if dtype not in NUMBERS or self._kind(value) != dtype:
            raise UnsupportedError(call)
        settings = (
            _whole(divisor), *self._memory(address.pointer), _whole(stride), _whole(extent),
            int(right == "true"), NUMBERS.index(dtype),
        )  # fmt: skip
        operands = self._index(access), self._operand(condition, "bool"), self._operand(value)
        ((name, _),) = call.results
        place = self._value("i64", SEARCH, operands, self._axes_of(name), settings)
        self._places[name], self._kinds[name] = place, "i64"

    def _window(self, call: Call) -> None:
        """Pooling or its gradient."""
        settings = [s for s in call.settings if isinstance(s, tuple)]
        (_, *numbers), reads = settings[0], [s for s in settings[1:] if s[0] == "Reads"]
        memory = [a for a in call.arguments if isinstance(a, Address)]
        pixel = [a for a in call.arguments if isinstance(a, AffineAccess)]
        dtypes = [self._dtype(a.pointer) for a in memory]
        known = dtypes[0] in ("f32", "f64") and all(d in INDEX_KINDS for d in dtypes[1:])
        if not known or any(a.divisor != 1 for a in call.accesses):
            raise UnsupportedError(call)
        places = []
        for address in memory:
            assert address.access is not None
            places.append(self._place(self._access(address.pointer, address.access)))
        places += [self._index(a) for a in pixel]
        rows, columns = ([_whole(r[i]) for r in reads] + [0] for i in (2, 3))
        (name, dtype), *others = call.results
        values = (
            _WINDOWS.index(call.function), int(dtype == "f64"), *map(_whole, numbers[:10]),
            len(numbers) == 10, *rows[:2], *columns[:2], INDEX_KINDS.get(dtypes[-1], 0),
        )  # fmt: skip
        if others:
            self.sizes.append(4)
            places.append(VALUE + len(self.sizes) - 1)
        axes = self._axes_of(name)
        self._places[name] = self._value(dtype, WINDOW, tuple(places), axes, values)
        self._kinds[name] = dtype
        for other, kind in others:
            index, kind = places[-1], KINDS[kind]
            if kind != "i32":
                code = self._operation(f"convert<{C_TYPES[kind]}>(a)", kind, ("i32",))
                index = self._value(kind, code, (index,), axes)
            self._places[other], self._kinds[other] = index, kind


_WINDOWS = ("max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad")
"""Pooling functions, by the numbers that `pooling.h` gives them."""
_CALLS: Mapping[str, Callable[[InstructionWriter, Call], None]] = {
    "philox_uniform": InstructionWriter._philox,
    "take": InstructionWriter._take,
    "search": InstructionWriter._search,
    **dict.fromkeys(_WINDOWS, InstructionWriter._window),
}
"""How each function that statements call is written."""


def _whole(setting: object) -> int:
    assert isinstance(setting, SupportsIndex), repr(setting)
    return operator.index(setting)
