"""Faults of KV stores and of loads from them."""

from simulation.processes.stores import Store
from simulation.world import World

from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.load import LoadOutcome

OUTCOMES = (LoadOutcome.MISSING, LoadOutcome.LATE, LoadOutcome.FAILED)


def _store(world: World, a: int) -> Store | None:
    return world.stores[a % len(world.stores)] if world.stores else None


def store_loses(world: World, a: int, b: int, c: int) -> bool:
    """Blocks are evicted; one time in three the store does not say so."""
    store = _store(world, a)
    if store is None or not store.blocks:
        return False
    names = list(store.blocks)[b % len(store.blocks) :][: 1 + c % 7]
    store.lose(names, is_told=c % 3 > 0)
    return True


def store_damages(world: World, a: int, b: int, c: int) -> bool:
    store = _store(world, a)
    if store is None or not store.blocks:
        return False
    store.damaged.add(list(store.blocks)[b % len(store.blocks)])
    return True


def store_clears(world: World, a: int, b: int, c: int) -> bool:
    store = _store(world, a)
    if store is None:
        return False
    store.clear()
    return True


def store_switches(world: World, a: int, b: int, c: int) -> bool:
    """It goes down, or comes up."""
    store = _store(world, a)
    if store is None:
        return False
    store.switch()
    return True


def load_ends_oddly(world: World, a: int, b: int, c: int) -> bool:
    """The load of a worker ends as it should not."""
    waiting = [worker for worker in world.workers if worker.port.pending]
    if not waiting:
        return False
    worker = waiting[a % len(waiting)]
    worker.port.next_outcome = OUTCOMES[b % len(OUTCOMES)]
    worker.load(world.clock.now, world.roll)
    return True


def loads_hang(world: World, a: int, b: int, c: int) -> bool:
    """A worker answers no load, not even by the deadline."""
    if not world.stores or not world.workers:
        return False
    worker = world.workers[a % len(world.workers)]
    worker.port.held_until = world.clock.now + (0.05, 0.5, 4.0)[b % 3]
    return True


def close_one_of(world: World, request_ids: set[RequestId], a: int) -> bool:
    """The client of one of these requests goes away; return whether there was one."""
    found = [
        (frontend, client)
        for frontend in world.frontends
        for client in frontend.clients
        if client.request_compile.request_id in request_ids
    ]
    if not found:
        return False
    frontend, client = found[a % len(found)]
    frontend.close(client)
    return True


def cancel_loading(world: World, a: int, b: int, c: int) -> bool:
    """The client of one that waits for a load goes away."""
    loading = {
        sequence.request.request_id
        for cell in world.cells
        for worker in (cell.core.workers.values() if cell.is_up else ())
        for sequence in worker.aside.loading
    }
    return close_one_of(world, loading, a)


def submit_again(world: World, a: int, b: int, c: int) -> bool:
    """Somebody asks for the beginning of what was asked before; the worker may be another."""
    # Not at the top: that module gathers the actions of this one.
    from simulation.actions.requests import _submit

    asks = [
        request_compile
        for request_compile in world.asks.values()
        if 8 <= len(request_compile.prompt) <= 26
    ]
    if not asks or not world.stores:
        return False
    request_compile = asks[b % len(asks)]
    prompt = (*request_compile.prompt, *range(c % 4))
    if c % 3 == 0:  # what the workers have would be found first
        for cell in world.cells:
            cell.core.kv_caches.reset("tiny")
    fields = {
        "tenant": request_compile.tenant,
        "cache_salt": request_compile.cache_salt,
        "salt": request_compile.salt,
    }
    return _submit(world, a, b, c, prompt=prompt, **fields)


def answer_unknown_load(world: World, a: int, b: int, c: int) -> bool:
    """An answer comes twice, or to what was never ordered."""
    workers = [worker for worker in world.workers if worker.last_answer is not None]
    workers = [worker for worker in workers if worker.stream is not None]
    if not workers:
        return False
    worker = workers[a % len(workers)]
    assert worker.stream is not None
    worker.stream.send_up(("loaded", worker.last_answer))
    return True
