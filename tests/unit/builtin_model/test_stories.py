"""Stories differ from hero to hero, and long ones are long and do not repeat themselves."""

import random
import re
from dataclasses import replace
from itertools import combinations

import pytest
from builtin_recipe.skills.stories import (
    MIN_LONG_STORY_WORDS,
    MIN_STORY_WORDS,
    draw_long_story,
    draw_story,
    long_story_exchanges,
    story_exchanges,
)
from builtin_recipe.skills.story_casts import PLANNED_SHARE, draw_cast
from builtin_recipe.skills.story_plots import NUM_PLOTS, PLOTS, plot_number
from builtin_recipe.skills.story_requests import draw_request
from builtin_recipe.wording import Draw
from builtin_recipe.words import ANIMALS, NAMES, NOUNS, PEOPLE


def sentences(story):
    return re.split(r'(?<=\.)"? ', story.rstrip())


def planned_casts(topic, num_casts=20):
    rng = random.Random(1)
    found = []
    while len(found) < num_casts:
        cast = draw_cast(rng, has_topic=True)
        if cast.topic == topic and cast.plot is not None:
            found.append(cast)
    return found


@pytest.mark.parametrize("topic", ["Anna", "a fox"])
def test_planned_stories_about_one_hero_are_the_same(topic):
    casts = planned_casts(topic)
    rng = random.Random(2)
    assert len({draw_story(rng, cast, num_middle=3) for cast in casts}) == 1
    assert len({draw_long_story(rng, cast) for cast in casts}) == 1


def test_two_of_three_stories_are_planned_by_the_hero():
    rng = random.Random(3)
    casts = [draw_cast(rng, has_topic=True) for _ in range(2000)]
    num_planned = sum(cast.plot is not None for cast in casts)
    assert PLANNED_SHARE - 0.05 < num_planned / len(casts) < PLANNED_SHARE + 0.05
    for cast in casts:
        if cast.topic in NAMES and cast.plot is not None:
            assert cast.plot == plot_number(cast.topic)


def test_all_plots_are_in_use():
    assert len(PLOTS) == NUM_PLOTS
    assert {plot_number(word) for word in (*NAMES, *NOUNS)} == set(range(NUM_PLOTS))


def test_plots_give_other_stories():
    (cast,) = planned_casts("Anna", num_casts=1)
    rng = random.Random(4)
    free = replace(cast, friend="the fox", friend_introduced="a young fox")
    stories = [draw_story(rng, replace(free, plot=plot), 3) for plot in range(NUM_PLOTS)]
    for one, other in combinations(map(sentences, stories), 2):
        # Even with the same friend, thing and place.
        assert len(set(one) & set(other)) <= 4
    first = {story.split(".")[0] for story in stories}
    assert len(first) >= 14


def test_what_the_topic_names_overrides_the_plot():
    rng = random.Random(5)
    for _ in range(2000):
        cast = draw_cast(rng, has_topic=True)
        story = draw_story(rng, cast, num_middle=3).lower()
        words = cast.topic.split()
        known = {*ANIMALS, *PEOPLE, *NOUNS, *map(str.lower, NAMES)}
        for word in known.intersection(map(str.lower, words)):
            # "A night at the lake" names only the lake.
            if word not in ("night", "summer"):
                assert word in story, (cast, story)


def test_long_stories_are_long_and_repeat_no_sentence():
    rng = random.Random(6)
    for number in range(500):
        cast = draw_cast(rng, has_topic=number % 5 > 0)
        story = draw_long_story(rng, cast)
        assert MIN_LONG_STORY_WORDS <= len(story.split()) <= 240
        assert "{" not in story
        found = sentences(story)
        assert len(found) == len(set(found))
        assert all(setting.friend != cast.friend for setting in cast.more)


def test_short_stories_are_short():
    rng = random.Random(7)
    for number in range(1000):
        story = draw_story(rng, draw_cast(rng, has_topic=number % 2 == 0), num_middle=number % 4)
        assert MIN_STORY_WORDS <= len(story.split()) <= 130


def test_long_requests_get_long_stories():
    draw = Draw(random.Random(8))
    for _ in range(300):
        (exchange,) = long_story_exchanges(draw)
        assert len(exchange.answer.split()) >= MIN_LONG_STORY_WORDS
        (exchange,) = story_exchanges(draw)
        assert len(exchange.answer.split()) < MIN_LONG_STORY_WORDS


@pytest.mark.parametrize("topic", ["a fox", None])
def test_long_requests_ask_for_length(topic):
    rng = random.Random(9)
    asked = {draw_request(Draw(rng), topic, is_long=True) for _ in range(300)}
    assert len(asked) > 100
    signs = ("long", "words", "sentences", "parts", "whole", "on and on", "big", "not a short one")
    assert all(any(sign in one.lower() for sign in signs) for one in asked)
    assert not any("{" in one or "None" in one or "Keep it short" in one for one in asked)
