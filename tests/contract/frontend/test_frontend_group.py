"""What frontends of a group ask each other, over real sockets: stored responses are found wherever
they are, and who is gone or silent is said to be."""

import asyncio

import grpc.aio
import pytest
from contract.frontend_peers import WAIT_SECONDS, attached_frontend
from contract.group_members import member, pair

from pagewire_frontend.http.responses.ids import ResponseNotFoundError
from pagewire_protos.frontend.v1 import peer_pb2, peer_pb2_grpc
from pagewire_shared.errors import (
    InvalidRequestError,
    PagewireError,
    StartupError,
    UnavailableError,
)

UNKNOWN = f"resp_00000000_{'0' * 32}"


async def refusal(question) -> PagewireError:
    with pytest.raises(PagewireError) as caught:
        await question
    return caught.value


async def test_every_question_is_passed_on(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        response_id = holder.store(status="in_progress", tenant="t", text="grüß")
        responses = asked.group.responses
        assert (await responses.get(response_id, "t"))["text"] == "grüß"
        assert await responses.input_items(response_id, "t") == [{"text": "é"}]
        assert (await responses.conversation(response_id, "t"))[1] == {"said": response_id}
        assert (await responses.cancel(response_id, "t"))["status"] == "cancelled"
        assert holder.held.bodies[response_id, "t"]["status"] == "cancelled"
        await responses.delete(response_id, "t")
        assert holder.held.bodies == {}


async def test_the_holder_itself_asks_nobody(tmp_path):
    async with member(tmp_path, "a", ["b"]) as alone:
        response_id = alone.store()
        assert (await alone.group.responses.get(response_id, None))["id"] == response_id


@pytest.mark.parametrize("question", ["get", "cancel", "delete", "input_items", "conversation"])
async def test_another_tenant_finds_nothing(tmp_path, question):
    async with pair(tmp_path) as (asked, holder):
        ask = getattr(asked.group.responses, question)
        for tenant, others in (("t", ("u", None, "")), (None, ("",)), ("", (None,))):
            response_id = holder.store(tenant=tenant)
            for other in others:
                error = await refusal(ask(response_id, other))
                assert isinstance(error, ResponseNotFoundError)
                assert (error.status_name, error.code) == ("NOT_FOUND", "response_not_found")
        assert len(holder.held.bodies) == 3


async def test_the_holders_refusal_arrives_whole(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        error = await refusal(asked.group.responses.cancel(holder.store(), None))
        assert isinstance(error, InvalidRequestError)
        assert (error.field, error.code) == ("response_id", "too_late")
        assert error.message == "not in the background"


async def test_a_tag_that_nobody_has_is_gone(tmp_path):
    async with pair(tmp_path) as (asked, _):
        error = await refusal(asked.group.responses.get(UNKNOWN, None))
        assert error.status_name == "NOT_FOUND"
        assert "is gone with the frontend process that held it" in error.message
        assert len((await refusal(asked.group.responses.get("x" * 10000, None))).message) < 200


async def test_what_a_process_held_before_it_was_started_again_is_gone(tmp_path):
    async with member(tmp_path, "a", ["b"]) as asked:
        async with member(tmp_path, "b", ["a"]) as first:
            response_id = first.store()
            assert await asked.group.responses.get(response_id, None)
        error = await refusal(asked.group.responses.get(response_id, None))
        assert isinstance(error, UnavailableError)
        assert "frontend b" in error.message
        async with member(tmp_path, "b", ["a"]) as again:
            kept = again.store()
            for responses in (asked.group.responses, again.group.responses):
                async with asyncio.timeout(WAIT_SECONDS):
                    # The connection comes back after a moment.
                    while isinstance(
                        error := await refusal(responses.get(response_id, None)), UnavailableError
                    ):
                        await asyncio.sleep(0.05)
                assert "is gone with the frontend" in error.message
                assert (await responses.get(kept, None))["id"] == kept


async def test_a_peer_that_never_was_there_is_no_obstacle(tmp_path):
    async with member(tmp_path, "a", ["b"]) as asked:
        async with member(tmp_path, "c", ["b"]) as other:
            response_id = other.store().replace(other.membership.tag, asked.membership.tag)
            asked.held.bodies[response_id, None] = {"id": response_id}
            assert await asked.group.responses.get(response_id, None)
        assert "pagewire_frontend_processes_missing 1.0" in await asked.group.metrics.exposition()


async def test_a_silent_peer_is_away_after_its_time(tmp_path):
    async with pair(tmp_path, seconds=0.3) as (asked, holder):
        response_id = holder.store()
        holder.held.hang = True
        async with asyncio.timeout(WAIT_SECONDS):
            for question in (
                asked.group.responses.get(response_id, None),
                asked.group.responses.events(response_id, None, 0),
            ):
                error = await refusal(question)
                assert (error.status_name, error.code) == ("UNAVAILABLE", "unavailable")


async def test_events_come_from_the_one_that_is_wanted(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        events = (await asked.group.responses.events(holder.store(), None, 1)).frames
        assert [frame async for batch in events for frame in batch] == [b"event 1", b"event 2"]


async def test_a_refusal_of_events_comes_before_the_stream(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        response_id = holder.store().replace("_000", "_fff")
        error = await refusal(asked.group.responses.events(response_id, None, 0))
        assert error.code == "response_not_found"


async def test_a_reader_of_events_that_leaves_ends_them_at_the_holder(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        response_id = holder.store(status="in_progress")
        events = await asked.group.responses.events(response_id, None, 0)
        assert await anext(events.frames) == [b"event 0"]
        events.close()
        ended = await asyncio.wait_for(holder.held.ended_streams.get(), WAIT_SECONDS)
        assert ended == response_id


async def test_many_events_at_once_fit_into_messages(tmp_path):
    async with pair(tmp_path) as (asked, holder):
        response_id = holder.store()
        large = [b"%d" % number * 400_000 for number in range(9)] * 6

        async def all_at_once(body, first):
            yield large

        holder.held._frames = all_at_once
        events = (await asked.group.responses.events(response_id, None, 0)).frames
        assert [frame async for batch in events for frame in batch] == large


async def test_a_taken_private_address_is_refused(tmp_path):
    async with member(tmp_path, "a", []):
        with pytest.raises(StartupError, match="--peer-listen"):
            async with member(tmp_path, "a", []):
                pass


async def test_the_public_port_answers_no_peer(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, _):
        stub = peer_pb2_grpc.PeerServiceStub(frontend.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetMetrics(peer_pb2.GetMetricsRequest(), timeout=WAIT_SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
