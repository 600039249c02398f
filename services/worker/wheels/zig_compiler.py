"""Runs zig as the C++ compiler of build_wheels.py, with the flags that g++ and clang take.

python zig_compiler.py MACHINE GLIBC ARGUMENTS

zig names architectures of Arm in its own way: it reads "-march=armv8.2-a+dotprod" as a processor
without some feature, where it wants "-mcpu=generic+v8_2a+dotprod".
"""

import re
import subprocess
import sys
from collections.abc import Sequence

_ARM = re.compile(r"-march=armv(?P<major>\d+)\.(?P<minor>\d+)-a(?P<extensions>(\+\w+)*)")


def translated(argument: str) -> str:
    """Return an argument of g++ as zig takes it."""
    found = _ARM.fullmatch(argument)
    if found is None:
        return argument
    return f"-mcpu=generic+v{found['major']}_{found['minor']}a{found['extensions']}"


def command(machine: str, glibc: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that compiles for Linux on `machine` with this version of glibc.

    It makes no table of symbols and no debug information; zig's own C++ library is linked in.
    """
    target = ["-target", f"{machine}-linux-gnu.{glibc}"]
    quiet = ["-g0", "-s", "-Wno-unused-command-line-argument"]
    zig = [sys.executable, "-m", "ziglang", "c++"]
    return [*zig, *target, *quiet, *map(translated, arguments)]


if __name__ == "__main__":
    machine, glibc, *arguments = sys.argv[1:]
    sys.exit(subprocess.run(command(machine, glibc, arguments), check=False).returncode)
