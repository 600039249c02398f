"""Calls of operators to workers: checks of fields, pieces of a trace, and readers that go away."""

import asyncio
import contextlib
from typing import Any

import pytest

from pagewire_protos.common.v1 import worker_query_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import InternalError, InvalidRequestError, OverloadedError
from pagewire_shared.inspection.worker_calls_service import MAX_CALL_BYTES, WorkerCalls
from pagewire_shared.rpc.errors import to_detail

TRACE = bytes(range(256)) * 10


class Worker:
    """Answers with pieces of TRACE, after one answer that it is not there yet."""

    def __init__(self, name: str = "ab" * 16, piece: int = 1000) -> None:
        self.name = name
        self.queries: list[pb.WorkerQuery] = []
        self.error: Exception | None = None
        self._piece = piece
        self._is_ready = False

    async def ask(self, query: pb.WorkerQuery, seconds: float) -> pb.WorkerAnswer:
        asked = pb.WorkerQuery()
        asked.CopyFrom(query)
        self.queries.append(asked)
        if self.error is not None:
            return pb.WorkerAnswer(error=to_detail(self.error))
        kind = query.WhichOneof("query")
        if kind == "start_profile":
            return pb.WorkerAnswer(profile_started=pb.WorkerProfileStarted(profile_id=7))
        if kind == "call":
            results = pb.WorkerExtensionResults(results_json=["1", "2"])
            return pb.WorkerAnswer(results=results)
        part = pb.WorkerProfilePart(profile_id=7, is_pending=not self._is_ready)
        if self._is_ready:
            offset = query.read_profile.offset
            part.data, part.num_bytes = TRACE[offset : offset + self._piece], len(TRACE)
        self._is_ready = True
        return pb.WorkerAnswer(profile_part=part)


def calls_of(*workers: Worker) -> WorkerCalls:
    async def choose(worker: str | None, model: str | None) -> list[Any]:
        return list(workers)

    return WorkerCalls(choose)


async def test_a_trace_comes_in_pieces():
    worker = Worker()
    calls = calls_of(worker)
    request = admin_pb2.ReadProfileRequest(worker="ab", ends_profile=True)
    pieces = [piece.data async for piece in calls.read_profile(request)]
    assert b"".join(pieces) == TRACE
    assert len(pieces) == 3
    reads = [query.read_profile for query in worker.queries]
    assert [(one.profile_id, one.offset) for one in reads] == [(0, 0), (7, 0), (7, 1000), (7, 2000)]
    assert all(one.ends_profile for one in reads)


async def test_a_reader_that_goes_away_ends_its_profile():
    worker = Worker()
    calls = calls_of(worker)
    request = admin_pb2.ReadProfileRequest(worker="ab")
    async with contextlib.aclosing(calls.read_profile(request)) as pieces:
        await anext(pieces)
    await asyncio.sleep(0)
    dropped = worker.queries[-1].read_profile
    assert (dropped.is_dropped, dropped.profile_id) == (True, 7)


async def test_an_error_names_the_worker():
    worker = Worker()
    worker.error = OverloadedError("it is being profiled")
    with pytest.raises(OverloadedError, match="worker abababab: it is being profiled"):
        await calls_of(worker).start_profile(admin_pb2.StartProfileRequest())


async def test_profiles_have_bounds():
    worker = Worker()
    calls = calls_of(worker)
    for fields, field in (
        ({"num_steps": 0}, "num_steps"),
        ({"num_steps": 1001}, "num_steps"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": 600_001}, "timeout_ms"),
    ):
        with pytest.raises(InvalidRequestError, match=field) as refused:
            await calls.start_profile(admin_pb2.StartProfileRequest(**fields))
        assert refused.value.field == field
    assert worker.queries == []
    answer = await calls.start_profile(admin_pb2.StartProfileRequest())
    assert list(answer.workers) == [worker.name]
    start = worker.queries[0].start_profile
    assert (start.num_steps, start.timeout_ms) == (1000, 60_000)
    with pytest.raises(InvalidRequestError, match="worker must be named"):
        await anext(calls.read_profile(admin_pb2.ReadProfileRequest()))


async def test_a_call_is_checked_before_a_worker_is_asked():
    worker = Worker()
    calls = calls_of(worker)
    for fields, field in (
        ({"method": "_hidden"}, "method"),
        ({"method": "os.system"}, "method"),
        ({"method": "m", "args_json": "{}"}, "args_json"),
        ({"method": "m", "args_json": "[1"}, "args_json"),
        ({"method": "m", "kwargs_json": "[]"}, "kwargs_json"),
        ({"method": "m", "args_json": '["' + "x" * MAX_CALL_BYTES + '"]'}, "args_json"),
        ({"method": "m", "timeout_ms": 600_001}, "timeout_ms"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            await calls.collective_rpc(admin_pb2.CollectiveRpcRequest(**fields))
        assert refused.value.field == field
    assert worker.queries == []


async def test_results_are_by_worker_and_rank():
    first, second = Worker("aa"), Worker("bb")
    calls = calls_of(first, second)
    request = admin_pb2.CollectiveRpcRequest(method="m", unique_reply_rank=0)
    answer = await calls.collective_rpc(request)
    assert [(one.worker, list(one.results_json)) for one in answer.workers] == [
        ("aa", ["1", "2"]),
        ("bb", ["1", "2"]),
    ]
    call = first.queries[0].call
    assert (call.args_json, call.kwargs_json, call.timeout_ms) == ("[]", "{}", 60_000)
    assert call.HasField("unique_reply_rank")
    second.error = InternalError("rank 1: m: ValueError: no")
    with pytest.raises(InternalError, match="worker bb: rank 1: m: ValueError: no"):
        await calls.collective_rpc(request)
    # The other one was asked all the same.
    assert len(first.queries) == 2
