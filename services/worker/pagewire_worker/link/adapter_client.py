"""Fetches the content of an adapter from a process that has it."""

import asyncio
from collections.abc import AsyncIterable
from typing import Final

import grpc
import grpc.aio

from pagewire_protos.worker.v1 import adapter_content_pb2 as wire
from pagewire_protos.worker.v1 import adapter_content_pb2_grpc
from pagewire_shared.adapters.adapter_config import MAX_CONFIG_BYTES
from pagewire_shared.adapters.adapter_folder import AdapterContent
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import DeadlineError, WireError
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import kv_channel_options

STALL_BYTES: Final = 1 << 18
"""Bytes that count as progress."""


class IncomingFiles:
    """The files of one adapter, as they arrive. Nothing is kept beyond the bounds."""

    def __init__(self, bounds: AdapterBounds) -> None:
        self._limits = {CONFIG_NAME: MAX_CONFIG_BYTES, WEIGHTS_NAME: bounds.max_bytes}
        self._files: dict[str, bytearray] = {}
        self._sizes: dict[str, int] = {}
        self._name = ""

    def take(self, message: wire.FetchAdapterResponse) -> None:
        """Take one message. Raises WireError when it breaks the contract."""
        if message.HasField("file"):
            self._begin(message.file)
            return
        if not self._name:
            raise WireError("data: it comes before a file", field="data")
        file = self._files[self._name]
        if len(file) + len(message.data) > self._sizes[self._name]:
            raise WireError(f"data: more than the size of {self._name}", field="data")
        file += message.data

    def content(self) -> AdapterContent:
        """Return both files. Raises WireError when one is not whole."""
        for name in self._limits:
            if len(self._files.get(name, b"")) != self._sizes.get(name):
                raise WireError(f"file: {name} is not whole", field="file")
        config, weights = (bytes(self._files.pop(name)) for name in self._limits)
        return AdapterContent(config, weights)

    def _begin(self, file: wire.AdapterFile) -> None:
        limit = self._limits.get(file.name)
        if limit is None or file.name in self._files:
            raise WireError(f"file: {file.name[:100]!r} is not expected", field="file")
        if file.num_bytes > limit:
            raise WireError(
                f"file: {file.num_bytes} bytes of {file.name} are more than {limit}", field="file"
            )
        self._name = file.name
        self._files[file.name], self._sizes[file.name] = bytearray(), file.num_bytes


async def fetch_adapter(
    address: str, adapter_id: bytes, bounds: AdapterBounds, stall_seconds: float | None = None
) -> AdapterContent:
    """Return the content of an adapter that the server at `address` has.

    Args:
        stall_seconds: Longest time in which it may send less than STALL_BYTES; None for any.

    Raises:
        PagewireError: The server cannot be reached, has no such adapter, stalls, or broke the
            contract.
    """
    where = parse_address(address, setting="sources")
    # From any role: the content is checked by its hash.
    async with open_channel(where, None, kv_channel_options()) as channel:
        stub = adapter_content_pb2_grpc.AdapterContentServiceStub(channel)
        call = stub.FetchAdapter(wire.FetchAdapterRequest(adapter_id=adapter_id))
        try:
            async with asyncio.timeout(stall_seconds) as limit:
                return await _read(call, IncomingFiles(bounds), limit, stall_seconds)
        except TimeoutError as error:
            raise DeadlineError(f"it sent next to nothing for {stall_seconds:g} s") from error
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()


async def _read(
    call: AsyncIterable[wire.FetchAdapterResponse],
    incoming: IncomingFiles,
    limit: asyncio.Timeout,
    stall_seconds: float | None,
) -> AdapterContent:
    num_bytes = 0
    async for message in call:
        incoming.take(message)
        num_bytes += len(message.data)
        if stall_seconds is not None and num_bytes >= STALL_BYTES:
            num_bytes = 0
            limit.reschedule(asyncio.get_running_loop().time() + stall_seconds)
    return incoming.content()
