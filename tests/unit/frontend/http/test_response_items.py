"""Items of conversations: how they are read, kept, and turned into turns."""

import pytest

from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.responses import ids, items
from pagewire_frontend.http.responses.input import input_items
from pagewire_frontend.http.responses.kept import page
from pagewire_frontend.http.responses.shapes import Shapes
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.frontend_tag import mint_tag
from support.oracles.response_shapes import check_kept_item

PINS = Pins(bytes(32), 0)


def call(number, arguments="{}", **rest):
    return items.function_call(f"c{number}", f"f{number}", arguments, f"fc_{number}", **rest)


def test_a_text_is_a_message():
    [item] = input_items("hi", Shapes(PINS))
    check_kept_item(item)
    assert items.turns([item], "Be.") == [
        {"role": "system", "content": "Be."},
        {"role": "user", "content": "hi"},
    ]


def test_every_form_of_input_is_kept_in_the_published_shape():
    given = [
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "d", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "e"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}'},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "g"}],
        },
    ]
    found = input_items(given, Shapes(PINS))
    for item in found:
        check_kept_item(item)
    assert [found[3]["id"], found[4]["id"]] == ["msg_1", "rs_1"]
    assert len({item["id"] for item in found}) == len(found)
    turns = items.turns(found)
    assert [turn["role"] for turn in turns] == [
        "system",
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
    ]
    assert turns[3]["content"] == "de"
    assert turns[4]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
    assert turns[5] == {"role": "tool", "content": "g", "tool_call_id": "c", "name": "f"}


def test_one_turn_of_the_assistant_is_several_items():
    said = [
        items.reasoning("Hm, ", "rs_1"),
        items.reasoning("so.", "rs_2"),
        items.output_message([items.text_part("Well.")], "msg_1"),
        call(1),
        call(2, '{"a": []}'),
    ]
    [turn] = items.turns(said)
    assert (turn["content"], turn["reasoning_content"]) == ("Well.", "Hm, so.")
    assert [made["id"] for made in turn["tool_calls"]] == ["c1", "c2"]
    # What comes after calls is a turn of its own, whose thoughts are its own.
    more = items.turns([*said, items.reasoning("Aha.", "rs_3"), items.output_message([], "msg_2")])
    assert [turn.get("reasoning_content") for turn in more] == ["Hm, so.", "Aha."]


def test_thoughts_without_text_say_nothing():
    [turn] = items.turns(
        [items.reasoning(None, "rs_1"), items.output_message([items.text_part("x")], "msg_1")]
    )
    assert "reasoning_content" not in turn


def test_arguments_that_are_no_object_name_their_place():
    with pytest.raises(InvalidRequestError, match=r"input\.1"):
        items.turns([items.input_message("user", "x", "msg_1"), call(1, "[]")])


def test_half_a_call_is_nothing_to_build_on():
    assert not items.is_whole(call(1, status="incomplete"))
    assert items.is_whole(call(1))
    assert items.is_whole(items.output_message([], "msg_1", status="incomplete"))


def test_names_tell_the_process():
    tag = mint_tag("a")
    name = ids.mint_response_id(tag)
    assert ids.tag_of(name) == tag
    for other in ("", "resp_", name[:-1], name + "0", name.upper(), f"{name}\n"):
        assert ids.tag_of(other) is None
    assert len({ids.mint_response_id(tag) for _ in range(100)}) == 100


def test_pages():
    listed = [items.input_message("user", str(number), f"m{number}") for number in range(25)]

    def names(**query):
        found = page(listed, query)
        assert found["first_id"] == (found["data"][0]["id"] if found["data"] else "")
        assert found["last_id"] == (found["data"][-1]["id"] if found["data"] else "")
        return [item["id"] for item in found["data"]], found["has_more"]

    assert names() == ([f"m{n}" for n in range(24, 4, -1)], True)
    assert names(order="asc", limit="2") == (["m0", "m1"], True)
    assert names(order="asc", after="m22") == (["m23", "m24"], False)
    assert names(after="m0") == ([], False)
    assert names(limit="100") == ([f"m{n}" for n in range(24, -1, -1)], False)
