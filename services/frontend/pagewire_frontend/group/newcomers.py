"""Tells the peers that a frontend has started, which give it again what it kept before."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from pagewire_frontend.group.keys import GroupKeys
from pagewire_frontend.group.recipes import GroupRecipes
from pagewire_shared.errors import PagewireError

_logger = logging.getLogger(__name__)


class Announced(Protocol):
    """A peer that is asked; peer_client.Peer, without the rest."""

    async def announce(self, name: str) -> None: ...


async def announce(name: str, peers: Sequence[Announced]) -> None:
    """Tell all peers that `name` has started, and wait until they have given it what they can.

    One that is not there has nothing to give.
    """

    async def ask(peer: Announced) -> None:
        try:
            await peer.announce(name)
        except PagewireError as error:
            _logger.info("a start is not announced: %s", error)

    await asyncio.gather(*map(ask, peers))


async def restore(recipes: GroupRecipes, keys: GroupKeys, name: str) -> None:
    """Give the peer `name`, which has just started, its recipes and keys.
    Raises UnavailableError."""
    if recipes.knows(name):
        await recipes.reach(name)
        await keys.restore(name)
        await recipes.restore(name)
