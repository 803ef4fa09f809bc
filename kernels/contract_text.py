"""The C++ text of a contraction kernel: a Shape of constants, an epilogue functor, the shell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from graphc.ir import Node
from graphc.kernels.contract_epilogue import Epilogue, Finish
from graphc.kernels.expression import C_TYPES, Program, identifier
from graphc.kernels.nest import Border, Nest, Quotient, Read
from graphc.kernels.schedule import Roles, Schedule, TileAxis
from graphc.kernels.shell import array_dtypes, array_text, head
from graphc.ops.fused import Fused


def tiled_text(
    node: Node, schedule: Schedule, epilogue: Epilogue | None = None, finish: Finish | None = None
) -> str:
    """A kernel of register tiles. With `epilogue` it is applied to the registers; otherwise the
    sums are stored in the output's order: into the output, or into the workspace for `finish`."""
    op = node.op
    assert isinstance(op, Fused)
    body, roles = op.body, schedule.roles
    arguments = len(body.inputs) + len(body.outputs)
    out = arguments if finish else len(body.inputs)
    programs = [e.program for e in (epilogue, finish and finish.epilogue) if e]
    lines = [*_head(node, *programs), *_shape(schedule)]
    if epilogue:
        lines += _functor("Epilogue", epilogue, _sum_parameters(epilogue), ())
    else:
        lines += ["struct Epilogue {", "    float* out;", "};"]
    if finish:
        lines += _finish_functor(finish)
    lines += _shell(op.kernel)
    setup = _setup("Epilogue", epilogue, out)
    x, y = (f"(const float*)arguments[{r.input}]" for r in (roles.x, roles.y))
    first = f"contract::run<Shape>({x}, {y}, chunk, {setup});"
    if not finish:
        return "\n".join([*lines, f"    {first}", "}", ""])
    rows, lane = _rows_and_lane(finish)
    second = (
        f"contract::over<{rows}, {lane}, {finish.chunks}>"
        f"(chunk, {_setup('Finish', finish.epilogue, out, 'const float*')});"
    )
    lines += ["    if (phase == 0)", f"        {first}", "    else", f"        {second}", "}", ""]
    return "\n".join(lines)


