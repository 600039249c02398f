"""Which CUDA device each worker of a local deployment gets. Imports no torch: it takes seconds."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from pagewire_shared.errors import StartupError

VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICE_FILES = Path("/dev")


def visible_devices(environ: Mapping[str, str], folder: Path = _DEVICE_FILES) -> tuple[str, ...]:
    """Return the CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them: those
    the variable lists, up to the first that is none, or all of the machine."""
    listed = environ.get(VARIABLE)
    if listed is None:
        return tuple(str(number) for number in range(len([*folder.glob("nvidia[0-9]*")])))
    devices: list[str] = []
    for name in map(str.strip, listed.split(",")):
        # CUDA itself ignores what follows an entry that names no device.
        if not name or name.startswith("-"):
            break
        devices.append(name)
    return tuple(devices)


def torch_has_cuda() -> bool:
    """Whether the installed torch was built with CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return any(Path(spec.origin).parent.glob("lib/libtorch_cuda*"))


def assign_devices(
    device: str, num_workers: int, visible: Sequence[str], *, has_cuda: bool
) -> list[str | None]:
    """Return the device of each worker; None where it does not run on CUDA.

    Args:
        device: auto, cpu or cuda.
        num_workers: Of all models together.
        visible: What `visible_devices` returns. A device that is listed twice is given to two.
        has_cuda: Whether torch could use one.

    Raises:
        StartupError: There are fewer devices than workers.
    """
    if device == "cpu" or (device == "auto" and not (visible and has_cuda)):
        return [None] * num_workers
    if len(visible) < num_workers:
        one = num_workers == 1
        raise StartupError(
            f"--num-workers: {num_workers} worker{'' if one else 's'} need{'s' if one else ''} as"
            f" many CUDA devices, and {len(visible)} can be seen. Start fewer workers, or let some"
            f" share a device by naming it twice, as in {VARIABLE}=0,0, with --kv-cache-memory",
            field="--num-workers",
        )
    return [*visible[:num_workers]]
