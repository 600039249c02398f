"""What is said of a request as a whole: its first event, and one line for the log at its end.
Pure."""

from pagewire_frontend.events import Opened
from pagewire_frontend.journal import JournalEntry
from pagewire_shared.errors import PagewireError
from pagewire_shared.ids import short


def opened(entry: JournalEntry) -> Opened:
    """Return the first event."""
    assert entry.params.seed is not None, "drawn before the entry was opened"
    ids = tuple(entry.prompt_token_ids)
    return Opened(entry.request_id, entry.model, ids, entry.params.seed)


def summary(
    entry: JournalEntry,
    error: PagewireError | None,
    *,
    first_token_seconds: float | None,
    total_seconds: float,
) -> str:
    """Return the line; seconds count from the arrival, `first_token_seconds` None for never."""
    num_tokens = sum(choice.next_position for choice in entry.choices)
    end = "ended" if entry.is_finished else f"broken off ({error or 'client gone'})"
    waited = f"{first_token_seconds:.3f} s" if first_token_seconds is not None else "never"
    return (
        f"request {short(entry.request_id)} of {entry.model} {end}: "
        f"{len(entry.prompt_token_ids)} + {num_tokens} tokens, first after {waited}, "
        f"all in {total_seconds:.3f} s, {entry.num_resubmits} resumes"
    )
