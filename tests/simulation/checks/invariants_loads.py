"""What must hold of loads from KV stores after every event."""

from collections import Counter

from simulation.coverage import Coverage, Violation
from simulation.processes.cell import Cell
from simulation.processes.stores import Store

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.worker import WorkerState, worker_of


def loads_are_alone(worker: WorkerState, holders: Counter[int], coverage: Coverage) -> None:
    """Blocks that a load goes to are in no other hand, and nobody finds them before its answer."""
    name = "loads_are_alone"
    found = {block for _, block in worker.pool.cache.items()}
    for load in worker.loads.under_way.values():
        for block in load.order.blocks:
            if holders[block] != 1:
                raise Violation(name, f"block {block} of a load has {holders[block]} holders")
            if block in found:
                raise Violation(name, f"block {block} is found before its load has ended")
        coverage.invariants[name] += 1


def loads_end(worker: WorkerState, cell: Cell, coverage: Coverage) -> None:
    """Who waits for a load waits for one that will be answered, and not for ever; what nobody waits
    for is cancelled."""
    name, under_way = "loads_end", worker.loads.under_way
    for sequence in worker.aside.loading:
        load = sequence.remote.load
        if load is None and sequence in worker.handoffs.incoming:
            continue
        if load is None or under_way.get(load.order.load_id) is not load:
            raise Violation(name, f"{sequence.key} waits for a load that is over")
        if cell.last_tick >= load.overdue_at:
            raise Violation(name, f"{sequence.key} waits for a load that is overdue")
        if sequence not in worker.loads.waiting_for(load):
            raise Violation(name, f"{sequence.key} is not told when its load ends")
        coverage.invariants[name] += 1
    for load in under_way.values():
        queues = [one.placement.queue for one in worker.loads.waiting_for(load)]
        awaited = any(queue is worker.aside.loading for queue in queues)
        if not awaited and not load.is_cancelled:
            raise Violation(name, f"load {load.order.load_id} is for nobody")


def cached_tokens_add_up(cell: Cell, coverage: Coverage) -> None:
    """What is said of tiers is what is said in all, and came by loads of that sequence."""
    name = "cached_tokens_add_up"
    for request in cell.core.requests.values():
        for sequence in request.sequences:
            times = sequence.times
            total = sum(count for _, count in times.cached_tokens)
            if total != (sequence.num_cached_tokens or 0):
                raise Violation(name, f"{total} of {sequence.num_cached_tokens} tokens have a tier")
            tiers = {tier for tier, _ in times.cached_tokens}
            if min((count for _, count in times.cached_tokens), default=1) < 1:
                raise Violation(name, "a tier has no tokens")
            coverage.invariants[name] += len(tiers - {"worker"}) > 0
            worker = worker_of(sequence)
            is_handed_off = worker is not None and sequence in worker.handoffs.incoming
            is_promised = sequence.remote.load is not None or is_handed_off
            if sequence.state is State.WAITING_FOR_REMOTE_KV and not is_promised:
                raise Violation(name, f"{sequence.key} waits for nothing")


def stores_say_content(store: Store, content_of: dict[bytes, int]) -> None:
    """What was offloaded under a name is what it stands for."""
    for name, cells in store.blocks.items():
        if cells[-1] != content_of.get(name, cells[-1]):
            raise Violation("names_say_content", "a store has something else under a name")
