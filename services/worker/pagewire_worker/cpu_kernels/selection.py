"""Decides whether the CPU kernels run a model, and explains it if they do not."""

import logging

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.cpu_kernels.abi import MOST_EXPERTS
from pagewire_worker.cpu_kernels.isa_selection import choose_instruction_set
from pagewire_worker.cpu_kernels.library import (
    TYPES,
    KernelPool,
    KernelsMissingError,
    instruction_sets,
)
from pagewire_worker.cpu_kernels.packing import PANEL
from pagewire_worker.families.plan import AttentionSpec, ModelPlan
from pagewire_worker.host.kept_facts import cache_folder
from pagewire_worker.kv.scaled_rows import SCALED
from pagewire_worker.models.variants import FUSED, TRITON, decoders_with, variants_of

MEASURED_LOSS = "a token takes 1.4 times as long, and a prompt 1.7 times"
"""Of torch's own ops against the kernels, on processors without AMX; docs/performance.md has the
tables."""

MAX_HEAD_DIM = 512
"""Of heads that are rotated; latents are not."""

MAX_HEADS = MOST_EXPERTS
"""With a latent: each head has matrices, as an expert has."""

_logger = logging.getLogger(__name__)


def choose_kernels(plan: ModelPlan, settings: LoadSettings) -> KernelPool | None:
    """Return threads for the kernels where they run the model, None where torch does.

    Raises:
        StartupError: `settings` asks for the kernels, and they do not run it.
    """
    wanted = settings.cpu_backend
    is_quantized = _needs_kernels(plan, settings)
    if is_quantized and wanted == "torch":
        raise _refused(settings, "--cpu-backend torch does not quantize")
    if settings.sum_slices > 1 and wanted == "torch":
        raise _unsliced(settings, "torch promises no bits of a sum")
    if wanted == "torch" or (
        wanted == "auto" and settings.device.type != "cpu" and not is_quantized
    ):
        return None
    reason = _why_not(plan, settings)
    if reason is None:
        try:
            return _pool(settings)
        except KernelsMissingError as error:
            reason = str(error)
            if wanted == "auto" and not is_quantized:
                _logger.warning("without kernels for this CPU: %s; %s", reason, MEASURED_LOSS)
    elif wanted == "auto" and not is_quantized:
        _logger.info("torch computes the model, not the kernels for CPUs: %s", reason)
    if is_quantized:
        raise _refused(settings, reason)
    if settings.sum_slices > 1:
        raise _unsliced(settings, reason)
    if wanted == "fused":
        raise StartupError(f"--cpu-backend: fused does not do here: {reason}", field="cpu_backend")
    return None


def _needs_kernels(plan: ModelPlan, settings: LoadSettings) -> bool:
    """Return whether nothing else computes what is asked for, where it is asked for."""
    names = decoders_with(plan.architecture, settings.quantization)
    if settings.device.type == "cpu" and settings.attention_backend != TRITON:
        names -= {TRITON}
    return names == {FUSED}


def _pool(settings: LoadSettings) -> KernelPool:
    """Return threads for the kernels of the instruction set that is asked for, or the fastest.

    Raises:
        KernelsMissingError: There are no kernels for this CPU.
        StartupError: It does not have the instruction set that is asked for.
    """
    names, name, how = list(instruction_sets()), settings.cpu_isa, "--cpu-isa says so"
    if name == "auto":
        name, how = choose_instruction_set(settings.dtype, settings.quantization, cache_folder())
    elif name not in names:
        raise StartupError(
            f"--cpu-isa: {name} does not run here; what does: {', '.join(names)}", field="cpu_isa"
        )
    _logger.info("the kernels for CPUs use %s: %s", name, how)
    pool: KernelPool | None = settings.pools.get(name)
    if pool is None:
        pool = settings.pools[name] = KernelPool(torch.get_num_threads(), name)
    return pool


def _refused(settings: LoadSettings, reason: str) -> StartupError:
    return StartupError(
        f"--quantization: {settings.quantization} needs the kernels for CPUs: {reason}",
        field="quantization",
    )


def _unsliced(settings: LoadSettings, reason: str) -> StartupError:
    return StartupError(
        f"--sum-slices: {settings.sum_slices} needs the kernels for CPUs: {reason}",
        field="sum_slices",
    )


def _why_not(plan: ModelPlan, settings: LoadSettings) -> str | None:
    variants = variants_of(plan.architecture, FUSED)
    if not variants:
        return f"they have no decoder for {plan.architecture}"
    (variant,) = variants
    if settings.device.type not in variant.devices:
        return f"the device is {settings.device.type}"
    for flag, value in (
        ("--attention-backend", settings.attention_backend),
        ("--linear-backend", settings.linear_backend),
    ):
        if value != "auto":
            return f"{flag} {value} is an implementation in torch"
    if settings.quantization not in variant.linears:
        names = (name for name in variant.linears if name != "none")
        return f"--quantization {settings.quantization} is none of {', '.join(names)}"
    if settings.cache_dtype not in (None, settings.dtype, SCALED):
        return "--kv-cache-dtype is another type than theirs"
    if settings.dtype not in TYPES:
        return f"they do not compute in {str(settings.dtype).removeprefix('torch.')}"
    attention = plan.attention
    sizes = [
        ("--block-size", settings.block_size),
        ("hidden_size", plan.hidden_size),
        *(("intermediate_size", size) for size in sorted(plan.inner_sizes)),
        *_head_sizes(attention),
    ]
    for name, size in sizes:
        if size % PANEL:
            return f"{name} ({size}) is no multiple of {PANEL}"
    num_experts = max(plan.expert_sizes.values(), default=0)
    if num_experts > MOST_EXPERTS:
        return f"{num_experts} experts are more than {MOST_EXPERTS}"
    rotated = attention.head_dim - (0 if attention.latent is None else attention.latent.rank)
    if rotated > MAX_HEAD_DIM:
        return f"head_dim ({rotated}) is more than {MAX_HEAD_DIM}"
    if attention.latent is not None and attention.num_heads > MAX_HEADS:
        return f"num_attention_heads ({attention.num_heads}) are more than {MAX_HEADS}"
    return None


def _head_sizes(attention: AttentionSpec) -> list[tuple[str, int]]:
    """Return the sizes that are read in panels, by their names in config.json."""
    latent = attention.latent
    if latent is None:
        return [("head_dim", attention.head_dim)]
    low = [] if latent.query_norm is None else [("q_lora_rank", latent.query_norm.size)]
    return [
        *low,
        ("kv_lora_rank", latent.rank),
        ("qk_rope_head_dim", attention.head_dim - latent.rank),
        ("qk_nope_head_dim", latent.plain_dim),
        ("v_head_dim", latent.value_dim),
    ]
