"""Races pairs of requests with one idempotency key over several frontends.

    cd tests && python -m support.traffic.racing_keys --pairs 1000

Half of the pairs are streams. Every request has a connection of its own, so that the kernel spreads
them over the frontends. One generation and equal answers are right, for each pair.

With --kill-every a frontend is killed every few seconds during the race, and requests without an
answer are sent again; equal answers are right, and one generation for each pair.

With --kill the second request of a pair comes after the frontend with the answer of the first was
killed; equal answers are right.
"""

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.lost_frontends import maker_of, wait_all

NUM_FRONTENDS = 3
NUM_PAIRS_AT_ONCE = 8
NUM_TOKENS = 16
SECONDS = 120.0
IDS = re.compile(rb'"id":"(cmpl-[^"]*)"')
TOKENS = re.compile(r"^pagewire_generation_tokens_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


async def ask(url: str, body: dict[str, Any], key: str) -> httpx.Response:
    """Return the answer of one request, over a connection of its own."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as client:
        return await client.post("/v1/completions", json=body, headers={"idempotency-key": key})


async def race(
    url: str, model: str, num_pairs: int, ask: Callable[..., Awaitable[httpx.Response]] = ask
) -> Counter[str]:
    """Return how many pairs had equal answers, and how many answers were made, joined or failed."""
    found: Counter[str] = Counter()
    ids: set[bytes] = set()
    turns = asyncio.Semaphore(NUM_PAIRS_AT_ONCE)

    async def pair(number: int) -> None:
        body = {"model": model, "prompt": f"Pair {number}", "max_tokens": NUM_TOKENS}
        body |= {"temperature": 1.0, "ignore_eos": True, "stream": number % 2 == 0}
        async with turns:
            both = await asyncio.gather(*(ask(url, body, f"pair {number}") for _ in range(2)))
        found["equal"] += both[0].content == both[1].content
        for one in both:
            found["joined" if "idempotent-replayed" in one.headers else "made"] += 1
            found["failed"] += one.status_code != 200
            ids.update(IDS.findall(one.content))

    await asyncio.gather(*map(pair, range(num_pairs)))
    found["ids"] = len(ids)
    return found


async def race_with_kills(cluster: Cluster, num_pairs: int, seconds: float) -> Counter[str]:
    """Race while a frontend is killed every few seconds, one at a time."""
    num_killed = 0

    async def kill() -> None:
        nonlocal num_killed
        while True:
            await asyncio.sleep(seconds)
            victims = list(cluster.local.pids("frontend").values())
            os.kill(victims[num_killed % len(victims)], signal.SIGKILL)
            num_killed += 1
            await asyncio.to_thread(wait_all, cluster)

    killing = asyncio.create_task(kill())
    try:
        found = await race(cluster.http_url, cluster.model, num_pairs, asked_again)
    finally:
        killing.cancel()
        await asyncio.wait([killing])
    if not killing.cancelled():
        killing.result()
    found["killed"] = num_killed
    return found


async def outlived(cluster: Cluster, num_pairs: int) -> Counter[str]:
    """Return how many answers were the same after the frontend that made them was killed."""
    found: Counter[str] = Counter()
    url = cluster.http_url
    for number in range(num_pairs):
        body = {"model": cluster.model, "prompt": f"Pair {number}", "max_tokens": NUM_TOKENS}
        body |= {"temperature": 1.0, "ignore_eos": True, "stream": number % 2 == 0}
        first = await ask(url, body, f"pair {number}")
        victims = list(cluster.local.pids("frontend").values())
        if "x-pagewire-stream" in first.headers:
            victims = [maker_of(cluster, first.headers["x-pagewire-stream"])[1]]
        # A whole answer does not say whose it is: any frontend dies.
        os.kill(victims[number % len(victims)], signal.SIGKILL)
        second = await asked_again(url, body, f"pair {number}")
        found["equal"] += first.content == second.content
        found["joined"] += "idempotent-replayed" in second.headers
        await asyncio.to_thread(wait_all, cluster)
    return found


async def asked_again(url: str, body: dict[str, Any], key: str) -> httpx.Response:
    """Return the answer of a request that is sent until a frontend takes it."""
    while True:
        try:
            return await ask(url, body, key)
        except httpx.TransportError:
            await asyncio.sleep(0.02)


def num_generated(url: str) -> float:
    """Return the tokens that all frontends have counted."""
    text = httpx.get(f"{url}/metrics", timeout=SECONDS).text
    return sum(map(float, TOKENS.findall(text)))


def main() -> None:
    """Print what came of the pairs; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    num_pairs = given.pairs
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "tiny", hidden=64, layers=2)
        cluster = start_cluster(checkpoint, frontends=NUM_FRONTENDS)
        try:
            if given.kill:
                found = asyncio.run(outlived(cluster, num_pairs))
                print(
                    f"{num_pairs} frontends killed: {found['equal']} equal answers, "
                    f"{found['joined']} of them joined"
                )
                sys.exit(found["equal"] != num_pairs)
            if given.kill_every:
                began = time.monotonic()
                found = asyncio.run(race_with_kills(cluster, num_pairs, given.kill_every))
                print(
                    f"{num_pairs} pairs over {NUM_FRONTENDS} frontends in "
                    f"{time.monotonic() - began:.0f} s, {found['killed']} of them killed: "
                    f"{found['equal']} equal pairs, {found['failed']} failed, "
                    f"{found['ids']} generations"
                )
                right = {"equal": num_pairs, "ids": num_pairs, "failed": 0}
                sys.exit(any(found[name] != count for name, count in right.items()))
            before, began = num_generated(cluster.http_url), time.monotonic()
            found = asyncio.run(race(cluster.http_url, cluster.model, num_pairs))
            seconds = time.monotonic() - began
            tokens = num_generated(cluster.http_url) - before
        finally:
            cluster.local.stop()
    print(
        f"{num_pairs} pairs over {NUM_FRONTENDS} frontends in {seconds:.0f} s: "
        f"{found['made']} generations, {found['joined']} joined, {found['equal']} equal pairs, "
        f"{found['failed']} failed, {tokens:.0f} tokens counted of {num_pairs * NUM_TOKENS}"
    )
    right = {"made": num_pairs, "joined": num_pairs, "equal": num_pairs, "failed": 0}
    sys.exit(any(found[name] != count for name, count in right.items()))


if __name__ == "__main__":
    main()
