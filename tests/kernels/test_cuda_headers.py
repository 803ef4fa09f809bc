"""The CUDA headers by themselves, and the conventions that a simulated device relies on."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphc.kernels.lower import lower
from tests.kernels.cuda_harness import KERNELS, TARGET
from tests.support.cuda_contract import NODES as CONTRACTIONS
from tests.support.cuda_reduce import NODES as REDUCTIONS
from tests.tools import first_quick, need_command

HEADERS = sorted((KERNELS / "cuda").rglob("*.cuh"))
LATER = ["bulk.cuh", "cluster_sums.cuh", "warp_groups.cuh", "wgmma.cuh", "wgmma_bulk.cuh"]
"""Those that need sm_90a."""
SOURCES = [lower(node, TARGET).source for node in (*CONTRACTIONS, *REDUCTIONS)]


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_each_header_compiles_alone(arch: str, tmp_path):
    compiler = need_command("nvcc")

    def build(header):
        text = tmp_path / f"{header.stem}.cu"
        text.write_text(f'#include "{header.relative_to(KERNELS)}"\n')
        command = [compiler, "-std=c++17", f"-arch={arch}", "-cubin", "-Werror", "all-warnings"]
        command += ["-I", str(KERNELS), str(text), "-o", str(text.with_suffix(".cubin"))]
        return subprocess.run(command, capture_output=True, text=True).stderr

    with ThreadPoolExecutor(2) as pool:
        headers = [h for h in HEADERS if arch == "sm_90a" or h.name not in LATER]
        assert list(pool.map(build, headers)) == [""] * len(headers)


PTX = ["bulk.cuh", "intrinsics.cuh", "rounding.cuh", "warp_groups.cuh"]
"""Those with instructions that C++ has no name for."""


def test_ptx_stands_in_four_headers_and_has_twins():
    with_ptx = sorted(h.name for h in HEADERS if re.search(r"\basm\b", h.read_text()))
    assert with_ptx == PTX
    for name, first in zip(PTX, (1, 2, 1, 1), strict=True):  # behind what defines the macro
        for part in (KERNELS / "cuda" / "shared" / name).read_text().split("GRAPHC_INLINE")[first:]:
            if "asm" in part:
                assert part.index("GRAPHC_SIM") < part.index("asm"), part


@pytest.mark.parametrize("header", PTX)
def test_ptx_names_each_of_its_operands_and_no_other(header: str):
    """No compiler says so: an operand that is left out is a wrong result on a device alone."""
    text = (KERNELS / "cuda" / "shared" / header).read_text()
    for sums in re.findall(r"#define GRAPHC_SUMS\(i\) (.*)", text):
        text = text.replace(" GRAPHC_SUMS(", f" {sums}(")
    statements = re.findall(r"\basm(?: volatile)?\((.*?)\);\n", text, re.DOTALL)
    assert len(statements) == len(re.findall(r"\basm\b", text)) > 4
    for statement in statements:
        if statement.startswith('""'):  # says that operands change, and does nothing
            continue
        operands = re.findall(r'"[=+]?[a-z]"\(', statement)
        named = {int(number) for number in re.findall(r"%(\d+)", statement)}
        assert named == set(range(len(operands))), statement


def test_only_our_own_headers_are_included():
    texts = [*(h.read_text() for h in HEADERS), *SOURCES]
    included = {name for t in texts for name in re.findall(r"#\s*include\s+(\S+)", t)}
    names = {str(h.relative_to(KERNELS)) for h in (*HEADERS, *KERNELS.glob("*.h"))}
    assert {n.strip('"') for n in included} <= names


def test_kernels_are_plain_functions_with_shared_arrays_of_fixed_size():
    headers = [(h.name, h.read_text()) for h in HEADERS]
    for name, text in [*headers, *(("", source) for source in SOURCES)]:
        assert all(before.endswith('extern "C" ') for before in re.split(r"__global__", text)[:-1])
        assert "extern __shared__" not in text
        assert set(re.findall(r"\batomic\w+\(", text)) <= (
            {"atomicInc("} if name == "tickets.cuh" else set()
        )
        assert set(re.findall(r"(__\w+_sync)\((\w+)", text)) <= {
            ("__shfl_sync", "0xffffffffu"),
            ("__shfl_up_sync", "0xffffffffu"),
            ("__shfl_xor_sync", "0xffffffffu"),
            ("__ballot_sync", "0xffffffffu"),
        }


def test_equal_nodes_give_equal_text():
    again = [lower(node, TARGET).source for node in (*CONTRACTIONS, *REDUCTIONS)]
    assert again == SOURCES
