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
    MIDDLE_MIX,
    SKILLS,
    corpus_vocabulary,
    draw_conversation,
    text_words,
)
from builtin_recipe.items import ItemKind
from builtin_recipe.skills.lists import copy_sentence_exchanges, pick_exchanges
from builtin_recipe.skills.numbers import (
    arithmetic_exchanges,
    is_held_out,
    sequence_exchanges,
    sum_exchange,
)
from builtin_recipe.skills.stories import MIN_STORY_WORDS, draw_story, story_exchanges
from builtin_recipe.skills.story_requests import (
    OPEN_REQUESTS,
    TOPIC_REQUESTS,
    draw_cast,
    draw_request,
)
from builtin_recipe.skills.tables import draw_table, table_exchanges
from builtin_recipe.wording import Draw, Wordings, settled

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
    assert set(SKILLS) < set(MIDDLE_MIX)
    for skill in MIDDLE_MIX:
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
    assert len(TOPIC_REQUESTS.trained) >= 15
    assert len(OPEN_REQUESTS.trained) >= 15
    rng = random.Random(3)
    asked = {draw_request(Draw(rng), "a fox") for _ in range(20_000)}
    assert {"Tell me a story about a fox.", "tell me a story about a fox"} <= asked
    assert any("please" in request for request in asked)
    assert any(not request.endswith((".", "?")) for request in asked)
    for kind in ("tale", "fairy tale", "adventure", "bedtime story"):
        assert sum(kind in request.lower() for request in asked) > 100
    assert not any("{" in request or "None" in request for request in asked)


def test_stories_are_a_small_part_of_the_answers():
    # With half of the labelled text in stories, lookups were not learnt.
    rng = random.Random(11)
    num_characters = Counter()
    for _ in range(2000):
        skill = rng.choices(list(MIDDLE_MIX), list(MIDDLE_MIX.values()))[0]
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
        for exchange in arithmetic_exchanges(Draw(rng)):
            a, sign, b = re.search(r"(\d+) ?(\+|-|\w+) ?(\d+)", exchange.question).groups()
            sign = {"plus": "+", "minus": "-"}.get(sign, sign)
            assert not is_held_out(int(a), int(b), sign)
            assert int(exchange.answer) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
    assert sum_exchange(Draw(rng), is_held_out_sum=True).question


@pytest.mark.parametrize("kind", [ItemKind.WORD, ItemKind.CODE, ItemKind.INVENTED])
def test_lookups_have_one_right_answer(kind):
    rng = random.Random(7)
    for _ in range(30):
        table = draw_table(rng, 12, kind)
        assert len(set(table.keys)) == 12
        values = dict(zip(table.keys, table.values, strict=True))
        exchanges = table_exchanges(Draw(rng), table, 4, (0.0, 0.0))
        for exchange in exchanges:
            question = exchange.question.replace(table.text(), "")
            named = [key for key in table.keys if re.search(rf"\b{key}\b", question)]
            assert exchange.answer in {values[key] for key in named}
            assert table.text() in exchanges[0].question


def test_json_answers_parse_and_copies_are_in_the_question():
    rng = random.Random(8)
    for _ in range(100):
        exchange = SKILLS["json"](Draw(rng))[0]
        for key in json.loads(exchange.answer):
            assert key in exchange.question
        copied = SKILLS["copy"](Draw(rng))[0]
        assert copied.answer in copied.question
        sentence = copy_sentence_exchanges(Draw(rng))[0]
        assert sentence.answer in sentence.question


def test_story_exchanges_are_one_request_and_one_story():
    (exchange,) = story_exchanges(Draw(random.Random(9)))
    assert exchange.question
    assert len(exchange.answer.split()) >= MIN_STORY_WORDS


def test_alternatives_are_settled_innermost_first():
    found = {settled(random.Random(seed), "[a|b [c|d]|]") for seed in range(60)}
    assert found == {"a", "b c", "b d", ""}


def test_held_out_wordings_are_drawn_only_when_asked_for():
    wordings = Wordings(trained=("say {x}",), held_out=("tell {x}",))
    rng = random.Random(12)
    trained = {Draw(rng).request(wordings) for _ in range(300)}
    held_out = {Draw(rng, is_held_out=True).request(wordings) for _ in range(300)}
    assert all("say {x}" in one.lower() for one in trained)
    assert all("tell {x}" in one.lower() for one in held_out)
    assert {"Say {x}", "say {x}", "Please say {x}"} <= trained


@pytest.mark.parametrize("skill", SKILLS)
def test_both_sides_of_the_hold_out_differ(skill):
    rng = random.Random(13)

    def asked(is_held_out):
        draws = (SKILLS[skill](Draw(rng, 0.1, is_held_out)) for _ in range(400))
        return {exchange.question for exchanges in draws for exchange in exchanges}

    assert asked(False).isdisjoint(asked(True))


def test_picked_items_and_sequences():
    rng = random.Random(14)
    for _ in range(200):
        (picked,) = pick_exchanges(Draw(rng), ItemKind.WORD)
        assert picked.answer in picked.question
        (sequence,) = sequence_exchanges(Draw(rng))
        found = re.search(r"count.* from (\d+) to (\d+)", sequence.question.lower())
        if found:
            first, last = map(int, found.groups())
            assert sequence.answer == ", ".join(map(str, range(first, last + 1)))
