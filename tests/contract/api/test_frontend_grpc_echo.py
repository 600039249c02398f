"""`echo` over gRPC: the text before the answer, and an answer that is its prompt alone."""

import pytest
from contract.chat_clients import ChatReader, chat, chatting
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import LENGTH, attached_frontend, ids_of

from pagewire_protos.frontend.v1 import inference_pb2 as pb


def echoing(request):
    request.options.echo = True
    return request


@pytest.mark.parametrize(
    ("request_", "echo"),
    [
        (completion("once €"), None),
        (echoing(completion("once €")), "once €"),
        (echoing(pb.CompleteRequest(token_ids=pb.TokenIds(ids=ids_of("ids")))), "ids"),
    ],
)
async def test_the_prompt_comes_before_the_answer(checkpoint, request_, echo):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, request_)
        attach.say(await attach.next("submit"), "upon")
        await reader.end()
    assert (reader.opened.echo if reader.opened.HasField("echo") else None) == echo
    assert reader.text[0] == "upon"


async def test_a_chat_echoes_the_turn_it_goes_on_with(tmp_path):
    turn = pb.ChatMessage(role=pb.CHAT_ROLE_ASSISTANT, content="so far")
    async with chatting(tmp_path) as (frontend, attach, _):
        reader = ChatReader(frontend, echoing(chat(turn, continue_final_message=True)))
        attach.say(await attach.next("submit"), " and on")
        await reader.end()
    assert reader.opened.echo + reader.said[0].content == "so far and on"


async def test_only_the_prompt(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, echoing(completion("hi", max_tokens=0)))
        submit = await attach.next("submit")
        assert submit.sampling.max_tokens == 1
        attach.say(submit, "x")
        await reader.end()
    assert (reader.opened.echo, reader.ids, reader.text) == ("hi", {}, {0: ""})
    assert reader.finished[0].reason == LENGTH
    assert reader.closed.usage == pb.Usage(prompt_tokens=2)
