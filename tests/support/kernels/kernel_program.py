"""The program that runs the kernels through their C interface, compiled for any processor.

It takes the place of Python where a processor is emulated; program/program.cpp has its cases.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from support.kernels.kernel_builds import FUSED

SOURCES = Path(__file__).parent / "program"

Cases = Mapping[str, npt.NDArray[np.float32]]


class ProgramError(AssertionError):
    """The program, or its compiler, failed; the text is its output."""


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """The program with a library of kernels.

    Attributes:
        path: The file.
        emulator: Command that runs it, empty where it runs by itself.
    """

    path: Path
    emulator: Sequence[str] = ()

    @classmethod
    def compile(
        cls, compiler: str, library: Path, folder: Path, emulator: Sequence[str] = ()
    ) -> "KernelProgram":
        """Compile it into `folder` for the kernels of `library`."""
        path = folder / "program"
        options = ["-std=c++17", "-O1", f"-I{FUSED / 'kernels'}", f"-I{SOURCES}", "-o", str(path)]
        found = f"-Wl,-rpath,{library.parent}"
        _run([compiler, *options, str(SOURCES / "program.cpp"), str(library), found])
        return cls(path, emulator)

    def sets(self, *options: str) -> list[str]:
        """Return the instruction sets that run; `options` are the emulator's."""
        return _run([*self.emulator, *options, str(self.path)]).split()

    def results(self, instruction_set: str) -> Cases:
        """Return what a set computes, case by case. It also compares rows with rows alone."""
        file = self.path.with_name(f"{instruction_set}.results")
        _run([*self.emulator, str(self.path), instruction_set, str(file)])
        found, data, at = {}, file.read_bytes(), 0
        while at < len(data):
            end = data.index(b"\n", at)
            name, count = data[at:end].decode().split()
            at = end + 1 + 4 * int(count)
            found[name] = np.frombuffer(data[end + 1 : at], np.float32)
        return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
