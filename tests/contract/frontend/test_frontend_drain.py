"""A frontend that is told to end: what is open goes on to its end, or to the end of its time."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc.aio
import httpx
import pytest
from contract.frontend_peers import Attach, ScriptedScheduler, ids_of, listening, served
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.processes.role_processes import Place, RoleProcess

PATIENCE_SECONDS = 20.0
BODY = {"model": "tiny", "prompt": "hi", "max_tokens": 64, "stream": True}


@dataclass
class Draining:
    """A frontend process, and what its scheduler sees of it."""

    process: RoleProcess
    attach: Attach
    http: str
    grpc: str

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait_end, PATIENCE_SECONDS)

    async def is_refusing(self) -> None:
        """Wait until no new connection is taken."""
        host, _, port = self.http.removeprefix("http://").partition(":")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                except ConnectionRefusedError:
                    return
                writer.close()
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def frontend(checkpoint, drain_seconds: float) -> AsyncIterator[Draining]:
    scheduler = ScriptedScheduler(served(checkpoint))
    async with listening(scheduler) as port:
        flags = ("--scheduler", f"127.0.0.1:{port}", "--model", f"tiny={checkpoint}")
        flags += ("--port", "0", "--grpc-port", "0", "--drain-seconds", str(drain_seconds))
        with RoleProcess("frontend", "frontend", Place(""), flags) as process:
            await asyncio.to_thread(process.wait_ready, PATIENCE_SECONDS)
            (said,) = (one for one in process.statuses if one["event"] == "listening")
            attach = await asyncio.wait_for(scheduler.attached(), PATIENCE_SECONDS)
            yield Draining(process, attach, f"http://{said['http']}", said["grpc"])


async def sse_lines(url: str) -> list[str]:
    async with (
        httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client,
        client.stream("POST", f"{url}/v1/completions", json=BODY) as response,
    ):
        return [line.removeprefix("data: ") async for line in response.aiter_lines() if line]


async def test_an_open_stream_goes_on_to_its_end(checkpoint):
    async with frontend(checkpoint, 30) as running:
        reading = asyncio.create_task(sse_lines(running.http))
        submit = await running.attach.next("submit")
        ids = ids_of("one two")
        running.attach.tokens(submit, 0, ids[:3])
        running.process.process.terminate()
        await running.is_refusing()
        assert running.process.process.poll() is None
        running.attach.tokens(submit, 3, ids[3:])
        running.attach.finish(submit, len(ids))
        lines = await asyncio.wait_for(reading, PATIENCE_SECONDS)
        assert lines[-1] == "[DONE]"
        texts = [json.loads(line)["choices"][0]["text"] for line in lines[:-1]]
        assert "".join(texts) == "one two"
        # It does not wait for the rest of its time.
        assert await running.ended() == 0


async def test_a_stream_that_takes_too_long_is_told(checkpoint):
    async with frontend(checkpoint, 0.3) as running:
        reading = asyncio.create_task(sse_lines(running.http))
        running.attach.tokens(await running.attach.next("submit"), 0, ids_of("one"))
        async with grpc.aio.insecure_channel(running.grpc) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            call = stub.Complete(pb.CompleteRequest(model="tiny", text="hi"))
            await running.attach.next("submit")
            running.process.process.terminate()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    continue
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "this frontend ends" in str(caught.value.details())
        lines = await asyncio.wait_for(reading, PATIENCE_SECONDS)
        error = json.loads(lines[-1])["error"]
        assert "this frontend ends" in error["message"]
        assert await running.ended() == 0


async def test_health_says_it_before_the_end(checkpoint):
    async with frontend(checkpoint, 30) as running:
        reading = asyncio.create_task(sse_lines(running.http))
        submit = await running.attach.next("submit")
        async with grpc.aio.insecure_channel(running.grpc) as channel:
            request = health_pb2.HealthCheckRequest(service="readiness")
            watch = health_pb2_grpc.HealthStub(channel).Watch(request)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            running.process.process.terminate()
            told = await asyncio.wait_for(watch.read(), PATIENCE_SECONDS)
            assert told.status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
        running.attach.say(submit, "x")
        await asyncio.wait_for(reading, PATIENCE_SECONDS)
        assert await running.ended() == 0
