"""Chat over gRPC: tools and reasoning as typed pieces, deadlines and cancelling."""

import asyncio

import grpc.aio
import httpx
import pytest
from contract.chat_clients import FIND, ChatReader, chat, chatting
from contract.frontend_peers import eventually, ids_of

from pagewire.client.client import AsyncClient
from pagewire.client.events import ToolCall
from pagewire.offline.outputs import OutputCollector
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import tools_pb2
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

TEXT = 'so ~why~#find:{"x": "€"}##go:{}'
STOP = sampling_pb2.FINISH_REASON_STOP
LENGTH = sampling_pb2.FINISH_REASON_LENGTH
CALLED = sampling_pb2.FINISH_REASON_TOOL_CALLS


def say(attach, submit, text, *, choice=0, reason=STOP):
    """Answer token by token: every piece of a character is a message of its own."""
    ids = ids_of(text)
    for position, token_id in enumerate(ids):
        attach.tokens(submit, position, [token_id], choice=choice)
    attach.finish(submit, len(ids), choice=choice, reason=reason)


async def test_tools_reach_the_template_and_calls_come_back_typed(tmp_path, monkeypatch):
    async with chatting(tmp_path, monkeypatch) as (frontend, attach, plans):
        reader = ChatReader(frontend, chat(tools=[FIND], tool_name="find"))
        submit = await attach.next("submit")
        assert unpack_u32(submit.prompt_token_ids) == ids_of('hi[{"name": "find"}]')
        say(attach, submit, TEXT)
        await reader.end()
    find = Tool(name="find", parameters={"type": "object"})
    assert plans.uses == [ToolUse(tools=(find,), mode="required", name="find")]
    said = reader.said[0]
    assert (said.content, said.reasoning) == ("so ", "why")
    assert said.calls == [["call-0", "find", '{"x": "€"}'], ["call-1", "go", "{}"]]
    assert said.ids == ids_of(TEXT)
    assert said.end.reason == CALLED
    assert reader.closed.usage.completion_tokens == len(said.ids)
    # The last character of the arguments was held back until the end.
    assert not reader.deltas[-1].token_ids
    assert reader.deltas[-1].tool_calls[0].arguments == "}"


async def test_choices_have_messages_and_reasons_of_their_own(tmp_path, monkeypatch):
    texts = ["#go:{}", "#go:{", "plain"]
    async with chatting(tmp_path, monkeypatch) as (frontend, attach, _):
        reader = ChatReader(frontend, chat(tools=[FIND], n=3))
        submit = await attach.next("submit")
        for choice, text in enumerate(texts):
            say(attach, submit, text, choice=choice, reason=LENGTH if choice == 1 else STOP)
        await reader.end()
    assert [reader.said[i].end.reason for i in range(3)] == [CALLED, LENGTH, STOP]
    assert [said.calls for _, said in sorted(reader.said.items())] == [
        [["call-0", "go", "{}"]],
        [["call-0", "go", "{"]],
        [],
    ]


async def test_the_python_client_gives_whole_calls(tmp_path, monkeypatch):
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    turn = {"role": "user", "content": "hi"}
    collector = OutputCollector(1, False)
    async with (
        chatting(tmp_path, monkeypatch) as (frontend, attach, plans),
        AsyncClient(frontend.address) as client,
    ):

        async def ask():
            async for event in client.chat([turn], tools=tools, tool_choice="required"):
                collector.add(event)

        task = asyncio.create_task(ask())
        say(attach, await attach.next("submit"), TEXT)
        await task
    [output] = collector.result(None).outputs
    assert (output.text, output.reasoning, output.finish_reason) == ("so ", "why", "tool_calls")
    assert output.tool_calls == [
        ToolCall("call-0", "find", '{"x": "€"}'),
        ToolCall("call-1", "go", "{}"),
    ]
    find = Tool(name="find", parameters={"type": "object"})
    assert plans.uses == [ToolUse(tools=(find,), mode="required")]


async def test_what_is_wrong_with_a_grammar_of_tools_is_wrong_with_the_tools(tmp_path, monkeypatch):
    async with chatting(tmp_path, monkeypatch) as (frontend, _, plans):
        plans.outputs = StructuredOutputsParams(regex="(")
        code, detail = await ChatReader(frontend, chat(tools=[FIND])).error()
    assert (code, detail.field) == (grpc.StatusCode.INVALID_ARGUMENT, "tools")
    assert "structured_outputs" not in detail.message


