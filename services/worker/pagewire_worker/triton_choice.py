"""Whether Triton's kernels run here, and what to say where they do not."""

import importlib.util

import torch

from pagewire_shared.errors import StartupError


def check_triton(wanted: str, field: str, device: torch.device, instead: str = "") -> None:
    """Raise StartupError where Triton is not installed, or `device` does not run its kernels.

    Args:
        wanted: The setting and what it asks for, such as "--attention-backend: triton".
        field: Its name.
        device: Of the model. The CPU runs kernels in Triton's interpreter only.
        instead: What CPUs have.
    """
    try:
        import triton  # noqa: F401

        from pagewire_worker.triton_kernels.interpreter import INTERPRETED
    except ImportError as error:
        raise StartupError(
            f"{wanted} needs triton, which is not installed ({error}): "
            "pip install 'pagewire[cuda]'",
            field=field,
        ) from error
    if device.type != "cuda" and not INTERPRETED:
        raise StartupError(
            f"{wanted} runs on CUDA, the device is {device.type}{instead and f'; {instead}'}",
            field=field,
        )


def has_triton() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None
