"""What is wrong with tools is a 400 that names the field; forced calls need no parser, plug-ins
bring one."""

import json

import pytest
from contract.frontend_gateway import gateway, post
from contract.tool_answers import (
    ASKED,
    STRICT,
    TOOLS,
    answer,
)

from support.checkpoints.tool_models import make_tool_model


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A model whose template speaks of calls."""
    return make_tool_model(tmp_path_factory.mktemp("caller") / "tiny", marker="<tool_call>")


async def test_forced_calls_need_no_parser(checkpoint):
    """The template of this model says nothing of tools."""
    async with gateway(checkpoint) as (client, attach, _):
        body = {"messages": ASKED, "tools": TOOLS}
        refused = await client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["param"] == "tools"
        assert "--tool-call-parser" in error["message"]
        named = {"type": "function", "function": {"name": "now"}}
        for choice in ("required", named):
            call = post(client, "/v1/chat/completions", {**body, "tool_choice": choice})
            submit = await attach.next("submit")
            grammar = submit.sampling.structured_outputs.grammar
            assert '\\"now\\"' in grammar
            assert ("weather" in grammar) == (choice == "required")
            answer(attach, submit, checkpoint, '<tool_call>\n{"name": "now", "arguments": {}}\n')
            message = (await call).json()["choices"][0]["message"]
            assert message["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
        call = post(client, "/v1/chat/completions", {**body, "tool_choice": "none"})
        submit = await attach.next("submit")
        assert not submit.sampling.HasField("structured_outputs")
        answer(attach, submit, checkpoint, "<tool_call>")
        assert (await call).json()["choices"][0]["message"]["content"] == "<tool_call>"


def function(name="f", **more):
    return {"type": "function", "function": {"name": name, **more}}


NAMED = {"type": "function", "function": {"name": "weather"}}
SAID = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DEEP = {"type": "object", "properties": {"a": json.loads("[" * 40 + "]" * 40)}}
BAD = [
    ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools"),
    ({"tools": [function("a b")]}, "tools"),
    ({"tools": [function("")]}, "tools"),
    ({"tools": [function("x" * 65)]}, "tools"),
    ({"tools": [function("é")]}, "tools"),
    ({"tools": [function("f\n")]}, "tools"),
    ({"tools": [function(), function()]}, "tools"),
    ({"tools": [function(f"f{i}") for i in range(129)]}, "tools"),
    ({"tools": [function(parameters={"type": "array"})]}, "tools"),
    ({"tools": [function(parameters=[])]}, "tools"),
    ({"tools": [function(parameters=DEEP)]}, "tools"),
    ({"tools": [function(strict=1)]}, "tools"),
    ({"tools": [function(strict=True)], "response_format": {"type": "json_object"}}, "tools"),
    ({"tools": [function(parameters={"not": {}}, strict=True)]}, "tools"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": function("nobody")}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NAMED}, "tool_choice"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    (
        {"tools": TOOLS, "tool_choice": NAMED, "structured_outputs": {"regex": "a"}},
        "tool_choice",
    ),
    ({"tools": TOOLS, "tool_choice": "required", "use_beam_search": True, "n": 2}, "tool_choice"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"include_reasoning": 1}, "include_reasoning"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "tool", "tool_call_id": "c"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [SAID]}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages"),
    (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{**SAID, "function": {"name": "f", "arguments": "[1]"}}],
                }
            ]
        },
        "messages",
    ),
    (
        {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": ""}}]},
        "messages",
    ),
]


async def test_what_is_wrong_is_named(caller):
    async with gateway(caller) as (client, _, _):
        for change, field in BAD:
            body = {"messages": ASKED, **change}
            reply = await client.post("/v1/chat/completions", json=body)
            assert reply.status_code == 400, (change, reply.text)
            assert reply.json()["error"]["param"] == field, (change, reply.text)


PLUGIN = '''
from pagewire_frontend.message.call_writer import new_call_id
from pagewire_frontend.message.call_writer import CallWriter
from pagewire_frontend.message.text_machine import TextMachine


class ShoutReader(TextMachine):
    """Reads `!name` as a call without arguments."""

    def __init__(self, writer, names):
        super().__init__(writer)
        self._names = names

    def _begin(self):
        if self._is_ended and self._buffer[1:] in self._names:
            self._writer.begin_call(self._drop(len(self._buffer))[1:])
            self._writer.add_arguments("{}")
        return False


class Shout:
    name = "shout"
    markers = ()

    def new_reader(self, names, *, max_calls):
        return ShoutReader(CallWriter(new_call_id, max_calls), names)

    def rules(self, tools, marker):
        return None
'''


async def test_a_plug_in_reads_calls(checkpoint, tmp_path):
    path = tmp_path / "shouting.py"
    path.write_text(PLUGIN)
    flags = {"tool_parser_plugin": (f"{path}:Shout",), "tool_call_parser": ("tiny=shout",)}
    async with gateway(checkpoint, **flags) as (client, attach, _):
        body = {"messages": ASKED, "tools": TOOLS}
        for said, names in (("!now", ["now"]), ("!other", [])):
            call = post(client, "/v1/chat/completions", body)
            answer(attach, await attach.next("submit"), checkpoint, said)
            message = (await call).json()["choices"][0]["message"]
            assert [c["function"]["name"] for c in message.get("tool_calls", ())] == names
        # It has no grammar: strict is refused, and what is forced is written as Hermes does.
        reply = await client.post("/v1/chat/completions", json={**body, "tools": STRICT})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools")
