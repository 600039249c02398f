"""Starts the publisher of KV events with a scheduler: at once, or when a standby takes over.
Its packages are imported only where it is turned on."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pagewire_scheduler.kv_events.events_config import KvEventsConfig, check_reach
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.standby_service import CellStandby
from pagewire_shared.errors import StartupError

if TYPE_CHECKING:
    from pagewire_scheduler.kv_events.feed import KvEventFeed

RETRY_SECONDS: Final = 0.25

_logger = logging.getLogger(__name__)


class KvEventService:
    """The publisher of one scheduler, or the lack of it."""

    def __init__(self, feed: "KvEventFeed | None") -> None:
        self.feed = feed

    def tasks(self, standby: CellStandby) -> "list[asyncio.Task[None]]":
        """Return the running task that opens the publisher when this scheduler takes over."""
        if self.feed is None or self.feed.publisher is not None:
            return []
        return [asyncio.create_task(_open_when_active(self.feed, standby))]

    def close(self) -> None:
        """Stop."""
        if self.feed is not None:
            self.feed.close()


def start_kv_events(
    events: KvEventsConfig,
    loop: StepLoop,
    *,
    is_insecure: bool,
    is_caching: bool,
    is_standing_by: bool = False,
) -> KvEventService:
    """Return the publisher that the settings ask for, which listens unless it stands by.

    Args:
        is_insecure: The process may listen in the clear on addresses that others reach.

    Raises:
        StartupError: An endpoint cannot or must not be listened on, or a package is missing.
    """
    if not events.is_on:
        return KvEventService(None)
    if not is_caching:
        raise StartupError(
            "--kv-events-config: there are no events with --no-enable-prefix-caching",
            field="kv_events_config",
        )
    open_ones = check_reach(events, is_insecure=is_insecure)
    try:
        from pagewire_scheduler.kv_events.feed import KvEventFeed
    except ModuleNotFoundError as error:
        if error.name not in ("zmq", "msgspec"):
            raise
        raise StartupError(
            f"--kv-events-config: the package {error.name} is not installed; pip install"
            " 'pagewire[events]' brings it",
            field="kv_events_config",
        ) from error
    for endpoint in open_ones:
        _logger.warning(
            "KV events at %s are open to all who reach it, token ids of prompts included", endpoint
        )
    feed = KvEventFeed(loop.core, events)
    loop.on_planned = feed.flush
    loop.driven.store_watcher = feed.stores
    if not is_standing_by:
        feed.open()
    return KvEventService(feed)


async def _open_when_active(feed: "KvEventFeed", standby: CellStandby) -> None:
    """Listen once this scheduler is active. The endpoint may still be that of a process that hangs:
    try again until it is free, and then wait for ever."""
    reason = ""
    while feed.publisher is None:
        await asyncio.sleep(RETRY_SECONDS)
        try:
            if standby.is_active:
                feed.open()
        except StartupError as error:
            if error.message != reason:
                _logger.warning("%s; trying again", error.message)
            reason = error.message
    await asyncio.Event().wait()
