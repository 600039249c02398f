"""The garbage collector has little to do in the scheduler, and does not look at what stays."""

import asyncio
import gc
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from unit.scheduler.cell import FRONTEND, Cell

from pagewire_kvstore import store_process
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler import service
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.core.state.request import Sequence
from pagewire_shared.process import collector
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.process.status import StatusReporter
from pagewire_worker import server


@pytest.mark.parametrize("emitted", [((),), ((), (), ())])
def test_a_request_that_has_ended_is_gone_without_the_collector(
    emitted: tuple[tuple[int, ...], ...],
) -> None:
    cell = Cell()
    gc.collect()
    num_before = _num_sequences()
    gc.disable()
    try:
        cell.submit(1, [1, 2, 3], emitted=emitted)
        cell.submit(2, [1, 2, 3, 4], emitted=emitted)
        cell.submit(3, [1, 2], emitted=emitted)
        assert _num_sequences() > num_before
        cell.answer(cell.planned())
        cell.core.abort(FRONTEND, 3, None)
        cell.run()
        assert not cell.core.requests
        assert _num_sequences() == num_before
    finally:
        gc.enable()


def _num_sequences() -> int:
    return sum(type(one) is Sequence for one in gc.get_objects())


@pytest.mark.parametrize("role", ["scheduler", "kvstore"])
async def test_a_process_settles_its_collector_when_it_has_started(
    role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(collector, "freeze_gc", lambda **fields: calls.append(fields))
    context = ProcessContext(StatusReporter(role, is_managed=False))
    context.stop.set()
    listen = f"unix:{tmp_path}/{role}"
    if role == "scheduler":
        await asyncio.wait_for(service.serve(SchedulerConfig(listen=listen), context), 30)
    else:
        config = KvStoreConfig(listen=listen, memory_size=2**20)
        await asyncio.wait_for(store_process.serve(config, context), 30)
    assert len(calls) == 1


async def test_a_worker_settles_it_when_its_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    class Thread:
        async def submit(self, work: Any) -> Any:
            seen.append("loaded")
            return mock.MagicMock()

    monkeypatch.setattr(server.collector, "freeze_gc", lambda: seen.append("frozen"))
    thread: Any = Thread()
    await server._load(mock.MagicMock(), mock.MagicMock(), thread)
    assert seen == ["loaded", "frozen"]


def test_full_collections_become_rare_where_that_is_asked_for() -> None:
    before, num_frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        collector.freeze_gc(is_full_rare=True)
        assert gc.get_threshold()[:2] == before[:2], "young objects are looked at as before"
        assert gc.get_threshold()[2] >= 20 * before[2]
        assert gc.get_freeze_count() > num_frozen
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
