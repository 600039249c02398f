"""Replicas of ranks that are dropped and made again: all ranks give their memory back and have the
same tokens afterwards; what fails in one of them is named, and the others go on."""

import shutil
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.errors import UnavailableError
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, MemoryTag, SleepOrder
from pagewire_shared.weights.version import STARTED, UpdateOrder, WeightsSource
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.loading import replica_memory
from pagewire_worker.loading.replica_memory import ReplicaMemory
from pagewire_worker.serving import rank_loop
from pagewire_worker.serving.weights_check import check_weights
from support.adapters.model_adapters import make_adapter
from support.cells.rank_threads import use_threads
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels

pytestmark = needs_kernels

SIZES = {
    "divided": {"tensor_parallel_size": 2},
    "staged": {"pipeline_parallel_size": 2},
}

CASES = ("divided", pytest.param("staged", marks=pytest.mark.long))

Open = Callable[..., ReplicaMemory]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("model")
    return make_checkpoint(place / "m", architecture="Qwen3ForCausalLM", layers=2, seed=1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return what loads a replica of ranks, which are threads."""
    use_threads(monkeypatch)
    found: list[ReplicaMemory] = []

    def open_memory(folder: Path, **settings: Any) -> ReplicaMemory:
        defaults = {"max_model_len": 256, "cpu_threads": 2, "kv_cache_memory": 8 << 20}
        memory = ReplicaMemory(WorkerConfig(model=str(folder), **{**defaults, **settings}))
        memory.load()
        found.append(memory)
        return memory

    yield open_memory
    for memory in found:
        group = memory._group
        assert group is not None
        group.close()


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list["weakref.ref[KvCache]"]:
    """The caches of the ranks behind the first, as they are made."""
    found: list[weakref.ref[KvCache]] = []

    class Noted(KvCache):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            found.append(weakref.ref(self))

    monkeypatch.setattr(rank_loop, "KvCache", Noted)
    return found


def tokens(memory: ReplicaMemory) -> list[list[int]]:
    return Driver.of(memory.replica).generate([PROMPT, PROMPT[:20]])


def fall_asleep(memory: ReplicaMemory, level: int = 1) -> None:
    memory.begin_sleep()
    memory.drop(SleepOrder(level=level))


def wake(memory: ReplicaMemory, tags: Any = ALL_TAGS) -> Any:
    memory.begin_wake()
    return memory.wake(tags)


@pytest.mark.parametrize("size", CASES)
def test_all_ranks_sleep_and_wake(
    folder: Path, opened: Open, caches: list["weakref.ref[KvCache]"], size: str
) -> None:
    memory = opened(folder, enable_sleep_mode=True, **SIZES[size])
    before, info = tokens(memory), memory.replica.info
    for level in (1, 2):
        assert caches[-1]() is not None
        fall_asleep(memory, level)
        assert caches[-1]() is None
        assert wake(memory).info == info
        assert tokens(memory) == before
    fall_asleep(memory)
    assert wake(memory, [MemoryTag.WEIGHTS]) is None
    assert wake(memory, [MemoryTag.KV_CACHE]).info == info
    assert tokens(memory) == before


def test_what_ranks_give_back_is_summed(folder: Path, opened: Open, monkeypatch: Any) -> None:
    """Each rank says by how much its process became smaller."""
    memory = opened(folder, enable_sleep_mode=True, tensor_parallel_size=4)
    sizes: dict[int, Iterator[int]] = defaultdict(lambda: iter([500, 400]))
    monkeypatch.setattr(rank_loop, "resident_bytes", lambda: next(sizes[threading.get_ident()]))
    monkeypatch.setattr(replica_memory, "resident_bytes", lambda: 1000)
    memory.begin_sleep()
    assert memory.drop(SleepOrder()) == 3 * 100
    assert memory.sleep is not None
    assert memory.sleep.num_bytes == 3 * 100


def test_adapters_are_loaded_again(folder: Path, opened: Open, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", folder, outer=True)
    memory = opened(folder, enable_lora=True, enable_sleep_mode=True, tensor_parallel_size=2)

    def answer() -> list[int]:
        runner = memory.replica.model_runner
        adapter.fill(runner, 0)
        driver, sequence = Driver.of(memory.replica), Running(0, PROMPT, GREEDY, 8, adapter_slot=0)
        driver.finish([sequence], budget=64)
        driver.run_well([])  # frees the slot
        return sequence.output

    before = answer()
    assert before != tokens(memory)[0]
    fall_asleep(memory)
    wake(memory)
    assert memory.replica.adapters is not None
    assert memory.replica.adapters._slots.held == {}
    assert answer() == before


def test_a_wake_that_fails_in_one_rank_can_be_tried_again(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(folder, enable_sleep_mode=True, tensor_parallel_size=2)
    before = tokens(memory)
    for name in ("rank_source", "KvCache"):
        fall_asleep(memory)
        with monkeypatch.context() as broken:

            def fail(*_: Any, **__: Any) -> None:
                raise MemoryError("there is none")

            broken.setattr(rank_loop, name, fail)
            with pytest.raises(UnavailableError, match=r"cannot wake: rank 1: .*there is none"):
                wake(memory)
        assert memory.sleep is not None
        assert memory.sleep.state is MemoryState.ASLEEP
        assert wake(memory) is not None
        assert tokens(memory) == before


def test_a_missing_checkpoint_is_the_error_of_rank_0(
    folder: Path, opened: Open, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    memory = opened(copy, enable_sleep_mode=True, tensor_parallel_size=2)
    fall_asleep(memory, 2)
    shutil.move(copy, tmp_path / "away")
    with pytest.raises(UnavailableError, match=r"^the worker cannot wake: --model"):
        wake(memory)
    shutil.move(tmp_path / "away", copy)
    assert wake(memory) is not None


def test_a_rank_that_cannot_drop_its_part_ends_the_group(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(folder, enable_sleep_mode=True, tensor_parallel_size=2)
    group = memory.replica.group
    assert group is not None
    memory.begin_sleep()

    def fail() -> None:
        raise OSError("not now")

    monkeypatch.setattr(rank_loop, "give_back", fail)
    with pytest.raises(RankLostError, match="rank 1: drop: OSError: not now"):
        memory.drop(SleepOrder())
    assert isinstance(group.lost.exception(5), RankLostError)


@pytest.mark.parametrize("size", CASES)
def test_all_ranks_get_other_weights(folder: Path, opened: Open, tmp_path: Path, size: str) -> None:
    new = make_checkpoint(tmp_path / "n", architecture="Qwen3ForCausalLM", layers=2, seed=2)
    memory, fresh = opened(folder, **SIZES[size]), opened(new, **SIZES[size])
    before, expected = tokens(memory), tokens(fresh)
    assert before != expected
    fingerprint = check_weights(memory.started, STARTED, str(new))
    for path, mark, wanted in ((str(new), fingerprint, expected), ("/nowhere", b"", expected)):
        memory.begin_sleep()
        memory.drop(SleepOrder())
        memory.begin_wake()
        memory.update(UpdateOrder(WeightsSource(path=path, serial=5), mark))
        assert (memory.failed_update is None) == (path == str(new))
        assert tokens(memory) == wanted
