"""Serves the calls of operators that one worker after the other answers: profiles, and calls of
extensions. Frontends and schedulers serve them alike; each brings its own way to ask a worker."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pagewire_protos.common.v1 import worker_query_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import InternalError, InvalidRequestError, PagewireError
from pagewire_shared.identity.ids import SHOWN_DIGITS
from pagewire_shared.rpc.errors import from_detail

MAX_STEPS: Final = 1000
DEFAULT_PROFILE_SECONDS: Final = 60.0
MAX_SECONDS: Final = 600.0
DEFAULT_CALL_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 15.0
"""Time for an answer that takes the worker no time but that of a step under way."""
MAX_CALL_BYTES: Final = 256 * 1024
"""Of the arguments of a call, as JSON."""


class AskedWorker(Protocol):
    """A worker that can be asked."""

    @property
    def name(self) -> str:
        """Its id in hex."""
        ...

    def ask(self, query: pb.WorkerQuery, seconds: float) -> Awaitable[pb.WorkerAnswer]:
        """Return its answer. Raises UnavailableError without one."""
        ...


Choose = Callable[[str | None, str | None], Awaitable[list[Any]]]
"""From a worker, or the beginning of its id, and a model to the AskedWorkers that are meant."""


@dataclass(frozen=True, slots=True)
class _Answered:
    worker: AskedWorker
    answer: pb.WorkerAnswer


class WorkerCalls:
    """Asks workers on behalf of operators. Every method raises what `choose` raises."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._drops: set[asyncio.Task[None]] = set()

    async def start_profile(
        self, request: admin_pb2.StartProfileRequest
    ) -> admin_pb2.StartProfileResponse:
        """Begin to profile workers.

        Raises:
            InvalidRequestError: A field, or a worker that sleeps.
            OverloadedError: A worker is being profiled.
        """
        steps = request.num_steps if request.HasField("num_steps") else MAX_STEPS
        if not 1 <= steps <= MAX_STEPS:
            raise InvalidRequestError(
                f"num_steps must be between 1 and {MAX_STEPS}", field="num_steps"
            )
        seconds = _seconds(request, DEFAULT_PROFILE_SECONDS)
        start = pb.StartWorkerProfile(num_steps=steps, timeout_ms=int(seconds * 1000))
        workers = await self._chosen(request)
        found = await _ask_all(workers, pb.WorkerQuery(start_profile=start), ANSWER_SECONDS)
        return admin_pb2.StartProfileResponse(workers=[one.worker.name for one in found])

    async def read_profile(
        self, request: admin_pb2.ReadProfileRequest
    ) -> AsyncGenerator[admin_pb2.ReadProfileResponse, None]:
        """Yield the trace of a worker, once its profile has ended."""
        if not request.worker:
            raise InvalidRequestError("worker must be named", field="worker")
        (worker,) = await self._choose(request.worker, None)
        read = pb.ReadWorkerProfile(ends_profile=request.ends_profile)
        is_whole = False
        try:
            while not is_whole:
                answer = await _ask(worker, pb.WorkerQuery(read_profile=read), ANSWER_SECONDS)
                part = answer.profile_part
                read.profile_id = part.profile_id
                if part.is_pending:
                    continue
                read.offset += len(part.data)
                is_whole = read.offset >= part.num_bytes
                if not part.data and not is_whole:
                    raise InternalError("a worker sends an empty piece of its trace")
                yield admin_pb2.ReadProfileResponse(data=part.data)
        finally:
            if not is_whole:
                self._drop(worker, read)

    async def collective_rpc(
        self, request: admin_pb2.CollectiveRpcRequest
    ) -> admin_pb2.CollectiveRpcResponse:
        """Call a method of the extensions of workers.

        Raises:
            InvalidRequestError: A field, or a worker without such a method.
            InternalError: The method raised in a rank.
        """
        if not request.method.isidentifier() or request.method.startswith("_"):
            raise InvalidRequestError(
                "method must be the name of a public method of --worker-extension-cls",
                field="method",
            )
        seconds = _seconds(request, DEFAULT_CALL_SECONDS)
        call = pb.CallWorkerExtension(
            method=request.method,
            args_json=_json(request.args_json or "[]", "args_json", list),
            kwargs_json=_json(request.kwargs_json or "{}", "kwargs_json", dict),
            timeout_ms=int(seconds * 1000),
        )
        if len(call.args_json) + len(call.kwargs_json) > MAX_CALL_BYTES:
            raise InvalidRequestError(
                f"args_json and kwargs_json have more than {MAX_CALL_BYTES} bytes",
                field="args_json",
            )
        if request.HasField("unique_reply_rank"):
            call.unique_reply_rank = request.unique_reply_rank
        workers = await self._chosen(request)
        found = await _ask_all(workers, pb.WorkerQuery(call=call), seconds + ANSWER_SECONDS)
        return admin_pb2.CollectiveRpcResponse(
            workers=[
                admin_pb2.WorkerResults(
                    worker=one.worker.name, results_json=one.answer.results.results_json
                )
                for one in found
            ]
        )

    async def _chosen(
        self, request: admin_pb2.StartProfileRequest | admin_pb2.CollectiveRpcRequest
    ) -> list[AskedWorker]:
        worker = request.worker if request.HasField("worker") else None
        return await self._choose(worker, request.model if request.HasField("model") else None)

    def _drop(self, worker: AskedWorker, read: pb.ReadWorkerProfile) -> None:
        """Have a worker end and forget a profile whose reader has gone."""
        query = pb.WorkerQuery(
            read_profile=pb.ReadWorkerProfile(profile_id=read.profile_id, is_dropped=True)
        )

        async def drop() -> None:
            # Without an answer it ends by itself, and is forgotten after a time.
            with contextlib.suppress(PagewireError):
                await worker.ask(query, ANSWER_SECONDS)

        task = asyncio.get_running_loop().create_task(drop())
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)


async def _ask(worker: AskedWorker, query: pb.WorkerQuery, seconds: float) -> pb.WorkerAnswer:
    """Return the answer of a worker. Raises its error, which names the worker."""
    answer = await worker.ask(query, seconds)
    if answer.HasField("error"):
        error = from_detail(answer.error)
        error.message = f"worker {worker.name[:SHOWN_DIGITS]}: {error.message}"
        raise error
    return answer


async def _ask_all(
    workers: list[AskedWorker], query: pb.WorkerQuery, seconds: float
) -> list[_Answered]:
    """Return the answers of all workers; the others answer to their end if one raises."""
    asked = (_ask(one, query, seconds) for one in workers)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    found = []
    for worker, answer in zip(workers, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        found.append(_Answered(worker, answer))
    return found


def _seconds(
    request: admin_pb2.StartProfileRequest | admin_pb2.CollectiveRpcRequest, default: float
) -> float:
    if not request.HasField("timeout_ms"):
        return default
    if not 1 <= request.timeout_ms <= MAX_SECONDS * 1000:
        raise InvalidRequestError(
            f"timeout_ms must be between 1 and {MAX_SECONDS * 1000:g}", field="timeout_ms"
        )
    return request.timeout_ms / 1000


def _json(text: str, field: str, kind: type) -> str:
    """Return a JSON value that is a `kind`. Raises InvalidRequestError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{field} is not JSON: {error}", field=field) from None
    if not isinstance(value, kind):
        name = "an array" if kind is list else "an object"
        raise InvalidRequestError(f"{field} must be {name} of JSON", field=field)
    return text
