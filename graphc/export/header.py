"""The C header of an export, and the file that plays its plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.export.calls import body_of
from graphc.export.interface import Function, Port
from graphc.export.memory import CONSTANTS, STATE, Block, Memory
from graphc.export.names import c_type, commented, described
from graphc.export.sources import Kernels, declarations
from graphc.export.targets import Machine

ERRORS = (
    ("OK", "done"),
    ("ERROR_NULL", "a pointer is null"),
    ("ERROR_ALIGNMENT", "the arena or the state does not begin at a multiple of 64 bytes"),
    ("ERROR_SIZE", "the weights or the saved state are too short"),
    ("ERROR_FORMAT", "these bytes are no weights or no state"),
    ("ERROR_PROGRAM", "the weights or the state are those of another program"),
    ("ERROR_CHECKSUM", "the weights or the state are damaged"),
)
"""Error codes, from 0 on."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What every export consists of."""

    name: str
    """The prefix of its names in C, and the name of its header."""
    functions: Sequence[Function]
    memory: Memory
    flush: bool
    """Whether denormals count as zeros."""
    weights_in_code: bool
    """Whether the weights are also a C array."""
    version: str
    """The version of graphc."""

    @property
    def upper(self) -> str:
        """The prefix of its macros."""
        return self.name.upper()

    @property
    def weights_bytes(self) -> int:
        """The size of the weights' file."""
        return self.memory.state.size + self.memory.constants.size


@dataclass(frozen=True, kw_only=True)
class Module(Exported):
    """An export for a CPU."""

    machine: Machine
    kernels: Kernels
    threads: bool
    """Whether chunks of kernels run on several threads."""


def header_text(module: Module) -> str:
    """Return NAME.h."""
    return "\n".join(_header(module)) + "\n"


def model_text(module: Module) -> str:
    """Return model.cpp."""
    name, upper, memory = module.name, module.upper, module.memory
    codes = "\n".join(
        f"    case {found}: return {upper}_{code};"
        for found, code in (
            ("good", "OK"),
            ("too_short", "ERROR_SIZE"),
            ("no_block", "ERROR_FORMAT"),
            ("other_program", "ERROR_PROGRAM"),
            ("damaged", "ERROR_CHECKSUM"),
        )
    )
    pool = "\n  model->pool = 0;" if module.threads else ""
    constants = ""
    if memory.constants.size:
        constants = f"""  const size_t before = {upper}_STATE_BYTES;
  const unsigned char* constants = (const unsigned char*)weights + before;
  const int found = examined(constants, size < before ? 0 : size - before, {CONSTANTS},
                             constants_digest, {upper}_WEIGHTS_BYTES - before);
  if (found != {upper}_OK) return found;
"""
    parts = [
        f"// {name}: the plan as a list of calls, for {module.machine.name}. Made by graphc "
        f"{module.version}.",
        f'#include "{name}.h"',
        "",
        '#include "graphc/mode.h"',
        '#include "graphc/state.h"',
        *(['#include "graphc/pool.h"'] if module.threads else []),
        "",
        '#define HIDDEN extern "C" __attribute__((visibility("hidden")))',
        declarations(module.kernels.kernels),
        "namespace {",
        "",
        f"const unsigned char state_digest[32] = {bytes_text(memory.state.digest)};",
        *(
            [f"const unsigned char constants_digest[32] = {bytes_text(memory.constants.digest)};"]
            if memory.constants.size
            else []
        ),
        "",
        f"""int examined(const unsigned char* block, size_t size, uint32_t kind,
             const unsigned char* digest, size_t bytes) {{
  switch (examine(block, size, kind, digest, bytes)) {{
{codes}
  }}
  return {upper}_ERROR_FORMAT;
}}
""",
        _PLAY_POOLED if module.threads else _PLAY,
        *(_play_function(module, function) for function in module.functions),
        "}  // namespace",
        "",
        f"""int {name}_init({name}* model, void* arena, void* state, const void* weights,
                size_t size) {{
  if (!model || !arena || !state || !weights) return {upper}_ERROR_NULL;
  if ((uintptr_t)arena % 64 || (uintptr_t)state % 64) return {upper}_ERROR_ALIGNMENT;
{constants}  model->arena = (unsigned char*)arena;
  model->state = (unsigned char*)state;
  model->constants = {"constants" if memory.constants.size else "0"};{pool}
  return {name}_restore(model, weights, size);
}}

const void* {name}_save({name}* model) {{
  seal(model->state, {upper}_STATE_BYTES);
  return model->state;
}}

int {name}_restore({name}* model, const void* saved, size_t size) {{
  if (!model || !saved) return {upper}_ERROR_NULL;
  const int found = examined((const unsigned char*)saved, size, {STATE}, state_digest,
                             {upper}_STATE_BYTES);
  if (found != {upper}_OK) return found;
  if (saved != model->state) __builtin_memcpy(model->state, saved, {upper}_STATE_BYTES);
  return {upper}_OK;
}}
""",
        *([_pool_functions(module)] if module.threads else []),
        *(_run_function(module, function) for function in module.functions),
    ]
    return "\n".join(parts)


