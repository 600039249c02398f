"""Compiles the kernels. Imports only the standard library, because the build of a wheel runs it.

`python -m pagewire_worker.cpu_kernels.build` compiles them for an installation without them.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCES = FOLDER / "kernels"
LIBRARY = FOLDER / "_kernels.so"
MACHINES: Mapping[str, str] = {
    **dict.fromkeys(("x86_64", "AMD64"), "x86_64"),
    **dict.fromkeys(("aarch64", "arm64"), "aarch64"),
}
"""Names of the processors that the kernels are written for, and the family of each."""

COMPILERS = ("c++", "g++", "clang++")
_COMMON = (
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    # Square roots are instructions, never calls of the math library.
    "-fno-math-errno",
    # A sum that is contracted in one loop and not in another would differ in its last bit.
    "-ffp-contract=off",
)
_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_AVX512_BF16 = (*_AVX512, "-mavx512bf16", "-mavx512vnni")
# Instructions that each file may use. Nothing else is assumed of the processor.
_EVERYWHERE: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("interface.cpp", "drafts.cpp", "pool.cpp", "group.cpp", "hosts.cpp", "sampling/largest.cpp"),
    (),
)
_UNITS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        **_EVERYWHERE,
        "sets/x86.cpp": (),
        "sets/avx2.cpp": _AVX2,
        "sets/avx512.cpp": _AVX512,
        "sets/avx512bf16.cpp": _AVX512_BF16,
        "sets/amx.cpp": (*_AVX512_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
        # For tests in the main: quick to compile.
        "sets/amx_emulated.cpp": (*_AVX512_BF16, "-O1"),
    },
    "aarch64": {
        **_EVERYWHERE,
        "sets/arm64.cpp": (),
        "sets/neon.cpp": (),
        "sets/neon_dot.cpp": ("-march=armv8.2-a+dotprod",),
        "sets/neon_bf16.cpp": ("-march=armv8.2-a+dotprod+bf16+i8mm",),
    },
}


class BuildError(Exception):
    """The kernels cannot be compiled here; the text gives the reason."""


def source_hash() -> str:
    """Return a hash that identifies these sources and flags."""
    digest = hashlib.sha256(repr((_COMMON, _UNITS)).encode())
    for path in sorted(SOURCES.rglob("*.[ch]*")):
        digest.update(
            path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()[:16]


def is_built(target: Path = LIBRARY) -> bool:
    """Return whether `target` was compiled from these sources."""
    return target.is_file() and source_hash().encode() in target.read_bytes()


def build(target: Path = LIBRARY, machine: str | None = None) -> Path:
    """Compile the kernels into `target` and return it.

    Args:
        machine: Name of the processor that the compiler compiles for; by default this machine's.

    Raises:
        BuildError: There are no kernels for the processor, no compiler, or it fails.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise BuildError(f"there are no kernels for {machine}")
    units, compiler = _UNITS[MACHINES[machine]], _find_compiler()
    with tempfile.TemporaryDirectory(prefix="pagewire-kernels-") as folder:
        objects = _compile(compiler, units, Path(folder))
        made = Path(folder) / "kernels.so"
        _wait([_start([*compiler, "-shared", "-o", str(made), *map(str, objects), "-pthread"])])
        # Processes that have the old file mapped keep it.
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(target)
    return target


def _find_compiler() -> list[str]:
    """Return the compiler with its arguments: CXX may be several words, such as "ccache g++"."""
    wanted = os.environ.get("CXX")
    for command in (wanted,) if wanted else COMPILERS:
        words = shlex.split(command)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return [path, *words[1:]]
    raise BuildError(f"there is no C++ compiler: none of {wanted or ', '.join(COMPILERS)}")


def _compile(
    compiler: Sequence[str], units: Mapping[str, tuple[str, ...]], folder: Path
) -> list[Path]:
    objects, running = [], []
    for name, flags in units.items():
        made = folder / f"{Path(name).name}.o"
        # Only where it is used: a compiler with a cache finds the other units again.
        define = [f'-DPW_SOURCE_HASH="{source_hash()}"'] if name == "interface.cpp" else []
        arguments = [*_COMMON, *flags, *define, f"-I{SOURCES}", "-c", str(SOURCES / name)]
        running.append(_start([*compiler, *arguments, "-o", str(made)]))
        objects.append(made)
    _wait(running)
    return objects


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait(running: "Sequence[subprocess.Popen[str]]") -> None:
    outputs = [process.communicate()[0] for process in running]
    for process, output in zip(running, outputs, strict=True):
        if process.returncode:
            raise BuildError(f"{' '.join(map(str, process.args))}\n{output}")  # type: ignore[arg-type]


def main() -> int:
    """Compile the kernels unless they are up to date, and print the outcome."""
    if is_built():
        return 0
    try:
        print(f"compiled {build()}")
    except BuildError as error:
        print(f"the kernels were not compiled: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
