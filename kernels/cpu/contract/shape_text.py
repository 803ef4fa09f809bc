"""Print the constants that instantiate a contraction's template, as the members of a Shape."""

from __future__ import annotations

import math

from graphc.kernels.cpu.contract.index_text import (
    axis_enum,
    axis_name,
    border_names,
    condition,
    constant,
    exists,
    integers,
    linear,
    linear_of,
    loop_lines,
    output_index,
    sum_lines,
    times,
)
from graphc.kernels.cpu.contract.tile import Roles, TileAxis
from graphc.kernels.cpu.contract.tile_schedule import TileSchedule
from graphc.kernels.program.nest import Border, Nest, Quotient, Read
from graphc.ops.pointwise.logic import C_TYPES

SUMS = {"f32": "float", "f64": "double", "i32": "uint32_t", "i64": "uint64_t"}
"""The C++ type of sums by output dtype; integers wrap, so they are unsigned."""


def element(read: Read) -> str:
    """The C++ type of an operand's elements in memory."""
    return SUMS.get(read.type.dtype) or C_TYPES[read.type.dtype]


def shape_lines(schedule: TileSchedule) -> list[str]:
    """`struct Shape`: all members that differ from the template's defaults."""
    roles = schedule.roles
    nest = roles.nest
    lines = ["struct Shape : Defaults {", axis_enum(nest)]
    kinds = {"X": element(roles.x), "Y": element(roles.y), "T": SUMS[nest.node.output.type.dtype]}
    lines += [f"    using {name} = {kind};" for name, kind in kinds.items() if kind != "float"]
    tiles = {"rows": schedule.rows, "outer": schedule.outer, "columns": schedule.columns}
    names = {name: _tile_name(nest, name, tile) for name, tile in tiles.items()}
    lines.append(integers(**{name.upper(): axis for name, axis in names.items()}))
    for name, tile in tiles.items():
        if tile.axis is not None:
            cuts = ", ".join(f"{{{c.start}, {c.tiles}, {c.size}}}" for c in tile.cuts)
            lines.append(f"    static constexpr Cut {name}[] = {{{cuts}}};")
    steps = {"OUTER_STEP": schedule.outer.step, "COLUMN_STEP": schedule.columns.step}
    lines.append(
        integers(ROW_TILES=schedule.rows.tiles, **{k: n for k, n in steps.items() if n > 1})
    )
    loops = [
        (names[a] if isinstance(a, str) else axis_name(nest, a), n, step)
        for a, n, step in schedule.loops
    ]
    lines += loop_lines(loops or [("rows_", 1, 1)])
    lines.append(
        f"    static constexpr long TILES = {schedule.tiles}, GRAIN = {schedule.grain}, "
        f"CHUNKS = {schedule.chunks // schedule.parts};"
    )
    if schedule.parts > 1:
        lines.append(integers(PARTS=schedule.parts))
    if schedule.passes > 1:
        lines.append(integers(PASSES=schedule.passes))
    if roles.sets > 1:
        lines.append(integers(SETS=roles.sets))
    sums = [(a, roles.steps(a), bool(_guards(roles, d))) for d, a in enumerate(roles.sums)]
    lines += sum_lines(sums, nest) if sums else []
    lines.append(
        integers(
            EXTENT=roles.length,
            HEAD=schedule.head,
            MAIN=schedule.main,
            UNROLL=schedule.steps_at_once,
        )
    )
    lines.append(integers(X_LANE=roles.lane_stride(roles.x), Y_LANE=roles.lane_stride(roles.y)))
    groups = {"ROW_SECTIONS": roles.row_sections}
    if roles.window:
        groups |= {"GROUP_OUTER": roles.window[0][1], "GROUP_COLUMNS": roles.window[1][1]}
    elif roles.outer is not None and roles.outer == nest.sections and not roles.lanes_summed:
        groups["GROUP_OUTER"] = nest.section_count
    lines += (
        [integers(**{k: n for k, n in groups.items() if n > 1})] if max(groups.values()) > 1 else []
    )
    if ahead := _prefetch_distance(schedule):
        lines.append(f"    static constexpr long AHEAD = {ahead};")
    if kept := schedule.kept_rows:
        lines.append(integers(X_TILES=kept))
    if roles.pairs:
        assert roles.inner is not None
        nexts = (f"{n}_NEXT = {_pair_step(roles, r)}" for n, r in (("X", roles.x), ("Y", roles.y)))
        lines.append(f"    static constexpr long {', '.join(nexts)};")
        lines.append(integers(LAST=roles.last_pair))
    blocked = roles.packed and roles.y.lanes is not None
    flags = {"LANES_SUMMED": roles.lanes_summed, "PACKED": roles.packed}
    flags |= {"PAIRS": roles.pairs, "Y_BLOCKED": blocked, "AMX": roles.amx, "BYTES": roles.bytes}
    lines += [f"    static constexpr bool {name} = true;" for name, on in flags.items() if on]
    return [*lines, *_addresses(schedule), *_existence(schedule), *_finish(schedule), "};"]


