"""OpenAI's own client, of both major versions, asks an overloaded server again when it said so."""

import asyncio
import sys
from pathlib import Path

import pytest
from contract.frontend_gateway import gateway

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import OverloadedError
from pagewire_shared.rpc.errors import to_detail

SCRIPTS = Path(__file__).resolve().parents[2] / "clients"
WAIT_MS = 300
SCRIPT_SECONDS = 100
# Of the five requests, those that are told to come again.
REFUSED = [True, True, False, True, False]


@pytest.fixture(params=["2", "3"])
def python(request):
    """The major version and a Python that has it."""
    if request.param == "3":
        return "3", sys.executable
    return "2", request.getfixturevalue("clients_python")


async def test_a_refused_request_is_retried(checkpoint, python):
    version, executable = python
    # A script that takes long to start must not find another stream than the one that is answered.
    async with gateway(checkpoint, silence_seconds=1000.0) as (client, attach, _):
        script = await asyncio.create_subprocess_exec(
            executable,
            "openai_retries.py",
            f"{client.base_url}/v1",
            cwd=SCRIPTS,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        answering = asyncio.create_task(answer(attach))
        try:
            async with asyncio.timeout(SCRIPT_SECONDS):
                out, err = await script.communicate()
        finally:
            if script.returncode is None:
                script.kill()
                await script.wait()
        assert script.returncode == 0, err.decode()
        times = await answering
    assert out.decode().startswith(f"{version}.")
    for i in (1, 3):
        assert times[i + 1] - times[i] >= WAIT_MS / 1000, "asked again before it was told to"


async def answer(attach):
    """Refuse and answer as REFUSED says; return when each request came."""
    times = []
    for is_refused in REFUSED:
        message = None
        while message is None or message.WhichOneof("message") != "submit":
            message = await attach.received.get()
        times.append(asyncio.get_running_loop().time())
        submit = message.submit
        if is_refused:
            detail = to_detail(OverloadedError("full", retry_after_ms=WAIT_MS))
            attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
        else:
            attach.say(submit, "ok")
    return times
