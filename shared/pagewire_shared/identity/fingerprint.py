"""The fingerprint of a tokenizer, so that a served name is never trusted for content.

That of the weights is the worker's: see pagewire_worker.identity.
"""

import hashlib
from pathlib import Path


def tokenizer_fingerprint(folder: Path) -> bytes:
    """Return SHA-256 of tokenizer.json, 32 bytes; zeros when the folder has none."""
    path = folder / "tokenizer.json"
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else bytes(32)
