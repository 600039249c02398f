"""What the scheduler hears from KV stores over real sockets, and that none of them can do more to
it than be of no use."""

import asyncio
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from contract.scheduler_peers import attached, eventually, running_scheduler
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_kvstore import ScriptedKvStore, cleared, names, removed, stored
from contract.scripted_worker import ScriptedWorker, expected
from prometheus_client import REGISTRY

from pagewire_protos.kvstore.v1 import kv_store_pb2 as ks
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_scheduler.links import kvstore_link
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName

PROMPT = [5, 6, 7, 8, 9]


@dataclass
class Known:
    """What the core was told."""

    names: "defaultdict[str, set[BlockName]]" = field(default_factory=lambda: defaultdict(set))
    up: dict[str, bool] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    num_cleared: int = 0


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    known = Known()

    def stored(_: RemoteIndex, store: str, taken: Sequence[BlockName]) -> None:
        known.names[store].update(taken)
        known.batches.append(len(taken))

    def removed(_: RemoteIndex, store: str, taken: Sequence[BlockName]) -> None:
        known.names[store].difference_update(taken)

    def cleared(_: RemoteIndex, store: str) -> None:
        known.names[store].clear()
        known.num_cleared += 1

    def set_up(_: RemoteIndex, store: str, *, is_up: bool) -> None:
        assert known.up.get(store) != is_up, "told twice"
        known.up[store] = is_up

    for method in (stored, removed, cleared, set_up):
        monkeypatch.setattr(RemoteIndex, method.__name__, method)
    return known


def address_in(folder: Path) -> str:
    return f"unix:{folder}/kvstore.sock"


async def test_a_store_is_watched_from_its_listing_on(tmp_path: Path, known: Known) -> None:
    address = address_in(tmp_path)
    store = ScriptedKvStore(address, scripts=[[stored(4, 1, 2), stored(4, 3), stored(5, 4)]])
    async with store.running(), running_scheduler(tmp_path, kvstore=(address,)):
        await eventually(lambda: known.names[address] == {*names(1, 2, 3, 4)})
        assert known.up == {address: True}
        (request,) = store.requests
        assert not request.HasField("from_sequence")
        store.say(removed(6, 2), stored(7, 9))
        await eventually(lambda: known.names[address] == {*names(1, 3, 4, 9)})
        assert gauge("names", address) == 4
        assert gauge("up", address) == 1
        store.say(cleared(8), stored(8, 6))
        await eventually(lambda: known.names[address] == {*names(6)})
    assert gauge("names", address) == 1


async def test_a_store_may_be_on_another_host(tmp_path: Path, known: Known) -> None:
    store = ScriptedKvStore("127.0.0.1:0", scripts=[[stored(1, 1)]])
    async with store.running(), running_scheduler(tmp_path, kvstore=(store.address,)):
        await eventually(lambda: known.names[store.address] == {*names(1)})


def gauge(name: str, store: str) -> float | None:
    return REGISTRY.get_sample_value(f"pagewire_scheduler_kvstore_{name}", {"store": store})


async def test_a_broken_watch_is_resumed(tmp_path: Path, known: Known) -> None:
    address = address_in(tmp_path)
    store = ScriptedKvStore(address, scripts=[[stored(1, 1), stored(2, 2)], [removed(3, 1)]])
    async with store.running(), running_scheduler(tmp_path, kvstore=(address,)):
        await eventually(lambda: len(known.names[address]) == 2)
        num_cleared = known.num_cleared
        store.hang_up()
        await eventually(lambda: known.names[address] == {*names(2)})
        assert known.num_cleared == num_cleared
        assert store.requests[1] == ks.WatchBlocksRequest(from_sequence=3, store_id=store.store_id)


async def test_a_restarted_store_is_listed_anew(
    tmp_path: Path, known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, kvstore_link.__name__)
    address = address_in(tmp_path)
    first = ScriptedKvStore(address, scripts=[[stored(1, 1), stored(2, 2)]])
    async with running_scheduler(tmp_path, kvstore=(address,)):
        async with first.running():
            await eventually(lambda: len(known.names[address]) == 2)
        await eventually(lambda: not known.up[address])
        assert len(known.names[address]) == 2, "what it had, it may have again"
        second = ScriptedKvStore(address, scripts=[[stored(1, 7)]])
        async with second.running():
            await eventually(lambda: known.up[address])
            await eventually(lambda: known.names[address] == {*names(7)})
            assert not second.requests[0].HasField("from_sequence")
            # Read while it runs: its end is told as well, sooner or later.
            said = [r.levelname for r in caplog.records if r.name == kvstore_link.__name__]
    assert said[-3:] == ["INFO", "WARNING", "INFO"], "one line each, however often it was dialled"


