"""Loads a head that drafts, and gives it a cache of its own before that of the target is sized."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.config import read_config
from pagewire_shared.model_files.folder import check_weights
from pagewire_shared.process.sizes import format_size
from pagewire_worker.attention.registry import make_attention
from pagewire_worker.backend.attention import AttentionBackend
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.backend.state_tap import TapsStates, no_states
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.config import WorkerConfig
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.layers.linear import pick_linear
from pagewire_worker.loading.draft_model import draft_folder, num_cache_blocks
from pagewire_worker.loading.head_tensors import (
    HeadLoader,
    HeadNames,
    HeadTarget,
    head_plan,
    tapped_layers,
)
from pagewire_worker.loading.mtp_tensors import load_mtp, mtp_plan
from pagewire_worker.loading.native_source import NativeSource
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.models.draft_head import DraftHead
from pagewire_worker.speculation.draft_blocks import DraftBlocks
from pagewire_worker.speculation.draft_model import Sample
from pagewire_worker.speculation.head_drafts import HeadDrafts
from pagewire_worker.speculation.settings import HEADS, MTP, SpeculationSettings, read_speculation

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedHead:
    """A head over its cache; `blocks` says what lies in it, and `dtype` is that of the target."""

    head: DraftHead
    cache: KvCache
    attention: AttentionBackend
    blocks: DraftBlocks
    dtype: torch.dtype

    def proposer(self, target: ModelBackend, table: SlotTable, sampler: Sample) -> HeadDrafts:
        """Return what drafts for `target`, from its hidden states.

        Raises:
            StartupError: The target does not hand them out.
        """
        if not isinstance(target, TapsStates):
            raise no_states(target.kernel_set)
        return HeadDrafts(
            head=self.head,
            cache=self.cache,
            attention=self.attention,
            blocks=self.blocks,
            target=target,
            tap=target.tap(self.head.taps),
            dtype=self.dtype,
            table=table,
            sampler=sampler,
        )


def load_head(
    config: WorkerConfig, shape: ReplicaShape, settings: LoadSettings
) -> LoadedHead | None:
    """Return the head of a method that has one; None for others, and where drafts are impossible.

    Args:
        settings: Those of the target.

    Raises:
        StartupError: It cannot be loaded, or not draft for the target.
    """
    asked = read_speculation(config.speculative_config)
    is_possible = shape.device.type == "cpu" and not shape.model.is_encoder
    if asked.method not in HEADS or not is_possible:
        return None  # make_speculator explains what is not possible
    try:
        dtype = _fast_dtype(settings)
        settings = replace(settings, dtype=dtype, on_progress=_unheard)
        return _load(config, shape, settings, asked)
    except StartupError as error:
        text = error.message.removeprefix("--model: ")
        raise StartupError(
            f"--speculative-config: the {asked.method} head: {text}", field="speculative_config"
        ) from error


def _fast_dtype(settings: LoadSettings) -> torch.dtype:
    """Return the type that torch computes a head in: bfloat16 where the processor multiplies it.

    Elsewhere torch multiplies bfloat16 without instructions for it.
    """
    is_fast = pick_linear("auto", settings.device, settings.dtype).name != "torch"
    return settings.dtype if is_fast else torch.float32


def _unheard(fraction: float) -> None:
    """Take the progress of a head, which is small."""


def _load(
    config: WorkerConfig, shape: ReplicaShape, settings: LoadSettings, asked: SpeculationSettings
) -> LoadedHead:
    source = shape.source
    if not isinstance(source, NativeSource):
        raise StartupError(f"{shape.model.architecture} has no native decoder, which it needs")
    if asked.method == MTP:
        plan, head = _read_mtp(source, settings)
    else:
        folder = draft_folder(config, shape, asked)
        plan, head = _read_published(folder, asked.method, source, settings)
    longest, size = settings.max_model_len, settings.block_size
    cache_shape = replace(plan.cache_shape, groups=())
    num_blocks = num_cache_blocks(cache_shape, settings, asked, longest, shape.max_num_seqs)
    cache = KvCache(
        shape=cache_shape,
        num_blocks=num_blocks,
        block_size=size,
        device=settings.device,
        dtype=settings.dtype,
    )
    _logger.info(
        "a head of method %s makes drafts, with %s of KV cache",
        asked.method,
        format_size(num_blocks * cache.bytes_per_block),
    )
    kind = plan.layers[0].attention.kind
    attention = make_attention("auto", settings.device, settings.dtype, size, kind)
    blocks = DraftBlocks(
        num_slots=shape.max_num_seqs, num_blocks=num_blocks, block_size=size, longest=longest
    )
    return LoadedHead(head=head, cache=cache, attention=attention, blocks=blocks, dtype=shape.dtype)


def _read_published(
    folder: Path, method: str, source: NativeSource, settings: LoadSettings
) -> tuple[ModelPlan, DraftHead]:
    """Return a head that has a folder of its own, and its plan."""
    check_weights(folder, str(folder))
    data, model = read_config(folder), source.plan
    target = HeadTarget(
        num_layers=len(model.layers),
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        embedding=lambda: source.read_embedding(settings),
    )
    plan = head_plan(data, method, target)
    loader = HeadLoader(
        data=data,
        plan=plan,
        target=target,
        weights=SafetensorsReader(folder, settings.device, settings.dtype, names=HeadNames()),
        kind=pick_linear(settings.linear_backend, settings.device, settings.dtype),
        dtype=settings.dtype,
        num_positions=settings.max_model_len,
    )
    return plan, loader.load(method, tapped_layers(data, method, target.num_layers))


def _read_mtp(source: NativeSource, settings: LoadSettings) -> tuple[ModelPlan, DraftHead]:
    """Return the head that lies behind the layers of the model, and its plan."""
    plan = mtp_plan(read_config(source.folder), source.plan)
    head = load_mtp(
        plan,
        f"model.layers.{len(source.plan.layers)}",
        source.open_decoder(settings),
        pick_linear(settings.linear_backend, settings.device, settings.dtype),
        settings.dtype,
        settings.max_model_len,
        lambda: source.read_embedding(settings),
    )
    return plan, head
