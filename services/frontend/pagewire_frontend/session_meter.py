"""The times of one request, and what of it goes into the metrics. Owns no text and no token."""

import time

from pagewire_frontend import metrics
from pagewire_frontend.cached_tiers import CachedTiers
from pagewire_frontend.events import Timings, Usage
from pagewire_frontend.journal import JournalEntry
from pagewire_frontend.session_summary import summary
from pagewire_frontend.token_tally import TOKEN_TALLIES, Pace
from pagewire_shared.errors import DeadlineError, PagewireError


class SessionMeter:
    """Measures one session; seconds are of time.monotonic()."""

    def __init__(self, entry: JournalEntry, arrived_at: float) -> None:
        self._entry = entry
        self._arrived_at = arrived_at
        self.first_at: float | None = None
        """When something of the output came first."""
        self._num_cached_tokens = 0
        self._cached_tiers: CachedTiers = {}
        self._first_source: tuple[int, int] | None = None
        tally = TOKEN_TALLIES.of(entry.model)
        self.paces = [Pace(tally) for _ in entry.choices]
        """Of the choices; they take every chunk."""

    def opened(self) -> None:
        """The request was accepted."""
        metrics.generation_opened(self._entry.model)

    def first_output(self, now: float, num_cached_tokens: int, epoch: int, choice: int) -> None:
        """Something of the output has come; only the first time counts."""
        if self.first_at is not None:
            return
        self.first_at = now
        self._first_source = epoch, choice
        self._num_cached_tokens = num_cached_tokens
        entry = self._entry
        metrics.first_output(
            entry.model,
            num_prompt_tokens=len(entry.prompt_token_ids),
            num_cached_tokens=num_cached_tokens,
            seconds=None if entry.pooling else now - self._arrived_at,
        )

    def note_cached(self, epoch: int, choice: int, tiers: CachedTiers) -> None:
        """A choice that has ended says where its cached tokens were.

        What counts is the choice whose tokens came first, in the epoch in which they came: it is
        the one that the number of cached tokens was taken from.
        """
        is_first = (epoch, choice) == self._first_source
        # Of tiers that contradict the number nothing is told.
        if is_first and sum(tiers.values()) == self._num_cached_tokens:
            self._cached_tiers = tiers

    def finished(self, reason: str) -> None:
        """A choice has ended."""
        metrics.choices_finished(self._entry.model, reason)

    def closed(self, error: PagewireError | None) -> None:
        """Nobody wants more of the request; `error` is what broke it off."""
        entry = self._entry
        num_open = sum(not choice.is_finished for choice in entry.choices)
        if num_open:
            metrics.choices_finished(entry.model, _reason(error), num_open)
        metrics.generation_closed(
            entry.model,
            num_resumes=entry.num_resubmits,
            seconds=None if num_open else time.monotonic() - self._arrived_at,
        )

    def usage(self) -> Usage:
        """Return the tokens so far."""
        num_tokens = sum(choice.next_position for choice in self._entry.choices)
        return Usage(
            len(self._entry.prompt_token_ids),
            num_tokens,
            self._num_cached_tokens,
            self._cached_tiers,
        )

    def timings(self) -> Timings:
        """Return the times until now."""
        now = time.monotonic()
        first = self.first_at if self.first_at is not None else now
        return Timings(first - self._arrived_at, now - self._arrived_at, self._entry.num_resubmits)

    def summary(self, error: PagewireError | None) -> str:
        """Return one line for the log."""
        first = self.first_at
        return summary(
            self._entry,
            error,
            first_token_seconds=None if first is None else first - self._arrived_at,
            total_seconds=time.monotonic() - self._arrived_at,
        )


def _reason(error: PagewireError | None) -> str:
    """Return why a choice ended that did not end by itself."""
    if error is None:
        return "aborted"
    return "deadline" if isinstance(error, DeadlineError) else "failed"
