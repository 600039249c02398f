"""What the machine is, and what it lacks: the first item of every call. Writes JSON.

    python benchmarks/gpu/hour/environment.py --modules grpc torch --output FILE

Imports torch at most, and only the standard library before that.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTIONS = ("torch", "triton", "transformers", "numpy", "grpcio", "protobuf", "pytest")


def is_importable(name: str) -> bool:
    """Return whether a module is there; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def version_of(distribution: str) -> str | None:
    """Return its version, or None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def no_compiler() -> str:
    """Return why Triton could not compile what launches its kernels; "" if it can."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    compiler = compiler or shutil.which("clang")
    if not compiler:
        return "no C compiler (cc, gcc, clang or CC)"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return "" if header.exists() else f"no Python.h beside {sys.executable} (python3-dev)"


def driver() -> str | None:
    """Return what nvidia-smi says of driver, clocks and power, or None where there is none."""
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def device_facts() -> tuple[dict[str, Any] | None, str, str | None]:
    """Return the device as torch sees it, why there is none, and the version of CUDA."""
    try:
        import torch
    except ImportError as error:
        return None, str(error), None
    if not torch.cuda.is_available():
        return None, "torch.cuda.is_available() is false", torch.version.cuda
    found = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    gib = 1024**3
    return (
        {
            "name": found.name,
            "capability": [found.major, found.minor],
            "gib": total / gib,
            "free_gib": free / gib,
            "multiprocessors": found.multi_processor_count,
            "devices": torch.cuda.device_count(),
        },
        "",
        torch.version.cuda,
    )


def main() -> None:
    """Print the facts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", nargs="+", default=[], help="that should be importable")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    device, no_device, cuda = device_facts()
    facts = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "driver": driver(),
        "cuda": cuda,
        "device": device,
        "no_device": no_device,
        "no_compiler": no_compiler(),
        "versions": {name: version_of(name) for name in DISTRIBUTIONS},
        "missing_modules": [name for name in arguments.modules if not is_importable(name)],
    }
    text = json.dumps(facts, indent=1)
    print(text)
    arguments.output.write_text(text)


if __name__ == "__main__":
    main()
