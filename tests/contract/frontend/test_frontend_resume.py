"""Streams that survive losses: positions stay gap-free, no token lost or doubled."""

import grpc.aio
import pytest
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import (
    STOP,
    ScriptedScheduler,
    attached_frontend,
    eventually,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import OverloadedError
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.rpc.errors import to_detail


async def test_a_new_generation_gets_the_request_again_from_the_next_position(checkpoint):
    first = ScriptedScheduler(served(checkpoint), generation=1000)
    async with listening(first) as port:
        frontend_run = running_frontend(checkpoint, [port])
        frontend = await frontend_run.__aenter__()
        attach = await first.attached()
        assert attach.hello.highest_generation == 0
        assert not attach.hello.HasField("held_generation")
        reader = Reader(frontend, completion(seed=3))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("abc"))
        await reader.holds(3)
    second = ScriptedScheduler(served(checkpoint), generation=2000)
    async with listening(second, port):
        attach = await second.attached()
        assert attach.hello.highest_generation == 1000
        assert attach.hello.held_generation == 1000
        [held] = attach.hello.held
        assert unpack_u32(held.next_positions) == [3]
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (submit.request_id, 1)
        assert again.sampling.seed == 3
        assert unpack_u32(again.emitted[0].token_ids) == ids_of("abc")
        # What the old epoch still says is not believed.
        attach.tokens(again, 3, ids_of("XX"), epoch=0)
        attach.tokens(again, 3, ids_of("de"))
        attach.finish(again, 5)
        await reader.end()
        await frontend_run.__aexit__(None, None, None)
    assert reader.text[0] == "abcde"
    assert reader.closed.timings.num_resumes == 1


