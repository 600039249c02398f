"""Models that answer in harmony: how they are found, their prompts (compared with openai-harmony's,
in harmony.json), and the grammars of their answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher

from pagewire_frontend.chat.effort import effort_arguments
from pagewire_frontend.chat.harmony_turns import harmony_tools, harmony_turns
from pagewire_frontend.chat.plan import MessagePlan, plan_message
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_frontend.http.openai.chat_turns import chat_turns
from pagewire_frontend.http.openai.schemas import ChatMessageBody
from pagewire_frontend.message.formats import FormatChoice, parse_formats
from pagewire_frontend.models.model_registry import LoadedModel, ModelSpec, load_model
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.sampling.grammar_source import check, compile_grammar, load_grammar_tokenizer
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.checkpoints.checkpoints import EOS_TOKEN_ID
from support.checkpoints.harmony_models import TEMPLATE, TOKENS, add_harmony
from support.checkpoints.text_models import make_text_model

PROMPTS = json.loads(Path(__file__).with_name("harmony.json").read_text())["prompts"]
PARAMS = SamplingParams(max_tokens=None)
DAYS: dict[str, Any] = {
    "type": "object",
    "properties": {"days": {"type": "integer", "maximum": 9}},
    "required": ["days"],
    "additionalProperties": False,
}
TOOLS = (Tool(name="f", parameters=DAYS, strict=True), Tool(name="g"))
ANALYSIS = "<|channel|>analysis<|message|>{[ hm\n<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = add_harmony(make_text_model(tmp_path_factory.mktemp("harmony") / "m"))
    return load_model(ModelSpec("m", str(folder)))


def test_results_without_a_call_stay_where_they_are() -> None:
    """Over gRPC a result need not name its call."""
    call = {"id": "c", "function": {"name": "f", "arguments": {}}}
    said: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call, call]}
    result = {"role": "tool", "content": "x"}
    named = {**result, "tool_call_id": "c"}
    one = {**said, "tool_calls": [call]}
    assert harmony_turns([result, said, result, named]) == [result, one, named, one, result]


class Masks:
    """What the masks of a grammar allow to a model."""

    def __init__(self, model: LoadedModel) -> None:
        self._tokenizer = model.tokenizer
        self._grammars = load_grammar_tokenizer(
            model.tokenizer.to_json(), model.tokenizer.vocab_size, model.eos_token_ids
        )
        self._compiled: dict[bytes, LLMatcher] = {}

    def accept(self, plan: MessagePlan, text: str) -> bool:
        """Return whether the masks allow `text`, and an end behind it."""
        outputs = plan.params.structured_outputs
        assert outputs is not None
        if outputs.digest not in self._compiled:
            check(self._grammars, outputs)
            self._compiled[outputs.digest] = compile_grammar(self._grammars, outputs)
        matcher = self._compiled[outputs.digest].deep_copy()
        for token in self._tokenizer.encode(text, add_special_tokens=False):
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            if not np.unpackbits(bits, bitorder="little")[token]:
                return False
            assert matcher.consume_token(token), matcher.get_error()
        return bool(matcher.is_accepting())


@pytest.fixture(scope="module")
def masks(model: LoadedModel) -> Masks:
    return Masks(model)


def test_a_model_is_found_by_its_template_and_its_tokens(model: LoadedModel) -> None:
    ids = {token: model.tokenizer.id_of(token) for token in TOKENS}
    form = model.formats.harmony
    assert form is not None
    assert form.ids == ids
    assert (model.formats.calls, model.formats.reasoning) == (None, None)
    assert model.eos_token_ids == (EOS_TOKEN_ID, ids["<|return|>"], ids["<|call|>"])


IDS = {token: index for index, token in enumerate(TOKENS)}


def choice(calls: str | None, reasoning: str | None) -> FormatChoice:
    given = [[name] if name is not None else [] for name in (calls, reasoning)]
    return parse_formats(*given, (), ["m"])


@pytest.mark.parametrize(
    ("calls", "reasoning", "template", "is_harmony"),
    [
        (None, None, TEMPLATE.read_text(), True),
        (None, None, "<think>", False),
        ("openai", None, None, True),
        (None, "openai_gptoss", "<think>", True),
        ("openai", "openai_gptoss", None, True),
        ("hermes", None, TEMPLATE.read_text(), False),
        (None, "none", TEMPLATE.read_text(), False),
    ],
)
def test_flags_say_more_than_the_template(
    calls: str | None, reasoning: str | None, template: str | None, is_harmony: bool
) -> None:
    found = choice(calls, reasoning).formats_of("m", template, IDS)
    assert (found.harmony is not None) is is_harmony


@pytest.mark.parametrize(
    ("calls", "reasoning", "ids", "field"),
    [
        ("openai", "qwen3", IDS, "tool_call_parser"),
        ("hermes", "openai_gptoss", IDS, "reasoning_parser"),
        ("openai", None, {}, "tool_call_parser"),
    ],
)
def test_flags_that_contradict_are_refused(
    calls: str, reasoning: str | None, ids: dict[str, int], field: str
) -> None:
    with pytest.raises(StartupError) as caught:
        choice(calls, reasoning).formats_of("m", None, ids)
    assert caught.value.field == field


def rendered(model: LoadedModel, messages: Any, tools: Any = (), **arguments: Any) -> str:
    use = ToolUse(tools=tools, mode="auto" if tools else "none")
    assert model.chat_template is not None
    return model.chat_template.render(
        harmony_turns(chat_turns([ChatMessageBody(**message) for message in messages])),
        add_generation_prompt=True,
        arguments=arguments,
        tools=harmony_tools(plan_message(model, PARAMS, use).template_tools),
    )


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_prompts_are_those_of_the_library(model: LoadedModel, number: int) -> None:
    recorded = PROMPTS[number]
    tools = [Tool(**tool["function"]) for tool in recorded["tools"] or ()]
    more = {**effort_arguments(recorded["effort"]), "current_date": recorded["date"]}
    assert rendered(model, recorded["messages"], tools, **more) == recorded["prompt"]


def test_what_the_template_cannot_show_is_put_where_it_can(model: LoadedModel) -> None:
    call: Any = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    text = rendered(
        model,
        [
            {"role": "system", "content": "One."},
            {"role": "user", "content": "Hi"},
            # Reasoning alone: an answer that was cut off.
            {"role": "assistant", "reasoning_content": "hm", "content": ""},
            {"role": "developer", "content": [{"type": "text", "text": "Two."}]},
            {"role": "user", "content": "Hm"},
            {"role": "assistant", "content": "Yes."},
            {"role": "assistant", "content": "And no."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "First."},
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Look.",
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "other", "content": "?"},
        ],
        [Tool(name="f", parameters={"properties": {"a": {"type": "string"}, "b": True}})],
    )
    _, _, behind = text.partition("<|start|>developer")
    assert behind.startswith("<|message|># Instructions\n\nOne.\n\nTwo.\n\n# Tools")
    assert "\n// \ntype f = (_: {\na?: string,\n" in behind
    assert behind.endswith(
        "<|start|>user<|message|>Hi<|end|><|start|>user<|message|>Hm<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Yes.\n\nAnd no.<|end|>"
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>First.\n\nLook.\n\nI look.<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>"
        "{}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>?<|end|>"
        "<|start|>assistant"
    )


@pytest.mark.parametrize("before", ["", ANALYSIS, 2 * ANALYSIS])
def test_calls_are_held_behind_their_header(model: LoadedModel, masks: Masks, before: str) -> None:
    def allows(plan: MessagePlan, text: str) -> bool:
        return masks.accept(plan, before + text)

    forced = plan_message(model, PARAMS, ToolUse(tools=TOOLS, mode="required"))
    other = CALL.replace(".f", ".g")
    assert forced.has_grammar
    assert allows(forced, CALL + '{"days": 3}')
    assert allows(forced, other + "{}")
    for text in (CALL + '{"days": 33}', CALL + "{}", FINAL + "x", other + '{"a": 1}', "x"):
        assert not allows(forced, text)
    named = plan_message(model, PARAMS, ToolUse(tools=TOOLS, mode="required", name="g"))
    assert (allows(named, other + "{}"), allows(named, CALL + '{"days": 3}')) == (True, False)
    strict = plan_message(model, PARAMS, ToolUse(tools=TOOLS, mode="auto"))
    preamble = ANALYSIS.replace("analysis", "commentary")
    for text in (FINAL + "x", CALL + '{"days": 3}', preamble + CALL + '{"days": 3}'):
        assert allows(strict, text)
    assert allows(strict, other + '{"a": 1}')
    assert not allows(strict, CALL + "{}")


@pytest.mark.parametrize(
    ("outputs", "good", "bad"),
    [
        ({"json": DAYS}, '{"days": 3}', "{}"),
        ({"json": "true"}, "[1]", "x"),
        ({"json_object": True}, '{"a": 1}', "[1]"),
        ({"json": DAYS, "disable_any_whitespace": True}, '{"days":3}', '{"days": 3}'),
        ({"regex": r"a/b\/|é\n"}, "a/b/", "a"),
        ({"choice": ('"yes"', "no\n")}, "no\n", "yes"),
    ],
)
def test_a_form_of_the_client_holds_the_final_message(
    model: LoadedModel, masks: Masks, outputs: Any, good: str, bad: str
) -> None:
    held = PARAMS.with_(structured_outputs=StructuredOutputsParams(**outputs))
    plan = plan_message(model, held, ToolUse(tools=TOOLS[1:], mode="auto"))
    assert not plan.has_grammar
    for before in ("", ANALYSIS):
        assert masks.accept(plan, before + FINAL + good)
        assert not masks.accept(plan, before + FINAL + bad)
    assert not masks.accept(plan, good)
    # A turn that is continued is the final message already.
    continued = plan_message(model, held, opens_turn=False)
    assert continued.params == held
    assert continued.new_reader().push(good).content == good


def test_what_no_grammar_can_hold_is_refused(model: LoadedModel) -> None:
    lark = StructuredOutputsParams(grammar='start: "a"')
    forced = ToolUse(tools=TOOLS, mode="required")
    for params, use, opens_turn, field in (
        (PARAMS.with_(structured_outputs=lark), ToolUse(), True, "structured_outputs"),
        (PARAMS.with_(structured_outputs=lark), forced, True, "tool_choice"),
        (PARAMS, forced, False, "tool_choice"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            plan_message(model, params, use, opens_turn=opens_turn)
        assert caught.value.field == field


def test_without_tools_nothing_is_called(model: LoadedModel) -> None:
    plan = plan_message(model, PARAMS, ToolUse(tools=TOOLS), prompt_end="<|end|><|start|>assistant")
    assert (plan.params, plan.template_tools) == (PARAMS, None)
    form = model.formats.harmony
    assert form is not None
    assert plan.marks == form.marks
    reader = plan.new_reader()
    text = "".join(
        plan.marks.get(i, model.tokenizer.token_text(i))
        for i in model.tokenizer.encode(f"{CALL}{{}}", add_special_tokens=False)
    )
    assert (reader.push(text).content, reader.num_calls) == ("{}", 0)
