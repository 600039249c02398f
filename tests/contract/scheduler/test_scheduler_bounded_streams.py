"""Streams to workers are bounded by what a peer has not answered or taken: a burst of the
scheduler's own making ends none of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_worker import ScriptedWorker, expected

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.links.worker_link import MAX_QUESTIONS, WorkerLink
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES

FINISH_SECONDS = 90.0


class Redialing:
    """A worker that attaches again whenever its stream ends, as real ones do."""

    def __init__(self, worker: ScriptedWorker) -> None:
        self.worker = worker
        self.num_attaches = 0

    async def run(self) -> None:
        self.worker.gate.set()
        while True:
            self.num_attaches += 1
            with suppress(PagewireError):
                await self.worker.run()
            await asyncio.sleep(0.05)


@asynccontextmanager
async def redialing(
    worker: ScriptedWorker,
) -> AsyncIterator[tuple[Redialing, "asyncio.Task[None]"]]:
    dialer = Redialing(worker)
    task = asyncio.create_task(dialer.run())
    try:
        yield dialer, task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_loss_with_many_grammars_costs_one_worker(tmp_path: Path) -> None:
    number = 1000
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        for handle in range(1, number + 1):
            prompt = [handle % 7 + 1, handle % 5 + 1]
            await frontend.submit(handle, prompt, max_tokens=3, choice=[f"answer {handle}"])
        workers = [ScriptedWorker(scheduler.address) for _ in range(2)]
        async with redialing(workers[0]) as (lost, killed), redialing(workers[1]) as (other, _):
            await frontend.until(lambda: len(frontend.finished) >= number // 20, FINISH_SECONDS)
            killed.cancel()
            await frontend.until(lambda: len(frontend.finished) == number, FINISH_SECONDS)
            assert (lost.num_attaches, other.num_attaches) == (1, 1)
        for handle in range(1, number + 1):
            assert frontend.tokens[handle, 0] == expected([handle % 7 + 1, handle % 5 + 1], 3)


async def test_the_newest_roles_are_told_once(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            await eventually(lambda: bool(scheduler.loop.workers))
            for role in [Role.PREFILL, Role.DECODE] * 500:
                scheduler.loop.set_roles(worker.worker_id, frozenset([role]))
            await eventually(lambda: worker.roles == [wa.WORKER_ROLE_DECODE])
            assert worker.heard.count("set_roles") == 1


async def test_questions_beyond_the_credit_have_no_answer_and_end_nothing(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            await eventually(lambda: worker.welcome is not None)
            link = scheduler.loop.workers[worker.worker_id]
            assert isinstance(link, WorkerLink)
            answers = [link.ask_audit(number) for number in range(3 * MAX_QUESTIONS)]
            await asyncio.wait(answers)
            assert sum(not answer.cancelled() for answer in answers) == MAX_QUESTIONS
            again = await link.ask_audit(3 * MAX_QUESTIONS)
            assert again.audit.worker == worker.worker_id.hex()


@pytest.mark.parametrize(
    ("num_questions", "length"),
    [(100, 48_000), pytest.param(256, 100_000, marks=pytest.mark.long)],
)
async def test_questions_about_one_document_fit_the_stream(
    tmp_path: Path, num_questions: int, length: int
) -> None:
    document = [1 + position % 997 for position in range(length)]
    limits = {"max_waiting_tokens": 2**26, "max_request_bytes": 2**36}
    async with (
        running_scheduler(tmp_path, **limits) as scheduler,
        frontend_of(scheduler) as frontend,
    ):
        worker = ScriptedWorker(
            scheduler.address,
            num_blocks=length // 16 + 5 * num_questions + 1000,
            max_model_len=length + 4096,
            block_size=16,
            max_num_seqs=300,
            max_num_batched_tokens=8192,
        )
        for handle in range(1, 11):
            await frontend.submit(handle, [handle], max_tokens=200)
        first = 100
        for handle in range(first, first + num_questions):
            await frontend.submit(handle, [*document, handle, 7], max_tokens=2)
        # All of them wait when it comes.
        async with redialing(worker) as (dialer, _):
            total = 10 + num_questions
            await frontend.until(lambda: len(frontend.finished) == total, FINISH_SECONDS)
            assert dialer.num_attaches == 1
            assert worker.largest_message <= MESSAGE_BYTES
            told = sum(len(new.prompt_token_ids) for p in worker.plans for new in p.new_requests)
            assert told < 3 * 4 * length, "the document is told again and again"
        for handle in (first, first + num_questions - 1):
            assert frontend.tokens[handle, 0] == expected([*document, handle, 7], 2)
        for handle in range(1, 11):
            assert frontend.tokens[handle, 0] == expected([handle], 200)
