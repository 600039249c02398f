"""Profiles of a real model in a real model thread: content, bounds, hanging steps."""

import asyncio
import gzip
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.inspection import profiler as profiler_module
from pagewire_worker.inspection import rank_calls
from pagewire_worker.inspection.profiler import Profiler
from pagewire_worker.inspection.worker_inspection import WorkerInspection
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.step_phases import NO_PHASES
from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels

PROMPTS = [[5, 6, 7], list(range(30, 60))]
LAYERS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled") / "model"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", layers=LAYERS)


class Profiled:
    """A worker without links, whose steps are run by hand."""

    def __init__(self, folder: Path, thread: ModelThread, **settings: Any) -> None:
        self.replica = load(folder, max_num_batched_tokens=64, kv_cache_memory=1 << 22, **settings)
        self.thread = thread
        config = WorkerConfig(model=str(folder), **settings)
        self.inspection = WorkerInspection(config, self.replica, thread)
        self.driver = Driver.of(self.replica)

    @property
    def profiler(self) -> Profiler:
        return self.inspection.profiler

    async def generate(self) -> Any:
        return await self.thread.submit(lambda: self.driver.generate(PROMPTS))

    async def read(self, **fields: Any) -> dict[str, Any]:
        """Return the trace, which is read in pieces."""
        data, offset, profile_id = b"", 0, 0
        while True:
            part = await self.profiler.read(
                profile_id, offset, ends_profile=fields.get("ends_profile", False)
            )
            if part.data is None:
                continue
            data, profile_id = data + part.data, part.profile_id
            offset = len(data)
            if offset == part.num_bytes:
                content: dict[str, Any] = json.loads(gzip.decompress(data))
                return content

    @property
    def is_clean(self) -> bool:
        """Whether steps run as before the profile."""
        return self.replica.model_runner.phases is NO_PHASES and not self.replica.layers.is_awaited


@asynccontextmanager
async def profiled(folder: Path, **settings: Any) -> AsyncIterator[Profiled]:
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    one = await asyncio.to_thread(Profiled, folder, thread, **settings)
    try:
        yield one
    finally:
        one.profiler.close()
        if one.replica.group is not None:
            one.replica.group.close()
        thread.stop(20)


def names_of(trace: dict[str, Any]) -> Counter[str]:
    return Counter(event["name"] for event in trace["traceEvents"])


@needs_kernels
async def test_a_trace_has_the_phases_and_layers_of_the_steps_asked_for(folder, monkeypatch):
    monkeypatch.setattr(profiler_module, "PART_BYTES", 100)
    async with profiled(folder) as one:
        expected = await one.generate()
        await one.profiler.start(3, 30)
        assert not one.is_clean
        with pytest.raises(OverloadedError, match="one profile at a time"):
            await one.profiler.start(3, 30)
        # The same bits, layer by layer.
        assert await one.generate() == expected
        trace = await one.read()
        assert one.is_clean
        names = names_of(trace)
        assert names["step"] == names["forward"] == names["sample"] == names["result"] == 3
        assert [names[f"layer {number}"] for number in range(LAYERS + 1)] == [3, 3, 3, 0]
        (first, *_) = (one for one in trace["traceEvents"] if one["name"] == "forward")
        assert first["args"]["tokens"] == 33
        assert first["args"]["sequences"] == 2
        with pytest.raises(InvalidRequestError, match="there is no profile"):
            await one.profiler.read(0, 0, ends_profile=False)
        # Another one works as the first.
        await one.profiler.start(1, 30)
        await one.generate()
        assert names_of(await one.read())["step"] == 1


@needs_kernels
async def test_a_profile_ends_by_time_and_by_its_reader(folder):
    async with profiled(folder) as one:
        await one.profiler.start(1000, 0.05)
        assert names_of(await one.read())["step"] == 0
        await one.profiler.start(1000, 60)
        await one.generate()
        assert names_of(await one.read(ends_profile=True))["step"] > 3
        await one.profiler.start(1000, 60)
        await one.profiler.drop(0)
        assert one.is_clean
        with pytest.raises(InvalidRequestError, match="there is no profile"):
            await one.profiler.read(0, 0, ends_profile=True)
        # A reader that waits hears that another caller has ended it.
        await one.profiler.start(1000, 60)
        waiting = asyncio.create_task(one.read())
        await asyncio.sleep(0.01)
        await one.profiler.drop(0)
        with pytest.raises(UnavailableError, match="was ended and forgotten"):
            await waiting
        first = await one.profiler.start(1000, 60)
        await one.profiler.let_go()
        assert one.is_clean
        await one.profiler.start(1000, 60)
        with pytest.raises(UnavailableError, match="a newer one"):
            await one.profiler.read(first, 0, ends_profile=True)


@needs_kernels
async def test_a_step_that_hangs_gives_what_there_is(folder, monkeypatch):
    monkeypatch.setattr(rank_calls, "MARGIN_SECONDS", 0.05)
    monkeypatch.setattr(profiler_module, "BEGIN_SECONDS", 0.3)
    async with profiled(folder) as one:
        runner, leave = one.replica.model_runner, threading.Event()
        sampler = runner._sampler
        await one.profiler.start(1000, 0.2)
        forward = runner._backend.forward

        def hang(batch: Any) -> Any:
            leave.wait(20)
            return forward(batch)

        monkeypatch.setattr(runner._backend, "forward", hang)
        running = asyncio.create_task(one.generate())
        try:
            trace = await one.read()
            open_ones = [
                e["name"] for e in trace["traceEvents"] if "unfinished" in e.get("args", {})
            ]
            assert open_ones == ["forward", "step"]
            with pytest.raises(UnavailableError, match="pagewire admin stacks"):
                await one.profiler.start(1, 1)
        finally:
            leave.set()
        await running
        assert runner._sampler is sampler
        # The thread is free again, and drops what hung.
        async with asyncio.timeout(10):
            while not one.is_clean:
                await asyncio.sleep(0.01)


async def test_torch_records_its_operations_within_the_phases(folder):
    async with profiled(folder, cpu_backend="torch") as one:
        expected = await one.generate()
        await one.profiler.start(2, 30)
        assert await one.generate() == expected
        events = (await one.read())["traceEvents"]
        forwards = [event for event in events if event["name"] == "forward"]
        operations = [event for event in events if event["name"].startswith("aten::mm")]
        operations += [event for event in events if "linear" in event["name"]]
        assert len(forwards) == 2
        assert operations
        began = min(event["ts"] for event in forwards)
        first = min(operations, key=lambda event: event["ts"])
        # One clock, to some milliseconds.
        assert abs(first["ts"] - began) < 1e6
        assert one.is_clean
