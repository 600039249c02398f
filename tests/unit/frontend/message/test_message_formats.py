"""Which formats a model has, by flags and by its template; special tokens that are hidden; and what
a plan makes of tools."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire_frontend.chat.plan import HiddenText, plan_message
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_frontend.message.formats import load_plugin, parse_formats
from pagewire_frontend.message.pieces import PlainReader
from pagewire_frontend.models.model_registry import LoadedModel, ModelSpec, load_model
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.checkpoints.text_models import make_text_model
from support.checkpoints.tool_models import TOGGLED, make_tool_model

TOOL = Tool(name="f", description="d", parameters={"type": "object"})
PARAMS = SamplingParams(max_tokens=None)


@pytest.mark.parametrize(
    ("template", "calls", "reasoning"),
    [
        ("nothing of it", None, None),
        ("x <tool_call> [TOOL_CALLS]", "hermes", None),
        ("[TOOL_CALLS]", "mistral", None),
        ("<|python_tag|> <think>", "llama3_json", "qwen3"),
        ("[THINK]", None, "mistral"),
    ],
)
def test_a_template_tells(template, calls, reasoning):
    found = parse_formats((), (), (), ()).formats_of("m", template)
    assert (found.calls.name if found.calls else None) == calls
    assert (found.reasoning.name if found.reasoning else None) == reasoning


def test_flags_say_more_than_the_template():
    choice = parse_formats(["pythonic", "m=none"], ["m=deepseek_r1", "none"], (), ["m", "o"])
    template = "<tool_call><think>"
    m, other = choice.formats_of("m", template), choice.formats_of("o", template)
    assert (m.calls, m.reasoning.name) == (None, "deepseek_r1")
    assert (other.calls.name, other.reasoning) == ("pythonic", None)


@pytest.mark.parametrize(
    ("parsers", "reasoning", "field"),
    [
        (["unknown"], (), "tool_call_parser"),
        (["x=hermes"], (), "tool_call_parser"),
        (["hermes", "mistral"], (), "tool_call_parser"),
        (["m=hermes", "m=hermes"], (), "tool_call_parser"),
        ((), ["hermes"], "reasoning_parser"),
    ],
)
def test_flags_that_mean_nothing_are_refused(parsers, reasoning, field):
    with pytest.raises(StartupError) as caught:
        parse_formats(parsers, reasoning, (), ["m"])
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text", ["", "x", ":f", "no_such_module:f", "json:nothing", "json:JSONDecoder", "/no.py:f"]
)
def test_plug_ins_that_are_none_are_refused(text):
    with pytest.raises(StartupError, match="--tool-parser-plugin"):
        load_plugin(text)


HIDDEN = ("<a>", "<ab>", "<a><b", "]")


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet="<ab>]x", max_size=30), places=st.lists(st.integers(0, 30), max_size=6)
)
def test_hidden_texts_go_in_any_cut(text, places):
    borders = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    hiding = HiddenText(HIDDEN)
    shown = [hiding.push(text[a:b]) for a, b in itertools.pairwise(borders)]
    whole = re.sub("<a><b|<ab>|<a>|]", "", text)
    assert "".join(shown) + hiding.finish() == whole


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> LoadedModel:
    folder = make_text_model(tmp_path_factory.mktemp("plain") / "m")
    return load_model(ModelSpec("m", str(folder)))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("mistral") / "m"
    make_tool_model(folder, marker="[TOOL_CALLS]", opening=TOGGLED, tokens=("[TOOL_CALLS]",))
    return load_model(ModelSpec("m", str(folder)))


def test_without_tools_nothing_changes(plain):
    plan = plan_message(plain, PARAMS)
    assert (plan.params, plan.template_tools) == (PARAMS, None)
    assert isinstance(plan.new_reader(), PlainReader)


def test_the_template_is_given_tools_in_openais_form(mistral):
    plan = plan_message(mistral, PARAMS, ToolUse(tools=[TOOL, Tool(name="g")], mode="auto"))
    empty = {"type": "object", "properties": {}}
    assert plan.template_tools == (
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
        },
        {"type": "function", "function": {"name": "g", "parameters": empty}},
    )
    assert plan.params.structured_outputs is None
    assert plan_message(mistral, PARAMS, ToolUse(tools=[TOOL])).template_tools is None


def test_markers_that_are_special_are_decoded(mistral):
    assert not plan_message(
        mistral, PARAMS, ToolUse(tools=[TOOL], mode="auto")
    ).params.skip_special_tokens
    # A thought's tags are none here.
    assert plan_message(mistral, PARAMS).params.skip_special_tokens


def test_a_grammar_of_the_client_leaves_no_calls(mistral):
    held = PARAMS.with_(structured_outputs=StructuredOutputsParams(regex="a"))
    plan = plan_message(mistral, held, ToolUse(tools=[TOOL], mode="auto"))
    assert plan.params == held
    assert plan.new_reader().push("[TOOL_CALLS]f{}").content == "[TOOL_CALLS]f{}"
    with pytest.raises(InvalidRequestError) as caught:
        plan_message(mistral, held, ToolUse(tools=[TOOL], mode="required"))
    assert caught.value.field == "tool_choice"


def test_thoughts_are_open_where_the_template_says(mistral):
    for more, reasoning in (
        ({"prompt_end": "[ASSISTANT]<think>\n"}, "hm"),
        ({"prompt_end": "[ASSISTANT]"}, ""),
        ({"prompt_end": "[ASSISTANT]<think>\n", "opens_turn": False}, ""),
    ):
        reader = plan_message(mistral, PARAMS, **more).new_reader()
        pieces = reader.push("hm")
        assert pieces.reasoning == reasoning
