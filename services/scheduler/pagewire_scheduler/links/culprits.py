"""Finds the requests that the core was working on when it failed. Their frontends need them to
recognize a request that fails every scheduler."""

import traceback
from typing import Final

from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_shared.identity.ids import RequestId

MAX_CULPRITS: Final = 64


def culprits_of(error: BaseException) -> list[RequestId]:
    """Return the requests among the local variables of the innermost call that has any, at most
    MAX_CULPRITS."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        found = dict.fromkeys(
            request_id
            for value in frame.f_locals.values()
            if (request_id := _request_id(value)) is not None
        )
        if found:
            return list(found)[:MAX_CULPRITS]
    return []


def _request_id(value: object) -> RequestId | None:
    if isinstance(value, Sequence):
        value = value.request
    return value.request_id if isinstance(value, Request | Submission) else None