def plain_text(
    node: Node,
    nest: Nest,
    lane: int,
    width: int,
    registers: int,
    chunks: int,
    epilogue: Epilogue,
) -> str:
    """A kernel that sums lane by lane and checks every read."""
    op = node.op
    assert isinstance(op, Fused)
    dtype = C_TYPES[nest.node.output.type.dtype]
    lines = [*_head(node, epilogue.program), "struct Nest {", *_enum(nest)]
    lines.append(f"    using T = {dtype};")
    lines += _sums([(a, nest.axes[a].extent, False) for a in nest.summed], nest)
    loops = [
        (a, -(-nest.axes[a].extent // width), width) if a == lane else (a, nest.axes[a].extent, 1)
        for a in nest.kept
    ]
    lines += _loops([(_name(nest, a), n, step) for a, n, step in loops])
    lines.append(f"    static constexpr index TILES = {registers}, CHUNKS = {chunks};")
    lines.append(
        f"    static constexpr int LANE = {_name(nest, lane)}, "
        f"LANE_EXTENT = {nest.axes[lane].extent};"
    )
    lines.append("    static T product(const T* a, const T* b, const index* at) {")
    for read in (nest.a, nest.b):
        lines += [f"        if (!({_condition(nest, b)})) return T(0);" for b in read.borders]
    lines.append(f"        return a[{_full_address(nest, nest.a)}] * b[{_full_address(nest, nest.b)}];")
    lines.append("    }")
    indices = ", ".join(_output_index(nest, place.coefficients, {}) for place in nest.output)
    lines.append("    template <int N, class E>")
    lines.append("    static void finish(const E& epilogue, vec<T> sum, const index* at) {")
    lines.append(f"        epilogue.template operator()<N>(sum, {indices});")
    lines += ["    }", "};"]
    lines += _functor("Epilogue", epilogue, _sum_parameters(epilogue, dtype), ())
    lines += _shell(op.kernel)
    a, b = (f"(const {dtype}*)arguments[{r.input}]" for r in (nest.a, nest.b))
    lines.append(f"    contract::plain<Nest>({a}, {b}, chunk, {_setup('Epilogue', epilogue, 0)});")
    return "\n".join([*lines, "}", ""])


# ---- the parts of a Shape ------------------------------------------------------------------------


def _shape(schedule: Schedule) -> list[str]:
    roles = schedule.roles
    nest = roles.nest
    lines = ["struct Shape {", *_enum(nest)]
    tiles = (("rows", schedule.rows), ("outer", schedule.outer), ("columns", schedule.columns))
    for name, tile in tiles:
        cuts = ", ".join(f"{{{c.start}, {c.tiles}, {c.size}}}" for c in tile.cuts)
        axis = _tile_name(nest, name, tile)
        lines.append(f"    static constexpr int {name.upper()} = {axis};")
        lines.append(f"    static constexpr Cut {name}[] = {{{cuts}}};")
    lines.append(
        f"    static constexpr int ROW_TILES = {schedule.rows.tiles}, "
        f"OUTER_STEP = {schedule.outer.step}, COLUMN_STEP = {schedule.columns.step};"
    )
    named = dict(tiles)
    loops = [
        (_tile_name(nest, a, named[a]) if isinstance(a, str) else _name(nest, a), n, step)
        for a, n, step in schedule.loops
    ] or [("rows_", 1, 1)]
    lines += _loops(loops)
    lines.append(
        f"    static constexpr index TILES = {schedule.tiles}, GRAIN = {schedule.grain}, "
        f"CHUNKS = {schedule.chunks // schedule.parts}, PARTS = {schedule.parts};"
    )
    lines += _sums([(a, roles.steps(a), bool(_guards(roles, d))) for d, a in enumerate(roles.sums)], nest)
    lines.append(
        f"    static constexpr int EXTENT = {roles.length}, HEAD = {schedule.head}, "
        f"MAIN = {schedule.main}, UNROLL = {schedule.unroll};"
    )
    lines.append(
        f"    static constexpr int X_LANE = {roles.lane_stride(roles.x)}, "
        f"Y_LANE = {roles.lane_stride(roles.y)};"
    )
    summed = "true" if roles.lanes_summed else "false"
    lines.append(f"    static constexpr bool LANES_SUMMED = {summed};")
    lines += _addresses(schedule)
    lines += _existence(schedule)
    lines += _finish(schedule)
    return [*lines, "};"]


def _addresses(schedule: Schedule) -> list[str]:
    roles = schedule.roles
    nest, x, y = roles.nest, roles.x, roles.y
    row = x.strides[roles.rows] if roles.rows is not None else 0
    lines = [
        _constant("row", "int i", _times(row, "i")),
        _constant("x_step", "int t", _inner_offset(roles, x, "t")),
        _constant("y_step", "int t", _inner_offset(roles, y, "t")),
        _constant("column", "int o0, int c0, int o, int c, int t", _column(schedule)),
    ]
    for name, read in (("x", x), ("y", y)):
        step = _inner_offset(roles, read, "z", "index")
        lines.append(f"    static index {name}_at(index z) {{ return {step}; }}")
        base = _base(roles, read)
        lines.append(f"    static index {name}_base(const index* at) {{ return {base}; }}")
        lines.append(f"    template <int D> static index {name}_sum(const index* at) {{")
        for d, axis in enumerate(roles.sums):
            lines.append(
                f"        if constexpr (D == {d}) return {_sum_offset(roles, read, axis, d)};"
            )
        lines += ["        return 0;", "    }"]
    lines.append("    template <int D> static bool guard(const index* at) {")
    for d in range(len(roles.sums)):
        if guards := _guards(roles, d):
            text = " && ".join(_condition(nest, b) for b in guards)
            lines.append(f"        if constexpr (D == {d}) return {text};")
    lines += ["        return true;", "    }"]
    always = " && ".join(_condition(nest, b) for b in _guards(roles, -1)) or "true"
    lines.append(f"    static bool begin(const index* at) {{ return {always}; }}")
    return lines


def _existence(schedule: Schedule) -> list[str]:
    """Which lanes of Y, of X and of the output there are."""
    roles = schedule.roles
    nest = roles.nest
    place = _static_index(schedule)
    tests = [_static_condition(b, place) for b in roles.static_borders]
    extent = nest.axes[roles.lane].extent
    tail = [f"{place[roles.lane]} < {extent}"] if roles.lane_tail else []
    everything = " && ".join(tests + tail) or "true"
    kept = " && ".join(tail) if tail and not roles.lanes_summed else "true"
    of_x = " && ".join(tail) or "true"
    lines = [
        "    static constexpr bool inside(int o0, int c0, int o, int c, int t, int l) {",
        f"        return {everything};",
        "    }",
        "    static constexpr bool x_inside(int o0, int c0, int t, int l) {",
        "        const int o = 0, c = 0;",
        f"        return {of_x};",
        "    }",
        "    static constexpr bool present(int o0, int c0, int o, int c, int l) {",
        f"        return {kept};",
        "    }",
    ]
    # Lanes beyond the batch exist in every operand but must not be written as values.
    partial = extent % roles.width
    runtime = partial and not roles.lane_tail and not roles.lanes_summed
    lines.append(f"    static constexpr int LAST_LANES = {partial if runtime else 'W'};")
    last = _kept_index(schedule)[roles.lane] if runtime else ""
    test = f"{last} + {roles.width} > {extent}" if runtime else "false"
    lines.append(f"    static bool last(const index* at, int o, int c) {{ return {test}; }}")
    return lines


def _finish(schedule: Schedule) -> list[str]:
    roles = schedule.roles
    nest = roles.nest
    moved = _kept_index(schedule)
    indices = [_output_index(nest, place.coefficients, moved) for place in nest.output]
    head = (
        "    template <int N, class E>\n    static INLINE void finish(const E& epilogue, "
        "vec<float> sum, const index* at, int i, int o, int c) {"
    )
    if not roles.lanes_summed and schedule.parts == 1:
        call = f"        epilogue.template operator()<N>(sum, {', '.join(indices)});"
        return [head, call, "    }"]
    shape = nest.node.output.type.shape
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    place = " + ".join(_times(s, f"({e})") for s, e in zip(strides, indices, strict=True))
    if schedule.parts > 1:
        place += f" + at[AXES] * {math.prod(shape)}"
    lines = [f"    static index place(const index* at, int i, int o, int c) {{ return {place}; }}"]
    if roles.lanes_summed:
        return lines
    lane = sum(
        s * p.coefficients[roles.lane] for s, p in zip(strides, nest.output, strict=True)
    )
    lines += [head, f"        store<N, {lane}>(epilogue.out + place(at, i, o, c), sum);", "    }"]
    return lines


def _column(schedule: Schedule) -> str:
    """The constant offset of Y's column (o, c) in inner step t, from the tile's own."""
    roles = schedule.roles
    y = roles.y
    terms = [_inner_offset(roles, y, "t")]
    for name, tile in (("o", schedule.outer), ("c", schedule.columns)):
        if tile.axis is not None:
            terms.append(_times(_unit_stride(roles, y, tile.axis), name))
    place = _static_index(schedule)
    for quotient in _static_quotients(roles):
        border = quotient.border
        here = _linear(border, {a: place[a] for a in border.axes})
        start = _linear_of({a: s for a, s in _starts(schedule).items() if a in border.axes}, border)
        difference = f"(floor_div({here}, {border.divisor}) - floor_div({start}, {border.divisor}))"
        terms.append(_times(quotient.stride, difference))
    return " + ".join(t for t in terms if t != "0") or "0"


# ---- indices and addresses -------------------------------------------------------------------------


def _unit_stride(roles: Roles, read: Read, axis: int) -> int:
    """Elements from one row or register to the next along `axis`."""
    if axis == read.lanes:
        assert axis == roles.lane
        return read.block
    return read.strides[axis] * (roles.width if axis == roles.lane else 1)


def _starts(schedule: Schedule) -> dict[int, str]:
    tiles = ((schedule.outer, "o0"), (schedule.columns, "c0"))
    return {tile.axis: name for tile, name in tiles if tile.axis is not None}


def _digits(roles: Roles, t: str) -> dict[int, str]:
    """The units of each inner axis in step t."""
    digits: dict[int, str] = {}
    if len(roles.inner) == 1:
        digits[roles.inner[0]] = t
    elif roles.inner:
        outer, inner = roles.inner
        n = roles.steps(inner)
        digits = {outer: f"({t} / {n})", inner: f"({t} % {n})"}
    return digits


def _static_index(schedule: Schedule) -> dict[int, str]:
    """Logical indices of the static axes, as expressions of o0, c0, o, c, t and l."""
    roles = schedule.roles
    index = {a: _times(roles.width if a == roles.lane else 1, t) for a, t in _digits(roles, "t").items()}
    for tile, start, unit in ((schedule.outer, "o0", "o"), (schedule.columns, "c0", "c")):
        if tile.axis is not None:
            index[tile.axis] = f"{start} + {_times(tile.step, unit)}"
    index[roles.lane] = f"{index[roles.lane]} + l" if roles.lane in index else "l"
    return index


def _kept_index(schedule: Schedule) -> dict[int, str]:
    """Logical indices of the kept axes of register (i, o, c)."""
    nest = schedule.roles.nest
    index = {a: f"at[{_name(nest, a)}]" for a in nest.kept}
    for tile, unit in ((schedule.rows, "i"), (schedule.outer, "o"), (schedule.columns, "c")):
        if tile.axis is not None:
            index[tile.axis] += f" + {_times(tile.step, unit)}"
    return index


def _inner_offset(roles: Roles, read: Read, t: str, kind: str = "int") -> str:
    terms = []
    for axis, digit in _digits(roles, t).items():
        if axis == read.lanes and axis != roles.lane:
            terms.append(f"{digit} / {read.width} * {read.block} + {digit} % {read.width}")
        else:
            terms.append(_times(_unit_stride(roles, read, axis), digit))
    return " + ".join(x for x in terms if x != "0") or "0"


def _base(roles: Roles, read: Read) -> str:
    """The address of a tile, from the kept axes alone."""
    nest = roles.nest
    terms = [str(read.offset)] if read.offset else []
    for axis in nest.kept:
        name = f"at[{_name(nest, axis)}]"
        if axis == read.lanes:
            terms.append(_times(read.block // read.width, name))
        else:
            terms.append(_times(read.strides[axis], name))
    for quotient in read.quotients:
        border = quotient.border
        if quotient in _static_quotients(roles):
            tile = {a: f"at[{_name(nest, a)}]" for a in border.axes if a in (roles.outer, roles.columns)}
            value = _linear_of(tile, border)
        elif not set(border.axes) & set(roles.sums):
            value = _linear(border, _names(nest, border))
        else:
            continue
        terms.append(_times(quotient.stride, f"floor_div({value}, {border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def _sum_offset(roles: Roles, read: Read, axis: int, depth: int) -> str:
    nest = roles.nest
    name = f"at[{_name(nest, axis)}]"
    if axis == read.lanes and axis != roles.lane:
        terms = [f"{name} / {read.width} * {read.block} + {name} % {read.width}"]
    else:
        terms = [_times(_unit_stride(roles, read, axis), name)]
    for quotient in read.quotients:
        border = quotient.border
        if quotient in _static_quotients(roles) or _depth(roles, border) != depth:
            continue
        value = _linear(border, _names(nest, border))
        terms.append(_times(quotient.stride, f"floor_div({value}, {border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def _static_quotients(roles: Roles) -> tuple[Quotient, ...]:
    return tuple(q for q in roles.y.quotients if q.border.axes & roles.static)


def _depth(roles: Roles, border: Border) -> int:
    """The number of the innermost summed loop that decides `border`; -1 if none does."""
    return max((d for d, a in enumerate(roles.sums) if a in border.axes), default=-1)


def _guards(roles: Roles, depth: int) -> list[Border]:
    borders = (*roles.x.borders, *(b for b in roles.y.borders if b not in roles.static_borders))
    return [b for b in borders if _depth(roles, b) == depth]


def _linear(border: Border, names: dict[int, str]) -> str:
    return _linear_of(names, border, border.offset)


def _linear_of(names: dict[int, str], border: Border, offset: int = 0) -> str:
    terms = [_times(border.coefficients[a], f"({n})") for a, n in names.items()]
    if offset or not terms:
        terms.append(str(offset))
    return " + ".join(terms)


def _names(nest: Nest, border: Border) -> dict[int, str]:
    return {a: f"at[{_name(nest, a)}]" for a in sorted(border.axes)}


def _condition(nest: Nest, border: Border) -> str:
    return _exists(border, _linear(border, _names(nest, border)))


def _static_condition(border: Border, place: dict[int, str]) -> str:
    return _exists(border, _linear(border, {a: place[a] for a in sorted(border.axes)}))


def _exists(border: Border, value: str) -> str:
    return f"exists({value}, {border.extent * border.divisor}, {border.divisor})"


def _full_address(nest: Nest, read: Read) -> str:
    terms = [str(read.offset)] if read.offset else []
    for axis in range(len(nest.axes)):
        name = f"at[{_name(nest, axis)}]"
        if axis == read.lanes:
            terms.append(f"{name} / {read.width} * {read.block} + {name} % {read.width}")
        else:
            terms.append(_times(read.strides[axis], name))
    for quotient in read.quotients:
        value = _linear(quotient.border, _names(nest, quotient.border))
        terms.append(_times(quotient.stride, f"floor_div({value}, {quotient.border.divisor})"))
    return " + ".join(t for t in terms if t != "0") or "0"


def _output_index(nest: Nest, coefficients: Sequence[int], moved: dict[int, str]) -> str:
    terms = []
    for axis, c in enumerate(coefficients):
        if c:
            name = moved.get(axis, f"at[{_name(nest, axis)}]")
            terms.append(name if c == 1 else f"{c} * ({name})")
    return " + ".join(terms) or "0"


def _times(factor: int, name: str) -> str:
    if factor == 0:
        return "0"
    if factor == 1:
        return name
    plain = name.replace("_", "").isalnum() or (name[0] == "(" and name[-1] == ")")
    plain = plain or name.startswith(("at[", "floor_div(")) and " + " not in name.split("(")[0]
    return f"{factor} * {name if plain else f'({name})'}"


# ---- text around it ----------------------------------------------------------------------------------


def _head(node: Node, *programs: Program) -> list[str]:
    """The provenance, the headers that the statements need, and their constant arrays."""
    text = " ".join(s.template for p in programs for s in p.statements if s.kind != "store")
    needed = {"elementary": "compute" in {s.kind for p in programs for s in p.statements}}
    needed["random"] = "philox" in text
    lines = [head(node, "contract", *(h for h, used in needed.items() if used)).rstrip()]
    lines += ["using namespace graphc::contract;", "namespace {"]
    for program in programs:
        lines += array_text(program.arrays, array_dtypes(program)).splitlines()
    return lines


def _shell(kernel: str) -> list[str]:
    return [
        "}  // namespace",
        f'extern "C" void {kernel}(void* const* arguments, int phase, int chunk) {{',
        "    (void)phase;",
    ]


def _enum(nest: Nest) -> list[str]:
    names = [_name(nest, a) for a in range(len(nest.axes))]
    return [f"    enum {{ {', '.join(names)}, rows_, outer_, columns_, AXES }};"]


def _name(nest: Nest, axis: int) -> str:
    return f"i_{identifier(nest.axes[axis].name)}"


def _tile_name(nest: Nest, name: str, tile: TileAxis) -> str:
    return f"{name}_" if tile.axis is None else _name(nest, tile.axis)


def _loops(loops: Iterable[tuple[str, int, int]]) -> list[str]:
    loops = list(loops)
    entries = ", ".join(f"{{{name}, {count}, {step}}}" for name, count, step in loops)
    return [
        f"    static constexpr int LOOPS = {len(loops)};",
        f"    static constexpr Loop loops[] = {{{entries}}};",
    ]


def _sums(sums: list[tuple[int, int, bool]], nest: Nest) -> list[str]:
    entries = ", ".join(
        f"{{{_name(nest, a)}, {n}, {'true' if guarded else 'false'}}}" for a, n, guarded in sums
    )
    return [
        f"    static constexpr int DEPTH = {len(sums)};",
        f"    static constexpr Sum sums[] = {{{entries or '{0, 1, false}'}}};",
    ]


def _constant(name: str, parameters: str, value: str) -> str:
    return f"    static constexpr int {name}({parameters}) {{ return {value}; }}"


def _sum_parameters(epilogue: Epilogue, dtype: str = "float") -> str:
    return f"vec<{dtype}> sum, " + ", ".join(f"index e{d}" for d in range(epilogue.domain.rank))


def _functor(
    name: str, epilogue: Epilogue, parameters: str, first: Iterable[str], fields: Iterable[str] = ()
) -> list[str]:
    lines = [f"struct {name} {{", *(f"    {f};" for f in fields)]
    lines += [f"    {kind}* {pointer};" for pointer, _, kind in epilogue.pointers]
    lines += ["    template <int N>", f"    INLINE void operator()({parameters}) const {{"]
    indices = [f"e{d}" for d in range(epilogue.domain.rank)]
    lines += [f"        {line}" for line in (*first, *epilogue.program.lines(indices))]
    return [*lines, "    }", "};"]


def _finish_functor(finish: Finish) -> list[str]:
    domain = finish.epilogue.domain
    first, rest = [], "row"
    for axis in reversed([d for d in range(domain.rank) if d != domain.lane]):
        first.append(f"const index e{axis} = {rest} % {domain.extents[axis]};")
        rest = f"{rest} / {domain.extents[axis]}"
    parameters = "index row, index lane"
    if domain.lane is not None:
        first.append(f"const index e{domain.lane} = lane;")
    return _functor("Finish", finish.epilogue, parameters, first, ["const float* workspace"])


def _rows_and_lane(finish: Finish) -> tuple[int, int]:
    domain = finish.epilogue.domain
    assert domain.lane is not None
    lane = domain.extents[domain.lane]
    return math.prod(domain.extents) // max(1, lane), lane


def _setup(name: str, epilogue: Epilogue | None, out: int, workspace: str = "") -> str:
    fields = [f"({workspace})arguments[{out}]"] if workspace else []
    if epilogue is None:
        fields = [f"(float*)arguments[{out}]"]
    else:
        fields += [f"({kind}*)arguments[{i}]" for _, i, kind in epilogue.pointers]
    return f"{name}{{{', '.join(fields)}}}"
