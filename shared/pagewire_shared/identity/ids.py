"""Ids and names that cross process boundaries, as distinct types, with their checks."""

import hashlib
import math
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NewType

from pagewire_shared.errors import InvalidRequestError, StartupError

DEFAULT_CELL = "default"
MAX_CELL_CHARACTERS = 128

_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


def check_cell_name(name: str) -> None:
    """Raise StartupError unless `name` can name a cell."""
    if len(name) > MAX_CELL_CHARACTERS or not _LEGAL.fullmatch(name):
        raise StartupError(
            f"--cell: {name!r} is no name; write 1 to {MAX_CELL_CHARACTERS} letters, digits, and "
            "._/- behind the first",
            field="cell",
        )


SHOWN_DIGITS = 8
"""Hex digits of an id in tables and logs."""


def find_worker(prefix: str, names: Collection[str]) -> str:
    """Return the one of `names`, in lower-case hex, that begins with `prefix`.

    Raises:
        InvalidRequestError: No name or several names begin so; `field` is worker.
    """
    wanted = prefix.strip().lower()
    found = [name for name in names if name.startswith(wanted)] if wanted else []
    if not wanted:
        reason = "worker must name a worker by its id in hex, or the beginning of it"
    elif not found:
        known = ", ".join(sorted(name[:SHOWN_DIGITS] for name in names)) or "none"
        reason = f"no attached worker is called {prefix!r}; there are: {known}"
    elif len(found) > 1:
        several = ", ".join(sorted(found))
        reason = f"{prefix!r} is the beginning of several workers: {several}"
    else:
        return found[0]
    raise InvalidRequestError(reason, field="worker")


def parse_tenant_weight(text: str) -> tuple[str, float]:
    """Return tenant and weight; a tenant may have = in its name, and "" is the default tenant.

    Raises:
        StartupError: Not TENANT=WEIGHT, or the weight is not a number greater than 0.
    """
    tenant, separator, written = text.rpartition("=")
    if not separator:
        raise StartupError(f"{text!r} is not TENANT=WEIGHT")
    try:
        weight = float(written)
    except ValueError:
        raise StartupError(f"{text!r}: the weight {written!r} is not a number") from None
    if not 0.0 < weight < math.inf:
        raise StartupError(f"{text!r}: a weight must be greater than 0 and finite")
    return tenant, weight


def tokenizer_fingerprint(folder: Path) -> bytes:
    """Return SHA-256 of tokenizer.json, 32 bytes; zeros when the folder has none."""
    path = folder / "tokenizer.json"
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else bytes(32)


RequestId = NewType("RequestId", bytes)
"""16 random bytes minted by a frontend; the only key of a request between processes."""

BlockId = NewType("BlockId", int)
"""Index of a block in one worker's KV pool; never leaves the scheduler-worker pair."""

BlockName = NewType("BlockName", bytes)
"""16-byte content hash of a block, see block_hash."""

ID_BYTES = 16


def mint_id() -> bytes:
    """Return 16 random bytes."""
    return os.urandom(ID_BYTES)


def mint_request_id() -> RequestId:
    """Return a new request id."""
    return RequestId(mint_id())


def short(identifier: bytes) -> str:
    """Return the first 8 hex digits of an id, for logs and audits."""
    return identifier.hex()[:8]
