"""Replaces the frontends of a group one by one under load, drained and killed in turn.

    cd tests && python -m support.traffic.rolled_frontends --rounds 4

Readers of chats, completions, responses and gRPC calls leave their streams after a random number
of events, come back at once or after several replacements, and ask again for the answers of their
idempotency keys at the end. Each answer has to be read on and kept byte for byte, under one id, and
to say what an undisturbed one with the same seed says, but for ids and times.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from pagewire import AsyncClient, SamplingParams
from pagewire.client.events import Closed, Event, Opened
from support.cells.clusters import Cluster
from support.traffic import lost_frontends, lost_responses
from support.traffic.lost_frontends import Events, shown, started, wait_all
from support.traffic.racing_keys import asked_again

SEED = 11
PAUSE_SECONDS = 6.0
"""Most that a reader is away, while frontends are replaced."""
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
WHOLE = "whole"
CALL = "call"
CALL_PROMPT = [5, 7, 11] * 9
CALL_PARAMS = SamplingParams(n=2, temperature=1.0, seed=SEED, max_tokens=48, ignore_eos=True)
RESPONSES = [kind for kind in lost_responses.KINDS if kind != "polled"]


@dataclass(slots=True)
class Load:
    """Readers of one group, and what they found.

    Attributes:
        found: How many answers were equal, failed, and generated again for the same key.
        is_over: Set when no more requests begin.
    """

    cluster: Cluster
    expected: dict[str, Any]
    found: Counter[str] = field(default_factory=Counter)
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Address of all frontends."""
        return self.cluster.http_url

    def run(self, kind: str, reader: int) -> None:
        """Ask for answers of a kind, one after the other, until it is over."""
        draw, number = random.Random(f"{kind} {reader}"), 0
        while not self.is_over.is_set():
            number += 1
            self.found["asked"] += 1
            try:
                is_equal = self._ask_one(kind, f"{kind} {reader} {number}", draw)
            except Exception:  # noqa: BLE001 - every one is a failed answer
                traceback.print_exc()
                is_equal = False
            self.found["equal" if is_equal else "failed"] += 1
            if not is_equal:
                print(f"{kind} {reader} {number} failed", file=sys.stderr)

    def _ask_one(self, kind: str, key: str, draw: random.Random) -> bool:
        if kind == CALL:
            return bool(call_shown(self.cluster, is_resumed=True) == self.expected[kind])
        if kind == WHOLE:
            return self._whole(key, draw)
        if kind in RESPONSES:
            return self._response(kind, key, draw)
        return self._stream(kind, key, draw)

    def _pause(self, draw: random.Random) -> None:
        """Let a reader be away: half of them not at all."""
        self.is_over.wait(draw.choice((0.0, draw.uniform(0.0, PAUSE_SECONDS))))

    def _stream(self, kind: str, key: str, draw: random.Random) -> bool:
        """Return whether a stream was as it should be, and its key's again."""
        path, body = lost_frontends.body_of(self.cluster.model, kind, SEED)
        events, most = Events(), draw.randrange(1, len(self.expected[kind]) - 1)

        def begin(response: httpx.Response) -> None:
            events.stream_id = response.headers["x-pagewire-stream"]
            events.follow(response, most)

        posted(self.url + path, body, key, begin)
        self._pause(draw)
        on_end = time.monotonic() + lost_frontends.SECONDS
        while not events.is_whole:
            assert time.monotonic() < on_end, f"{events.stream_id} does not go on"
            lost_frontends.read_on(self.url, events)
        names = [name for name, _ in events.read]
        assert names == [f"{events.stream_id}:{number}" for number in range(len(names))]
        self._pause(draw)
        again = Events()

        def repeat(response: httpx.Response) -> None:
            again.stream_id = response.headers["x-pagewire-stream"]
            again.follow(response)

        posted(self.url + path, body, key, repeat)
        while not again.is_whole:
            assert time.monotonic() < on_end, f"{again.stream_id} does not go on"
            lost_frontends.read_on(self.url, again)
        self.found["generated again"] += again.stream_id != events.stream_id
        is_same = again.read == events.read or again.stream_id != events.stream_id
        return is_same and shown(events) == self.expected[kind]

    def _response(self, kind: str, key: str, draw: random.Random) -> bool:
        """Return whether a streamed response was as it should be."""
        events: list[dict[str, Any]] = []
        body = lost_responses.body_of(self.cluster.model, kind, SEED, None)
        most = draw.randrange(1, len(self.expected[kind]) - 1)
        address = self.url + lost_responses.URL
        posted(address, body, key, lambda one: lost_responses.followed(one, events, most))
        name = events[0]["response"]["id"]
        self._pause(draw)
        on_end = time.monotonic() + lost_frontends.SECONDS
        while not lost_responses.is_whole(events):
            assert time.monotonic() < on_end, f"{name} does not go on"
            lost_responses.read_on(f"{address}/{name}?stream=true", events)
        self._pause(draw)
        again: list[dict[str, Any]] = []
        posted(address, body, key, lambda one: lost_responses.followed(one, again, 1))
        self.found["generated again"] += again[0]["response"]["id"] != name
        numbers = [event["sequence_number"] for event in events]
        is_gapless = numbers == list(range(len(events)))
        return is_gapless and lost_responses.plain(events) == self.expected[kind]

    def _whole(self, key: str, draw: random.Random) -> bool:
        """Return whether an answer that is not streamed was the same twice."""
        body = {"model": self.cluster.model, "prompt": "One fox", "max_tokens": 48}
        body |= {"temperature": 1.0, "seed": SEED, "ignore_eos": True}
        first = asyncio.run(asked_again(self.url, body, key))
        self._pause(draw)
        second = asyncio.run(asked_again(self.url, body, key))
        ids = {one.json()["id"] for one in (first, second)}
        self.found["generated again"] += len(ids) == 2
        texts = [one.json()["choices"][0]["text"] for one in (first, second)]
        return texts[0] == texts[1] and (first.content == second.content or len(ids) == 2)


