"""Thoughts in tags over HTTP are told apart from answers."""

import pytest
from contract.frontend_gateway import gateway, post
from contract.tool_answers import ASKED, answer, bodies_of

from support.checkpoints.tool_models import TOGGLED, make_tool_model


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A model whose template opens a thought, and that has tokens for its tags."""
    folder = tmp_path_factory.mktemp("thinker") / "tiny"
    return make_tool_model(
        folder, marker="<tool_call>", opening=TOGGLED, tokens=("<think>", "</think>")
    )


async def test_thoughts_are_told_apart(thinker):
    text = "hm\nhm\n</think>\n\nYes."
    async with gateway(thinker) as (client, attach, _):
        for stream in (False, True):
            for include in (True, False):
                body = {"messages": ASKED, "stream": stream, "include_reasoning": include}
                call = post(client, "/v1/chat/completions", body)
                answer(attach, await attach.next("submit"), thinker, text)
                reply = await call
                bodies = bodies_of(reply, stream=stream)

                key = "delta" if stream else "message"
                parts = [one["choices"][0][key] for one in bodies]
                assert "".join(part.get("content") or "" for part in parts) == "Yes."
                thoughts = [
                    part["reasoning_content"] for part in parts if "reasoning_content" in part
                ]
                assert "".join(thoughts) == ("hm\nhm" if include else "")


async def test_a_template_told_not_to_think_opens_no_thought(thinker):
    async with gateway(thinker) as (client, attach, _):
        for arguments, content in (({"enable_thinking": False}, "Yes."), (None, "")):
            body = {"messages": ASKED, "chat_template_kwargs": arguments}
            call = post(client, "/v1/chat/completions", body)
            answer(attach, await attach.next("submit"), thinker, "Yes.")
            assert (await call).json()["choices"][0]["message"]["content"] == content


async def test_structured_outputs_leave_no_room_for_thoughts(thinker):
    async with gateway(thinker) as (client, attach, _):
        body = {"messages": ASKED, "structured_outputs": {"choice": ["Yes."]}}
        call = post(client, "/v1/chat/completions", body)
        answer(attach, await attach.next("submit"), thinker, "Yes.")
        assert (await call).json()["choices"][0]["message"]["content"] == "Yes."
