"""Kills the frontend of a response in its middle, and reads the response on at another one.

    cd tests && python -m support.traffic.lost_responses --responses 20

Streams are broken off after a random number of events; responses in the background that are not
streamed, after a random time. What is read before and after, joined, has to be what is read at
once afterwards, and what an undisturbed response with the same seed says, but for ids and times.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from support.cells.clusters import Cluster
from support.traffic.lost_frontends import (
    GOES_ON,
    NUM_TOKENS,
    SECONDS,
    maker_of,
    started,
    verdict,
    wait_all,
)

URL = "/v1/responses"
INPUT = "Tell me a story about a fox."
_AT = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOLS = [{"type": "function", "name": "look", "parameters": _AT}]
KINDS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "background": ({"background": True, "stream": True}, {}),
    "continued": ({"stream": True, "top_logprobs": 2}, GOES_ON),
    "tools": ({"background": True, "stream": True, "tools": TOOLS, "tool_choice": "required"}, {}),
    "unstored": ({"stream": True, "store": False}, GOES_ON),
    "polled": ({"background": True}, {}),
}
"""Bodies and headers."""
DRAWN = ("id", "item_id", "call_id", "previous_response_id", "created_at", "completed_at")
"""Fields that differ between two responses."""


def plain(value: Any) -> Any:
    """Return JSON without what differs between two responses: ids, times, cached tokens."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    left = {name: one for name, one in value.items() if name not in DRAWN}
    if left.get("usage"):
        counts = left["usage"]
        left["usage"] = {name: counts[name] for name in ("input_tokens", "output_tokens")}
    return {name: plain(one) for name, one in left.items()}


def body_of(model: str, kind: str, seed: int, earlier: str | None) -> dict[str, Any]:
    """Return the body of a request that builds on the response `earlier`."""
    common = {"model": model, "input": INPUT, "max_output_tokens": NUM_TOKENS, "temperature": 1.0}
    return {
        **common,
        "seed": seed,
        "ignore_eos": True,
        "previous_response_id": earlier,
        **KINDS[kind][0],
    }


def followed(response: httpx.Response, events: list[dict[str, Any]], most: int | None) -> None:
    """Read events until there are `most`; None for all. One without a number says to ask again."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "sequence_number" not in event:
                return
            events.append(event)
            if most is not None and len(events) >= most:
                return


def is_whole(events: list[dict[str, Any]]) -> bool:
    """Return whether the last event is there."""
    return bool(events) and events[-1]["type"] in ("response.completed", "response.incomplete")


def undisturbed(url: str, kind: str, body: dict[str, Any]) -> Any:
    """Return the events of a response, or the whole of one that is not streamed."""
    headers = KINDS[kind][1]
    if kind == "polled":
        made = httpx.post(url + URL, json=body, headers=headers, timeout=SECONDS).json()
        return polled(url, made["id"])
    events: list[dict[str, Any]] = []
    with httpx.stream("POST", url + URL, json=body, headers=headers, timeout=SECONDS) as response:
        followed(response, events, None)
    return events


def kill_maker(cluster: Cluster, response_id: str) -> float:
    """Kill the frontend of a response; return the time."""
    _, pid = maker_of(cluster, response_id)
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def broken(
    cluster: Cluster, kind: str, body: dict[str, Any], most: int
) -> tuple[list[dict[str, Any]], float]:
    """Return the events of a response whose frontend was killed after `most` of them, read on at
    another, and the seconds from the kill to the next event."""
    events: list[dict[str, Any]] = []
    address, headers = cluster.http_url + URL, KINDS[kind][1]
    with httpx.stream("POST", address, json=body, headers=headers, timeout=SECONDS) as response:
        assert response.status_code == 200, response.read()
        followed(response, events, most)
        name = events[0]["response"]["id"]
        began = kill_maker(cluster, name)
    delay = 0.0
    while not is_whole(events):
        assert time.monotonic() - began < SECONDS, "the response does not go on"
        read_on(f"{address}/{name}?stream=true", events)
        if len(events) > most and not delay:
            delay = time.monotonic() - began
    return events, delay


def read_on(address: str, events: list[dict[str, Any]]) -> None:
    """Read what follows the last event, from any frontend; nothing where none answers now."""
    last = events[-1]["sequence_number"]
    try:
        with httpx.stream("GET", f"{address}&starting_after={last}", timeout=SECONDS) as response:
            if response.status_code != 503:
                assert response.status_code == 200, response.read()
                followed(response, events, None)
                return
    except httpx.TransportError:
        pass
    time.sleep(0.02)


def polled(url: str, response_id: str) -> dict[str, Any]:
    """Return a response in the background once it is over, from any frontend."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            answer = httpx.get(f"{url}{URL}/{response_id}", timeout=SECONDS)
        except httpx.TransportError:
            continue
        body: dict[str, Any] = answer.json()
        if answer.status_code == 200 and body["status"] not in ("queued", "in_progress"):
            return body
        assert answer.status_code in (200, 503), answer.text
        time.sleep(0.02)
    raise AssertionError("the response does not end")


def broken_polled(cluster: Cluster, body: dict[str, Any], seconds: float) -> tuple[Any, float]:
    """Return a response in the background whose frontend was killed after `seconds`."""
    url = cluster.http_url
    made = httpx.post(url + URL, json=body, timeout=SECONDS).json()
    time.sleep(seconds)
    began = kill_maker(cluster, made["id"])
    return polled(url, made["id"]), time.monotonic() - began


def reread(url: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all events of a response, at any frontend."""
    name = events[0]["response"]["id"]
    found: list[dict[str, Any]] = []
    with httpx.stream("GET", f"{url}{URL}/{name}?stream=true", timeout=SECONDS) as response:
        assert response.status_code == 200, response.read()
        followed(response, found, None)
    return found


def survives(cluster: Cluster, kind: str, seed: int, draw: random.Random) -> tuple[bool, float]:
    """Return whether a response is as an undisturbed one when its frontend is killed, and the
    seconds until it went on."""
    url = cluster.http_url
    first = {"model": cluster.model, "input": INPUT, "max_output_tokens": 4, "seed": seed}
    earlier = httpx.post(url + URL, json=first, timeout=SECONDS).json()["id"]
    body = body_of(cluster.model, kind, seed, earlier)
    whole = undisturbed(url, kind, body)
    if kind == "polled":
        joined, delay = broken_polled(cluster, body, draw.uniform(0.0, 0.1))
        return plain(joined) == plain(whole), delay
    joined, delay = broken(cluster, kind, body, draw.randrange(2, len(whole) - 1))
    numbers = [event["sequence_number"] for event in joined]
    is_equal = plain(joined) == plain(whole) and numbers == list(range(len(whole)))
    return is_equal and reread(url, joined) == joined, delay


def main() -> None:
    """Print what came of the responses; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--responses", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw, equal, delays = random.Random(given.seed), 0, []
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as cluster:
        for number in range(given.responses):
            kind = list(KINDS)[number % len(KINDS)]
            is_equal, seconds = survives(cluster, kind, number, draw)
            delays += [] if kind == "polled" else [seconds]
            equal += is_equal
            if not is_equal:
                print(f"{kind} with seed {number} differs", file=sys.stderr)
            wait_all(cluster)
    print(verdict("responses", given.responses, equal, delays))
    sys.exit(equal != given.responses)


if __name__ == "__main__":
    main()
