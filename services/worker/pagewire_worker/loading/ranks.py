"""Divides a worker between the ranks of a group, and says what does not go with ranks yet."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from pagewire_shared.errors import InternalError, StartupError
from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.backend.source import LoadedReplicaModel, LoadSettings
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.selection import choose_kernels
from pagewire_worker.host.cpu import num_physical_cores
from pagewire_worker.kv.block_memory import BlockMemory, CacheBlocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.loading.encoder_cache import without_blocks
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.native_source import NativeSource
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.parallel.group_adapters import GroupAdapters
from pagewire_worker.parallel.group_backend import GroupModel
from pagewire_worker.parallel.group_blocks import GroupBlocks, RankBlocks
from pagewire_worker.parallel.group_memory import SLOT_BYTES, GroupMemory
from pagewire_worker.parallel.rank_group import STEP_SECONDS, RankGroup, RankProcesses
from pagewire_worker.parallel.rank_processes import SpawnedRanks
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from pagewire_worker.parallel.sum_slices import why_no_slices
from pagewire_worker.rank_hosts.group import hosted_ranks
from pagewire_worker.rank_hosts.layout import HostLayout
from pagewire_worker.speculation.settings import HEADS, read_speculation

LOAD_SECONDS: Final = 3600.0
"""Time for the other ranks to start and to load their weights; their processes are watched."""

_APART: Final = "KV blocks of stages with several cache groups stay in their worker"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankedConfig:
    """Settings of every rank of a worker, and its group; None for a worker of one rank.

    Attributes:
        elsewhere: Settings of the other ranks, with names of the model that their hosts know.
    """

    config: WorkerConfig
    group: RankGroup | None = None
    shape: ReplicaShape | None = None
    elsewhere: WorkerConfig | None = None

    @property
    def agree(self) -> Callable[[int], int]:
        """From the blocks that rank 0 has room for to those of all: the smallest rank decides."""
        group = self.group
        if group is None:
            return int

        shape = self.shape
        assert shape is not None, "a group has a model"

        def smallest(num_blocks: int) -> int:
            group.functions = {
                **group.functions,
                "count_blocks": lambda: num_blocks,
                "fingerprint": lambda: shape.fingerprint.hex(),
            }
            if self.config.rank_hosts > 1:
                _compare_weights(self.config, group)
            return int(min(group.collective_rpc("count_blocks", LOAD_SECONDS)))

        return smallest


@contextlib.contextmanager
def opened_ranks(
    config: WorkerConfig, shape: ReplicaShape, group: RankGroup | None = None
) -> Iterator[RankedConfig]:
    """Yield the settings of ranks, whose processes have been started; an error ends them.

    Args:
        group: Of ranks that had a replica before; an error leaves them.

    Raises:
        StartupError: A setting or the model does not go with ranks.
    """
    HostLayout(config.num_ranks, config.rank_hosts)
    if config.enable_expert_parallel:
        _check_experts(config, shape)
    if config.sum_slices > 1:
        _check_slices(config, shape)
    if config.num_ranks == 1:
        yield RankedConfig(config)
        return
    topology, asked = topology_of(config, 0), config
    # Whatever cannot be divided is found before a process starts, in the layers of all stages.
    rank_source(shape, topology)
    config = config_of_ranks(config, shape)
    config = _with_kernels(
        config, shape, rank_source(shape, replace(topology, stage=0, num_stages=1))
    )
    _logger.info(
        "ranks compute the model, stages: %d, ranks of each: %d%s, with %s%s",
        topology.num_stages,
        topology.tp_size,
        " with whole experts" if topology.has_whole_experts else "",
        config.cpu_backend,
        "" if joins_blocks(config, shape) else f"; {_APART}",
    )
    # Folders of this host mean nothing on others, whose weights are compared.
    is_here = config.rank_hosts == 1
    elsewhere = config if is_here else replace(config, model=asked.model, revision=asked.revision)
    if group is not None:
        yield RankedConfig(config, group, shape, elsewhere)
        return
    memory = GroupMemory(config.num_ranks, num_stages=topology.num_stages)
    collectives = SharedCollectives(memory, topology, int(STEP_SECONDS * 1000))
    collectives.use_spare_cores(config.ranks_here * (config.cpu_threads or 1))
    group = RankGroup(collectives, _processes(config, elsewhere, memory, collectives))
    # Rank 0 does these itself, where it asks for them.
    group.functions = dict.fromkeys(("open_cache", "tap", "drop"), _nothing)
    with ended_on_error(group):
        yield RankedConfig(config, group, shape, elsewhere)


def _processes(
    config: WorkerConfig,
    elsewhere: WorkerConfig,
    memory: GroupMemory,
    collectives: SharedCollectives,
) -> RankProcesses:
    """Return the processes of the other ranks. Raises StartupError."""
    if config.rank_hosts == 1:
        return SpawnedRanks(config, memory.file, range(1, config.num_ranks))
    return hosted_ranks(config, elsewhere, memory, collectives)


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
    shape: ReplicaShape,
    settings: LoadSettings,
    ranked: RankedConfig,
    on_layer: Callable[[], None],
) -> LoadedReplicaModel:
    """Load the model, or the part of rank 0 while the others load theirs. Raises PagewireError.

    Args:
        on_layer: Called while rank 0 waits for the others, as a sign of progress.
    """
    group = ranked.group
    if group is None:
        return shape.source.load(settings)
    source = rank_source(shape, group.collectives.topology)
    own = replace(settings, collectives=group.collectives)
    loaded = group.beside(
        "load",
        lambda: source.load(own),
        on_layer,
        LOAD_SECONDS,
        {"config": asdict(ranked.elsewhere or ranked.config)},
    )
    slots = loaded.adapters
    return GroupModel(
        loaded,
        group,
        shape.model.vocab_size,
        has_slices=settings.sum_slices > 1,
        slots=None if slots is None else GroupAdapters(slots, group.links),
    )


def drop_ranks(group: RankGroup | None) -> int:
    """Let the other ranks drop what they have loaded; return the bytes that they gave back.

    Raises:
        RankLostError: A rank could not, which ends the group, or is lost.
    """
    if group is None:
        return 0
    try:
        _, *others = group.collective_rpc("drop")
    except InternalError as error:
        group.end(0, error.message)
        raise RankLostError(error.message) from error
    return sum(others)


def topology_of(config: WorkerConfig, rank: int) -> RankTopology:
    """Return the place of a rank of a worker."""
    size = config.tensor_parallel_size
    has_whole_experts = config.enable_expert_parallel and size > 1
    return RankTopology.of(
        rank, size, config.pipeline_parallel_size, has_whole_experts=has_whole_experts
    )


def rank_source(shape: ReplicaShape, topology: RankTopology) -> NativeSource:
    """Return the part of a rank. Raises StartupError naming what cannot be divided."""
    if not isinstance(shape.source, NativeSource):
        kind = _kind(shape)
        field = "tensor_parallel_size" if topology.tp_size > 1 else "pipeline_parallel_size"
        raise _refused(field, f"{kind} are not divided between ranks")
    return shape.source.of_rank(topology)


def joins_blocks(config: WorkerConfig, shape: ReplicaShape) -> bool:
    """Return whether the parts that ranks have of a block can be put together.

    With stages, a layer of a block may be one of any cache group, and the ranks do not know which.
    """
    return config.pipeline_parallel_size == 1 or not _whole_shape(shape).groups


def block_memory(ranked: RankedConfig, shape: ReplicaShape, cache: KvCache) -> BlockMemory:
    """Return the blocks of a replica; `cache` is that of rank 0."""
    group = ranked.group
    rank = None if group is None else rank_blocks(ranked.config, shape, cache, group.collectives)
    if group is None or rank is None:
        return CacheBlocks(cache)
    return GroupBlocks(cache, rank, group)


def rank_blocks(
    config: WorkerConfig, shape: ReplicaShape, cache: KvCache, collectives: SharedCollectives
) -> RankBlocks | None:
    """Return the part of a rank of all blocks; None where they are not put together."""
    if not joins_blocks(config, shape):
        return None
    # What computes is settled for all ranks.
    has_heads_apart = config.cpu_backend == "fused"
    return RankBlocks(cache, _whole_shape(shape), collectives, has_heads_apart=has_heads_apart)


def _whole_shape(shape: ReplicaShape) -> CacheShape:
    """Return the shape of the cache of the whole model."""
    assert isinstance(shape.source, NativeSource), "only native models have ranks"
    return shape.source.plan.cache_shape


def config_of_ranks(config: WorkerConfig, shape: ReplicaShape) -> WorkerConfig:
    """Return the settings of every rank. Raises StartupError for one that has no ranks."""
    is_joining = joins_blocks(config, shape)
    reasons = (
        (shape.device.type != "cpu", "ranks are for CPUs so far, the device is a CUDA device"),
        (
            config.enable_lora and config.rank_hosts > 1,
            "--enable-lora does not go with --rank-hosts yet",
        ),
        (
            config.enable_sleep_mode and config.rank_hosts > 1,
            "--enable-sleep-mode does not go with --rank-hosts yet",
        ),
        (
            config.enable_lora and config.enable_expert_parallel and config.num_ranks > 1,
            "--enable-lora does not go with --enable-expert-parallel yet",
        ),
        (config.attention_backend == "triton", "--attention-backend triton has no ranks"),
        (len(config.roles) < 2 and not is_joining, f"--roles: one alone hands blocks on; {_APART}"),
    )
    for is_wrong, reason in reasons:
        if is_wrong:
            raise _refused(config.rank_field, reason)
    if config.pipeline_parallel_size > 1:
        _check_stages(config)
    num_threads = config.cpu_threads or num_physical_cores() * config.rank_hosts
    return replace(
        config if is_joining else without_blocks(config),
        # What rank 0 has found out is not found out again.
        model=str(shape.files.folder),
        revision="",
        device="cpu",
        dtype=str(shape.dtype).removeprefix("torch."),
        cpu_threads=max(1, num_threads // config.num_ranks),
    )


def _check_experts(config: WorkerConfig, shape: ReplicaShape) -> None:
    """Raise StartupError for a model without experts, or whose rows of all slices are too long."""
    source = shape.source
    if not isinstance(source, NativeSource):
        return  # one rank has what there is, and more are refused
    if not source.plan.has_experts:
        raise _refused("enable_expert_parallel", "the model has no experts")
    if 4 * source.plan.hidden_size * config.sum_slices > SLOT_BYTES:
        raise _refused("enable_expert_parallel", "a row of all --sum-slices does not fit in memory")


def _compare_weights(config: WorkerConfig, group: RankGroup) -> None:
    """Raise StartupError if another host has other weights than rank 0."""
    own, *others = group.collective_rpc("fingerprint", LOAD_SECONDS)
    layout = HostLayout(config.num_ranks, config.rank_hosts)
    for rank, found in enumerate(others, 1):
        host = layout.host_of(rank)
        if host > 0 and found and found != own:
            raise StartupError(
                f"--model: host {host} of the group has other files, with weights {found[:16]}"
                f" instead of {own[:16]}",
                field="model",
            )


def _check_slices(config: WorkerConfig, shape: ReplicaShape) -> None:
    """Raise StartupError for a setting or a model that goes with no slices of sums."""
    source, reason = shape.source, None
    if not isinstance(source, NativeSource):
        reason = f"{_kind(shape)} have no sums in slices"
    elif shape.device.type != "cpu":
        reason = f"it is for CPUs so far, the device is {shape.device.type}"
    elif config.enable_lora:
        reason = "--enable-lora does not go with slices yet"
    else:
        reason = why_no_slices(source.plan, config.sum_slices, topology_of(config, 0))
    if reason is not None:
        raise _refused("sum_slices", reason)


def _kind(shape: ReplicaShape) -> str:
    return "encoders" if shape.model.is_encoder else "models that run through transformers"


def _check_stages(config: WorkerConfig) -> None:
    """Raise StartupError for a setting that needs all layers in one process."""
    method = read_speculation(config.speculative_config).method
    if method in HEADS:
        raise _refused(
            "pipeline_parallel_size",
            f"--speculative-config: method {method} reads hidden states of layers of all stages",
        )
    if config.expert_metrics:
        raise _refused(
            "pipeline_parallel_size", "--expert-metrics counts in one process, not over stages"
        )


def _with_kernels(config: WorkerConfig, shape: ReplicaShape, source: NativeSource) -> WorkerConfig:
    """Return the settings with one choice of kernels for all ranks. Raises StartupError."""
    settings = load_settings(config, shape, lambda fraction, detail: None)
    pool = choose_kernels(source.plan, settings)
    if pool is None:
        return replace(config, cpu_backend="torch")
    return replace(config, cpu_backend="fused", cpu_isa=pool.instruction_set)


def _refused(field: str, reason: str) -> StartupError:
    return StartupError(f"--{field.replace('_', '-')}: {reason}", field=field)


def _nothing(**kwargs: object) -> None:
    pass
