"""Chooses the worker that computes the prompt of a sequence placed on another worker, and whether a
moved sequence takes its blocks along. `core.transfers.handoffs` begins the hand-off."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.costs.handoff_cost import (
    APART,
    AT_HOME,
    HandoffReason,
    KvRoute,
    PrefillOption,
    choose_handoff,
)
from pagewire_scheduler.core.costs.load_cost import LoadDecision, choose
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.queueing.losses import is_suspect
from pagewire_scheduler.core.routing.placement import num_expected, num_tokens_ahead
from pagewire_scheduler.core.state.capacity import fits
from pagewire_scheduler.core.state.pairs import PairFacts, refusal, source_key
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex

_NO_FACTS: Final = PairFacts()


@dataclass(frozen=True, slots=True)
class Plan:
    """The place of a prefill, and why; without `source` it is where tokens are generated."""

    verdict: HandoffReason
    source: WorkerState | None = None
    timeout: float = 0.0


def may_hand_off(sequence: Sequence) -> bool:
    """Return whether the prompt of `sequence` may be computed on another worker than its tokens.

    This is not allowed for a suspect, and not if every prompt position has a result.
    """
    request = sequence.request
    return request.reads_cache and not request.is_pooling and not is_suspect(request)


def choose_source(
    receiver: WorkerState,
    workers: Iterable[WorkerState],
    sequence: Sequence,
    stores: RemoteIndex,
    now: float,
    *,
    is_forced: bool,
) -> Plan:
    """Return the worker that computes the prompt of `sequence`, which was placed on `receiver`."""
    block_size = receiver.info.model.block_size
    num_tokens = (len(sequence.tokens) - 1) // block_size * block_size
    sources = [worker for worker in workers if _is_source(worker, receiver, num_tokens)]
    if sequence.request.submission.adapter:
        sources = [worker for worker in sources if worker.info.max_adapters]
    if not sources:
        return Plan(HandoffReason.ALONE)
    num_here = num_expected(receiver, sequence, stores) - (len(sequence.tokens) - num_tokens)
    here = PrefillOption(
        num_tokens=num_here,
        num_waiting=num_tokens_ahead(receiver),
        num_streams=_num_streams(receiver),
        seconds_per_token=receiver.loads.prefill.seconds_per_token,
        weight=AT_HOME if Role.PREFILL in receiver.duty.roles else APART,
    )
    assumed = _assumed_speed(sources)
    plans: list[tuple[float, Plan]] = []
    for source in sources:
        num_hits = len(source.cached_prefix(sequence))
        speed = source.loads.prefill.seconds_per_token
        there = PrefillOption(
            num_tokens=max(0, num_tokens - num_hits * block_size),
            num_waiting=num_tokens_ahead(source),
            num_streams=_num_streams(source),
            seconds_per_token=speed,
        )
        way = _way(source, receiver, here.num_tokens // block_size, now)
        verdict, timeout = choose_handoff(
            here, there, way, block_size=block_size, is_forced=is_forced
        )
        cost = there.cost(assumed if speed is None else speed)
        plans.append((cost, Plan(verdict, source, timeout)))
    # A pair that is left alone says nothing against one that works.
    _, plan = min(plans, key=lambda one: (not one[1].verdict.is_handoff, one[0]))
    return plan


def choose_move(
    source: WorkerState, target: WorkerState, sequence: Sequence, now: float
) -> LoadDecision:
    """Decide whether a sequence takes its blocks along from `source` to `target`."""
    block_size = target.info.model.block_size
    num_here = len(source.cached_prefix(sequence))
    num_there = len(target.cached_prefix(sequence))
    num_blocks = num_here - num_there
    return choose(
        num_blocks=num_blocks,
        num_tokens=num_blocks * block_size,
        num_bytes=target.info.num_bytes(num_there, max(num_here, num_there)),
        prefill=target.loads.prefill,
        link=target.loads.link(source_key(source.info.worker_id)),
        now=now,
    )


def has_room(worker: WorkerState, sequence: Sequence) -> bool:
    """Return whether `sequence` could start on `worker` at once, after all waiting sequences."""
    if worker.fault_isolation or worker.is_blocked or not fits(worker, sequence):
        return False
    aside = worker.aside
    num_before = sum(map(len, (worker.waiting, aside.loading, aside.compiling, aside.adapting)))
    block_size = worker.info.model.block_size
    num_waiting = sum(len(one.tokens) for one in (*worker.waiting, *worker.aside.loading))
    num_blocks = -(-(len(sequence.tokens) + num_waiting) // block_size) + num_before
    needed = num_blocks * worker.pool.num_groups + worker.num_kept_to_go_on
    num_free = worker.pool.num_free - worker.reservations.num_blocks
    return worker.slots.num_free > num_before and num_free > needed


def _is_source(source: WorkerState, receiver: WorkerState, num_tokens: int) -> bool:
    info, size = source.info, source.info.model.block_size
    return (
        source is not receiver
        and Role.PREFILL in source.duty.roles
        and source.duty.takes_new
        and not source.fault_isolation
        and refusal(info, receiver.info) is None
        and num_tokens < info.model.max_model_len
        and info.groups.most_blocks(num_tokens // size, size) <= info.num_blocks
    )


def _assumed_speed(sources: Iterable[WorkerState]) -> float:
    """Return the seconds per token of an unmeasured source: those of the fastest measured one.

    With a slower guess the source would never be tried, and so never measured.
    """
    speeds = (source.loads.prefill.seconds_per_token for source in sources)
    return min((speed for speed in speeds if speed is not None), default=1.0)


def _num_streams(worker: WorkerState) -> int:
    return sum(not sequence.is_prefill for sequence in worker.running)


def _way(source: WorkerState, receiver: WorkerState, num_blocks: int, now: float) -> KvRoute:
    worker_id = source.info.worker_id
    pair = receiver.handoffs.pairs.get(worker_id, _NO_FACTS)
    link = receiver.loads.link(source_key(worker_id))
    return KvRoute(
        seconds=pair.exposed.seconds(receiver.info.num_bytes(0, num_blocks)),
        allows_attempt=link.breaker.allows_attempt(now),
        is_probe_due=now >= pair.next_probe,
    )
