"""Members of a group that are replaced one by one: what each kept for the others is given to the
process that follows it. Real sockets between them, no model."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from contract.group_members import Member, member

from pagewire_frontend.group.holders import holders_of
from pagewire_frontend.group.keys import owners_of
from pagewire_frontend.group.peer_client import Peer
from pagewire_frontend.http.kept_streams.ids import StreamNotFoundError
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyHolder
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_protos.frontend.v1 import peer_pb2 as pb

NAMES = "abc"
USAGE = b'{"completion_tokens": 3}'
DIGEST = bytes(32)


@dataclass
class RolledGroup:
    """Three members; each can be replaced."""

    folder: Path
    stacks: dict[str, AsyncExitStack] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)

    async def start(self, name: str) -> None:
        self.stacks[name] = AsyncExitStack()
        others = [other for other in NAMES if other != name]
        entered = self.stacks[name].enter_async_context(member(self.folder, name, others))
        self.members[name] = one = await entered
        one.group.held.take_over = lambda recipe: one.streams.keep(
            said(recipe.usage), lambda: None, recipe.tenant, stream_id=recipe.stream_id
        )

    async def replace(self, name: str) -> None:
        await self.stacks[name].aclose()
        await self.start(name)
        await self.meet()

    async def meet(self) -> None:
        """Return once all are connected."""
        for one in self.members.values():
            for peer in one.group.peers:
                await peer.reach()

    async def __aenter__(self) -> "RolledGroup":
        for name in NAMES:
            await self.start(name)
        await self.meet()
        return self

    async def __aexit__(self, *_: object) -> None:
        for stack in self.stacks.values():
            await stack.aclose()

    async def begin(self, *, is_over: bool) -> str:
        """Keep a stream at the member a; return its id."""
        first = self.members["a"]
        stream = first.streams.keep(said(USAGE), lambda: None, "tenant")
        recipe = Recipe(
            stream_id=stream.stream_id,
            tenant="tenant",
            key_digest=None,
            path="/v1/completions",
            body=b"{}",
            pins=Pins(bytes(32), 7),
            digest=DIGEST,
            numerics=b"",
            cached_tokens=[],
        )
        await first.group.recipes.keep(recipe)
        if is_over:
            await first.group.recipes.note_usage(stream.stream_id, "tenant", USAGE)
        return stream.stream_id


async def said(text: bytes):
    """Yield one event, and wait."""
    yield b"data: %b\n\n" % text
    await asyncio.sleep(60)


async def read_first(one: Member, stream_id: str) -> list[bytes]:
    reading = await one.group.streams.read(stream_id, "tenant", 0)
    try:
        return await anext(reading.frames)
    finally:
        reading.close()


@pytest.mark.parametrize("order", ["holder first", "maker first"])
@pytest.mark.parametrize("is_over", [False, True])
async def test_a_stream_outlives_all_that_knew_it(tmp_path, order, is_over):
    async with RolledGroup(tmp_path) as group:
        stream_id = await group.begin(is_over=is_over)
        holder, other = holders_of(stream_id, NAMES)
        for name in (holder, "a") if order == "holder first" else ("a", holder):
            await group.replace(name)
        frames = await read_first(group.members[other], stream_id)
        usage = USAGE if is_over else b""
        assert frames == [b"id: %b:0\ndata: %b\n\n" % (stream_id.encode(), usage)]
        makers = [name for name in NAMES if len(group.members[name].streams)]
        assert makers == ["a"], "asked first, and made once"


async def test_a_stream_that_was_made_again_outlives_its_second_maker(tmp_path):
    async with RolledGroup(tmp_path) as group:
        stream_id = await group.begin(is_over=True)
        holder, other = holders_of(stream_id, NAMES)
        await group.stacks["a"].aclose()
        await read_first(group.members[holder], stream_id)
        second = group.members[holder]
        assert len(second.streams) == 1
        await group.start("a")
        assert not group.members["a"].group.held.can_make(stream_id, "tenant"), "it lives"
        await read_first(group.members[other], stream_id)
        assert len(group.members["a"].streams) == 0


async def test_a_key_outlives_both_that_know_it(tmp_path):
    async with RolledGroup(tmp_path) as group:
        for key in ("one", "two", "three"):
            first, second, other = owners_of("tenant", key, list(NAMES))
            claims = [
                KeyClaim(tenant="tenant", key=key, holder=KeyHolder(stream, DIGEST))
                for stream in ("stream_1", "stream_2")
            ]
            held = await group.members[other].group.keys.claim(claims[0])
            assert held.stream_id == "stream_1"
            for name in (first, second):
                await group.replace(name)
            again = await group.members[other].group.keys.claim(claims[1])
            assert again.stream_id == "stream_1"


async def test_older_members_are_not_told(tmp_path, monkeypatch):
    """Those read no `started_name`: nothing is given, and nothing breaks."""

    async def announce(self: Peer, name: str) -> None:
        await self._ask(self._stub().RenewRecipes, pb.RenewRecipesRequest())

    monkeypatch.setattr(Peer, "announce", announce)
    async with RolledGroup(tmp_path) as group:
        stream_id = await group.begin(is_over=False)
        holder, other = holders_of(stream_id, NAMES)
        await group.replace(holder)
        frames = await read_first(group.members[other], stream_id)
        assert frames == [b"id: %b:0\ndata: %b\n\n" % (stream_id.encode(), USAGE)]
        await group.replace("a")
        with pytest.raises(StreamNotFoundError):
            await read_first(group.members[other], stream_id)