_PLAY = """typedef void Kernel(void* const* arguments, int phase, int chunk);

// All chunks of one phase of a kernel, one after the other.
__attribute__((noinline)) void play(Kernel* kernel, void* const* arguments, int phase, int chunks) {
  for (int chunk = 0; chunk < chunks; chunk++) kernel(arguments, phase, chunk);
}
#define PLAY(kernel, arguments, phase, chunks) play(kernel, arguments, phase, chunks)
"""
_PLAY_POOLED = """#define PLAY(kernel, arguments, phase, chunks) \\
  play(model->pool, kernel, arguments, phase, chunks)
"""


def _pool_functions(module: Module) -> str:
    name, upper = module.name, module.upper
    return f"""int {name}_start({name}* model, void* pool, int threads) {{
  static_assert(sizeof(Pool) <= {upper}_POOL_BYTES);
  if (!model || !pool || (uintptr_t)pool % 64) return 0;
  model->pool = pool;
  return start(pool, threads);
}}

void {name}_stop({name}* model) {{
  if (!model || !model->pool) return;
  stop(model->pool);
  model->pool = nullptr;
}}
"""


def _play_function(module: Module, function: Function) -> str:
    memory, bases = module.memory, ["  char* const work = (char*)model->arena;"]
    text = body_of(function, memory, module.kernels.of(function.entry))
    for base in ("state", "constants"):
        if f"{base} +" in text:
            bases.append(f"  char* const {base} = (char*)model->{base};")
    if "work" not in text:
        bases.pop(0)
    return f"""void play_{function.symbol}([[maybe_unused]] {module.name}* model,
    [[maybe_unused]] const {function.symbol}_inputs* inputs,
    [[maybe_unused]] const {function.symbol}_outputs* outputs) {{
{chr(10).join(bases)}
{text}
}}
"""


def _run_function(module: Module, function: Function) -> str:
    nulls = " || ".join(
        f"!{side}->{port.symbol}"
        for side, ports in function.sides
        for port in ports
        if port.type.size
    )
    check = f"\n  if ({nulls}) return {module.upper}_ERROR_NULL;" if nulls else ""
    return f"""int {function.symbol}({module.name}* model, const {function.symbol}_inputs* inputs,
    const {function.symbol}_outputs* outputs) {{
  if (!model || !inputs || !outputs) return {module.upper}_ERROR_NULL;{check}
  const FloatingPointMode mode;
  play_{function.symbol}(model, inputs, outputs);
  return {module.upper}_OK;
}}
"""


