"""Frontends of a group in one process, that die: real kept streams, recipes, keys and takeovers,
with links in memory between them, which have delays and may be cut."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from simulation.group.answers import PATH, ModelRemaker

from pagewire_frontend.access.api_keys import ApiKeys, set_caller
from pagewire_frontend.group.keys import GroupKeys
from pagewire_frontend.group.membership import Membership
from pagewire_frontend.group.newcomers import announce, restore
from pagewire_frontend.group.recipes import GroupRecipes
from pagewire_frontend.group.streams import HeldStreams, PeerStreams, StreamFinder
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.keyed_streams import KeyedStreams
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyHolder, LocalKeys
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.kept_streams.recipes import Recipe, RecipeStore
from pagewire_frontend.http.kept_streams.takeovers import Takeovers, TakeoverTools
from pagewire_shared.errors import UnavailableError
from pagewire_shared.identity.frontend_tag import slot_of

PEER_SECONDS = 2.0
RETENTION_SECONDS = 20.0
LIMITS = JournalLimits(retention_seconds=RETENTION_SECONDS, max_bytes=2**22)

Result = TypeVar("Result")
here: contextvars.ContextVar["GroupProcess | None"] = contextvars.ContextVar("here", default=None)
"""The process whose code runs."""


def make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **given: Any
) -> "asyncio.Task[Any]":
    """Make a task that dies with the process whose code made it."""
    task = asyncio.Task(work, loop=loop, **given)
    context = given.get("context")
    owner = context.get(here) if context is not None else here.get()
    if owner is not None:
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
    return task


class GroupProcess:
    """One life of a frontend.

    Attributes:
        death: Done when it is dead.
        born: When it was started.
    """

    def __init__(self, world: Any, name: str, life: int, keys: ApiKeys, num_replicas: int) -> None:
        self.world = world
        self.name = name
        self.tag = slot_of(name) + f"{life:03x}"
        self.tasks: set[asyncio.Task[Any]] = set()
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.born = asyncio.get_running_loop().time()
        membership = Membership(name, self.tag)
        self.local = LocalStreams(self.tag, LIMITS)
        clock = asyncio.get_running_loop().time
        self.store = RecipeStore(LIMITS.max_bytes, RETENTION_SECONDS, clock)
        held = HeldStreams(self.local, self.store)
        peers = {other: Wire(self, other) for other in world.names if other != name}
        self.recipes = GroupRecipes(
            peers, self.local, self.store, name=name, num_replicas=num_replicas
        )
        self.streams = StreamFinder(membership, held, peers, num_replicas=num_replicas)
        self.serving = PeerStreams(name, held, peers)
        self.keys = LocalKeys()
        group_keys = GroupKeys(membership, self.keys, peers)
        self.keyed = KeyedStreams(self.local, self.streams, group_keys)
        tools = TakeoverTools(keys, self.recipes, {PATH: ModelRemaker(self)})
        held.take_over = Takeovers(tools, self.local).begin
        self.restore = partial(restore, self.recipes, group_keys)
        self.spawn(self.recipes.run())
        self.spawn(announce(name, list(peers.values())))

    @property
    def is_dead(self) -> bool:
        return self.death.done()

    def spawn(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Run something in this process."""
        context = contextvars.copy_context()
        context.run(here.set, self)
        context.run(set_caller, None)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        """End it at once. What its tasks do when they are cancelled reaches no one."""
        self.death.set_result(None)
        for task in list(self.tasks):
            task.cancel()


class Wire:
    """What a process has of a peer, as peer_client.Peer: StreamDirectory, KeyDirectory and
    RecipePeer."""

    def __init__(self, owner: GroupProcess, name: str) -> None:
        self._owner = owner
        self._name = name

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        target, reading = await self._call(lambda one: one.serving.read(stream_id, tenant, first))
        return StreamReading(self._frames(target, reading), reading.close)

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        await self._call(lambda one: one.serving.forget(stream_id, tenant))

    async def claim(self, claim: KeyClaim) -> KeyHolder:
        return (await self._call(lambda one: one.keys.claim(claim)))[1]

    async def keep_recipe(self, recipe: Recipe) -> None:
        async def keep(one: GroupProcess) -> None:
            one.store.put(recipe.packed())

        await self._call(keep)

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        async def note(one: GroupProcess) -> None:
            one.store.note_usage(stream_id, tenant, usage)

        await self._call(note)

    async def reach(self) -> None:
        """Return: there are no connections to wait for."""

    async def announce(self, name: str) -> None:
        await self._call(lambda one: one.restore(name))

    async def renew_recipes(self, stream_ids: Sequence[str]) -> None:
        async def renew(one: GroupProcess) -> None:
            one.store.renew(stream_ids)

        await self._call(renew)

    async def _call(
        self, work: Callable[[GroupProcess], Awaitable[Result]]
    ) -> tuple[GroupProcess, Result]:
        """Return who answered, and what."""
        world = self._owner.world
        await world.pause()
        target = self._target()

        async def run() -> Result:
            return await work(target)

        result = await self._unless_lost(target, target.spawn(run()), PEER_SECONDS)
        await world.pause()
        self._require(target)
        return target, result

    async def _frames(
        self, target: GroupProcess, reading: StreamReading
    ) -> AsyncIterator[list[bytes]]:
        async def next_frames() -> list[bytes] | None:
            return await anext(reading.frames, None)

        while True:
            ready = await self._unless_lost(target, target.spawn(next_frames()), None)
            await self._owner.world.pause()
            self._require(target)
            if ready is None:
                return
            yield ready

    async def _unless_lost(
        self, target: GroupProcess, task: "asyncio.Task[Result]", seconds: float | None
    ) -> Result:
        cut = self._owner.world.cut_of(self._owner.name, self._name)
        try:
            await asyncio.wait(
                {task, target.death, cut}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not task.done():
                task.cancel()
        self._require(target)
        if not task.done() or task.cancelled():
            raise self._away()
        return task.result()

    def _target(self) -> GroupProcess:
        target: GroupProcess | None = self._owner.world.alive.get(self._name)
        if target is None:
            raise self._away()
        self._require(target)
        return target

    def _require(self, target: GroupProcess) -> None:
        world, owner = self._owner.world, self._owner
        if target.is_dead or owner.is_dead or world.cut_of(owner.name, self._name).done():
            raise self._away()

    def _away(self) -> UnavailableError:
        return UnavailableError(f"frontend {self._name} of this group does not answer")
