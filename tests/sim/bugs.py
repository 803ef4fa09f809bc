"""Kernels with one bug each, and what the check build says of it.

In a text `{{wrong=>right}}` is the bug and its repair: without bugs the same kernels are the
controls, of which nothing may be found. All take x, 256 floats, and y, of which they are to write
the first `written`; each is compiled as a file of its own name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

COPY = """__shared__ __align__(16) float s[256];
graphc::copy_async<16>(s + 4 * t, x + 4 * t, true);
"""

MATRICES = """__shared__ __align__(16) float s[256];
for (int i = 0; i < 8; i++) s[t + 32 * i] = x[t + 32 * i];
"""
LOADED = """unsigned r[4];
graphc::load_matrices<false>(r, reinterpret_cast<const unsigned short*>(s) + 8 * t);
y[t] = r[0]; y[t + 32] = r[3];
"""

_BUG = re.compile(r"\{\{(.*?)=>(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class Bug:
    """A kernel's body, in which `t` is threadIdx.x; the finding is a part of the first message."""

    name: str
    body: str
    finding: str
    grid: int = 1
    block: int = 64
    written: int = 64
    dynamic: int = 0
    before: str = ""
    """Text before the kernel."""
    alone: bool = False
    """In a module of its own."""

    def text(self, wrong: bool) -> str:
        name = self.name if wrong else f"{self.name}_right"
        whole = (
            f'{self.before}\nextern "C" __global__ void {name}(const float* x, float* y) {{\n'
            f"  const int t = threadIdx.x;\n{self.body}\n}}\n"
        )
        return _BUG.sub(lambda m: m[1] if wrong else m[2], whole)


