"""What must hold after every event, one function per invariant. They walk the books of the core and
the memory of the workers, trust no counter of either, and change nothing.

Numbers are those of the list in the design of the simulation:
1 blocks_add_up, 2 counts_match_holders, 3 one_writer, 4 no_reissue_under_a_step (plan_checks),
5 names_say_content, 6 tables_cover, 7 step_within_bounds (plan_checks), 8 one_end_each,
9 order_of_service, 10 bounded_preemption, 11 progress, 12 positions_contiguous (client),
13 tenants_share and tenants_charged (tenant_watch), 14 same_again (history).
"""

from collections import Counter

from simulation.checks.invariants_handoffs import handoffs_end
from simulation.checks.invariants_loads import (
    cached_tokens_add_up,
    loads_are_alone,
    loads_end,
    stores_say_content,
)
from simulation.coverage import Coverage, Violation
from simulation.processes.cell import Cell
from simulation.world import World

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.blocks.block_pool import BlockState
from pagewire_scheduler.core.blocks.cache_groups import RELEASED
from pagewire_scheduler.core.state.adapters import SlotState
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState


def check_world(world: World) -> None:
    """Check all that can be seen between two events. Raises Violation."""
    for cell in world.cells:
        if cell.is_up:
            check_cell(world, cell)
    for store in world.stores:
        stores_say_content(store, world.messages.content_of)
    one_place_each(world)


def check_cell(world: World, cell: Cell) -> None:
    coverage = world.coverage
    for worker in cell.core.workers.values():
        holders = holders_of(worker)
        blocks_add_up(worker, holders, coverage)
        counts_match_holders(worker, holders, coverage)
        one_writer(worker, holders, coverage)
        tables_cover(worker, coverage)
        progress(worker, coverage)
        loads_are_alone(worker, holders, coverage)
        loads_end(worker, cell, coverage)
        handoffs_end(worker, cell, coverage)
        names_say_content(world, worker)
    ends_in_time(world, cell)
    cancel_frees(world, cell)
    cached_tokens_add_up(cell, coverage)
    books_agree(cell, coverage)


def _need(is_right: bool, name: str, detail: str) -> None:
    if not is_right:
        raise Violation(name, detail)


def held_blocks(sequence: Sequence) -> list[int]:
    """The blocks that a running sequence holds; those that fell out of a window are none's."""
    assert sequence.table is not None
    return sequence.table.held


def holders_of(worker: WorkerState) -> Counter[int]:
    holders: Counter[int] = Counter()
    for sequence in worker.running:
        holders.update(held_blocks(sequence))
    for step in worker.outstanding:
        for release in step.releases:
            holders.update(release.table.held)
    for load in worker.loads.under_way.values():
        holders.update(load.table.held)
    leases = [handoff.lease for handoff in worker.handoffs.outgoing if handoff.lease is not None]
    for table in (*leases, *worker.handoffs.probe_blocks.values()):
        holders.update(table.held)
    return holders


def blocks_add_up(worker: WorkerState, holders: Counter[int], coverage: Coverage) -> None:
    """1: free + referenced + fenced = total, and no block is two of these."""
    name, pool = "blocks_add_up", worker.pool
    free = list(pool.free_list)
    _need(len(free) == len(set(free)), name, "a block is free twice")
    both = holders.keys() & set(free)
    _need(not both, name, f"blocks {sorted(both)} are free and held")
    total = len(free) + len(holders)
    _need(total == pool.num_blocks, name, f"{total} of {pool.num_blocks} blocks")
    if holders and len(free) < pool.num_blocks:
        coverage.invariants[name] += 1


def counts_match_holders(worker: WorkerState, holders: Counter[int], coverage: Coverage) -> None:
    """2: the reference count of each block is the number of tables that hold it."""
    counts = worker.pool.ref_counts
    for block in range(worker.pool.num_blocks):
        if counts[block] != holders[block]:
            detail = f"block {block} counts {counts[block]}, has {holders[block]}"
            raise Violation("counts_match_holders", detail)
    if any(count > 1 for count in holders.values()):
        coverage.invariants["counts_match_holders"] += 1