def _addresses(schedule: TileSchedule) -> list[str]:
    roles = schedule.roles
    x, y = roles.x, roles.y
    lines = []
    if row := _row(roles):
        lines.append(constant("row", "int i", row))
    lines += [
        constant("x_step", "int t", _inner_offset(roles, x, "t")),
        constant("y_step", "int t", _inner_offset(roles, y, "t")),
        constant("column", "int o0, int c0, int o, int c, int t", _column(schedule)),
    ]
    for name, read in (("x", x), ("y", y)):
        step = _inner_offset(roles, read, "z")
        lines.append(f"    static long {name}_at(long z) {{ return {step}; }}")
        base = _base(roles, read)
        lines.append(f"    static long {name}_base(const long* at) {{ return {base}; }}")
        offsets = [_sum_offset(roles, read, axis, d) for d, axis in enumerate(roles.sums)]
        lines += _by_depth(f"long {name}_sum", offsets)
    guards = [" && ".join(_conditions(roles, d)) or "true" for d in range(len(roles.sums))]
    if any(g != "true" for g in guards):
        lines += _by_depth("bool guard", guards)
    if roles.moving:
        assert roles.outer is not None
        place = border_names(roles.nest, roles.moving)
        place[roles.outer] += f" + {times(schedule.outer.step, 'o')}"
        test = exists(roles.moving, linear(roles.moving, place))
        lines.append("    static constexpr bool MOVING = true;")
        lines.append(constant("outer_stride", "", str(_unit_stride(roles, y, roles.outer))))
        lines.append(f"    static bool outer_inside(const long* at, int o) {{ return {test}; }}")
    if always := " && ".join(_conditions(roles, -1)):
        lines.append(f"    static bool begin(const long* at) {{ return {always}; }}")
    return lines


def _row(roles: Roles) -> str:
    """The constant offset of X's row i from its unit and section."""
    sections, count = roles.nest.sections, roles.row_sections
    if count == 1:
        return "" if roles.rows is None else times(roles.x.strides[roles.rows], "i")
    assert sections is not None
    units = [] if roles.rows is None else [times(roles.x.strides[roles.rows], f"(i / {count})")]
    return " + ".join([times(roles.x.strides[sections], f"(i % {count})"), *units])


def _prefetch_distance(schedule: TileSchedule) -> int:
    """Elements by which a tile prefetches X ahead where X comes from beyond the second-level cache:
    to the next tile's rows, or to a later block of a summed batch; else 0."""
    roles = schedule.roles
    x, inner = roles.x, roles.inner
    if x.type.nbytes <= roles.target.caches.second or roles.lane_stride(x) or roles.rows is None:
        return 0
    if inner == x.lanes and inner is not None and schedule.main > schedule.head:
        return 2 * x.block
    if inner is None or x.strides[inner] != 1 or not schedule.loops:
        return 0
    axis, _, step = schedule.loops[-1]
    return step * schedule.rows.size * x.strides[roles.rows] if axis == "rows" else 0


def _pair_step(roles: Roles, read: Read) -> int:
    """Elements from the first of a pair, or register of pairs, to the second."""
    inner = roles.inner
    assert inner is not None
    return 1 if inner == read.lanes != roles.lane else _unit_stride(roles, read, inner)


def _conditions(roles: Roles, depth: int) -> list[str]:
    return [condition(roles.nest, b) for b in _guards(roles, depth)]


def _by_depth(name: str, values: list[str]) -> list[str]:
    """A function template over the number of the summed loop."""
    if not values:
        return []
    lines = [f"    template <int D> static {name}(const long* at) {{"]
    for d, value in enumerate(values):
        last = d + 1 == len(values)
        lines.append(f"        {'' if last else f'if constexpr (D == {d}) '}return {value};")
    return [*lines, "    }"]


