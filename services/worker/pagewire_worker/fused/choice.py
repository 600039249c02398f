"""Whether the kernels run a model here, and what to say where they do not."""

import logging

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.fused.library import TYPES, KernelPool, KernelsMissingError
from pagewire_worker.fused.packing import PANEL
from pagewire_worker.models.config import ModelConfig
from pagewire_worker.models.source import LoadSettings

MEASURED_LOSS = "a token takes 1.4 times as long, and a prompt 1.7 times"
"""Of torch's own ops against the kernels; docs/performance.md has the tables."""

QUANTIZATIONS = ("int8", "int4")
"""What they compute with besides weights of the model's type; they alone."""

MAX_HEAD_DIM = 512
MAX_QUERY_GROUPS = 64

_logger = logging.getLogger(__name__)


def choose_kernels(config: ModelConfig, settings: LoadSettings) -> KernelPool | None:
    """Return threads for the kernels where they run the model, None where torch does.

    Raises:
        StartupError: `settings` asks for the kernels, and they do not run it.
    """
    wanted = settings.cpu_backend
    is_quantized = settings.quantization in QUANTIZATIONS
    if is_quantized and wanted == "torch":
        raise _refused(settings, "--cpu-backend torch does not quantize")
    if wanted == "torch" or (
        wanted == "auto" and settings.device.type != "cpu" and not is_quantized
    ):
        return None
    reason = _why_not(config, settings)
    if reason is None:
        try:
            return KernelPool(torch.get_num_threads())
        except KernelsMissingError as error:
            reason = str(error)
            if wanted == "auto" and not is_quantized:
                _logger.warning("without kernels for this CPU: %s; %s", reason, MEASURED_LOSS)
    elif wanted == "auto" and not is_quantized:
        _logger.info("torch computes the model, not the kernels for CPUs: %s", reason)
    if is_quantized:
        raise _refused(settings, reason)
    if wanted == "fused":
        raise StartupError(f"--cpu-backend: fused does not do here: {reason}", field="cpu_backend")
    return None


def _refused(settings: LoadSettings, reason: str) -> StartupError:
    return StartupError(
        f"--quantization: {settings.quantization} needs the kernels for CPUs: {reason}",
        field="quantization",
    )


def _why_not(config: ModelConfig, settings: LoadSettings) -> str | None:
    if settings.device.type != "cpu":
        return f"the device is {settings.device.type}"
    for flag, value in (
        ("--attention-backend", settings.attention_backend),
        ("--linear-backend", settings.linear_backend),
    ):
        if value != "auto":
            return f"{flag} {value} is an implementation in torch"
    if settings.quantization not in ("none", *QUANTIZATIONS):
        return f"--quantization {settings.quantization} is none of {', '.join(QUANTIZATIONS)}"
    if settings.cache_dtype not in (None, settings.dtype):
        return "--kv-cache-dtype is another type than theirs"
    if settings.dtype not in TYPES:
        return f"they do not compute in {str(settings.dtype).removeprefix('torch.')}"
    sizes = {
        "--block-size": settings.block_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "head_dim": config.head_dim,
    }
    for name, size in sizes.items():
        if size % PANEL:
            return f"{name} ({size}) is no multiple of {PANEL}"
    if config.head_dim > MAX_HEAD_DIM or config.num_query_groups > MAX_QUERY_GROUPS:
        return (
            f"head_dim ({config.head_dim}) or query heads per KV head "
            f"({config.num_query_groups}) are more than {MAX_HEAD_DIM} or {MAX_QUERY_GROUPS}"
        )
    return None