@pytest.mark.parametrize(
    "message",
    [
        stored(9, 1),
        stored(1, 1),
        ks.WatchBlocksResponse(sequence=3, stored=ks.BlocksStored(names=b"x" * 17)),
        ks.WatchBlocksResponse(sequence=3),
        b"\xff\xff\xff",
        stored(3, *range(65_536)),
    ],
    ids=["gap", "back", "torn", "empty", "garbage", "long"],
)
async def test_a_hostile_store_is_listed_anew(
    tmp_path: Path, known: Known, message: ks.WatchBlocksResponse | bytes
) -> None:
    address = address_in(tmp_path)
    store = ScriptedKvStore(
        address, scripts=[[stored(1, 1), stored(2, 2), message], [stored(5, 3)]]
    )
    async with store.running(), running_scheduler(tmp_path, kvstore=(address,)):
        await eventually(lambda: known.names[address] == {*names(3)})
        assert not store.requests[1].HasField("from_sequence")
        await eventually(lambda: known.up[address])


async def test_a_store_that_watches_nothing_is_down(
    tmp_path: Path, known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    address = address_in(tmp_path)
    store = ScriptedKvStore(address, store_id=b"short")
    with caplog.at_level(logging.INFO, kvstore_link.__name__):
        async with store.running(), running_scheduler(tmp_path, kvstore=(address,)) as scheduler:
            await eventually(lambda: known.num_cleared >= 3)
            assert not any(known.up.values())
            await serves(scheduler.address)
    assert [
        record.message for record in caplog.records if record.name == kvstore_link.__name__
    ] == [f"no watch of the KV store at {address}: store_id needs 16 bytes"]


async def test_where_nothing_is_loaded_no_store_is_watched(tmp_path: Path, known: Known) -> None:
    address = address_in(tmp_path)
    store = ScriptedKvStore(address, scripts=[[stored(1, 1)]])
    async with (
        store.running(),
        running_scheduler(tmp_path, kvstore=(address,), kv_load="never") as scheduler,
    ):
        await serves(scheduler.address)
        assert not store.requests
        assert not known.names


async def serves(address: str) -> None:
    """A worker and a frontend come and get on."""
    frontend = ScriptedFrontend(address)
    await frontend.attach()
    async with attached(ScriptedWorker(address)):
        await frontend.submit(1, PROMPT, max_tokens=3)
        await frontend.until(lambda: (1, 0) in frontend.finished)
        assert frontend.tokens[1, 0] == expected(PROMPT, 3)
    await frontend.detach()


async def test_nobody_waits_for_a_store_that_is_not_there(tmp_path: Path, known: Known) -> None:
    stores = (address_in(tmp_path), "127.0.0.1:1")
    async with running_scheduler(tmp_path, kvstore=stores) as scheduler:
        await serves(scheduler.address)
        assert not any(known.up.values())


async def test_a_long_listing_is_taken_in_turns(tmp_path: Path, known: Known) -> None:
    address = address_in(tmp_path)
    count = 10 * kvstore_link.MAX_BATCH_NAMES
    store = ScriptedKvStore(address, scripts=[[stored(1, *range(count))]])
    async with store.running(), running_scheduler(tmp_path, kvstore=(address,)):
        num_turns = 0
        while len(known.batches) < 10:
            num_turns += bool(known.batches)
            await asyncio.sleep(0)
        assert num_turns >= 5
        assert max(known.batches) == kvstore_link.MAX_BATCH_NAMES
        await eventually(lambda: len(known.names[address]) == count)


@asynccontextmanager
async def store_process(address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "contract.scripted_kvstore",
        address,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_stopped_and_a_killed_store_are_down(tmp_path: Path, known: Known) -> None:
    address = address_in(tmp_path)
    async with running_scheduler(tmp_path, kvstore=(address,)) as scheduler:
        async with store_process(address) as process:
            await eventually(
                lambda: known.up.get(address, False) and len(known.names[address]) == 8
            )
            process.send_signal(signal.SIGSTOP)
            await serves(scheduler.address)
            await eventually(lambda: not known.up[address])
            process.send_signal(signal.SIGCONT)
            await eventually(lambda: known.up[address])
            process.kill()
            await eventually(lambda: not known.up[address])
        await serves(scheduler.address)


async def test_workers_are_spread_over_stores(tmp_path: Path) -> None:
    stores = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    async with running_scheduler(tmp_path, kvstore=stores) as scheduler:
        workers = [ScriptedWorker(scheduler.address) for _ in range(4)]

        async def told(worker: ScriptedWorker) -> tuple[str, ...]:
            await eventually(lambda: worker.welcome is not None)
            assert worker.welcome is not None
            return tuple(worker.welcome.kvstore_addresses)

        async with attached(workers[0]), attached(workers[2]):
            first, third = await told(workers[0]), await told(workers[2])
            async with attached(workers[1]):
                second = await told(workers[1])
                assert {first[0], second[0], third[0]} == set(stores)
                assert set(first) == set(second) == set(third) == set(stores)
            async with attached(workers[3]):
                assert await told(workers[3]) == second, "the place of the one that left"


@pytest.mark.parametrize(
    ("stores", "message"),
    [(("nowhere",), "--kvstore: 'nowhere' is no address"), (("a:1", "a:1"), "there twice")],
)
def test_addresses_are_checked_at_the_start(stores: tuple[str, ...], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        SchedulerConfig(kvstore=stores)
