"""Client of the AdminService: profiles of workers, stacks of all processes, calls of extensions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pagewire.client.admin_client import ANSWER_MARGIN_SECONDS, admin_stub, key_metadata
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.inspection.stacks import ProcessPlaces
from pagewire_shared.inspection.stacks_convert import stacks_from_message

PROFILE_SECONDS: Final = 60.0
STACKS_SECONDS: Final = 2.0
CALL_SECONDS: Final = 60.0
_START_SECONDS: Final = 20.0
_MARGIN_SECONDS: Final = 30.0


async def start_profile(
    address: str,
    *,
    worker: str | None = None,
    model: str | None = None,
    num_steps: int | None = None,
    timeout_seconds: float = PROFILE_SECONDS,
    api_key: str | None = None,
) -> list[str]:
    """Begin to profile workers; return their ids in hex.

    Args:
        address: gRPC address of a frontend or scheduler.
        worker: Id of one worker in hex, or its beginning; None for all.
        model: Served name; None for all.
        num_steps: Steps with work after which a profile ends; None for the most that may be.
        timeout_seconds: Time after which it ends with what it has.
        api_key: Key for frontends that require one.

    Raises:
        OverloadedError: A worker is being profiled.
    """
    request = admin_pb2.StartProfileRequest(
        worker=worker, model=model, num_steps=num_steps, timeout_ms=int(timeout_seconds * 1000)
    )
    async with admin_stub(address) as stub:
        response = await stub.StartProfile(
            request,
            timeout=_START_SECONDS + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return list(response.workers)


async def read_profile(
    address: str, worker: str, *, ends_profile: bool = False, api_key: str | None = None
) -> bytes:
    """Wait until the profile of a worker has ended, and return its trace: JSON in Chrome's format,
    as gzip, of at most 64 MiB.

    Args:
        worker: Its id in hex, or the beginning of it.
        ends_profile: End a profile that runs.
    """
    request = admin_pb2.ReadProfileRequest(worker=worker, ends_profile=ends_profile)
    trace = bytearray()
    async with admin_stub(address) as stub:
        async for piece in stub.ReadProfile(request, metadata=key_metadata(api_key)):
            trace += piece.data
    return bytes(trace)


async def stacks(
    address: str,
    target: str | None = None,
    *,
    timeout_seconds: float = STACKS_SECONDS,
    api_key: str | None = None,
) -> list[ProcessPlaces]:
    """Return where the code of the processes of a deployment is.

    Args:
        target: A role, or the beginning of a process's name; None for all.
        timeout_seconds: Longest time for the processes to answer.
    """
    request = admin_pb2.StacksRequest(target=target, timeout_ms=int(timeout_seconds * 1000))
    async with admin_stub(address) as stub:
        response = await stub.Stacks(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [stacks_from_message(process) for process in response.processes]


async def collective_rpc(
    address: str,
    method: str,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout_seconds: float | None = None,
    worker: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
) -> dict[str, list[Any]]:
    """Call a method of the extension in all ranks of workers; return the results by rank, of each
    worker by its id in hex.

    Args:
        method: Name of a public method of the class of --worker-extension-cls.
        args, kwargs: Values of JSON.
        timeout_seconds: A rank that takes longer is lost; None for 60 seconds.
        worker: Id of one worker in hex, or its beginning; None for all.
        model: Served name; None for all.

    Raises:
        InvalidRequestError: A field, or a worker without such a method.
        InternalError: The method raised in a rank, which is named.
    """
    seconds = CALL_SECONDS if timeout_seconds is None else timeout_seconds
    request = admin_pb2.CollectiveRpcRequest(
        method=method_name(method),
        args_json=_json("args", list(args)),
        kwargs_json=_json("kwargs", dict(kwargs or {})),
        timeout_ms=int(seconds * 1000),
        worker=worker,
        model=model,
    )
    async with admin_stub(address) as stub:
        response = await stub.CollectiveRpc(
            request, timeout=seconds + _MARGIN_SECONDS, metadata=key_metadata(api_key)
        )
    return {one.worker: [json.loads(text) for text in one.results_json] for one in response.workers}


def method_name(method: object) -> str:
    """Return the name of a method. Raises InvalidRequestError for a function."""
    if not isinstance(method, str):
        raise InvalidRequestError(
            "method must be a name: no code is sent to workers; put the function into the class of"
            " --worker-extension-cls",
            field="method",
        )
    return method


def _json(name: str, value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{name}: {error}", field=name) from None
