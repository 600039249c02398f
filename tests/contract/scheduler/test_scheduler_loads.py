"""Loads of blocks between scheduler and worker over real sockets: what is ordered goes out after
the plans, and what is answered comes in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_kvstore import names
from contract.scripted_worker import ScriptedWorker, expected, loaded_completely
from prometheus_client import REGISTRY

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_scheduler.core.kv_caches import KvCaches
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome

PROMPT = [5, 6, 7, 8, 9]
STORE = "127.0.0.1:1"
ORDER = LoadOrder(
    load_id=7, store=STORE, names=tuple(names(1, 2, 3)), blocks=(40, 41, 42), timeout_ms=250
)


class LoadingCore:
    """Orders what it is told to, and keeps the answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.orders: list[LoadOrder] = []
        self.cancels: list[int] = []
        self.answers: list[LoadAnswer] = []
        self.error: WireError | None = None
        self.is_planning = False  # whether a plan must come before
        monkeypatch.setattr(KvCaches, "take_loads", self._taking(self.orders))
        monkeypatch.setattr(KvCaches, "take_cancelled_loads", self._taking(self.cancels))
        monkeypatch.setattr(KvCaches, "note_load", lambda _, __, answer: self._note(answer))

    def _taking(self, items: list[Any]) -> Callable[[KvCaches, bytes], list[Any]]:
        def take(caches: KvCaches, worker_id: bytes) -> list[Any]:
            if self.is_planning and not caches._workers[worker_id].outstanding:
                return []
            taken = items[:]
            items.clear()
            return taken

        return take

    def _note(self, answer: LoadAnswer) -> None:
        self.answers.append(answer)
        if self.error is not None:
            raise self.error


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> LoadingCore:
    return LoadingCore(monkeypatch)


async def test_a_load_goes_out_after_the_plan_and_its_answer_comes_in(
    tmp_path: Path, core: LoadingCore
) -> None:
    before = {name: metric(name) for name in METRICS}
    async with (
        running_scheduler(tmp_path, kvstore=(STORE,)) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address, loads_blocks=True)) as worker,
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        (info,) = [worker.info for worker in scheduler.loop.core.workers.values()]
        assert (info.loads_blocks, info.bytes_per_block) == (True, 64)
        core.is_planning = True
        core.orders.append(ORDER)
        core.cancels.append(6)
        await frontend.submit(1, PROMPT, max_tokens=3)
        await eventually(lambda: bool(core.answers))
        assert worker.loads == [
            wa.LoadBlocks(
                load_id=7,
                kvstore_address=STORE,
                names=pack_names(ORDER.names),
                blocks=pack_u32([40, 41, 42]),
                timeout_ms=250,
            )
        ]
        assert worker.cancelled_loads == [6]
        first_plan = worker.heard.index("plan")
        assert first_plan < worker.heard.index("load_blocks") < worker.heard.index("cancel_load")
        assert core.answers == [
            LoadAnswer(7, 3, LoadOutcome.COMPLETE, 192, 0.001, (("memory", 3),))
        ]
        await frontend.until(lambda: (1, 0) in frontend.finished)
        assert frontend.tokens[1, 0] == expected(PROMPT, 3)
    assert {name: metric(name) - before[name] for name in METRICS} == {
        "loads_total": 1,
        "load_cancels_total": 1,
        "load_outcomes_total": 1,
        "loaded_tokens_total": 12,
        "loaded_bytes_total": 192,
        "load_seconds_count": 1,
    }


METRICS: dict[str, dict[str, str]] = {
    "loads_total": {},
    "load_cancels_total": {},
    "load_outcomes_total": {"outcome": "complete"},
    "loaded_tokens_total": {"tier": "memory"},
    "loaded_bytes_total": {},
    "load_seconds_count": {},
}


def metric(name: str) -> float:
    labels = {"model": "tiny", **METRICS[name]}
    return REGISTRY.get_sample_value(f"pagewire_scheduler_kv_{name}", labels) or 0.0


@pytest.mark.parametrize(
    ("outcome", "expected_outcome"),
    [
        (wa.LOAD_OUTCOME_UNSPECIFIED, LoadOutcome.FAILED),
        (wa.LOAD_OUTCOME_MISSING, LoadOutcome.MISSING),
        (wa.LOAD_OUTCOME_LATE, LoadOutcome.LATE),
        (wa.LOAD_OUTCOME_FAILED, LoadOutcome.FAILED),
        (wa.LOAD_OUTCOME_CANCELLED, LoadOutcome.CANCELLED),
    ],
)
async def test_outcomes_are_told_apart(
    tmp_path: Path,
    core: LoadingCore,
    outcome: wa.LoadOutcome,
    expected_outcome: LoadOutcome,
) -> None:
    def answer(order: wa.LoadBlocks) -> wa.BlocksLoaded:
        return wa.BlocksLoaded(load_id=order.load_id, outcome=outcome)

    core.orders.append(ORDER)
    async with (
        running_scheduler(tmp_path) as scheduler,
        attached(ScriptedWorker(scheduler.address, answer_load=answer)),
    ):
        await eventually(lambda: bool(core.answers))
    assert core.answers == [LoadAnswer(7, 0, expected_outcome)]


def of_tiers(*tiers: tuple[str, int]) -> Callable[[wa.LoadBlocks], wa.BlocksLoaded]:
    def answer(order: wa.LoadBlocks) -> wa.BlocksLoaded:
        got = loaded_completely(order)
        del got.tiers[:]
        got.tiers.extend(wa.LoadedFromTier(tier=tier, num_blocks=num) for tier, num in tiers)
        return got

    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (of_tiers(("memory", 4)), "more blocks came from tiers"),
        (of_tiers(("memory", 1), ("memory", 1)), "at most 8 tiers, each once"),
        (of_tiers(*((f"t{i}", 0) for i in range(9))), "at most 8 tiers"),
        (of_tiers(("Tape", 1)), "tiers have names of 1 to 32"),
        (of_tiers(("worker", 1)), "not 'worker'"),
    ],
)
async def test_an_answer_that_cannot_be_ends_the_stream(
    tmp_path: Path,
    core: LoadingCore,
    answer: Callable[[wa.LoadBlocks], wa.BlocksLoaded],
    message: str,
) -> None:
    core.orders.append(ORDER)
    async with running_scheduler(tmp_path) as scheduler:
        with pytest.raises(WireError, match=message):
            await ScriptedWorker(scheduler.address, answer_load=answer).run()
        await eventually(lambda: not scheduler.loop.workers)
        assert not core.answers


async def test_what_the_core_refuses_ends_the_stream(tmp_path: Path, core: LoadingCore) -> None:
    core.orders.append(ORDER)
    core.error = WireError("more blocks than ordered")
    async with running_scheduler(tmp_path) as scheduler:
        with pytest.raises(WireError, match="more blocks than ordered"):
            await ScriptedWorker(scheduler.address).run()
