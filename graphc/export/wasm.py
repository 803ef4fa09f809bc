"""What an export to WebAssembly has besides: a module with its memory, and a loader with types."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from graphc.export.header import ERRORS, Module
from graphc.export.interface import Function, Port
from graphc.export.names import described, filled, native
from graphc.export.selftest import Call, SelfTest

_ARRAYS = {
    "f32": "Float32Array",
    "f64": "Float64Array",
    "f16": "Uint16Array",
    "bf16": "Uint16Array",
    "i8": "Int8Array",
    "u8": "Uint8Array",
    "bool": "Uint8Array",
    "i32": "Int32Array",
    "i64": "BigInt64Array",
}
"""The array of JavaScript for each dtype."""


def wasm_files(module: Module, test: SelfTest) -> dict[str, str]:
    """Return the texts of the files by name."""
    loader = _filled(
        module,
        "loader.js",
        DESCRIPTION=json.dumps(_description(module), indent=2),
        ERRORS=json.dumps([meaning for _, meaning in ERRORS], indent=2),
    )
    calls = json.dumps([_call(call) for call in test.calls], indent=1)
    return {
        "selftest.mjs": _filled(module, "selftest.mjs", CALLS=calls),
        "wasm.c": "\n".join(_module_text(module)) + "\n",
        f"{module.name}.mjs": loader,
        f"{module.name}.d.mts": "\n".join(_types(module)) + "\n",
    }


def _filled(module: Module, file: str, **texts: str) -> str:
    """A file of native/ with these texts, the version and the name in place of words."""
    return filled(native(file), {**texts, "VERSION": module.version, "NAME": module.name})


def _call(call: Call) -> dict[str, Any]:
    """What selftest.mjs knows of a call."""
    inputs: list[dict[str, Any]] = [
        {"field": port.symbol, "type": port.type.dtype, "seed": call.seed + n}
        for n, port in enumerate(call.function.inputs)
    ]
    for fields, array in zip(inputs, call.given, strict=False):
        fields["given"] = base64.b64encode(array.tobytes()).decode()
    return {
        "name": call.function.entry.name,
        "inputs": inputs,
        "outputs": call.outputs,
        "state": call.state,
    }


def _numbered(module: Module) -> dict[tuple[str, str, str], int]:
    """The number of each port's memory, by function, side and field."""
    ports = [
        (function.symbol, side, port.symbol)
        for function in module.functions
        for side, ports in function.sides
        for port in ports
    ]
    return {port: number for number, port in enumerate(ports)}


def _description(module: Module) -> dict[str, Any]:
    numbers = _numbered(module)

    def ports(function: Function, side: str, ports: tuple[Port, ...]) -> list[dict[str, Any]]:
        return [
            {
                "name": port.symbol,
                "type": port.type.dtype,
                "shape": port.type.shape,
                "count": port.type.size,
                "number": numbers[function.symbol, side, port.symbol],
            }
            for port in ports
        ]

    return {
        "weights": module.weights_bytes,
        "stateBytes": module.memory.state.size,
        "state": [
            {
                "name": item.name,
                "type": item.type.dtype,
                "shape": item.type.shape,
                "count": item.array.size,
                "offset": item.offset,
            }
            for item in module.memory.state.items
        ],
        "functions": [
            {
                "name": function.entry.name,
                **{side: ports(function, side, own) for side, own in function.sides},
            }
            for function in module.functions
        ],
    }


