"""Builds a replica from its configuration: folder, shape, weights, cache, backend, warm-up.

Every fault of a checkpoint or a setting is found here, before the first attach.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from pagewire_shared.identity.model_files import ModelFiles
from pagewire_worker.adapters.loader import AdapterLoader
from pagewire_worker.adapters.warm import WarmAdapters
from pagewire_worker.backend.adapters import AdapterSlots
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.expert_counts import CountsExperts, ExpertCounts, no_expert_counts
from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.extension.worker_extension import RankFacts
from pagewire_worker.grammars.compiled import CompiledGrammars
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.drafts import TableDrafts
from pagewire_worker.grammars.table import GrammarTable
from pagewire_worker.host.kept_facts import cache_folder
from pagewire_worker.kv.block_memory import BlockMemory
from pagewire_worker.kv.block_names import BlockNames
from pagewire_worker.kv.block_observer import BlockObserver, BlockObservers
from pagewire_worker.kv.cuda_copies import make_copies
from pagewire_worker.kv.device_copies import CopyOrder, DeviceCopies
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.layers.fp8 import device_capability
from pagewire_worker.loading.cache_sizing import CacheSettings, make_cache
from pagewire_worker.loading.description import describe, hands_out
from pagewire_worker.loading.draft_head import LoadedHead, load_head
from pagewire_worker.loading.draft_model import LoadedDraft, load_draft
from pagewire_worker.loading.encoder_cache import encoder_cache, without_blocks
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.profile_run import LargestStep, MostSampling
from pagewire_worker.loading.ranks import (
    RankedConfig,
    block_memory,
    ended_on_error,
    load_model,
    opened_ranks,
)
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.loading.replica_shape import ReplicaShape, resolve_shape
from pagewire_worker.loading.speculation import Drafting, make_speculator
from pagewire_worker.loading.token_budget import StepTokens, calibrated_budget
from pagewire_worker.loading.warm_up import warm_up
from pagewire_worker.offload.block_offloader import BlockOffloader
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.runner.sampler_choice import pick_sampler
from pagewire_worker.runner.step_sampler import Sampler
from pagewire_worker.speculation.speculator import Speculator
from pagewire_worker.transfer.block_sharer import BlockSharer

Progress = Callable[[float, str], None]
"""(fraction, what is being done)."""


def no_progress(fraction: float, detail: str) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A loaded model, ready to run plans; `offloader` is absent where blocks do not go to stores,
    `sharer` where they do not go to other workers, `expert_counts` where none are asked for,
    `adapters` where it takes none, `speculator` without speculation, `group` with one rank.
    `layers` is called for each layer of its steps."""

    info: ReplicaInfo
    model_runner: ModelRunner
    grammars: GrammarCompiler
    copies: DeviceCopies
    layers: LayerCalls
    facts: RankFacts
    offloader: BlockOffloader | None = None
    sharer: BlockSharer | None = None
    expert_counts: ExpertCounts | None = None
    adapters: AdapterLoader | None = None
    speculator: Speculator | None = None
    group: RankGroup | None = None


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A model with its draft model or head, without a KV cache; `ranked` are its settings, `pools`
    the threads that they run on."""

    ranked: RankedConfig
    shape: ReplicaShape
    model: LoadedReplicaModel
    draft: LoadedDraft | LoadedHead | None
    pools: Mapping[str, KernelPool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EarlierReplica:
    """The replica that another one replaces in the same process. The new one has its cache size,
    the tokens of its steps, and the `warm` contents of adapters."""

    info: ReplicaInfo
    warm: WarmAdapters | None = None


def load_replica(
    config: WorkerConfig,
    *,
    on_progress: Progress = no_progress,
    on_layer: Callable[[], None] = lambda: None,
) -> Replica:
    """Load the model and run one small batch.

    Args:
        on_progress: Called with the fraction loaded and what is being done.
        on_layer: Called after each layer of each step, warm-up included.

    Raises:
        StartupError: A setting or the checkpoint does not do.
    """
    on_progress(0.0, "finding the model")
    shape = resolve_shape(config)
    weights = load_weights(config, shape, on_progress=on_progress, on_layer=on_layer)
    return make_replica(weights, on_progress=on_progress, on_layer=on_layer)


@torch.inference_mode()
def load_weights(
    config: WorkerConfig,
    shape: ReplicaShape,
    *,
    group: RankGroup | None = None,
    on_progress: Progress = no_progress,
    on_layer: Callable[[], None] = lambda: None,
) -> LoadedWeights:
    """Load the model of `shape`, and its draft model or head if it has one. Raises StartupError.

    Args:
        group: Of the ranks that had the replica before, if there are any.
    """
    config = without_blocks(config) if shape.model.is_encoder else config
    with opened_ranks(config, shape, group) as ranked:
        config, settings = ranked.config, load_settings(ranked.config, shape, on_progress)
        model = load_model(shape, settings, ranked, on_layer)
        draft = load_draft(config, shape, settings, on_layer) or load_head(config, shape, settings)
    on_progress(0.9, "allocating the KV cache")
    return LoadedWeights(ranked, shape, model, draft, settings.pools)


@torch.inference_mode()
def make_replica(
    weights: LoadedWeights,
    *,
    earlier: EarlierReplica | None = None,
    on_progress: Progress = no_progress,
    on_layer: Callable[[], None] = lambda: None,
) -> Replica:
    """Make cache, slots and backend of a model, and run one small batch. Raises StartupError."""
    with ended_on_error(weights.ranked.group if earlier is None else None):
        return _make_replica(weights, earlier, on_progress, on_layer)


def _make_replica(
    weights: LoadedWeights,
    earlier: EarlierReplica | None,
    on_progress: Progress,
    on_layer: Callable[[], None],
) -> Replica:
    config, shape, model = weights.ranked.config, weights.shape, weights.model
    slots, sampler, cache = _make_memory(weights, LayerCalls(on_layer), earlier)
    copies, names = make_copies(shape.device), BlockNames()
    blocks = block_memory(weights.ranked, shape, cache)
    sharer = BlockSharer(blocks, names, copies) if hands_out(config) else None
    watch = LayerCalls(on_layer, sharer)
    backend = model.captured(model.backend(cache, watch), shape.bounds, watch, on_layer)
    offloader = _make_offloader(config, blocks, copies)
    grammars = make_grammars(shape.files, shape.model.vocab_size)
    step_tokens = _step_tokens(config, shape, backend, slots.limits.max_model_len, earlier)
    drafting = Drafting(slots, sampler, weights.draft, step_tokens.shared)
    speculator = make_speculator(config, shape, backend, drafting, grammars.drafts)
    model_runner = ModelRunner(
        backend=backend,
        limits=slots.limits,
        max_num_batched_tokens=step_tokens.most,
        device=shape.device,
        steps_in_flight=config.steps_in_flight,
        grammars=grammars.table,
        observer=_observers(offloader, sharer, CopyOrder(copies)),
        names=names,
        memory=blocks,
        copies=copies,
        sampler=sampler,
        slots=slots,
        head=model.head,
        adapters=model.adapters,
        speculator=speculator,
    )
    _warm_up(model_runner, slots.limits, step_tokens, shape, on_progress)
    return Replica(
        info=describe(config, shape, model, model_runner, step_tokens, slots.limits.max_model_len),
        model_runner=model_runner,
        grammars=grammars.compiler,
        copies=copies,
        layers=watch,
        facts=_facts(config, shape),
        offloader=offloader,
        sharer=sharer,
        expert_counts=_count_experts(config, backend),
        adapters=_make_adapters(config, model.adapters, earlier),
        speculator=speculator,
        group=weights.ranked.group,
    )


def _make_adapters(
    config: WorkerConfig, slots: AdapterSlots | None, earlier: EarlierReplica | None
) -> AdapterLoader | None:
    if slots is None:
        return None
    warm = None if earlier is None else earlier.warm
    num_warm = config.max_cpu_loras or 4 * config.max_loras
    return AdapterLoader(slots, warm or WarmAdapters(num_warm, config.lora_memory))


def _make_memory(
    weights: LoadedWeights, watch: LayerCalls, earlier: EarlierReplica | None
) -> tuple[SlotTable, Sampler, KvCache]:
    """Return the slots and the cache of a replica, and the sampler between them."""
    # What lives as long as the replica comes before the cache, which takes what is left.
    ranked, shape, model = weights.ranked, weights.shape, weights.model
    config = ranked.config
    model.reserve(shape.bounds)
    slots = _slots(config, shape, model)
    sampler = pick_sampler(
        shape.device, device_capability(shape.device), shape.model.vocab_size, weights.pools
    )
    agree = ranked.agree
    if earlier is not None and ranked.group is not None:
        agree = partial(_as_before, earlier.info.num_blocks)
    elif earlier is not None:
        config = replace(config, kv_cache_memory=earlier.info.num_cache_bytes)
    settings = replace(
        cache_settings(config, shape, model),
        sampling=MostSampling(sampler, slots.tokens),
        agree=agree,
    )
    cache = encoder_cache(shape, config.block_size) or make_cache(model, settings, watch)
    slots.limits = _with_blocks(slots.limits, cache)
    return slots, sampler, cache


def _as_before(known: int, num_blocks: int) -> int:
    """Return the blocks that all ranks had."""
    return known


def _count_experts(config: WorkerConfig, backend: ModelBackend) -> ExpertCounts | None:
    """Begin to count, if that is on: what ran before is no work of requests."""
    if not config.expert_metrics:
        return None
    if not isinstance(backend, CountsExperts):
        raise no_expert_counts(backend.kernel_set)
    return backend.count_experts()


def _step_tokens(
    config: WorkerConfig,
    shape: ReplicaShape,
    backend: ModelBackend,
    max_model_len: int,
    earlier: EarlierReplica | None,
) -> StepTokens:
    if earlier is not None:
        return StepTokens(earlier.info.shared_step_tokens, earlier.info.max_num_batched_tokens)
    fixed = shape.max_num_batched_tokens
    if fixed is not None:
        return StepTokens(fixed, fixed)
    model = f"{shape.fingerprint.hex()} {config.quantization}"
    tokens = calibrated_budget(backend, model, max_model_len, cache_folder())
    # A step must have room for one token of every running sequence.
    least = shape.max_num_seqs
    return StepTokens(max(tokens.shared, least), max(tokens.most, least))


def _observers(*observers: BlockObserver | None) -> BlockObserver:
    return BlockObservers(*(one for one in observers if one is not None))


def _slots(config: WorkerConfig, shape: ReplicaShape, model: LoadedReplicaModel) -> SlotTable:
    slots = SlotTable(_limits(config, shape, model.cache_shape.windows), shape.device)
    if model.head is not None:
        slots.pooling.scored_kind = model.head.kind
    return slots


def _limits(
    config: WorkerConfig, shape: ReplicaShape, windows: tuple[int | None, ...]
) -> SlotLimits:
    """Return the limits of a replica that has no blocks yet."""
    return SlotLimits(
        num_slots=shape.max_num_seqs,
        num_blocks=0,
        block_size=config.block_size,
        max_model_len=shape.max_model_len,
        vocab_size=shape.model.vocab_size,
        num_adapters=config.max_loras if config.enable_lora else 0,
        windows=windows,
    )


def _with_blocks(limits: SlotLimits, cache: KvCache) -> SlotLimits:
    """Return the limits of a replica with its blocks, which all together hold one sequence."""
    longest = cache.shape.longest(cache.num_blocks, limits.block_size)
    longest = min(limits.max_model_len, longest)
    return replace(limits, num_blocks=cache.num_blocks, max_model_len=longest)


def _make_offloader(
    config: WorkerConfig, blocks: BlockMemory, copies: DeviceCopies
) -> BlockOffloader | None:
    if config.kv_offload == "off":
        return None
    return BlockOffloader(blocks, is_writeback=config.kv_offload == "writeback", copies=copies)


def cache_settings(
    config: WorkerConfig, shape: ReplicaShape, model: LoadedReplicaModel
) -> CacheSettings:
    """Return what decides the size of the cache of one rank."""
    # Where it is measured, on CPUs, no step is run to see how much memory it takes.
    num_tokens = shape.max_num_batched_tokens or shape.max_num_seqs
    return CacheSettings(
        device=shape.device,
        dtype=shape.cache_dtype,
        block_size=config.block_size,
        step=LargestStep(num_tokens, shape.max_num_seqs, shape.max_model_len),
        asked_bytes=config.kv_cache_memory,
        utilization=config.gpu_memory_utilization,
        graph_bytes=model.graph_bytes(shape.bounds),
        is_len_fitted=shape.is_len_fitted,
        num_ranks=config.num_ranks,
        per_host=config.num_ranks // config.rank_hosts,
    )


@dataclass(frozen=True, slots=True)
class GrammarParts:
    """The two users of one set of compiled grammars.

    The link uses `compiler`, the model runner uses `table`.
    """

    compiler: GrammarCompiler
    table: GrammarTable

    @property
    def drafts(self) -> TableDrafts:
        """Tokens that a grammar leaves no choice about."""
        return TableDrafts(self.table)


def make_grammars(files: ModelFiles, vocab_size: int) -> GrammarParts:
    """Return the grammars of a model with `vocab_size` logits; no file is read yet."""
    compiled = CompiledGrammars()
    return GrammarParts(
        GrammarCompiler(files, vocab_size, compiled), GrammarTable(vocab_size, compiled)
    )


def _warm_up(
    model_runner: ModelRunner,
    limits: SlotLimits,
    step_tokens: StepTokens,
    shape: ReplicaShape,
    on_progress: Progress,
) -> None:
    on_progress(0.95, "warming up")
    warm_up(model_runner, limits, step_tokens.shared, is_encoder=shape.model.is_encoder)
    on_progress(1.0, "loaded")


def _facts(config: WorkerConfig, shape: ReplicaShape) -> RankFacts:
    """Return what an extension finds in rank 0."""
    folder, ranks = shape.files.folder, config.num_ranks
    return RankFacts.of(folder, shape.device, shape.dtype, rank=0, num_ranks=ranks)
