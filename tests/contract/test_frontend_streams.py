"""The frontend between a real gRPC client and a scripted scheduler: streams, resume, and their
ends."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from contract.frontend_peers import (
    STOP,
    WAIT_SECONDS,
    RunningFrontend,
    ScriptedScheduler,
    eventually,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire_protos.common.v1 import error_pb2, sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.arrays import unpack_u32
from pagewire_shared.errors import ContextLengthError, OverloadedError
from pagewire_shared.rpc.errors import from_rpc_error, to_detail
from support.text_models import make_text_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return make_text_model(tmp_path / "tiny")


def completion(text="hello", *, max_tokens=64, stop=(), n=None, **sampling):
    return pb.CompleteRequest(
        text=text,
        options=pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=max_tokens, **sampling),
            stop=list(stop),
            n=n,
        ),
    )


class Reader:
    """Follows one stream and checks that positions have neither gaps nor doubles."""

    def __init__(self, frontend: RunningFrontend, request, **call):
        self.ids: dict[int, list[int]] = {}
        self.text: dict[int, str] = {}
        self.finished: dict[int, pb.ChoiceFinished] = {}
        self.opened = self.closed = None
        self.logprobs: list[pb.TokenLogprob] = []
        self.call = frontend.stub.Complete(request, **call)
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        async for response in self.call:
            event = response.WhichOneof("event")
            if event == "opened":
                self.opened = response.opened
            elif event == "delta":
                delta = response.delta
                ids = self.ids.setdefault(delta.choice, [])
                assert delta.first_position == len(ids)
                ids.extend(delta.token_ids)
                self.logprobs.extend(delta.logprobs)
                self.text[delta.choice] = self.text.get(delta.choice, "") + delta.text
            elif event == "finished":
                end = response.finished
                self.finished[end.choice] = end
                self.text[end.choice] = self.text.get(end.choice, "") + end.text
            else:
                self.closed = response.closed

    async def end(self):
        await asyncio.wait_for(self.task, WAIT_SECONDS)
        assert self.closed is not None
        return self

    async def error(self):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(self.task, WAIT_SECONDS)
        return caught.value

    async def holds(self, num_tokens: int, choice: int = 0):
        await eventually(
            lambda: len(self.ids.get(choice, [])) >= num_tokens, f"{num_tokens} tokens"
        )


async def test_text_streams_without_ever_splitting_a_character(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        readers = [Reader(frontend, completion()) for _ in range(2)]
        submits = [await attach.next("submit") for _ in readers]
        for submit in submits:
            attach.say(submit, "x")
        seeds = {(await reader.end()).opened.seed for reader in readers}
    assert seeds == {submit.sampling.seed for submit in submits}
    assert len(seeds) == 2


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
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"))
        await reader.holds(2)
        attach.end()
        attach = await scheduler.attached()
        [held] = attach.hello.held
        assert (held.request_id, held.epoch) == (submit.request_id, 0)
        resent = wire.Submit(handle=held.handle, epoch=0)
        attach.tokens(resent, 1, ids_of("bc"))
        attach.finish(resent, 3)
        await reader.end()
    assert reader.text[0] == "abc"
    assert reader.closed.timings.num_resumes == 0


async def test_what_the_scheduler_forgot_is_submitted_again(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint), is_resuming=False)
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        attach.tokens(await attach.next("submit"), 0, ids_of("ab"))
        await reader.holds(2)
        attach.end()
        attach = await scheduler.attached()
        again = await attach.next("submit")
        assert again.epoch == 1
        assert again.handle not in {held.handle for held in attach.hello.held}
        attach.say(again, "abc")
        await reader.end()
    assert reader.text[0] == "abc"


async def test_a_gap_is_not_waited_for(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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


async def test_duplicates_are_dropped(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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
    scheduler = ScriptedScheduler(served(checkpoint), is_resuming=False)
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        full = Reader(frontend, completion(max_tokens=3))
        attach.tokens(await attach.next("submit"), 0, ids_of("abc"))
        stopped = Reader(frontend, completion(stop_token_ids=ids_of("z")))
        attach.tokens(await attach.next("submit"), 0, ids_of("yz"))
        await full.holds(3)
        await stopped.holds(2)
        attach.end()
        await full.end()
        await stopped.end()
        attach = await scheduler.attached()
        assert attach.received.empty() or (await attach.next("heartbeat"))
    assert full.finished[0].reason == sampling_pb2.FINISH_REASON_LENGTH
    assert stopped.finished[0].reason == STOP
    assert stopped.finished[0].stop_token_id == ids_of("z")[0]
    assert stopped.text[0] == "y"


async def test_a_stop_string_across_tokens_cuts_exactly_and_aborts(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
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


async def test_a_deadline_travels_and_ends_the_request(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion(), timeout=0.5)
        submit = await attach.next("submit")
        assert 0 < submit.remaining_ms <= 500
        assert (await reader.error()).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await attach.next("abort")).handle == submit.handle


async def test_the_servers_own_deadline_is_a_typed_error(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], max_request_seconds=0.3) as frontend,
    ):
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        error = await reader.error()
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert from_rpc_error(error).code == "deadline_exceeded"
        assert (await attach.next("abort")).handle == submit.handle


async def test_a_refused_request_fails_with_the_schedulers_reason(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        detail = to_detail(OverloadedError("full"))
        attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
        error = await reader.error()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert from_rpc_error(error) == OverloadedError("full")


async def test_a_resumed_stream_outlives_an_overloaded_scheduler(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint), is_resuming=False)
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        attach.tokens(await attach.next("submit"), 0, ids_of("a"))
        await reader.holds(1)
        attach.end()
        attach = await scheduler.attached()
        again = await attach.next("submit")
        detail = to_detail(OverloadedError("full", retry_after_ms=10))
        attach.send(rejected=wire.Rejected(handle=again.handle, epoch=1, error=detail))
        third = await attach.next("submit")
        assert third.epoch == 2
        attach.say(third, "ab")
        await reader.end()
    assert reader.text[0] == "ab"


async def test_a_known_model_without_a_worker_waits(checkpoint):
    scheduler = ScriptedScheduler(wire.ServedModels())
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        models = (await frontend.stub.ListModels(pb.ListModelsRequest())).models
        assert [(model.name, model.is_ready) for model in models] == [("tiny", False)]
        assert not frontend.status.events[1:]
        attach.send(served_models=served(checkpoint))
        attach.say(await attach.next("submit"), "late")
        await reader.end()
        await frontend.status.wait("ready")
    assert reader.text[0] == "late"


async def test_waiting_for_a_worker_has_an_end(checkpoint):
    scheduler = ScriptedScheduler(wire.ServedModels())
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], max_wait_seconds=0.1) as frontend,
    ):
        error = await Reader(frontend, completion()).error()
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_worker_with_another_tokenizer_is_not_used(checkpoint, tmp_path, caplog):
    other = make_text_model(tmp_path / "other", vocab=300)
    scheduler = ScriptedScheduler(served(other))
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], max_wait_seconds=0.1) as frontend,
    ):
        error = await Reader(frontend, completion()).error()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "tokenizer of tiny is not this frontend's" in caplog.text


async def test_a_silent_scheduler_is_dialled_again(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], silence_seconds=0.5) as frontend,
    ):
        attach = await scheduler.attached()
        reader = Reader(frontend, completion())
        await attach.next("submit")
        second = await scheduler.attached()
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


async def test_an_audit_asks_the_scheduler(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
        call = admin.Audit(admin_pb2.AuditRequest(timeout_ms=2000))
        query = await attach.next("audit_query")
        answer = wire.AuditAnswer(query_id=query.query_id)
        answer.report.generation = 1000
        attach.send(audit_answer=answer)
        reports = (await call).reports
    assert [report.generation for report in reports] == [1000]


async def test_logprobs_pass_through(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        attach = await scheduler.attached()
        reader = Reader(frontend, completion(logprobs=0))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"), logprobs=[-0.5, -1.5])
        attach.finish(submit, 2)
        await reader.end()
    assert [item.logprob for item in reader.logprobs] == [-0.5, -1.5]


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        (completion(""), grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        (completion("x", max_tokens=0), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (completion("x", max_tokens=512), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (completion("x" * 600), grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        (completion("x", temperature=3.0), grpc.StatusCode.INVALID_ARGUMENT, "temperature"),
        (completion("x", stop=[""]), grpc.StatusCode.INVALID_ARGUMENT, "stop"),
        (
            completion("x", presence_penalty=0.5),
            grpc.StatusCode.INVALID_ARGUMENT,
            "presence_penalty",
        ),
        (pb.CompleteRequest(), grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        (pb.CompleteRequest(text="x", model="nope"), grpc.StatusCode.NOT_FOUND, "model"),
        (
            pb.CompleteRequest(token_ids=pb.TokenIds(ids=[99999])),
            grpc.StatusCode.INVALID_ARGUMENT,
            "prompt",
        ),
    ],
)
async def test_bad_requests_name_their_field(checkpoint, request_, code, field):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        await frontend.status.wait("ready")
        error = await Reader(frontend, request_).error()
    assert error.code() is code
    [raw] = [value for key, value in error.trailing_metadata() if key == "pagewire-error-bin"]
    detail = error_pb2.ErrorDetail.FromString(raw)
    assert detail.field == field
    assert detail.message == error.details()


async def test_the_workers_context_replaces_the_configured_one(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint, max_model_len=8))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        await frontend.status.wait("ready")
        error = await Reader(frontend, completion("x" * 8)).error()
        assert isinstance(from_rpc_error(error), ContextLengthError)
        attach = await scheduler.attached()
        request = pb.CompleteRequest(text="xxx")
        reader = Reader(frontend, request)
        submit = await attach.next("submit")
        assert submit.sampling.max_tokens == 5
        attach.say(submit, "y")
        await reader.end()


async def test_tokenize_and_detokenize(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port, running_frontend(checkpoint, [port]) as frontend:
        await frontend.status.wait("ready")
        plain = await frontend.stub.Tokenize(pb.TokenizeRequest(text="aé"))
        assert (list(plain.token_ids), plain.max_model_len) == (ids_of("aé"), 512)
        back = await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=plain.token_ids))
        assert back.text == "aé"
        talk = pb.Conversation(messages=[pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="a")])
        chat = await frontend.stub.Tokenize(pb.TokenizeRequest(conversation=talk))
        text = await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=chat.token_ids))
        assert text.text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
