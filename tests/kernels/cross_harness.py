"""Kernels built by a cross compiler and run under QEMU: C++ with four lanes, or plain C."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.c.lower import lower_file
from graphc.kernels.lower import lower
from graphc.ops.base import Array
from graphc.ops.fused import Fused
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS
from tests.kernels.c_harness import FLAGS as C_FLAGS
from tests.tools import missing

HINT = "apt install g++-aarch64-linux-gnu qemu-user"
NEON = Target("cpu", lanes=4, arch="aarch64")
Arrays = Sequence[Array]


def run_cpp(nodes: Sequence[Node], inputs: Sequence[Arrays], folder: Path) -> list[list[Array]]:
    """The outputs of each node on its inputs by the CPU's kernels of aarch64."""
    kernels = [lower(n, NEON) for n in _named(nodes)]
    texts = [k.source for k in kernels]
    texts += [f'extern "C" void {k.name}(void* const*, int, int);' for k in kernels]
    calls = [f"for (int i = 0; i < {k.phases[0]}; i++) {k.name}(arguments, 0, i);" for k in kernels]
    flags = [f for f in FLAGS if f not in ("-march=native", "-shared", "-fPIC")]
    return _run(folder / "cpp.cpp", "\n".join(texts), calls, ("g++", *flags), nodes, inputs)


def run_c(nodes: Sequence[Node], inputs: Sequence[Arrays], folder: Path) -> list[list[Array]]:
    """The outputs of each node on its inputs by plain C."""
    calls = []
    for number, node in enumerate(nodes):
        listed = ", ".join(f"arguments[{i}]" for i in range(len(node.inputs) + len(node.outputs)))
        calls.append(f"k{number}_kernel({listed});")
    text = lower_file(_named(nodes))
    return _run(folder / "c.c", text, calls, ("gcc", *C_FLAGS), nodes, inputs)


def _named(nodes: Sequence[Node]) -> list[Any]:
    assert all(isinstance(n.op, Fused) for n in nodes)
    return [replace(n, op=replace(n.op, kernel=f"k{i}")) for i, n in enumerate(nodes)]  # type: ignore[call-arg]


def _run(
    source: Path,
    text: str,
    calls: Sequence[str],
    compiler: Sequence[str],
    nodes: Sequence[Node],
    inputs: Sequence[Arrays],
) -> list[list[Array]]:
    """Builds a program that reads all inputs, makes the calls and writes all outputs."""
    command, *flags = compiler
    tools = [_tool(f"aarch64-linux-gnu-{command}"), _tool("qemu-aarch64")]
    steps = "".join(map(_step, calls, nodes))
    source.write_text(
        f"#include <stdio.h>\n#include <stdlib.h>\n{text}\n"
        "static void* taken(long n) { return aligned_alloc(64, (n / 64 + 2) * 64); }\n"
        f"int main(void) {{\n{steps}  return 0;\n}}\n"
    )
    program = source.with_suffix("")
    built = [tools[0], *flags, "-static", f"-I{KERNEL_HEADERS}", str(source), "-o", str(program)]
    done = subprocess.run([*built, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    given = b"".join(a.tobytes() for arrays in inputs for a in arrays)
    ran = subprocess.run([tools[1], str(program)], input=given, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    results, place = [], 0
    for node in nodes:
        made = []
        for kind in (v.type for v in node.outputs):
            part = np.frombuffer(ran.stdout, np.uint8, kind.nbytes, place)
            made.append(part.view(kind.numpy_dtype).reshape(kind.shape))
            place += kind.nbytes
        results.append(made)
    return results


def _step(call: str, node: Node) -> str:
    """The statements that run one kernel."""
    reads, writes, sizes = [], [], []
    for number, value in enumerate((*node.inputs, *node.outputs)):
        size = value.type.nbytes
        sizes.append(f"taken({size})")
        move = f"(arguments[{number}], 1, {size}, "
        if number < len(node.inputs):
            reads.append(f"    if (fread{move}stdin) != {size}) return 1;\n")
        else:
            writes.append(f"    if (fwrite{move}stdout) != {size}) return 1;\n")
    body = f"{''.join(reads)}    {call}\n{''.join(writes)}"
    return f"  {{\n    void* arguments[] = {{{', '.join(sizes)}}};\n{body}  }}\n"


def _tool(name: str) -> str:
    return shutil.which(name) or missing(f"{name} is not on the PATH: {HINT}")
