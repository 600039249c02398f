"""The core's audit: walks tables, pools, queues and slots and reports contradictions between them.
It trusts no counter and changes no state."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pagewire_scheduler.core.audit_adapters import contradictions
from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.blocks.cache_groups import RELEASED
from pagewire_scheduler.core.data.account import AccountKey
from pagewire_scheduler.core.data.settings import CoreCounts
from pagewire_scheduler.core.data.state_machine import WAITING, State
from pagewire_scheduler.core.data.tally import Tally, new_tally, place_of
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerCounts, WorkerState


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One contradiction."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Blocks in one cache group of a worker: held by its running sequences, and most by one."""

    window: int | None
    num_held: int
    most_held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """One worker's pool and slots, counted by walking."""

    worker_id: bytes
    num_blocks: int
    num_held: int
    num_cached: int
    num_free: int
    num_slots: int
    num_steps_in_flight: int
    counts: WorkerCounts
    groups: tuple[GroupReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreReport:
    """Everything that the core holds, with its totals."""

    num_requests: int
    num_waiting: int
    num_running: int
    counts: CoreCounts
    pools: tuple[PoolReport, ...]
    findings: tuple[AuditFinding, ...]


def check_integrity(core: SchedulerCore) -> None:
    """Raise AssertionError when an audit finds anything."""
    findings = audit(core).findings
    assert not findings, "; ".join(f"{f.kind}: {f.detail}" for f in findings)


def audit(core: SchedulerCore) -> CoreReport:
    """Walk everything."""
    sequences = [s for request in core.requests.values() for s in request.sequences]
    probes = [sequence for _, sequence in core.probes.under_way.values()]
    prefills = [
        handoff.prefill
        for worker in core.workers.values()
        for handoff in worker.handoffs.outgoing
        if handoff.prefill is not None
    ]
    findings = [*_audit_requests(core), *_audit_accounts(core), *_audit_counts(core)]
    findings += _audit_sequences(core, [*sequences, *prefills, *probes])
    pools = []
    for worker in core.workers.values():
        findings += [*_audit_blocks(worker), *_audit_names(worker.pool), *_audit_slots(worker)]
        findings += [AuditFinding(*one) for one in contradictions(worker)]
        findings += [*_audit_writers(worker), *_audit_reserve(worker), *_audit_loads(worker)]
        pools.append(_pool_report(worker))
    return CoreReport(
        num_requests=len(core.requests),
        num_waiting=sum(s.state in WAITING for s in sequences),
        num_running=sum(s.state is State.RUNNING for s in sequences),
        counts=core.counts.copy(),
        pools=tuple(pools),
        findings=tuple(findings),
    )


def held_slots(worker: WorkerState) -> set[int]:
    """Return the slots a worker may still hold: used, named by a step, or not reported as freed."""
    free = set(worker.slots.free) - set(worker.slots.freed_to_report)
    return set(range(len(worker.slots))) - free


def running_slots(worker: WorkerState) -> set[int]:
    """Return the slots that the worker must hold: all steps of their sequences are answered."""
    unanswered = Counter(s for step in worker.outstanding for s in step.sequences)
    return {
        sequence.slot
        for sequence in worker.running
        if sequence.slot is not None and sequence.num_computed and not unanswered[sequence]
    }


def _holders(worker: WorkerState) -> Counter[int]:
    holders: Counter[int] = Counter()
    for sequence in worker.running:
        if sequence.table is not None:
            holders.update(sequence.table.held)
    for step in worker.outstanding:
        for release in step.releases:
            holders.update(release.table.held)
    for load in worker.loads.under_way.values():
        holders.update(load.table.held)
    for handoff in worker.handoffs.outgoing:
        if handoff.lease is not None:
            holders.update(handoff.lease.held)
    for table in worker.handoffs.probe_blocks.values():
        holders.update(table.held)
    return holders


def _pool_report(worker: WorkerState) -> PoolReport:
    held = set(_holders(worker))
    cached = {block for _, block in worker.pool.cache.items()} - held
    num_blocks = worker.pool.num_blocks
    return PoolReport(
        worker_id=worker.info.worker_id,
        num_blocks=num_blocks,
        num_held=len(held),
        num_cached=len(cached),
        num_free=num_blocks - len(held) - len(cached),
        num_slots=len(held_slots(worker)),
        num_steps_in_flight=len(worker.outstanding),
        counts=replace(worker.counts),
        groups=tuple(_group_reports(worker)),
    )


def _group_reports(worker: WorkerState) -> Iterator[GroupReport]:
    tables = [sequence.table for sequence in worker.running if sequence.table is not None]
    for group, window in enumerate(worker.info.groups.windows):
        held = [len(one.blocks) - one.groups[group].count(RELEASED) for one in tables]
        yield GroupReport(window, sum(held), max(held, default=0))


def _audit_requests(core: SchedulerCore) -> Iterator[AuditFinding]:
    for request in core.requests.values():
        frontend = core.frontends.get(request.frontend_id)
        if frontend is None or frontend.requests.get(request.request_id) is not request:
            yield AuditFinding("orphan_request", f"request {request.arrival} has no frontend")
        elif frontend.is_attached and request.is_finished:
            yield AuditFinding("leaked_request", f"request {request.arrival} has ended and is kept")
    for frontend in core.frontends.values():
        for request in (*frontend.requests.values(), *frontend.handles.values()):
            if core.requests.get(request.request_id) is not request:
                yield AuditFinding(
                    "leaked_request", f"a frontend holds ended request {request.arrival}"
                )


def _audit_accounts(core: SchedulerCore) -> Iterator[AuditFinding]:
    """Compare the running accounts with those of a walk."""
    load, queues = core.load, core.queues
    if (counted := load.num_waiting) != (found := queues.num_waiting):
        yield AuditFinding(
            "wrong_account", f"{counted} sequences are counted as waiting, {found} wait"
        )
    tokens = sum(account.own.num_tokens for account in load.accounts.values())
    if tokens != queues.num_waiting_tokens:
        yield AuditFinding("wrong_account", f"{tokens} tokens are counted as waiting")
    num_requests: Counter[AccountKey] = Counter()
    num_bytes: Counter[AccountKey] = Counter()
    for request in core.requests.values():
        assert request.account is not None, "a request that nobody is charged for"
        num_requests[request.account.key] += 1
        num_bytes[request.account.key] += request.num_bytes
    own = {key: account.own for key, account in load.accounts.items()}
    if num_requests != {key: tally.num_requests for key, tally in own.items()}:
        yield AuditFinding("wrong_account", "requests are counted for other tenants than have them")
    if num_bytes != {key: tally.num_bytes for key, tally in own.items()}:
        yield AuditFinding("wrong_account", "memory is counted for other tenants than hold it")


def _audit_sequences(core: SchedulerCore, sequences: list[Sequence]) -> Iterator[AuditFinding]:
    live = {sequence for sequence in sequences if not sequence.state.is_finished}
    steps: Counter[Sequence] = Counter()
    samples: Counter[Sequence] = Counter()
    for worker in core.workers.values():
        for step in worker.outstanding:
            steps.update(step.sequences)
            if not step.is_void:
                samples.update(one for one in step.sampled if one not in step.left_out)
    queued = Counter(
        s for w in core.workers.values() for queue in (w.waiting, *w.aside.queues) for s in queue
    )
    queued.update(s for queue in core.queues.unplaced for s in queue)
    running = Counter(s for w in core.workers.values() for s in w.running)
    for worker in core.workers.values():
        for sequence in worker.aside.compiling:
            if sequence.state is not State.WAITING_FOR_GRAMMAR:
                yield AuditFinding(
                    "lost_sequence", f"{sequence.key} waits for no grammar, and is there"
                )
    for sequence in (queued.keys() | running.keys()) - live:
        yield AuditFinding("ghost_sequence", f"{sequence.key} has ended and is queued or running")
    for sequence in live:
        is_running = sequence.state is State.RUNNING
        leader = sequence.branch.leader
        if leader is not None and (leader not in live or sequence not in leader.branch.followers):
            yield AuditFinding(
                "lost_sequence", f"{sequence.key} follows {leader.key}, which is gone"
            )
        is_queued = not is_running and not steps[sequence] and leader is None
        if running[sequence] != is_running or queued[sequence] != is_queued:
            yield AuditFinding(
                "lost_sequence", f"{sequence.key} in {sequence.state.value} is misplaced"
            )
        if sequence.num_outstanding != steps[sequence]:
            yield AuditFinding(
                "wrong_steps", f"{sequence.key} counts {sequence.num_outstanding} steps"
            )
        if sequence.num_in_flight != samples[sequence]:
            num_awaited = sequence.num_in_flight
            yield AuditFinding("wrong_samples", f"{sequence.key} awaits {num_awaited}")
        if is_running and (sequence.slot is None or sequence.table is None):
            yield AuditFinding("no_slot", f"{sequence.key} runs without slot or blocks")
        if not is_running and (sequence.slot is not None or sequence.table is not None):
            yield AuditFinding("leaked_slot", f"{sequence.key} keeps a slot without running")


def _audit_counts(core: SchedulerCore) -> Iterator[AuditFinding]:
    """Compare the running counts of sequences with those of a walk."""
    for frontend in core.frontends.values():
        found: dict[str, Tally] = {}
        for request in frontend.requests.values():
            tally = found.setdefault(request.submission.model, new_tally())
            for sequence in request.sequences:
                if sequence.is_live:
                    tally[place_of((sequence.branch.leader or sequence).state)] += 1
        for model in {*found, *frontend.tallies}:
            counted = frontend.tallies.get(model, new_tally())
            if counted != found.get(model, new_tally()):
                yield AuditFinding(
                    "miscounted", f"{model}: {counted}, and there are {found.get(model)}"
                )
    queues = [*core.queues.unplaced]
    for worker in core.workers.values():
        own = [worker.waiting, *worker.aside.queues]
        queues += own
        if worker.waiting.sums.num_sequences != sum(map(len, own)):
            yield AuditFinding(
                "miscounted", f"{worker.waiting.sums.num_sequences} wait, and {len(own)} queues"
            )
    asked = [one for queue in queues for one in queue if one.is_asked_for]
    num_choices = sum(1 + len(one.branch.followers) for one in asked)
    num_tokens = sum(len(one.tokens) for one in asked)
    if (core.queues.num_waiting, core.queues.num_waiting_tokens) != (num_choices, num_tokens):
        yield AuditFinding(
            "miscounted", f"{core.queues.num_waiting} choices wait, of {num_choices}"
        )


def _audit_blocks(worker: WorkerState) -> Iterator[AuditFinding]:
    pool, holders = worker.pool, _holders(worker)
    free = list(pool.free_list)
    if len(free) != len(set(free)) or len(free) != pool.num_free:
        yield AuditFinding("broken_free_list", f"{len(free)} blocks in a list of {pool.num_free}")
    in_list = set(free)
    steps = {step.step_id for step in worker.outstanding}
    for block in range(pool.num_blocks):
        if pool.ref_counts[block] != holders[block]:
            counted = f"counts {pool.ref_counts[block]} holders, has {holders[block]}"
            yield AuditFinding("leaked_block", f"block {block} {counted}")
        if (block in in_list) != (holders[block] == 0):
            yield AuditFinding("misplaced_block", f"block {block} has {holders[block]} holders")
        if pool.pending_steps[block] and pool.pending_steps[block] not in steps:
            yield AuditFinding("stale_pending", f"block {block} waits for an answered step")


def _audit_names(pool: BlockPool) -> Iterator[AuditFinding]:
    for name, block in pool.cache.items():
        if pool.names[block] != name:
            yield AuditFinding(
                "wrong_name", f"block {block} is found under a name it does not have"
            )
    if sum(name is not None for name in pool.names) != len(pool.cache):
        yield AuditFinding("wrong_name", "a block has a name under which it is not found")
    if pool.changes is not None and pool.changes.contents.keys() != pool.cache.blocks.keys():
        yield AuditFinding("wrong_name", "blocks are noted as cached that are not, or the reverse")


def _audit_slots(worker: WorkerState) -> Iterator[AuditFinding]:
    taken = [slot for slot, sequence in enumerate(worker.slots.owners) if sequence is not None]
    leaving = [release.slot for step in worker.outstanding for release in step.releases]
    everywhere = Counter([*worker.slots.free, *taken, *leaving])
    for slot in range(len(worker.slots)):
        if everywhere[slot] != 1:
            yield AuditFinding("leaked_slot", f"slot {slot} has {everywhere[slot]} places")
    # The plan that tells of a slot freed may tell of a beam forked into it, too.
    groups = [request.beams for request in worker.branched]
    moves = [group.moves for group in groups if group is not None and group.moves is not None]
    forked = {slot for one in moves for slot, _, _ in one.forks}
    if not set(worker.slots.freed_to_report) - forked <= set(worker.slots.free):
        yield AuditFinding("leaked_slot", "a slot in use is about to be told as freed")
    for sequence in worker.running:
        if sequence.slot is None or worker.slots.owners[sequence.slot] is not sequence:
            yield AuditFinding("leaked_slot", f"{sequence.key} does not own slot {sequence.slot}")
    if len(taken) != len(worker.running):
        yield AuditFinding("leaked_slot", f"{len(taken)} slots for {len(worker.running)} sequences")
    reserved = sum(sequence.placement.num_reserved_slots for sequence in worker.running)
    if reserved != worker.slots.num_reserved or reserved > len(worker.slots.free):
        yield AuditFinding(
            "leaked_slot", f"{worker.slots.num_reserved} slots are kept, not {reserved}"
        )
    growing = {sequence for sequence in worker.running if sequence.is_growing}
    if worker.growing.keys() != growing:
        yield AuditFinding("miscounted", f"{len(worker.growing)} grow, not {len(growing)}")


def _audit_reserve(worker: WorkerState) -> Iterator[AuditFinding]:
    guaranteed = {
        sequence.request if sequence.is_beam else sequence
        for sequence in worker.running
        if sequence.placement.is_guaranteed
    }
    reservations = worker.reservations
    if len(guaranteed) != len(reservations):
        yield AuditFinding(
            "leaked_reserve", f"{len(reservations)} owners, {len(guaranteed)} guaranteed"
        )
    if sum(reservations.of(owner) for owner in guaranteed) != reservations.num_blocks:
        yield AuditFinding(
            "leaked_reserve", f"{reservations.num_blocks} blocks are set aside for nobody"
        )
    if reservations.num_blocks > worker.pool.num_free:
        yield AuditFinding("broken_reserve", f"{reservations.num_blocks} set aside, fewer are free")


def _audit_loads(worker: WorkerState) -> Iterator[AuditFinding]:
    loads, holders = worker.loads, _holders(worker)
    for load in loads.under_way.values():
        for block in load.order.blocks:
            if holders[block] != 1 or worker.pool.names[block] is not None:
                yield AuditFinding(
                    "early_block", f"block {block} is used before its load has ended"
                )
    for sequence in worker.aside.loading:
        load_of = sequence.remote.load
        if load_of is None and sequence in worker.handoffs.incoming:
            continue
        is_under_way = load_of is not None and load_of.order.load_id in loads.under_way
        if load_of is None or not is_under_way or load_of.is_overdue:
            yield AuditFinding("lost_sequence", f"{sequence.key} waits for no load, and is there")
    for load in loads.names.values():
        if load.order.load_id not in loads.under_way:
            yield AuditFinding("leaked_load", f"load {load.order.load_id} has ended and is found")
    if sum(load.num_bytes for load in loads.under_way.values()) != loads.num_bytes:
        yield AuditFinding("leaked_load", f"{loads.num_bytes} bytes are counted as under way")


def _audit_writers(worker: WorkerState) -> Iterator[AuditFinding]:
    holders, size = _holders(worker), worker.info.model.block_size
    for sequence in worker.running:
        if sequence.table is None:
            continue
        if min(map(len, sequence.table.groups)) * size < sequence.num_computed:
            yield AuditFinding("short_table", f"{sequence.key} has written beyond its blocks")
        # A partly written block may be in several tables until one of them goes on.
        first = -(-sequence.num_computed // size)
        if not sequence.table.is_tail_shared:
            first = sequence.num_computed // size
        for block in (block for blocks in sequence.table.groups for block in blocks[first:]):
            if holders[block] != 1:
                yield AuditFinding(
                    "shared_writer", f"{sequence.key} will write shared block {block}"
                )
