"""Bounds of the priority of a request; the scheduler orders its queues by it."""

from pagewire_shared.errors import InvalidRequestError

MIN_PRIORITY = -100
MAX_PRIORITY = 100


def check_priority(value: int) -> int:
    """Return `value`. Raises InvalidRequestError when it is out of bounds."""
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidRequestError(
            f"priority must be between {MIN_PRIORITY} and {MAX_PRIORITY}, got {value}",
            field="priority",
        )
    return value
