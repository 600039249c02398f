"""Divides a worker between the ranks of a group, and says what does not go with ranks yet."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.backend.source import LoadedReplicaModel, LoadSettings
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.selection import choose_kernels
from pagewire_worker.host.cpu import num_physical_cores
from pagewire_worker.loading.encoder_cache import without_blocks
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.native_source import NativeSource
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.parallel.group_backend import GroupModel
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.rank_group import STEP_SECONDS, RankGroup
from pagewire_worker.parallel.rank_processes import SpawnedRanks
from pagewire_worker.parallel.shared_collectives import SharedCollectives

LOAD_SECONDS: Final = 3600.0
"""Time for the other ranks to load their weights after rank 0 has; their processes are watched."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankedConfig:
    """Settings of every rank of a worker, and its group; None for a worker of one rank."""

    config: WorkerConfig
    group: RankGroup | None = None

    @property
    def num_ranks(self) -> int:
        """Ranks of the worker."""
        return self.config.tensor_parallel_size

    @property
    def agree(self) -> Callable[[int], int]:
        """From the blocks that rank 0 has room for to those of all: the smallest rank decides."""
        group = self.group
        if group is None:
            return int

        def smallest(num_blocks: int) -> int:
            group.functions = {
                "count_blocks": lambda: num_blocks,
                # Rank 0 does the others itself, where it asks for them.
                "open_cache": _nothing,
                "tap": _nothing,
            }
            return int(min(group.collective_rpc("count_blocks", LOAD_SECONDS)))

        return smallest


@contextlib.contextmanager
def opened_ranks(config: WorkerConfig, shape: ReplicaShape) -> Iterator[RankedConfig]:
    """Yield the settings of ranks, whose processes have been started; an error ends them.

    Raises:
        StartupError: A setting or the model does not go with ranks.
    """
    size = config.tensor_parallel_size
    if size == 1:
        yield RankedConfig(config)
        return
    config = config_of_ranks(config, shape)
    # Whatever cannot be divided is found before a process starts.
    config = _with_kernels(config, shape, rank_source(shape, RankTopology(0, size)))
    _logger.info(
        "%d ranks compute the model, with %s; its KV blocks go neither to KV stores nor to other"
        " workers",
        size,
        config.cpu_backend,
    )
    memory = GroupMemory(size)
    collectives = SharedCollectives(memory, RankTopology(0, size), int(STEP_SECONDS * 1000))
    group = RankGroup(collectives, SpawnedRanks(config, memory, size))
    with ended_on_error(group):
        yield RankedConfig(config, group)


@contextlib.contextmanager
def ended_on_error(group: RankGroup | None) -> Iterator[None]:
    """End the other ranks if the context ends with an error."""
    try:
        yield
    except BaseException:
        if group is not None:
            group.close()
        raise


def load_model(
    shape: ReplicaShape, settings: LoadSettings, group: RankGroup | None
) -> LoadedReplicaModel:
    """Load the model, or the part of rank 0. Raises StartupError."""
    if group is None:
        return shape.source.load(settings)
    source = rank_source(shape, group.collectives.topology)
    loaded = source.load(replace(settings, collectives=group.collectives))
    return GroupModel(loaded, group, shape.model.vocab_size)


def rank_source(shape: ReplicaShape, topology: RankTopology) -> NativeSource:
    """Return the part of a rank. Raises StartupError naming what cannot be divided."""
    if not isinstance(shape.source, NativeSource):
        kind = "encoders" if shape.model.is_encoder else "models that run through transformers"
        raise _refused(f"{kind} are not divided between ranks")
    return shape.source.of_rank(topology)


def config_of_ranks(config: WorkerConfig, shape: ReplicaShape) -> WorkerConfig:
    """Return the settings of every rank. Raises StartupError for one that has no ranks."""
    size = config.tensor_parallel_size
    reasons = (
        (shape.device.type != "cpu", "ranks are for CPUs so far, the device is a CUDA device"),
        (config.enable_sleep_mode, "--enable-sleep-mode does not go with ranks yet"),
        (config.enable_lora, "--enable-lora does not go with ranks yet"),
        (config.attention_backend == "triton", "--attention-backend triton has no ranks"),
        (
            len(config.roles) < 2,
            "--roles: a worker of ranks prefills and decodes, since its blocks are not handed on",
        ),
    )
    for is_wrong, reason in reasons:
        if is_wrong:
            raise _refused(reason)
    return replace(
        without_blocks(config),
        # What rank 0 has found out is not found out again.
        model=str(shape.files.folder),
        revision="",
        device="cpu",
        dtype=str(shape.dtype).removeprefix("torch."),
        cpu_threads=max(1, (config.cpu_threads or num_physical_cores()) // size),
    )


def _with_kernels(config: WorkerConfig, shape: ReplicaShape, source: NativeSource) -> WorkerConfig:
    """Return the settings with one choice of kernels for all ranks. Raises StartupError."""
    settings = load_settings(config, shape, lambda fraction, detail: None)
    pool = choose_kernels(source.plan, settings)
    if pool is None:
        return replace(config, cpu_backend="torch")
    return replace(config, cpu_backend="fused", cpu_isa=pool.instruction_set)


def _refused(reason: str) -> StartupError:
    return StartupError(f"--tensor-parallel-size: {reason}", field="tensor_parallel_size")


def _nothing(**kwargs: object) -> None:
    pass