def _module_text(module: Module) -> Iterator[str]:
    name, upper, numbers = module.name, module.upper, _numbered(module)
    yield f"/* {name} as a WebAssembly module: all its memory, and functions for {name}.mjs. */"
    yield f'#include "{name}.h"'
    yield ""
    yield "#define EXPORT(name) __attribute__((export_name(#name)))"
    yield "#define LARGER(a, b) ((a) > (b) ? (a) : (b))"
    yield ""
    yield "/* A saved state waits where the arena is to be restored. */"
    yield "_Alignas(64) static unsigned char"
    yield f"    arena[LARGER({upper}_ARENA_BYTES, {upper}_STATE_BYTES)];"
    yield "/* The state is that of the weights, in place. */"
    yield f"_Alignas(64) static unsigned char weights_and_state[{upper}_WEIGHTS_BYTES];"
    yield f"static {name} model;"
    for function in module.functions:
        for side, ports in function.sides:
            for port in ports:
                number = numbers[function.symbol, side, port.symbol]
                yield (
                    f"_Alignas(16) static {port.c_type} memory_{number}"
                    f"[{max(1, port.type.size)}]; /* {function.entry.name} {port.name} */"
                )
    yield ""
    yield "EXPORT(weights) void* weights_address(void) { return weights_and_state; }"
    yield "EXPORT(scratch) void* scratch_address(void) { return arena; }"
    yield "EXPORT(init) int init(void) {"
    yield f"  return {name}_init(&model, arena, weights_and_state, weights_and_state,"
    yield f"      {upper}_WEIGHTS_BYTES);"
    yield "}"
    yield f"EXPORT(save) const void* save(void) {{ return {name}_save(&model); }}"
    yield "EXPORT(restore) int restore(void) {"
    yield f"  return {name}_restore(&model, arena, {upper}_STATE_BYTES);"
    yield "}"
    if numbers:
        yield "static void* const addresses[] = {"
        yield "    " + ", ".join(f"memory_{n}" for n in numbers.values()) + "};"
        yield "EXPORT(address) void* address(int number) { return addresses[number]; }"
    for function in module.functions:
        own = function.entry.name
        fields = {
            side: ", ".join(f"memory_{numbers[function.symbol, side, p.symbol]}" for p in ports)
            or "0"
            for side, ports in function.sides
        }
        yield f"EXPORT(call_{own}) int call_{own}(void) {{"
        for side, values in fields.items():
            yield f"  static const {function.symbol}_{side} {side} = {{{values}}};"
        yield f"  return {function.symbol}(&model, &inputs, &outputs);"
        yield "}"


def _types(module: Module) -> Iterator[str]:
    name = module.name
    yield f"// Types of {name}.mjs. Made by graphc {module.version}."
    yield ""
    yield "/** A model, with the weights that it was loaded with. */"
    yield "export declare class Model {"
    yield "  /** Views of the state; what is written there counts from the next call on. */"
    yield "  readonly state: {"
    for item in module.memory.state.items:
        yield f"    /** {item.type} */ {json.dumps(item.name)}: {_ARRAYS[item.type.dtype]};"
    yield "  };"
    yield "  /** The bytes of the state, to be stored and restored on any machine. */"
    yield "  save(): Uint8Array;"
    yield "  /** Takes a state that was saved; it throws if it is another program's or damaged. */"
    yield "  restore(saved: ArrayBuffer | ArrayBufferView): void;"
    for function in module.functions:
        own = function.entry.name
        yield f'  /** Inputs that are left out are what the arrays of inputs("{own}") hold. */'
        yield f"  {own}(inputs?: {{"
        for port in function.inputs:
            array = _ARRAYS[port.type.dtype]
            plain = "bigint" if port.type.dtype == "i64" else "number"
            yield f"    /** {described(port.type)} */ {port.symbol}?: {array} | {plain}[];"
        yield "  }): {"
        for port in function.outputs:
            yield f"    /** {described(port.type)} */ {port.symbol}: {_ARRAYS[port.type.dtype]};"
        yield "  };"
        yield "  /** The arrays that it reads, to be filled in place of arguments. */"
        fields = "; ".join(f"{p.symbol}: {_ARRAYS[p.type.dtype]}" for p in function.inputs)
        yield f'  inputs(name: "{own}"): {{ {fields} }};'
    yield "}"
    yield ""
    yield f"/** Whether multiply-adds are rounded once here: then {name}.fma.wasm computes the same"
    yield f"    bits as {name}.wasm, many times as fast. */"
    yield "export declare function fuses(): boolean;"
    yield ""
    yield f"/** Loads {name}.wasm, a URL, response, bytes or module, with its weights' bytes. */"
    yield "export declare function load("
    yield "  wasm: string | URL | Response | Promise<Response> | BufferSource | WebAssembly.Module,"
    yield "  weights: ArrayBuffer | ArrayBufferView,"
    yield "): Promise<Model>;"
