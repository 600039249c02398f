"""Chooses the type of the KV cache: as asked for, or as the checkpoint was made for."""

import logging

import torch

from pagewire_shared.model_files.quantization import FP8_CACHE
from pagewire_worker.backend.source import ModelSummary
from pagewire_worker.checkpoint.dtypes import FP8, pick_cache_dtype
from pagewire_worker.config import WorkerConfig
from pagewire_worker.layers.fp8 import LEAST_CAPABILITY, device_capability
from pagewire_worker.models.variants import TRITON
from pagewire_worker.triton_kernels.availability import why_no_kernels

_logger = logging.getLogger(__name__)


def resolve_cache_dtype(
    config: WorkerConfig, model: ModelSummary, device: torch.device, dtype: torch.dtype
) -> torch.dtype:
    """Return the type of keys and values; a line of the log says what a checkpoint was made for.

    Args:
        dtype: Of the model.
    """
    asked, scheme = pick_cache_dtype(config.kv_cache_dtype, dtype), model.cache_scheme
    if config.kv_cache_dtype != "auto" or scheme is None:
        return asked
    reason = _why_not(scheme, config.attention_backend, device)
    if reason is None:
        _logger.info("the KV cache is %s, as the checkpoint was made for", FP8_CACHE)
        return FP8
    name = str(dtype).removeprefix("torch.")
    _logger.info("the KV cache is %s: the checkpoint was made for %s, %s", name, scheme, reason)
    return dtype


def _why_not(scheme: str, attention: str, device: torch.device) -> str | None:
    """Return why a cache of the scheme is not kept; None if it is."""
    if scheme != FP8_CACHE:
        return "which is not kept here"
    capability = device_capability(device)
    if attention not in ("auto", TRITON) or (attention == "auto" and capability is None):
        return f"which needs --attention-backend {TRITON}"
    if capability is None:
        return None
    if capability < LEAST_CAPABILITY:
        least, found = (f"{major}.{minor}" for major, minor in (LEAST_CAPABILITY, capability))
        return f"which needs a device of compute capability {least}, this one has {found}"
    missing = why_no_kernels(capability)
    return None if missing is None else f"but {missing}"
