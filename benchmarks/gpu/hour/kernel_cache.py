"""Triton's compiled kernels, kept from call to call: as a folder, and packed into one file for
machines that begin bare."""

import tarfile
from pathlib import Path

NAME = "triton-cache.tar.gz"
MOST_BYTES = 15 * 1024**2
"""Of the packed file: more is not worth carrying."""


def unpack(archive: Path, folder: Path) -> int:
    """Fill an empty cache from an archive; return how many files there are now."""
    folder.mkdir(parents=True, exist_ok=True)
    if archive.exists() and not any(folder.iterdir()):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return sum(path.is_file() for path in folder.rglob("*"))


def pack(folder: Path, archive: Path) -> bool:
    """Write a cache into an archive; return False, and write none, where it becomes too large."""
    part = archive.with_suffix(".part")
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tar.add(path, path.relative_to(folder).as_posix())
    if part.stat().st_size > MOST_BYTES:
        part.unlink()
        return False
    part.replace(archive)
    return True
