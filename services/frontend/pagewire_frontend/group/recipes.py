"""Has the recipes of the streams of this process kept by its peers."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from pagewire_frontend.group.holders import holders_of
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import UNPLACED, Recipe
from pagewire_shared.errors import PagewireError

_logger = logging.getLogger(__name__)

RENEWALS: Final = 4
"""Times in the life of a recipe that it is renewed."""
_MOST_IDS: Final = 10_000
"""Ids of one message."""


class RecipePeer(Protocol):
    """A peer that keeps recipes; peer_client.Peer, without the rest."""

    async def keep_recipe(self, recipe: Recipe) -> None: ...

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None: ...

    async def renew_recipes(self, stream_ids: Sequence[str]) -> None: ...


class GroupRecipes:
    """A RecipeMirror over the peers. `run` it: what is not renewed expires."""

    def __init__(
        self, peers: Mapping[str, RecipePeer], local: LocalStreams, *, num_replicas: int
    ) -> None:
        """Create it.

        Args:
            peers: The other members by name.
            local: The streams of this process. Recipes live as long as streams without a reader.
            num_replicas: How many peers keep each recipe.
        """
        self._peers = peers
        self._num_replicas = num_replicas
        self._local = local
        self._placed: dict[str, list[str]] = {}

    @property
    def is_on(self) -> bool:
        """Whether recipes are kept by other frontends."""
        return bool(self._peers) and self._num_replicas > 0 and self._local.keeps_any

    async def keep(self, recipe: Recipe) -> None:
        """Have a recipe kept by as many peers as are wanted and answer; see RecipeMirror."""
        placed = self._placed.setdefault(recipe.stream_id, [])
        placed.clear()
        for name in holders_of(recipe.stream_id, self._peers):
            if len(placed) == self._num_replicas:
                break
            try:
                await self._peers[name].keep_recipe(recipe)
            except PagewireError as error:
                _logger.warning("frontend %s takes no recipe of a stream: %s", name, error)
            else:
                placed.append(name)
        if not placed:
            UNPLACED.inc()

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        """Add the usage of a stream to its recipe; see RecipeMirror."""
        for name in self._placed.get(stream_id, ()):
            try:
                await self._peers[name].note_usage(stream_id, tenant, usage)
            except PagewireError as error:
                _logger.warning("frontend %s takes no usage of a stream: %s", name, error)

    async def run(self) -> None:
        """Renew the recipes of the streams that are kept, until cancelled."""
        while self.is_on:
            await asyncio.sleep(self._local.limits.retention_seconds / RENEWALS)
            try:
                await self._renew_all()
            except Exception:
                _logger.exception("recipes are not renewed this time")

    async def _renew_all(self) -> None:
        kept = set(self._local.ids())
        self._placed = {one: names for one, names in self._placed.items() if one in kept}
        for name, peer in self._peers.items():
            ids = [one for one, names in self._placed.items() if name in names]
            await self._renew(name, peer, ids)

    async def _renew(self, name: str, peer: RecipePeer, ids: Sequence[str]) -> None:
        for first in range(0, len(ids), _MOST_IDS):
            try:
                await peer.renew_recipes(ids[first : first + _MOST_IDS])
            except PagewireError as error:
                _logger.warning("frontend %s does not renew recipes: %s", name, error)
                return
