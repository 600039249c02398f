"""A worker whose scheduler goes away again and again waits for the next one, and that is all."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from support.checkpoints.checkpoints import make_checkpoint

NUM_LOSSES = 3


class Role:
    """A process whose log is kept line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, module: str, *flags: str) -> "Role":
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *flags,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    def num_lines(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    async def until(self, text: str, number: int) -> None:
        async with asyncio.timeout(60):
            while self.num_lines(text) < number:
                assert self.process.returncode is None, self.lines
                await asyncio.sleep(0.02)

    async def end(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()
        await self._reader


@pytest.mark.long
async def test_a_lost_scheduler_is_no_error_of_a_worker(tmp_path: Path) -> None:
    folder, address = make_checkpoint(tmp_path / "model", layers=1), f"unix:{tmp_path}/scheduler"
    flags = (f"--scheduler={address}", f"--model={folder}", "--cpu-threads=1")
    worker = await Role.start("pagewire_worker", *flags, "--max-model-len=128")
    try:
        for number in range(1, NUM_LOSSES + 1):
            scheduler = await Role.start("pagewire_scheduler", f"--listen={address}")
            try:
                await worker.until("attached to the scheduler", number)
            finally:
                await scheduler.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
            await worker.until("lost the scheduler", number)
    finally:
        await worker.end(signal.SIGTERM)
    assert worker.num_lines("lost the scheduler") == NUM_LOSSES
    assert not [line for line in worker.lines if "ERROR" in line or "Traceback" in line]
