"""Installs a wheel where no compiler is found, and lets its kernels compute a product.

Run as a program with wheels as arguments, those of other processors are named and left out.
"""

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

# Run without this tree on its path: where the package lies, and the largest error of each set.
_LOOK = """
import json, shutil, torch
import pagewire_worker
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import KernelPool, TYPES, instruction_sets, pointer
from pagewire_worker.cpu_kernels.packing import Part, Storage, WeightArena, pack

weight, x = torch.randn(32, 64), torch.randn(5, 64)
faults = {}
for name in instruction_sets():
    pool, storage = KernelPool(2, name), Storage.of(abi.FLOAT32, *weight.shape)
    linear = pack(pool, WeightArena(storage.num_bytes), storage, [Part(weight)])
    y = torch.empty(5, 32)
    pool.linear(TYPES[x.dtype], linear.structure(), pointer(x), 5, None, pointer(y), 32)
    faults[name] = float((y - x.double() @ weight.double().T).abs().max())
compilers = [name for name in ("c++", "g++", "clang++", "cc", "gcc") if shutil.which(name)]
print(json.dumps({"origin": pagewire_worker.__file__, "compilers": compilers, "faults": faults}))
"""

LARGEST_FAULT = 1e-4
"""Of sums of 64 products of numbers around 1, in float32."""


class WheelError(Exception):
    """A wheel cannot be installed, or its kernels do not compute; the text gives the reason."""


def try_wheel(wheel: Path, folder: Path) -> list[str]:
    """Install `wheel` below `folder` and return the names of the sets that computed.

    The packages that it needs are those of this environment.

    Raises:
        WheelError: It does not work without a compiler.
    """
    target, empty = folder / "installed", folder / "no-programs"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", "--no-index", "--target", str(target), str(wheel)], None, folder)
    environment = {"PATH": str(empty), "PYTHONPATH": str(target), "CXX": "no-such-compiler"}
    found = json.loads(_run([sys.executable, "-c", _LOOK], environment, folder))
    if not Path(found["origin"]).is_relative_to(target):
        raise WheelError(f"the package of {found['origin']} was loaded")
    if found["compilers"]:
        raise WheelError(f"there are compilers: {', '.join(found['compilers'])}")
    wrong = [name for name, fault in found["faults"].items() if not fault < LARGEST_FAULT]
    if wrong or not found["faults"]:
        raise WheelError(f"products are wrong: {found['faults']}")
    return list(found["faults"])


def _run(command: list[str], environment: dict[str, str] | None, folder: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise WheelError(f"{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Try the wheels that are named, and print the instruction sets of each."""
    for wheel in map(Path, sys.argv[1:]):
        if not wheel.stem.endswith(platform.machine()):
            print(f"{wheel.name}: for another processor, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(
                f"{wheel.name}: computes with {', '.join(try_wheel(wheel.resolve(), Path(folder)))}"
            )


if __name__ == "__main__":
    main()
