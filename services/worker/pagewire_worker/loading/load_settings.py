"""Makes the settings that a model is loaded with, such as enforce_eager."""

from collections.abc import Callable

import torch

from pagewire_worker.backend.adapters import AdapterLimits
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.config import WorkerConfig
from pagewire_worker.host.cpu import num_physical_cores
from pagewire_worker.loading.replica_shape import ReplicaShape


def load_settings(
    config: WorkerConfig, shape: ReplicaShape, on_progress: Callable[[float, str], None]
) -> LoadSettings:
    """Set up torch, and return the settings of the model.

    Args:
        on_progress: Called with the fraction that is loaded, and what is being done.
    """
    torch.manual_seed(config.seed)
    if shape.device.type == "cpu":
        torch.set_num_threads(config.cpu_threads or num_physical_cores())
    return LoadSettings(
        device=shape.device,
        dtype=shape.dtype,
        max_model_len=shape.max_model_len,
        block_size=config.block_size,
        attention_backend=config.attention_backend,
        linear_backend=config.linear_backend,
        cpu_backend=config.cpu_backend,
        cpu_isa=config.cpu_isa,
        quantization=config.quantization,
        load_format=config.load_format,
        seed=config.seed,
        cache_dtype=shape.cache_dtype,
        enforce_eager=config.enforce_eager,
        sum_slices=config.sum_slices,
        adapters=_adapter_limits(config),
        on_progress=lambda fraction: on_progress(0.9 * fraction, "loading weights"),
    )


def _adapter_limits(config: WorkerConfig) -> AdapterLimits | None:
    if not config.enable_lora:
        return None
    share = config.lora_memory // config.max_loras
    return AdapterLimits(config.max_loras, config.max_lora_rank, share)
