"""Holds recipes of streams, from which a frontend makes streams of another again, within bounds."""

import asyncio
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from prometheus_client import Counter as MetricCounter
from prometheus_client import Gauge

from pagewire_frontend.http.kept_streams.pins import Pins

RECIPE_BYTES: Final = 2048
"""Memory of a recipe beside its body, about."""
PACKED_INLINE: Final = 32 * 1024
"""Bodies of up to so many bytes are compressed and made whole in less than a millisecond."""
_LEVEL: Final = 1
"""The fastest: the next ones take twice the time for a tenth of the bytes."""

KEPT = Gauge("pagewire_stream_recipes", "Recipes of streams of other frontends")
KEPT_BYTES = Gauge("pagewire_stream_recipe_bytes", "Memory of these recipes, about")
DROPPED = MetricCounter("pagewire_stream_recipes_dropped", "Recipes dropped for newer ones")
UNPLACED = MetricCounter(
    "pagewire_stream_recipes_unplaced", "Streams whose recipe no other frontend has taken"
)
TAKEOVERS = MetricCounter(
    "pagewire_stream_takeovers",
    "Streams of lost frontends that went on here, by what their tokens came from",
    ["outcome"],
)
for _outcome in ("held", "computed", "failed"):
    TAKEOVERS.labels(_outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One stream without its tokens.

    Attributes:
        key_digest: SHA-256 of the API key that pays for it; None without keys.
        path: Path of the endpoint; for a call over gRPC the full name of its request's message.
        body: The body as the client sent it, of a response behind the conversation before its
            input; the serialized request of a call.
        digest: Of the model, the adapter and the token ids of the prompts.
        numerics: Digest of what decides the last bits of the output; empty where another run may
            give other tokens.
        cached_tokens: Cached tokens of each prompt; -1 where they are not known.
        usage: Field `usage` of the answer as JSON, or the serialized StreamClosed of a call; empty
            before its end.
        maker_name: Name of the frontend that has made the stream again, since the one that its id
            names is gone; empty before.
        whole_bytes: Size of the body where it is compressed, with zlib; else 0.
    """

    stream_id: str
    tenant: str | None
    key_digest: bytes | None
    path: str
    body: bytes
    pins: Pins
    digest: bytes
    numerics: bytes
    cached_tokens: Sequence[int]
    usage: bytes = b""
    maker_name: str = ""
    whole_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Memory that it takes, about."""
        return RECIPE_BYTES + len(self.body) + len(self.usage)

    def packed(self) -> "Recipe":
        """Return it as it is kept: JSON may take several times the bytes of its text. Of bodies
        beyond PACKED_INLINE this is work for a thread."""
        if self.whole_bytes:
            return self
        body, size = zlib.compress(self.body, _LEVEL), len(self.body)
        return replace(self, body=body, whole_bytes=size) if len(body) < size else self

    def unpacked(self) -> "Recipe":
        """Return it as its maker sent it."""
        if not self.whole_bytes:
            return self
        return replace(self, body=zlib.decompress(self.body), whole_bytes=0)


async def packed_aside(recipe: Recipe) -> Recipe:
    """Return a recipe packed, a large one in a thread."""
    if len(recipe.body) > PACKED_INLINE:
        return await asyncio.to_thread(recipe.packed)
    return recipe.packed()


async def unpacked_aside(recipe: Recipe) -> Recipe:
    """Return a recipe unpacked, a large one in a thread."""
    if recipe.whole_bytes > PACKED_INLINE:
        return await asyncio.to_thread(recipe.unpacked)
    return recipe.unpacked()


class RecipeMirror(Protocol):
    """Keeps the recipes of the streams of this process at other frontends."""

    @property
    def is_on(self) -> bool:
        """Whether there are other frontends, and they are to keep recipes."""
        ...

    async def keep(self, recipe: Recipe) -> None:
        """Have a recipe kept; returns when it is, or cannot be."""
        ...

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        """Add the usage that a stream ends with; see Recipe.usage."""
        ...


class RecipeStore:
    """The recipes that this process keeps for its peers, or of its own streams.

    One that is not renewed expires. A tenant has at most half of the bytes; where they are full,
    those of the largest tenant are dropped, the ones that expire next first.
    """

    def __init__(
        self,
        max_bytes: int,
        lifetime_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_shown: bool = True,
    ) -> None:
        """Create the store.

        Args:
            lifetime_seconds: How long a recipe lives that is not renewed.
            is_shown: The metrics are about this store.
        """
        self._is_shown = is_shown
        self._moving: set[str] = set()
        self._max_bytes = max_bytes
        self._lifetime = lifetime_seconds
        self._clock = clock
        # All live equally long, so both are in the order in which recipes expire.
        self._recipes: OrderedDict[str, tuple[Recipe, float]] = OrderedDict()
        self._by_tenant: dict[str | None, OrderedDict[str, None]] = {}
        self._num_bytes: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._recipes)

    @property
    def num_bytes(self) -> int:
        """Bytes of all recipes."""
        return self._num_bytes.total()

    def sibling(self) -> "RecipeStore":
        """Return an empty store with the same bounds, which the metrics leave out."""
        return RecipeStore(self._max_bytes, self._lifetime, self._clock, is_shown=False)

    def all(self) -> list[Recipe]:
        """Return all recipes, those that expire first in front."""
        self.expire()
        return [recipe for recipe, _ in self._recipes.values()]

    @contextmanager
    def moving(self, stream_id: str) -> Iterator[None]:
        """Mark a recipe while another frontend is given it that makes the stream before this."""
        self._moving.add(stream_id)
        try:
            yield
        finally:
            self._moving.discard(stream_id)

    def is_moving(self, stream_id: str) -> bool:
        """Whether another frontend is given the recipe at this moment."""
        return stream_id in self._moving

    def put(self, recipe: Recipe) -> None:
        """Keep a recipe, unless it is larger than the share of a tenant. What is known of its
        usage stays."""
        known = self.find(recipe.stream_id, recipe.tenant)
        if known is not None and not recipe.usage:
            recipe = replace(recipe, usage=known.usage)
        self._take_out(recipe.stream_id)
        share = self._max_bytes // 2
        if recipe.num_bytes > share:
            DROPPED.inc()
            return
        while self._num_bytes[recipe.tenant] + recipe.num_bytes > share:
            self._drop_oldest(recipe.tenant)
        while self.num_bytes + recipe.num_bytes > self._max_bytes:
            self._drop_oldest(max(self._num_bytes, key=lambda one: self._num_bytes[one]))
        self._recipes[recipe.stream_id] = recipe, self._clock() + self._lifetime
        self._by_tenant.setdefault(recipe.tenant, OrderedDict())[recipe.stream_id] = None
        self._num_bytes[recipe.tenant] += recipe.num_bytes
        self._show()

    def find(self, stream_id: str, tenant: str | None) -> Recipe | None:
        """Return a recipe of this tenant; None without one."""
        self.expire()
        found = self._recipes.get(stream_id)
        return found[0] if found is not None and found[0].tenant == tenant else None

    def maker_name(self, stream_id: str) -> str:
        """Return `maker_name` of a recipe, of any tenant; empty without one."""
        found = self._recipes.get(stream_id)
        return found[0].maker_name if found is not None else ""

    def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        """Add its usage to a recipe; one that is not kept is ignored."""
        recipe = self.find(stream_id, tenant)
        if recipe is not None:
            self.put(replace(recipe, usage=usage))

    def remove(self, stream_id: str, tenant: str | None) -> bool:
        """Forget a recipe of this tenant; return whether it was there."""
        is_there = self.find(stream_id, tenant) is not None
        if is_there:
            self._take_out(stream_id)
            self._show()
        return is_there

    def renew(self, stream_ids: Sequence[str]) -> None:
        """Let recipes live on; those that are not kept are ignored."""
        self.expire()
        end = self._clock() + self._lifetime
        for stream_id in stream_ids:
            if stream_id in self._recipes:
                recipe, _ = self._recipes[stream_id]
                self._recipes[stream_id] = recipe, end
                self._recipes.move_to_end(stream_id)
                self._by_tenant[recipe.tenant].move_to_end(stream_id)

    def expire(self) -> None:
        """Drop what was not renewed."""
        now = self._clock()
        while self._recipes:
            stream_id, (_, end) = next(iter(self._recipes.items()))
            if end > now:
                break
            self._take_out(stream_id)
        self._show()

    def _drop_oldest(self, tenant: str | None) -> None:
        self._take_out(next(iter(self._by_tenant[tenant])))
        DROPPED.inc()

    def _take_out(self, stream_id: str) -> None:
        found = self._recipes.pop(stream_id, None)
        if found is None:
            return
        recipe, _ = found
        del self._by_tenant[recipe.tenant][stream_id]
        self._num_bytes[recipe.tenant] -= recipe.num_bytes
        if not self._num_bytes[recipe.tenant]:
            del self._num_bytes[recipe.tenant], self._by_tenant[recipe.tenant]

    def _show(self) -> None:
        if not self._is_shown:
            return
        KEPT.set(len(self._recipes))
        KEPT_BYTES.set(self.num_bytes)