def _existence(schedule: TileSchedule) -> list[str]:
    """Functions that tell which lanes of Y, X and the output exist."""
    roles = schedule.roles
    place = _static_index(schedule)
    extent = roles.nest.axes[roles.lane].extent
    tail = [f"{place[roles.lane]} < {extent}"] if roles.lane_tail else []
    tests = [_static_condition(b, place) for b in roles.static_borders] + tail
    lines = []
    if tests:
        parameters = "int o0, int c0, int o, int c, int t, int l"
        lines.append(constant("inside", parameters, " && ".join(tests), "bool"))
    if tail and roles.lane_stride(roles.x):
        first = _static_index(schedule, "0", "0")[roles.lane]
        test = f"{first} < {extent}"
        lines.append(constant("x_inside", "int o0, int c0, int t, int l", test, "bool"))
    if tail and not roles.lanes_summed:
        lines.append(constant("present", "int o0, int c0, int o, int c, int l", tail[0], "bool"))
    partial = extent % roles.width
    if partial and not roles.lane_tail and not roles.lanes_summed:
        # Lanes beyond the batch exist in every operand, but no value may be written there.
        test = f"{_kept_index(schedule)[roles.lane]} + {roles.width} > {extent}"
        lines.append(integers(LAST_LANES=partial))
        lines.append(f"    static bool last(const long* at, int o, int c) {{ return {test}; }}")
    return lines


def _finish(schedule: TileSchedule) -> list[str]:
    roles = schedule.roles
    nest = roles.nest
    direct = not roles.lanes_summed and schedule.parts == 1
    moved = _kept_index(schedule, direct)
    places = nest.section_place if direct else nest.output
    indices = [output_index(nest, place.coefficients, moved) for place in places]
    if roles.window:
        (p, rows), (q, columns) = roles.window
        indices[2] = f"at[{axis_name(nest, p)}] / {rows}"
        indices[3] = f"at[{axis_name(nest, q)}] / {columns} + c"
    together = direct and (roles.window or nest.sections is not None)
    element = C_TYPES[nest.node.output.type.dtype]
    sums = f"const vec<{element}>* sum" if together else f"vec<{element}> sum"
    head = (
        "    template <int N, class E>\n    static INLINE void finish(const E& epilogue, "
        f"{sums}, const long* at, int i, int o, int c) {{"
    )
    if direct:
        call = f"        epilogue.template operator()<N>(sum, {', '.join(indices)});"
        return [head, call, "    }"]
    shape = nest.node.output.type.shape
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    place = " + ".join(times(s, f"({e})") for s, e in zip(strides, indices, strict=True))
    if schedule.parts > 1:
        place += f" + at[AXES] * {math.prod(shape)}"
    lines = [f"    static long place(const long* at, int i, int o, int c) {{ return {place}; }}"]
    if roles.lanes_summed:
        return lines
    lane = sum(s * p.coefficients[roles.lane] for s, p in zip(strides, nest.output, strict=True))
    lines += [head, f"        store<N, {lane}>(epilogue.out + place(at, i, o, c), sum);", "    }"]
    return lines


def _column(schedule: TileSchedule) -> str:
    """The constant offset of Y's column (o, c) in inner step t within its tile."""
    roles = schedule.roles
    y = roles.y
    terms = [_inner_offset(roles, y, "t")]
    for name, tile in (("o", schedule.outer), ("c", schedule.columns)):
        if tile.axis is not None:
            terms.append(times(_unit_stride(roles, y, tile.axis), name))
    place = _static_index(schedule)
    for quotient in _static_quotients(roles):
        border = quotient.border
        here = linear(border, {a: place[a] for a in border.axes})
        start = linear_of({a: s for a, s in _starts(schedule).items() if a in border.axes}, border)
        difference = f"(floor_div({here}, {border.divisor}) - floor_div({start}, {border.divisor}))"
        terms.append(times(quotient.stride, difference))
    return " + ".join(t for t in terms if t != "0") or "0"


def _unit_stride(roles: Roles, read: Read, axis: int) -> int:
    """Elements from one row or register to the next along `axis`."""
    if axis == read.lanes:
        assert axis == roles.lane
        return read.block
    return read.strides[axis] * (roles.width if axis == roles.lane else 1)


def _starts(schedule: TileSchedule) -> dict[int, str]:
    tiles = ((schedule.outer, "o0"), (schedule.columns, "c0"))
    return {tile.axis: name for tile, name in tiles if tile.axis is not None}


