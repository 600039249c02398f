"""Kills the frontend of a kept stream in its middle, and reads the stream on at another one.

    cd tests && python -m support.traffic.lost_frontends --streams 100

Each stream is broken off after a random number of events. What is read before and after, joined,
has to be the events of an undisturbed stream with the same seed, but for ids and times.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pagewire_frontend.http.kept_streams.ids import tag_of_stream
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until

NUM_FRONTENDS = 3
NUM_TOKENS = 48
SECONDS = 60.0
GOES_ON = {"x-pagewire-on-disconnect": "continue"}
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TURNS = [{"role": "user", "content": "Tell me a story about a fox."}]
_TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": _TOOL}]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": (CHAT, {"messages": TURNS}),
    "choices": (CHAT, {"messages": TURNS, "n": 3, "stop": ["ee"]}),
    "logprobs": (CHAT, {"messages": TURNS, "logprobs": True, "top_logprobs": 2}),
    "tools": (CHAT, {"messages": TURNS, "tools": TOOLS, "tool_choice": "required"}),
    "completions": (COMPLETIONS, {"prompt": ["One fox", "Two foxes"], "n": 2, "logprobs": 1}),
}


@dataclass(slots=True)
class Events:
    """Events of a stream as they were read: ids and data."""

    stream_id: str = ""
    read: list[tuple[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each came."""

    @property
    def is_whole(self) -> bool:
        """Whether the last event is there."""
        return bool(self.read) and self.read[-1][1] == "[DONE]"

    def follow(self, response: httpx.Response, most: int | None = None) -> None:
        """Read events until there are `most`; None for all. One without an id says to ask again."""
        event_id = ""
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                if not event_id:
                    return
                self.read.append((event_id, value))
                self.times.append(time.monotonic())
                event_id = ""
                if most is not None and len(self.read) >= most:
                    return


def body_of(model: str, kind: str, seed: int) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request."""
    path, body = KINDS[kind]
    common = {"model": model, "stream": True, "max_tokens": NUM_TOKENS, "temperature": 1.0}
    usage = {"stream_options": {"include_usage": True}, "seed": seed, "ignore_eos": True}
    return path, {**common, **usage, **body}


def shown(events: Events) -> list[Any]:
    """Return the events without what differs between two answers: ids, times, cached tokens."""
    found = []
    for _, data in events.read:
        if data == "[DONE]":
            found.append(data)
            continue
        chunk = json.loads(data)
        chunk.update(id="", created=0)
        if chunk.get("usage"):
            chunk["usage"] = {
                name: chunk["usage"][name] for name in ("completion_tokens", "total_tokens")
            }
        for choice in chunk.get("choices", ()):
            for call in choice.get("delta", {}).get("tool_calls", ()):
                if "id" in call:
                    call["id"] = "call"
        found.append(chunk)
    return found


def undisturbed(url: str, path: str, body: dict[str, Any]) -> Events:
    """Return a whole kept stream."""
    events = Events()
    with httpx.stream("POST", url + path, json=body, headers=GOES_ON, timeout=SECONDS) as response:
        events.follow(response)
    return events


def maker_of(cluster: Cluster, stream_id: str) -> tuple[str, int]:
    """Return name and process id of the frontend that made a stream."""
    tag = tag_of_stream(stream_id)
    assert tag is not None
    for name, pid in cluster.local.pids("frontend").items():
        arguments = cluster.local._specs[name].arguments
        own = arguments[arguments.index("--frontend-name") + 1]
        if slot_of(own) == tag[:SLOT_DIGITS]:
            return name, pid
    raise AssertionError(f"{stream_id} is of no frontend")


def broken(cluster: Cluster, path: str, body: dict[str, Any], most: int) -> tuple[Events, float]:
    """Return a stream whose frontend was killed after `most` events, read on at another, and the
    seconds from the kill to the next event."""
    events, url = Events(), cluster.http_url
    with httpx.stream("POST", url + path, json=body, headers=GOES_ON, timeout=SECONDS) as response:
        assert response.status_code == 200, response.read()
        events.stream_id = response.headers["x-pagewire-stream"]
        events.follow(response, most)
        _, pid = maker_of(cluster, events.stream_id)
        os.kill(pid, signal.SIGKILL)
    began, num_before = time.monotonic(), len(events.read)
    while not events.is_whole:
        assert time.monotonic() - began < SECONDS, "the stream does not go on"
        read_on(url, events)
    return events, events.times[num_before] - began


def read_on(url: str, events: Events) -> None:
    """Read what follows the last event, from any frontend; nothing where none answers now."""
    address = f"{url}/v1/streams/{events.stream_id}"
    headers = {"last-event-id": events.read[-1][0]}
    try:
        with httpx.stream("GET", address, headers=headers, timeout=SECONDS) as response:
            if response.status_code != 503:
                assert response.status_code == 200, response.read()
                events.follow(response)
                return
    except httpx.TransportError:
        pass
    time.sleep(0.02)


@contextmanager
def started(folder: Path, **settings: Any) -> Iterator[Cluster]:
    """Yield frontends before one worker with a tiny model."""
    checkpoint = make_checkpoint(folder / "tiny", hidden=64, layers=2)
    cluster = start_cluster(checkpoint, frontends=NUM_FRONTENDS, max_model_len=512, **settings)
    try:
        yield cluster
    finally:
        cluster.local.stop()


def wait_all(cluster: Cluster) -> None:
    """Wait until killed frontends are back."""
    text = "pagewire_frontend_processes "

    def are_back() -> bool:
        try:
            lines = httpx.get(f"{cluster.http_url}/metrics", timeout=SECONDS).text.splitlines()
        except httpx.TransportError:
            return False
        return f"{text}{NUM_FRONTENDS}.0" in lines

    wait_until(are_back, 60, "all frontends are back")


def verdict(kind: str, num: int, equal: int, delays: list[float]) -> str:
    """Return what came of `num` kills, of which `equal` changed nothing that a client saw.

    Args:
        kind: What was read, in the plural.
        delays: Seconds from each kill to the next event.
    """
    ordered = sorted(delays)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return (
        f"{num} frontends killed: {equal} equal {kind}, the next event after "
        f"{ordered[len(ordered) // 2]:.3f} s at the median, {p99:.3f} s at p99"
    )


def main() -> None:
    """Print what came of the streams; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, equal, delays = random.Random(given.seed), 0, []
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as cluster:
        for number in range(given.streams):
            kind = list(KINDS)[number % len(KINDS)]
            path, body = body_of(cluster.model, kind, number)
            whole = undisturbed(cluster.http_url, path, body)
            most = draw.randrange(1, len(whole.read) - 1)
            joined, seconds = broken(cluster, path, body, most)
            delays.append(seconds)
            is_equal = shown(joined) == shown(whole)
            equal += is_equal
            if not is_equal:
                print(f"{kind} with seed {number} differs after {most} events", file=sys.stderr)
            wait_all(cluster)
    print(verdict("streams", given.streams, equal, delays))
    sys.exit(equal != given.streams)


if __name__ == "__main__":
    main()
