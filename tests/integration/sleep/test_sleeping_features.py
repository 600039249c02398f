"""Adapters, several choices, guided decoding, drafts and hand-offs give the same answers over
sleep, of all workers or of those of one role."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagewire import LLM, SamplingParams
from pagewire.client.sleep_client import sleep, wake_up
from pagewire.client.topology_client import topology
from pagewire_shared.errors import InvalidRequestError
from support.adapters.model_adapters import make_adapter
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until
from support.products import WHOLE

pytestmark = list(WHOLE)

PROMPT = list(range(10, 90))
BASE = {"prompt": PROMPT, "max_tokens": 16, "return_token_ids": True, "temperature": 0}
BODIES: list[dict[str, Any]] = [
    BASE,
    {**BASE, "model": "adapter"},
    {**BASE, "n": 3, "temperature": 1.0, "seed": 5},
    {**BASE, "structured_outputs": {"choice": ["a b c", "b c d"]}},
    {**BASE, "logprobs": 2, "seed": 3, "temperature": 0.7},
]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker for prompts and one for tokens, which speculate and take adapters."""
    folder = tmp_path_factory.mktemp("sleep")
    checkpoint = make_checkpoint(folder / "model", hidden=128, layers=2)
    make_adapter(folder / "adapter", checkpoint)
    cluster = start_cluster(
        checkpoint,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        enable_sleep_mode=True,
        enable_lora=True,
        lora_modules=(f"adapter={folder / 'adapter'}",),
        speculative_config={"method": "ngram", "num_speculative_tokens": 3},
        max_model_len=256,
    )
    yield cluster
    cluster.local.stop()


def answers(cluster: Cluster) -> list[Any]:
    found = []
    for body in BODIES:
        body = {"model": cluster.model, **body}
        response = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=60)
        assert response.status_code == 200, response.text
        found.append([choice["token_ids"] for choice in response.json()["choices"]])
    return found


def workers_for(cluster: Cluster, role: str) -> list[str]:
    cells = asyncio.run(topology(cluster.grpc_address))
    return [one.worker for cell in cells for one in cell.workers if role in one.roles]


@pytest.mark.parametrize("level", [1, 2])
def test_answers_are_the_same_after_a_wake(cell: Cluster, level: int) -> None:
    before = answers(cell)
    assert before[0] != before[1], "the adapter changes nothing"
    asyncio.run(sleep(cell.grpc_address, level=level))
    asyncio.run(wake_up(cell.grpc_address))
    assert answers(cell) == before


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_other_role_does_the_work_of_one_that_sleeps(cell: Cluster, role: str) -> None:
    before = answers(cell)
    (worker,) = workers_for(cell, role)
    asyncio.run(sleep(cell.grpc_address, worker=worker))
    assert answers(cell) == before
    asyncio.run(wake_up(cell.grpc_address, worker=worker))
    assert answers(cell) == before


def test_the_files_of_an_adapter_may_be_gone(cell: Cluster, tmp_path: Path) -> None:
    """The frontend keeps the content, and a worker that wakes fetches it there."""
    before = answers(cell)
    asyncio.run(sleep(cell.grpc_address, level=2))
    folder = next(cell.checkpoint.parent.glob("adapter"))
    folder.rename(tmp_path / "away")
    asyncio.run(wake_up(cell.grpc_address))
    assert answers(cell) == before
    (tmp_path / "away").rename(folder)


def test_the_offline_api_sleeps(cell: Cluster) -> None:
    with LLM(
        str(cell.checkpoint), enable_sleep_mode=True, kv_cache_memory="16MiB", dtype="float32"
    ) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=8)
        (before,) = llm.generate("a b c", greedy, use_tqdm=False)
        llm.sleep()
        assert llm.is_sleeping()
        llm.wake_up(["weights"])
        assert llm.is_sleeping()
        llm.wake_up(tags=["kv_cache"])
        assert not llm.is_sleeping()
        (after,) = llm.generate("a b c", greedy, use_tqdm=False)
        assert after.outputs[0].token_ids == before.outputs[0].token_ids
        with pytest.raises(InvalidRequestError, match="level"):
            llm.sleep(3)


def test_blocks_of_a_store_are_loaded_after_a_wake(cell: Cluster) -> None:
    store = start_cluster(cell.checkpoint, enable_sleep_mode=True, kv_load="always")
    try:
        body = {**BASE, "model": store.model, "prompt": list(range(10, 180))}
        before = cached_tokens(store, body)
        wait_until(lambda: cached_tokens(store, body) > 100, 20, "it is cached")
        asyncio.run(sleep(store.grpc_address))
        asyncio.run(wake_up(store.grpc_address))
        assert before == 0
        assert cached_tokens(store, body) > 100
    finally:
        store.local.stop()


def cached_tokens(cluster: Cluster, body: dict[str, Any]) -> int:
    response = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
