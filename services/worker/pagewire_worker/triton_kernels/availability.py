"""Checks whether Triton's kernels run on a device, and explains it if they do not."""

import importlib.util
import os
import shutil

import torch

from pagewire_shared.errors import StartupError

LEAST_CAPABILITY = (8, 0)
"""Compute capability of the first devices that the kernels are compiled for."""

NO_COMPILER = "with which Triton makes its way to the driver; install gcc or name one in CC"


def check_triton(wanted: str, field: str, device: torch.device, instead: str = "") -> None:
    """Raise StartupError if Triton is not installed, or `device` does not run its kernels.

    Args:
        wanted: The setting with its value, such as "--attention-backend: triton".
        device: Device of the model. A CPU runs kernels in Triton's interpreter only.
        instead: Alternatives on CPUs.
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
    if device.type == "cuda" and not has_compiler():
        raise StartupError(f"{wanted} needs a C compiler, {NO_COMPILER}", field=field)
    if device.type != "cuda" and not INTERPRETED:
        raise StartupError(
            f"{wanted} runs on CUDA, the device is {device.type}{instead and f'; {instead}'}",
            field=field,
        )


def why_no_kernels(capability: tuple[int, int]) -> str | None:
    """Return why a device of this compute capability does not run the kernels; None if it does."""
    if capability < LEAST_CAPABILITY:
        least, found = (f"{major}.{minor}" for major, minor in (LEAST_CAPABILITY, capability))
        return f"the device has compute capability {found}, less than {least}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'pagewire[cuda]'"
    return None if has_compiler() else f"there is no C compiler, {NO_COMPILER}"


def has_compiler() -> bool:
    """Return whether Triton finds a C compiler, in its order: $CC, gcc, clang."""
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
