"""Many questions about one document beside other streams: does anybody lose a worker or pause?

    python benchmarks/make_checkpoint.py --shape tiny-long
    python benchmarks/one_document.py checkpoints/tiny-long

Starts `pagewire serve`, begins some streams, and sends all questions at once: each is the same
document of random tokens with a few of its own behind it. Prints the longest pauses of the streams,
the workers that were lost, and how many questions were answered. The shape computes so little that
what is left is the cell: a prompt that is sent to the worker once per question makes plans larger
than a message.
"""

import argparse
import asyncio
import os
import random
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import grpc.aio
from parts.machine import describe
from served import GRPC_PORT, SCHEDULER_METRICS, start

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.rpc.options import control_channel_options

VOCABULARY = range(3, 500)
ADDRESS = f"127.0.0.1:{GRPC_PORT}"
LOST = "lost_workers_total"


@dataclass(slots=True)
class Stream:
    """When the tokens of one request came, and whether it is in full swing."""

    times: list[float] = field(default_factory=list)
    is_begun: asyncio.Event = field(default_factory=asyncio.Event)
    error: str = ""

    def pauses(self, begin: float, end: float) -> list[float]:
        """Return the seconds between tokens from `begin` to `end`."""
        times = [begin, *(one for one in self.times if begin < one < end), end]
        return [after - before for before, after in pairwise(times)]


def make_request(model: str, prompt: list[int], max_tokens: int) -> inference_pb2.CompleteRequest:
    """Return a request for exactly `max_tokens` tokens."""
    sampling = sampling_pb2.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return inference_pb2.CompleteRequest(
        model=model,
        token_ids=inference_pb2.TokenIds(ids=prompt),
        options=inference_pb2.GenerationOptions(sampling=sampling),
    )


async def follow(
    stub: Any,
    request: inference_pb2.CompleteRequest,
    stream: Stream,
) -> None:
    """Run one request to its end."""
    try:
        async for response in stub.Complete(request):
            if response.WhichOneof("event") == "delta":
                stream.times.append(time.perf_counter())
                if len(stream.times) == 5:
                    stream.is_begun.set()
    except grpc.aio.AioRpcError as error:
        stream.error = f"{error.code().name}: {error.details()}"


async def ask(model: str, arguments: argparse.Namespace) -> list[str]:
    """Send all questions at once; return an error per question, empty where it was answered."""
    dice = random.Random(1)
    document = dice.choices(VOCABULARY, k=arguments.length)
    requests = [
        make_request(model, [*document, *dice.choices(VOCABULARY, k=20)], arguments.output)
        for _ in range(arguments.questions)
    ]
    streams = [Stream() for _ in requests]
    async with grpc.aio.insecure_channel(ADDRESS, options=control_channel_options()) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        pairs = zip(requests, streams, strict=True)
        await asyncio.gather(*(follow(stub, request, stream) for request, stream in pairs))
    return [one.error or ("" if one.times else "no token") for one in streams]


def ask_apart(model: str, arguments: argparse.Namespace) -> list[str]:
    """The same in a process of its own: its work must not count as a pause of the streams."""
    return asyncio.run(ask(model, arguments))


async def run(model: str, arguments: argparse.Namespace) -> None:
    """Run the streams and the questions, and print what became of them."""
    dice = random.Random(2)
    streams = [Stream() for _ in range(arguments.streams)]
    async with grpc.aio.insecure_channel(ADDRESS, options=control_channel_options()) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        requests = [make_request(model, dice.choices(VOCABULARY, k=20), 100_000) for _ in streams]
        others = [
            asyncio.create_task(follow(stub, request, one))
            for request, one in zip(requests, streams, strict=True)
        ]
        await asyncio.gather(*(one.is_begun.wait() for one in streams))
        begin = time.perf_counter()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            work = pool.submit(ask_apart, model, arguments)
            errors = await asyncio.wrap_future(work)
        end = time.perf_counter()
        for task in others:
            task.cancel()
        await asyncio.wait(others)
    pauses = sorted((max(one.pauses(begin, end)) for one in streams), reverse=True)
    print(f"{errors.count('')} of {len(errors)} questions answered in {end - begin:.1f} s")
    for error in sorted({*errors} - {""}):
        print(f"  {error}")
    print(f"longest pause of each stream, s: {', '.join(f'{pause:.2f}' for pause in pauses)}")
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(SCHEDULER_METRICS).read())
    lines = [line for line in text.decode().splitlines() if LOST in line and line[0] != "#"]
    print("workers lost:", ", ".join(line.split()[-1] for line in lines) or "0")


def main() -> None:
    """Start a deployment, run, and stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--length", type=int, default=100_000, help="tokens of the document")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--output", type=int, default=4, help="tokens of an answer")
    arguments, flags = parser.parse_known_args()
    print(describe())
    # By default a cell refuses what waits beyond 16,777,216 tokens; all of this is to wait.
    num_tokens = (arguments.length + 1000) * arguments.questions
    os.environ.setdefault("PAGEWIRE_MAX_WAITING_TOKENS", str(2 * num_tokens))
    os.environ.setdefault("PAGEWIRE_MAX_REQUEST_BYTES", str(400 * num_tokens))
    process, _ = start(
        arguments.checkpoint,
        ["--max-num-seqs", str(arguments.questions + arguments.streams), *flags],
    )
    try:
        asyncio.run(run(arguments.checkpoint.name, arguments))
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
