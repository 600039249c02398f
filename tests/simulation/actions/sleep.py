"""Workers that sleep, by order or because they are idle, and wake."""

from simulation.actions.roles import _cell
from simulation.processes.cell import Cell
from simulation.world import World

from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, SleepMode, SleepOrder


def sleep_worker(world: World, a: int, b: int, c: int) -> bool:
    """An operator lets a worker sleep."""
    cell = _cell(world, a)
    if cell is None:
        return False
    workers = list(cell.core.workers.values())
    worker = workers[b % len(workers)]
    mode = (SleepMode.KEEP, SleepMode.WAIT)[c % 2]
    order = SleepOrder(level=1 + c // 2 % 2, mode=mode, wakes_on_request=c % 3 == 0)
    assert cell.step_loop is not None
    cell.step_loop.driven.guard(lambda: cell.core.sleeping.order(worker, order))
    cell.step_loop._plan_soon()
    return True


def wake_worker(world: World, a: int, b: int, c: int) -> bool:
    """An operator wakes the workers of a cell."""
    cell = _cell(world, a)
    return cell is not None and wake_all(cell)


def sleeper_dies(world: World, a: int, b: int, c: int) -> bool:
    """A worker ends that sleeps, or that is between two attaches."""
    sleepers = [worker for worker in world.workers if worker.sleep is not None]
    if not sleepers:
        return False
    world.kill_worker(sleepers[a % len(sleepers)])
    return True


def wake_all(cell: Cell) -> bool:
    """Wake the workers that sleep; return whether there are any."""
    step_loop = cell.step_loop
    assert step_loop is not None
    sleeping = [
        worker
        for worker in cell.core.workers.values()
        if worker.duty.sleep is not None and worker.duty.sleep.state is MemoryState.ASLEEP
    ]
    for worker in sleeping:
        cell.core.sleeping.wake(worker, ALL_TAGS)
    step_loop.sleep_desk.send_wakes()
    return bool(sleeping)
