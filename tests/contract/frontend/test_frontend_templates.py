"""Chat templates come with models: one that takes too much is refused in a clear error, and nobody
else is kept waiting."""

import asyncio
import json

import pytest
from contract.frontend_gateway import gateway, post

from support.checkpoints.text_models import make_text_model

PLAIN = "{{ messages[0]['content'] }}"
# What is said chooses what the template does; all else in it is plain.
HARMFUL = """{%- set what = messages[0]['content'] -%}
{%- if what == 'loops' -%}
  {%- for i in range(90000) -%}{%- for j in range(90000) -%}{{ '' }}{%- endfor -%}{%- endfor -%}
{%- elif what == 'long' -%}{{ 'a' * 1000000000 }}
{%- elif what == 'doubles' -%}
  {%- set ns = namespace(x='aaaaaaaa') -%}
  {%- for i in range(28) -%}{%- set ns.x = ns.x ~ ns.x -%}{%- endfor -%}{{ ns.x }}
{%- elif what == 'power' -%}{{ 9 ** (9 ** 9) }}
{%- elif what == 'deep' -%}
  {%- macro f(n) -%}{{ f(n + 1) }}{%- endmacro -%}{{ f(0) }}
{%- else -%}{{ what }}{%- endif -%}"""
HARMS = ("loops", "long", "doubles", "power", "deep")


def model_with(folder, template):
    made = make_text_model(folder / "tiny")
    path = made / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "chat_template": template}))
    (made / "chat_template.jinja").unlink(missing_ok=True)
    return made


@pytest.fixture(scope="module")
def harmful(tmp_path_factory):
    return model_with(tmp_path_factory.mktemp("harmful"), HARMFUL)


def said(text):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 1}


@pytest.mark.parametrize("what", HARMS)
async def test_a_template_that_takes_too_much_is_a_clear_error(harmful, what):
    async with gateway(harmful) as (client, attach, _):
        call = post(client, "/v1/chat/completions", said(what), timeout=60)
        # Others are answered meanwhile, by the same template.
        other = post(client, "/v1/chat/completions", said("hello"), timeout=60)
        attach.say(await attach.next("submit"), "hi")
        assert (await other).status_code == 200
        refused = await call
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "messages"), error
        assert "chat template" in error["message"]
        again = post(client, "/v1/chat/completions", said("hello"), timeout=60)
        attach.say(await attach.next("submit"), "hi")
        assert (await again).status_code == 200


async def test_the_event_loop_goes_on_while_a_template_renders(harmful):
    async with gateway(harmful) as (client, _, _):
        call = post(client, "/v1/chat/completions", said("loops"), timeout=60)
        turns = 0
        while not call.done():
            await asyncio.sleep(0.001)
            turns += 1
        # It takes a second of a processor, and answers take none.
        assert turns >= 20


async def test_a_renderer_that_is_killed_is_replaced(harmful):
    from pagewire_frontend.prompts import template_link

    made = []
    start = template_link._start

    def noting(theirs):
        made.append(start(theirs))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template_link, "_start", noting)
        async with gateway(harmful) as (client, attach, _):
            made[0].kill()
            made[0].wait()
            call = post(client, "/v1/chat/completions", said("hello"), timeout=60)
            attach.say(await attach.next("submit"), "hi")
            assert (await call).status_code == 200
            assert len(made) == 2
    for process in made:
        async with asyncio.timeout(20):
            while process.poll() is None:
                await asyncio.sleep(0.01)


async def test_values_reach_the_template_as_they_are(tmp_path):
    template = "{{ messages[1]['tool_calls'][0]['function']['arguments'] | tojson }}"
    call = {"name": "f", "arguments": '{"n": 123456789012345678901234567890, "x": 1.5, "é": null}'}
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": call}]},
    ]
    async with gateway(model_with(tmp_path, template)) as (client, _, _):
        answer = await client.post("/tokenize", json={"messages": turns})
        back = await client.post("/detokenize", json={"tokens": answer.json()["tokens"]})
    assert json.loads(back.json()["prompt"]) == json.loads(call["arguments"])
