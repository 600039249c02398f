"""Grammars of tool calls compile with llguidance, and what they let through is what is read."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer
from tokenizers import AddedToken, Tokenizer

from pagewire_frontend.chat.plan import MessagePlan, plan_message
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_frontend.message.call_format import CallFormat
from pagewire_frontend.message.formats import CALL_FORMATS, MessageFormats
from pagewire_frontend.message.pieces import MessagePieces, merged
from pagewire_frontend.message.reasoning import REASONING_FORMATS
from pagewire_frontend.models.model_registry import LoadedModel, ModelSpec, load_model
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.grammar_source import compile_grammar, load_grammar_tokenizer
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.checkpoints import EOS_TOKEN_ID
from support.checkpoints.text_models import make_text_model
from support.oracles.json_schema import is_valid

MARKERS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]")
THOUGHTS = ("<think>", "</think>")
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"$ref": "#/$defs/city", "description": 'a // comment # and "root ::=" é'},
        "days": {"type": "integer", "minimum": 0, "maximum": 20},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
    "$defs": {"city": {"type": "string", "maxLength": 4}},
}
PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"pair": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
    "additionalProperties": False,
}
TOOLS = (
    Tool(name="weather", parameters=WEATHER, strict=True),
    Tool(name="weather-2", parameters=PAIR),
    Tool(name="now"),
)
SCHEMAS = {
    "weather": WEATHER,
    "weather-2": PAIR,
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
FORMATS = {form.name: form for form in CALL_FORMATS}
MAX_TOKENS = 160


class Bench:
    """A model with or without tokens of its own for markers, and llguidance's view of it."""

    def __init__(self, folder: Path, tokens: Sequence[str]) -> None:
        path = make_text_model(folder) / "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(path))
        # As in Qwen's files some are special and some are not.
        for token in tokens:
            is_special = token in ("[TOOL_CALLS]", "<|python_tag|>", "[ARGS]")
            added = AddedToken(token, special=is_special, normalized=False)
            tokenizer.add_tokens([added])
        tokenizer.save(str(path))
        self.model = load_model(ModelSpec("m", str(folder)))
        size = self.model.tokenizer.vocab_size
        self.grammars: LLTokenizer = load_grammar_tokenizer(
            self.model.tokenizer.to_json(), size, [EOS_TOKEN_ID]
        )

    def loaded(self, form: CallFormat | None, style: str = "") -> LoadedModel:
        formats = MessageFormats(calls=form, reasoning=REASONING_FORMATS.get(style))
        fields = {name: getattr(self.model, name) for name in LoadedModel.__dataclass_fields__}
        return LoadedModel(**{**fields, "formats": formats})

    def plan(self, form: CallFormat | None, use: ToolUse, style: str = "") -> MessagePlan:
        return plan_message(self.loaded(form, style), SamplingParams(max_tokens=None), use)

    def walk(self, plan: MessagePlan, seed: int, pick: "Pick | None" = None) -> tuple[str, bool]:
        """Return a random text that the masks allow, and whether it came to its end."""
        assert plan.params.structured_outputs is not None
        matcher = compile_grammar(self.grammars, plan.params.structured_outputs)
        dice = random.Random(seed)
        ids: list[int] = []
        for _ in range(MAX_TOKENS):
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
            assert allowed, matcher.get_error()
            # An end where there can be one, every other time.
            is_end = EOS_TOKEN_ID in allowed and (len(allowed) == 1 or dice.random() < 0.5)
            token = EOS_TOKEN_ID if is_end else dice.choice(allowed)
            if pick is not None and not is_end:
                token = pick(ids, allowed) or token
            assert matcher.consume_token(token), matcher.get_error()
            if token == EOS_TOKEN_ID:
                return self.decoded(plan, ids), True
            ids.append(token)
        return self.decoded(plan, ids), False

    def decoded(self, plan: MessagePlan, ids: list[int]) -> str:
        skip = plan.params.skip_special_tokens
        return self.model.tokenizer.decode(ids, skip_special_tokens=skip)

    def accepts(self, plan: MessagePlan, text: str) -> bool:
        """Return whether the masks allow `text`, and an end behind it."""
        assert plan.params.structured_outputs is not None
        matcher = compile_grammar(self.grammars, plan.params.structured_outputs)
        for token in self.model.tokenizer.encode(text, add_special_tokens=False):
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            if not np.unpackbits(bits, bitorder="little")[token]:
                return False
            assert matcher.consume_token(token), matcher.get_error()
        return bool(matcher.is_accepting())


Pick = Callable[[list[int], list[int]], int | None]


def read(plan: MessagePlan, text: str) -> MessagePieces:
    reader = plan.new_reader()
    pieces = MessagePieces()
    for char in text:
        pieces = merged(pieces, reader.push(char))
    return merged(pieces, reader.finish())


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("spelled") / "m", ())


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("marked") / "m", (*MARKERS, *THOUGHTS))


