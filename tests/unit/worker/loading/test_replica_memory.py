"""A replica that is dropped and made again: same tokens, less memory between, faults can be tried
again."""

import shutil
import weakref
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from pagewire_shared.errors import StartupError, UnavailableError
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, MemoryTag, SleepOrder
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading import replica_memory, replica_shape
from pagewire_worker.loading.replica_memory import ReplicaMemory
from support.cells.worker_driver import PROMPT, Driver
from support.checkpoints.checkpoints import make_checkpoint

CACHE_BYTES = 64 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), with_tokenizer=False)


def memory_of(folder: Path, **settings) -> ReplicaMemory:
    defaults = {"max_model_len": 256, "cpu_threads": 1, "kv_cache_memory": CACHE_BYTES}
    memory = ReplicaMemory(
        WorkerConfig(model=str(folder), enable_sleep_mode=True, **{**defaults, **settings})
    )
    memory.load()
    return memory


def tokens(memory: ReplicaMemory) -> list[list[int]]:
    return Driver.of(memory.replica).generate([PROMPT, PROMPT[:20]])


def fall_asleep(memory: ReplicaMemory, level: int = 1) -> int:
    memory.begin_sleep()
    return memory.drop(SleepOrder(level=level))


@pytest.mark.parametrize(("backend", "level"), [("fused", 1), ("fused", 2), ("torch", 2)])
def test_a_wake_makes_the_same_replica(folder, backend, level):
    memory = memory_of(folder, cpu_backend=backend)
    before, info = tokens(memory), memory.replica.info
    cache = memory.replica.model_runner.backend.kv_cache
    with torch.inference_mode():
        for part in chain.from_iterable(layer.parts for layer in cache.stored):
            part.fill_(1)
    gone = weakref.ref(cache)
    del cache, part
    assert fall_asleep(memory, level) > 0.9 * info.num_cache_bytes
    assert gone() is None
    assert memory.sleep.state is MemoryState.ASLEEP
    assert memory.sleep.level == level
    memory.begin_wake()
    assert memory.wake(ALL_TAGS).info == info
    assert memory.sleep is None
    assert tokens(memory) == before


def test_parts_are_made_one_by_one(folder):
    memory = memory_of(folder)
    before = tokens(memory)
    for tags in ([MemoryTag.WEIGHTS], [MemoryTag.KV_CACHE]), ([MemoryTag.KV_CACHE], ALL_TAGS):
        fall_asleep(memory)
        memory.begin_wake()
        assert memory.wake(tags[0]) is None
        assert memory.sleep.state is MemoryState.ASLEEP
        assert memory.sleep.awake == frozenset(tags[0])
        memory.begin_wake()
        assert memory.wake(tags[1]) is not None
        assert tokens(memory) == before


@pytest.mark.parametrize("level", [1, 2])
def test_a_checkpoint_that_has_changed_does_not_wake_until_it_is_back(folder, tmp_path, level):
    copy = shutil.copytree(folder, tmp_path / "copy")
    memory = memory_of(copy)
    before = tokens(memory)
    fall_asleep(memory, level)
    (path,) = copy.glob("*.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    memory.begin_wake()
    with pytest.raises(UnavailableError, match="has changed: start the worker again"):
        memory.wake(ALL_TAGS)
    assert memory.sleep.state is MemoryState.ASLEEP
    assert "cannot wake" in str(memory.sleep.error)
    path.write_bytes(data)
    memory.begin_wake()
    assert memory.wake(ALL_TAGS) is not None
    assert tokens(memory) == before


def test_a_wake_shows_progress(folder):
    progress = []
    memory = ReplicaMemory(
        WorkerConfig(model=str(folder), enable_sleep_mode=True, max_model_len=64, cpu_threads=1),
        on_layer=lambda: progress.append(1),
    )
    memory.load()
    fall_asleep(memory)
    progress.clear()
    memory.begin_wake()
    memory.wake([MemoryTag.WEIGHTS])
    assert len(progress) > 3


def test_a_missing_checkpoint_is_one_line(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    memory = memory_of(copy)
    fall_asleep(memory, 2)
    shutil.move(copy, tmp_path / "away")
    memory.begin_wake()
    with pytest.raises(UnavailableError) as caught:
        memory.wake(ALL_TAGS)
    assert "\n" not in caught.value.message
    shutil.move(tmp_path / "away", copy)
    memory.begin_wake()
    assert memory.wake(ALL_TAGS) is not None


def test_moves_that_the_table_does_not_have(folder):
    memory = memory_of(folder)
    with pytest.raises(AssertionError, match="no move from awake to waking"):
        memory.begin_wake()
    with pytest.raises(AssertionError, match="no move from awake to asleep"):
        memory.drop(SleepOrder())


def test_sleep_after_a_time_needs_sleep_mode(folder):
    with pytest.raises(StartupError, match="--sleep-after-seconds needs --enable-sleep-mode"):
        WorkerConfig(model=str(folder), sleep_after_seconds=5.0)


def test_workers_on_cuda_refuse_it(folder, monkeypatch):
    shape = replica_shape.resolve_shape(WorkerConfig(model=str(folder), max_model_len=64))
    on_cuda = replace(shape, device=torch.device("cuda"))
    monkeypatch.setattr(replica_memory, "resolve_shape", lambda config: on_cuda)
    memory = ReplicaMemory(WorkerConfig(model=str(folder), enable_sleep_mode=True))
    with pytest.raises(StartupError, match="--enable-sleep-mode: only workers on CPUs sleep"):
        memory.load()
