"""Faults of processes and steps: what breaks, and how it comes back."""

from simulation.clock import EPOCH_SECONDS
from simulation.model.answers import Answer
from simulation.processes.cell import Cell
from simulation.processes.streams import Stream
from simulation.processes.worker_process import WorkerProcess
from simulation.world import World

from pagewire_frontend.scheduler import convert as link_messages
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure


def _busy(world: World, a: int) -> WorkerProcess | None:
    busy = [worker for worker in world.workers if worker.queue]
    return busy[a % len(busy)] if busy else None


def _fail(world: World, a: int, *, with_culprit: bool) -> bool:
    worker = next(
        (w for w in world.workers if with_culprit and w.queue and _preempted_slots(w, w.queue[0])),
        _busy(world, a),
    )
    if worker is None or not worker.queue[0].slots:
        return False
    plan = worker.queue[0]
    slots = _preempted_slots(worker, plan) or plan.slots
    culprits = (slots[a // 7 % len(slots)],) if with_culprit else ()
    worker.failure = StepFailure("planted", culprits)
    worker.run()
    return True


def _preempted_slots(worker: WorkerProcess, plan: StepPlan) -> list[int]:
    """Slots of a plan whose sequences gave way since: the rare case is the one to try."""
    core = worker.cell.core if worker.cell.is_up else None
    state = core.workers.get(worker.worker_id) if core is not None else None
    return [
        chunk.slot
        for step in (state.outstanding if state is not None else ())
        if step.step_id == plan.step_id and state.info.incarnation == plan.incarnation
        for chunk in step.chunks
        if chunk.sequence.state is State.PREEMPTED
    ]


def fail_step(world: World, a: int, b: int, c: int) -> bool:
    """A step fails and nobody knows why."""
    return _fail(world, a, with_culprit=False)


def fail_step_with_culprit(world: World, a: int, b: int, c: int) -> bool:
    return _fail(world, a, with_culprit=True)


def slow_step(world: World, a: int, b: int, c: int) -> bool:
    """A step takes its time, but not so long that the worker counts as stuck."""
    worker = _busy(world, a)
    if worker is None:
        return False
    worker.frozen_until = world.clock.now + (0.05, 0.3, 1.0)[b % 3]
    return True


def stuck_worker(world: World, a: int, b: int, c: int) -> bool:
    """A worker with work stands still until it is given up."""
    worker = _busy(world, a)
    if worker is None:
        return False
    stream = worker.stream
    is_silent = stream is not None and not stream.up
    worker.frozen_until = world.clock.now + 30.0
    for _ in range(5):
        world.pass_time(1.0)
        world.turn()
    worker.frozen_until = 0.0
    if stream is not None and is_silent:
        # One that was slow before is given more time.
        is_slow = max(stream.peer.watch._intervals, default=0.0) >= 0.4
        detail = "a worker that stands still is not given up"
        world.coverage.require("progress", stream.is_cut or is_slow, detail)
        world.coverage.facts["stuck workers given up"] += stream.is_cut
    return True


def cut_worker(world: World, a: int, b: int, c: int) -> bool:
    workers = [worker for worker in world.workers if worker.stream is not None]
    if not workers:
        return False
    worker = workers[a % len(workers)]
    assert worker.stream is not None
    cut(world, worker.stream, b, c)
    return True


def cut(world: World, stream: Stream, b: int, c: int) -> None:
    """Break a stream somewhere; remember results that are lost on the way."""
    num_up, num_down = b % (len(stream.up) + 1), c % (len(stream.down) + 1)
    lost = list(stream.up)[num_up:]
    world.late_answers += [message for message in lost if isinstance(message, Answer)]
    stream.cut(num_up, num_down)


def worker_dies(world: World, a: int, b: int, c: int) -> bool:
    if not world.workers:
        return False
    worker = world.workers.pop(a % len(world.workers))
    if worker.stream is not None:
        cut(world, worker.stream, b, 0)
        worker.stream.leave_down()
    world.start_worker(worker.cell, is_small=c % 5 == 0)
    return True


def worker_joins(world: World, a: int, b: int, c: int) -> bool:
    cell = world.cells[a % len(world.cells)]
    if sum(worker.cell is cell for worker in world.workers) >= 3:
        return False
    world.start_worker(cell, is_small=b % 4 == 0)
    return True


def drain_worker(world: World, a: int, b: int, c: int) -> bool:
    """A worker asks to leave; it ends when nothing is left, or before."""
    workers = [w for w in world.workers if w.stream is not None and not w.is_leaving]
    if not workers:
        return False
    worker = workers[a % len(workers)]
    worker.is_leaving = True
    assert worker.stream is not None
    worker.stream.send_up("leaving")
    return True


def frontend_dies(world: World, a: int, b: int, c: int) -> bool:
    if not world.frontends:
        return False
    frontend = world.frontends.pop(a % len(world.frontends))
    for end in frontend.ends:
        if end.stream is not None:
            cut(world, end.stream, b, 0)
    frontend.die()
    world.start_frontend(frontend.number)
    return True


def scheduler_dies(world: World, a: int, b: int, c: int) -> bool:
    """Killed and started again; all it knew is gone."""
    cell = world.cells[a % len(world.cells)]
    for stream in list(cell.streams):
        cut(world, stream, 0, b)
    cell.die()
    world.clock.now += 0.01
    cell.start()
    return True


def usurp(world: World, a: int, b: int, c: int) -> bool:
    """A peer has met a later scheduler of this cell: that ends nothing here, but whoever runs the
    cell ends the older one."""
    cell = world.cells[a % len(world.cells)]
    generation = cell.core.settings.generation
    _claim(cell, f"cell-{cell.number}", generation + 1)
    if cell.core.settings.generation > generation:
        # Nobody was welcomed yet, or no other can have started: it takes the next one.
        return False
    return scheduler_dies(world, a, b, c)


def claim_generation(world: World, a: int, b: int, c: int) -> bool:
    """A peer has seen a generation that moves this scheduler's under its workers, or that means
    nothing here: of another cell, or one that cannot be."""
    cell = world.cells[a % len(world.cells)]
    before = cell.core.settings.generation
    cells = (f"cell-{cell.number}", "", "elsewhere")
    name = cells[b % len(cells)]
    ahead = (1, 2**40, 2**62)[c % 3]
    _claim(cell, name, max(before, _now_ms(world)) + ahead)
    moved = cell.core.settings.generation > before
    assert moved == (name != "elsewhere" and ahead == 1), "a claim is believed wrongly"
    return True


def _now_ms(world: World) -> int:
    return int((EPOCH_SECONDS + world.clock.now) * 1000)


def _claim(cell: Cell, name: str, highest: int) -> None:
    """Let a stranger say what it has seen, and leave; the scheduler goes on."""
    stream = Stream("frontend", None, cell)
    cell.connect(stream)
    stream.send_up(
        link_messages.hello_message(
            frontend_id=b"\xff" * 16,
            highest_generation=highest,
            fingerprints=[],
            held_generation=None,
            held=[],
            cell=name,
        )
    )
    cell.receive(stream)
    assert cell.step_loop is not None
    assert not cell.step_loop.driven.failure.done(), "a claim ends a scheduler"
    stream.cut()
    if stream in cell.streams:
        cell.receive(stream)


def reset_cache(world: World, a: int, b: int, c: int) -> bool:
    cell = world.cells[a % len(world.cells)]
    cell.core.kv_caches.reset("tiny")
    return True
