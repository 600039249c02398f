"""The audit log of a process: JSON lines about operators, keys, certificates and refusals.

Prompts and keys are never in it. A thread writes, so that no event loop waits for a disk; lines
that it cannot write in time, and refusals beyond a rate, are left out and counted in a line.
"""

import json
import logging
import logging.handlers
import os
import queue
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pagewire_shared.errors import StartupError

_logger = logging.getLogger(__name__)

REFUSED: Final = "refused"
"""Event that anybody can cause, so it has a rate."""
STANDARD_OUTPUT: Final = "-"
_MAX_QUEUED: Final = 10_000
_REFUSED_PER_SECOND: Final = 50.0
_BURST: Final = 500.0


class AuditLog:
    """Writes events to a handler, in a thread of its own."""

    def __init__(
        self, role: str, handler: logging.Handler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._role = role
        self._clock = clock
        self._queue: queue.Queue[Any] = queue.Queue(_MAX_QUEUED)
        self._handler = handler
        self._listener = logging.handlers.QueueListener(self._queue, handler)
        self._listener.start()
        self._left, self._at = _BURST, clock()
        self._num_left_out = 0

    def note(self, event: str, **fields: Any) -> None:
        """Write a line; a field without a value is left out of it."""
        if event == REFUSED and not self._has_room():
            self._num_left_out += 1
            return
        if self._num_left_out and self._put("left_out", {"num": self._num_left_out}):
            self._num_left_out = 0
        if not self._put(event, fields):
            self._num_left_out += 1

    def close(self) -> None:
        """Write what waits."""
        self._listener.stop()
        self._handler.close()

    def _has_room(self) -> bool:
        now = self._clock()
        self._left = min(_BURST, self._left + (now - self._at) * _REFUSED_PER_SECOND)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _put(self, event: str, fields: dict[str, Any]) -> bool:
        time_text = datetime.now(UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time_text, "role": self._role, "pid": os.getpid()}
        line |= {"event": event}
        line |= {name: value for name, value in fields.items() if value is not None}
        text = json.dumps(line, default=str)
        try:
            self._queue.put_nowait(logging.makeLogRecord({"msg": text, "args": None}))
        except queue.Full:
            return False
        return True


class _FileHandler(logging.handlers.WatchedFileHandler):
    """Opens the file anew when it was moved away, and says once what it cannot write."""

    _has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Log the first failure of several in a row."""
        if not self._has_failed:
            _logger.error("the audit log cannot be written: %s", sys.exc_info()[1])
        self._has_failed = True


class _Process:
    log: AuditLog | None = None


_process = _Process()


def use(path: str, role: str) -> None:
    """Write the events of this process to a file, or to STANDARD_OUTPUT; empty for nowhere.

    Raises:
        StartupError: The file cannot be opened.
    """
    close()
    if not path:
        return
    handler: logging.Handler
    try:
        if path == STANDARD_OUTPUT:
            handler = logging.StreamHandler(sys.stdout)
        else:
            handler = _FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise StartupError(
            f"--audit-log: {path} cannot be written: {error.strerror}", field="audit_log"
        ) from error
    _process.log = AuditLog(role, handler)


def note(event: str, **fields: Any) -> None:
    """Write an event of this process, if it has an audit log."""
    if _process.log is not None:
        _process.log.note(event, **fields)


def close() -> None:
    """Write what waits, and end the log of this process."""
    log, _process.log = _process.log, None
    if log is not None:
        log.close()
