"""Has the recipe of one answer kept by other frontends, before anything of the answer is shown."""

import hashlib
from array import array
from dataclasses import dataclass
from typing import Any

import orjson

from pagewire_frontend.access.api_keys import current_caller, current_tenant
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe, RecipeMirror
from pagewire_frontend.http.openai.answer import Answer


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """The path and the body of a request, as another frontend would read them again, and what is
    drawn for its answer."""

    path: str
    text: bytes
    pins: Pins


class RecipeKeeper:
    """The recipe of one stream."""

    def __init__(self, mirror: RecipeMirror, asked: KeptRequest, stream_id: str) -> None:
        self._mirror = mirror
        self._asked = asked
        self._stream_id = stream_id
        self._tenant = current_tenant()

    async def begun(self, answer: Answer, numerics: bytes) -> None:
        """Have the recipe kept; the answer has its first token."""
        caller = current_caller()
        await self._mirror.keep(
            Recipe(
                stream_id=self._stream_id,
                tenant=self._tenant,
                key_digest=caller.key.digest if caller is not None else None,
                path=self._asked.path,
                body=self._asked.text,
                pins=self._asked.pins,
                digest=digest_of_answer(answer),
                numerics=numerics,
                cached_tokens=[_cached_tokens(one.meter) for one in answer.sessions],
            )
        )

    async def ended(self, usage: Any) -> None:
        """Add the token counts, before they are shown."""
        await self._mirror.note_usage(self._stream_id, self._tenant, orjson.dumps(usage))


def _cached_tokens(meter: Any) -> int:
    return -1 if meter.first_at is None else int(meter.num_cached_tokens)


def digest_of_answer(answer: Answer) -> bytes:
    """Return the digest of the models, adapters and prompts of an open answer."""
    digest = hashlib.blake2b(digest_size=32)
    for session in answer.sessions:
        entry = session.entry
        adapter_id = entry.adapter.adapter_id if entry.adapter is not None else b""
        ids = array("I", entry.prompt_token_ids).tobytes()
        for part in (entry.model.encode(), adapter_id, ids):
            digest.update(b"%d\n" % len(part) + part)
    return digest.digest()
