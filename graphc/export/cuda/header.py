"""The C header of an export for GPUs, and the file that plays its plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.export.cuda.calls import Calls
from graphc.export.cuda.kernels import CudaKernels, resident
from graphc.export.cuda.memory import DeviceMemory, Piece
from graphc.export.header import ERRORS, Exported, bytes_text, interface_lines
from graphc.export.interface import Function
from graphc.export.memory import CONSTANTS, STATE
from graphc.export.names import commented, filled, native
from graphc.kernels.program.kernel import GridLaunch

GPU_ERRORS = (
    *ERRORS,
    ("ERROR_DEVICE", "there is no such GPU, no driver, or no kernels for this GPU"),
    ("ERROR_MEMORY", "the memory of the GPU, or of the host, does not suffice"),
    ("ERROR_DRIVER", "the driver reports an error"),
)
"""Error codes, from 0 on: those of every target first."""
_UNUSED = "ERROR_ALIGNMENT"
"""The error of memory that the caller gives, which no GPU's export asks for."""


@dataclass(frozen=True, kw_only=True)
class CudaModule(Exported):
    """An export for GPUs."""

    archs: tuple[str, ...]
    """What its kernels are compiled for, as nvcc calls it."""
    device: DeviceMemory
    kernels: CudaKernels

    @property
    def title(self) -> str:
        """The GPUs, in words."""
        return f"GPUs ({', '.join(self.archs)})"

    @property
    def streams(self) -> int:
        """The streams that its programs use."""
        return max(function.entry.plan.streams for function in self.functions)


def header_text(module: CudaModule) -> str:
    """Return NAME.h."""
    return "\n".join(_header(module)) + "\n"


def _header(module: CudaModule) -> Iterator[str]:
    name, upper, memory = module.name, module.upper, module.memory
    what = ", ".join(f"{f.entry.name} ({f.entry.program.name})" for f in module.functions)
    errors = "\n".join(
        f"  {upper}_{error} = {code}, /* {meaning} */"
        for code, (error, meaning) in enumerate(GPU_ERRORS)
        if error != _UNUSED
    )
    words = {
        "WHAT": what,
        "TITLE": module.title,
        "MADE_BY": module.version,
        "SIZE_OF_ARENA": str(memory.arena),
        "SIZE_OF_STATE": str(memory.state.size),
        "SIZE_ON_GPU": str(module.device.state),
        "SIZE_OF_WEIGHTS": str(module.weights_bytes),
        "ALL_ERRORS": errors,
        "UPPER": upper,
        "NAME": name,
    }
    yield filled(native("cuda_interface.h.in"), words).rstrip("\n")
    if module.weights_in_code:
        yield "/* The weights, in weights.c. */"
        yield f"extern const unsigned char {name}_weights[{upper}_WEIGHTS_BYTES];"
        yield ""
    for function in module.functions:
        yield from interface_lines(module, function)
        yield ""
    yield "/* State: how many elements, and where on the GPU. */"
    for piece in module.device.pieces:
        layout = f"{commented(piece.item.name)} {piece.type}"
        yield from _accessor(module, "state", piece.item.symbol, piece.type.size, piece.offset)
        yield f"/* {layout} */"
    if memory.constants.items:
        yield "/* Constants, which no call writes. */"
    for item in memory.constants.items:
        yield from _accessor(module, "constant", item.symbol, item.array.size, item.offset)
        yield f"/* {commented(item.name)} {item.type} */"
    yield ""
    yield "#ifdef __cplusplus"
    yield "}"
    yield "#endif"
    yield "#endif"


def _accessor(module: CudaModule, kind: str, symbol: str, count: int, offset: int) -> Iterator[str]:
    name = module.name
    block = {"state": "state", "constant": "constants"}[kind]
    yield f"#define {module.upper}_{kind.upper()}_{symbol.upper()}_COUNT {count}"
    yield f"static inline uint64_t {name}_{kind}_{symbol}(const {name}* model) {{"
    yield f"  return model->{block} + {offset};"
    yield "}"


def model_text(module: CudaModule) -> str:
    """Return model.cpp."""
    memory = module.memory
    calls = {f.entry.name: Calls(f.entry, module.device, module.kernels) for f in module.functions}
    plays = [_play(function, calls[function.entry.name]) for function in module.functions]
    constants = constants_digest = ""
    if memory.constants.size:
        digest = bytes_text(memory.constants.digest)
        constants_digest = f"const unsigned char constants_digest[32] = {digest};\n"
        constants = f"""  const size_t before = {module.upper}_STATE_BYTES;
  const unsigned char* constants = (const unsigned char*)weights + before;
  const int found = examined(constants, size < before ? 0 : size - before, {CONSTANTS},
                             constants_digest, {module.upper}_WEIGHTS_BYTES - before);
  if (found != {module.upper}_OK) return found;
"""
    words = {
        "TITLE": module.title,
        "MADE_BY": module.version,
        "IMAGES": "\n".join(
            f'extern "C" const unsigned char {image_symbol(module, stem)}[];'
            for stem in module.kernels.files
        ),
        "TABLES": _tables(module, max(call.events for call in calls.values())),
        "STATE_DIGEST": bytes_text(memory.state.digest),
        "CONSTANTS_DIGEST": constants_digest,
        "CHECK_CONSTANTS": constants,
        "CONSTANTS_BYTES": str(memory.constants.size),
        "CONSTANTS_FROM": "constants" if memory.constants.size else "nullptr",
        "STATE_KIND": str(STATE),
        "PLAYS": "\n".join(plays),
        "RUNS": "\n".join(_run(module, n, f) for n, f in enumerate(module.functions)),
        "UPPER": module.upper,
        "NAME": module.name,
    }
    return filled(native("cuda_model.cpp"), words)


