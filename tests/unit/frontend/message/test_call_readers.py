"""Tool calls in the text of models: every format, in any cut, and what only looks like a call."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire_frontend.message.call_format import CallFormat
from pagewire_frontend.message.hermes import HermesFormat
from pagewire_frontend.message.llama_json import LlamaJsonFormat
from pagewire_frontend.message.mistral import MistralFormat
from pagewire_frontend.message.pieces import MessageReader
from pagewire_frontend.message.pythonic import PythonicFormat
from support.checkpoints.message_texts import Read, cut, read, read_pieces

NAMES = frozenset({"f", "get_weather", "g-2"})
HERMES, LLAMA, MISTRAL, PYTHONIC = (
    HermesFormat(),
    LlamaJsonFormat(),
    MistralFormat(),
    PythonicFormat(),
)
FORMATS = (HERMES, LLAMA, MISTRAL, PYTHONIC)
F = '{"name": "f", "arguments": {"a": 1}}'
G = '{"name": "g-2", "arguments": {}}'


def reader_of(form: CallFormat, max_calls: int | None = None) -> MessageReader:
    return form.new_reader(NAMES, max_calls=max_calls)


def calls_of(*calls: tuple[str, str], content: str = "") -> Read:
    return Read("", content, calls)


ONE = ("f", '{"a": 1}')
TWO = ("g-2", "{}")
# What a model says, and what it is.
SAID: list[tuple[CallFormat, str, Read]] = [
    (HERMES, f"<tool_call>\n{F}\n</tool_call>", calls_of(ONE)),
    (HERMES, f"Wait.\n<tool_call>{F}</tool_call>\n", calls_of(ONE, content="Wait.")),
    (
        HERMES,
        f"<tool_call>\n{F}\n</tool_call>\n<tool_call>\n{G}\n</tool_call>",
        calls_of(ONE, TWO),
    ),
    (HERMES, f"<tool_call>\n{F}\n</tool_call>\n so ", calls_of(ONE, content="\n so")),
    (HERMES, f"<tool_call>\n{F}", calls_of(ONE)),
    # The last brace is missing.
    (HERMES, f"<tool_call>\n{F[:-1]}\n</tool_call>", calls_of(ONE)),
    (HERMES, f'<tool_call>{F[:-1]}, "id": "x"}}</tool_call>', calls_of(ONE)),
    # Another order of keys, arguments as text, none at all.
    (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', calls_of(ONE)),
    (
        HERMES,
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        calls_of(ONE),
    ),
    (HERMES, '<tool_call>{"name": "g-2"}</tool_call>', calls_of(TWO)),
    (HERMES, '<tool_call>{"id": 1, "name": "g-2", "arguments": null}</tool_call>', calls_of(TWO)),
    (LLAMA, F.replace("arguments", "parameters"), calls_of(ONE)),
    (LLAMA, f"\n{F}; {G}", calls_of(ONE, TWO)),
    (LLAMA, f"<|python_tag|>{F};{G}", calls_of(ONE, TWO)),
    (LLAMA, f"I look. <|python_tag|>{F}", calls_of(ONE, content="I look.")),
    (LLAMA, f"{F}\n", calls_of(ONE)),
    (MISTRAL, f"[TOOL_CALLS] [{F}, {G}]", calls_of(ONE, TWO)),
    (MISTRAL, f"[TOOL_CALLS][{F}] ", calls_of(ONE)),
    (MISTRAL, '[TOOL_CALLS]f[ARGS]{"a": 1}', calls_of(ONE)),
    (MISTRAL, '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g-2{}', calls_of(ONE, TWO)),
    (MISTRAL, 'Hm [TOOL_CALLS]f[CALL_ID]abc123DEF[ARGS] {"a": 1}', calls_of(ONE, content="Hm")),
    (PYTHONIC, "[f(a=1)]", calls_of(ONE)),
    (PYTHONIC, " [f(a = 1), g-2()] ", calls_of(ONE, TWO)),
    (
        PYTHONIC,
        "[f(a='it\\'s', b=[1, (2.5, None)], c={'x': True, \"y\": -3}, d=true,)]",
        calls_of(
            (
                "f",
                '{"a": "it\'s", "b": [1, [2.5, null]], "c": {"x": true, "y": -3}, "d": true}',
            )
        ),
    ),
    (
        PYTHONIC,
        '[f(a="x, y) = ]", b={"k": [")"]})]',
        calls_of(("f", '{"a": "x, y) = ]", "b": {"k": [")"]}}')),
    ),
]
# What only looks like a call is left as it is.
LOOKALIKES: list[tuple[CallFormat, str]] = [
    *((form, "") for form in FORMATS),
    *((form, " \n ") for form in FORMATS),
    *((form, "Grüße <tool_cal [TOOL_CALL <|python_tag {[( 1.") for form in FORMATS),
    (HERMES, "<tool_call>"),
    (HERMES, "<tool_call>\nno</tool_call>"),
    (HERMES, '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arg'),
    (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": 1}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"a": nan}, "name": "f"}</tool_call>'),
    (LLAMA, '{"title": "f", "parameters": {}}'),
    (LLAMA, '{"name": "Ada", "age": 36}'),
    (LLAMA, "{1}; {2}"),
    (LLAMA, f"No: {F}"),
    (LLAMA, "<|python_tag|>print(1)"),
    (MISTRAL, "[TOOL_CALLS] []"),
    (MISTRAL, "[TOOL_CALLS]other{}"),
    (MISTRAL, "[TOOL_CALLS]f[AR"),
    (MISTRAL, f"[{F}]"),
    (PYTHONIC, "[1] says"),
    (PYTHONIC, "[other(a=1)]"),
    (PYTHONIC, "[f(1)]"),
    (PYTHONIC, "[f(a==1)]"),
    (PYTHONIC, "[f(a"),
    (PYTHONIC, "see [f(a=1)]"),
]
# A call that breaks keeps what of its arguments was right; the rest is content.
BROKEN: list[tuple[CallFormat, str, Read]] = [
    (
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>x',
        calls_of(("f", '{"a": 1,'), content="}}</tool_call>x"),
    ),
    (
        LLAMA,
        '{"name": "f", "parameters": {\'a\': 1}}',
        calls_of(("f", "{"), content="'a': 1}}"),
    ),
    (MISTRAL, '[TOOL_CALLS]f{"a": 01}', calls_of(("f", '{"a": 0'), content="1}")),
    (PYTHONIC, "[f(a=1, b=x)]", calls_of(("f", '{"a": 1'), content=", b=x)]")),
    # Cut off by max_tokens.
    (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": "Ber', calls_of(("f", '{"a": "Ber'))),
    (HERMES, f"<tool_call>\n{F}\n</tool_c", calls_of(ONE)),
    (LLAMA, f'{F}; {{"nam', calls_of(ONE, content='; {"nam')),
    (LLAMA, f"{F}; {F[:-5]}", calls_of(ONE, ("f", '{"a"'))),
    (MISTRAL, "[TOOL_CALLS]f[ARGS]{", calls_of(("f", "{"))),
]


@pytest.mark.parametrize(("form", "text", "expected"), [*SAID, *BROKEN])
def test_whole_and_character_by_character(form: CallFormat, text: str, expected: Read) -> None:
    assert read(reader_of(form), [text]) == expected
    assert read(reader_of(form), list(text)) == expected


@pytest.mark.parametrize(("form", "text"), LOOKALIKES)
def test_what_only_looks_like_a_call_is_content(form: CallFormat, text: str) -> None:
    for texts in ([text], list(text)):
        assert read(reader_of(form), texts) == calls_of(content=text)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_calls_beyond_the_most_are_dropped(form: CallFormat) -> None:
    for known, text, expected in SAID:
        if known is form:
            assert read(reader_of(form, 1), [text]) == Read(
                "", expected.content, expected.calls[:1]
            )


ALPHABET = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "[CALL_ID]x"),
    *('{"name": "f", "arguments": ', '{"name": "g-2", "parameters": {', '"a": ', '"a"', "}", "{"),
    *("[", "]", "(", ")", ",", ";", "=", "'", '"', "\\", "\n", " ", "1", "-0.5e3", "true", "None"),
    *("f(", "a=", "g-2()", "é", "😀", "<", "t", "\\u00e9", "x"),
)
texts = st.lists(st.sampled_from(ALPHABET), max_size=24).map("".join) | st.sampled_from(
    [text for _, text, _ in [*SAID, *BROKEN]] + [text for _, text in LOOKALIKES]
)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=150, deadline=None)
@given(text=texts, places=st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_gives_the_same(form: CallFormat, text: str, places: list[int]) -> None:
    whole = read(reader_of(form), [text])
    assert read(reader_of(form), cut(text, places)) == whole
    assert read(reader_of(form), list(text)) == whole


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_nothing_is_lost_without_calls(form: CallFormat, text: str) -> None:
    found = read(reader_of(form), [text])
    if not found.calls:
        assert found.content == text


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
arguments = st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), values, max_size=3)


def written(form: CallFormat, calls: list[dict[str, object]], indent: int | None) -> str:
    """Return calls as a model writes them."""
    objects = [json.dumps({"name": "f", "arguments": call}, indent=indent) for call in calls]
    if form is HERMES:
        return "\n".join(f"<tool_call>\n{item}\n</tool_call>" for item in objects)
    if form is LLAMA:
        return "; ".join(objects).replace('"arguments"', '"parameters"')
    if form is MISTRAL:
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    said = [", ".join(f"{key}={value!r}" for key, value in call.items()) for call in calls]
    return f"[{', '.join(f'f({item})' for item in said)}]"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=60, deadline=None)
@given(calls=st.lists(arguments, min_size=1, max_size=3), indent=st.none() | st.just(2))
def test_what_is_written_is_read(
    form: CallFormat, calls: list[dict[str, object]], indent: int | None
) -> None:
    found = read(reader_of(form), list(written(form, calls, indent)))
    assert found.content == ""
    assert [json.loads(text) for _, text in found.calls] == calls


def test_arguments_come_as_they_are_written() -> None:
    pieces = read_pieces(reader_of(HERMES), list(f"<tool_call>\n{F}\n</tool_call>"))
    reported = [call for piece in pieces for call in piece.calls]
    assert (reported[0].index, reported[0].name, reported[0].arguments) == (0, "f", "{")
    assert re.fullmatch(r"call_[a-zA-Z0-9]{24}", str(reported[0].call_id))
    assert [call.arguments for call in reported[1:]] == list('"a": 1}')
    assert {(call.call_id, call.name) for call in reported[1:]} == {(None, None)}


def test_ids_of_mistral_are_short() -> None:
    [piece] = [p for p in read_pieces(reader_of(MISTRAL), ["[TOOL_CALLS]f{}"]) if p.calls]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", str(piece.calls[0].call_id))


def test_a_plain_answer_is_not_held_back() -> None:
    reader = reader_of(HERMES)
    assert reader.push("Hello, ").content == "Hello,"
    assert reader.push("world <").content == " world"
    assert reader.push("3").content == " <3"
