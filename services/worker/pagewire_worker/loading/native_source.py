"""Loads models with the native decoder: config.json, weights, CPU kernels or torch operations."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.table import AdapterStore, AdapterTable
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.attention.registry import AUTO, make_attentions, pick_attention
from pagewire_worker.backend.adapters import AdapterSlots
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import DecodeBounds, ModelBackend, ReservingAttention
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.backend.head import ClassificationHead
from pagewire_worker.backend.source import (
    LoadedReplicaModel,
    LoadSettings,
    ModelSummary,
    Uncaptured,
)
from pagewire_worker.backend.stage_ends import StageEnds
from pagewire_worker.checkpoint.dtypes import FP8, cache_name
from pagewire_worker.checkpoint.load_format import open_weights
from pagewire_worker.checkpoint.stored.cache_scales import StoredScales
from pagewire_worker.checkpoint.stored.reader import StoredReader
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cpu_kernels.adapter_store import FusedAdapterStore
from pagewire_worker.cpu_kernels.backend import KernelRanks
from pagewire_worker.cpu_kernels.decoder import load_decoder as load_fused_decoder
from pagewire_worker.cpu_kernels.fused_model import FusedModel
from pagewire_worker.cpu_kernels.input_slices import InputSlices
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.selection import choose_kernels
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.kv.scaled_rows import SCALED
from pagewire_worker.layers.fp8 import Capability, check_fp8_cache, device_capability
from pagewire_worker.layers.linear import LinearKind
from pagewire_worker.loading.adapter_slots import adapter_table, adapter_targets, tensor_store
from pagewire_worker.models.adapted_decoder import AdaptedDecoder
from pagewire_worker.models.decoder import load_decoder
from pagewire_worker.models.forms import CheckpointForm
from pagewire_worker.models.linear_choice import choose_linears
from pagewire_worker.models.linear_loader import LinearLoader
from pagewire_worker.models.load_parts import load_cache_scales
from pagewire_worker.models.rank_parts import RankLayers
from pagewire_worker.models.torch_backend import DecoderModel, TorchBackend
from pagewire_worker.models.variants import TRITON, attention_names, find_variant
from pagewire_worker.parallel.plan_shards import PlanShard, shard_plan
from pagewire_worker.parallel.plan_stages import cut_stage
from pagewire_worker.parallel.shard_reader import ShardReader
from pagewire_worker.parallel.shared_collectives import SharedCollectives

_logger = logging.getLogger(__name__)

Builder = Callable[[ModelPlan, WeightReader, LinearLoader, int, torch.device], DecoderModel]
"""(plan, weights, linear layers, longest position, device) -> model."""


def _build_triton(
    plan: ModelPlan,
    weights: WeightReader,
    linears: LinearLoader,
    num_positions: int,
    device: torch.device,
) -> DecoderModel:
    from pagewire_worker.cuda.triton_decoder import load_triton_decoder

    return load_triton_decoder(plan, weights, linears, num_positions)


DECODERS: Mapping[str, Builder] = {"torch": load_decoder, "triton": _build_triton}
"""Decoders by the names of models/variants.py; the kernels for CPUs are loaded apart."""


@dataclass(frozen=True, slots=True)
class NativeModel(Uncaptured):
    """A decoder with its weights."""

    decoder: DecoderModel
    attentions: Mapping[AttentionKind, AttentionBackend]
    linears: LinearKind
    classifier: ClassificationHead | None
    table: AdapterSlots | None = None
    cache_scales: Sequence[StoredScales] = ()

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head."""
        return self.classifier

    @property
    def adapters(self) -> AdapterSlots | None:
        """Its adapter slots."""
        return self.table

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the KV cache per position."""
        return self.decoder.plan.cache_shape

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate the scratch memory of attention."""
        shape = self.decoder.plan.attention
        for attention in self.attentions.values():
            if isinstance(attention, ReservingAttention):
                attention.reserve(shape.num_heads, shape.seen_dim, bounds)

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        if self.cache_scales:
            kv_cache.set_scales([(one.key, one.value) for one in self.cache_scales])
        is_exact = self.decoder.is_batch_invariant and self.linears.is_batch_invariant
        return TorchBackend(
            model=self.decoder,
            kv_cache=kv_cache,
            attentions=self.attentions,
            linear_name=self.linears.name,
            on_layer=on_layer,
            is_exact=is_exact and all(one.is_batch_invariant for one in self.attentions.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaModel(NativeModel):
    """A decoder on CUDA; its decodes are captured in graphs, if that is wanted."""

    enforce_eager: bool
    block_size: int

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return about how much memory `captured` takes."""
        from pagewire_worker.cuda.backend import graph_bytes

        if self.enforce_eager:
            return 0
        takes_adapters = self.table is not None
        return graph_bytes(
            self.decoder.plan, bounds, self.block_size, takes_adapters=takes_adapters
        )

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` with its decodes captured."""
        from pagewire_worker.cuda.backend import CudaBackend, captured
        from pagewire_worker.cuda.decode_graphs import CapturableAttention

        assert isinstance(backend, TorchBackend)
        if self.enforce_eager:
            return CudaBackend(backend, None, on_layer)
        capturable: dict[AttentionKind, CapturableAttention] = {}
        for kind, attention in self.attentions.items():
            if not isinstance(attention, CapturableAttention):
                raise StartupError(
                    f"--attention-backend: {attention.name} cannot be captured in graphs, "
                    "give it --enforce-eager",
                    field="attention_backend",
                )
            capturable[kind] = attention
        return captured(backend, self.decoder, capturable, bounds, on_layer, advance)


@dataclass(frozen=True, slots=True)
class NativeSource:
    """A checkpoint whose config.json the native decoder computes."""

    folder: Path
    plan: ModelPlan
    form: CheckpointForm | None = None
    cache_scheme: str | None = None
    shard: PlanShard | None = None
    """The part of one rank, whose plan is `plan`; None for matrices that are not divided."""
    unread: tuple[str, ...] = ()
    """Tensors that other stages read, as in PlanStage."""
    whole: "NativeSource | None" = None
    """What this is a part of; None for a whole model."""

    @property
    def summary(self) -> ModelSummary:
        """A description for the log."""
        scheme = self.cache_scheme
        if scheme is not None and self.plan.attention.latent is not None:
            scheme = f"{scheme} for latents"
        return ModelSummary(
            architecture=self.form.architecture if self.form else self.plan.architecture,
            vocab_size=self.plan.vocab_size,
            max_positions=self.plan.max_positions,
            first_context=self.plan.first_context,
            dtype=self.plan.dtype,
            cache_scheme=scheme,
        )

    def of_rank(self, topology: RankTopology) -> "NativeSource":
        """Return the part of one rank. Raises StartupError naming what cannot be divided."""
        stage = cut_stage(self.plan, topology)
        part = replace(self, plan=stage.plan, unread=stage.unread, whole=self)
        if topology.tp_size == 1:
            return part
        shard = shard_plan(stage.plan, topology)
        return replace(part, plan=shard.plan, shard=shard)

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights. Raises StartupError naming the tensor at fault."""
        self._check_cache_type(settings)
        pool = choose_kernels(self.plan, settings)
        if pool is not None:
            return self._load_fused(pool, settings)
        capability = device_capability(settings.device)
        name = self._attention_name(settings, capability)
        variant = find_variant(
            architecture=self.plan.architecture,
            device=settings.device.type,
            attention=name,
            quantization=settings.quantization,
        )
        layers = variant.linears[settings.quantization]
        linears = choose_linears(layers, self.plan, settings, capability)
        attentions = self._attentions(name, settings, capability, linears)
        reader = self._open(settings)
        weights = self._decoder_weights(reader, settings)
        targets = adapter_targets(self.plan, settings)
        store = None if targets is None else tensor_store(targets, settings, variant.decoder)
        ranks = RankLayers(settings.collectives, self.shard.first_token if self.shard else 0)
        loader = LinearLoader(
            weights, linears, settings.device, settings.dtype, adapters=store, ranks=ranks
        )
        build = DECODERS[variant.decoder]
        decoder = build(self.plan, weights, loader, settings.max_model_len, settings.device)
        if store is not None:
            decoder = AdaptedDecoder(decoder, store.step)
        table = self._adapter_table(targets, settings, store)
        head = self._load_head(reader)
        scales = load_cache_scales(self.plan, reader) if settings.cache_dtype == FP8 else ()
        reader.finish()
        if linears.codes is not None and isinstance(reader, StoredReader):
            loader.log()
        if settings.device.type in variant.graphs:
            return CudaModel(
                decoder=decoder,
                attentions=attentions,
                linears=loader.kind,
                classifier=head,
                table=table,
                cache_scales=scales,
                enforce_eager=settings.enforce_eager,
                block_size=settings.block_size,
            )
        return NativeModel(decoder, attentions, loader.kind, head, table, scales)

    def read_embedding(self, settings: LoadSettings) -> Tensor:
        """Read the embedding, [vocab, hidden], once more. Raises StartupError."""
        shape = (self.plan.vocab_size, self.plan.hidden_size)
        return self.open_decoder(settings).take(f"{self.plan.embedding}.weight", shape)

    def open_decoder(self, settings: LoadSettings) -> WeightReader:
        """Return the tensors of the decoder, none of them read yet."""
        return self._decoder_weights(self._open(settings), settings)

    def _attentions(
        self,
        name: str,
        settings: LoadSettings,
        capability: Capability | None,
        linears: LinearKind,
    ) -> Mapping[AttentionKind, AttentionBackend]:
        """Return the attention of each kind of layer; it reads the type of the cache."""
        attentions = make_attentions(
            name,
            settings.device,
            settings.dtype,
            settings.block_size,
            self.plan.kinds,
            exact=linears.is_batch_invariant,
        )
        if settings.cache_dtype == FP8:
            for attention in attentions.values():
                check_fp8_cache(settings.device, capability, attention)
        return attentions

    def _check_cache_type(self, settings: LoadSettings) -> None:
        """Raise StartupError if keys and values cannot be of the type that is asked for."""
        wanted = cache_name(settings.cache_dtype)
        if wanted == "auto":
            return
        reason = None
        if settings.cache_dtype == SCALED and self.plan.attention.latent is not None:
            reason = "is not for a cache of latents"
        elif settings.cache_dtype == SCALED and settings.device.type != "cpu":
            reason = f"is for CPUs, the device is {settings.device.type}; it has fp8_e4m3"
        elif settings.cache_dtype == SCALED and settings.attention_backend == TRITON:
            reason = "does not go with --attention-backend triton, which has fp8_e4m3"
        if reason is not None:
            raise StartupError(f"--kv-cache-dtype: {wanted} {reason}", field="kv_cache_dtype")

    def _attention_name(self, settings: LoadSettings, capability: Capability | None) -> str:
        """Return the implementation of attention that is asked for, or for "auto" the fastest."""
        if settings.attention_backend != "auto":
            return settings.attention_backend
        picked = pick_attention("auto", capability)
        name = AUTO if picked == "auto" else picked
        architecture = self.plan.architecture
        if name == AUTO or name in attention_names(architecture, settings.device.type):
            return name
        _logger.info("%s attends by %s: no decoder of it takes %s", architecture, AUTO, name)
        return AUTO

    def _load_fused(self, pool: KernelPool, settings: LoadSettings) -> LoadedReplicaModel:
        reader = self._open(settings)
        decoder = load_fused_decoder(
            self.plan,
            self._decoder_weights(reader, settings),
            pool,
            settings.dtype,
            settings.quantization,
            settings.max_model_len,
            self._slices(settings),
        )
        head = self._load_head(reader)
        reader.finish()
        targets, limits = adapter_targets(self.plan, settings), settings.adapters
        store = None if targets is None or limits is None else FusedAdapterStore(targets, limits)
        table = self._adapter_table(targets, settings, store)
        ranks, ends = self._kernel_ranks(settings), StageEnds(settings.collectives)
        return FusedModel(decoder, pool, head, store, table, ranks, ends)

    def _adapter_table(
        self, targets: AdapterTargets | None, settings: LoadSettings, store: AdapterStore | None
    ) -> AdapterTable | None:
        whole = self.whole or self
        return adapter_table(targets, settings, store, whole.plan, self.shard, whole.open_decoder)

    def _slices(self, settings: LoadSettings) -> InputSlices:
        """Return the slices of sums that this rank has."""
        total = settings.sum_slices
        return InputSlices(total, max(1, total // settings.collectives.topology.tp_size))

    def _kernel_ranks(self, settings: LoadSettings) -> KernelRanks | None:
        collectives = settings.collectives
        if self.shard is None or not isinstance(collectives, SharedCollectives):
            return None
        return KernelRanks(collectives.handle, self.shard.first_token, collectives.topology)

    def _open(self, settings: LoadSettings) -> WeightReader:
        names = None if self.form is None else self.form.names
        return open_weights(self.folder, settings, names or self.plan.stacks)

    def _decoder_weights(self, reader: WeightReader, settings: LoadSettings) -> WeightReader:
        weights = reader if self.form is None else self.form.decoder_weights(reader)
        for name in self.unread:
            weights.ignore(name)
        if self.shard is None:
            return weights
        return ShardReader(weights, self.shard, settings.device, settings.dtype)

    def _load_head(self, reader: WeightReader) -> ClassificationHead | None:
        return None if self.form is None else self.form.load_head(reader, self.plan.hidden_size)