def image_symbol(module: CudaModule, stem: str) -> str:
    """Return the name of an image in C."""
    return f"{module.name}_image_{stem}"


def _tables(module: CudaModule, events: int) -> str:
    """The members of `Plan`."""
    kernels = module.kernels
    joined = [joined for f in module.functions for joined in f.entry.plan.joined]
    tables = (
        (
            "const unsigned char*",
            "modules",
            "module_count",
            [image_symbol(module, stem) for stem in kernels.modules],
        ),
        (
            "Function",
            "functions",
            "function_count",
            [f'{{{f.module}, "{f.symbol}", {f.shared_bytes}}}' for f in kernels.functions],
        ),
        ("Launch", "launches", "launch_count", [_launch(*each) for each in kernels.launches]),
        (
            "Joined",
            "joined",
            "joined_count",
            [
                f"{{{_launch(*each)}, {resident(run)[1]}, {resident(run)[2]}}}"
                for each, run in zip(kernels.joined, joined, strict=True)
            ],
        ),
        ("Piece", "pieces", "piece_count", [_piece(piece) for piece in module.device.pieces]),
    )
    lines = [
        f"static constexpr int streams = {module.streams}, events = {events};",
        f"static constexpr int programs = {len(module.functions)};",
        f"static constexpr size_t state_bytes = {module.device.state};",
    ]
    for kind, name, count, rows in tables:
        lines.append(f"static constexpr int {count} = {len(rows)};")
        if rows:
            inside = "".join(f"\n      {row}," for row in rows)
            lines.append(f"static constexpr {kind} {name}[] = {{{inside}\n  }};")
        else:
            lines.append(f"static constexpr const {kind.removeprefix('const ')}* {name} = nullptr;")
    return "\n  ".join(lines)


def _launch(function: int, launch: GridLaunch) -> str:
    grid, block = (", ".join(map(str, axes)) for axes in (launch.grid, launch.block))
    return f"{{{function}, {{{grid}}}, {{{block}}}, {launch.shared_bytes}}}"


def _piece(piece: Piece) -> str:
    item = piece.item
    shape = ", ".join(map(str, piece.shape))
    size = item.type.numpy_dtype.itemsize
    return f"{{{item.offset}, {piece.offset}, {size}, {shape}}}"


def _play(function: Function, calls: Calls) -> str:
    text = "\n".join(calls.statements())
    return f"""void play_{function.symbol}([[maybe_unused]] Gpu& gpu) {{
  [[maybe_unused]] const CUdeviceptr arena = gpu.arena(), state = gpu.state();
  [[maybe_unused]] const CUdeviceptr constants = gpu.constants();
{text}
}}
"""


def _run(module: CudaModule, number: int, function: Function) -> str:
    plan, symbol = function.entry.plan, function.symbol
    ports = [(side, port) for side, ports in function.sides for port in ports if port.type.size]
    nulls = " || ".join(f"!{side}->{port.symbol}" for side, port in ports)
    check = f"\n  if ({nulls}) return {module.upper}_ERROR_NULL;" if nulls else ""
    copies: dict[str, list[str]] = {"inputs": [], "outputs": []}
    for (side, ports_of), bindings in zip(function.sides, (plan.inputs, plan.outputs), strict=True):
        for port, binding in zip(ports_of, bindings, strict=True):
            if port.type.size:
                host, there = f"{side}->{port.symbol}", f"gpu.arena() + {binding.place.start}"
                copies[side].append(
                    f"gpu.copy_to({there}, {host}, {port.type.nbytes});"
                    if side == "inputs"
                    else f"gpu.copy_from({host}, {there}, {port.type.nbytes});"
                )
    lines = [
        *copies["inputs"],
        f"gpu.play({number}, [&] {{ play_{symbol}(gpu); }});",
        *copies["outputs"],
        "gpu.finish();",
    ]
    body = "\n    ".join(lines)
    return f"""int {symbol}({module.name}* model, const {symbol}_inputs* inputs,
    const {symbol}_outputs* outputs) {{
  if (!model || !model->player || !inputs || !outputs) return {module.upper}_ERROR_NULL;{check}
  Gpu& gpu = gpu_of(model);
  {{
    const Gpu::Entered entered(gpu);
    {body}
  }}
  return code(gpu.error());
}}
"""
