"""Fingerprints of models and tokenizers, so that a served name is never trusted for content.

Reads safetensors headers by their published format (u64 length, JSON, data) with plain file I/O:
frontends fingerprint too and must not need torch.
"""

import hashlib
import json
import struct
from pathlib import Path

from pagewire_shared.errors import StartupError

SAMPLE_BYTES = 4096
MAX_HEADER_BYTES = 100 * 1024 * 1024


def tokenizer_fingerprint(folder: Path) -> bytes:
    """Return SHA-256 of tokenizer.json, 32 bytes; zeros when the folder has none."""
    path = folder / "tokenizer.json"
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else bytes(32)


def model_fingerprint(folder: Path) -> bytes:
    """Return SHA-256 over config.json and, per safetensors file, header, size and 4 KiB of each
    tensor."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        _digest_safetensors(digest, path)
    return digest.digest()


def _digest_safetensors(digest: "hashlib._Hash", path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise StartupError(f"{path} is truncated or no safetensors file")
        header = file.read(length)
        digest.update(header + struct.pack("<Q", size))
        try:
            tensors = json.loads(header)
        except ValueError as error:
            raise StartupError(f"{path} has a broken safetensors header: {error}") from error
        tensors.pop("__metadata__", None)
        for name in sorted(tensors):
            begin, end = tensors[name]["data_offsets"]
            if 8 + length + end > size:
                raise StartupError(f"{path} is truncated: tensor {name} ends after the file")
            file.seek(8 + length + begin)
            digest.update(file.read(min(SAMPLE_BYTES, end - begin)))
