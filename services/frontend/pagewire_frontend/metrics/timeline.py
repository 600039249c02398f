"""The time of a choice by stage: the scheduler's reports, added up over re-submits, and this
frontend's own measurements."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pagewire_frontend.metrics.moments import MAX_MOMENTS, CellMoment
from pagewire_shared.kv.tier import WORKER_TIER

CachedTiers = Mapping[str, int]
"""Tier to number of tokens; empty without cached tokens, or when their tiers are not known."""


def joined(left: CachedTiers, right: CachedTiers) -> CachedTiers:
    """Return the sums per tier."""
    tiers = dict.fromkeys((*left, *right))
    return {tier: left.get(tier, 0) + right.get(tier, 0) for tier in tiers}


def _both(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    """Return the sums of seconds per reason."""
    reasons = dict.fromkeys((*left, *right))
    return {reason: left.get(reason, 0.0) + right.get(reason, 0.0) for reason in reasons}


def tier_details(tiers: CachedTiers) -> dict[str, Any]:
    """Return the fields that usage in HTTP bodies has beyond OpenAI's. Nothing unless tokens came
    from a KV store, so that clients without a store see no new field."""
    if not any(num for tier, num in tiers.items() if tier != WORKER_TIER):
        return {}
    return {"cached_tokens_by_tier": dict(tiers)}


MAX_HEADER_BYTES: Final = 4096
"""Most bytes of timelines in the metadata of a gRPC call, of which clients take 8 KiB in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTimeline:
    """The scheduler's report of one choice; durations do not overlap.

    Attributes:
        queue_seconds: From its receipt to the first step.
        queue_waits: Seconds of it by what it waited for, where that is known.
        paused_seconds: In a queue again after it had begun to run.
        prefill_seconds: Computing the prompt, wherever.
        transfer_seconds: Waiting for KV blocks while nothing was computed for it.
        transfer_bytes: Payload that was moved for it.
        transport: Transport of its newest blocks from another worker; None when none moved.
        num_preemptions: How often it was preempted.
        num_migrations: How often it was moved to another worker after it had begun to run.
        num_recoveries: How often its worker was lost after it had begun to run.
        is_handed_off: Whether prompt and tokens were computed on different workers.
        cached_tiers: Prompt tokens that were not computed, by where they were.
        moments: What happened when, of a traced request.
    """

    queue_seconds: float = 0.0
    queue_waits: Mapping[str, float] = field(default_factory=dict)
    paused_seconds: float = 0.0
    prefill_seconds: float = 0.0
    transfer_seconds: float = 0.0
    transfer_bytes: int = 0
    transport: str | None = None
    num_preemptions: int = 0
    num_migrations: int = 0
    num_recoveries: int = 0
    is_handed_off: bool = False
    cached_tiers: CachedTiers = field(default_factory=dict)
    moments: tuple[CellMoment, ...] = ()

    def followed_by(self, later: "CellTimeline") -> "CellTimeline":
        """Return both as one: durations and counts add up. Cached tokens are those of the first
        run, whose tokens the client saw first."""
        return CellTimeline(
            queue_seconds=self.queue_seconds + later.queue_seconds,
            queue_waits=_both(self.queue_waits, later.queue_waits),
            paused_seconds=self.paused_seconds + later.paused_seconds,
            prefill_seconds=self.prefill_seconds + later.prefill_seconds,
            transfer_seconds=self.transfer_seconds + later.transfer_seconds,
            transfer_bytes=self.transfer_bytes + later.transfer_bytes,
            transport=later.transport or self.transport,
            num_preemptions=self.num_preemptions + later.num_preemptions,
            num_migrations=self.num_migrations + later.num_migrations,
            num_recoveries=self.num_recoveries + later.num_recoveries,
            is_handed_off=self.is_handed_off or later.is_handed_off,
            cached_tiers=self.cached_tiers,
            moments=(self.moments + later.moments)[:MAX_MOMENTS],
        )


@dataclass(frozen=True, slots=True)
class ChoiceTimeline:
    """A choice as a whole.

    Attributes:
        decode_seconds: From its first token to its last, as they came here.
        num_resumes: How often its request was submitted again after the scheduler was lost.
    """

    tokenize_seconds: float
    cell: CellTimeline
    decode_seconds: float
    num_resumes: int = 0

    @property
    def num_recoveries(self) -> int:
        """How often the choice went on after a worker or the scheduler was lost."""
        return self.cell.num_recoveries + self.num_resumes

    def body(self) -> dict[str, Any]:
        """Return the timeline as JSON values, durations in milliseconds."""
        cell = self.cell
        return {
            "tokenize_ms": _milliseconds(self.tokenize_seconds),
            "queue_ms": _milliseconds(cell.queue_seconds),
            "queue_ms_by_reason": {
                reason: _milliseconds(seconds) for reason, seconds in cell.queue_waits.items()
            },
            "paused_ms": _milliseconds(cell.paused_seconds),
            "prefill_ms": _milliseconds(cell.prefill_seconds),
            "transfer_ms": _milliseconds(cell.transfer_seconds),
            "decode_ms": _milliseconds(self.decode_seconds),
            "transfer_bytes": cell.transfer_bytes,
            "transport": cell.transport,
            "num_preemptions": cell.num_preemptions,
            "num_migrations": cell.num_migrations,
            "num_recoveries": self.num_recoveries,
            "is_handed_off": cell.is_handed_off,
            "cached_tokens_by_tier": dict(cell.cached_tiers),
        }


Timelines = Sequence[ChoiceTimeline | None]
"""Timelines of the choices in their order; None where no scheduler has reported."""


@dataclass(slots=True)
class _Run:
    """The newest epoch with a report of a choice, and all epochs before."""

    epoch: int
    current: CellTimeline
    earlier: CellTimeline | None = None

    @property
    def total(self) -> CellTimeline:
        return self.current if self.earlier is None else self.earlier.followed_by(self.current)


class TimelineKeeper:
    """The timelines of one request's choices, bounded by their number."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}

    def note(self, epoch: int, choice: int, timeline: CellTimeline) -> None:
        """Take a scheduler's report: within an epoch the newest counts; epochs add up."""
        run = self._runs.get(choice)
        if run is None:
            self._runs[choice] = _Run(epoch, timeline)
        elif epoch > run.epoch:
            self._runs[choice] = _Run(epoch, timeline, run.total)
        elif epoch == run.epoch:
            run.current = timeline

    def of(self, choice: int) -> CellTimeline | None:
        """Return the timeline of a choice; None without a report."""
        run = self._runs.get(choice)
        return None if run is None else run.total


def timeline_details(timelines: Timelines) -> dict[str, Any]:
    """Return the timeline field of usage in HTTP bodies: one entry per choice, nothing where no
    scheduler has reported."""
    if not any(timelines):
        return {}
    return {"timeline": _bodies(timelines)}


def timeline_header(timelines: Timelines) -> str | None:
    """Return compact ASCII JSON of as many of the first choices as fit; None for none."""
    text = None
    for count in range(1, len(timelines) + 1):
        longer = json.dumps(_bodies(timelines[:count]), separators=(",", ":"))
        if len(longer) > MAX_HEADER_BYTES:
            break
        text = longer
    return text if any(timelines) else None


def _bodies(timelines: Timelines) -> list[dict[str, Any] | None]:
    return [None if one is None else one.body() for one in timelines]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
