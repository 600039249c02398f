"""What a person does without our protos at hand: list, describe, call and check health with `buf
curl`, which knows the API by reflection alone."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from contract.frontend_peers import attached_frontend

BUF = Path(sys.executable).with_name("buf")
SERVICE = "pagewire.frontend.v1.InferenceService"


@pytest.fixture(autouse=True)
def buf(require_tool):
    return require_tool(str(BUF), "pip install 'pagewire[dev]'")


async def curl(frontend, path, *arguments, data=None):
    """Return (exit status, standard output, standard error)."""
    asked = () if data is None else ("-d", json.dumps(data))
    command = (BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *arguments, *asked)
    process = await asyncio.create_subprocess_exec(
        *command,
        f"http://{frontend.address}{path}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_methods_are_listed(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, _):
        status, output, errors = await curl(frontend, "", "--list-methods")
    assert status == 0, errors
    methods = {f"{SERVICE}/{name}" for name in ("Chat", "Complete", "Embed", "ListModels")}
    assert methods | {"grpc.health.v1.Health/Check"} <= set(output.split())


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_follows_the_workers(checkpoint, service):
    async with attached_frontend(checkpoint) as (frontend, attach):
        await frontend.status.wait("ready")
        asked = "/grpc.health.v1.Health/Check", {"service": service}
        status, output, errors = await curl(frontend, asked[0], data=asked[1])
        assert (status, json.loads(output)) == (0, {"status": "SERVING"}), errors
        attach.send(served_models={})
        async with asyncio.timeout(10):
            while True:
                _, output, _ = await curl(frontend, asked[0], data=asked[1])
                if json.loads(output) == {"status": "NOT_SERVING"}:
                    return


async def test_a_call_by_reflection_and_a_mistake(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        await frontend.status.wait("ready")
        body = {"text": "hi", "options": {"sampling": {"maxTokens": 8}}}
        asking = asyncio.create_task(curl(frontend, f"/{SERVICE}/Complete", data=body))
        attach.say(await attach.next("submit"), "well")
        status, output, errors = await asking
        assert status == 0, errors
        assert '"text": "well"' in output.replace('":"', '": "')
        body = {"text": "hi", "options": {"sampling": {"temperature": 3}}}
        status, _, errors = await curl(frontend, f"/{SERVICE}/Complete", data=body)
    assert status != 0
    error = json.loads(errors)
    assert error["code"] == "invalid_argument"
    assert "temperature" in error["message"]
