"""Streams of which all run when a process gets a signal."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

import grpc.aio

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.traffic.streams import Stream, completion

LEAST_TOKENS = 8
"""Of each stream, before the signal."""


def seeded_requests(
    model: str, num_streams: int, num_tokens: int
) -> list[inference_pb2.CompleteRequest]:
    """Return requests with different prompts and seeds."""
    return [
        completion(model, [5 + index, 7, 11 + index] * 9, num_tokens, temperature=1.0, seed=index)
        for index in range(num_streams)
    ]


async def follow_with_signal(
    address: str,
    requests: Sequence[inference_pb2.CompleteRequest],
    pid: int,
    number: signal.Signals,
    *,
    patience_seconds: float,
    after: Callable[[], Awaitable[None]] | None = None,
) -> list[Stream]:
    """Follow all streams to their ends; send a signal once all of them run and none has ended.

    Args:
        after: Awaited after the signal, before the ends of the streams.
    """
    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while min(len(stream.token_ids) for stream in streams) < LEAST_TOKENS:
            await asyncio.sleep(0.001)
        for stream, request in zip(streams, requests, strict=True):
            assert len(stream.token_ids) < request.options.sampling.max_tokens
        os.kill(pid, number)
        async with asyncio.timeout(patience_seconds):
            if after is not None:
                await after()
            await asyncio.gather(*followers)
    return streams
