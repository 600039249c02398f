"""Calls the core for the links: sets its time, sends its events to frontends, and ends the process
when the core fails."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from pagewire_scheduler.core.cell_load import CellLoad, cell_load
from pagewire_scheduler.core.data.events import Event
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.links.culprits import culprits_of
from pagewire_scheduler.links.request_log import log_failure
from pagewire_scheduler.peers.peers import FrontendPeer
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import BlockName, short

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


class StoreWatcher(Protocol):
    """Hears of blocks that the index did not have before, and of those that it had."""

    def stored(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that are new in the index."""

    def removed(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that are about to leave it."""

    def cleared(self, store: str) -> None:
        """Take note of a store of which it has no block any more."""


class DrivenCore:
    """Calls the core at the time of its clock, and sends what every frontend hears.

    Attributes:
        newest_load: What the last heartbeat said.
        failure: Ends with the error that ends the process.
        store_watcher: Hears what enters and leaves the index of KV stores.
    """

    def __init__(
        self,
        settings: CoreSettings,
        clock: Callable[[], float],
        frontends: Mapping[bytes, FrontendPeer],
    ) -> None:
        """Args: `clock` returns seconds; the caller adds and removes `frontends`."""
        self.core = SchedulerCore(settings)
        self.clock = clock
        self._frontends = frontends
        self.newest_load = CellLoad({}, {})
        self.store_watcher: StoreWatcher | None = None
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """End the process: its state contradicts itself, or another scheduler has taken over."""
        if not self.failure.done():
            self.failure.set_exception(error)

    # KV stores

    def note_stored(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that a store has."""
        stores, watcher = self.core.stores, self.store_watcher
        fresh = [] if watcher is None else [one for one in names if not stores.has(store, one)]
        self.guard(lambda: stores.stored(store, names))
        if watcher is not None:
            watcher.stored(store, [one for one in fresh if stores.has(store, one)])

    def note_removed(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that a store has no more."""
        stores, watcher = self.core.stores, self.store_watcher
        if watcher is not None:
            watcher.removed(store, [one for one in names if stores.has(store, one)])
        self.guard(lambda: stores.removed(store, names))

    def note_cleared(self, store: str) -> None:
        """Forget what a store has."""
        self.guard(lambda: self.core.stores.cleared(store))
        if self.store_watcher is not None:
            self.store_watcher.cleared(store)

    def set_store(self, store: str, *, is_up: bool) -> None:
        """Take note of a store that can be reached, or cannot."""
        self.guard(lambda: self.core.stores.set_up(store, is_up=is_up))

    # Events and reports

    def beat(self, counter: int) -> None:
        """Show every frontend that time passes here, and how busy the cell is."""
        core = self.core
        load = self.guard(lambda: cell_load(core.frontends.values(), core.workers.values()))
        self.newest_load = load
        for frontend in list(self._frontends.values()):
            frontend.send_heartbeat(counter)
            frontend.send_load(load)

    def dispatch(self, events: Sequence[Event]) -> None:
        """Send events to the frontends that are attached."""
        by_frontend: dict[bytes, list[Event]] = {}
        for event in events:
            log_failure(event)
            by_frontend.setdefault(event.frontend_id, []).append(event)
        for frontend_id, own in by_frontend.items():
            peer = self._frontends.get(frontend_id)
            if peer is not None:
                peer.send_events(own)

    def send_models(self) -> None:
        """Send every frontend the models that are served."""
        models = self.core.models()
        for frontend in list(self._frontends.values()):
            frontend.send_models(models)

    def guard(self, call: Callable[[], Result]) -> Result:
        """Call into the core, at the time of the clock.

        Raises:
            PagewireError: The core refuses. Any other error ends the process.
        """
        self.core.now = self.clock()
        try:
            return call()
        except PagewireError:
            raise
        except Exception as error:
            # The core may be half changed. All of it can be rebuilt by the peers: start afresh.
            self._fail_at(error)
            raise

    def _fail_at(self, error: Exception) -> None:
        """End the process, and tell frontends, as the last word, what the core was working on."""
        if self.failure.done():
            return
        self.fail(error)
        culprits = culprits_of(error)
        names = ", ".join(map(short, culprits)) or "no request"
        _logger.error("the core failed at %s", names, exc_info=error)
        for frontend in list(self._frontends.values()):
            frontend.send_failing(culprits)