async def test_a_plan_knows_how_the_prompt_ends(tmp_path, monkeypatch):
    request = chat(continue_final_message=True)
    request.template_arguments.update({"enable_thinking": False})
    async with chatting(tmp_path, monkeypatch) as (frontend, attach, plans):
        reader = ChatReader(frontend, request)
        attach.say(await attach.next("submit"), "on")
        await reader.end()
    said = {"prompt_end": "", "opens_turn": False}
    assert plans.prompts == [said]


async def test_without_tools_all_text_is_content(tmp_path):
    async with chatting(tmp_path) as (frontend, attach, _):
        reader = ChatReader(frontend, chat())
        say(attach, await attach.next("submit"), TEXT)
        await reader.end()
    said = reader.said[0]
    assert (said.content, said.reasoning, said.calls, said.end.reason) == (TEXT, "", [], STOP)


USER = pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hi")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ChatRequest(), "messages"),
        (chat(pb.ChatMessage(content="hi")), "messages"),
        (chat(USER, pb.ChatMessage(role=pb.CHAT_ROLE_USER, tool_call_id="x")), "messages"),
        (chat(max_tokens=0), "max_tokens"),
        (chat(max_tokens=0, options={"echo": True}), "max_tokens"),
        (chat(tools=[tools_pb2.Tool(name="f", parameters="{")]), "tools"),
        (chat(tools=[FIND], tool_mode=tools_pb2.TOOL_MODE_UNSPECIFIED), "tool_choice"),
        (chat(add_generation_prompt=True, continue_final_message=True), "continue_final_message"),
    ],
)
async def test_a_bad_field_is_named_and_nothing_is_submitted(tmp_path, request_, field):
    async with chatting(tmp_path) as (frontend, attach, _):
        code, detail = await ChatReader(frontend, request_).error()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert (detail.field, detail.status) == (field, 3)
        reader = ChatReader(frontend, chat())
        attach.say(await attach.next("submit"), "fine")
        await reader.end()


async def takes_another(frontend, attach):
    """The one place that there is was given back."""
    reader = ChatReader(frontend, chat())
    attach.say(await attach.next("submit"), "fine")
    await reader.end()


async def test_a_deadline_ends_a_chat_everywhere(tmp_path):
    async with chatting(tmp_path, max_open_requests=1) as (frontend, attach, _):
        reader = ChatReader(frontend, chat(), timeout=0.3)
        submit = await attach.next("submit")
        assert 0 < submit.remaining_ms <= 300
        attach.tokens(submit, 0, ids_of("so"))
        code, _ = await reader.error()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await attach.next("abort")).handle == submit.handle
        assert reader.said[0].content == "so"
        await takes_another(frontend, attach)


async def test_a_client_that_cancels_frees_everything(tmp_path, monkeypatch):
    async with chatting(tmp_path, monkeypatch, max_open_requests=1) as (frontend, attach, _):
        reader = ChatReader(frontend, chat(tools=[FIND]))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("#find:"))
        await eventually(lambda: bool(reader.deltas), "a delta")
        reader.call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader.task
        assert (await attach.next("abort")).handle == submit.handle
        await takes_another(frontend, attach)


async def test_models_say_what_http_says(tmp_path):
    async with (
        chatting(tmp_path) as (frontend, _, _),
        httpx.AsyncClient(base_url=frontend.http_url) as http,
    ):
        [model] = (await frontend.stub.ListModels(pb.ListModelsRequest())).models
        [body] = (await http.get("/v1/models")).json()["data"]
    assert (model.name, model.root, model.max_model_len) == (
        body["id"],
        body["root"],
        body["max_model_len"],
    )
    assert abs(model.created - body["created"]) <= 5


async def test_the_tokens_of_a_conversation_with_tools(tmp_path, monkeypatch):
    async with chatting(tmp_path, monkeypatch) as (frontend, _, _):
        talk = pb.Conversation(messages=[USER], tools=[FIND])
        answer = await frontend.stub.Tokenize(pb.TokenizeRequest(conversation=talk))
    assert list(answer.token_ids) == ids_of('hi[{"name": "find"}]')
