"""Computes the fingerprint of a checkpoint over every byte of its configuration and weights.

It is SHA-256 over a canonical encoding: a tag with a version, then parts, each after its length as
little-endian u64. Parts are config.json, the index if there is one, and size and BLAKE3 digest of
each file of weights, in the order of their names. A GGUF file has an index, too. Checkpoints that
differ in a byte have different fingerprints, and so different names of KV blocks.

Threads hash the files beside the loader, which reads the same pages. Names that a hub gives its
files (blobs/<sha256>) are not trusted, because they are never compared with the contents.
"""

import hashlib
import json
import mmap
import os
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3
from safetensors import SafetensorError, safe_open

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import (
    GGUF_INDEX_NAME,
    GGUF_NAME,
    INDEX_NAME,
    SINGLE_NAME,
)
from pagewire_worker.checkpoint.digest_cache import DigestCache
from pagewire_worker.checkpoint.weights import broken_file

VERSION = 2
TAG = b"pagewire model %d" % VERSION
"""Version 1 hashed 4 KiB of each tensor; blocks stored under its names are never read again."""

WINDOW_BYTES = 16 * 1024**2
"""Bytes mapped at once, so that hashing a file does not make the process as large as the file."""

MAX_THREADS = 4
CORES_PER_THREAD = 4
"""One thread hashes 3 to 5 GB/s; loading needs the other cores."""


class ModelFingerprint:
    """The fingerprint of the checkpoint in `folder`, computed in the background.

    Raises StartupError at once for files that are not safetensors files or are truncated.

    Args:
        folder: Holds config.json and the weights.
        overrides: Bytes of values in place of those of config.json; a part before it if any.
    """

    def __init__(self, folder: Path, cache: DigestCache, overrides: bytes = b"") -> None:
        self._parts = [overrides] if overrides else []
        self._parts.append((folder / "config.json").read_bytes())
        for name in (INDEX_NAME, GGUF_INDEX_NAME):
            if (folder / name).is_file():
                self._parts.append((folder / name).read_bytes())
        self._files = _weight_files(folder)
        for path in self._files:
            if path.name != GGUF_NAME:
                _check_safetensors(path)
        num_threads = min(MAX_THREADS, max(1, (os.cpu_count() or 1) // CORES_PER_THREAD))
        pool = ThreadPoolExecutor(num_threads, thread_name_prefix="fingerprint")
        self._digests: list[Future[bytes]] = [
            pool.submit(_digest, path, cache) for path in self._files
        ]
        pool.shutdown(wait=False)

    def result(self) -> bytes:
        """Wait for the fingerprint, 32 bytes. Raises StartupError if a file is gone."""
        encoded = hashlib.sha256(TAG)
        for part in self._parts:
            encoded.update(struct.pack("<Q", len(part)) + part)
        for path, digest in zip(self._files, self._digests, strict=True):
            try:
                part = digest.result()
            except (OSError, ValueError) as error:
                raise StartupError(f"{path} cannot be read: {error}", field="model") from error
            encoded.update(struct.pack("<Q", len(part)) + part)
        return encoded.digest()


def model_fingerprint(folder: Path, cache: DigestCache) -> bytes:
    """Return the fingerprint of the checkpoint in `folder`. Raises StartupError."""
    return ModelFingerprint(folder, cache).result()


def _weight_files(folder: Path) -> list[Path]:
    """Return the files to load, by name: those of the index, or the single file, or all."""
    index = folder / INDEX_NAME
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
            return [path for name in names if (path := folder / str(name)).is_file()]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # the loader reports the fault
    elif (folder / GGUF_INDEX_NAME).is_file():
        return [folder / GGUF_NAME]
    elif (folder / SINGLE_NAME).is_file():
        return [folder / SINGLE_NAME]
    return sorted(folder.glob("*.safetensors"))


def _digest(path: Path, cache: DigestCache) -> bytes:
    """Return size and digest of a file."""
    before = path.stat()
    digest = cache.find(path)
    if digest is None:
        digest = _hash(path)
        cache.keep(path, before, digest)
    return struct.pack("<Q", before.st_size) + digest


def _hash(path: Path) -> bytes:
    """Return the BLAKE3 digest of a file; the interpreter lock is released meanwhile."""
    hasher = blake3()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for begin in range(0, size, WINDOW_BYTES):
            length = min(WINDOW_BYTES, size - begin)
            mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=begin)
            with mapped, memoryview(mapped) as view:
                hasher.update(view)
    return hasher.digest()


def _check_safetensors(path: Path) -> None:
    """Raise StartupError for a file without a valid header, or with tensors beyond its end."""
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise broken_file(path, error) from error
