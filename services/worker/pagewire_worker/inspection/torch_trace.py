"""Profiles what torch computes, by torch's own profiler."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from pagewire_shared.errors import InternalError
from pagewire_shared.process.sizes import format_size

MAX_FILE_BYTES: Final = 64 * 1024**2
"""Of the file that torch writes; as objects it takes some times as much."""


class TorchTrace:
    """Records from `begin` to `end`, both in the model thread; `events` may run in another one."""

    def __init__(self, device: torch.device) -> None:
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)

    def begin(self) -> None:
        """Begin to record."""
        self._profile.start()

    def end(self) -> None:
        """End the record."""
        self._profile.stop()

    def events(self) -> list[dict[str, Any]]:
        """Return what was recorded, in the format of Chrome's traces, in time since 1970.

        Raises:
            InternalError: It is too much.
        """
        with tempfile.TemporaryDirectory(prefix="pagewire-profile-") as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            if path.stat().st_size > MAX_FILE_BYTES:
                raise InternalError(
                    f"torch's trace has {format_size(path.stat().st_size)}, more than"
                    f" {format_size(MAX_FILE_BYTES)}: ask for fewer steps"
                )
            content = json.loads(path.read_bytes())
        base = content.get("baseTimeNanoseconds", 0) / 1000
        events: list[dict[str, Any]] = content["traceEvents"]
        for event in events:
            if "ts" in event:
                event["ts"] = float(event["ts"]) + base
        return [event for event in events if event.get("name") != "process_name"]
