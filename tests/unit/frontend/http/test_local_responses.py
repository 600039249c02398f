"""Responses of one process between their last event and the moment when they are put away."""

from types import SimpleNamespace
from typing import Any

import pytest

from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.responses.items import input_message
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.pending_response import PendingResponse
from pagewire_frontend.http.responses.store import StoreLimits
from pagewire_frontend.message.pieces import PlainReader
from pagewire_frontend.session.events import Closed, Delta, Finished, FinishReason, Timings, Usage
from pagewire_shared.errors import InvalidRequestError

NAME = f"resp_0123abcd_{'0' * 32}"


class OneAnswer:
    """An engine and its one session, which says hello."""

    async def open(self, request: Any) -> "OneAnswer":
        """Return itself."""
        return self

    def close(self, session: Any) -> None:
        """Hold nothing."""

    async def events(self) -> Any:
        """Yield an answer."""
        yield Delta(0, 0, [1], "hello")
        yield Finished(0, FinishReason.STOP)
        yield Closed(Usage(3, 1, 0), Timings(0.0, 0.0, 0))


def pending() -> Any:
    tokenizer = SimpleNamespace(token_bytes=lambda token_id: b"hello")
    model = SimpleNamespace(name="tiny", shown_name="tiny", tokenizer=tokenizer)
    return PendingResponse(
        response_id=NAME,
        pins=Pins(bytes(32), 0),
        request=SimpleNamespace(model=model, tenant=None),  # type: ignore[arg-type]
        new_reader=PlainReader,
        echo={},
        input_items=[input_message("user", "hi", "msg_1")],
    )


async def test_a_response_can_be_built_on_as_soon_as_its_client_knows_its_end():
    limits = StoreLimits(max_responses=1, max_bytes=10000, max_seconds=1.0)
    streams = LocalStreams("0123abcd", JournalLimits(retention_seconds=1.0, max_bytes=2**20))
    responses = LocalResponses(OneAnswer(), "0123abcd", limits, streams)  # type: ignore[arg-type]
    run = await responses.open(pending())
    with pytest.raises(InvalidRequestError):
        await responses.conversation(NAME, None)
    kinds = [event["type"] async for events in run.events() for event in events]
    assert kinds[-1] == "response.completed"
    before = await responses.conversation(NAME, None)
    assert [item["role"] for item in before] == ["user", "assistant"]
    responses.end(run)
    assert await responses.conversation(NAME, None) == before
    assert (await responses.get(NAME, None))["status"] == "completed"
