"""Collects the metrics of the whole group; any of its processes can be asked."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pagewire_frontend.group.exposition import summed
from pagewire_shared.errors import PagewireError

_logger = logging.getLogger(__name__)

PROCESSES = "pagewire_frontend_processes"
MISSING = "pagewire_frontend_processes_missing"


class MetricsPeer(Protocol):
    """A peer that reports metrics; peer_client.Peer, without its connection."""

    name: str

    async def metrics(self, is_open: bool) -> str: ...


class GroupMetrics:
    """Adds up this process and its peers."""

    def __init__(self, own: Callable[[bool], str], peers: Sequence[MetricsPeer]) -> None:
        """Create the group metrics.

        Args:
            own: Returns the exposition of this process, of OpenMetrics if it is given True.
        """
        self._own = own
        self._peers = peers

    async def exposition(self, is_open: bool = False) -> str:
        """Return the sum over the processes that answer, and how many did and did not; `is_open` in
        OpenMetrics."""
        # Writing a text takes longer than a stream should wait for its next token.
        own, answers = await asyncio.gather(
            asyncio.to_thread(self._own, is_open),
            asyncio.gather(*(self._ask(peer, is_open) for peer in self._peers)),
        )
        texts = [own, *(text for text in answers if text is not None)]
        num_missing = 1 + len(self._peers) - len(texts)
        counts = {
            PROCESSES: ("Frontend processes that these metrics are the sum of", len(texts)),
            MISSING: ("Frontend processes of the group that did not answer", num_missing),
        }
        # Parsing 64 of them takes longer still.
        return await asyncio.to_thread(partial(summed, texts, counts, is_open=is_open))

    async def _ask(self, peer: MetricsPeer, is_open: bool) -> str | None:
        try:
            return await peer.metrics(is_open)
        except PagewireError as error:
            _logger.warning("metrics without frontend %s: %s", peer.name, error)
            return None
