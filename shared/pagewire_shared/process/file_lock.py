"""File locks that the system releases when their process ends."""

import fcntl


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed or this process ends; False when it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
