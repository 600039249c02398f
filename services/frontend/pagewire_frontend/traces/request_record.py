"""Holds the times and counts of a request that has ended, without any of its content."""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.parent import TraceParent

MAX_ERROR_CHARS: Final = 1024
"""Of an error that is kept: it may quote what a client sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRecord:
    """One choice.

    Attributes:
        cell: The scheduler's report, over all re-submits; None without one.
        first_at, last_at: When its first and its last tokens came here; None without tokens.
        longest_gap: Seconds between the two outputs that were furthest apart.
        reason: Why it ended; "" for a choice that was broken off.
    """

    cell: CellTimeline | None
    first_at: float | None
    last_at: float | None
    longest_gap: float
    num_tokens: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request. Times are seconds of time.monotonic().

    Attributes:
        label: The client's x-request-id.
        parent: The client's span; None where it has none.
        tokenize_began_at: When rendering and tokenizing began; before it, a grammar was checked.
        submitted_at: When it was handed to a scheduler's link.
        first_at: When its first output came here; None without output.
        num_resubmits: How often it was submitted again after a scheduler was lost.
        max_tokens, temperature, top_p: As they were used; None for a vector.
        error: The failure that broke it off; "" for none.
        is_finished: Whether all choices ended by themselves.
    """

    request_id: bytes
    label: str | None
    model: str
    adapter: str | None
    parent: TraceParent | None
    arrived_at: float
    tokenize_began_at: float
    tokenize_seconds: float
    submitted_at: float
    first_at: float | None
    ended_at: float
    num_prompt: int
    num_cached: int
    num_resubmits: int
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    error: str
    is_finished: bool
    choices: tuple[ChoiceRecord, ...]

    @property
    def seconds(self) -> float:
        """From its arrival to its end."""
        return self.ended_at - self.arrived_at

    @property
    def outcome(self) -> str:
        """How it ended: "ended", "failed" or "client_gone"."""
        if self.error:
            return "failed"
        return "ended" if self.is_finished else "client_gone"
