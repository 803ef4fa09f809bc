"""What a program writes to files: itself, sources, and its stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from graphc.base.source_lines import error
from graphc.program.state import ProgramState


class ProgramFiles(ProgramState):
    """The part of a program that writes files."""

    group: Any
    """The ranks that average the program's gradients; None if there is one."""
    write: ClassVar[Callable[[Any, str | Path, bool], None]]
    """Writes a program to a file; set by saved_program.py, which stands above."""
    write_sources: ClassVar[Callable[..., None]]
    """Writes a program as sources; set by graphc/export, which stands above."""

    def save(self, path: str | Path, binaries: bool = False) -> None:
        """Write the program to a file, which `graphc.load` reads.

        The file holds the graph, all state as of the last finished call, the structure of arguments
        and results, the settings, the plan with its certificate, and digests of the kernels. An
        existing file is replaced atomically at the end.

        Args:
            path: The file to write.
            binaries: Whether to include the compiled kernels, which `load` runs only with
                `trusted=True`, on such a CPU.

        Raises:
            GraphError: The file cannot be written, or the program has parts that no file holds:
                dataclasses among arguments or results, a group's schedule of learning rates, or
                functions that `show` calls.

        Example:
            >>> graphc.compile(nn.Linear(2, 1), graphc.spec((1, 2))).save("linear.graphc")
        """
        self._alone("save")
        type(self).write(self, path, binaries)

    def _alone(self, what: str) -> None:
        """Raise GraphError for a program that several processes run together."""
        group = self.group
        if group is not None:
            raise error(
                f"{what}: {self.name} is of {group.ranks} ranks that train together, which no file "
                "holds: save checkpoints, or a program of the trained model"
            )

    def export(
        self,
        folder: str | Path,
        target: str = "x86-64",
        *,
        name: str | None = None,
        threads: bool = False,
        weights_in_code: bool = False,
        denormals: str | None = None,
        calls: int = 3,
        inputs: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        """Write the program as C and C++ sources that need neither Python nor graphc.

        They give the bits of this program. `graphc.export` writes several programs that share their
        state.

        Args:
            folder: The folder to write; it must be empty or missing.
            target: The machine, such as "x86-64-avx2", "aarch64", "wasm32" or, of a program for a
                GPU, "cuda".
            name: The prefix of all names in C; by default the name of the compiled function.
            threads: Whether kernels may use several threads.
            weights_in_code: Whether the weights are also a C array.
            denormals: "flush" or "keep"; by default as in this program, if the machine can.
            calls: The number of calls that the self-test makes.
            inputs: The arguments of these calls; by default made up.

        Raises:
            GraphError: The target is unknown, the folder is not empty, or the program cannot be
                exported.

        Example:
            >>> graphc.compile(nn.Linear(2, 1), graphc.spec((1, 2))).export("line", "wasm32")
        """
        self._alone("export")
        type(self).write_sources(
            self,
            folder,
            target,
            name=name,
            threads=threads,
            weights_in_code=weights_in_code,
            denormals=denormals,
            calls=calls,
            inputs=inputs,
        )

    def dump(self, folder: str | Path) -> None:
        """Write every stage, kernel and the plan as text files into a folder.

        Args:
            folder: The folder, which is created.
        """
        from graphc.inspect.dump import dump

        program: Any = self
        dump(program, Path(folder))
