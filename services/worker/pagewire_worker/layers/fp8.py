"""Checks that a device computes with 8-bit floats, and refuses settings where it does not."""

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionBackend
from pagewire_worker.triton_kernels.availability import check_triton

LEAST_CAPABILITY = (8, 9)
"""Compute capability of the first devices with float8_e4m3fn: Ada, then Hopper."""

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
    """Raise StartupError if `device` has no 8-bit floats.

    Args:
        wanted: The setting with its value, such as "--quantization: fp8".
        device: Device of the model; a CPU has 8-bit floats in Triton's interpreter only.
        capability: Compute capability of the device; None for a CPU.
        instead: Alternatives on CPUs.
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
    """Raise StartupError if keys and values cannot be 8-bit floats."""
    check_fp8(_CACHE, "kv_cache_dtype", device, capability)
    if not attention.takes_fp8_cache:
        raise StartupError(
            f"{_CACHE} needs --attention-backend triton, this is {attention.name}",
            field="kv_cache_dtype",
        )