def one_writer(worker: WorkerState, holders: Counter[int], coverage: Coverage) -> None:
    """3: no block that will be written in is in two tables; a partly written last block may be
    shared, until the next write copies it."""
    size = worker.info.model.block_size
    for sequence in worker.running:
        assert sequence.table is not None
        computed = sequence.num_computed
        for blocks in sequence.table.groups:
            for block in blocks[-(-computed // size) :]:
                if holders[block] != 1:
                    raise Violation("one_writer", f"{sequence.key} will write shared block {block}")
        tails = [one[computed // size : computed // size + 1] for one in sequence.table.groups]
        is_shared = any(holders[block] > 1 for tail in tails for block in tail)
        if computed % size and is_shared:
            if not sequence.table.is_tail_shared:
                raise Violation("one_writer", f"{sequence.key} does not know of its shared tail")
            coverage.facts["shared tails"] += 1
    if len(worker.running) > 1:
        coverage.invariants["one_writer"] += 1


def names_say_content(world: World, worker: WorkerState) -> None:
    """5: what is found under a name is what that name stands for, on this worker's memory."""
    process = next((w for w in world.workers if w.worker_id == worker.info.worker_id), None)
    if process is None or process.incarnation != worker.info.incarnation:
        return
    if process.sleep is not None or process.has_new_memory:
        return  # its memory is gone, and the end of the attach is on its way
    size, pool, replica = worker.info.model.block_size, worker.pool, process.replica
    count = 0
    for name, block in pool.cache.items():
        if pool.state(block) is not BlockState.VALID:
            if worker.outstanding:
                continue
            raise Violation("names_say_content", f"block {block} waits for no step")
        # A name that no plan gave to a content stands for none, and is never looked for.
        last = replica.memory[(block + 1) * size - 1]
        if last != world.messages.content_of.get(name, last):
            raise Violation("names_say_content", f"block {block} holds something else")
        count += 1
    world.coverage.invariants["names_say_content"] += bool(count)


def tables_cover(worker: WorkerState, coverage: Coverage) -> None:
    """6: a table covers what is computed, and no more than is known or sampled soon."""
    size = worker.info.model.block_size
    for sequence in worker.running:
        assert sequence.table is not None
        num_blocks = len(sequence.table.blocks)
        least = -(-sequence.num_computed // size)
        # What was taken for drafts that turned out wrong stays for the next tokens.
        num_soon = sequence.num_in_flight + worker.info.max_drafts
        most = -(-(len(sequence.tokens) + num_soon) // size)
        if not least <= num_blocks <= most:
            detail = f"{sequence.key} has {num_blocks} blocks, needs {least} to {most}"
            raise Violation("tables_cover", detail)
        # A beam that others were dropped for has their blocks to itself until its next step.
        is_idle = not sequence.num_outstanding and not sequence.is_beam
        if is_idle and not sequence.fairness.is_left_out:
            windows_bound(worker, sequence, least, coverage)


def windows_bound(
    worker: WorkerState, sequence: Sequence, num_written: int, coverage: Coverage
) -> None:
    """6: of what is written, a group keeps the blocks of its window. A name under way of another
    sequence keeps a block a little longer."""
    assert sequence.table is not None
    for blocks, window in zip(sequence.table.groups, worker.info.groups.windows, strict=True):
        own = [one for one in blocks[:num_written] if one >= 0 and worker.pool.ref_counts[one] == 1]
        if window is not None and len(own) > -(-window // worker.info.model.block_size) + 2:
            raise Violation("tables_cover", f"{sequence.key} keeps {len(own)} blocks of a window")
        coverage.facts["windows given up"] += window is not None and RELEASED in blocks
    coverage.invariants["tables_cover"] += bool(worker.running)


def progress(worker: WorkerState, coverage: Coverage) -> None:
    """11: where there is work, a step is under way, or something else holds for a while what is
    missing."""
    has_work = bool(worker.running) or len(worker.waiting) > 0
    is_due = has_work and not worker.outstanding and not worker.duty.is_still
    if is_due and not _may_wait(worker):
        what = f"{len(worker.running)} run, {len(worker.waiting)} wait, "
        raise Violation("progress", f"{what}{worker.pool.num_free} blocks are free, no step")
    for sequence in worker.aside.compiling:
        is_asked = sequence.request.grammar_key in worker.grammars._asked
        _need(is_asked, "progress", f"{sequence.key} waits for what nobody compiles")
    is_idle = not (has_work or worker.outstanding or worker.duty.is_still)
    if worker.aside.adapting and is_idle:
        states = {slot.state for slot in worker.adapters.slots}
        is_due = SlotState.LOADING in states
        _need(is_due, "progress", "sequences wait for adapters that nothing loads")
    coverage.invariants["progress"] += has_work
    if worker.duty.sleep is not None:
        holds_any = worker.num_sequences or worker.outstanding or worker.handoffs.outgoing
        _need(not holds_any, "sleepers_hold_nothing", "a worker that sleeps has work")
        coverage.invariants["sleepers_hold_nothing"] += 1


def _may_wait(worker: WorkerState) -> bool:
    """Whether what is missing is held, for a while, by loads, by hand-offs or by probes."""
    if worker.fault_isolation:
        aside = {sequence for queue in worker.aside.queues for sequence in queue}
        if all(sequence in aside for sequence in worker.fault_isolation.current()):
            return True  # the trial goes on once its grammar or adapter is there
    oldest = min(sequence.key for sequence in (*worker.running, *worker.waiting))
    loads_yield = all(
        load.is_cancelled or any(one.key < oldest for one in worker.loads.waiting_for(load))
        for load in worker.loads.under_way.values()
    )
    leases = [handoff for handoff in worker.handoffs.outgoing if handoff.lease is not None]
    leases_yield = all(one.load is not None or one.sequence.key < oldest for one in leases)
    holds_any = bool(worker.loads.under_way or leases or worker.handoffs.probe_blocks)
    return holds_any and loads_yield and leases_yield


def ends_in_time(world: World, cell: Cell) -> None:
    """8: what has ended holds nothing; what is cancelled or late ends at once."""
    name = "one_end_each"
    for request in cell.core.requests.values():
        deadline = request.submission.deadline
        for sequence in request.sequences:
            is_over = sequence.state.is_finished
            if is_over and (sequence.slot is not None or sequence.table is not None):
                raise Violation(name, f"{sequence.key} has ended and holds blocks")
            if deadline is not None and not is_over and cell.last_tick >= deadline:
                raise Violation(name, f"{sequence.key} runs on after its deadline")


def cancel_frees(world: World, cell: Cell) -> None:
    """8: what a frontend does not want any more is nowhere, once its messages have arrived."""
    for stream in cell.streams:
        is_heard = not stream.up and not stream.is_cut and stream.peer is not None
        if stream.kind != "frontend" or not is_heard or stream.is_odd or stream.dialer is None:
            continue
        if stream.dialer.asked is not None or stream.down or stream.dialer.is_writing:
            continue
        frontend = cell.core.frontends.get(stream.dialer.frontend.frontend_id)
        wanted = stream.dialer.link.carried.handles
        for handle in frontend.handles if frontend is not None else ():
            _need(handle in wanted, "cancel_frees", f"handle {handle} is wanted by nobody")
            world.coverage.invariants["cancel_frees"] += 1


def books_agree(cell: Cell, coverage: Coverage) -> None:
    """The core's own audit finds nothing."""
    findings = audit(cell.core).findings
    if findings:
        raise Violation("books_agree", "; ".join(f"{f.kind}: {f.detail}" for f in findings))
    coverage.invariants["books_agree"] += bool(cell.core.requests)


def one_place_each(world: World) -> None:
    """8: an open request of a frontend is in one place, and what has ended is in none."""
    for frontend in world.frontends:
        for client in frontend.clients:
            session = client.session
            places = [
                end
                for end in frontend.ends
                if session in end.link.carried.detached
                or session in end.link.carried.handles.values()
            ]
            is_waiting = session.entry.request_id in frontend.pool._waiting
            if session.is_over:
                _need(not places, "one_end_each", "a request that is over is still carried")
            else:
                detail = f"an open request is in {len(places) + is_waiting} places"
                _need(len(places) + is_waiting == 1, "one_end_each", detail)
