"""`pagewire explain` names what slow requests waited for, over real processes."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from integration.explain.crowd import LONG, Crowd

from pagewire.client.sleep_client import sleep, wake_up
from support.adapters.model_adapters import make_adapter
from support.cells.clusters import Cluster, start_cluster

KEYS = ("first=sk-first", "second=sk-second", "ops=sk-ops admin")


@pytest.fixture(scope="module")
def cell(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker with two slots, and one for adapters."""
    folder = tmp_path_factory.mktemp("waits")
    adapters = [make_adapter(folder / f"a{seed}", tiny_checkpoint, seed=seed) for seed in (1, 2)]
    keys = folder / "keys"
    keys.write_text("\n".join(KEYS) + "\n")
    cluster = start_cluster(
        tiny_checkpoint,
        max_num_seqs=2,
        max_loras=1,
        enable_lora=True,
        lora_modules=[f"a{at}={one.folder}" for at, one in enumerate(adapters)],
        enable_sleep_mode=True,
        queue_policy="fair",
        api_key_file=str(keys),
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture
def crowd(cell: Cluster) -> Iterator[Crowd]:
    """Requests of several tenants, which have ended afterwards."""
    with ThreadPoolExecutor(8) as pool:
        yield Crowd(cell, pool, "sk-ops")


def test_a_slot_of_others(crowd: Crowd) -> None:
    for one in [crowd.run("one"), crowd.run("another"), crowd.queue("capacity")]:
        one.result()
    assert "waiting for a slot or blocks, which others held" in crowd.explained("capacity")


def test_other_tenants_and_a_pause(crowd: Crowd) -> None:
    sent = [crowd.run("kept", 2 * LONG), crowd.run("paused", LONG // 2), crowd.queue("queued")]
    # Each tenant has one of the two slots: the younger one that runs gives way.
    sent.append(crowd.queue("other", 2 * LONG, headers={"authorization": "Bearer sk-second"}))
    for one in sent:
        one.result()
    assert "waiting to go on after it had begun, while others had their turn" in crowd.explained(
        "paused"
    )
    assert "waiting for its turn among tenants" in crowd.explained("queued")


def test_a_cold_adapter(crowd: Crowd) -> None:
    for one in [crowd.run("warm", model="a0"), crowd.queue("cold", model="a1")]:
        one.result()
    assert "waiting for its adapter to be in a slot" in crowd.explained("cold")


def test_all_workers_asleep(cell: Cluster, crowd: Crowd) -> None:
    asyncio.run(sleep(cell.grpc_address, api_key="sk-ops"))
    sent = crowd.queue("asleep")
    time.sleep(1.0)
    asyncio.run(wake_up(cell.grpc_address, api_key="sk-ops"))
    sent.result()
    assert "waiting for a worker to wake" in crowd.explained("asleep")


def test_a_worker_that_sleeps_in_the_middle(cell: Cluster, crowd: Crowd) -> None:
    began = time.monotonic()
    crowd.run("awake").result()
    seconds = time.monotonic() - began
    sent = crowd.run("dreamer")
    asyncio.run(sleep(cell.grpc_address, api_key="sk-ops"))
    time.sleep(1.5 * seconds)
    asyncio.run(wake_up(cell.grpc_address, api_key="sk-ops"))
    sent.result()
    assert "after it was moved, or its worker slept" in crowd.explained("dreamer")
