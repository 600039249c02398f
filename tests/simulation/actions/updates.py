"""New weights for the workers of a cell: what WeightsDesk does, one step at a time."""

from dataclasses import dataclass
from hashlib import sha256

from simulation.actions.roles import _cell
from simulation.actions.sleep import wake_all
from simulation.coverage import Coverage
from simulation.processes.cell import Cell
from simulation.processes.frontend import MODEL
from simulation.world import MODEL_FINGERPRINT, World

from pagewire_scheduler.core.routing.updating import NewestWeights
from pagewire_scheduler.links.loop import StepLoop
from pagewire_shared.weights.version import UpdateMode, WeightsSource, WeightsVersion

NUM_VERSIONS = 3


@dataclass
class Update:
    """One update of a cell.

    Attributes:
        step_loop: The life of the scheduler that it belongs to.
        target: What all workers are to have.
        before: What they had; None once they are to have it again, and before the load.
        is_loading: Whether workers were ordered to load.
    """

    cell: Cell
    coverage: Coverage
    step_loop: StepLoop
    target: NewestWeights
    before: NewestWeights | None = None
    is_loading: bool = False

    def go_on(self) -> bool:
        """Take the next step if it is due; return whether the update is over."""
        if self.cell.step_loop is not self.step_loop:
            return True  # its scheduler is gone, and with it whatever was held
        core = self.cell.core
        self.cell.loop.enter()
        if not self.is_loading:
            driven = self.step_loop.driven
            if driven.guard(lambda: core.updating.let_go(MODEL)):
                self._load()
            self.step_loop._plan_soon()
            return False
        wake_all(self.cell)
        workers = core.queues.workers(MODEL)
        serial = self.target.source.serial
        if self.before is not None and any(
            one.info.failed_update and one.info.failed_update[0] == serial for one in workers
        ):
            self._go_back(self.before)
            return False
        is_done = bool(workers) and all(
            one.duty.sleep is None
            and one.duty.sleep_order is None
            and not self.target.version.excludes(one.info.weights)
            for one in workers
        )
        if is_done:
            self.coverage.facts["weights exchanged"] += self.before is not None
            self._release()
        return is_done

    def _load(self) -> None:
        core, driven = self.cell.core, self.step_loop.driven
        driven.dispatch(driven.guard(lambda: core.conclude(core.updating.end_late(MODEL))))
        self.before = core.updating.newest(MODEL)
        self._order()
        self.is_loading = True

    def _go_back(self, before: NewestWeights) -> None:
        source = WeightsSource(path=before.source.path, serial=self.target.source.serial + 1)
        self.target, self.before = NewestWeights(source, before.version), None
        self._order()

    def _order(self) -> None:
        updating, target = self.cell.core.updating, self.target
        self.step_loop.driven.guard(
            lambda: updating.set_newest(MODEL, target.source, target.version)
        )
        self.step_loop._plan_soon()

    def _release(self) -> None:
        core, driven = self.cell.core, self.step_loop.driven
        driven.dispatch(driven.guard(lambda: core.enter(core.updating.release(MODEL))))
        self.step_loop._plan_soon()


def fingerprint_of(number: int) -> bytes:
    """The fingerprint of a version; that of the start is 0."""
    return sha256(b"version %d" % number).digest() if number else MODEL_FINGERPRINT


def update_weights(world: World, a: int, b: int, c: int) -> bool:
    """An operator begins to give the workers of a cell other weights."""
    cell = _cell(world, a)
    if cell is None or any(update.cell is cell for update in world.updates):
        return False
    step_loop = cell.step_loop
    assert step_loop is not None
    newest = cell.core.updating.newest(MODEL)
    if newest is None:
        return False
    number = b % NUM_VERSIONS
    # Milliseconds of the clock, as in WeightsDesk: it grows over the lives of schedulers.
    serial = max(int(world.clock.now * 1000) + 1, newest.source.serial + 1)
    source = WeightsSource(path=f"/{number}" if number else "", serial=serial)
    target = NewestWeights(source, WeightsVersion(fingerprint_of(number)))
    mode = (UpdateMode.WAIT, UpdateMode.ABORT)[c % 2]
    driven = step_loop.driven
    cell.loop.enter()
    driven.dispatch(driven.guard(lambda: cell.core.conclude(cell.core.updating.hold(MODEL, mode))))
    step_loop._plan_soon()
    world.updates.append(Update(cell, world.coverage, step_loop, target))
    world.excuses.has_updates = True
    return True


def load_fails(world: World, a: int, b: int, c: int) -> bool:
    """The next load of weights of a worker fails."""
    if not world.workers:
        return False
    world.workers[a % len(world.workers)].is_load_failing = True
    return True
