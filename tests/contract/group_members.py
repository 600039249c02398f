"""Members of a group of frontends on real sockets: stored responses scripted, no model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from contract.frontend_peers import WAIT_SECONDS

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.group.group import Group, joined
from pagewire_frontend.group.membership import Membership, parse_membership
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.responses.ids import not_found, tag_of
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_frontend.traces.history import RequestHistory
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc.address import parse_address


@dataclass
class ScriptedResponses:
    """Holds responses by (id, tenant); `hang` makes it silent."""

    tag: str = ""
    bodies: dict[tuple[str, str | None], Body] = field(default_factory=dict)
    hang: bool = False
    ended_streams: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)

    async def _find(self, response_id: str, tenant: str | None) -> Body:
        if self.hang:
            await asyncio.sleep(10 * WAIT_SECONDS)
        if (response_id, tenant) not in self.bodies:
            raise not_found(response_id)
        return self.bodies[response_id, tenant]

    def has(self, response_id: str) -> bool:
        return tag_of(response_id) in (None, self.tag) or any(
            response_id == one for one, _ in self.bodies
        )

    async def get(self, response_id: str, tenant: str | None) -> Body:
        return await self._find(response_id, tenant)

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        body = await self._find(response_id, tenant)
        if body["status"] != "in_progress":
            raise InvalidRequestError("not in the background", field="response_id", code="too_late")
        body["status"] = "cancelled"
        return body

    async def delete(self, response_id: str, tenant: str | None) -> None:
        await self._find(response_id, tenant)
        del self.bodies[response_id, tenant]

    async def input_items(self, response_id: str, tenant: str | None) -> list[Body]:
        body = await self._find(response_id, tenant)
        return list(body["input"])

    async def conversation(self, response_id: str, tenant: str | None) -> list[Body]:
        body = await self._find(response_id, tenant)
        return [*body["input"], {"said": body["id"]}]

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        body = await self._find(response_id, tenant)
        return StreamReading(self._frames(body, first), lambda: None)

    async def _frames(self, body: Body, first: int) -> AsyncIterator[list[bytes]]:
        try:
            for number in range(first, body["num_events"]):
                yield [b"event %d" % number]
            if body["status"] == "in_progress":
                await asyncio.sleep(10 * WAIT_SECONDS)
        finally:
            self.ended_streams.put_nowait(body["id"])


@dataclass
class Member:
    """One process of a group, as its own parts see it."""

    membership: Membership
    held: ScriptedResponses
    group: Group
    streams: LocalStreams

    def store(
        self, *, tenant: str | None = None, status: str = "completed", **fields: object
    ) -> str:
        """Keep a response; return its id."""
        response_id = f"resp_{self.membership.tag}_{len(self.held.bodies):032x}"
        body = {"id": response_id, "status": status, "input": [{"text": "é"}], "num_events": 3}
        self.held.bodies[response_id, tenant] = {**body, **fields}
        return response_id


@asynccontextmanager
async def member(folder, name: str, peers: list[str], *, seconds: float = 5.0):
    """Yield a member called `name` whose peers are `peers`; all have sockets in `folder`."""
    given = [f"{peer}=unix:{folder}/{peer}.sock" for peer in peers]
    membership = parse_membership(name, given)
    held = ScriptedResponses(membership.tag)
    listen = parse_address(f"unix:{folder}/{name}.sock", setting="--peer-listen")
    adapters = AdapterRegistry(None, models=["tiny"], taken_names=["tiny"])
    limits = JournalLimits(retention_seconds=60.0, max_bytes=2**20)
    streams = LocalStreams(membership.tag, limits)
    parts = joined(
        membership,
        held,
        streams,
        adapters,
        history=RequestHistory(),
        listen=listen,
        peer_seconds=seconds,
    )
    async with parts as group:
        yield Member(membership, held, group, streams)
    streams.close()


@asynccontextmanager
async def pair(folder, **settings):
    """Yield two members that know each other."""
    async with (
        member(folder, "a", ["b"], **settings) as first,
        member(folder, "b", ["a"], **settings) as second,
    ):
        yield first, second
