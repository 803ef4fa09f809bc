"""Matrix products by cuBLASLt, if it is installed: `nvidia-cublas`, PyTorch's or a toolkit's.

It is called by ctypes, as its C interface is stable; the numbers here are those of cublasLt.h. Its
matrices are column-major, so d = a b is requested as the product of transposed matrices.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from graphc.base.cached import cached_property
from graphc.base.errors import CompileError
from graphc.ir.state import ALIGNMENT
from graphc.kernels.program.calls import CallMatrix, Product

TYPES = {"f32": 0, "f16": 2, "bf16": 14}
"""cudaDataType_t."""
COMPUTE_32F = 68
"""cublasComputeType_t: products and sums are float32, without rounding to tf32."""
TRANSPOSED, EPILOGUE, BIAS_POINTER = {"a": 3, "b": 4}, 7, 8
"""cublasLtMatmulDescAttributes_t."""
BATCHES, BATCH_STRIDE = 5, 6
"""cublasLtMatrixLayoutAttribute_t."""
MOST_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes_t."""
IN_WORKSPACE = 2
"""cublasLtReductionScheme_t: partial sums over k are added in float32 by a separate, ordered
step."""
PLAIN, RELU, BIAS = 1, 2, 4
"""cublasLtEpilogue_t; the last two may be combined."""
WORKSPACE = 8 << 20
"""Bytes of workspace that a product may use: NVIDIA's default before Hopper. More allows splitting
k of larger products, at the cost of the plan's work memory."""
PROPOSED = 3
"""Algorithms requested from the heuristic, each a candidate for measurement."""


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class CublasLt:
    """The library for one device, whose context is current in every call here."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.cublasLtGetVersion.restype = c_size_t
        version = int(library.cublasLtGetVersion())
        self.title = f"cuBLASLt {version // 10000}.{version // 100 % 100}.{version % 100}"

    def prepare(self, product: Product) -> PreparedProduct:
        """The product, ready to be issued on streams. Raises CompileError if the library rejects
        it."""
        return PreparedProduct(self, product)

    @cached_property
    def handle(self) -> c_void_p:
        """The library's handle, created on first use and kept for the life of the process."""
        return self.create("cublasLtCreate")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CompileError with the status if it fails."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CompileError(f"{self.title}: {name} failed with status {status}")

    def create(self, name: str, *arguments: Any) -> c_void_p:
        """The object that a function creates through its first argument."""
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found

    def set(self, kind: str, what: c_void_p, attribute: int, value: Any) -> None:
        self.call(
            f"cublasLt{kind}SetAttribute", what, attribute, byref(value), ctypes.sizeof(value)
        )


class PreparedProduct:
    """A product with its layouts and algorithms. It owns the library's objects."""

    def __init__(self, library: CublasLt, product: Product) -> None:
        self._library, self._product = library, product
        self._made: list[tuple[str, c_void_p]] = []
        m, n, k = product.m, product.n, product.k
        self._a = self._layout(product.b, *_lying(product.b, k, n))
        self._b = self._layout(product.a, *_lying(product.a, m, k))
        self._d = self._layout(product.d, n, m)
        self._algorithms = self._proposed()

    @property
    def count(self) -> int:
        """The number of algorithms, at most `PROPOSED`."""
        return len(self._algorithms)

    @property
    def workspaces(self) -> list[int]:
        """Bytes of workspace of each algorithm."""
        return [WORKSPACE] * self.count

    def issue(
        self, rank: int, addresses: Sequence[int], stream: Any, **declared: Any
    ) -> Callable[[], None]:
        """A function that issues the product on the stream with algorithm `rank`.

        `addresses` are those of the kernel's arguments, the workspace last. Raises CompileError if
        there is no such algorithm.
        """
        if rank >= self.count:
            raise CompileError(
                f"{self._library.title} has no algorithm {rank + 1} for this product"
            )
        algorithm = self._algorithms[rank].algorithm
        product, library = self._product, self._library
        bias = 0 if product.bias is None else addresses[product.bias]
        a, b, d = (c_void_p(addresses[x.argument]) for x in (product.b, product.a, product.d))
        description, one, zero = self._description(bias), c_float(1), c_float(0)
        workspace, handle = c_void_p(addresses[-1]), c_void_p(int(stream.handle))

        def issue() -> None:
            library.call(
                "cublasLtMatmul", library.handle, description, byref(one), a, self._a, b, self._b,
                byref(zero), d, self._d, d, self._d, byref(algorithm), workspace,
                c_size_t(WORKSPACE), handle,
            )  # fmt: skip

        return issue

    def _proposed(self) -> list[Heuristic]:
        library, kind = self._library, "MatmulPreference"
        preference = self._keep(kind)
        library.set(kind, preference, MOST_WORKSPACE, c_uint64(WORKSPACE))
        library.set(kind, preference, REDUCTIONS, c_uint32(IN_WORKSPACE))
        for attribute in ALIGNMENTS:
            library.set(kind, preference, attribute, c_uint32(ALIGNMENT))
        found, count = (Heuristic * PROPOSED)(), c_int()
        library.call(
            "cublasLtMatmulAlgoGetHeuristic", library.handle, self._description(ALIGNMENT),
            self._a, self._b, self._d, self._d, preference, PROPOSED, found, byref(count),
        )  # fmt: skip
        return [x for x in found[: count.value] if x.state == 0]

    def _description(self, bias: int) -> c_void_p:
        """The description of the product; the bias, if any, is at the address `bias`."""
        library, product = self._library, self._product
        made = self._keep("MatmulDesc", COMPUTE_32F, TYPES["f32"])
        for side, matrix in (("a", product.b), ("b", product.a)):
            turned = c_int32(matrix.column != 1)
            library.set("MatmulDesc", made, TRANSPOSED[side], turned)
        epilogue = (RELU * product.relu + BIAS * (product.bias is not None)) or PLAIN
        library.set("MatmulDesc", made, EPILOGUE, c_uint32(epilogue))
        if product.bias is not None:
            library.set("MatmulDesc", made, BIAS_POINTER, c_void_p(bias))
        return made

    def _layout(self, matrix: CallMatrix, rows: int, columns: int) -> c_void_p:
        library, kind = self._library, TYPES[matrix.dtype]
        sizes = c_uint64(rows), c_uint64(columns), c_int64(matrix.leading)
        made = self._keep("MatrixLayout", kind, *sizes)
        if self._product.batches > 1:
            library.set("MatrixLayout", made, BATCHES, c_int32(self._product.batches))
            library.set("MatrixLayout", made, BATCH_STRIDE, c_int64(matrix.batch))
        return made

    def _keep(self, kind: str, *arguments: Any) -> c_void_p:
        """A library object that is destroyed with this."""
        made = self._library.create(f"cublasLt{kind}Create", *arguments)
        self._made.append((kind, made))
        return made

    def __del__(self) -> None:
        for kind, made in self._made:
            self._library.call(f"cublasLt{kind}Destroy", made)


def _lying(matrix: CallMatrix, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the column-major matrix that is an operand of [rows, columns]."""
    return (columns, rows) if matrix.column == 1 else (rows, columns)


def find_cublas() -> CublasLt | None:
    """The library, found by cuda-pathfinder, which comes with cuda-bindings; None if it is not
    installed."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        found = pathfinder.load_nvidia_dynamic_lib("cublasLt")
        return CublasLt(ctypes.CDLL(found.abs_path)) if found.abs_path else None
    except (ImportError, RuntimeError, OSError):
        return None
