"""Print a nest's indices, addresses and borders as C++, and members of its template types.

In the text `at` holds the logical index along each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.nest import Border, Nest, Read


def linear(border: Border, names: dict[int, str]) -> str:
    """The C++ value that `border` bounds, from the names of indices."""
    return linear_of(names, border, border.offset)


def linear_of(names: dict[int, str], border: Border, offset: int = 0) -> str:
    """The contribution of these indices to what `border` bounds, plus `offset`."""
    terms = [times(border.coefficients[a], f"({n})") for a, n in names.items()]
    if offset or not terms:
        terms.append(str(offset))
    return " + ".join(terms)


def border_names(nest: Nest, border: Border) -> dict[int, str]:
    """The C++ name of the index of each axis in `border`."""
    return {a: f"at[{axis_name(nest, a)}]" for a in sorted(border.axes)}


def condition(nest: Nest, border: Border) -> str:
    """The C++ condition that a read is inside `border`."""
    return exists(border, linear(border, border_names(nest, border)))


def exists(border: Border, value: str) -> str:
    """The C++ condition that `value` is inside `border`."""
    return f"exists({value}, {border.extent * border.divisor}, {border.divisor})"


def address(nest: Nest, read: Read) -> str:
    """The C++ offset of `read`, in elements."""
    terms = [str(read.offset)] if read.offset else []
    for axis in range(len(nest.axes)):
        name = f"at[{axis_name(nest, axis)}]"
        if axis == read.lanes:
            terms.append(f"{name} / {read.width} * {read.block} + {name} % {read.width}")
        else:
            terms.append(times(read.strides[axis], name))
    for quotient in read.quotients:
        value = linear(quotient.border, border_names(nest, quotient.border))
        terms.append(times(quotient.stride, f"floor_div({value}, {quotient.border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def output_index(nest: Nest, coefficients: Sequence[int], moved: dict[int, str]) -> str:
    """The C++ index along an output axis."""
    terms = []
    for axis, c in enumerate(coefficients):
        if c:
            name = moved.get(axis, f"at[{axis_name(nest, axis)}]")
            terms.append(name if c == 1 else f"{c} * ({name})")
    return " + ".join(terms) or "0"


def times(factor: int, name: str) -> str:
    """`factor` times `name`, without a factor of 1."""
    if factor == 0:
        return "0"
    if factor == 1:
        return name
    plain = name.replace("_", "").isalnum() or (name[0] == "(" and name[-1] == ")")
    plain = plain or (name.startswith(("at[", "floor_div(")) and " + " not in name.split("(")[0])
    return f"{factor} * {name if plain else f'({name})'}"


def axis_enum(nest: Nest) -> str:
    """A C++ enum of the axes; roles that no axis has get distinct numbers."""
    names = [axis_name(nest, a) for a in range(len(nest.axes))]
    return f"    enum {{ {', '.join(names)}, rows_, outer_, columns_, AXES }};"


def axis_name(nest: Nest, axis: int) -> str:
    """The enumerator of an axis."""
    return f"i_{identifier(nest.axes[axis].name)}"


def loop_lines(loops: Iterable[tuple[str, int, int]]) -> list[str]:
    """A C++ table of kept loops."""
    loops = list(loops)
    entries = ", ".join(f"{{{name}, {count}, {step}}}" for name, count, step in loops)
    return [
        f"    static constexpr int LOOPS = {len(loops)};",
        f"    static constexpr Loop loops[] = {{{entries}}};",
    ]


def sum_lines(sums: list[tuple[int, int, bool]], nest: Nest) -> list[str]:
    """A C++ table of summed loops."""
    entries = ", ".join(
        f"{{{axis_name(nest, a)}, {n}, {'true' if guarded else 'false'}}}" for a, n, guarded in sums
    )
    return [
        f"    static constexpr int DEPTH = {len(sums)};",
        f"    static constexpr Sum sums[] = {{{entries or '{0, 1, false}'}}};",
    ]


def integers(**values: object) -> str:
    """Integer constants as struct members."""
    return f"    static constexpr int {', '.join(f'{k} = {v}' for k, v in values.items())};"


def longs(constants: Mapping[str, object]) -> str:
    """Wide integer constants as struct members."""
    return f"    static constexpr long {', '.join(f'{k} = {v}' for k, v in constants.items())};"


def constant(name: str, parameters: str, value: str, kind: str = "long") -> str:
    """A constexpr function as a struct member."""
    return f"    static constexpr {kind} {name}({parameters}) {{ return {value}; }}"
