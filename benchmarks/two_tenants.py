"""A tenant that keeps its share full, and another one's small requests: how long do these take?

    python benchmarks/make_checkpoint.py --shape tiny-long
    python benchmarks/two_tenants.py checkpoints/tiny-long

Starts `pagewire serve` with a key for each of two tenants, whose clients are processes of their
own. The second sends requests of 4 tokens one after the other over gRPC: alone, beside short
requests of the first, and beside long prompts of it, in turns; whenever one of those ends another
takes its place. Prints how long the small requests took, as their client and as the frontend saw
them, how many steps passed meanwhile and how long a step was, and what was computed.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from one_document import ADDRESS, VOCABULARY, make_request
from parts.machine import describe
from served import counters, start

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.rpc.options import control_channel_options

KEYS = {"greedy": "key-of-greedy", "modest": "key-of-modest"}
SETTLE_SECONDS = 5.0


@dataclass(slots=True)
class Case:
    """What the greedy tenant does, and what was measured in all turns.

    Attributes:
        num_open: Requests that it has open.
        num_prompt, num_output: Tokens of each.
        seconds, first_seconds: Of the small requests, whole and until the first token, as their
            client saw them.
        served_seconds: Until the first token, as the frontend saw it.
        spent: Sums of the scheduler's counters and of the seconds of the turns.
    """

    name: str
    num_open: int = 0
    num_prompt: int = 0
    num_output: int = 0
    seconds: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    served_seconds: list[float] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)

    def note(self, spent: dict[str, float]) -> None:
        """Add what a turn took."""
        for name, value in spent.items():
            self.spent[name] = self.spent.get(name, 0.0) + value

    def row(self, alone: "Case") -> str:
        """Return its line of the table."""
        num_steps = max(1.0, self.spent["steps"])
        median = statistics.median(self.seconds)
        values = [
            f"{1e3 * statistics.median(self.first_seconds):.0f}",
            f"{1e3 * statistics.median(self.served_seconds):.0f}",
            f"{1e3 * median:.0f}",
            f"{1e3 * max(self.seconds):.0f}",
            f"{median / statistics.median(alone.seconds):.1f}",
            f"{num_steps / len(self.seconds):.1f}",
            f"{1e3 * self.spent['step_busy_seconds'] / num_steps:.1f}",
            f"{self.spent['scheduler_prompt_tokens'] / self.spent['seconds']:.0f}",
            f"{self.spent['sampled_tokens'] / self.spent['seconds']:.0f}",
        ]
        return f"| {self.name} | {len(self.seconds)} | {' | '.join(values)} |"


def prompts(seed: int, num_tokens: int) -> Iterator[list[int]]:
    """Yield prompts that have nothing in common."""
    dice = random.Random(seed)
    return (dice.choices(VOCABULARY, k=num_tokens) for _ in itertools.count())


async def complete(
    stub: Any, tenant: str, request: inference_pb2.CompleteRequest
) -> tuple[float, float, float]:
    """Run a request; return the seconds until its first token and its end, and until its first
    token as the frontend saw it."""
    metadata = (("authorization", f"Bearer {KEYS[tenant]}"),)
    began, first, served = time.perf_counter(), 0.0, 0.0
    async for response in stub.Complete(request, metadata=metadata):
        event = response.WhichOneof("event")
        if event == "delta" and not first:
            first = time.perf_counter() - began
        if event == "closed":
            served = response.closed.timings.time_to_first_token
    return first, time.perf_counter() - began, served


async def keep_open(model: str, case: Case, seed: int) -> None:
    """Be the greedy tenant, for ever."""
    texts = prompts(2 * seed, case.num_prompt)
    async with grpc.aio.insecure_channel(ADDRESS, options=control_channel_options()) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        async def go_on() -> None:
            while True:
                await complete(stub, "greedy", make_request(model, next(texts), case.num_output))

        await asyncio.gather(*(go_on() for _ in range(case.num_open)))


def be_greedy(model: str, case: Case, seed: int) -> None:
    """The same, as a process."""
    asyncio.run(keep_open(model, case, seed))


async def take_turn(stub: Any, model: str, case: Case, seconds: float, seed: int) -> None:
    """Measure small requests beside what the greedy tenant does."""
    greedy = None
    if case.num_open:
        context = multiprocessing.get_context("spawn")
        greedy = context.Process(target=be_greedy, args=(model, case, seed), daemon=True)
        greedy.start()
        await asyncio.sleep(SETTLE_SECONDS)
    before, began = counters(), time.perf_counter()
    small = prompts(2 * seed + 1, 4)
    while time.perf_counter() - began < seconds:
        first, whole, served = await complete(stub, "modest", make_request(model, next(small), 4))
        case.first_seconds.append(first)
        case.seconds.append(whole)
        case.served_seconds.append(served)
    after, ended = counters(), time.perf_counter()
    case.note({name: value - before.get(name, 0.0) for name, value in after.items()})
    case.note({"seconds": ended - began})
    if greedy is not None:
        if not greedy.is_alive():
            raise SystemExit("the greedy tenant's client has ended; see above")
        greedy.terminate()
        greedy.join()
        await asyncio.sleep(SETTLE_SECONDS)


async def run(model: str, arguments: argparse.Namespace) -> None:
    """Take all turns and print the table."""
    alone = Case("alone")
    num_short, num_long = arguments.short, arguments.long
    short = Case(f"{num_short:,} short", num_short, 8, 64)
    long = Case(
        f"{num_long} prompts of {arguments.long_tokens:,}", num_long, arguments.long_tokens, 4
    )
    async with grpc.aio.insecure_channel(ADDRESS, options=control_channel_options()) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        await take_turn(stub, model, Case("warm"), 2.0, 0)
        for turn in range(1, arguments.turns + 1):
            for number, case in enumerate((alone, short, alone, long)):
                await take_turn(stub, model, case, arguments.seconds, 10 * turn + number)
    print(
        "| beside it | requests | TTFT p50 ms | of it at the frontend | whole p50 ms | worst ms"
        " | times alone | steps each | ms a step | prompt tokens/s | sampled tokens/s |"
    )
    print("|" + " --- |" * 11)
    for case in (alone, short, long):
        print(case.row(alone))


def main() -> None:
    """Start a deployment, run, and stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0, help="of a turn")
    parser.add_argument("--short", type=int, default=1000, help="short requests that are open")
    parser.add_argument("--long", type=int, default=200, help="long prompts that are open")
    parser.add_argument("--long-tokens", type=int, default=8_000)
    arguments, flags = parser.parse_known_args()
    print(describe())
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.writelines(f"{tenant}={key} admin\n" for tenant, key in KEYS.items())
        keys.flush()
        process, _ = start(arguments.checkpoint, ["--api-key-file", keys.name, *flags])
        try:
            asyncio.run(run(arguments.checkpoint.name, arguments))
        finally:
            process.terminate()
            process.wait(20)


if __name__ == "__main__":
    main()
