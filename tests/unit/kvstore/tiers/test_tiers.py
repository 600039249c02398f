"""The factory of a store, and how much memory it may take."""

import asyncio

import pytest

from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.store.create import TierSettings, create_store
from pagewire_kvstore.tiers.memory_limit import available_bytes, check_memory
from pagewire_shared.errors import StartupError
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.disk_blocks import block_key, block_payload, block_record
from support.processes.redis_server import RedisServer

MIB = 1 << 20


def create(**settings):
    return create_store(
        TierSettings(**{"memory_bytes": MIB, **settings}),
        is_pinned=lambda _: False,
        events=EventLog(1000),
    )


async def test_a_store_of_all_tiers(require_tool, tmp_path):
    program = require_tool("redis-server", "make tools")
    server = RedisServer(program, tmp_path).start()
    settings = {
        "memory_bytes": 16 * GRANULE_BYTES,
        "shared_memory_path": tmp_path / "kv.arena",
        "disk_path": tmp_path / "disk",
        "disk_bytes": 20 * MIB,
        "redis_url": server.url,
        "quota": lambda _: 30 * MIB,
    }
    try:
        for turn in range(2):
            store = create(**settings)
            assert [state.tier for state in store.states()] == ["memory", "disk", "redis"]
            assert (tmp_path / "kv.arena").stat().st_size == 16 * GRANULE_BYTES
            running = asyncio.create_task(store.run())
            for number in range(30 * turn, 30 * turn + 30):
                store.put([block_record(number)])
                await store.wait_written()
            assert store.faults() == {}
            assert len(store.names()) == 30 * turn + 30
            for number, tier in ((0, "disk"), (0, "memory")):
                async with store.load(block_key(number)) as loaded:
                    assert loaded.tier == tier
                    assert bytes(loaded.record.payload) == block_payload(number)
            # What the disk lost is found in Redis, and comes back to the disk, too.
            number = 1
            store._slower[0]._disk.remove(block_key(number))
            async with store.load(block_key(number)) as loaded:
                assert loaded.tier == "redis"
            await store.wait_written()
            assert store._slower[0].holds(block_key(number))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            store.close()
        assert not (tmp_path / "kv.arena").exists()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_bytes": 1 << 50}, "--memory-size asks for"),
        ({"memory_bytes": 1000}, "at least"),
        ({"disk_path": "here"}, "--disk-path and --disk-size"),
        ({"disk_bytes": MIB}, "--disk-path and --disk-size"),
        ({"disk_path": "here", "disk_bytes": 0}, "--disk-size"),
        ({"disk_path": "file", "disk_bytes": MIB}, "--disk-path: .*exists"),
        ({"redis_url": "http://x"}, "--redis"),
        ({"redis_url": "redis://x", "redis_ttl_seconds": 0}, "time to live"),
    ],
)
def test_unavailable_memory_or_disk_is_refused(tmp_path, settings, message):
    (tmp_path / "file").write_text("in the way")
    if "disk_path" in settings:
        settings = {**settings, "disk_path": tmp_path / settings["disk_path"]}
    with pytest.raises(StartupError, match=message):
        create(**settings)


def test_two_stores_on_one_folder(tmp_path):
    store = create(disk_path=tmp_path, disk_bytes=MIB)
    with pytest.raises(StartupError, match=f"{tmp_path}: another process"):
        create(disk_path=tmp_path, disk_bytes=MIB)
    store.close()
    # One that did not start has given the folder back.
    with pytest.raises(StartupError, match="arena"):
        create(disk_path=tmp_path, disk_bytes=MIB, shared_memory_path=tmp_path / "x")
    create(disk_path=tmp_path, disk_bytes=MIB).close()


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


HOST = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:  8000 kB\nCached: 5 kB\n"}
GROUPS_2 = {"proc/self/cgroup": "0::/pod/box\n", "sys/fs/cgroup/pod/box/memory.max": "max\n"}
GROUPS_1 = {"proc/self/cgroup": "4:cpu,memory:/pod\n3:cpuset:/\n"}
USED_2 = {
    "sys/fs/cgroup/pod/memory.max": "1000000\n",
    "sys/fs/cgroup/pod/memory.current": "300000\n",
    "sys/fs/cgroup/pod/memory.stat": "anon 5\ninactive_file 100000\n",
}
USED_1 = {
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "600000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "700000\n",
    "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "9223372036854771712\n",
}


@pytest.mark.parametrize(
    ("files", "num_bytes", "what"),
    [
        (HOST, 8000 * 1024, "host"),
        ({**HOST, **GROUPS_2}, 8000 * 1024, "host"),
        ({**HOST, **GROUPS_2, **USED_2}, 800_000, "sys/fs/cgroup/pod"),
        ({**HOST, **GROUPS_1, **USED_1}, 0, "sys/fs/cgroup/memory"),
        ({**HOST, "proc/self/cgroup": "0::/elsewhere\n", **USED_2}, 8000 * 1024, "host"),
    ],
)
def test_available_memory_respects_host_and_control_groups(tmp_path, files, num_bytes, what):
    write(tmp_path, files)
    assert available_bytes(tmp_path)[0] == num_bytes
    assert what in available_bytes(tmp_path)[1]
    check_memory(num_bytes, "--size", tmp_path)
    with pytest.raises(StartupError, match=f"--size asks for {num_bytes + 1} bytes.*{num_bytes}"):
        check_memory(num_bytes + 1, "--size", tmp_path)


def test_a_host_without_these_files_has_no_bound(tmp_path):
    check_memory(1 << 50, "--size", tmp_path)
