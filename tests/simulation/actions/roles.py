"""Roles that change, and probes of pairs of workers."""

from simulation.actions.stores import close_one_of
from simulation.processes.cell import Cell
from simulation.world import World

from pagewire_scheduler.core.data.worker_info import ALL_ROLES, Role
from pagewire_shared.errors import PagewireError

SETS = (frozenset({Role.PREFILL}), frozenset({Role.DECODE}), ALL_ROLES)


def _cell(world: World, a: int) -> Cell | None:
    cells = [cell for cell in world.cells if cell.is_up and cell.core.workers]
    return cells[a % len(cells)] if cells else None


def set_roles(world: World, a: int, b: int, c: int) -> bool:
    """An operator uses a worker for something else."""
    cell = _cell(world, a)
    if cell is None or world.configuration.roles == "both":
        return False
    worker_id = list(cell.core.workers)[b % len(cell.core.workers)]
    roles = SETS[c % len(SETS)]
    assert cell.step_loop is not None
    cell.step_loop.driven.guard(lambda: cell.core.set_roles(worker_id, roles))
    cell.step_loop._plan_soon()
    return True


def probe_pair(world: World, a: int, b: int, c: int) -> bool:
    """An operator wants to see blocks move; or has seen enough."""
    cell = _cell(world, a)
    if cell is None:
        return False
    assert cell.step_loop is not None
    core, ids = cell.core, list(cell.core.workers)
    world.coverage.facts["probes ended"] += len(core.probes.take_ended())
    if core.probes.under_way and c % 2:
        number = next(iter(core.probes.under_way))
        cell.step_loop.driven.guard(lambda: core.probes.end(number))
        return True
    pair = (ids[b % len(ids)], ids[c // 2 % len(ids)])
    try:
        cell.step_loop.driven.guard(lambda: core.probes.begin(*pair, 1.0))
    except PagewireError:
        return False
    cell.step_loop._plan_soon()
    return True


def end_probes(cell: Cell) -> None:
    """Whoever asked for probes is through with them."""
    for number in list(cell.core.probes.under_way):
        cell.core.probes.end(number)


def cancel_handed_off(world: World, a: int, b: int, c: int) -> bool:
    """The client of one whose prompt another worker computes goes away."""
    waiting = {
        handoff.sequence.request.request_id
        for cell in world.cells
        for worker in (cell.core.workers.values() if cell.is_up else ())
        for handoff in worker.handoffs.outgoing
    }
    return close_one_of(world, waiting, a)


def source_dies(world: World, a: int, b: int, c: int) -> bool:
    """A worker ends that others wait for."""
    busy = {
        worker.info.worker_id
        for cell in world.cells
        for worker in (cell.core.workers.values() if cell.is_up else ())
        if worker.handoffs.outgoing
    }
    sources = [worker for worker in world.workers if worker.worker_id in busy]
    if not sources:
        return False
    world.kill_worker(sources[a % len(sources)])
    return True
