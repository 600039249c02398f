"""Makes traces in the JSON format of Chrome (chrome://tracing, Perfetto): encodes the events of one
rank, and joins those of several.

A trace under way is a fragment: events of JSON with commas between them, as gzip.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pagewire_shared.errors import InternalError
from pagewire_shared.process.sizes import format_size
from pagewire_worker.inspection.step_clock import Event

MAX_FRAGMENT_BYTES: Final = 64 * 1024**2
"""Of the events of one rank, as JSON."""
MAX_TRACE_BYTES: Final = 64 * 1024**2
"""Of a whole trace, as gzip."""

_PHASES_THREAD: Final = 0
"""Number of the thread under which phases are shown, apart from the threads that torch names."""
_LEVEL: Final = 6


def encode_events(
    events: Iterable[Event], pid: int, process_name: str, others: Sequence[dict[str, Any]] = ()
) -> bytes:
    """Return the fragment of one rank.

    Args:
        pid: Number of its process.
        others: Further events, as the format has them.

    Raises:
        InternalError: It is longer than MAX_FRAGMENT_BYTES.
    """
    compressor = zlib.compressobj(_LEVEL, wbits=31)
    pieces: list[bytes] = []
    num_bytes = 0
    for line in _lines(events, pid, process_name, others):
        data = line if not num_bytes else b",\n" + line
        num_bytes += len(data)
        if num_bytes > MAX_FRAGMENT_BYTES:
            most = format_size(MAX_FRAGMENT_BYTES)
            raise InternalError(f"the events of a rank take more than {most}: ask for fewer steps")
        pieces.append(compressor.compress(data))
    pieces.append(compressor.flush())
    return b"".join(pieces)


def join_fragments(fragments: Sequence[bytes]) -> bytes:
    """Return the trace of some ranks, as gzip. Raises InternalError for more than
    MAX_TRACE_BYTES."""
    compressor = zlib.compressobj(_LEVEL, wbits=31)
    pieces = [compressor.compress(b'{"displayTimeUnit":"ms","traceEvents":[\n')]
    for number, fragment in enumerate(fragments):
        separator = b",\n" if number else b""
        pieces.append(compressor.compress(separator + gzip.decompress(fragment)))
    pieces.append(compressor.compress(b"\n]}\n"))
    pieces.append(compressor.flush())
    trace = b"".join(pieces)
    if len(trace) > MAX_TRACE_BYTES:
        raise InternalError(
            f"the trace has {format_size(len(trace))}, more than {format_size(MAX_TRACE_BYTES)}:"
            " ask for fewer steps"
        )
    return trace


def _lines(
    events: Iterable[Event], pid: int, process_name: str, others: Sequence[dict[str, Any]]
) -> Iterator[bytes]:
    place = {"pid": pid, "tid": _PHASES_THREAD}
    yield _line({"ph": "M", "name": "process_name", **place, "args": {"name": process_name}})
    yield _line({"ph": "M", "name": "thread_name", **place, "args": {"name": "model thread"}})
    for event in events:
        entry = {
            "ph": "X",
            "name": event.name,
            "ts": event.began / 1000,
            "dur": (event.ended - event.began) / 1000,
            **place,
        }
        yield _line({**entry, "args": event.args} if event.args else entry)
    yield from map(_line, others)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()
