"""Builds wheels with compiled kernels for manylinux_2_28, one per processor.

zig compiles them (zig_compiler.py): it brings the symbols of any glibc (ADR 40). auditwheel then
checks the version of each symbol, and names the platform in the wheel: manylinux_2_28 or older.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILER = Path(__file__).resolve().with_name("zig_compiler.py")
ROOT = COMPILER.parents[3]
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.28"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}"


def compiler_for(machine: str) -> str:
    """Return a compiler for Linux on `machine` as words of CXX."""
    return shlex.join([sys.executable, str(COMPILER), machine, GLIBC])


def build_wheel(machine: str, folder: Path) -> Path:
    """Build the wheel for a processor and put it into `folder`.

    Raises:
        subprocess.CalledProcessError: A command failed; it has printed the reason.
    """
    environment = dict(os.environ, CXX=compiler_for(machine), PAGEWIRE_WHEEL_MACHINE=machine)
    with tempfile.TemporaryDirectory(prefix="pagewire-wheels-") as made:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made]
        subprocess.run([*command, str(ROOT)], env=environment, check=True)
        (plain,) = Path(made).glob("*.whl")
        # auditwheel takes the names of this processor only; of another it finds the oldest itself.
        is_own = machine == platform.machine()
        wanted = ["--plat", f"{PLATFORM}_{machine}"] if is_own else []
        repair = [sys.executable, "-m", "auditwheel", "repair", "--only-plat"]
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        repaired = Path(made) / "repaired"
        subprocess.run(
            [*repair, *wanted, "--wheel-dir", str(repaired), str(plain)],
            env=dict(os.environ, PATH=path),
            check=True,
        )
        (wheel,) = repaired.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(wheel.replace(folder / wheel.name))


def main() -> int:
    """Build the wheels that are asked for, and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machines", nargs="*", default=MACHINES, help="processors, by default all")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the wheels go")
    arguments = parser.parse_args()
    for machine in arguments.machines:
        if machine not in MACHINES:
            parser.error(f"machines: {machine} is not one of {', '.join(MACHINES)}")
        print(build_wheel(machine, arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
