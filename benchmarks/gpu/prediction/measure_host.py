"""Measures the host anew: steps over no device, a core's speed, a request at an idle server."""

import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

# The other benchmarks lie a folder above.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from parts.machine import describe
from shapes import SHAPES
from worker_host import KINDS, microseconds

from prediction.host_figures import HostFigures, save
from prediction.host_steps import measure_steps
from prediction.idle_request import least_first_token


def measure_host(path: Path) -> None:
    """Write what was found to a file."""
    shape = SHAPES["qwen3-0.6b"]
    steps = measure_steps(shape)
    reference = min(microseconds(1, KINDS["greedy"], time.process_time))
    figures = HostFigures(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{describe()}, Python {platform.python_version()}",
        layers=shape.layers,
        reference_us=round(reference, 1),
        first_token_ms=round(least_first_token() * 1e3, 2),
        steps=steps,
    )
    save(figures, path)
