"""Loads a draft model, and gives it a cache of its own before that of the target is sized."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import BUILTIN_NAME, builtin_folder, resolve_model
from pagewire_shared.model_files.folder import check_weights
from pagewire_shared.process.sizes import format_size
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.source import LoadSettings, ModelSummary
from pagewire_worker.config import QUANTIZATIONS, WorkerConfig
from pagewire_worker.host.cpu import free_memory_bytes
from pagewire_worker.kv.kv_cache import CacheShape, KvCache, bytes_per_block
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.loading.source_selection import choose_source
from pagewire_worker.speculation.draft_blocks import DraftBlocks
from pagewire_worker.speculation.settings import (
    DRAFT_MODEL,
    SpeculationSettings,
    read_speculation,
)

DEFAULT_BYTES: Final = 256 * 1024**2
FREE_SHARE: Final = 1 / 16
"""Of the free memory, that keys and values of a draft model take at most by default."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedDraft:
    """A draft model with its cache; `blocks` says what lies in it."""

    backend: ModelBackend
    blocks: DraftBlocks


def load_draft(
    config: WorkerConfig,
    shape: ReplicaShape,
    settings: LoadSettings,
    on_layer: Callable[[], None],
) -> LoadedDraft | None:
    """Return the draft model; None for a replica without one.

    Args:
        settings: Those of the target.
        on_layer: Called after each of its layers.

    Raises:
        StartupError: It cannot be loaded, or not draft for the target.
    """
    asked = read_speculation(config.speculative_config)
    is_possible = shape.device.type == "cpu" and not shape.model.is_encoder
    if asked.method != DRAFT_MODEL or not is_possible:
        return None  # make_speculator explains what is not possible
    try:
        return _load(config, shape, settings, asked, on_layer)
    except StartupError as error:
        text = error.message.removeprefix("--model: ")
        raise StartupError(
            f"--speculative-config: the draft model: {text}", field="speculative_config"
        ) from error


def _load(
    config: WorkerConfig,
    shape: ReplicaShape,
    settings: LoadSettings,
    asked: SpeculationSettings,
    on_layer: Callable[[], None],
) -> LoadedDraft:
    folder = draft_folder(config, shape, asked)
    if config.load_format == "auto":
        check_weights(folder, str(folder))
    source = choose_source(folder, "native", config.load_format)
    _check(source.summary, shape.model)
    longest = min(shape.max_model_len, source.summary.max_positions or shape.max_model_len)
    loaded = source.load(_own_settings(settings, asked, longest))
    # Its sequences keep all their blocks, so windows need no groups.
    cache_shape = replace(loaded.cache_shape, groups=())
    num_blocks = num_cache_blocks(cache_shape, settings, asked, longest, shape.max_num_seqs)
    cache = KvCache(
        shape=cache_shape,
        num_blocks=num_blocks,
        block_size=settings.block_size,
        device=settings.device,
        dtype=settings.dtype,
    )
    size = format_size(num_blocks * cache.bytes_per_block)
    _logger.info("%s makes drafts, with %s of KV cache", source.summary.architecture, size)
    blocks = DraftBlocks(
        num_slots=shape.max_num_seqs,
        num_blocks=num_blocks,
        block_size=settings.block_size,
        longest=longest,
    )
    return LoadedDraft(loaded.backend(cache, LayerCalls(on_layer)), blocks)


def _check(draft: ModelSummary, target: ModelSummary) -> None:
    """Raise StartupError if a model cannot draft for another one."""
    if draft.is_encoder:
        raise StartupError("an encoder generates nothing")
    if draft.vocab_size != target.vocab_size:
        raise StartupError(
            f"its vocabulary has {draft.vocab_size} tokens, that of the model {target.vocab_size}"
        )


def _own_settings(settings: LoadSettings, asked: SpeculationSettings, longest: int) -> LoadSettings:
    """Return the settings of a draft model, made of those of the target."""
    quantization = asked.quantization or settings.quantization
    if quantization not in QUANTIZATIONS:
        raise StartupError(f"quantization {quantization!r} is none of {', '.join(QUANTIZATIONS)}")
    return replace(
        settings,
        max_model_len=longest,
        quantization=quantization,
        cache_dtype=None,
        adapters=None,
        # One rank computes it, whatever the number of ranks.
        sum_slices=1,
        on_progress=lambda fraction: None,
    )


def draft_folder(config: WorkerConfig, shape: ReplicaShape, asked: SpeculationSettings) -> Path:
    """Return the folder of the draft model: of the built-in model, there is one by default."""
    name = asked.model
    if not name:
        if shape.files.folder != builtin_folder(BUILTIN_NAME):
            raise StartupError("model is needed: a checkpoint folder or a hub id")
        name = f"{BUILTIN_NAME}-draft"
    cache = Path(config.download_dir).expanduser() if config.download_dir else None
    return resolve_model(name, has_weights=True, cache=cache)


def num_cache_blocks(
    shape: CacheShape,
    settings: LoadSettings,
    asked: SpeculationSettings,
    longest: int,
    num_slots: int,
) -> int:
    """Return the blocks of the cache: at most those of all slots. Raises StartupError for none."""
    block_bytes = bytes_per_block(shape, settings.block_size, settings.dtype)
    free = free_memory_bytes()
    num_bytes = asked.kv_cache_memory
    if num_bytes is None:
        num_bytes = min(DEFAULT_BYTES, int(FREE_SHARE * free))
    if num_bytes > free:
        raise StartupError(
            f"kv_cache_memory: {format_size(num_bytes)} asked for, but only "
            f"{format_size(free)} are free"
        )
    num_blocks = min(num_bytes // block_bytes, num_slots * -(-longest // settings.block_size))
    if num_blocks == 0:
        raise StartupError(
            f"{format_size(num_bytes)} hold no block of its keys and values, which takes "
            f"{format_size(block_bytes)}; raise kv_cache_memory"
        )
    return num_blocks
