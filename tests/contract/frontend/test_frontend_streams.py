"""The frontend between a gRPC client and a scripted scheduler: text, choices and their ends."""

import asyncio

import pytest
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import (
    ScriptedScheduler,
    attached_frontend,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire.client.admin_client import reset_prefix_cache
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import ModelNotFoundError
from pagewire_shared.kv.arrays import unpack_u32


async def test_text_streams_without_ever_splitting_a_character(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion("hi", seed=7))
        submit = await attach.next("submit")
        assert unpack_u32(submit.prompt_token_ids) == ids_of("hi")
        assert (submit.epoch, submit.model, submit.sampling.seed) == (0, "tiny", 7)
        ids = ids_of("a€b")
        attach.tokens(submit, 0, ids[:2], num_cached=1)
        await reader.holds(2)
        assert reader.text[0] == "a"
        attach.tokens(submit, 2, ids[2:])
        attach.finish(submit, len(ids))
        await reader.end()
    assert reader.text[0] == "a€b"
    assert reader.ids[0] == ids
    assert list(reader.opened.prompt_token_ids) == ids_of("hi")
    assert reader.closed.usage == pb.Usage(
        prompt_tokens=2, completion_tokens=len(ids), cached_tokens=1
    )


async def test_a_seed_is_drawn_and_told(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        readers = [Reader(frontend, completion()) for _ in range(2)]
        submits = [await attach.next("submit") for _ in readers]
        for submit in submits:
            attach.say(submit, "x")
        seeds = {(await reader.end()).opened.seed for reader in readers}
    assert seeds == {submit.sampling.seed for submit in submits}
    assert len(seeds) == 2


async def test_a_stop_string_across_tokens_cuts_exactly_and_aborts(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(stop=["END"]))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("oneE"))
        attach.tokens(submit, 4, ids_of("NDtwo"))
        abort = await attach.next("abort")
        assert (abort.handle, abort.choice) == (submit.handle, 0)
        await reader.end()
    assert reader.text[0] == "one"
    assert reader.finished[0].stop_string == "END"
    assert reader.ids[0] == ids_of("oneEND")
    assert reader.closed.usage.completion_tokens == 6


async def test_one_choice_stops_while_the_other_goes_on(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(n=2, stop=["!"]))
        submit = await attach.next("submit")
        assert len(submit.emitted) == 2
        attach.tokens(submit, 0, ids_of("a!"), choice=1)
        assert (await attach.next("abort")).choice == 1
        # The scheduler's notice of that abort is no failure of the request.
        aborted = wire.FinishedChoice(
            handle=submit.handle,
            choice=1,
            num_tokens=2,
            reason=sampling_pb2.FINISH_REASON_ABORTED,
        )
        attach.send(finished=wire.FinishedChoices(choices=[aborted]))
        attach.say(submit, "whole")
        await reader.end()
    assert reader.text == {0: "whole", 1: "a"}


async def test_cancelling_a_call_aborts_at_once(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("a"))
        await reader.holds(1)
        reader.call.cancel()
        abort = await attach.next("abort")
        assert abort.handle == submit.handle
        assert not abort.HasField("choice")
        attach.send(audit_query=wire.AuditQuery(query_id=5))
        reply = await attach.next("audit_reply")
        assert reply.query_id == 5
        assert (reply.audit.num_open_streams, reply.audit.num_handles) == (0, 0)
        assert not reply.audit.findings
        with pytest.raises(asyncio.CancelledError):
            await reader.task


async def test_an_audit_asks_the_scheduler(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
        call = admin.Audit(admin_pb2.AuditRequest(timeout_ms=2000))
        query = await attach.next("audit_query")
        answer = wire.AuditAnswer(query_id=query.query_id)
        answer.report.generation = 1000
        attach.send(audit_answer=answer)
        reports = (await call).reports
    assert [report.generation for report in reports] == [1000]


async def test_a_reset_asks_the_scheduler(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        for model in ("tiny", None):
            call = asyncio.create_task(reset_prefix_cache(frontend.address, model=model))
            query = await attach.next("reset_prefix_cache")
            assert (query.model if query.HasField("model") else None) == model
            answer = wire.ResetPrefixCacheAnswer(query_id=query.query_id, num_blocks=12)
            attach.send(prefix_cache_reset=answer)
            assert await call == 12
        with pytest.raises(ModelNotFoundError) as caught:
            await reset_prefix_cache(frontend.address, model="nope")
        assert caught.value.field == "model"


async def test_a_reset_of_a_model_without_workers_is_refused(checkpoint):
    none_left = served(checkpoint)
    none_left.models[0].num_workers = 0
    scheduler = ScriptedScheduler(none_left)
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        await scheduler.attached()
        with pytest.raises(ModelNotFoundError, match="no worker serves 'tiny'"):
            await reset_prefix_cache(frontend.address, model="tiny")


async def test_logprobs_pass_through(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(logprobs=0))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"), logprobs=[-0.5, -1.5])
        attach.finish(submit, 2)
        await reader.end()
    assert [item.logprob for item in reader.logprobs] == [-0.5, -1.5]


async def test_tokenize_and_detokenize(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, _):
        await frontend.status.wait("ready")
        plain = await frontend.stub.Tokenize(pb.TokenizeRequest(text="aé"))
        assert (list(plain.token_ids), plain.max_model_len) == (ids_of("aé"), 512)
        back = await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=plain.token_ids))
        assert back.text == "aé"
        talk = pb.Conversation(messages=[pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="a")])
        chat = await frontend.stub.Tokenize(pb.TokenizeRequest(conversation=talk))
        text = await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=chat.token_ids))
        assert text.text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
