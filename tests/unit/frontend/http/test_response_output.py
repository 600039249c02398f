"""From pieces of a message to items and events, in any cut; and which tokens a text is made of."""

import random

import pytest

from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.responses.output import Output
from pagewire_frontend.http.responses.run import TextLogprobs
from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta
from pagewire_frontend.session.journal_records import TokenLogprob


def content(text):
    return MessagePieces(content=text)


def thought(text):
    return MessagePieces(reasoning=text)


def call(index, arguments, name=None):
    delta = ToolCallDelta(index, arguments, f"c{index}" if name else None, name)
    return MessagePieces(calls=(delta,))


def shown(output):
    """Return what the items hold, without ids."""
    found = []
    for item in output.items:
        if item["type"] == "function_call":
            found.append((item["call_id"], item["name"], item["arguments"], item["status"]))
        else:
            [part] = item["content"]
            found.append((item["type"], part["text"], item["status"]))
    return found


def test_items_in_the_order_in_which_they_begin():
    output = Output(Pins(bytes(32), 0))
    events = []
    for pieces in (
        thought("Hm"),
        thought("."),
        content("\n"),
        content(" A"),
        call(0, "", "f"),
        call(0, "{}"),
        content(" \n"),
        call(1, "{", "g"),
    ):
        events += output.push(pieces)
    events += output.finish("incomplete")
    assert shown(output) == [
        ("reasoning", "Hm.", "completed"),
        ("message", "\n A", "completed"),
        ("c0", "f", "{}", "completed"),
        ("c1", "g", "{", "incomplete"),
    ]
    assert output.reasoning_text == "Hm."
    opened = [event["output_index"] for event in events if event["type"].endswith("item.added")]
    closed = [event["output_index"] for event in events if event["type"].endswith("item.done")]
    assert opened == closed == [0, 1, 2, 3]


def test_the_pieces_of_one_push_come_in_order():
    output = Output(Pins(bytes(32), 0))
    deltas = (ToolCallDelta(0, "{}", "c0", "f"), ToolCallDelta(1, "{}", "c1", "g"))
    output.push(MessagePieces("a", "b", deltas))
    output.finish("completed")
    assert [item["type"] for item in output.items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_output_is_at_least_one_message(text):
    output = Output(Pins(bytes(32), 0))
    assert output.push(content(text)) == []
    output.finish("completed")
    assert shown(output) == [("message", text, "completed")]


def test_blank_text_is_kept_where_it_belongs():
    output = Output(Pins(bytes(32), 0))
    output.push(content("a"))
    output.push(content("  "))
    output.push(content("b"))
    output.push(content(" "))
    output.finish("completed")
    assert shown(output) == [("message", "a  b ", "completed")]


def test_events_do_not_change_after_they_were_told():
    output = Output(Pins(bytes(32), 0))
    events = output.push(content("a"), [{"token": "a"}])
    before = repr(events)
    output.push(content("b"), [{"token": "b"}])
    output.finish("completed")
    assert repr(events) == before
    assert output.items[0]["content"][0]["logprobs"] == [{"token": "a"}, {"token": "b"}]


TOKENS = {1: b"ab", 2: "é".encode()[:1], 3: "é".encode()[1:], 4: b" ", 5: b"<t>", 6: b"cd"}


def push(logprobs, *token_ids):
    logprobs.push([TokenLogprob(token_id, -1.0) for token_id in token_ids])


def ids(taken):
    return [item.token_id for item in taken]


def test_tokens_follow_the_text():
    logprobs = TextLogprobs(lambda token_id: TOKENS[token_id])
    push(logprobs, 5, 1, 2)
    assert ids(logprobs.take("ab")) == [1]
    push(logprobs, 3, 4)
    assert ids(logprobs.take("é ")) == [2, 3, 4]
    push(logprobs, 1, 5, 6)
    assert ids(logprobs.take("b")) == [1]
    assert ids(logprobs.take("c")) == [6]
    assert ids(logprobs.take("")) == []
    push(logprobs, 1, 5, 6)
    # What stands between is not shown: all of it is told.
    assert ids(logprobs.take("abcd")) == [1, 5, 6]
    assert ids(logprobs.take("ab")) == []


def test_text_that_comes_late_in_any_cut():
    generator = random.Random(2)
    for _ in range(200):
        logprobs = TextLogprobs(lambda token_id: TOKENS[token_id])
        tokens = [generator.choice([1, 4, 6]) for _ in range(12)]
        text = b"".join(TOKENS[token] for token in tokens).decode()
        taken = []
        place = reported = 0
        while place < len(text):
            if reported < len(tokens):
                push(logprobs, tokens[reported])
                reported += 1
            known = sum(len(TOKENS[token]) for token in tokens[:reported])
            end = generator.randrange(place, known + 1)
            taken += ids(logprobs.take(text[place:end]))
            place = max(place, end)
        # A token that is cut in two is told once, with its first character.
        assert len(taken) <= len(tokens)
        assert set(taken) <= set(tokens)
