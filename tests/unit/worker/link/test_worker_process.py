"""A worker process on real sockets, attached to a scheduler of a few lines."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_protos.worker.v1 import kv_transfer_pb2, kv_transfer_pb2_grpc
from pagewire_shared.kv.arrays import pack_u32, unpack_f32, unpack_u32
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.options import control_channel_options
from support.fakes.fake_scheduler import FakeScheduler, listening

PROMPT = list(range(40, 60))


@pytest.fixture
def sockets(tmp_path_factory):
    return tmp_path_factory.mktemp("s")


@pytest.fixture
async def start_worker(checkpoint, sockets):
    """Return a function that starts a worker process; kills what is left."""
    started = []

    async def start(model=None, *flags):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pagewire_worker",
            f"--scheduler=unix:{sockets}/scheduler",
            f"--model={model or checkpoint('llama')}",
            "--cpu-threads=1",
            "--max-model-len=128",
            *flags,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def scheduler(sockets):
    fake = FakeScheduler()
    async with listening(fake, Address(path=f"{sockets}/scheduler")):
        yield fake


def plan(hello, step_id, start, num_new, **fields):
    return wire.StepPlan(
        generation=fields.pop("generation", 7),
        incarnation=hello.incarnation,
        step_id=step_id,
        slots=pack_u32([1]),
        starts=pack_u32([start]),
        num_new_tokens=pack_u32([num_new]),
        samples=b"\1",
        num_new_blocks=pack_u32([0]),
        **fields,
    )


def new_request():
    return wire.NewRequest(
        slot=1,
        request_id=b"r" * 16,
        prompt_token_ids=pack_u32(PROMPT),
        sampling=sampling_pb2.SamplingParams(temperature=0.0, logprobs=2),
        block_tables=[wire.BlockTable(block_ids=pack_u32([3, 4]))],
    )


async def wait(process, timeout=20):
    out, err = await asyncio.wait_for(process.communicate(), timeout)
    return process.returncode, out.decode(), err.decode()


async def has_logged(process, text):
    line = ""
    while text not in line:
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        assert line, f"the process ended before it said {text!r}"


async def check_health_and_pull(address, hello):
    async with grpc.aio.insecure_channel(address, options=control_channel_options()) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for _ in range(50):
            answer = await health.Check(health_pb2.HealthCheckRequest())
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                break
            await asyncio.sleep(0.1)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        return await check_pull(kv_transfer_pb2_grpc.KvTransferServiceStub(channel).Pull(), hello)


async def check_pull(call, hello):
    """The one named block is sent, in shared memory, all its layers in order."""
    opening = kv_transfer_pb2.PullOpen(
        protocol=hello.protocol,
        layout=hello.layout,
        names=b"n" * 16,
        remaining_ms=20_000,
        worker_id=hello.worker_id,
        use_shared_memory=True,
    )
    await call.write(kv_transfer_pb2.PullRequest(open=opening))
    credit = kv_transfer_pb2.PullCredit(num_chunks=9)
    await call.write(kv_transfer_pb2.PullRequest(credit=credit))
    accepted = (await call.read()).accepted
    assert accepted.staging.boot_id == hello.host_id
    next_layer = 0
    while next_layer < hello.layout.groups[0].num_layers:
        layers = (await call.read()).layers
        assert (layers.first_block, layers.num_blocks) == (0, 1)
        assert layers.first_layer == next_layer
        assert layers.offset < accepted.staging.num_bytes
        next_layer += layers.num_layers
    call.cancel()
    path = Path(accepted.staging.path)
    assert is_there(path)
    return path


def is_there(path):
    return path.exists()


async def check_audit(stream, hello):
    stream.send(audit_query=wire.WorkerAuditQuery(query_id=99))
    reply = await stream.next("audit_reply")
    assert reply.query_id == 99
    assert unpack_u32(reply.slots) == [1]
    assert reply.audit.worker == hello.worker_id.hex()
    assert (reply.audit.num_slots, reply.audit.num_blocks_in_tables) == (1, 2)
    assert (reply.audit.num_named_blocks, reply.audit.num_steps_queued) == (1, 0)


def check_hello(hello, sockets):
    assert hello.model == "m"
    assert hello.capacity.max_model_len == 128
    assert hello.capacity.vocab_size == 512
    assert hello.capacity.steps_in_flight == 2
    assert len(hello.layout.model_fingerprint) == len(hello.layout.numerics_fingerprint) == 32
    assert [group.block_size for group in hello.layout.groups] == [16]
    assert list(hello.kv_endpoints) == [f"unix:{sockets}/worker"]


async def test_attach_run_detach_and_attach_again(start_worker, scheduler, sockets):
    process = await start_worker(None, f"--listen=unix:{sockets}/worker", "--served-model-name=m")
    stream, hello = await scheduler.attach()
    check_hello(hello, sockets)

    # Two plans at once: the second is run on a token that only the worker knows.
    stream.send(plan=plan(hello, 1, 0, 20, new_requests=[new_request()]))
    named = {"named_blocks": pack_u32([3]), "names": b"n" * 16}
    stream.send(plan=plan(hello, 2, 20, 1, **named))
    first, second = await stream.next("result"), await stream.next("result")
    assert [first.step_id, second.step_id] == [1, 2]
    assert first.incarnation == hello.incarnation
    assert first.generation == 7
    assert not first.HasField("failure")
    assert unpack_u32(first.slots) == [1]
    assert len(unpack_u32(first.token_ids)) == 1
    assert unpack_u32(first.num_top) == [2]
    assert unpack_u32(first.top_token_ids)[0] == unpack_u32(first.token_ids)[0]
    assert unpack_f32(first.top_logprobs)[0] == unpack_f32(first.logprobs)[0]
    assert first.step_time_us >= first.model_time_us > 0
    assert (await stream.next("progress")).counter > 0

    await check_audit(stream, hello)
    staging = await check_health_and_pull(f"unix:{sockets}/worker", hello)

    stream.end()
    again, second_hello = await scheduler.attach(generation=8)
    assert second_hello.worker_id == hello.worker_id
    assert second_hello.incarnation != hello.incarnation
    assert second_hello.highest_generation == 7
    assert second_hello.held_names == b"n" * 16
    assert unpack_u32(second_hello.held_blocks) == [3]
    again.send(plan=plan(second_hello, 1, 0, 20, new_requests=[new_request()], generation=8))
    result = await again.next("result")
    assert result.token_ids == first.token_ids

    # A plan of an older generation is not run: the stream ends and the worker comes back.
    again.send(plan=plan(second_hello, 2, 20, 1))
    third, third_hello = await scheduler.attach(generation=8)
    assert third_hello.highest_generation == 8
    await check_cells(third, scheduler)
    process.send_signal(signal.SIGTERM)
    returncode, out, _ = await wait(process)
    assert returncode == 0
    events = [line.split()[2] for line in out.splitlines()]
    assert events[0] == "listening"
    assert {"loading", "ready", "stopping"} <= set(events)
    assert not is_there(staging)


async def check_cells(stream, scheduler):
    """Another cell behind the address is taken; an older life of it is not, and is told."""
    stream.end()
    stream, hello = await scheduler.attach(generation=5, cell="blue")
    assert (hello.cell, hello.highest_generation) == ("", 8)
    await check_attached(stream)
    stream.end()
    for _ in range(2):
        _, hello = await scheduler.attach(generation=4, cell="blue")
        assert (hello.cell, hello.highest_generation) == ("blue", 5)
    stream, _ = await scheduler.attach(generation=6, cell="blue")
    await check_attached(stream)


async def check_attached(stream):
    stream.send(audit_query=wire.WorkerAuditQuery(query_id=98))
    assert (await stream.next("audit_reply")).query_id == 98


async def test_refusal_ends_the_process_with_one_line(start_worker, scheduler):
    scheduler.refusal = "protocol 1 to 1 is not spoken here"
    returncode, _, err = await wait(await start_worker())
    assert returncode == 1
    assert "protocol 1 to 1 is not spoken here" in err.splitlines()[-1]
    assert "Traceback" not in err


async def test_waits_for_a_scheduler_that_is_not_there(start_worker, sockets):
    process = await start_worker()
    await has_logged(process, "waiting for scheduler")
    fake = FakeScheduler()
    async with listening(fake, Address(path=f"{sockets}/scheduler")):
        await fake.attach()
    os.kill(process.pid, signal.SIGTERM)
    assert (await wait(process))[0] == 0


async def test_draining_without_a_scheduler_ends_at_once(start_worker, sockets):
    process = await start_worker(None, "--drain-seconds=60")
    fake = FakeScheduler()
    async with listening(fake, Address(path=f"{sockets}/scheduler")):
        stream, _ = await fake.attach()
        await stream.next("progress")
    await has_logged(process, "lost the scheduler")
    process.send_signal(signal.SIGTERM)
    assert (await wait(process))[0] == 0


async def are_health_answers(address, **expected):
    """Wait until health checks are answered so: by name, whether it serves."""
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(20):
        stub = health_pb2_grpc.HealthStub(channel)
        answers = None
        while answers != expected:
            answers = {
                name: (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status
                == health_pb2.HealthCheckResponse.SERVING
                for name in expected
            }
            await asyncio.sleep(0.02)


async def test_draining_ends_with_the_scheduler(start_worker, sockets):
    address = f"unix:{sockets}/worker"
    process = await start_worker(None, f"--listen={address}", "--drain-seconds=60")
    await has_logged(process, "waiting for scheduler")
    # The model is loaded, and that is all.
    await are_health_answers(address, startup=True, readiness=False, liveness=True)
    fake = FakeScheduler()
    async with listening(fake, Address(path=f"{sockets}/scheduler")):
        stream, _ = await fake.attach()
        await stream.next("progress")
        await are_health_answers(address, startup=True, readiness=True, liveness=True)
        process.send_signal(signal.SIGTERM)
        await stream.next("leaving")
        await are_health_answers(address, startup=True, readiness=False, liveness=True)
        with pytest.raises(asyncio.TimeoutError):
            await wait(process, timeout=0.5)
    assert (await wait(process))[0] == 0


async def test_a_bad_checkpoint_ends_the_process_with_one_line(start_worker, tmp_path):
    returncode, _, err = await wait(await start_worker(tmp_path))
    assert returncode == 1
    assert len(err.strip().splitlines()) == 1
    assert "has no config.json" in err


async def test_help_does_not_import_torch():
    code = (
        "import sys; from pagewire_worker.__main__ import main; sys.argv[1:] = ['--help']\n"
        "try: main()\nexcept SystemExit: print('torch' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert b"--max-num-seqs" in out
    assert out.strip().endswith(b"False")
