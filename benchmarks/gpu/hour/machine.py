"""The edge of a call: processes on this machine, for the device or as a rehearsal."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hour.call import PROBE_SECONDS
from hour.findings import Predictions
from hour.items import JSON, PYTHON, SCRATCH, SOURCES, Item, filled
from hour.process import Ran, kill_all_of, run
from hour.state import Record

ROOT = Path(__file__).resolve().parents[3]

PROBE = (
    "import torch; x = torch.ones(8, device='cuda'); assert float((x + x).sum()) == 16; print('ok')"
)
PREDICT_SECONDS = 60.0
REHEARSAL_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Runs items.

    Attributes:
        scratch: A folder for what items write.
        cache: Of Triton's kernels.
        packages: Folders with modules that this Python lacks; its own come first.
        num_kept: Bytes of an item's output that are kept.
        is_rehearsal: On a CPU, kernels interpreted; nothing is asked of a device.
    """

    scratch: Path
    cache: Path
    packages: Sequence[Path] = ()
    num_kept: int = 24 * 1024
    is_rehearsal: bool = False
    _rehearsed: dict[tuple[str, ...], tuple[Ran, Record | None]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the variables of items."""
        given = os.environ.get("PYTHONPATH")
        folders = [str(ROOT / folder) for folder in SOURCES] + ([given] if given else [])
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(folders),
            # Read by site/sitecustomize.py.
            "PAGEWIRE_PACKAGES": os.pathsep.join(map(str, self.packages)),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "TRITON_CACHE_DIR": str(self.cache),
            "TRITON_INTERPRET": "1" if self.is_rehearsal else "0",
        }

    def run(self, item: Item, limit: float, token: str) -> tuple[Ran, Record | None]:
        """Run an item, or take what the same command gave in this rehearsal."""
        if self.is_rehearsal and item.command in self._rehearsed:
            return self._rehearsed[item.command]
        results = self.scratch / f"{item.name}.json"
        results.unlink(missing_ok=True)
        places = {PYTHON: sys.executable, JSON: str(results), SCRATCH: str(self.scratch)}
        ran = run(
            filled(item.command, places),
            environment=self.environment(),
            folder=ROOT,
            limit=limit,
            token=token,
            num_kept=self.num_kept,
        )
        found = ran, _read(results)
        if self.is_rehearsal:
            self._rehearsed[item.command] = found
        return found

    def is_device_there(self) -> bool:
        """Add two numbers on the device, in a process of its own."""
        if self.is_rehearsal:
            return True
        ran = run(
            [sys.executable, "-c", PROBE],
            environment=self.environment(),
            folder=ROOT,
            limit=PROBE_SECONDS,
            token=f"probe-{os.getpid()}",
            num_kept=self.num_kept,
        )
        return ran.code == 0

    def kill_all_of(self, token: str) -> int:
        """Kill what is left of an item of an earlier call."""
        return kill_all_of(token)


def _read(path: Path) -> Record | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


def rehearsal_of(items: Sequence[Item]) -> list[Item]:
    """Return items with the commands of their toys; a busy machine has time for each."""
    return [
        replace(item, command=item.toy, limit=REHEARSAL_SECONDS, is_in_every_call=False)
        for item in items
    ]


def predictions(given: Path | None, folder: Path) -> Predictions:
    """Return what was predicted: from a file, or by predict.py where there is one; or nothing."""
    path = given or folder / "predictions.json"
    program = ROOT / "benchmarks" / "gpu" / "predict.py"
    if not path.exists() and program.exists() and given is None:
        command = [sys.executable, str(program), "--card", "h200", "--json", str(path)]
        variables = Machine(scratch=folder, cache=folder).environment()
        try:
            done = subprocess.run(
                command, env=variables, cwd=ROOT, capture_output=True, timeout=PREDICT_SECONDS
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode != 0:
            reason = "took too long" if done is None else done.stderr.decode()[-500:]
            print(f"no predictions: predict.py {reason}", file=sys.stderr)
            return {}
    rows = (_read(path) or {}).get("rows", {})
    return rows if isinstance(rows, dict) else {}
