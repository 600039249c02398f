"""Deadlines, refusals and bad requests over gRPC."""

import grpc.aio
import pytest
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import (
    ScriptedScheduler,
    attached_frontend,
    listening,
    running_frontend,
    served,
)

from pagewire_protos.common.v1 import error_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import ContextLengthError, OverloadedError
from pagewire_shared.rpc.errors import from_rpc_error, to_detail
from support.checkpoints.text_models import make_text_model


async def test_a_deadline_travels_and_ends_the_request(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(), timeout=0.5)
        submit = await attach.next("submit")
        assert 0 < submit.remaining_ms <= 500
        assert (await reader.error()).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await attach.next("abort")).handle == submit.handle


async def test_the_servers_own_deadline_is_a_typed_error(checkpoint):
    async with attached_frontend(checkpoint, max_request_seconds=0.3) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        error = await reader.error()
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert from_rpc_error(error).code == "deadline_exceeded"
        assert (await attach.next("abort")).handle == submit.handle


async def test_a_refused_request_fails_with_the_schedulers_reason(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        detail = to_detail(OverloadedError("full"))
        attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
        error = await reader.error()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert from_rpc_error(error) == OverloadedError("full")


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
            completion("x", presence_penalty=2.5),
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
    async with attached_frontend(checkpoint) as (frontend, _):
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
