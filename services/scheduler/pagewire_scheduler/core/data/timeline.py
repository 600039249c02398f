"""The timeline of one choice: queue, prefill and transfer times, and counts of preemptions and
migrations. The caller passes instants in."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pagewire_scheduler.core.data.moments import Moment
from pagewire_scheduler.core.data.queue_reasons import NO_WAITS, Waits, added
from pagewire_shared.kv.tier import WORKER_TIER
from pagewire_shared.kv.transport import KvTransport


def tokens_by_tier(
    num_cached: int, loaded: Mapping[int, str], block_size: int
) -> tuple[tuple[str, int], ...]:
    """Return (tier, tokens) for the first `num_cached` tokens; the tokens add up to it.

    Args:
        num_cached: Prompt tokens found.
        loaded: The tier of each block loaded for the sequence, by its index.
        block_size: In tokens.
    """
    tiers: Counter[str] = Counter()
    for index, tier in loaded.items():
        tokens = min(block_size, num_cached - index * block_size)
        if tokens > 0:
            tiers[tier] += tokens
    num_own = num_cached - sum(tiers.values())
    own = [(WORKER_TIER, num_own)] if num_own > 0 else []
    return (*own, *sorted(tiers.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """See ChoiceTimeline in timeline.proto; times are seconds and do not overlap.

    Attributes:
        queue_seconds: From arrival to the first step, or the first one of a prefill elsewhere.
        queue_waits: Seconds of it by what it waited for, as far as that is known.
        paused_seconds: In a queue again after it had begun to run.
        prefill_seconds: Computing the prompt, on any worker.
        transfer_seconds: Waiting for blocks while nothing was computed for the choice.
        transfer_bytes: Payload that was moved for the choice.
        transport: Transport of the newest blocks from a worker; None without any.
        num_preemptions: How often it was preempted.
        num_migrations: How often it was moved to another worker after it had begun to run.
        num_recoveries: How often its worker was lost after it had begun to run.
        is_handed_off: Whether prompt and tokens were computed on different workers.
        cached_tokens: (tier, prompt tokens that were not computed).
        moments: Of a traced request, with the seconds from its arrival to the end of each.
    """

    queue_seconds: float = 0.0
    queue_waits: Waits = NO_WAITS
    paused_seconds: float = 0.0
    prefill_seconds: float = 0.0
    transfer_seconds: float = 0.0
    transfer_bytes: int = 0
    transport: KvTransport | None = None
    num_preemptions: int = 0
    num_migrations: int = 0
    num_recoveries: int = 0
    is_handed_off: bool = False
    cached_tokens: tuple[tuple[str, int], ...] = ()
    moments: tuple[tuple[float, Moment], ...] = ()


@dataclass(slots=True)
class Times:
    """Instants and durations of a sequence, on the caller's clock.

    Attributes:
        begun_at: Its first step, or the first one of a prefill elsewhere.
        first_token_at: When its first token, or its vector, came.
        queued_at: What the clock of its queue showed when it came there.
        waits: Seconds in queues until it began, by reason.
        paused: Seconds in queues since then.
        before_step, before_token, after_token: Seconds of waiting for blocks, by phase.
        transfer_bytes, transport: Bytes that came, and transport of the newest from a worker.
        num_migrations: How often it was moved after it had begun to run.
        num_recoveries: How often its worker was lost after it had begun to run.
        is_handed_off: Whether another worker computed some of its prompt.
        cached_tokens: (tier, number) of the prompt tokens found in the cache at the first start.
        is_due: Whether the timeline is reported with the next token.
        paused_counts: Recoveries, preemptions and migrations at the newest pause, if it is traced.
    """

    begun_at: float | None = None
    first_token_at: float | None = None
    queued_at: Waits = NO_WAITS
    waits: Waits = NO_WAITS
    paused: float = 0.0
    before_step: float = 0.0
    before_token: float = 0.0
    after_token: float = 0.0
    transfer_bytes: int = 0
    transport: KvTransport | None = None
    num_migrations: int = 0
    num_recoveries: int = 0
    is_handed_off: bool = False
    cached_tokens: tuple[tuple[str, int], ...] = ()
    is_due: bool = True
    paused_counts: tuple[int, int, int] = (0, 0, 0)

    def note_begun(self, now: float) -> None:
        """Note the first step, if it is the first."""
        if self.begun_at is None:
            self.begun_at = now

    def note_prefill_begun(self, prefill: "Times", now: float) -> None:
        """Note the first step of a prefill elsewhere, which has waited in place of it."""
        if self.begun_at is None:
            self.waits = added(self.waits, prefill.waits)
        self.note_begun(now)

    def end_wait(self, reading: Waits) -> None:
        """Add the time in a queue, whose clock shows `reading` now."""
        waited = tuple(now - then for now, then in zip(reading, self.queued_at, strict=True))
        if self.begun_at is None:
            self.waits = added(self.waits, waited)
        else:
            self.paused += sum(waited)

    def note_lost_worker(self) -> None:
        """Count the loss of the worker, if the sequence has begun to run."""
        self.num_recoveries += self.begun_at is not None

    def note_move(self) -> None:
        """Count that the sequence goes on elsewhere, if it has begun to run."""
        self.num_migrations += self.begun_at is not None

    def note_token(self, now: float) -> None:
        """Note the first token or vector, if it is the first."""
        if self.first_token_at is None:
            self.first_token_at = now

    def note_transfer(self, seconds: float, num_bytes: int, transport: KvTransport | None) -> None:
        """Add a wait for blocks."""
        if self.begun_at is None:
            self.before_step += seconds
        elif self.first_token_at is None:
            self.before_token += seconds
        else:
            self.after_token += seconds
        self.transfer_bytes += num_bytes
        self.transport = transport or self.transport

    def timeline(
        self, arrived_at: float, num_preemptions: int, moments: tuple[Moment, ...] = ()
    ) -> Timeline:
        """Return the timeline for frontends, once a token has come."""
        begun = arrived_at if self.begun_at is None else self.begun_at
        first = begun if self.first_token_at is None else self.first_token_at
        return Timeline(
            queue_seconds=max(0.0, begun - arrived_at - self.before_step),
            queue_waits=self.waits,
            paused_seconds=self.paused,
            prefill_seconds=max(0.0, first - begun - self.before_token),
            transfer_seconds=self.before_step + self.before_token + self.after_token,
            transfer_bytes=self.transfer_bytes,
            transport=self.transport,
            num_preemptions=num_preemptions,
            num_migrations=self.num_migrations,
            num_recoveries=self.num_recoveries,
            is_handed_off=self.is_handed_off,
            cached_tokens=self.cached_tokens,
            moments=tuple((moment.ended_at - arrived_at, moment) for moment in moments),
        )
