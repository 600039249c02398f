"""Turns events of a response into what is sent."""

from collections.abc import Sequence

import orjson

from pagewire_frontend.http.responses.output import Event


def frames(events: Sequence[Event]) -> list[bytes]:
    """Return each event with its type in front, as OpenAI's streams of responses have it."""
    return [
        b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
        for event in events
    ]
