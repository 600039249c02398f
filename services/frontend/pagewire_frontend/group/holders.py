"""Finds the frontends of a group that keep the recipe of a stream."""

import hashlib
from collections.abc import Iterable

from pagewire_frontend.http.kept_streams.ids import tag_of_stream
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of


def maker_of(stream_id: str, names: Iterable[str]) -> str | None:
    """Return the name of the process that made a stream, or of a later one in its place; None where
    it is of no member."""
    tag = tag_of_stream(stream_id)
    slot = tag[:SLOT_DIGITS] if tag is not None else None
    return next((name for name in names if slot_of(name) == slot), None)


def holders_of(stream_id: str, names: Iterable[str]) -> list[str]:
    """Return the members in the order in which they keep a recipe, without the maker of the stream:
    by rendezvous hashing, as for idempotency keys."""
    maker = maker_of(stream_id, names := list(names))

    def weight(name: str) -> tuple[bytes, str]:
        said = stream_id.encode()
        return hashlib.blake2b(said, digest_size=16, key=name.encode()).digest(), name

    return sorted((name for name in names if name != maker), key=weight, reverse=True)
