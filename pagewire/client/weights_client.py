"""Client of the AdminService: other weights for the workers of a model, from a folder or sent."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from pagewire.client.admin_client import ANSWER_MARGIN_SECONDS, admin_stub, key_metadata
from pagewire.client.topology_client import WorkerFacts, worker_facts
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.weights.convert import update_mode_to_message
from pagewire_shared.weights.version import UpdateMode, check_label, check_path

WAIT_SECONDS: Final = 300.0
LOAD_SECONDS: Final = 4500.0
"""Longest time for the workers to check and load weights, beyond the wait for requests."""

BUCKET_BYTES: Final = 4 * 1024 * 1024
"""Data of one message: more than one small tensor, or a part of a large one."""

_DTYPES: Final = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8"},
    **{"uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"},
}
"""Names of torch and numpy to those of safetensors."""


async def update_weights(
    address: str,
    path: str,
    *,
    version: str = "",
    mode: UpdateMode = UpdateMode.WAIT,
    model: str | None = None,
    timeout_seconds: float = WAIT_SECONDS,
    api_key: str | None = None,
) -> list[WorkerFacts]:
    """Give the workers of a model the weights of a folder; return them once they serve these.

    Args:
        address: gRPC address of a frontend or scheduler.
        path: Folder on the workers' hosts; empty for the model that they were started with.
        version: What answers call the weights; empty for the beginning of their fingerprint.
        mode: What becomes of the requests that have begun.
        model: Served name; None where there is one.
        timeout_seconds: Longest wait for those requests.
        api_key: Key for frontends that require one.

    Raises:
        InvalidRequestError: A field, or weights that do not do; nothing has changed.
        UnavailableError: Requests take too long, or a worker could not load the weights; the old
            ones are served.
    """
    request = _request(version, mode, model, timeout_seconds)
    request.path = check_path(path)
    async with admin_stub(address) as stub:
        response = await stub.UpdateWeights(
            request,
            timeout=timeout_seconds + LOAD_SECONDS + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [worker_facts(one) for one in response.workers]


async def stream_weights(
    address: str,
    tensors: Iterable[tuple[str, Any]],
    *,
    version: str = "",
    mode: UpdateMode = UpdateMode.WAIT,
    model: str | None = None,
    timeout_seconds: float = WAIT_SECONDS,
    api_key: str | None = None,
) -> list[WorkerFacts]:
    """Send tensors to the workers of a model; return them once they serve these.

    Args:
        address: gRPC address of a frontend with --weights-dir.
        tensors: Names of the checkpoint, each with a tensor of torch or an array of numpy; all
            tensors of the model, in any order. They are taken in a thread.
        version, mode, model, timeout_seconds, api_key: As in `update_weights`.

    Raises:
        InvalidRequestError, UnavailableError: As `update_weights`.
    """
    begin = _request(version, mode, model, timeout_seconds)
    async with admin_stub(address) as stub:
        response = await stub.StreamWeights(
            _messages(begin, tensors), metadata=key_metadata(api_key)
        )
    return [worker_facts(one) for one in response.workers]


def _request(
    version: str, mode: UpdateMode, model: str | None, timeout_seconds: float
) -> admin_pb2.UpdateWeightsRequest:
    return admin_pb2.UpdateWeightsRequest(
        version=check_label(version),
        mode=update_mode_to_message(mode),
        model=model,
        timeout_ms=int(timeout_seconds * 1000),
    )


async def _messages(
    begin: admin_pb2.UpdateWeightsRequest, tensors: Iterable[tuple[str, Any]]
) -> AsyncIterator[admin_pb2.StreamWeightsRequest]:
    yield admin_pb2.StreamWeightsRequest(begin=begin)
    iterator, num_tensors = iter(tensors), 0
    heads: list[admin_pb2.TensorHead] = []
    data = b""
    while (item := await asyncio.to_thread(next, iterator, None)) is not None:
        head, content = await asyncio.to_thread(_packed, *item)
        num_tensors += 1
        if heads and len(data) + len(content) > BUCKET_BYTES:
            yield _bucket(heads, data)
            heads, data = [], b""
        heads.append(head)
        data += content[:BUCKET_BYTES]
        for begins in range(BUCKET_BYTES, len(content), BUCKET_BYTES):
            yield _bucket(heads, data)
            heads, data = [], content[begins : begins + BUCKET_BYTES]
        if len(content) > BUCKET_BYTES:
            # The rest of a large tensor: the next one begins a message of its own.
            yield _bucket([], data)
            data = b""
    if heads:
        yield _bucket(heads, data)
    end = admin_pb2.TensorsEnd(num_tensors=num_tensors)
    yield admin_pb2.StreamWeightsRequest(end=end)


def _bucket(heads: list[admin_pb2.TensorHead], data: bytes) -> admin_pb2.StreamWeightsRequest:
    bucket = admin_pb2.TensorBucket(tensors=heads, data=data)
    return admin_pb2.StreamWeightsRequest(bucket=bucket)


def _packed(name: str, tensor: Any) -> tuple[admin_pb2.TensorHead, bytes]:
    """Return a tensor with its bytes. Raises InvalidRequestError for a type that has no name."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in _DTYPES:
        raise InvalidRequestError(f"tensors: {name} has type {kind}", field="tensors")
    head = admin_pb2.TensorHead(name=name, dtype=_DTYPES[kind], shape=tensor.shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return head, flat.view(torch.uint8).numpy().tobytes()
    return head, tensor.tobytes()
