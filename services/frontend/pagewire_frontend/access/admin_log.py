"""Logs every administrative call: the key, the request and the outcome."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from google.protobuf.json_format import MessageToDict

from pagewire_frontend.access.api_keys import current_caller
from pagewire_frontend.request_label import LABEL, PEER
from pagewire_shared.errors import PagewireError
from pagewire_shared.process.logs import FIELDS
from pagewire_shared.security import audit

_logger = logging.getLogger(__name__)


def note_call(name: str, *, outcome: str, asked: Any = None, seconds: float = 0.0) -> None:
    """Log that a call has ended, or was refused.

    Args:
        outcome: "ok", the code of an error, or "cancelled".
        asked: The request, a message or a mapping, which holds no secret; None where it was not
            read.
        seconds: How long it took.
    """
    caller = current_caller()
    key = caller.label if caller is not None else None
    fields = {
        "admin_call": name,
        "api_key": key,
        "outcome": outcome,
        "asked": _shown(asked),
        "seconds": round(seconds, 3),
    }
    said = f"admin call {name} by {key or 'anybody (no key is needed)'}: {outcome}"
    _logger.info("%s, asked for %s", said, fields["asked"], extra={FIELDS: fields})


def _shown(asked: Any) -> Mapping[str, Any]:
    if not asked:
        return {}
    if isinstance(asked, Mapping):
        return asked
    shown: dict[str, Any] = MessageToDict(asked, preserving_proto_field_name=True)
    return shown


def note_refusal(what: str, error: PagewireError) -> None:
    """Write to the audit log that a key may not do this, is not valid, or is over its limits.

    Args:
        what: Path or method.
    """
    caller = current_caller()
    audit.note(
        audit.REFUSED,
        what=what,
        who=caller.label if caller is not None else None,
        where=PEER.get(),
        request_id=LABEL.get(),
        code=error.code,
    )


@contextmanager
def noted(name: str, asked: Any) -> Iterator[None]:
    """Log a call when it ends, however it does."""
    began_at = time.monotonic()
    outcome = "cancelled"
    try:
        yield
        outcome = "ok"
    except PagewireError as error:
        outcome = error.code
        raise
    except Exception:
        outcome = "internal_error"
        raise
    finally:
        seconds = time.monotonic() - began_at
        note_call(name, outcome=outcome, asked=asked, seconds=seconds)
        caller = current_caller()
        audit.note(
            "admin_call",
            call=name,
            who=caller.label if caller is not None else None,
            where=PEER.get(),
            request_id=LABEL.get(),
            outcome=outcome,
            asked=_shown(asked),
            seconds=round(seconds, 3),
        )
