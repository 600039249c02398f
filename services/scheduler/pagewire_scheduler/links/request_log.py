"""Log lines about single requests, so that an id can be followed from the frontend's log."""

import logging
from collections.abc import Iterable

from pagewire_scheduler.core.data.events import Event, FinishedEvent, RejectedEvent
from pagewire_scheduler.core.state.request import Sequence
from pagewire_shared.identity.ids import short
from pagewire_shared.process.logs import FIELDS

MAX_NAMED_REQUESTS = 32
"""Most requests named in one line."""

_logger = logging.getLogger(__name__)


def log_failure(event: Event) -> None:
    """Log a refused or failed request. It runs per event, so most calls return at once."""
    if not isinstance(event, FinishedEvent | RejectedEvent) or event.error is None:
        return
    verb = "refused" if isinstance(event, RejectedEvent) else "failed"
    fields = {"request_id": event.request_id.hex(), "error": str(event.error)}
    _logger.info(
        "request %s %s: %s", short(event.request_id), verb, event.error, extra={FIELDS: fields}
    )


def named(sequences: Iterable[Sequence]) -> str:
    """Return the first requests of sequences for a log line, and the number of further ones."""
    names = sorted({short(sequence.request.submission.request_id) for sequence in sequences})
    more = len(names) - MAX_NAMED_REQUESTS
    shown = ", ".join(names[:MAX_NAMED_REQUESTS])
    return shown + (f" and {more} more" if more > 0 else "") if names else "none"
