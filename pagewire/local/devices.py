"""Assigns CUDA devices to the workers of a local deployment, without the slow import of torch."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from pagewire_shared.errors import StartupError

VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICE_FILES = Path("/dev")


def visible_devices(environ: Mapping[str, str], folder: Path = _DEVICE_FILES) -> tuple[str, ...]:
    """Return the CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them.

    These are the devices in the variable up to the first invalid entry, or all of the machine.
    """
    listed = environ.get(VARIABLE)
    if listed is None:
        return tuple(str(number) for number in range(len([*folder.glob("nvidia[0-9]*")])))
    devices: list[str] = []
    for name in map(str.strip, listed.split(",")):
        # CUDA itself ignores entries after one that names no device.
        if not name or name.startswith("-"):
            break
        devices.append(name)
    return tuple(devices)


def torch_has_cuda() -> bool:
    """Return whether the installed torch was built with CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return any(Path(spec.origin).parent.glob("lib/libtorch_cuda*"))


def assign_devices(
    device: str, num_workers: int, visible: Sequence[str], *, has_cuda: bool
) -> list[str | None]:
    """Return the device of each worker; None for a worker on the CPU.

    Args:
        device: auto, cpu or cuda.
        num_workers: Number of workers of all models.
        visible: Result of `visible_devices`. A device that is listed twice serves two workers.
        has_cuda: Whether torch can use CUDA.

    Raises:
        StartupError: There are fewer devices than workers.
    """
    if device == "cpu" or (device == "auto" and not (visible and has_cuda)):
        return [None] * num_workers
    if not visible:
        raise StartupError("--device: no CUDA device can be seen here", field="device")
    if len(visible) < num_workers:
        one = num_workers == 1
        raise StartupError(
            f"--num-workers: {num_workers} worker{'' if one else 's'} need{'s' if one else ''} as"
            f" many CUDA devices, and {len(visible)} can be seen. Start fewer workers, or let some"
            f" share a device by naming it twice, as in {VARIABLE}=0,0, with --kv-cache-memory",
            field="--num-workers",
        )
    return [*visible[:num_workers]]
