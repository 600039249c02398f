"""An outside index of a whole deployment: requests find as many tokens cached as it says, also
after the scheduler was killed, and when a standby has taken over."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.kv_events.outside_index import OutsideIndex

BLOCK_SIZE = 16
PATIENCE_SECONDS = 30.0


@pytest.fixture(
    params=[
        pytest.param(True, id="standby"),
        # The way back of a scheduler alone is run by `support.kv_events`, too.
        pytest.param(False, id="alone", marks=pytest.mark.long),
    ]
)
def cluster(request, tmp_path: Path) -> Iterator[tuple[Cluster, OutsideIndex]]:
    folder = make_checkpoint(tmp_path / "model", hidden=64, layers=2)
    names = ("endpoint", "replay_endpoint", "snapshot_endpoint")
    endpoints = {name: f"ipc://{tmp_path}/{name}" for name in names}
    made = start_cluster(
        folder,
        num_workers=2,
        max_model_len=400,
        kv_cache_memory="8MiB",
        standby_scheduler=request.param,
        kv_events_config={"enable_kv_cache_events": True, "stores": False, **endpoints},
    )
    index = OutsideIndex(*endpoints.values())
    yield made, index
    index.close()
    made.local.stop()


def ask(cluster: Cluster, prompt: list[int], **fields: object) -> int:
    """Return how many tokens of the prompt were cached."""
    body = {"model": cluster.model, "prompt": prompt, "max_tokens": 2, **fields}
    answer = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=60).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def said(index: OutsideIndex, prompt: list[int]) -> int:
    """How many tokens of the prompt some worker has, by what the index knows: all of their blocks,
    but for the last token, which is always computed."""
    best = 0
    for (_, medium), held in index.blocks.items():
        paths = {index.tokens[one] for one, _ in held if one in index.tokens}
        fit = [len(path) for path in paths if tuple(prompt[: len(path)]) == path]
        whole = [num for num in fit if medium == "GPU" and num < len(prompt)]
        best = max([best, *whole])
    return best


def wait(index: OutsideIndex, condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, index.counts
        index.follow(0.1)


def test_requests_find_what_the_index_says(cluster) -> None:
    made, index = cluster
    dice = random.Random(1)
    document = dice.choices(range(3, 500), k=200)
    wait(index, lambda: index.last is not None)
    assert ask(made, document) == 0
    wait(index, lambda: said(index, [*document, 1]) >= 192)
    for num in (200, 130, 50):
        prompt = [*document[:num], *dice.choices(range(3, 500), k=20)]
        expected = said(index, prompt)
        assert expected == num // BLOCK_SIZE * BLOCK_SIZE
        assert ask(made, prompt) == expected
    salted = dice.choices(range(3, 500), k=100)
    ask(made, salted, cache_salt="s")
    before = sum(map(len, index.blocks.values()))
    wait(index, lambda: sum(map(len, index.blocks.values())) >= before + 6)
    assert said(index, salted) == 0

    publisher, schedulers = index._publisher, made.processes["scheduler"]
    for pid in schedulers:  # of a pair, the first may be the one that stands by
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + (30.0 if pid == schedulers[-1] else 5.0)
        while index._publisher == publisher and time.monotonic() < deadline:
            index.follow(0.1)
        if index._publisher != publisher:
            break
    assert index._publisher != publisher
    assert ask(made, [*document, 1, 2]) == 192
    wait(index, lambda: said(index, [*document, 1]) >= 192)
    assert index.counts["snapshot"] >= 1
