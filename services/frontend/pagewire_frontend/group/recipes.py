"""Has the recipes of the streams of this process kept by its peers."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from pagewire_frontend.group.holders import holders_of, maker_of
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import (
    UNPLACED,
    Recipe,
    RecipeStore,
    packed_aside,
    unpacked_aside,
)
from pagewire_shared.errors import PagewireError, UnavailableError

_logger = logging.getLogger(__name__)

RENEWALS: Final = 4
"""Times in the life of a recipe that it is renewed."""
_MOST_IDS: Final = 10_000
"""Ids of one message."""


class RecipePeer(Protocol):
    """A peer that keeps recipes; peer_client.Peer, without the rest."""

    async def reach(self) -> None: ...

    async def keep_recipe(self, recipe: Recipe) -> None: ...

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None: ...

    async def renew_recipes(self, stream_ids: Sequence[str]) -> None: ...


class GroupRecipes:
    """A RecipeMirror over the peers. `run` it: what is not renewed expires."""

    def __init__(
        self,
        peers: Mapping[str, RecipePeer],
        local: LocalStreams,
        own: RecipeStore,
        *,
        name: str,
        num_replicas: int,
    ) -> None:
        """Create it.

        Args:
            own: Recipes that this process keeps for others.
            name: Name of this process.
            peers: The other members by name.
            local: The streams of this process. Recipes live as long as streams without a reader.
            num_replicas: How many peers keep each recipe.
        """
        self._peers = peers
        self._num_replicas = num_replicas
        self._local = local
        self._own = own
        # Of the streams of this process: a holder that is started again has lost them.
        self._made = own.sibling()
        self._name = name
        self._placed: dict[str, list[str]] = {}

    @property
    def is_on(self) -> bool:
        """Whether recipes are kept by other frontends."""
        return bool(self._peers) and self._num_replicas > 0 and self._local.keeps_any

    async def keep(self, recipe: Recipe) -> None:
        """Have a recipe kept by as many peers as are wanted and answer; see RecipeMirror."""
        placed = self._placed.setdefault(recipe.stream_id, [])
        placed.clear()
        if not self._local.is_own(recipe.stream_id):
            # A holder that was away comes before this process, and is to ask it.
            recipe = replace(recipe, maker_name=self._name)
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
        elif recipe.maker_name:
            # Where this stream is dropped, those that have the recipe do not ask each other.
            self._own.remove(recipe.stream_id, recipe.tenant)
        self._made.put(await packed_aside(recipe))

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        """Add the usage of a stream to its recipe; see RecipeMirror."""
        self._made.note_usage(stream_id, tenant, usage)
        for name in self._placed.get(stream_id, ()):
            try:
                await self._peers[name].note_usage(stream_id, tenant, usage)
            except PagewireError as error:
                _logger.warning("frontend %s takes no usage of a stream: %s", name, error)

    def knows(self, name: str) -> bool:
        """Whether a frontend is a peer, and recipes are kept at all."""
        return self.is_on and name in self._peers

    async def reach(self, name: str) -> None:
        """Return once a peer is connected. Raises UnavailableError."""
        await self._peers[name].reach()

    async def restore(self, name: str) -> None:
        """Give a peer that has just started the recipes that it is to keep, which it has lost, and
        those of streams that its process before has made."""
        try:
            for recipe in self._made.all():
                await self._restore_made(name, recipe)
            for recipe in self._own.all():
                await self._restore_kept(name, recipe)
        except UnavailableError as error:
            _logger.warning("frontend %s is not given all its recipes: %s", name, error)

    async def _restore_made(self, name: str, recipe: Recipe) -> None:
        placed = self._placed.get(recipe.stream_id)
        if placed is None or self._local.find(recipe.stream_id) is None:
            return
        if name in placed or len(placed) < self._num_replicas:
            await self._peers[name].keep_recipe(await unpacked_aside(recipe))
            if name not in placed:
                placed.append(name)
            await self._give_usage(name, self._made, recipe)

    async def _restore_kept(self, name: str, recipe: Recipe) -> None:
        members = [self._name, *self._peers]
        maker = recipe.maker_name or maker_of(recipe.stream_id, members)
        holders = holders_of(recipe.stream_id, members)[: self._num_replicas]
        # Of another maker, which may be there, this process does not learn the usage.
        is_meant = name == maker or (maker == self._name and name in holders)
        if is_meant and self._local.find(recipe.stream_id) is None:
            # While it may come before this process there, the stream is not begun here.
            with self._own.moving(recipe.stream_id):
                await self._peers[name].keep_recipe(await unpacked_aside(recipe))
                await self._give_usage(name, self._own, recipe)

    async def _give_usage(self, name: str, store: RecipeStore, recipe: Recipe) -> None:
        """Send the usage as it is known now: it may have come while the recipe was sent."""
        known = store.find(recipe.stream_id, recipe.tenant)
        if known is not None and known.usage:
            await self._peers[name].note_usage(recipe.stream_id, recipe.tenant, known.usage)

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
        self._made.renew(list(kept))
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
