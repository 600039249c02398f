"""Races pairs of requests with one idempotency key over several frontends.

    cd tests && python -m support.traffic.racing_keys --pairs 1000

Half of the pairs are streams. Every request has a connection of its own, so that the kernel spreads
them over the frontends. One generation and equal answers are right, for each pair.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from support.cells.clusters import start_cluster
from support.checkpoints.checkpoints import make_checkpoint

NUM_FRONTENDS = 3
NUM_PAIRS_AT_ONCE = 8
NUM_TOKENS = 16
SECONDS = 120.0
TOKENS = re.compile(r"^pagewire_generation_tokens_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


async def ask(url: str, body: dict[str, Any], key: str) -> httpx.Response:
    """Return the answer of one request, over a connection of its own."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as client:
        return await client.post("/v1/completions", json=body, headers={"idempotency-key": key})


async def race(url: str, model: str, num_pairs: int) -> Counter[str]:
    """Return how many pairs had equal answers, and how many answers were made, joined or failed."""
    found: Counter[str] = Counter()
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

    await asyncio.gather(*map(pair, range(num_pairs)))
    return found


def num_generated(url: str) -> float:
    """Return the tokens that all frontends have counted."""
    text = httpx.get(f"{url}/metrics", timeout=SECONDS).text
    return sum(map(float, TOKENS.findall(text)))


def main() -> None:
    """Print what came of the pairs; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=1000)
    num_pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "tiny", hidden=64, layers=2)
        cluster = start_cluster(checkpoint, frontends=NUM_FRONTENDS)
        try:
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
