"""What a device can do at best, measured: the rates that other figures are fractions of."""

import torch
from rates import Limits as Limits
from timing import device_seconds, enqueued_seconds
from torch import Tensor

FP8_CAPABILITY = (8, 9)


def measure_limits(device: torch.device, dtype: torch.dtype) -> Limits:
    """Return both, in a second or two."""
    return Limits(copy_rate(device), product_rate(device, dtype))


@torch.inference_mode()
def copy_rate(device: torch.device) -> float:
    """Return bytes per second of a copy of 2 GiB, reads and writes counted.

    The faster of the driver's copy and of a kernel that does as much: on an H200 the driver's
    reaches two thirds of the memory's rate.
    """
    num_bytes = 2 * 1024**3 if device.type == "cuda" else 1024**2
    source = torch.zeros(num_bytes // 4, dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    seconds = min(
        device_seconds([lambda: target.copy_(source)], device),
        device_seconds([lambda: torch.bitwise_not(source, out=target)], device),
    )
    return 2 * num_bytes / seconds


@torch.inference_mode()
def read_rate(device: torch.device) -> float:
    """Return bytes per second of reading 4 GiB once, to sum it up: what decodes can reach."""
    num_bytes = 4 * 1024**3 if device.type == "cuda" else 1024**2
    source = torch.zeros(num_bytes // 4, dtype=torch.float32, device=device)
    return num_bytes / device_seconds([source.sum], device)


@torch.inference_mode()
def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return operations per second of a product of square matrices."""
    size = _size(device)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * size**3 / device_seconds([lambda: torch.mm(left, right, out=out)], device)


@torch.inference_mode()
def fp8_product_rate(device: torch.device) -> float | None:
    """Return the same in float8_e4m3fn with a scale per tensor; None where it has no unit."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        return None
    size = _size(device)
    # The second one has its columns contiguous, which is what the product asks for.
    left, right = (_fp8(size, device) for _ in range(2))
    one = torch.ones((), device=device)

    def multiply() -> Tensor:
        return torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return 2 * size**3 / device_seconds([multiply], device)


def host_copy_rates(device: torch.device) -> tuple[float, float]:
    """Return bytes per second from pinned memory of the host to the device, and back."""
    if device.type != "cuda":
        host, there = (torch.zeros(1024**2, dtype=torch.int8) for _ in range(2))
        rate = len(host) / device_seconds([lambda: there.copy_(host)], device)
        return rate, rate
    host = torch.zeros(256 * 1024**2, dtype=torch.int8, pin_memory=True)
    there = torch.zeros_like(host, device=device)
    to = enqueued_seconds(lambda: there.copy_(host, non_blocking=True))
    back = enqueued_seconds(lambda: host.copy_(there, non_blocking=True))
    return len(host) / to, len(host) / back


def _size(device: torch.device) -> int:
    return 8192 if device.type == "cuda" else 64


def _fp8(size: int, device: torch.device) -> Tensor:
    return torch.randn(size, size, device=device).to(torch.float8_e4m3fn)
