"""The instances that may call a process: a file beside its certificate, read again as it changes.

With it, a certificate that was stolen is shut out by taking its line away, before it expires and
without a new authority.
"""

import logging
import os
import threading
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.security import audit
from pagewire_shared.security.roles import LinkRole, PeerIdentity, is_instance_name

_logger = logging.getLogger(__name__)

INSTANCES: Final = "instances"
"""Name of the file in the folder of --tls-dir; without it every instance may call."""
_MAX_BYTES: Final = 1024 * 1024

_Stamp = tuple[int, int, int]


class AllowedInstances:
    """Says which instances of roles may call.

    A line is ROLE/INSTANCE, whose certificate has to be bound to it, or ROLE for all of a role; `#`
    begins a comment. A role without a line may not call. While the file cannot be used, the lines
    before count: a lost file lets no further ones in.

    Raises:
        StartupError: The file is there at first, and cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / INSTANCES
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._lines = None if self._stamp is None else _read(self._path)

    def allows(self, peer: PeerIdentity) -> bool:
        """Return whether a peer may call."""
        lines = self._current()
        if lines is None:
            return True
        return bool(lines & (peer.instances | {str(role) for role in peer.roles}))

    def _current(self) -> frozenset[str] | None:
        found = self._look()
        if found == self._stamp:
            return self._lines
        with self._lock:
            if found != self._stamp:
                self._stamp = found
                self._take_changed()
            return self._lines

    def _take_changed(self) -> None:
        try:
            self._lines = _read(self._path)
        except StartupError as error:
            _logger.warning("the instances before are used: %s", error.message)
            audit.note("instances_unusable", reason=error.message)
            return
        _logger.info("%d lines of instances are used: %s", len(self._lines), self._path)
        audit.note("instances_changed", path=str(self._path), num_lines=len(self._lines))

    def _look(self) -> _Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size)


def _read(path: Path) -> frozenset[str]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise StartupError(f"--tls-dir: {path} is too large", field="tls_dir")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"--tls-dir: {path} cannot be read", field="tls_dir") from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = {line.lower() for line in lines if line}
    for line in found:
        role, separator, instance = line.partition("/")
        if role not in set(LinkRole) or (separator and not is_instance_name(instance)):
            raise StartupError(
                f"--tls-dir: {path}: {line[:80]!r} is neither ROLE/INSTANCE nor ROLE, one of"
                f" {', '.join(LinkRole)}",
                field="tls_dir",
            )
    return frozenset(found)
