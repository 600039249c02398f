"""Measures one request: its times, cached tokens and timelines, for metrics, usage and the log."""

import time
from dataclasses import replace

from pagewire_frontend.metrics import requests as metrics
from pagewire_frontend.metrics.stages import stages_of
from pagewire_frontend.metrics.timeline import (
    CachedTiers,
    CellTimeline,
    ChoiceTimeline,
    TimelineKeeper,
)
from pagewire_frontend.metrics.tokens import TOKEN_COUNTERS, InterTokenLatency
from pagewire_frontend.request_label import LABEL
from pagewire_frontend.session.events import PredictedTokens, Timings, Usage
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.selection import Selection
from pagewire_frontend.session.session_summary import Summary, summary
from pagewire_frontend.traces.parent import PARENT
from pagewire_frontend.traces.request_record import (
    MAX_ERROR_CHARS,
    ChoiceRecord,
    RequestRecord,
)
from pagewire_frontend.traces.sampling import TRACE_LABEL, TracePolicy, trace_name
from pagewire_shared.errors import DeadlineError, PagewireError
from pagewire_shared.sampling.pooling import CACHEABLE


class SessionMeter:
    """Measures one session; seconds are of time.monotonic()."""

    def __init__(self, entry: JournalEntry, arrived_at: float) -> None:
        self._entry = entry
        self.arrived_at = arrived_at
        self._label, self._parent = LABEL.get(), PARENT.get()
        self.first_at: float | None = None
        """Time of the first output."""
        self.num_cached_tokens = 0
        """Tokens of the prompt that were not computed, known with the first output."""
        self._cached_tiers: CachedTiers = {}
        self._reported_tiers: dict[tuple[int, int], CachedTiers] = {}
        self._first_source: tuple[int, int] | None = None
        self._timelines = TimelineKeeper()
        self._predicted: dict[int, PredictedTokens] = {}
        self.tokenize_began_at, self.tokenize_seconds = arrived_at, 0.0
        """Rendering and tokenizing the prompt."""
        self._submitted_at = self._epoch_at = arrived_at
        self._reasons: dict[int, str] = {}
        self._exemplar: dict[str, str] | None = None
        self._stages = stages_of(entry.model)
        counter = TOKEN_COUNTERS.of(entry.model)
        self.latencies = [InterTokenLatency(counter) for _ in entry.choices]
        """One per choice; each takes every chunk of its choice."""

    def sampled_by(self, policy: TracePolicy) -> None:
        """Note whether the request leaves a trace however it ends."""
        if policy.samples(self._entry.request_id, self._parent):
            self._entry.is_traced = True
            self.note_traced()

    def note_traced(self) -> None:
        """Note that the request leaves a trace, which histograms name from now on."""
        self._exemplar = {TRACE_LABEL: trace_name(self._entry.request_id, self._parent)}

    def note_submit(self) -> None:
        """Note that the request is given to a scheduler, for the first time or again."""
        self._epoch_at = time.monotonic()

    def opened(self) -> None:
        """Count the accepted request."""
        self._submitted_at = time.monotonic()
        metrics.generation_opened(self._entry.model)

    def first_output(self, now: float, num_cached_tokens: int, epoch: int, choice: int) -> None:
        """Note output of the request; only the first time counts."""
        if self.first_at is not None:
            return
        self.first_at = now
        self._first_source = epoch, choice
        self.num_cached_tokens = num_cached_tokens
        reported, self._reported_tiers = self._reported_tiers, {}
        self.note_cached(epoch, choice, reported.get((epoch, choice), {}))
        entry = self._entry
        metrics.first_output(
            entry.model,
            num_prompt_tokens=len(entry.prompt_token_ids),
            num_cached_tokens=num_cached_tokens,
            seconds=None if entry.pooling else now - self.arrived_at,
            exemplar=self._exemplar,
        )
        if _reads_cache(entry):
            num_prompt = len(entry.prompt_token_ids)
            self._stages.looked_up(num_prompt, num_cached_tokens, self._cached_tiers)

    def note_timeline(self, epoch: int, choice: int, timeline: CellTimeline) -> None:
        """Take a scheduler's timeline of a choice; ignore another epoch or an unknown choice."""
        if epoch == self._entry.epoch and choice < len(self._entry.choices):
            if timeline.moments:
                placed = (one.placed(self._epoch_at, epoch) for one in timeline.moments)
                timeline = replace(timeline, moments=tuple(placed))
            before = self._timelines.of(choice)
            self._timelines.note(epoch, choice, timeline)
            self._note_preemptions(before, self._timelines.of(choice))
            self.note_cached(epoch, choice, timeline.cached_tiers)

    def note_cached(self, epoch: int, choice: int, tiers: CachedTiers) -> None:
        """Take the tiers of a choice's cached tokens, which a scheduler reports before its first
        tokens and at its end.

        Only the choice whose tokens came first counts, in the epoch in which they came: the number
        of cached tokens was taken from it.
        """
        if self._first_source is None:
            self._reported_tiers[epoch, choice] = tiers
            return
        is_first = (epoch, choice) == self._first_source
        # Tiers that contradict the number are not shown.
        if is_first and sum(tiers.values()) == self.num_cached_tokens:
            self._cached_tiers = tiers

    def note_predicted(self, epoch: int, choice: int, predicted: PredictedTokens) -> None:
        """Take the predicted tokens of a choice, which a scheduler reports at its end."""
        if epoch == self._entry.epoch:
            self._predicted[choice] = predicted

    def _note_preemptions(self, before: CellTimeline | None, now: CellTimeline | None) -> None:
        counts = [0 if one is None else one.num_preemptions for one in (before, now)]
        if counts[1] > counts[0]:
            self._stages.preempted(counts[1] - counts[0])

    def finished(self, choice: int, reason: str) -> None:
        """Count the end of a choice."""
        metrics.choices_finished(self._entry.model, reason)
        self._reasons[choice] = reason
        cell = self._timelines.of(choice)
        if cell is not None:
            num_tokens = self._entry.choices[choice].next_position
            self._stages.choice_ended(cell, self.latencies[choice].seconds, num_tokens)

    def closed(self, error: PagewireError | None) -> None:
        """Count the end of the request; `error` is the failure that broke it off, or None."""
        entry = self._entry
        num_open = sum(not choice.is_finished for choice in entry.choices)
        if num_open:
            metrics.choices_finished(entry.model, _reason(error), num_open)
        else:
            self._stages.request_ended(
                num_prompt=len(entry.prompt_token_ids),
                num_choices=len(entry.choices),
                max_tokens=None if entry.pooling else entry.params.max_tokens,
                tokenize_seconds=self.tokenize_seconds,
            )
        metrics.generation_closed(
            entry.model,
            num_resumes=entry.num_resubmits,
            seconds=None if num_open else time.monotonic() - self.arrived_at,
            exemplar=self._exemplar,
        )
        if self._exemplar is not None:
            for latency in self.latencies:
                latency.show(self._exemplar)

    def usage(self, selection: Selection | None) -> Usage:
        """Return the tokens of all choices, and the timelines of those in `selection`; None for
        all."""
        choices = self._entry.choices
        order = range(len(choices)) if selection is None else selection.order(choices)
        return Usage(
            len(self._entry.prompt_token_ids),
            sum(choice.next_position for choice in choices),
            self.num_cached_tokens,
            self._cached_tiers,
            tuple(self._timeline(choice) for choice in order),
            self._predicted_tokens(),
            "" if self._entry.weights is None else self._entry.weights.shown,
        )

    def _predicted_tokens(self) -> PredictedTokens | None:
        """Return the sum over all choices; None for a request without a prediction."""
        if self._entry.predicted_token_ids is None:
            return None
        counts = self._predicted.values()
        return PredictedTokens(
            sum(one.num_accepted for one in counts), sum(one.num_rejected for one in counts)
        )

    def _timeline(self, choice: int) -> ChoiceTimeline | None:
        cell = self._timelines.of(choice)
        if cell is None:
            return None
        decode_seconds = self.latencies[choice].seconds
        return ChoiceTimeline(
            self.tokenize_seconds, cell, decode_seconds, self._entry.num_resubmits
        )

    @property
    def num_recoveries(self) -> int:
        """Losses of workers and schedulers that the choice hit most often has survived."""
        cells = filter(None, map(self._timelines.of, range(len(self._entry.choices))))
        return self._entry.num_resubmits + max((one.num_recoveries for one in cells), default=0)

    def timings(self) -> Timings:
        """Return the times until now."""
        now = time.monotonic()
        first = self.first_at if self.first_at is not None else now
        return Timings(
            first - self.arrived_at,
            now - self.arrived_at,
            self._entry.num_resubmits,
            self.num_recoveries,
        )

    def summary(self, error: PagewireError | None) -> Summary:
        """Return the log record of the request."""
        first = self.first_at
        return summary(
            self._entry,
            error,
            label=self._label,
            num_cached_tokens=self.num_cached_tokens,
            num_recoveries=self.num_recoveries,
            first_token_seconds=None if first is None else first - self.arrived_at,
            total_seconds=time.monotonic() - self.arrived_at,
        )

    def record(self, error: PagewireError | None) -> RequestRecord:
        """Return what the request leaves behind for its trace."""
        entry = self._entry
        is_text = entry.pooling is None
        return RequestRecord(
            request_id=entry.request_id,
            label=self._label,
            model=entry.model,
            adapter=None if entry.adapter is None else entry.adapter.name,
            parent=self._parent,
            arrived_at=self.arrived_at,
            tokenize_began_at=self.tokenize_began_at,
            tokenize_seconds=self.tokenize_seconds,
            submitted_at=self._submitted_at,
            first_at=self.first_at,
            ended_at=time.monotonic(),
            num_prompt=len(entry.prompt_token_ids),
            num_cached=self.num_cached_tokens,
            num_resubmits=entry.num_resubmits,
            max_tokens=entry.params.max_tokens if is_text else None,
            temperature=entry.params.temperature if is_text else None,
            top_p=entry.params.top_p if is_text else None,
            error=str(error)[:MAX_ERROR_CHARS] if error else "",
            is_finished=entry.is_finished,
            choices=tuple(map(self._choice_record, range(len(entry.choices)))),
        )

    def _choice_record(self, choice: int) -> ChoiceRecord:
        latency = self.latencies[choice]
        # A vector has no chunks; another choice without tokens has no times.
        vector_at = None if self._entry.pooling is None else self.first_at
        return ChoiceRecord(
            cell=self._timelines.of(choice),
            first_at=latency.first_at if vector_at is None else vector_at,
            last_at=latency.last_at if vector_at is None else vector_at,
            longest_gap=latency.longest_gap,
            num_tokens=self._entry.choices[choice].next_position,
            reason=self._reasons.get(choice, ""),
        )


def _reads_cache(entry: JournalEntry) -> bool:
    """Return whether the prompt may use cached blocks: not if every position has output."""
    is_mean = entry.pooling is not None and entry.pooling.kind not in CACHEABLE
    return entry.prompt_journal is None and not is_mean


def _reason(error: PagewireError | None) -> str:
    """Return the reason of a choice that was broken off."""
    if error is None:
        return "aborted"
    return "deadline" if isinstance(error, DeadlineError) else "failed"