BUGS = (
    Bug(
        "missing_barrier",
        "__shared__ float s[64]; s[t] = x[t];\n{{=>__syncthreads();}}\ny[t] = s[63 - t];",
        "of shared s, which",
    ),
    Bug(
        "missing_barrier_in_a_loop",
        "__shared__ float s[64]; float sum = 0;\nfor (int i = 0; i < 4; i++) {\n"
        "s[t] = x[64 * i + t];\n__syncthreads();\nsum += s[(t + 32) % 64];\n"
        "{{=>__syncthreads();}} }\ny[t] = sum;",
        "read, with no barrier between",
    ),
    Bug(
        "missing_warp_barrier",
        "__shared__ float s[64]; s[t] = x[t];\n{{=>__syncwarp();}}\ny[t] = s[t ^ 1];",
        "of shared s, which",
    ),
    Bug(
        "slots_used_again_too_early",
        "__shared__ float s[2]; float sum = 0;\nfor (int i = 0; i < 2; i++) {\n"
        "if (t % 32 == 0) s[t / 32] = x[t + i];\n__syncthreads();\nsum += s[0] + s[1];\n"
        "{{=>__syncthreads();}} }\ny[t] = sum;",
        "of shared s, which",
    ),
    Bug(
        "bytes_of_one_word_changed_in_place",
        "__shared__ unsigned char s[64]; s[t] = t;\n__syncthreads();\n"
        "const int seen = s[t];\ns[{{t ^ 1=>t}}] = seen + 1;\n__syncthreads();\ny[t] = s[t];",
        "read, with no barrier between",
    ),
    Bug(
        "barriers_in_both_branches",
        "if ({{t < 40=>t < 64}})\n__syncthreads();\nelse\n__syncthreads();\ny[t] = x[t];",
        "waits at the barrier at barriers_in_both_branches.cu",
    ),
    Bug(
        "thread_returns_before_a_barrier",
        "if (t >= {{50=>64}}) return;\n__syncthreads();\ny[t] = x[t];",
        "thread_returns_before_a_barrier.cu:",
    ),
    Bug(
        "barrier_in_a_loop_of_unequal_length",
        "for (int i = 0; i < {{1 + t % 2=>2}}; i++)\n__syncthreads();\n"
        "y[t] = x[t];\n__syncthreads();",
        "waits at the barrier at",
    ),
    Bug(
        "half_a_block_shuffles_and_half_waits",
        "float v = x[t];\n{{if (t < 32) __syncthreads(); else=>}}\n"
        "v += __shfl_xor_sync(0xffffffffu, v, 1);\n{{if (t < 32)=>}} __syncthreads();\ny[t] = v;",
        "threads",
    ),
    Bug(
        "shuffle_in_a_branch",
        "float v = x[t];\nif ({{t < 16=>t < 64}}) v += __shfl_down_sync(0xffffffffu, v, 1);\n"
        "y[t] = v;",
        "shuffle_in_a_branch.cu:",
    ),
    Bug(
        "shuffle_with_lanes_that_have_ended",
        "if (t >= {{50=>64}}) return;\ny[t] = __shfl_xor_sync(0xffffffffu, x[t], 1);",
        "shuffle_with_lanes_that_have_ended.cu:",
    ),
    Bug(
        "shuffle_from_outside_of_the_mask",
        "float v = x[t];\nif (t % 32 < 16) v = __shfl_sync(0xffffu, v, {{20=>2}});\ny[t] = v;",
        "from lane 20, which is not in mask 0xffff",
    ),
    Bug(
        "vote_without_being_in_the_mask",
        "y[t] = __ballot_sync({{0xffffu=>0xffffffffu}}, t > 3);",
        "with mask 0xffff, which is without it",
    ),
    Bug("read_behind_the_end", "y[t] = x[t + {{193=>192}}];", "0 bytes behind the end of 1024"),
    Bug(
        "write_behind_the_end",
        "y[t + {{1=>0}}] = x[t];",
        "writes 4 bytes, 0 bytes behind the end of 256",
    ),
    Bug("write_before_the_start", "y[t - {{1=>0}}] = x[t];", "writes 4 bytes,"),
    Bug(
        "missing_test_of_the_tail",
        "const int i = blockIdx.x * 48 + t;\nif ({{t < 64=>t < 48 && i < 64}}) y[i] = x[i];",
        "behind the end of 256 bytes",
        grid=2,
    ),
    Bug(
        "write_to_an_input",
        "{{const_cast<float*>(x)[t] = 0;=>}} y[t] = x[t];",
        "of x, which the launch does not declare to be written",
    ),
    Bug(
        "read_of_an_output",
        "y[t] {{+==>=}} x[t];",
        "of y before this launch has written it",
    ),
    Bug(
        "output_left_unwritten",
        "if (t < {{63=>64}}) y[t] = x[t];",
        "leaves 4 of the 256 bytes of y unwritten, from byte 252 on",
    ),
    Bug(
        "variable_of_shared_memory_overrun",
        "__shared__ float s[64]; __shared__ float other[3];\ns[t] = x[t]; other[t % 3] = 1;\n"
        "__syncthreads();\n{{s[t + 1] = other[0];=>}}\ny[t] = x[t];",
        "uses index 64, which is outside of its array",
    ),
    Bug(
        "row_of_shared_memory_overrun",
        "__shared__ float s[4][17];\nif (t < 17) s[1][t + {{1=>0}}] = x[t];\ny[t] = x[t];",
        "uses index 17, which is outside of its array",
    ),
    Bug(
        "pointer_behind_shared_memory",
        "__shared__ float s[64]; float* p = s + x_0(x);\np[t {{+ 1=>}}] = x[t];\ny[t] = x[t];",
        "bytes behind the end of shared memory",
        before="static __device__ __noinline__ int x_0(const float* x) { return x[0] > 1e9f; }",
        alone=True,
    ),
    Bug(
        "too_little_dynamic_memory",
        "extern __shared__ float d[];\nd[t {{+ 1=>}}] = x[t];\n__syncthreads();\n"
        "y[t] = d[{{1=>0}}];",
        "writes 4 bytes at byte 256 of shared d, which has 256",
        dynamic=256,
        alone=True,
    ),
    Bug(
        "hole_in_shared_memory",
        "__shared__ float s[64]; if (t != {{7=>64}}) s[t] = x[t];\n__syncthreads();\n"
        "y[t] = s[63 - t];",
        "reads byte 28 of shared s, which nobody has written",
    ),
    Bug(
        "blocks_write_the_same_element",
        "y[t + 64 * {{0=>blockIdx.x}}] = x[t] + blockIdx.x;",
        "of y, which thread",
        grid=2,
        written=128,
    ),
    Bug(
        "block_reads_what_another_writes",
        "y[t + 64 * blockIdx.x] = x[t];\n"
        "if ({{blockIdx.x == gridDim.x - 1=>false}}) y[t + 64] += y[t];",
        "of y",
        grid=2,
        written=128,
    ),
    Bug(
        "accumulation_without_atomics",
        "if (t == 0) y[63] = 0; __syncthreads();\n"
        "{{y[63] += x[t];=>atomicAdd(&y[63], x[t]);}}\nif (t < 63) y[t] = x[t];",
        "of y, which thread",
    ),
    Bug(
        "atomics_beside_plain_reads",
        "if (t == 0) y[63] = 0; __syncthreads();\natomicAdd(&y[63], x[t]);\n"
        "{{=>__syncthreads();}}\nif (t < 63) y[t] = y[63];",
        "of y, which thread",
    ),
    Bug(
        "misaligned_vector",
        "if (t < 16) reinterpret_cast<float4*>(y)[t] =\n"
        "*reinterpret_cast<const float4*>(x + 4 * t + {{1=>4}});",
        "reads 16 bytes at an address that 16 does not divide",
    ),
    Bug(
        "copy_read_before_it_has_landed",
        COPY
        + "graphc::copy_commit();\n{{=>graphc::copy_wait<0>();}}\n__syncthreads();\ny[t] = s[t];",
        "while an asynchronous copy by thread",
    ),
    Bug(
        "wait_for_one_copy_too_few",
        COPY
        + "graphc::copy_commit();\ngraphc::copy_wait<{{1=>0}}>();\n__syncthreads();\ny[t] = s[t];",
        "while an asynchronous copy by thread",
    ),
    Bug(
        "copy_without_a_commit",
        COPY
        + "{{=>graphc::copy_commit();}}\ngraphc::copy_wait<0>();\n__syncthreads();\ny[t] = s[t];",
        "while an asynchronous copy by thread",
    ),
    Bug(
        "copy_of_others_read_without_a_barrier",
        COPY
        + "graphc::copy_commit();\ngraphc::copy_wait<0>();\n{{=>__syncthreads();}}\ny[t] = s[t];",
        "of shared s",
    ),
    Bug(
        "ring_filled_while_it_is_read",
        "__shared__ __align__(16) float s[64];\nfloat sum = 0;\nfor (int i = 0; i < 4; i++) {\n"
        "graphc::copy_async<4>(s + t, x + 64 * i + t, true);\ngraphc::copy_commit();\n"
        "graphc::copy_wait<0>();\n__syncthreads();\nsum += s[(t + 7) % 64];\n"
        "{{=>__syncthreads();}} }\ny[t] = sum;",
        "of shared s, which thread",
    ),
    Bug(
        "copy_to_a_misaligned_target",
        "__shared__ __align__(16) float s[260];\nif (t < 16) graphc::copy_async<16>"
        "(s + 4 * t + {{1=>0}}, x + 4 * t, true);\ngraphc::copy_commit();\n"
        "graphc::copy_wait<0>();\n__syncthreads();\ny[t] = s[t + {{1=>0}}];",
        "copies to 16 bytes at an address that 16 does not divide",
    ),
    Bug(
        "copy_from_behind_the_end",
        "__shared__ __align__(16) float s[64];\n"
        "graphc::copy_async<4>(s + t, x + t + 200, {{true=>t < 56}});\ngraphc::copy_commit();\n"
        "graphc::copy_wait<0>();\ny[t] = s[t];",
        "behind the end of 1024 bytes",
    ),
    Bug(
        "matrices_loaded_before_they_are_written",
        MATRICES + "{{=>__syncthreads();}}\n" + LOADED,
        "of shared s, which",
        block=32,
    ),
    Bug(
        "matrices_loaded_while_they_are_copied",
        COPY + "graphc::copy_commit();\n{{=>graphc::copy_wait<0>();}}\n__syncthreads();\n" + LOADED,
        "while an asynchronous copy",
        block=32,
    ),
    Bug(
        "matrices_with_a_row_that_has_no_value",
        MATRICES.replace("i < 8", "i < {{3=>8}}") + "__syncthreads();\n" + LOADED,
        "of shared s, which nobody has written",
        block=32,
    ),
    Bug(
        "matrices_at_an_odd_place",
        MATRICES + "__syncthreads();\n" + LOADED.replace("8 * t", "8 * t {{+ 2=>}}"),
        "loads a row of 16 bytes at an address that 16 does not divide",
        block=32,
    ),
    Bug(
        "half_a_warp_multiplies",
        "float c[4] = {}; const unsigned a[4] = {}, b[2] = {};\n"
        "if ({{t < 16=>t < 32}}) graphc::multiply_tf32(c, a, b);\ny[t] = x[t] + c[0];",
        "half_a_warp_multiplies.cu:",
        block=32,
        written=32,
    ),
    Bug("wild_pointer", "y[t] = x[t + {{(1 << 26)=>0}}];", "reads 4 bytes,"),
    Bug(
        "null_pointer",
        "y[t] = {{*static_cast<const float*>(nullptr)=>x[t]}};",
        "reads 4 bytes at 0x",
    ),
    Bug(
        "endless_recursion",
        "y[t] = deeper_{{wrong=>right}}(x[t], 0);",
        "uses more than 64 KiB of stack",
        before=(
            "__device__ __noinline__ float deeper_{{wrong=>right}}(float v, int n) {\n"
            "volatile float local[64]; local[n % 64] = v;\n"
            "return n > {{100000=>10}} ? v : "
            "deeper_{{wrong=>right}}(v + local[n % 64], n + 1) + 1; }"
        ),
    ),
    Bug(
        "division_by_zero",
        "y[t] = 7 / (static_cast<int>(x[t]) {{=>| 1}});",
        "divides an integer by zero",
    ),
)
