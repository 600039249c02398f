"""Ranks as processes: they compute what one rank computes, reply to calls, and end together."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_shared.errors import InternalError
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel import rank_processes
from pagewire_worker.parallel.rank_task import RankTask
from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import children_of


def test_a_task_is_read_as_it_was_written() -> None:
    config = WorkerConfig(model="m", tensor_parallel_size=2, roles=("prefill", "decode"))
    task = RankTask(config=config, rank=1, fd=7, link=8, slot_bytes=64, stacks_fd=9, parent=12)
    assert RankTask.decode(task.encode()) == task


def test_a_rank_is_tied_to_its_parent_before_torch_is_loaded() -> None:
    """Importing torch takes seconds, in which rank 0 may end."""
    program = "import sys, pagewire_worker.rank; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


@needs_kernels
def test_a_rank_that_is_killed_ends_its_group(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM")
    settings = {"max_num_batched_tokens": 64, "kv_cache_memory": 1 << 22}
    prompts = [[5, 6, 7], list(range(30, 60))]
    expected = Driver.of(load(folder, **settings)).generate(prompts)
    before = set(children_of(os.getpid()))
    replica = load(folder, tensor_parallel_size=2, **settings)
    group = replica.group
    assert group is not None
    try:
        driver = Driver.of(replica)
        assert driver.generate(prompts) == expected
        counts = group.collective_rpc("count_blocks")
        assert counts == [replica.info.num_blocks] * 2
        with pytest.raises(InternalError, match="rank 0: nothing_such: there is no such function"):
            group.collective_rpc("nothing_such")
        with pytest.raises(InternalError, match=r"rank 1: open_cache: TypeError: .*'blocks'"):
            group.collective_rpc("open_cache", kwargs={"blocks": 1})
        assert driver.generate(prompts) == expected
        (pid,) = set(children_of(os.getpid())) - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            RankLostError, match="rank 1 of 2 is lost: its process ended with SIGKILL"
        ):
            driver.generate(prompts)
        assert isinstance(group.lost.exception(5), RankLostError)
    finally:
        group.close()
    # Reaped, not only dead.
    assert set(children_of(os.getpid())) == before


@needs_kernels
def test_a_rank_that_does_not_start_ends_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that does nothing is the quickest process that ends."""
    monkeypatch.setattr(rank_processes, "MODULE", "keyword")
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM")
    before = set(children_of(os.getpid()))
    ended = "rank 1 of 2 is lost: its process ended with exit status 0"
    with pytest.raises(RankLostError, match=ended):
        load(folder, tensor_parallel_size=2, kv_cache_memory=1 << 22)
    assert set(children_of(os.getpid())) == before
