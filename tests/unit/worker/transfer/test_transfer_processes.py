"""A holder in a process of its own that dies or stops in the middle of a pull."""

import asyncio
import os
import signal
import sys

import pytest

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.kv.load import LoadOrder, LoadOutcome, WorkerSource
from pagewire_shared.rpc.address import Address
from support.cells.kv_peers import eventually, peer
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.fake_scheduler import FakeScheduler, listening

NAMES = [bytes([65 + index]) * 16 for index in range(4)]
BLOCKS = [5, 2, 7, 1]
FLAGS = ("--dtype=float32", "--block-size=16", "--max-model-len=256", "--cpu-threads=1")


@pytest.fixture
async def holder(tmp_path):
    """A worker process, its stream and its hello; the address is that of its pulls."""
    folder = make_checkpoint(tmp_path / "model", with_tokenizer=False)
    scheduler = FakeScheduler()
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pagewire_worker", f"--scheduler=unix:{tmp_path}/s", *FLAGS),
            *(f"--model={folder}", f"--listen=unix:{tmp_path}/p", "--kv-offload=off"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            stream, hello = await scheduler.attach()
            yield process, stream, hello
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()


def prefill(hello):
    """The plan that computes the first two blocks of a sequence of four."""
    new = wire.NewRequest(
        slot=0,
        request_id=b"r" * 16,
        prompt_token_ids=pack_u32(range(3, 67)),
        sampling=sampling_pb2.SamplingParams(temperature=0.0),
        block_tables=[wire.BlockTable(block_ids=pack_u32([0, 1, 2, 3]))],
    )
    return wire.StepPlan(
        generation=7,
        incarnation=hello.incarnation,
        step_id=1,
        new_requests=[new],
        slots=pack_u32([0]),
        starts=pack_u32([0]),
        num_new_tokens=pack_u32([32]),
        samples=b"\0",
        num_new_blocks=pack_u32([0]),
        named_blocks=pack_u32([0, 1]),
        names=pack_names(NAMES[:2]),
    )


@pytest.mark.parametrize("transport", ["grpc", "auto"])
@pytest.mark.parametrize(
    ("signal_number", "outcome", "seconds"),
    [(signal.SIGKILL, LoadOutcome.FAILED, 20.0), (signal.SIGSTOP, LoadOutcome.LATE, 3.0)],
)
async def test_what_had_come_is_used(tmp_path, holder, transport, signal_number, outcome, seconds):
    process, stream, hello = holder
    stream.send(plan=prefill(hello))
    async with peer(tmp_path / "model", f"unix:{tmp_path}/d", transport=transport) as receiver:
        address = hello.kv_endpoints[0]
        order = LoadOrder(
            load_id=1,
            store="",
            names=NAMES,
            blocks=BLOCKS,
            timeout_ms=int(1000 * seconds),
            worker=WorkerSource(address, hello.worker_id),
        )
        pull = receiver.transfer.begin_load(order)
        await eventually(lambda: len(receiver.model_runner.blocks.held_names()) == 2 or pull.done())
        assert not pull.done()
        process.send_signal(signal_number)
        answer = await asyncio.wait_for(pull, 15.0)
        assert (answer.num_blocks, answer.outcome) == (2, outcome)
        held = await receiver.thread.submit(receiver.model_runner.blocks.held_names)
        assert held == dict(zip(BLOCKS[:2], NAMES[:2], strict=True))
