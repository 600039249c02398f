"""Names the files of traces, and writes them."""

import time
from pathlib import Path
from typing import Final

from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.identity.ids import SHOWN_DIGITS

SUFFIX: Final = ".trace.json.gz"


def trace_name(worker: str) -> str:
    """Return the name of a new file with the trace of a worker, whose id is given in hex."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{worker[:SHOWN_DIGITS]}-{moment}-{time.time_ns() % 1_000_000_000:09d}{SUFFIX}"


def require_folder(profiler_dir: str) -> Path:
    """Return the folder of --profiler-dir. Raises InvalidRequestError without one."""
    if not profiler_dir:
        raise InvalidRequestError(
            "no profile is written without --profiler-dir; pagewire admin profile needs none",
            field="profiler_dir",
        )
    return Path(profiler_dir).expanduser()


def write_trace(folder: Path, worker: str, trace: bytes) -> Path:
    """Write the trace of a worker, and return its file. Raises UnavailableError."""
    path = folder / trace_name(worker)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(trace)
    except OSError as error:
        raise UnavailableError(f"the trace cannot be written: {error}") from error
    return path
