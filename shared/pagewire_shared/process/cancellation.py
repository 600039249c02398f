"""Tells a task that is to end from an awaited call that somebody else has cancelled, and finds what
a library swallowed."""

import asyncio


def is_cancelled() -> bool:
    """Whether the current task itself is asked to end, so that a CancelledError is meant for it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def end_if_cancelled() -> None:
    """Raise CancelledError in a task that was asked to end, for a call may have swallowed that."""
    if is_cancelled():
        raise asyncio.CancelledError
