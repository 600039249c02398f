"""What a running scheduler tells each frontend of its own sequences, and shows of all."""

from pathlib import Path

import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker
from prometheus_client import REGISTRY

from pagewire_protos.scheduler.v1 import cell_metrics_pb2
from pagewire_scheduler.peers import liveness

MODEL = "counted"
PROMPT = [5, 6, 7]


def newest(frontend: ScriptedFrontend) -> cell_metrics_pb2.ModelMetrics:
    """Return what it was told last, of the one model."""
    models = frontend.metrics[-1].models if frontend.metrics else ()
    return models[0] if models else cell_metrics_pb2.ModelMetrics()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"pagewire_scheduler_{name}", labels)


async def test_each_frontend_is_told_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its worker is held up until all have been told what runs there.
    monkeypatch.setattr(liveness, "MIN_SILENCE_SECONDS", 60.0)
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as one,
        frontend_of(scheduler) as two,
    ):
        for handle in (1, 2):
            await one.submit(handle, [*PROMPT, handle], model=MODEL, max_tokens=4)
        await one.until(lambda: newest(one).num_waiting_for_capacity == 2)
        assert newest(one).num_workers == 0
        await two.until(lambda: bool(two.metrics))
        assert not two.metrics[-1].models
        worker = ScriptedWorker(scheduler.address, model=MODEL)
        async with attached(worker, is_open=False):
            await one.until(lambda: newest(one).num_running == 2)
            await two.until(lambda: newest(two).num_workers == 1)
            assert newest(two).num_running == 0
            for told in (newest(one), newest(two)):
                assert (told.num_blocks, told.num_used_blocks) == (64, 4), (
                    "the second step is planned, too"
                )
                assert told.block_size == 4
            await eventually(lambda: value("running_sequences", model=MODEL) == 2)
            assert value("kv_usage_ratio", model=MODEL) == 4 / 64
            assert value("workers", model=MODEL, role="both") == 1
            assert value("frontends") == 2
            worker.gate.set()
            await one.until(lambda: len(one.finished) == 2 and newest(one).num_running == 0)
            await eventually(lambda: value("prompt_tokens_total", model=MODEL) == 8)
        await eventually(lambda: value("lost_workers_total", model=MODEL) == 1)
        await eventually(lambda: value("workers", model=MODEL, role="both") == 0)
