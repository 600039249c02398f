"""Tells errors of a process that is out of descriptors, threads or memory from faults: what it
cannot do now, another process, or the same one later, can."""

import errno
import logging
import os
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InternalError, PagewireError, UnavailableError

EXHAUSTED: Final = frozenset(
    {
        errno.EMFILE,  # descriptors of the process
        errno.ENFILE,  # descriptors of the machine
        errno.ENOMEM,
        errno.EAGAIN,  # processes and threads, in fork
        errno.ENOBUFS,  # memory of sockets
    }
)
"""Numbers of an OSError that mean that something ran out."""
_NO_THREAD: Final = "can't start new thread"


@dataclass
class ExhaustedError(UnavailableError):
    """This process is out of descriptors, threads or memory at the moment."""


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error, or one that it was raised from, means that something ran out."""
    return _shortage(error) is not None


def fault_of(error: BaseException, message: str) -> PagewireError:
    """Return what a client gets for an unexpected error: that this process is short of something,
    or else an InternalError with `message`."""
    shortage = _shortage(error)
    if shortage is None:
        return InternalError(message)
    return ExhaustedError(f"this process is out of resources ({shortage}); try again")


def log_fault(logger: logging.Logger, what: str, error: BaseException) -> None:
    """Log an unexpected error: in one line where something ran out, else with its trace."""
    shortage = _shortage(error)
    if shortage is None:
        logger.error("%s failed", what, exc_info=error)
    else:
        logger.error("%s failed: this process is out of resources (%s)", what, shortage)


def _shortage(error: BaseException | None) -> str | None:
    """Return what ran out, as the system says it, without names of files; None for nothing."""
    while error is not None:
        match error:
            case MemoryError():
                return "memory"
            case OSError() if error.errno in EXHAUSTED:
                return os.strerror(error.errno)
            case RuntimeError() if str(error) == _NO_THREAD:
                return _NO_THREAD
        error = error.__cause__
    return None