def _header(module: Module) -> Iterator[str]:
    name, upper, memory = module.name, module.upper, module.memory
    what = ", ".join(f"{f.entry.name} ({f.entry.program.name})" for f in module.functions)
    yield f"/* {name}: {what}, for {module.machine.title}. Made by graphc {module.version}."
    yield ""
    yield "   All memory is the caller's. Nothing is allocated. A model must not be used by two"
    yield "   threads at once; several models may. README.md has an example. */"
    yield f"#ifndef {upper}_H"
    yield f"#define {upper}_H"
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield "#ifdef __cplusplus"
    yield 'extern "C" {'
    yield "#endif"
    yield ""
    yield "/* Bytes of the caller's memory. */"
    yield f"#define {upper}_ARENA_BYTES {memory.arena} /* holds nothing between calls */"
    yield f"#define {upper}_STATE_BYTES {memory.state.size}"
    yield f"#define {upper}_WEIGHTS_BYTES {module.weights_bytes} /* of the file {name}.weights */"
    yield f"#define {upper}_ALIGNMENT 64 /* of the arena and the state */"
    yield ""
    yield "/* What functions return. */"
    yield "enum {"
    for code, (error, meaning) in enumerate(ERRORS):
        yield f"  {upper}_{error} = {code}, /* {meaning} */"
    yield "};"
    yield ""
    yield f"typedef struct {name} {{"
    yield "  unsigned char* arena;"
    yield "  unsigned char* state;"
    yield "  const unsigned char* constants;"
    if module.threads:
        yield f"  void* pool; /* of {name}_start; null: one thread */"
    yield f"}} {name};"
    yield ""
    yield "/* A model in the caller's memory, with the weights of a file or array of `size` bytes."
    if memory.constants.size:
        yield "   The weights must stay where they are: constants are read there."
    yield "   On an error the model must not be used. */"
    yield f"int {name}_init({name}* model, void* arena, void* state, const void* weights,"
    yield "    size_t size);"
    yield ""
    if module.weights_in_code:
        yield "/* The weights, in weights.c. */"
        yield f"extern const unsigned char {name}_weights[{upper}_WEIGHTS_BYTES];"
        yield ""
    yield f"/* The state, {upper}_STATE_BYTES bytes to write to a file, with its checksum. */"
    yield f"const void* {name}_save({name}* model);"
    yield "/* Take the state that was saved by this program on any machine, or that of the weights."
    yield "   On an error the state is as before. */"
    yield f"int {name}_restore({name}* model, const void* saved, size_t size);"
    if module.threads:
        yield ""
        yield "/* Let calls use so many threads, the caller's among them, and start the others; the"
        yield "   results have the same bits. Returns how many there are, 0 for a wrong `pool`. */"
        yield f"int {name}_start({name}* model, void* pool, int threads);"
        yield f"#define {upper}_POOL_BYTES 8192 /* of `pool`, at a multiple of 64 bytes */"
        yield "/* End them. */"
        yield f"void {name}_stop({name}* model);"
    for function in module.functions:
        yield ""
        yield from interface_lines(module, function)
    yield ""
    yield from _accessors(module, memory.state)
    yield from _accessors(module, memory.constants)
    yield ""
    yield "#ifdef __cplusplus"
    yield "}"
    yield "#endif"
    yield "#endif"


def interface_lines(module: Exported, function: Function) -> Iterator[str]:
    """Yield the declarations of a function: its structures, sizes and prototype."""
    symbol = function.symbol
    for side, ports in function.sides:
        yield f"typedef struct {symbol}_{side} {{"
        for port in ports:
            const = "const " if side == "inputs" else ""
            title = f"{commented(port.name)} {described(port.type)}"
            yield f"  {const}{port.c_type}* {port.symbol}; /* {title} */"
        if not ports:
            yield "  char none; /* C wants a field */"
        yield f"}} {symbol}_{side};"
        for port in ports:
            yield f"#define {_macro(symbol, port)}_COUNT {port.type.size}"
    updates = function.entry.program.update is not None
    yield f"/* {'One training step' if updates else 'One call'}; arrays are row-major and must not"
    yield "   overlap. */"
    yield (
        f"int {symbol}({module.name}* model, const {symbol}_inputs* inputs, "
        f"const {symbol}_outputs* outputs);"
    )


def _macro(symbol: str, port: Port) -> str:
    return f"{symbol}_{port.symbol}".upper()


def _accessors(module: Module, block: Block) -> Iterator[str]:
    name, upper = module.name, module.upper
    if not block.items:
        return
    kind = "constants" if block.kind == CONSTANTS else "state"
    title = "Constants, which no call writes" if block.kind == CONSTANTS else "State"
    yield f"/* {title}: how many elements, and where. */"
    const = "const " if block.kind == CONSTANTS else ""
    own = "constant" if block.kind == CONSTANTS else "state"
    for item in block.items:
        count = item.array.size
        yield f"#define {upper}_{own.upper()}_{item.symbol.upper()}_COUNT {count}"
        found = f"{name}_{own}_{item.symbol}"
        yield f"static inline {const}{c_type(item.type)}* {found}(const {name}* model) {{"
        yield f"  return ({const}{c_type(item.type)}*)(model->{kind} + {item.offset});"
        yield f"}} /* {commented(item.name)} {described(item.type)} */"


def bytes_text(values: bytes) -> str:
    """Return these bytes as the initializer of an array."""
    rows = [", ".join(f"0x{b:02x}" for b in values[i : i + 16]) for i in range(0, len(values), 16)]
    return "{\n    " + ",\n    ".join(rows) + "}"
