"""Hand-offs as the peers of a scheduler see them: prompts on one worker, tokens on another."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contract.scheduler_peers import (
    RunningScheduler,
    attached,
    eventually,
    frontend_of,
    quiet,
    running_scheduler,
)
from contract.scripted_worker import ScriptedWorker, expected
from prometheus_client import REGISTRY

from pagewire.client.admin_client import audit
from pagewire.client.topology_client import CellSelfTest, self_test, set_roles, topology
from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.kv.arrays import unpack_u32

PROMPT = list(range(1, 24))


class Contents(dict[bytes, bytes]):
    """Every block holds what its name says."""

    def get(self, name: bytes, default: Any = None) -> bytes:
        return hashlib.sha256(name).digest()


def pulled(order: wa.LoadBlocks) -> wa.BlocksLoaded:
    """The answer of a worker that got all blocks from another."""
    num_blocks = len(order.blocks) // 4
    return wa.BlocksLoaded(
        load_id=order.load_id,
        num_blocks=num_blocks,
        outcome=wa.LOAD_OUTCOME_COMPLETE,
        num_bytes=64 * num_blocks,
        time_us=3000,
        transport=layout_pb2.KV_TRANSPORT_GRPC,
        transfer_us=1000,
    )


@asynccontextmanager
async def apart(
    scheduler: RunningScheduler, model: str
) -> AsyncIterator[tuple[ScriptedWorker, ScriptedWorker]]:
    """A worker for prompts and one for tokens."""
    prefill, decode = (
        ScriptedWorker(
            scheduler.address,
            model=model,
            roles=[role],
            hands_out=True,
            answer_load=pulled,
            digests=Contents(),
        )
        for role in (wa.WORKER_ROLE_PREFILL, wa.WORKER_ROLE_DECODE)
    )
    async with attached(prefill), attached(decode):
        await eventually(lambda: len(scheduler.loop.workers) == 2)
        yield prefill, decode


async def probed(scheduler: RunningScheduler) -> CellSelfTest:
    [cell] = await self_test(scheduler.address, timeout_seconds=5)
    return cell


def num_handoffs(model: str, name: str = "handoffs", **labels: str) -> float:
    labels = {"model": model, **labels}
    return REGISTRY.get_sample_value(f"pagewire_scheduler_{name}_total", labels) or 0.0


async def test_a_prompt_is_handed_off_and_its_timeline_says_so(tmp_path: Path) -> None:
    before = num_handoffs("tiny", outcome="complete")
    async with (
        running_scheduler(tmp_path, handoff="always") as scheduler,
        frontend_of(scheduler) as frontend,
        apart(scheduler, "tiny") as (prefill, decode),
    ):
        await frontend.submit(1, PROMPT, max_tokens=6)
        await frontend.until(lambda: bool(frontend.finished))
        assert frontend.tokens[1, 0] == expected(PROMPT, 6)
        [load] = decode.loads
        assert load.worker.worker_id == prefill.worker_id
        assert load.kvstore_address == ""
        assert not any(any(plan.samples) for plan in prefill.plans)
        assert frontend.heard.index("timelines") < frontend.heard.index("tokens")
        said = frontend.timelines[-1].timeline
        assert said.is_handed_off
        assert (said.transport, said.transfer_bytes) == (layout_pb2.KV_TRANSPORT_GRPC, 5 * 64)
        assert num_handoffs("tiny", outcome="complete") - before == 1
        [cell] = await topology(scheduler.address)
        [pair] = cell.pairs
        assert (pair.prefill, pair.decode) == (prefill.worker_id.hex(), decode.worker_id.hex())
        assert (pair.transport, pair.num_transfers, cell.handoff) == ("grpc", 1, "always")


async def test_a_self_test_of_a_cell_moves_blocks_and_leaves_none(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, apart(scheduler, "tiny") as workers:
        cell = await probed(scheduler)
        assert not cell.problems
        [probe] = cell.probes
        assert (probe.is_equal, probe.transport) == (True, "grpc")
        assert probe.num_blocks == len(unpack_u32(workers[1].loads[0].blocks)) > 0
        await quiet(scheduler)
        [report] = await audit(scheduler.address)
        assert not report.findings
        assert [pool.num_held for pool in report.pools] == [0, 0]
        # A block of another content, although its checksum was right.
        workers[1].digests = {}
        assert "does not hold all" in (await probed(scheduler)).problems[0]


async def test_workers_that_hand_nothing_out_are_a_broken_cell(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        workers = [ScriptedWorker(scheduler.address, worker_id=bytes([n]) * 16) for n in (1, 2)]
        async with attached(workers[0]), attached(workers[1]):
            await eventually(lambda: len(scheduler.loop.workers) == 2)
            assert not (await probed(scheduler)).problems
            changed = await set_roles(scheduler.address, "01", ["prefill"])
            assert (changed.worker[:2], changed.roles) == ("01", ("prefill",))
            await eventually(lambda: workers[0].roles == [wa.WORKER_ROLE_PREFILL])
            cell = await probed(scheduler)
            assert cell.problems == ("no pair of workers exchanges KV blocks of tiny",)
            [probe] = cell.probes
            assert probe.error is not None
            assert "hands out no blocks" in probe.error


async def test_a_role_that_is_lost_moves_what_waits(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path, handoff="never") as scheduler,
        frontend_of(scheduler) as frontend,
    ):
        first = ScriptedWorker(scheduler.address, worker_id=b"\x01" * 16)
        second = ScriptedWorker(scheduler.address, worker_id=b"\x02" * 16)
        async with attached(first), attached(second):
            await eventually(lambda: len(scheduler.loop.workers) == 2)
            await set_roles(scheduler.address, "01", ["prefill"])
            for handle in range(1, 7):
                await frontend.submit(handle, [handle] * 5, max_tokens=4)
            await frontend.until(lambda: len(frontend.finished) == 6)
        assert not any(any(plan.samples) for plan in first.plans)
        assert any(any(plan.samples) for plan in second.plans)