def _static_index(schedule: TileSchedule, o: str = "o", c: str = "c") -> dict[int, str]:
    """Logical indices of the static axes as expressions of o0, c0, o, c, t and l."""
    roles = schedule.roles
    index = {}
    if roles.inner is not None:
        step = 2 if roles.pairs else 1
        index[roles.inner] = times(step * (roles.width if roles.inner == roles.lane else 1), "t")
    for tile, start, unit in ((schedule.outer, "o0", o), (schedule.columns, "c0", c)):
        if tile.axis is not None:
            index[tile.axis] = f"{start} + {times(tile.step, unit)}"
    index[roles.lane] = f"{index[roles.lane]} + l" if roles.lane in index else "l"
    return index


def _kept_index(schedule: TileSchedule, together: bool = True) -> dict[int, str]:
    """Logical indices of the kept axes of register (i, o, c). With `together` i counts units of
    `rows` that the epilogue combines, else registers."""
    nest, count = schedule.roles.nest, schedule.roles.row_sections
    index = {a: f"at[{axis_name(nest, a)}]" for a in nest.kept}
    row = "i"
    if count > 1 and not together:
        assert nest.sections is not None
        row = f"i / {count}"
        index[nest.sections] += f" + i % {count}"
    for tile, unit in ((schedule.rows, row), (schedule.outer, "o"), (schedule.columns, "c")):
        if tile.axis is not None:
            index[tile.axis] += f" + {times(tile.step, unit)}"
    return index


def _inner_offset(roles: Roles, read: Read, t: str) -> str:
    axis = roles.inner
    if axis is None:
        return "0"
    t = f"(2 * {t})" if roles.pairs else t
    if axis == read.lanes and axis != roles.lane:
        return f"{t} / {read.width} * {read.block} + {t} % {read.width}"
    return times(_unit_stride(roles, read, axis), t)


def _base(roles: Roles, read: Read) -> str:
    """The address of a tile, from the kept axes alone."""
    nest = roles.nest
    terms = [str(read.offset)] if read.offset else []
    for axis in nest.kept:
        name = f"at[{axis_name(nest, axis)}]"
        if axis == read.lanes:
            terms.append(times(read.block // read.width, name))
        else:
            terms.append(times(read.strides[axis], name))
    for quotient in read.quotients:
        border = quotient.border
        if quotient in _static_quotients(roles):
            tile = {
                a: f"at[{axis_name(nest, a)}]"
                for a in border.axes
                if a in (roles.outer, roles.columns)
            }
            value = linear_of(tile, border)
        elif not set(border.axes) & set(roles.sums):
            value = linear(border, border_names(nest, border))
        else:
            continue
        terms.append(times(quotient.stride, f"floor_div({value}, {border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def _sum_offset(roles: Roles, read: Read, axis: int, depth: int) -> str:
    nest = roles.nest
    name = f"at[{axis_name(nest, axis)}]"
    if axis == read.lanes and axis != roles.lane:
        terms = [f"{name} / {read.width} * {read.block} + {name} % {read.width}"]
    else:
        terms = [times(_unit_stride(roles, read, axis), name)]
    for quotient in read.quotients:
        border = quotient.border
        if quotient in _static_quotients(roles) or _depth(roles, border) != depth:
            continue
        value = linear(border, border_names(nest, border))
        terms.append(times(quotient.stride, f"floor_div({value}, {border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def _static_quotients(roles: Roles) -> tuple[Quotient, ...]:
    return tuple(q for q in roles.y.quotients if q.border.axes & roles.static)


def _depth(roles: Roles, border: Border) -> int:
    """The number of the innermost summed loop that decides `border`; -1 if none does."""
    return max((d for d, a in enumerate(roles.sums) if a in border.axes), default=-1)


def _guards(roles: Roles, depth: int) -> list[Border]:
    elsewhere = (*roles.static_borders, roles.moving)
    borders = (*roles.x.borders, *(b for b in roles.y.borders if b not in elsewhere))
    return [b for b in borders if _depth(roles, b) == depth]


def _static_condition(border: Border, place: dict[int, str]) -> str:
    return exists(border, linear(border, {a: place[a] for a in sorted(border.axes)}))


def _tile_name(nest: Nest, name: str, tile: TileAxis) -> str:
    return f"{name}_" if tile.axis is None else axis_name(nest, tile.axis)