@pytest.fixture(params=["spelled", "marked"])
def bench(request: pytest.FixtureRequest) -> Bench:
    found: Bench = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("name", [*FORMATS, "none"])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_what_is_forced_is_calls_that_follow_their_schema(
    bench: Bench, name: str, is_parallel: bool
) -> None:
    use = ToolUse(tools=TOOLS, mode="required", is_parallel=is_parallel)
    plan = bench.plan(FORMATS.get(name), use)
    ends, seen = 0, set()
    for seed in range(12):
        text, is_ended = bench.walk(plan, seed)
        pieces = read(plan, text)
        # What is cut off may be the beginning of a call.
        assert not (is_ended and pieces.content), text
        whole = pieces.calls if is_ended else pieces.calls[:-1]
        for call in whole:
            assert is_valid(json.loads(call.arguments), SCHEMAS[str(call.name)]), text
            seen.add(call.name)
        if is_ended:
            ends += 1
            assert len(pieces.calls) == 1 or (is_parallel and pieces.calls), text
    assert ends >= 6
    assert len(seen) >= 2


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_tool_is_called_once(bench: Bench, name: str) -> None:
    plan = bench.plan(FORMATS[name], ToolUse(tools=TOOLS, mode="required", name="weather-2"))
    for seed in range(6):
        text, is_ended = bench.walk(plan, seed)
        if is_ended:
            [call] = read(plan, text).calls
            assert call.name == "weather-2"
            assert is_valid(json.loads(call.arguments), PAIR)


GOOD = {"city": "Rome", "unit": "C"}
BAD = {"city": "Romeee", "unit": "C"}


def said(name: str, bench_is_marked: bool, *calls: tuple[str, dict[str, Any]]) -> str:
    """Return calls as the grammar has them."""
    key = "parameters" if name == "llama3_json" else "arguments"
    objects = [json.dumps({"name": tool, key: values}) for tool, values in calls]
    if name == "hermes":
        return "\n".join(f"<tool_call>\n{item}\n</tool_call>" for item in objects)
    if name == "llama3_json":
        return "; ".join(objects)
    if name == "mistral" and bench_is_marked:
        return "".join(f"[TOOL_CALLS]{tool}[ARGS]{json.dumps(v)}" for tool, v in calls)
    if name == "mistral":
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    items = [
        f"{tool}({', '.join(f'{k}={json.dumps(v)}' for k, v in values.items())})"
        for tool, values in calls
    ]
    return f"[{', '.join(items)}]"


@pytest.mark.parametrize("name", FORMATS)
def test_strict_tools_are_held_only_where_one_is_called(
    bench: Bench, marked: Bench, name: str
) -> None:
    plan = bench.plan(FORMATS[name], ToolUse(tools=TOOLS, mode="auto"))
    is_marked = bench is marked
    assert bench.accepts(plan, "Hello, 1 < 2!")
    assert bench.accepts(plan, "")
    one = said(name, is_marked, ("weather", GOOD))
    assert bench.accepts(plan, one)
    assert bench.accepts(plan, said(name, is_marked, ("weather", GOOD), ("weather", GOOD)))
    assert not bench.accepts(plan, said(name, is_marked, ("weather", BAD)))
    # Tools that are not strict may be called with anything.
    if name != "pythonic":
        assert bench.accepts(plan, said(name, is_marked, ("weather-2", BAD)))
    if name in ("hermes", "mistral"):
        assert bench.accepts(plan, f"I look.{one}")
    single = bench.plan(FORMATS[name], ToolUse(tools=TOOLS, mode="auto", is_parallel=False))
    assert bench.accepts(single, one)
    assert not bench.accepts(single, said(name, is_marked, ("weather", GOOD), ("weather", GOOD)))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("style", ["deepseek_r1", "qwen3"])
def test_a_thought_may_come_before_what_is_forced(
    bench: Bench, marked: Bench, name: str, style: str
) -> None:
    use = ToolUse(tools=TOOLS, mode="required")
    plan = bench.plan(FORMATS[name], use, style)
    call = said(name, bench is marked, ("weather", GOOD))
    opening = "" if style == "deepseek_r1" else "<think>"
    text = f"{opening}hm {{[ hm\n</think>\n\n{call}"
    assert bench.accepts(plan, text)
    pieces = read(plan, text)
    assert (pieces.reasoning, pieces.content) == ("hm {[ hm", "")
    assert [c.name for c in pieces.calls] == ["weather"]
    # A thought that the prompt has opened must end; others need not be.
    assert bench.accepts(plan, call) is (style == "qwen3")
    assert not bench.accepts(plan, f"{opening}hm</think>no")


def test_too_much_for_one_grammar_is_told(spelled: Bench) -> None:
    wide = {"type": "object", "properties": {f"p{i}": {"enum": ["x" * 400]} for i in range(90)}}
    tools = [Tool(name=f"t{i}", parameters=wide) for i in range(2)]
    with pytest.raises(InvalidRequestError, match="grammar may have at most") as caught:
        spelled.plan(FORMATS["hermes"], ToolUse(tools=tools, mode="required"))
    assert caught.value.field == "tools"


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}]},
        {"properties": {"a b": {}}},
        {"required": ["a"]},
        {"properties": {"a": False}},
    ],
)
def test_what_keyword_arguments_cannot_say_is_refused(spelled: Bench, schema: Any) -> None:
    use = ToolUse(tools=[Tool(name="f", parameters=schema)], mode="required")
    with pytest.raises(InvalidRequestError, match="keyword arguments") as caught:
        spelled.plan(FORMATS["pythonic"], use)
    assert caught.value.field == "tools"
