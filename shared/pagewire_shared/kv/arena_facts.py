"""What identifies a file of memory that processes of one host share; see SharedMemory in
kv_store.proto."""

from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ArenaFacts:
    """A file, as its owner sees it. It is the same elsewhere only where all of this is."""

    path: str
    boot_id: str
    device: int
    inode: int
    num_bytes: int


def boot_id() -> str:
    """Return the boot id of this host's kernel. Raises OSError where there is none."""
    return _BOOT_ID.read_text().strip()
