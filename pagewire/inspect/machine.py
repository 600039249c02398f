"""Checks this machine for what Pagewire needs. Each check is one line with its cure."""

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from pagewire.local.devices import torch_has_cuda, visible_devices
from pagewire_shared.identity.model_folder import cache_folder
from pagewire_shared.process.sizes import format_size

State = Literal["ok", "warn", "fail"]

_PACKAGES: Final = (
    *("grpcio", "protobuf", "numpy", "uvloop", "fastapi", "tokenizers", "llguidance"),
    *("torch", "transformers", "safetensors", "redis"),
)
_RANGES: Final = {"torch": ((2, 11), (2, 14)), "transformers": ((4, 57), (6, 0))}
"""Versions from the first on and below the second are tested."""
_LEAST_MEMORY: Final = 2 * 2**30
_LEAST_SHARED: Final = 64 * 2**20
_LEAST_FILES: Final = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked fact.

    Attributes:
        subject: What was checked.
        state: "ok", "warn" for what works with less, "fail" for what keeps Pagewire from working.
        fact: What was found.
        cure: What to do about it; "" where nothing is to be done.
    """

    subject: str
    state: State
    fact: str
    cure: str = ""


def examine(environ: Mapping[str, str], ports: tuple[int, ...] = (8000, 8001)) -> list[Finding]:
    """Return all findings. A check that fails by itself becomes a finding, too."""
    found: list[Finding] = []
    for check in (_python, _packages, _cpu, _kernels, _devices, _memory, _shared_memory, _files):
        found += _guarded(check)
    found += _guarded(lambda: _cache(environ))
    found += _guarded(lambda: _ports(ports))
    return found


def _guarded(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        name = getattr(check, "__name__", "a check").removeprefix("_")
        return [Finding(name, "warn", f"could not be checked: {error}")]


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    is_good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    cure = "" if is_good else "use Python 3.11, 3.12 or 3.13"
    yield Finding("Python", "ok" if is_good else "fail", version, cure)


def _packages() -> Iterator[Finding]:
    missing = []
    for name in _PACKAGES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if name in _RANGES:
            low, high = _RANGES[name]
            own = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
            shown = f">={low[0]}.{low[1]},<{high[0]}.{high[1]}"
            is_good = low <= own < high
            cure = "" if is_good else f"pip install '{name}{shown}'"
            yield Finding(name, "ok" if is_good else "warn", version, cure)
    if missing:
        yield Finding(
            "packages", "fail", f"{', '.join(missing)} missing", "pip install 'pagewire[all]'"
        )
    else:
        yield Finding("packages", "ok", "those of all roles are installed")


def _cpu() -> Iterator[Finding]:
    flags = set()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text().splitlines()
        line = next((one for one in lines if one.startswith(("flags", "Features"))), "")
        flags = set(line.partition(":")[2].split())
    names = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "bf16", "amx_bf16": "AMX"}
    names |= {"asimd": "NEON", "asimddp": "dot products", "i8mm": "int8 matrices", "bf16": "bf16"}
    found = [shown for flag, shown in names.items() if flag in flags]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    fact = f"{cores} cores, {', '.join(found) or 'no AVX2'}"
    if flags & {"avx2", "asimd"}:
        yield Finding("CPU", "ok", fact)
    else:
        yield Finding("CPU", "warn", fact, "models run on torch's kernels, which are slower here")


def _kernels() -> Iterator[Finding]:
    spec = find_spec("pagewire_worker")
    folder = Path(spec.origin).parent / "cpu_kernels" if spec and spec.origin else None
    if folder is not None and any(folder.glob("_kernels*.so")):
        yield Finding("CPU kernels", "ok", "compiled")
        return
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        cure = "install a C++ compiler (Debian: apt-get install g++), then install Pagewire again"
        yield Finding("CPU kernels", "warn", "not compiled, and there is no C++ compiler", cure)
    else:
        cure = "python -m pagewire_worker.cpu_kernels.build"
        yield Finding("CPU kernels", "warn", f"not compiled; {compiler} is there", cure)


def _devices() -> Iterator[Finding]:
    devices = visible_devices(os.environ)
    has_cuda = torch_has_cuda()
    if not devices:
        yield Finding("CUDA devices", "ok", "none; models run on the CPU")
    elif not has_cuda:
        cure = "install a torch that was built with CUDA"
        yield Finding("CUDA devices", "warn", f"{len(devices)}, but torch has no CUDA", cure)
    else:
        yield Finding("CUDA devices", "ok", f"{len(devices)}: {', '.join(devices)}")


def _memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    bound = limit.read_text().strip() if limit.is_file() else "max"
    usable = total if bound == "max" else min(total, int(bound))
    fact = format_size(usable) + ("" if usable == total else ", as the container allows")
    is_good = usable >= _LEAST_MEMORY
    cure = "" if is_good else "2 GiB and more are needed; give --kv-cache-memory and a small model"
    yield Finding("memory", "ok" if is_good else "warn", fact, cure)


def _shared_memory() -> Iterator[Finding]:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        cure = "give --kv-transport grpc to workers"
        yield Finding("shared memory", "warn", "there is no /dev/shm", cure)
        return
    free = shutil.disk_usage(folder).free
    is_good = free >= _LEAST_SHARED
    cure = "" if is_good else "docker run --shm-size 1g"
    yield Finding("shared memory", "ok" if is_good else "warn", f"{format_size(free)} free", cure)


def _files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_good = hard == resource.RLIM_INFINITY or hard >= _LEAST_FILES
    cure = "" if is_good else f"ulimit -n {_LEAST_FILES}"
    yield Finding("open files", "ok" if is_good else "warn", f"{soft} (at most {hard})", cure)


def _cache(environ: Mapping[str, str]) -> Iterator[Finding]:
    cache = cache_folder(environ)
    place = cache
    while not place.exists():
        place = place.parent
    free = format_size(shutil.disk_usage(place).free)
    if os.access(place, os.W_OK):
        yield Finding("hub cache", "ok", f"{cache}, {free} free")
    else:
        yield Finding("hub cache", "warn", f"{cache} cannot be written", "set HF_HOME")


def _ports(ports: tuple[int, ...]) -> Iterator[Finding]:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                fact = f"{port}: {error.strerror or error}"
                yield Finding("port", "warn", fact, "pagewire serve --port takes another")
            else:
                yield Finding("port", "ok", f"{port} is free")
