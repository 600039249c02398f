"""The corpus is the same for a seed everywhere, and its answers are the right ones."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest
from builtin_recipe.conversation import chat_text
from builtin_recipe.corpus import (
    MAIN_MIX,
    SKILLS,
    corpus_vocabulary,
    draw_conversation,
    text_words,
)
from builtin_recipe.items import ItemKind
from builtin_recipe.number_skills import arithmetic_exchanges, draw_sum, is_held_out
from builtin_recipe.stories import MIN_STORY_WORDS, draw_story, story_exchanges
from builtin_recipe.story_evaluation import OTHER_WORDINGS
from builtin_recipe.story_requests import OPEN_REQUESTS, TOPIC_REQUESTS, draw_cast, draw_request
from builtin_recipe.table_skills import draw_table, table_exchanges

DIGEST = """
import hashlib, random
from builtin_recipe.conversation import chat_text
from builtin_recipe.corpus import draw_conversation
rng = random.Random(5)
text = "".join(chat_text(draw_conversation(rng, 0.4)) for _ in range(300))
print(hashlib.sha256(text.encode()).hexdigest())
"""


def corpus_text(seed, num_chats=300):
    rng = random.Random(seed)
    return "".join(chat_text(draw_conversation(rng, 0.4)) for _ in range(num_chats))


def test_a_seed_gives_the_same_corpus_in_every_process(recipe_folder):
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(recipe_folder),
        }
        printed = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, check=True, capture_output=True
        ).stdout.decode()
        assert printed.strip() == hashlib.sha256(corpus_text(5).encode()).hexdigest()


def test_another_seed_gives_another_corpus():
    assert corpus_text(5, 20) != corpus_text(6, 20)


def test_the_mix_names_every_skill():
    assert set(SKILLS) < set(MAIN_MIX)
    for skill in MAIN_MIX:
        roles = [turn.role for turn in draw_conversation(random.Random(1), 0.3, skill=skill)]
        assert roles[-1] == "assistant"
        assert [role for role in roles if role != "system"] == ["user", "assistant"] * (
            len(roles) // 2
        )


def test_stories_are_long_enough_and_name_their_topic():
    rng = random.Random(2)
    for _ in range(500):
        cast = draw_cast(rng, has_topic=True)
        story = draw_story(rng, cast, num_middle=1)
        assert len(story.split()) >= MIN_STORY_WORDS
        assert "{" not in story
        assert cast.hero.lower() in story.lower()


def test_there_are_many_ways_to_ask_for_a_story():
    assert len(TOPIC_REQUESTS) >= 15
    assert len(OPEN_REQUESTS) >= 15
    rng = random.Random(3)
    asked = {draw_request(rng, "a fox") for _ in range(20_000)}
    assert {"Tell me a story about a fox.", "tell me a story about a fox"} <= asked
    assert any("please" in request for request in asked)
    assert any(not request.endswith((".", "?")) for request in asked)
    for kind in ("tale", "fairy tale", "adventure", "bedtime story"):
        assert sum(kind in request.lower() for request in asked) > 100
    assert not any("{" in request or "None" in request for request in asked)


def test_the_other_wordings_are_not_in_the_corpus():
    rng = random.Random(10)
    casts = (draw_cast(rng, has_topic=number % 10 > 0) for number in range(20_000))
    drawn = {draw_request(rng, cast.topic) for cast in casts}
    assert drawn.isdisjoint(OTHER_WORDINGS)
    assert len(set(OTHER_WORDINGS)) == len(OTHER_WORDINGS)


def test_stories_are_a_small_part_of_the_answers():
    # With half of the labelled text in stories, lookups were not learnt.
    rng = random.Random(11)
    num_characters = Counter()
    for _ in range(2000):
        skill = rng.choices(list(MAIN_MIX), list(MAIN_MIX.values()))[0]
        turns = draw_conversation(rng, rng.uniform(0.1, 0.6), skill=skill)
        answers = [turn.text for turn in turns if turn.role == "assistant"]
        num_characters[skill] += sum(map(len, answers))
    assert 0.1 < num_characters["story"] / num_characters.total() < 0.3


def test_the_vocabulary_file_is_that_of_the_corpus(recipe_folder, vocabulary):
    assert (recipe_folder / "vocabulary.txt").read_text(encoding="utf-8").split() == (
        corpus_vocabulary()
    )
    rng = random.Random(4)
    for _ in range(300):
        cast = draw_cast(rng, has_topic=True)
        named = text_words(f"{cast.hero} {cast.friend} {cast.thing}")
        if vocabulary.issuperset(named):  # else an invented topic
            assert vocabulary.issuperset(text_words(draw_story(rng, cast, num_middle=2)))


def test_held_out_sums_are_never_trained():
    rng = random.Random(6)
    for _ in range(300):
        for exchange in arithmetic_exchanges(rng, 0.5):
            a, sign, b = re.search(r"(\d+) (\S+) (\d+)", exchange.question).groups()
            sign = {"plus": "+", "minus": "-"}.get(sign, sign)
            assert not is_held_out(int(a), int(b), sign)
            assert int(exchange.answer) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
    assert draw_sum(rng, held_out=True).question


@pytest.mark.parametrize("kind", [ItemKind.WORD, ItemKind.CODE, ItemKind.INVENTED])
def test_lookups_have_one_right_answer(kind):
    rng = random.Random(7)
    for _ in range(30):
        table = draw_table(rng, 12, kind)
        assert len(set(table.keys)) == 12
        values = dict(zip(table.keys, table.values, strict=True))
        for exchange in table_exchanges(rng, table, 4, lines_share=0.0):
            question = exchange.question.replace(table.text(), "")
            named = [key for key in table.keys if re.search(rf"\b{key}\b", question)]
            assert exchange.answer in {values[key] for key in named}


def test_json_answers_parse_and_copies_are_in_the_question():
    rng = random.Random(8)
    for _ in range(100):
        exchange = SKILLS["json"](rng, 0.5)[0]
        for key in json.loads(exchange.answer):
            assert key in exchange.question
        copied = SKILLS["copy"](rng, 0.5)[0]
        assert copied.answer in copied.question


def test_story_exchanges_are_one_request_and_one_story():
    (exchange,) = story_exchanges(random.Random(9), 0.5)
    assert exchange.question
    assert len(exchange.answer.split()) >= MIN_STORY_WORDS
