"""Locks that die with their process."""

import fcntl


def try_lock(file: int) -> bool:
    """Lock an open file for as long as this process lives; False when another one has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
