"""What one client takes of a frontend: wake-ups, checks of grammars, memory of responses."""

import asyncio

from contract.frontend_gateway import gateway, post
from contract.frontend_peers import ids_of

from pagewire_frontend.http.openai.answer import Answer

TEXT = "a" * 40


async def test_a_whole_answer_wakes_its_task_once(checkpoint, monkeypatch):
    takes = []
    take = Answer.take

    def counting(self):
        takes.append(1)
        return take(self)

    monkeypatch.setattr(Answer, "take", counting)
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x", "max_tokens": len(TEXT)})
        submit = await attach.next("submit")
        for position, token_id in enumerate(ids_of(TEXT)):
            attach.tokens(submit, position, [token_id])
            await asyncio.sleep(0.002)
        attach.finish(submit, len(TEXT))
        answer = (await call).json()
    assert answer["choices"][0]["text"] == TEXT
    assert len(takes) <= 2


async def test_events_of_running_responses_count_as_kept(checkpoint):
    body = {"input": "x", "background": True, "stream": True, "max_output_tokens": 400}
    settings = {"stream_journal_bytes": 40_000}
    async with gateway(checkpoint, **settings) as (client, attach, _):
        call = post(client, "/v1/responses", body)
        submit = await attach.next("submit")
        for position in range(200):
            attach.tokens(submit, position, ids_of("a"))
            await asyncio.sleep(0)
        answer = await asyncio.wait_for(call, 10)
        response_id = answer.headers["x-pagewire-stream"]
        stored = (await client.get(f"/v1/responses/{response_id}")).json()
    lines = answer.text.splitlines()
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert kinds[-1] == "error"
    assert stored["status"] == "failed"
    assert "--stream-journal-bytes" in stored["error"]["message"]
    assert any("--stream-journal-bytes" in line for line in lines)
    # It was stopped where the bytes were used up, not at its end.
    assert sum(len(line) for line in lines) < 20_000
