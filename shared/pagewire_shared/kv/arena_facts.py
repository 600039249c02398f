"""Identity of the file of an arena that processes share; see SharedMemory in kv_store.proto."""

from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaFacts:
    """The file of an arena as its owner sees it. A peer has the same file only if all agree."""

    path: str
    boot_id: str
    device: int
    inode: int
    num_bytes: int


def boot_id() -> str:
    """Return the boot id of this host's kernel. Raises OSError where the system has no boot id."""
    return _BOOT_ID.read_text().strip()
