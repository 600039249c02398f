"""Two frontend processes on one port, before a scripted scheduler."""

import asyncio
import signal
import time

import grpc.aio
import httpx
from contract.frontend_peers import WAIT_SECONDS
from contract.frontend_processes import process_group

from pagewire_frontend.serve import HOLD_BACK_SECONDS
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire

BODY = {"model": "tiny", "prompt": "hi", "max_tokens": 5}
OK = ("pagewire_requests_total", "/v1/completions", "http", "200")


async def answer_all(attach, seen):
    """Say something to every request of a frontend."""
    while True:
        message = await attach.received.get()
        if message.WhichOneof("message") == "submit":
            seen.append(attach)
            attach.say(message.submit, "hello")


async def complete(group):
    """Ask over a connection of its own."""
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        response = await client.post(f"{group.http_url}/v1/completions", json=BODY)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


async def chat_over_grpc(group):
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{group.grpc_port}", options=options
    ) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        request = inference_pb2.CompleteRequest(model="tiny", text="hi")
        async for _ in stub.Complete(request, timeout=WAIT_SECONDS):
            pass


async def test_connections_reach_both_and_metrics_are_those_of_both(checkpoint, tmp_path):
    async with process_group(checkpoint, tmp_path) as group:
        attaches = [await group.attached() for _ in group.frontends]
        seen = []
        answering = [asyncio.create_task(answer_all(attach, seen)) for attach in attaches]
        assert await asyncio.gather(*(complete(group) for _ in range(40))) == ["hello"] * 40
        assert {id(attach) for attach in seen} == {id(attach) for attach in attaches}
        await asyncio.gather(*(chat_over_grpc(group) for _ in range(10)))
        for _ in range(4):
            found = await group.metrics()
            assert found[OK] == 40
            method = "/pagewire.frontend.v1.InferenceService/Complete"
            assert found["pagewire_requests_total", method, "grpc", "OK"] == 10
            assert found["pagewire_generation_tokens_total", "tiny"] == 50 * 5
            assert found["pagewire_finished_choices_total", "tiny", "length"] == 50
            assert found["pagewire_time_to_first_token_seconds_count", "tiny"] == 50
            assert found["pagewire_generations_in_flight", "tiny"] == 0
            assert found["pagewire_frontend_processes",] == 2
            assert found["pagewire_frontend_processes_missing",] == 0
        for task in answering:
            task.cancel()


async def test_a_killed_process_is_missed_and_comes_back(checkpoint, tmp_path):
    async with process_group(checkpoint, tmp_path) as group:
        victim = group.frontends[0]
        victim.kill()
        for _ in range(8):
            found = await group.metrics()
            assert found["pagewire_frontend_processes",] == 1
            assert found["pagewire_frontend_processes_missing",] == 1
        await victim.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while (await group.metrics())["pagewire_frontend_processes",] != 2:
                await asyncio.sleep(0.05)


async def test_a_stopped_process_does_not_hold_up_the_metrics(checkpoint, tmp_path):
    async with process_group(checkpoint, tmp_path, ("a", "b"), "--peer-seconds", "0.5") as group:
        group.frontends[0].process.send_signal(signal.SIGSTOP)
        try:
            found = None
            while found is None:
                # The kernel gives it its share of the connections all the same.
                try:
                    async with asyncio.timeout(2.0):
                        found = await group.metrics()
                except TimeoutError:
                    continue
        finally:
            group.frontends[0].process.send_signal(signal.SIGCONT)
        assert found["pagewire_frontend_processes_missing",] == 1


async def test_a_process_takes_no_connection_before_it_could_answer(checkpoint, tmp_path):
    async with process_group(checkpoint, tmp_path) as group:
        for _ in group.frontends:
            await group.attached()
        victim = group.frontends[0]
        victim.kill()
        group.scheduler.served, models = wire.ServedModels(), group.scheduler.served
        starting = asyncio.create_task(victim.start())
        attach = await group.attached()
        assert HOLD_BACK_SECONDS > 0.5
        end = time.monotonic() + 0.5
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            while time.monotonic() < end:
                # Each over a connection of its own.
                url, close = f"{group.http_url}/health", {"connection": "close"}
                assert (await client.get(url, headers=close)).status_code == 200
        attach.send(served_models=models)
        await starting
