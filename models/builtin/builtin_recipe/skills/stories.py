"""Stories, short and long: the patterns of each part, filled with the cast of the question.

Every word comes from the word lists or the patterns, except invented topics: a topic nobody
foresaw is to be taken over from the question.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_length
from builtin_recipe.skills import story_patterns as patterns
from builtin_recipe.skills.story_casts import Cast, draw_cast
from builtin_recipe.skills.story_plots import ordered
from builtin_recipe.skills.story_requests import draw_request
from builtin_recipe.wording import Draw
from builtin_recipe.words import COLORS, KEEPSAKES, LOOKS, capitalized, with_article

MIN_STORY_WORDS: Final = 35
MIN_LONG_STORY_WORDS: Final = 150
# More would crowd the context of a chat.
_MAX_LONG_STORY_WORDS: Final = 240
_MAX_MIDDLE: Final = 2
_TOPIC_SHARE: Final = 0.9


@lru_cache(maxsize=50_000)
def _planned_order(options: patterns.Patterns, plot: int, slot: str) -> tuple[str, ...]:
    return tuple(ordered(options, plot, slot))


class _Teller:
    """Chooses the patterns and words of one story, no pattern twice.

    With a plot it takes them in the plot's order, without one it draws them.
    """

    def __init__(self, rng: random.Random, plot: int | None) -> None:
        self._rng = rng
        self._plot = plot
        self._left: dict[str, list[str]] = {}

    def num(self, low: int, high: int, slot: str) -> int:
        """Return a number between `low` and `high`."""
        rng = self._rng if self._plot is None else random.Random(f"{slot} {self._plot}")
        return rng.randint(low, high)

    def order(self, options: patterns.Patterns, slot: str) -> list[str]:
        """Return `options` in the order in which the story uses them."""
        if self._plot is None:
            return self._rng.sample(options, len(options))
        return list(_planned_order(options, self._plot, slot))

    def take(self, options: patterns.Patterns, slot: str) -> str:
        """Return the next pattern of `slot`."""
        left = self._left.setdefault(slot, self.order(options, slot))
        return left.pop(0)

    def take_trouble(self) -> list[str]:
        """Return how the next trouble comes and how it goes."""
        kind = int(self.take(tuple(map(str, range(len(patterns.TROUBLES)))), "trouble"))
        comes, goes = patterns.TROUBLES[kind]
        return [self.take(comes, f"trouble {kind} comes"), self.take(goes, f"trouble {kind} goes")]

    def words(self, cast: Cast, episode: int) -> dict[str, str]:
        """Return the words of all fields in one episode of a story about `cast`."""
        slot = f"episode {episode}"
        free = tuple(one for one in patterns.SIGHTS if one not in (cast.thing, cast.hero[4:]))
        sights = self.order(free, f"{slot} sight")
        colors = self.order(COLORS, f"{slot} color")
        looks = self.order(LOOKS, f"{slot} look")
        gifts = self.order(
            tuple(
                one for one in KEEPSAKES if one not in (cast.thing, cast.hero[4:], cast.friend[4:])
            ),
            f"{slot} gift",
        )
        return {
            "hero": cast.hero,
            "hero_introduced": cast.hero_introduced,
            "hero_called": cast.hero.removeprefix("the "),
            "friend": cast.friend,
            "friend_introduced": cast.friend_introduced,
            "thing": cast.thing,
            "place": cast.place,
            "a_place": "the sea" if cast.place == "sea" else with_article(cast.place),
            "season": self.order(patterns.SEASONS, f"{slot} season")[0],
            "virtue": self.order(patterns.VIRTUES, f"{slot} virtue")[0],
            "when": self.order(patterns.TIMES, f"{slot} when")[0],
            "meal": self.order(patterns.MEALS, f"{slot} meal")[0],
            "trouble": self.order(patterns.WEATHERS, f"{slot} weather")[0],
            "color": colors[0],
            "other_color": colors[1],
            "sight": with_article(sights[0]),
            "other_sight": with_article(sights[1]),
            "last_sight": with_article(sights[2]),
            "colored_sight": with_article(f"{colors[2]} {sights[3]}"),
            "other_colored_sight": with_article(f"{colors[3]} {sights[4]}"),
            "gift": with_article(f"{looks[0]} {gifts[0]}"),
            "found": with_article(f"{looks[1]} {gifts[1]}"),
        }


def _beginning(teller: _Teller, cast: Cast) -> list[str]:
    is_person = cast.hero_introduced == cast.hero
    openings = patterns.PERSON_OPENINGS if is_person else patterns.CREATURE_OPENINGS
    return [
        teller.take(openings, "opening person" if is_person else "opening"),
        teller.take(patterns.HABITS, "habit"),
    ]


def _episode(teller: _Teller, events: patterns.Patterns, slot: str, num_middle: int) -> list[str]:
    return [
        teller.take(events, slot),
        teller.take(patterns.DIALOGUES, "dialogue"),
        *(teller.take(patterns.MIDDLES, "middle") for _ in range(num_middle)),
        *teller.take_trouble(),
        teller.take(patterns.THANKS, "thanks"),
    ]


def _filled(sentences: list[str], words: Mapping[str, str]) -> str:
    return " ".join(capitalized(one.format_map(words)) for one in sentences)


def _num_words(text: str) -> int:
    return len(text.split())


def draw_story(rng: random.Random, cast: Cast, num_middle: int) -> str:
    """Tell a story about `cast` with `num_middle` side events, or some more if it were too short.

    It has at least `MIN_STORY_WORDS` words; for a planned cast it is always the same.
    """
    while True:
        teller = _Teller(rng, cast.plot)
        sentences = [
            *_beginning(teller, cast),
            *_episode(teller, patterns.EVENTS, "event", num_middle),
            teller.take(patterns.ENDINGS, "ending"),
        ]
        story = _filled(sentences, teller.words(cast, 0))
        if _num_words(story) >= MIN_STORY_WORDS:
            return story
        num_middle += 1


def _long_story(rng: random.Random, cast: Cast, num_middle: int) -> str:
    """Tell of two or three episodes, each with another friend and `num_middle` or more events."""
    teller = _Teller(rng, cast.plot)
    num_more = teller.num(1, len(cast.more), "episodes")
    # With two episodes in all, each is longer.
    num_each = num_middle + (2 if num_more == 1 else 0)
    told = [
        _filled(
            [
                *_beginning(teller, cast),
                *_episode(teller, patterns.EVENTS, "event", num_each),
            ],
            teller.words(cast, 0),
        )
    ]
    words: dict[str, str] = {}
    for number, setting in enumerate(cast.more[:num_more], start=1):
        now = replace(
            cast,
            friend=setting.friend,
            friend_introduced=setting.friend_introduced,
            thing=setting.thing,
            place=setting.place,
        )
        words = {**teller.words(now, number), "first_friend": cast.friend}
        sentences = _episode(teller, patterns.NEXT_EVENTS, "next event", num_each)
        told.append(_filled(sentences, words))
    told.append(_filled([teller.take(patterns.LONG_ENDINGS, "long ending")], words))
    return " ".join(told)


def draw_long_story(rng: random.Random, cast: Cast) -> str:
    """Tell a story about `cast` in two or three episodes.

    It has at least `MIN_LONG_STORY_WORDS` words; for a planned cast it is always the same.
    """
    num_middle = 2
    while True:
        story = _long_story(rng, cast, num_middle)
        if MIN_LONG_STORY_WORDS <= _num_words(story) <= _MAX_LONG_STORY_WORDS:
            return story
        num_middle = max(1, num_middle + (1 if _num_words(story) < MIN_LONG_STORY_WORDS else -1))


def story_exchanges(draw: Draw) -> list[Exchange]:
    """Return one request for a story and a story about what was asked for."""
    cast = draw_cast(draw.rng, draw.rng.random() < _TOPIC_SHARE)
    request = draw_request(draw, cast.topic)
    # A planned story is the same in every chat, however short the chat is to be.
    is_planned = cast.plot is not None
    num_middle = _MAX_MIDDLE if is_planned else draw_length(draw.rng, 0, _MAX_MIDDLE, draw.size)
    return [Exchange(request, draw_story(draw.rng, cast, num_middle))]


def long_story_exchanges(draw: Draw) -> list[Exchange]:
    """Return one request for a long story and a story of two or three episodes."""
    cast = draw_cast(draw.rng, draw.rng.random() < _TOPIC_SHARE)
    request = draw_request(draw, cast.topic, is_long=True)
    return [Exchange(request, draw_long_story(draw.rng, cast))]
