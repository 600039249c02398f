"""`pagewire explain` of requests that ended at a frontend."""

import asyncio
import json
from contextlib import AsyncExitStack

import grpc.aio
import httpx
import pytest
from contract.api.test_frontend_timelines import answer
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import (
    WAIT_SECONDS,
    ScriptedScheduler,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire.cli import explain
from pagewire.client.explain_client import explain_request
from pagewire_protos.frontend.v1 import explain_pb2, explain_pb2_grpc
from pagewire_shared.errors import InvalidRequestError

CHAT = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3}
PATH = "/v1/chat/completions"


async def test_the_command_names_the_request_and_its_parts(checkpoint, capsys):
    async with gateway(checkpoint) as (client, attach, frontend):
        asked = post(client, PATH, CHAT, headers={"x-request-id": "mine"})
        submit = await attach.next("submit")
        # Longer than what the scheduler reports.
        await asyncio.sleep(0.03)
        answer(attach, submit)
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
        assert found["cause"] in found["reasons"]
        shares = sum(reason["share"] for reason in found["reasons"])
        assert shares == pytest.approx(1.0, rel=0.02)
        assert found["outcome"] == "ended"
        assert {"prefill", "kv_load.store"} <= {one["code"] for one in found["reasons"]}
        covered = sum(stage["seconds"] for stage in found["stages"])
        assert covered == pytest.approx(found["seconds"], rel=0.02)
        assert await asyncio.to_thread(run, found["request_id"][:8])
        with pytest.raises(InvalidRequestError, match="request: no 'nothing-such'"):
            await asyncio.to_thread(run, "nothing-such")


async def test_a_choice_without_tokens_has_none_of_the_times_of_others(checkpoint):
    async with gateway(checkpoint) as (client, attach, frontend):
        asked = post(client, PATH, {**CHAT, "n": 2}, headers={"x-request-id": "two"})
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("yes"), choice=0)
        attach.finish(submit, 3, choice=0)
        attach.finish(submit, 0, choice=1)
        assert (await asked).status_code == 200
        found = await explain_request(frontend.address, "two")
    assert [one.choice for one in found.stages if one.name in ("deliver", "decode")] == [0]


async def test_another_frontend_of_the_group_is_asked(checkpoint, tmp_path):
    scheduler = ScriptedScheduler(served(checkpoint))
    # The third is not there.
    peers = tuple(f"{name}=unix:{tmp_path}/{name}.sock" for name in "abc")
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(scheduler))
        frontends, attaches = [], []
        for name in "ab":
            listen = f"unix:{tmp_path}/{name}.sock"
            run = running_frontend(
                checkpoint, [port], frontend_name=name, peer_listen=listen, peer=peers
            )
            frontends.append(await stack.enter_async_context(run))
            await frontends[-1].status.wait("ready")
            attaches.append(await scheduler.attached())
        client = httpx.AsyncClient(base_url=frontends[0].http_url, timeout=WAIT_SECONDS)
        await stack.enter_async_context(client)
        asked = post(client, PATH, CHAT, headers={"x-request-id": "mine"})
        answer(attaches[0], await attaches[0].next("submit"))
        assert (await asked).status_code == 200
        for address in (frontends[0].address, frontends[1].address):
            for name in ("mine", ""):
                assert (await explain_request(address, name)).label == "mine"
        with pytest.raises(InvalidRequestError, match="no 'nothing-such' among"):
            await explain_request(frontends[1].address, "nothing-such")


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
