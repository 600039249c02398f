"""Events of a stream into messages: one reader per choice, what it held back at the end, and the
reason of the end."""

import pytest

from pagewire_frontend.message.pieces import MessagePieces, PlainReader, ToolCallDelta
from pagewire_frontend.session.choice_messages import ChoiceMessages, MessageDelta, MessageFinished
from pagewire_frontend.session.events import Delta, Finished, FinishReason, Opened
from support.checkpoints.marked_messages import MarkedReader

TEXT = 'one ~why~two#find:{"x": 1}#three'


def shown(texts, tail="", reason=FinishReason.STOP, new_reader=MarkedReader):
    messages, events, position = ChoiceMessages(new_reader), [], 0
    for text in texts:
        events += messages.take(Delta(0, position, [7] * len(text), text))
        position += len(text)
    return [*events, *messages.take(Finished(0, reason, tail))]


def reported(events):
    """Return content, reasoning, whole calls by index, and the end."""
    *deltas, end = events
    content = "".join(event.pieces.content for event in deltas) + end.finished.text
    reasoning = "".join(event.pieces.reasoning for event in deltas)
    calls = {}
    for call in (call for event in deltas for call in event.pieces.calls):
        old = calls.get(call.index, (None, None, ""))
        calls[call.index] = (call.call_id or old[0], call.name or old[1], old[2] + call.arguments)
    return content, reasoning, calls, end


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(TEXT)])
def test_a_message_is_the_same_in_any_cut(size):
    texts = [TEXT[begin : begin + size] for begin in range(0, len(TEXT), size)]
    content, reasoning, calls, end = reported(shown(texts))
    assert (content, reasoning) == ("one twothree", "why")
    assert calls == {0: ("call-0", "find", '{"x": 1}')}
    assert end.has_called


def test_no_token_is_lost_or_moved():
    *deltas, _ = shown(list(TEXT))
    assert [delta.delta.first_position for delta in deltas] == list(range(len(TEXT)))
    assert all(delta.delta.token_ids == [7] for delta in deltas)


def test_what_was_held_back_comes_in_a_last_delta_without_tokens():
    *_, last, end = shown(["#find:{", "}"])
    assert last == MessageDelta(Delta(0, 8), MessagePieces(calls=(ToolCallDelta(0, "}"),)))
    assert end == MessageFinished(Finished(0, FinishReason.STOP), has_called=True)


def test_text_that_comes_with_the_end_is_read_too():
    content, reasoning, calls, end = reported(shown(["a"], tail="b~c~#go:1"))
    assert (content, reasoning, calls) == ("ab", "c", {0: ("call-0", "go", "1")})
    assert end.finished.text == "b"


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STOP])
def test_only_a_choice_that_ends_by_itself_ends_for_its_calls(reason):
    [*_, end] = shown([TEXT], reason=reason)
    assert end.has_called is (reason is FinishReason.STOP)
    assert end.finished.reason is reason


def test_choices_do_not_mix():
    messages = ChoiceMessages(MarkedReader)
    [first] = messages.take(Delta(0, 0, [1], "~a"))
    [second] = messages.take(Delta(1, 0, [1], "b"))
    assert (first.pieces.reasoning, second.pieces.content) == ("a", "b")


def test_other_events_pass():
    opened = Opened(b"id", "m", (1,), 7)
    assert list(ChoiceMessages(PlainReader).take(opened)) == [opened]
    [delta, end] = shown(["a"], tail="b", new_reader=PlainReader)
    assert (delta.pieces, end.finished.text, end.has_called) == (MessagePieces("", "a"), "b", False)
