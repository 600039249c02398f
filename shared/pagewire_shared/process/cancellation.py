"""Detects that the current task was cancelled, even when a library swallowed the CancelledError."""

import asyncio


def is_cancelled() -> bool:
    """Return whether the current task itself was cancelled, not only a call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def end_if_cancelled() -> None:
    """Raise CancelledError in a cancelled task; an awaited call may have swallowed the error."""
    if is_cancelled():
        raise asyncio.CancelledError