def posted(
    address: str, body: dict[str, Any], key: str, read: Callable[[httpx.Response], None]
) -> None:
    """Send a request with a key until an answer has begun to be read."""
    end = time.monotonic() + lost_frontends.SECONDS
    while time.monotonic() < end:
        headers = {"idempotency-key": key}
        try:
            with httpx.stream(
                "POST", address, json=body, headers=headers, timeout=lost_frontends.SECONDS
            ) as response:
                if response.status_code != 503:
                    assert response.status_code == 200, response.read()
                    read(response)
                    return
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"{address} takes no request")


def call_shown(cluster: Cluster, *, is_resumed: bool) -> list[Event]:
    """Return the events of a gRPC call without what differs between two: ids, times, and how
    tokens are cut into messages."""

    async def events() -> list[Event]:
        seconds = 30 if is_resumed else 0
        async with AsyncClient(cluster.local.grpc_address, resume_seconds=seconds) as client:
            return [event async for event in client.complete(CALL_PROMPT, CALL_PARAMS)]

    found = asyncio.run(events())
    opened = found[0]
    assert isinstance(opened, Opened)
    assert isinstance(found[-1], Closed)
    return [replace(opened, request_id="", stream_id=""), *found[1:-1]]


def undisturbed(cluster: Cluster) -> dict[str, Any]:
    """Return what an answer of each kind shows."""
    expected: dict[str, Any] = {CALL: call_shown(cluster, is_resumed=True), WHOLE: None}
    for kind in lost_frontends.KINDS:
        path, body = lost_frontends.body_of(cluster.model, kind, SEED)
        expected[kind] = shown(lost_frontends.undisturbed(cluster.http_url, path, body))
    for kind in RESPONSES:
        body = lost_responses.body_of(cluster.model, kind, SEED, None)
        found = lost_responses.undisturbed(cluster.http_url, kind, body)
        expected[kind] = lost_responses.plain(found)
    return expected


def roll(cluster: Cluster, number: int, settle_seconds: float) -> None:
    """Replace each frontend once; every other one is killed, and the rest drain."""
    for index, name in enumerate(sorted(cluster.local.pids("frontend"))):
        pid = cluster.local.pids("frontend")[name]
        os.kill(pid, SIGNALS[(number + index) % len(SIGNALS)])
        wait_replaced(cluster, name, pid)
        time.sleep(settle_seconds)


def wait_replaced(cluster: Cluster, name: str, pid: int) -> None:
    """Wait until another process has a frontend's name, and the group is whole."""
    end = time.monotonic() + lost_frontends.SECONDS
    while cluster.local.pids("frontend").get(name, pid) == pid:
        assert time.monotonic() < end, f"{name} does not end"
        time.sleep(0.02)
    wait_all(cluster)


def rolled(cluster: Cluster, num_rounds: int, num_readers: int, settle_seconds: float) -> Load:
    """Replace the frontends of a group under load; return what the readers found."""
    kinds = [*lost_frontends.KINDS, *RESPONSES, WHOLE, CALL]
    load = Load(cluster, undisturbed(cluster))
    with ThreadPoolExecutor(len(kinds) * num_readers) as pool:
        jobs = [pool.submit(load.run, kind, one) for kind in kinds for one in range(num_readers)]
        try:
            for number in range(num_rounds):
                roll(cluster, number, settle_seconds)
        finally:
            load.is_over.set()
        for job in jobs:
            job.result()
    return load


def main() -> None:
    """Print what came of the answers; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--readers", type=int, default=1, help="of each kind of answer")
    parser.add_argument("--settle-seconds", type=float, default=1.0, help="between two frontends")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as cluster:
        load = rolled(cluster, given.rounds, given.readers, given.settle_seconds)
    found, num_replaced = load.found, given.rounds * lost_frontends.NUM_FRONTENDS
    print(
        f"{num_replaced} frontends replaced, every other one killed, in "
        f"{time.monotonic() - began:.0f} s: {found['equal']} of {found['asked']} answers equal, "
        f"{found['failed']} failed, {found['generated again']} generated again"
    )
    sys.exit(bool(found["failed"] or found["generated again"]) or not found["equal"])


if __name__ == "__main__":
    main()
