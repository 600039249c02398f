"""Describes a request as a whole: its first event, and one log line at its end."""

from dataclasses import dataclass
from typing import Any

from pagewire_frontend.session.events import Opened
from pagewire_frontend.session.journal import JournalEntry
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import short


def opened(entry: JournalEntry) -> Opened:
    """Return the first event."""
    assert entry.params.seed is not None, "drawn before the entry was opened"
    ids = tuple(entry.prompt_token_ids)
    return Opened(entry.request_id, entry.model, ids, entry.params.seed)


@dataclass(frozen=True, slots=True)
class Summary:
    """The log record of a request at its end.

    Attributes:
        fields: The same and more as JSON values; times in seconds.
    """

    line: str
    fields: dict[str, Any]


def summary(
    entry: JournalEntry,
    error: PagewireError | None,
    *,
    label: str | None,
    num_cached_tokens: int,
    num_recoveries: int,
    first_token_seconds: float | None,
    total_seconds: float,
) -> Summary:
    """Return the log record.

    Args:
        error: The failure that broke it off.
        num_cached_tokens: Prompt tokens that were not computed.
        num_recoveries: Losses of workers and schedulers that it survived.
        first_token_seconds: Since the arrival; None for never.
        total_seconds: Since the arrival.
    """
    num_tokens = sum(choice.next_position for choice in entry.choices)
    end = "ended" if entry.is_finished else f"broken off ({error or 'client gone'})"
    waited = f"{first_token_seconds:.3f} s" if first_token_seconds is not None else "never"
    named = f" ({label})" if label else ""
    line = (
        f"request {short(entry.request_id)}{named} of {entry.model} {end}: "
        f"{len(entry.prompt_token_ids)} + {num_tokens} tokens, first after {waited}, "
        f"all in {total_seconds:.3f} s, {num_recoveries} recoveries"
    )
    fields = {
        "request_id": entry.request_id.hex(),
        "x_request_id": label,
        "model": entry.model,
        "tenant": entry.tenant,
        "outcome": "ended" if entry.is_finished else "failed" if error else "client_gone",
        "error": str(error) if error else None,
        "prompt_tokens": len(entry.prompt_token_ids),
        "cached_tokens": num_cached_tokens,
        "completion_tokens": num_tokens,
        "choices": len(entry.choices),
        "time_to_first_token": _rounded(first_token_seconds),
        "seconds": _rounded(total_seconds),
        "resumes": entry.num_resubmits,
        "recoveries": num_recoveries,
    }
    return Summary(line, fields)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
