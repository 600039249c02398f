"""Where 8-bit floats can be computed with, and what to say elsewhere."""

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionBackend
from pagewire_worker.triton_kernels.availability import check_triton

LEAST_CAPABILITY = (8, 9)
"""Compute capability of the first devices that have float8_e4m3fn: Ada, and then Hopper."""

Capability = tuple[int, int]

_CACHE = "--kv-cache-dtype: fp8_e4m3"


def device_capability(device: torch.device) -> Capability | None:
    """Return the compute capability of `device`; None for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def check_fp8(
    wanted: str,
    field: str,
    device: torch.device,
    capability: Capability | None,
    instead: str = "",
) -> None:
    """Raise StartupError where `device` has no 8-bit floats.

    Args:
        wanted: The setting and what it asks for, such as "--quantization: fp8".
        field: Its name.
        device: Of the model; the CPU has them in Triton's interpreter only.
        capability: Compute capability of the device; None for a CPU.
        instead: What CPUs have.
    """
    check_triton(wanted, field, device, instead)
    if capability is not None and capability < LEAST_CAPABILITY:
        least, found = (f"{major}.{minor}" for major, minor in (LEAST_CAPABILITY, capability))
        raise StartupError(
            f"{wanted} needs a device of compute capability {least}, this one has {found}",
            field=field,
        )


def check_fp8_cache(
    device: torch.device, capability: Capability | None, attention: AttentionBackend
) -> None:
    """Raise StartupError where keys and values cannot be 8-bit floats."""
    check_fp8(_CACHE, "kv_cache_dtype", device, capability)
    if not attention.takes_fp8_cache:
        raise StartupError(
            f"{_CACHE} needs --attention-backend triton, this is {attention.name}",
            field="kv_cache_dtype",
        )
