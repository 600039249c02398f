"""The KV cache that the memory of a CUDA device leaves."""

from pathlib import Path

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from support.cells.worker_driver import GREEDY, Driver
from support.oracles.golden_cases import CHECKPOINTS, make_golden_checkpoint

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
MIB = 1024**2
ROOM = 2048 * MIB
LOADED_LATER = 128 * MIB
"""Code of kernels that run in no profile run, such as those that sample."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_golden_checkpoint(tmp_path_factory.mktemp("model"), sorted(CHECKPOINTS)[0])


def test_the_largest_step_runs_within_the_share(folder: Path) -> None:
    free, total = torch.cuda.mem_get_info()
    allowed = total - free + ROOM
    config = WorkerConfig(
        model=str(folder),
        device="cuda",
        dtype="float32",
        max_model_len=720,
        # So many that no cap is met before the share is.
        max_num_seqs=1024,
        gpu_memory_utilization=allowed / total,
        kv_offload="off",
    )
    replica = load_replica(config)
    (group,) = replica.info.cache_groups
    assert ROOM // 4 < replica.info.num_blocks * group.bytes_per_block < ROOM
    prompts = [[3 + index] * 700 for index in range(8)]
    Driver.of(replica).generate(prompts, GREEDY, max_tokens=4, budget=2048)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    assert total - free <= allowed + LOADED_LATER


def test_a_share_that_is_in_use_already_is_an_error(folder: Path) -> None:
    total = torch.cuda.mem_get_info()[1]
    taken = torch.empty(int(0.1 * total), dtype=torch.uint8, device="cuda")
    config = WorkerConfig(
        model=str(folder), device="cuda", max_model_len=720, gpu_memory_utilization=0.1
    )
    with pytest.raises(StartupError, match=r"--gpu-memory-utilization: 0\.1 of") as caught:
        load_replica(config)
    assert "other processes" in caught.value.message
    del taken
