"""What a worker sends fits its stream: the hello, results, audits, reports of progress."""

import asyncio
import threading

import numpy as np
import pytest
from unit.worker.grammars.test_grammar_link import INFO, NoModel

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.kv.arrays import unpack_names, unpack_u32
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES
from pagewire_shared.steps.convert import MAX_FAILURE_CHARACTERS, result_to_message
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure, StepResult
from pagewire_worker.link import attach_stream
from pagewire_worker.link.convert import (
    MAX_FINDINGS,
    MAX_HELD_BLOCKS,
    audit_to_message,
    hello_to_message,
)
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.runner.audit import SlotAudit
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.step_in_flight import StepInFlight
from support.fakes.fake_scheduler import FakeScheduler, listening


def test_a_hello_tells_the_blocks_that_fit_and_were_named_last():
    names = {block: block.to_bytes(16, "little") for block in range(2 * MAX_HELD_BLOCKS, 0, -1)}
    hello = hello_to_message(INFO, incarnation=1, highest_generation=0, held=names)
    assert hello.ByteSize() <= MESSAGE_BYTES
    assert unpack_u32(hello.held_blocks) == list(range(MAX_HELD_BLOCKS, 0, -1))
    assert unpack_names(hello.held_names)[-1] == (1).to_bytes(16, "little")


def test_the_largest_result_that_a_plan_may_ask_for_fits_a_message():
    """The sum of what the scheduler's plan builder allows, and of all slots that it has."""
    from pagewire_scheduler.core.data.stream_limits import StreamLimits
    from pagewire_scheduler.core.planning import plan_builder as draft
    from pagewire_shared.steps.result import PromptLogprobs

    slots, top = StreamLimits().max_slots, 20
    values = draft.MAX_PROMPT_VALUE_BYTES // (12 + 8 * top)
    candidates = draft.MAX_CANDIDATE_BYTES // 8

    def floats(count):
        return np.zeros(count, dtype=np.float32)

    def ints(count):
        return np.full(count, 2**32 - 1, dtype=np.uint32)

    result = StepResult(
        generation=2**64 - 1,
        incarnation=2**64 - 1,
        step_id=2**64 - 1,
        slots=ints(slots),
        counts=ints(slots),
        token_ids=ints(slots),
        logprobs=floats(slots),
        ranks=ints(slots),
        num_top=ints(slots),
        top_token_ids=ints(slots * top + candidates),
        top_logprobs=floats(slots * top + candidates),
        prompt=PromptLogprobs(
            slots=ints(slots),
            first_positions=ints(slots),
            counts=ints(slots),
            logprobs=floats(values),
            ranks=ints(values),
            num_top=ints(values),
            top_token_ids=ints(values * top),
            top_logprobs=floats(values * top),
        ),
        vectors=bytes(draft.MAX_VECTOR_BYTES),
    )
    assert wire.AttachWorkerRequest(result=result_to_message(result)).ByteSize() <= MESSAGE_BYTES


def test_failures_and_audits_have_an_end():
    failure = StepFailure("x" * 10**6)
    result = StepResult(generation=1, incarnation=1, step_id=1, failure=failure)
    assert len(result_to_message(result).failure.message) == MAX_FAILURE_CHARACTERS
    findings = tuple(("leaked_slot", str(number)) for number in range(MAX_FINDINGS + 7))
    audit = SlotAudit(slots=(), num_blocks_in_tables=0, num_named_blocks=0, findings=findings)
    reply = audit_to_message(audit, query_id=1, worker="w", num_steps_queued=0)
    assert len(reply.audit.findings) == MAX_FINDINGS + 1
    assert reply.audit.findings[-1].detail == "7 more"


class LargeResults(NoModel):
    """An executor whose results are larger than a message."""

    def launch(self, plan: StepPlan) -> StepInFlight:
        result = StepResult(
            generation=plan.generation,
            incarnation=plan.incarnation,
            step_id=plan.step_id,
            vectors=bytes(MESSAGE_BYTES),
        )
        return StepInFlight(plan, result=result)

    def collect(self, in_flight: StepInFlight) -> StepResult:
        return in_flight.result


@pytest.fixture
async def attach(tmp_path):
    """Return a function that runs a link and returns the scheduler and its end of the stream."""
    scheduler, ended = FakeScheduler(), []
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):

        async def start(model_runner):
            thread = ModelThread(asyncio.get_running_loop())
            thread.start()
            link = SchedulerLink(
                address=f"unix:{tmp_path}/s",
                info=INFO,
                model_runner=model_runner,
                thread=thread,
                attached=asyncio.Event(),
            )
            task = asyncio.create_task(link.run())
            ended.append((task, thread))
            return scheduler, *(await scheduler.attach())

        yield start
        for task, thread in ended:
            task.cancel()
            await asyncio.wait((task,))
            await asyncio.to_thread(thread.stop, 5)


async def test_a_result_that_is_too_large_ends_the_attach_and_not_the_worker(attach):
    scheduler, stream, hello = await attach(LargeResults())
    plan = wire.StepPlan(generation=7, incarnation=hello.incarnation, step_id=1)
    stream.send(plan=plan)
    _, again = await scheduler.attach()
    assert again.worker_id == hello.worker_id
    assert again.incarnation != hello.incarnation


class SlowAudits(NoModel):
    """An executor whose audits take until the test ends."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def audit(self) -> SlotAudit:
        self.may_end.wait(30)
        return SlotAudit(slots=(), num_blocks_in_tables=0, num_named_blocks=0, findings=())


async def test_questions_without_end_end_the_attach(attach, monkeypatch):
    monkeypatch.setattr(attach_stream, "MAX_JOBS", 3)
    model_runner = SlowAudits()
    scheduler, stream, hello = await attach(model_runner)
    for number in range(4):
        stream.send(audit_query=wire.WorkerAuditQuery(query_id=number))
    async with asyncio.timeout(20):
        while not stream.is_over:
            await asyncio.sleep(0.01)
    model_runner.may_end.set()
    _, again = await scheduler.attach()
    assert again.worker_id == hello.worker_id


async def test_one_report_of_progress_waits_at_a_time(monkeypatch):
    monkeypatch.setattr(attach_stream, "PROGRESS_SECONDS", 0.001)
    attached, event = asyncio.Event(), asyncio.Event()
    attached.set()

    class Thread:
        progress = 0

    stream = attach_stream.AttachStream(
        info=INFO,
        model_runner=NoModel(),
        thread=Thread(),
        grammars=None,
        offload=None,
        transfer=None,
        adapters=None,
        attached=attached,
        leaving=event,
        drained=event,
        on_roles=lambda _: None,
    )
    reporting = asyncio.create_task(stream._report_progress())
    for counter in range(1, 30):
        Thread.progress = counter
        await asyncio.sleep(0.002)
    written = stream._outbox.drain()
    first = (await anext(written)).progress.counter
    async with asyncio.timeout(10):
        assert (await anext(written)).progress.counter == 29 > first
    reporting.cancel()
    assert len(stream._outbox._entries) <= 1
