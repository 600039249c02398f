"""A seed from its first event to the quiet end, and what is asked of it. Owns no event."""

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from simulation.actions import requests as actions
from simulation.actions.roles import end_probes
from simulation.actions.sleep import wake_all
from simulation.checks.invariants import check_world
from simulation.checks.observers import Observers
from simulation.clock import Clock, virtual_time
from simulation.configuration import Configuration, draw
from simulation.coverage import Coverage, Violation, counted_moves
from simulation.events import Event, draw_events
from simulation.world import World

from pagewire_scheduler.core.state import grammars

NUM_EVENTS = 300
MAX_QUIET_TURNS = 20_000
MAX_QUIET_SECONDS = 400.0
"""More than ten times the longest standstill of a worker, after which the next one is noticed."""
CHECK_EVERY = 8
"""Turns of the quiet phase between two checks."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, where."""

    invariant: str
    detail: str
    event_number: int


def configuration_of(seed: int) -> Configuration:
    return draw(seed)


def events_of(seed: int, num_events: int = NUM_EVENTS) -> list[Event]:
    return draw_events(seed, num_events)


def run(
    configuration: Configuration, events: Sequence[Event], coverage: Coverage
) -> tuple[Failure | None, bytes]:
    """Run a history; return what failed, and the digest of all that was sent."""
    clock = Clock()
    number = -1
    # Of compiled grammars that nobody needs, one is kept: so they are let go, and asked for again.
    few = mock.patch.object(grammars, "MAX_READY", 1)
    with counted_moves(coverage), virtual_time(clock), few:
        world = World(configuration, coverage, clock)
        with Observers(world):
            try:
                for event in events:
                    number += 1
                    apply(world, event)
                number = len(events)
                settle(world)
            except Violation as violation:
                return Failure(violation.invariant, str(violation), number), b""
            except Exception as error:  # noqa: BLE001 whatever it is, it is a finding
                detail = f"{type(error).__name__}: {error}"
                return Failure("no_crash", detail, number), b""
    return None, world.messages.log.digest()


def apply(world: World, event: Event) -> None:
    """Let one event happen and check everything."""
    kind, a, b, c = event
    if actions.act(world, kind, a, b, c):
        world.coverage.events[kind] += 1
    world.finish_turn()
    check_world(world)


def settle(world: World) -> None:
    """Heal everything, let everything end, and require that nothing is left."""
    world.dice = 12345
    for cell in world.cells:
        for stream in cell.streams:
            stream.frozen_until = 0.0
        # Only where nobody is left who could do all the work: a new worker would take over what is
        # stuck elsewhere.
        if not any(worker.cell is cell and worker.is_lasting for worker in world.workers):
            world.start_worker(cell)
    ends = [end for frontend in world.frontends for end in frontend.ends]
    for dialer in (*world.workers, *ends):
        if dialer.stream is not None:
            dialer.stream.frozen_until = dialer.stream.unwritten_until = 0.0
    for worker in world.workers:
        worker.frozen_until = worker.port.held_until = 0.0
    for frontend in world.frontends:
        frontend.unread_until = 0.0
    for cell in world.cells:
        if cell.is_up:
            end_probes(cell)
    deadline = world.clock.now + MAX_QUIET_SECONDS
    num_turns = 0
    while not is_settled(world):
        num_turns += 1
        if world.clock.now > deadline or num_turns > MAX_QUIET_TURNS:
            raise Violation("everything_ends", _what_is_left(world))
        if not world.turn():
            for frontend in world.frontends:
                frontend.read()
            world.pass_time(0.25)
            for cell in world.cells:
                if cell.is_up and cell.core.requests:
                    wake_all(cell)
        world.finish_turn()
        if num_turns % CHECK_EVERY == 0:
            check_world(world)
    check_world(world)
    everything_is_free(world)
    for cell in world.cells:
        counts = cell.core.counts.handoffs
        world.coverage.facts["sequences moved"] += counts.num_moves
        for verdict, number in counts.verdicts.items():
            world.coverage.facts[f"hand-off {verdict.value}"] += number


def is_settled(world: World) -> bool:
    """Whether nothing is open and nothing is on its way."""
    if any(frontend.clients for frontend in world.frontends):
        return False
    if any(cell.core.requests for cell in world.cells):
        return False
    if len(world.cells) and any(len(c.core.frontends) > len(world.frontends) for c in world.cells):
        return False
    if world.updates:
        return False
    states = [cell.core.workers.get(w.worker_id) for w in world.workers for cell in [w.cell]]
    if any(state is None or state.outstanding for state in states):
        return False
    return not world.moves()


def _what_is_left(world: World) -> str:
    clients = [
        f"{client.request_compile.request_id.hex()[:4]} {client.session.entry.state.value}"
        for client in world.clients()
    ]
    requests = [
        f"{sequence.key} {sequence.state.value}"
        for cell in world.cells
        for request in cell.core.requests.values()
        for sequence in request.sequences
    ]
    return f"open: {clients[:5]}, in schedulers: {requests[:5]}, moves: {len(world.moves())}"


def everything_is_free(world: World) -> None:
    """At rest nobody holds anything."""
    name = "everything_is_free"
    require = world.coverage.require
    for cell in world.cells:
        for worker in cell.core.workers.values():
            require(name, not any(worker.pool.ref_counts), "blocks are held")
            require(name, worker.pool.num_free == worker.pool.num_blocks, "blocks are missing")
            aside = sum(map(len, worker.aside.queues))
            num_left = len(worker.running) + len(worker.waiting) + aside
            require(name, not num_left, "sequences are left")
            require(name, not worker.loads.under_way, "loads are left")
            users = sum(slot.num_users for slot in worker.adapters.slots)
            require(name, not users, "adapter slots are used")
            require(
                name,
                not worker.handoffs.outgoing and not worker.handoffs.incoming,
                "hand-offs are left",
            )
            require(name, not worker.handoffs.probe_blocks, "blocks of probes are left")
            free = sorted(worker.slots.free) == list(range(len(worker.slots)))
            require(name, free, "slots are missing")
        for frontend in cell.core.frontends.values():
            require(name, not frontend.requests and not frontend.handles, "handles are left")
    for process in world.workers:
        require(name, not process.replica.slots, "a worker was not told of freed slots")
    for frontend in world.frontends:
        require(name, not len(frontend.journal), "journal entries are left")
        carried = sum(len(end.link.carried) for end in frontend.ends)
        require(name, not carried and not frontend.pool._waiting, "sessions are carried")
    world.coverage.invariants[name] += 1
    world.coverage.invariants["everything_ends"] += 1
