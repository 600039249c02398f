"""What gRPC for Python moves at most: one stream of 1 MiB messages with nothing but a copy on each
side, to a process of its own (run as a script, this file is that process)."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import numpy as np
import uvloop
from parts.raw_transfer import REGION_BYTES, best_and_median

from pagewire_shared.rpc.options import kv_channel_options, kv_server_options

PIECE_BYTES = 2**20
_METHOD = ("benchmark", "Put")


def stream(repeats: int) -> tuple[float, float]:
    """GB/s of a region sent through one stream and copied into another process's."""
    peer = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert peer.stdout is not None
        address = peer.stdout.readline().strip()
        seconds = iter(uvloop.run(_send(address, repeats + 1))[1:])
        return best_and_median(lambda: next(seconds), repeats)
    finally:
        peer.kill()
        peer.wait()


async def _send(address: str, times: int) -> list[float]:
    region = memoryview(np.ones(REGION_BYTES, np.uint8)).cast("B")
    seconds = []
    async with grpc.aio.insecure_channel(address, options=kv_channel_options()) as channel:
        method: Any = channel.stream_unary("/" + "/".join(_METHOD))
        for _ in range(times):
            begun = time.perf_counter()
            call = method()
            for at in range(0, REGION_BYTES, PIECE_BYTES):
                await call.write(bytes(region[at : at + PIECE_BYTES]))
            await call.done_writing()
            if int(await call) != REGION_BYTES:
                raise SystemExit("some of it was lost")
            seconds.append(time.perf_counter() - begun)
    return seconds


async def _receive() -> None:
    region = memoryview(np.ones(REGION_BYTES, np.uint8)).cast("B")

    async def put(requests: AsyncIterator[bytes], context: Any) -> bytes:
        at = 0
        async for data in requests:
            region[at : at + len(data)] = data
            at += len(data)
        return str(at).encode()

    handlers = {_METHOD[1]: grpc.stream_unary_rpc_method_handler(put)}
    server = grpc.aio.server(options=kv_server_options())
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_METHOD[0], handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_receive())
