"""Has the recipe of one answer kept by other frontends, before anything of the answer is shown."""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.access.api_keys import current_caller, current_tenant
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe, RecipeMirror
from pagewire_frontend.session.session import Session


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """The path and the body of a request, as another frontend would read them again, and what is
    drawn for its answer."""

    path: str
    body: bytes
    pins: Pins


class RecipeKeeper:
    """The recipe of one stream."""

    def __init__(self, mirror: RecipeMirror, asked: KeptRequest, stream_id: str) -> None:
        self._mirror = mirror
        self._asked = asked
        self._stream_id = stream_id
        self._tenant = current_tenant()

    async def begun(self, sessions: Sequence[Session], numerics: bytes) -> None:
        """Have the recipe kept; the answer has its first token."""
        caller = current_caller()
        await self._mirror.keep(
            Recipe(
                stream_id=self._stream_id,
                tenant=self._tenant,
                key_digest=caller.key.digest if caller is not None else None,
                path=self._asked.path,
                body=self._asked.body,
                pins=self._asked.pins,
                digest=digest_of_sessions(sessions),
                numerics=numerics,
                cached_tokens=[_cached_tokens(one.meter) for one in sessions],
            )
        )

    async def ended(self, usage: bytes) -> None:
        """Add the token counts, in the form of the API, before they are shown."""
        await self._mirror.note_usage(self._stream_id, self._tenant, usage)


def _cached_tokens(meter: Any) -> int:
    return -1 if meter.first_at is None else int(meter.num_cached_tokens)


def digest_of_sessions(sessions: Sequence[Session]) -> bytes:
    """Return the digest of the models, adapters and prompts of open sessions."""
    digest = hashlib.blake2b(digest_size=32)
    for session in sessions:
        entry = session.entry
        adapter_id = entry.adapter.adapter_id if entry.adapter is not None else b""
        ids = array("I", entry.prompt_token_ids).tobytes()
        for part in (entry.model.encode(), adapter_id, ids):
            digest.update(b"%d\n" % len(part) + part)
    return digest.digest()
