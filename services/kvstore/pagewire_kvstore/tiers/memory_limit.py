"""Checks how much memory this process may still take, by the limits of host and control groups."""

from pathlib import Path

from pagewire_shared.errors import StartupError

_NO_LIMIT = 1 << 60
"""Control groups without a bound say `max`, or a number that no host has."""


def check_memory(num_bytes: int, setting: str, root: Path = Path("/")) -> None:
    """Refuse more memory than is available: touching it later would kill this process or others.

    Args:
        num_bytes: Bytes wanted.
        setting: Name of the setting that asks for the bytes, for the error.
        root: Folder with the host's /proc and /sys.

    Raises StartupError.
    """
    left, what = available_bytes(root)
    if num_bytes > left:
        raise StartupError(
            f"{setting} asks for {num_bytes} bytes; {what} leaves {left} for this process"
        )


def available_bytes(root: Path = Path("/")) -> tuple[int, str]:
    """Return the bytes available, and the name of the bound."""
    bounds = [(_host_bytes(root), "the host's memory"), *_group_bounds(root)]
    return min(bounds)


def _host_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return _NO_LIMIT


def _group_bounds(root: Path) -> list[tuple[int, str]]:
    """Return bounds of the process's memory control groups, version 1 and 2, and their parents."""
    bounds: list[tuple[int, str]] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        # In a container the path may be the host's; the container's own group is the top then.
        group = top / path.strip().lstrip("/")
        for folder in (group, *group.parents):
            left = _group_bytes(folder, *names)
            if left is not None:
                bounds.append((left, f"control group {folder}"))
            if folder == top:
                break
    return bounds


def _group_bytes(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    limit_bytes = _number(folder / limit)
    if limit_bytes is None or limit_bytes >= _NO_LIMIT:
        return None
    used = _number(folder / usage) or 0
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == reclaimable:
            used -= int(value)
    return max(0, limit_bytes - used)


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        # The system has no such file, or hides it: the bound is unknown.
        return []