async def test_the_same_generation_goes_on_with_the_same_epoch(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        await reader.holds(2)
        attach.end()
        attach = await attach.next_attach()
        [held] = attach.hello.held
        assert (held.request_id, held.epoch) == (submit.request_id, 0)
        resent = wire.Submit(handle=held.handle, epoch=0)
        attach.tokens(resent, 1, ids_of("bc"))
        attach.finish(resent, 3)
        await reader.end()
    assert reader.text[0] == "abc"
    assert reader.closed.timings.num_resumes == 0


async def test_what_the_scheduler_forgot_is_submitted_again(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        reader = Reader(frontend, completion())
        attach.tokens(await attach.next("submit"), 0, ids_of("ab"))
        await reader.holds(2)
        attach.end()
        attach = await attach.next_attach()
        again = await attach.next("submit")
        assert again.epoch == 1
        assert again.handle not in {held.handle for held in attach.hello.held}
        attach.say(again, "abc")
        await reader.end()
    assert reader.text[0] == "abc"


async def test_a_gap_is_not_waited_for(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        attach.tokens(submit, 3, ids_of("d"))
        again = await attach.next("submit")
        assert again.epoch == 1
        assert again.handle != submit.handle
        assert unpack_u32(again.emitted[0].token_ids) == ids_of("ab")
        attach.say(again, "abcd")
        await reader.end()
    assert reader.text[0] == "abcd"


@pytest.mark.parametrize("is_end", [False, True])
async def test_gaps_without_end_fail_the_request(checkpoint, is_end):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        attach.tokens(await attach.next("submit"), 1, ids_of("b"))
        # A new token starts the count anew.
        attach.tokens(await attach.next("submit"), 0, ids_of("a"))
        await reader.holds(1)
        submit = wire.Submit(handle=2, epoch=1)
        for epoch in range(2, 11):
            if is_end:
                attach.finish(submit, 7)
            else:
                attach.tokens(submit, 7, ids_of("z"))
            if epoch < 10:
                submit = await attach.next("submit")
                assert submit.epoch == epoch
        await attach.next("abort")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reader.end()
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "9 times in a row" in str(caught.value.details())
    assert reader.text[0] == "a"


async def test_duplicates_are_dropped(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        attach.tokens(submit, 0, ids_of("ab"))
        attach.tokens(submit, 1, ids_of("bc"))
        attach.finish(submit, 3)
        attach.finish(submit, 3)
        await reader.end()
    assert reader.text[0] == "abc"
    assert reader.ids[0] == ids_of("abc")


async def test_an_end_with_more_tokens_than_held_is_a_gap(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        attach.finish(submit, 3)
        again = await attach.next("submit")
        assert again.epoch == 1
        attach.say(again, "abc")
        await reader.end()
    assert reader.text[0] == "abc"


async def test_an_end_lost_with_its_scheduler_needs_no_scheduler(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        full = Reader(frontend, completion(max_tokens=3))
        attach.tokens(await attach.next("submit"), 0, ids_of("abc"))
        stopped = Reader(frontend, completion(stop_token_ids=ids_of("z")))
        attach.tokens(await attach.next("submit"), 0, ids_of("yz"))
        await full.holds(3)
        await stopped.holds(2)
        attach.end()
        await full.end()
        await stopped.end()
        attach = await attach.next_attach()
        assert not attach.unread()
    assert full.finished[0].reason == sampling_pb2.FINISH_REASON_LENGTH
    assert stopped.finished[0].reason == STOP
    assert stopped.finished[0].stop_token_id == ids_of("z")[0]
    assert stopped.text[0] == "y"


async def test_a_resumed_stream_outlives_an_overloaded_scheduler(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        reader = Reader(frontend, completion())
        attach.tokens(await attach.next("submit"), 0, ids_of("a"))
        await reader.holds(1)
        attach.end()
        attach = await attach.next_attach()
        again = await attach.next("submit")
        detail = to_detail(OverloadedError("full", retry_after_ms=10))
        attach.send(rejected=wire.Rejected(handle=again.handle, epoch=1, error=detail))
        third = await attach.next("submit")
        assert third.epoch == 2
        attach.say(third, "ab")
        await reader.end()
    assert reader.text[0] == "ab"


async def test_a_silent_scheduler_is_dialled_again(checkpoint):
    async with attached_frontend(checkpoint, silence_seconds=3.0) as (frontend, attach):
        reader = Reader(frontend, completion())
        await attach.next("submit")
        second = await attach.next_attach()
        [held] = second.hello.held
        resent = wire.Submit(handle=held.handle, epoch=0)
        second.tokens(resent, 0, ids_of("a"))
        second.finish(resent, 1)
        await reader.end()


async def test_another_scheduler_takes_over_after_the_lease(checkpoint):
    lost = ScriptedScheduler(served(checkpoint), generation=5)
    other = ScriptedScheduler(served(checkpoint), generation=9)
    async with listening(other) as other_port:
        async with listening(lost) as lost_port:
            run = running_frontend(checkpoint, [lost_port, other_port], lease_seconds=0.3)
            frontend = await run.__aenter__()
            first, second = await lost.attached(), await other.attached()
            readers = [Reader(frontend, completion()) for _ in range(2)]
            begun = await first.next("submit")
            kept = await second.next("submit")
            first.tokens(begun, 0, ids_of("ab"))
            await eventually(lambda: any(reader.ids for reader in readers), "first tokens")
        moved = await second.next("submit")
        assert (moved.request_id, moved.epoch) == (begun.request_id, 1)
        second.say(moved, "abc")
        second.say(kept, "xyz")
        texts = sorted([(await reader.end()).text[0] for reader in readers])
        await run.__aexit__(None, None, None)
    assert texts == ["abc", "xyz"]


async def test_another_cell_behind_the_address_is_taken_as_what_it_is(checkpoint):
    """Its scheduler started earlier, which says nothing: cells count apart."""
    blue = ScriptedScheduler(served(checkpoint), generation=2000, cell="blue")
    async with listening(blue) as port:
        frontend_run = running_frontend(checkpoint, [port])
        frontend = await frontend_run.__aenter__()
        attach = await blue.attached()
        reader = Reader(frontend, completion(seed=3))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        await reader.holds(2)
    # The same number by chance: what is held is not of this cell.
    green = ScriptedScheduler(served(checkpoint), generation=1000, cell="green")
    async with listening(green, port):
        attach = await green.attached()
        assert (attach.hello.cell, attach.hello.highest_generation) == ("blue", 2000)
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (submit.request_id, 1)
        attach.tokens(again, 2, ids_of("c"))
        await reader.holds(3)
    older = ScriptedScheduler(served(checkpoint), generation=1999, cell="blue")
    async with listening(older, port):
        attach = await older.attached()
        assert (attach.hello.cell, attach.hello.highest_generation) == ("green", 1000)
        # An older life of a cell that was met: refused, and told what was seen of it.
        attach = await older.attached()
        assert (attach.hello.cell, attach.hello.highest_generation) == ("blue", 2000)
        assert not attach.hello.HasField("held_generation"), "what is held is of the other cell"
        attach.end()
    newer = ScriptedScheduler(served(checkpoint), generation=2001, cell="blue")
    async with listening(newer, port):
        attach = await newer.attached()
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (submit.request_id, 2)
        attach.tokens(again, 3, ids_of("d"))
        attach.finish(again, 4)
        await reader.end()
        await frontend_run.__aexit__(None, None, None)
    assert reader.text[0] == "abcd"
