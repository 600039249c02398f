"""`pagewire explain` of requests that ended at a frontend."""

import asyncio
import json

import grpc.aio
import pytest
from contract.api.test_frontend_timelines import answer
from contract.frontend_gateway import gateway, post

from pagewire.cli import explain
from pagewire_protos.frontend.v1 import explain_pb2, explain_pb2_grpc
from pagewire_shared.errors import InvalidRequestError

CHAT = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3}
PATH = "/v1/chat/completions"


async def test_the_command_names_the_request_and_its_parts(checkpoint, capsys):
    async with gateway(checkpoint) as (client, attach, frontend):
        asked = post(client, PATH, CHAT, headers={"x-request-id": "mine"})
        answer(attach, await attach.next("submit"))
        assert (await asked).status_code == 200

        def run(*words):
            assert explain.run("explain", [*words, "--server", frontend.address]) == 0
            return capsys.readouterr().out

        text = await asyncio.to_thread(run, "mine")
        found = json.loads(await asyncio.to_thread(run, "--json"))
        assert text.startswith("It took ")
        assert "prefill" in text
        assert "(mine) of tiny." in text
        assert "secret" not in text
        assert found["label"] == "mine"
        covered = sum(stage["seconds"] for stage in found["stages"])
        assert covered == pytest.approx(found["seconds"], rel=0.02)
        assert await asyncio.to_thread(run, found["request_id"][:8])
        with pytest.raises(InvalidRequestError, match="request: no 'nothing-such'"):
            await asyncio.to_thread(run, "nothing-such")


async def test_it_needs_a_key_for_administration(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("plain=sk-plain\nops=sk-ops admin\n")
    async with gateway(checkpoint, api_key_file=str(file)) as (_, _, frontend):
        stub = explain_pb2_grpc.ExplainServiceStub(frontend.channel)
        codes = []
        for key in ("", "sk-plain", "sk-ops"):
            metadata = (("authorization", f"Bearer {key}"),) if key else ()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Explain(explain_pb2.ExplainRequest(), metadata=metadata)
            codes.append(caught.value.code().name)
    # Nothing has ended there.
    assert codes == ["UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"]
