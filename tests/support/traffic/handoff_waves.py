"""Waves of streams with long prompts in a cell that hands them off, and what they must answer."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_scheduler.core.costs.handoff_cost import DEADLINE_FACTOR, MIN_SECONDS
from support.cells.role_cells import MODEL, RoleCell
from support.processes.namespaces import Network
from support.traffic.streams import completion
from support.traffic.watched_streams import WatchedStream, eventually, following, look

NUM_STREAMS = 4
NUM_TOKENS = 100
NUM_PROMPT = 480
METRICS_PORT = 8900
MARGIN_SECONDS = 10.0
PATIENCE_SECONDS = 90.0

_numbers = itertools.count()


def wave(num_tokens: int = NUM_TOKENS) -> list[inference_pb2.CompleteRequest]:
    """Return requests of which nothing is cached; those of all waves are equal but for that."""
    requests = []
    salt = f"wave {next(_numbers)}"
    for number in range(NUM_STREAMS):
        prompt = [3 + (number * 37 + (7 + number) * step) % 490 for step in range(NUM_PROMPT)]
        sampling = {} if number % 2 else {"temperature": 1.0, "seed": number}
        requests.append(completion(MODEL, prompt, num_tokens, **sampling))
        requests[-1].options.cache_salt = salt
    return requests


@dataclass(slots=True)
class Scene:
    """A cell, the network it is in, and what it must answer.

    Attributes:
        expected: Tokens of each stream of a wave; those of the first wave unless given.
        usual_wait: The longest wait for a token in an undisturbed wave, in seconds.
    """

    cell: RoleCell
    network: Network
    expected: Sequence[Sequence[int]] = ()
    usual_wait: float = field(default=0.0)

    @property
    def most_wait(self) -> float:
        """The longest deadline of a hand-off here, were all prompts computed by one worker, and
        computing them again, with a margin."""
        estimate = 2 * self.usual_wait
        return MIN_SECONDS + DEADLINE_FACTOR * estimate + estimate + MARGIN_SECONDS

    async def follow(self, num_tokens: int = NUM_TOKENS) -> list[WatchedStream]:
        """Follow a wave from begin to end, and check it."""
        async with following(self.cell, wave(num_tokens)) as streams:
            pass
        self.check(streams)
        return streams

    async def get_used_to(self) -> list[WatchedStream]:
        """Learn how long an undisturbed wave waits, and what it answers if nobody said."""
        async with following(self.cell, wave()) as streams:
            pass
        self.usual_wait = max(stream.longest_wait for stream in streams)
        self.expected = self.expected or [stream.token_ids for stream in streams]
        self.check(streams)
        return streams

    def check(self, streams: Sequence[WatchedStream]) -> None:
        """Fail unless the streams of a wave have the right tokens and none waited too long."""
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS
        for stream, expected in zip(streams, self.expected, strict=True):
            wanted = stream.request.options.sampling.max_tokens
            assert stream.token_ids == expected[:wanted]
        waits = [stream.longest_wait for stream in streams]
        assert max(waits) < self.most_wait, waits

    async def until_handed_over(self, prefill: str = "", decode: str = "") -> None:
        """Send waves until blocks have moved once more from, or to, a worker."""
        num_before = (await look(self.cell)).num_transfers(prefill, decode)

        async def is_handing_over() -> bool:
            await self.follow(4)
            return (await look(self.cell)).num_transfers(prefill, decode) > num_before

        await eventually(is_handing_over, f"blocks move again from {prefill} to {decode}")

    def num_verdicts(self, *verdicts: str) -> float:
        """Return how often the scheduler has decided so."""
        host = self.cell.members["scheduler"].place.address.rpartition(":")[0]
        text = httpx.get(f"http://{host}:{METRICS_PORT}/metrics", timeout=10).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "pagewire_scheduler_handoff_decisions_total"
            and sample.labels["verdict"] in verdicts
        )


def scheduler_flags(handoff: str) -> dict[str, tuple[str, ...]]:
    """Return flags for a scene's cell."""
    return {"scheduler": ("--handoff", handoff, "--metrics-port", str(METRICS_PORT))}
