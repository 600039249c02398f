"""Answers in harmony over HTTP and gRPC: the same messages everywhere, in their order."""

import asyncio
import json

import pytest
from contract.chat_clients import ChatReader, chat
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import LENGTH, STOP
from contract.response_gateway import URL, events_of
from contract.tool_answers import ARGUMENTS, ASKED, TOOLS, prompt_of

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import tools_pb2
from support.checkpoints.harmony_models import add_harmony
from support.checkpoints.text_models import make_text_model
from support.checkpoints.tool_models import ids_in
from support.oracles.response_shapes import check_response, check_stream

NEXT = "<|end|><|start|>assistant"
THOUGHT = f"<|channel|>analysis<|message|>Rome?{NEXT}"
# A text that spells a token: each half is encoded on its own.
SPELLED = ("Yes, <|end", "|> is text.")
GIVEN = json.dumps(ARGUMENTS, ensure_ascii=False)
CALL = (f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{GIVEN}<|call|>",)
PREAMBLE = f"<|channel|>commentary<|message|>I look.{NEXT}"
CALLED = (f"{THOUGHT}{PREAMBLE}{THOUGHT}{CALL[0]}",)
FINAL = (f"{THOUGHT}<|channel|>final<|message|>{SPELLED[0]}", f"{SPELLED[1]}<|return|>")
CHATS = "/v1/chat/completions"
LONG = 2048
"""Each byte of a prompt is a token here."""
RESPONSE_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return add_harmony(make_text_model(tmp_path_factory.mktemp("harmony") / "tiny", context=2048))


def answer(attach, submit, folder, texts, reason=STOP):
    """Answer with texts, a message per token."""
    ids = [token for text in texts for token in ids_in(folder, text)]
    for position, token in enumerate(ids):
        attach.tokens(submit, position, [token])
    attach.finish(submit, len(ids), reason=reason)


async def said(client, attach, folder, texts, reason=STOP, **body):
    """Return the choice of a chat, streamed by token and whole; both are the same."""
    create = client.chat.completions.create
    asked = {"model": "tiny", "messages": ASKED, **body}
    call = asyncio.create_task(create(**asked))
    answer(attach, await attach.next("submit"), folder, texts, reason)
    [choice] = (await call).choices
    call = asyncio.create_task(create(**asked, stream=True))
    answer(attach, await attach.next("submit"), folder, texts, reason)
    told = [chunk.choices[0] async for chunk in await call]
    message = choice.message
    calls = [item for one in told for item in one.delta.tool_calls or ()]
    thoughts = [getattr(one.delta, "reasoning_content", None) or "" for one in told]
    assert "".join(one.delta.content or "" for one in told) == (message.content or "")
    assert "".join(thoughts) == getattr(message, "reasoning_content", "")
    assert told[-1].finish_reason == choice.finish_reason
    assert [item.function.name for item in calls if item.id] == [
        item.function.name for item in message.tool_calls or ()
    ]
    assert "".join(item.function.arguments for item in calls) == "".join(
        item.function.arguments for item in message.tool_calls or ()
    )
    # More than one piece of the arguments: they are not held back.
    assert not calls or len(calls) > 3
    return choice


async def test_chats_whole_and_streamed(folder):
    async with openai_gateway(folder, served_length=LONG) as (client, attach):
        final = await said(client, attach, folder, FINAL)
        assert (final.message.reasoning_content, final.message.content) == (
            "Rome?",
            "".join(SPELLED),
        )
        assert (final.finish_reason, final.message.tool_calls) == ("stop", None)
        again = await said(client, attach, folder, FINAL, extra_body={"skip_special_tokens": False})
        assert again.message == final.message
        called = await said(client, attach, folder, CALLED, tools=TOOLS)
        assert called.message.reasoning_content == "Rome?\n\nRome?"
        assert called.message.content == "I look."
        [call] = called.message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", GIVEN)
        assert called.finish_reason == "tool_calls"
        cut = (CALL[0].partition("days")[0],)
        broken = await said(client, attach, folder, cut, LENGTH, tools=TOOLS)
        assert broken.finish_reason == "length"
        assert GIVEN.startswith(broken.message.tool_calls[0].function.arguments)
        # A choice that is another one's.
        plain = await said(client, attach, folder, CALL)
        assert (plain.message.content, plain.finish_reason) == (GIVEN, "stop")


def items_of(output):
    return [
        (item["type"], item["arguments"] if "arguments" in item else item["content"][0]["text"])
        for item in output
    ]


async def test_responses_have_an_item_per_message(folder):
    async with gateway(folder, served_length=LONG) as (client, attach, _):
        body = {"model": "tiny", "input": "How is it?", "tools": RESPONSE_TOOLS}
        for is_streamed in (False, True):
            call = post(client, URL, {**body, "stream": is_streamed})
            answer(attach, await attach.next("submit"), folder, CALLED)
            reply = await call
            if is_streamed:
                items = check_stream(events_of(reply.text))
                output = [items[index] for index in sorted(items)]
            else:
                check_response(reply.json())
                output = reply.json()["output"]
            assert items_of(output) == [
                ("reasoning", "Rome?"),
                ("message", "I look."),
                ("reasoning", "Rome?"),
                ("function_call", GIVEN),
            ]
        # Two messages in a row are two items, also where all their tokens come at once.
        both = ids_in(folder, f"{PREAMBLE}<|channel|>final<|message|>Wet.<|return|>")
        call = post(client, URL, {**body, "stream": True})
        submit = await attach.next("submit")
        attach.tokens(submit, 0, both)
        attach.finish(submit, len(both), reason=STOP)
        items = check_stream(events_of((await call).text))
        assert items_of(items.values()) == [("message", "I look."), ("message", "Wet.")]


async def test_the_next_turn_has_the_call_and_its_reasoning(folder):
    """Up to the final answer."""
    async with gateway(folder, served_length=LONG) as (client, attach, _):
        body = {"model": "tiny", "input": "How is it?", "tools": RESPONSE_TOOLS}
        call = post(client, URL, body)
        answer(attach, await attach.next("submit"), folder, CALLED)
        first = (await call).json()
        result = {
            "type": "function_call_output",
            "call_id": first["output"][3]["call_id"],
            "output": "wet",
        }
        more = {"previous_response_id": first["id"], "reasoning": {"effort": "high"}}
        call = post(client, URL, {**body, **more, "input": [result], "instructions": "Be brief."})
        submit = await attach.next("submit")
        answer(attach, submit, folder, FINAL)
        await call
    prompt = prompt_of(submit, folder)
    assert "Reasoning: high\n\n" in prompt
    assert "# Instructions\n\nBe brief.\n\n# Tools\n\n## functions" in prompt
    analysis = "<|start|>assistant<|channel|>analysis<|message|>"
    assert f"How is it?<|end|>{analysis}Rome?\n\nI look.\n\nRome?<|end|>" in prompt
    assert (
        f"to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{GIVEN}" in prompt
    )
    assert prompt.endswith(
        "<|call|><|start|>functions.weather to=assistant<|channel|>commentary<|message|>wet<|end|>"
        "<|start|>assistant"
    )


async def test_grpc_has_the_same_messages(folder):
    async with gateway(folder, served_length=LONG) as (_, attach, frontend):
        tools = [tools_pb2.Tool(name="weather", parameters='{"type": "object"}')]
        reader = ChatReader(frontend, chat(tools=tools))
        answer(attach, await attach.next("submit"), folder, CALLED)
        said = (await reader.end()).said[0]
    assert (said.reasoning, said.content) == ("Rome?\n\nRome?", "I look.")
    assert [call[1:] for call in said.calls] == [["weather", GIVEN]]
    assert said.end.reason == sampling_pb2.FINISH_REASON_TOOL_CALLS


FORCED = {"tools": TOOLS, "tool_choice": "required"}
SAID = {"role": "assistant", "content": "It is"}
REFUSED = (
    (CHATS, {"messages": ASKED, "reasoning_effort": "none"}, "reasoning_effort"),
    (URL, {"input": "x", "reasoning": {"effort": "minimal"}}, "reasoning.effort"),
    (CHATS, {"messages": ASKED, "guided_grammar": 'start: "a"'}, "guided_grammar"),
    (
        CHATS,
        {"messages": [*ASKED, SAID], "continue_final_message": True, **FORCED},
        "tool_choice",
    ),
)


async def test_what_harmony_has_no_place_for_is_refused(folder):
    async with gateway(folder, served_length=LONG) as (client, _, _):
        for path, body, field in REFUSED:
            reply = await post(client, path, body)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


async def test_a_turn_that_is_continued_is_the_final_message(folder):
    turns = [*ASKED, SAID]
    async with gateway(folder, served_length=LONG) as (client, attach, _):
        body = {"messages": turns, "continue_final_message": True}
        call = post(client, CHATS, body)
        submit = await attach.next("submit")
        answer(attach, submit, folder, (" wet.<|return|>",))
        message = (await call).json()["choices"][0]["message"]
    assert prompt_of(submit, folder).endswith("<|channel|>final<|message|>It is")
    assert message["content"] == " wet."
