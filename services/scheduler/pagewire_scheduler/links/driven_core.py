"""Calls the core for the links: sets its time, sends its events to frontends, and ends the process
when the core fails."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

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


class DrivenCore:
    """Runs on one event loop. The step loop is one of these."""

    def __init__(self, settings: CoreSettings, clock: Callable[[], float]) -> None:
        """Args: `clock` returns seconds."""
        self.core = SchedulerCore(settings)
        self.clock = clock
        self.frontends: dict[bytes, FrontendPeer] = {}
        self.newest_load = CellLoad({}, {})
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """End the process: its state contradicts itself, or another scheduler has taken over."""
        if not self.failure.done():
            self.failure.set_exception(error)

    # KV stores

    def note_stored(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that a store has."""
        self._guard(lambda: self.core.note_stored(store, names))

    def note_removed(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that a store has no more."""
        self._guard(lambda: self.core.note_removed(store, names))

    def note_cleared(self, store: str) -> None:
        """Forget what a store has."""
        self._guard(lambda: self.core.note_cleared(store))

    def set_store(self, store: str, *, is_up: bool) -> None:
        """Take note of a store that can be reached, or cannot."""
        self._guard(lambda: self.core.set_store(store, is_up))

    # Inside

    def _beat(self, counter: int) -> None:
        """Show every frontend that time passes here, and how busy the cell is."""
        core = self.core
        load = self._guard(lambda: cell_load(core.frontends.values(), core.workers.values()))
        self.newest_load = load
        for frontend in list(self.frontends.values()):
            frontend.send_heartbeat(counter)
            frontend.send_load(load)

    def _dispatch(self, events: Sequence[Event]) -> None:
        by_frontend: dict[bytes, list[Event]] = {}
        for event in events:
            log_failure(event)
            by_frontend.setdefault(event.frontend_id, []).append(event)
        for frontend_id, own in by_frontend.items():
            peer = self.frontends.get(frontend_id)
            if peer is not None:
                peer.send_events(own)

    def _models_changed(self) -> None:
        models = self.core.models()
        for frontend in list(self.frontends.values()):
            frontend.send_models(models)

    def _guard(self, call: Callable[[], Result]) -> Result:
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
        for frontend in list(self.frontends.values()):
            frontend.send_failing(culprits)
