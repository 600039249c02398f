"""Describes how an answer is made that another frontend may have to make again."""

from dataclasses import dataclass, replace
from typing import Final

from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.prompts.generation_request import GenerationRequest


@dataclass(frozen=True, slots=True)
class PinnedUsage:
    """Token counts of an answer that is made again, as they were shown or would have been.

    Attributes:
        cached_tokens: Cached tokens of its prompts; None where they are not known.
        body: All of it, in the form of its API; empty before its end.
    """

    cached_tokens: int | None = None
    body: bytes = b""


NOTHING_PINNED: Final = PinnedUsage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """One way of making an answer.

    Attributes:
        pinned_usage: What is known already of its token counts.
        must_be_held: Only go on with requests that a scheduler has, of a frontend that died.
        has_new_ids: Requests get other ids, as new ones; the answer shows its own all the same.
    """

    pins: Pins
    pinned_usage: PinnedUsage = NOTHING_PINNED
    must_be_held: bool = False
    has_new_ids: bool = False

    def applied(self, request: GenerationRequest, prompt: int) -> GenerationRequest:
        """Return the request of a prompt, with what is drawn for it."""
        params = request.params
        if params.seed is None:
            params = params.with_(seed=self.pins.seed(prompt))
        return replace(
            request,
            params=params,
            request_id=None if self.has_new_ids else self.pins.request_id(prompt),
            must_be_held=self.must_be_held,
            is_split=True,
        )


def making_again(recipe: Recipe, *, must_be_held: bool) -> Making:
    """Return how the answer of a recipe is made: from what a scheduler holds, or anew."""
    is_known = bool(recipe.cached_tokens) and min(recipe.cached_tokens) >= 0
    return Making(
        pins=recipe.pins,
        pinned_usage=PinnedUsage(sum(recipe.cached_tokens) if is_known else None, recipe.usage),
        must_be_held=must_be_held,
        has_new_ids=not must_be_held,
    )
