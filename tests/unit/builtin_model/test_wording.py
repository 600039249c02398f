"""Requests whose words are changed at random: what decides the answer stays."""

import random

import pytest
from builtin_recipe.conversation import Exchange
from builtin_recipe.skills.lists import copy_exchanges, reverse_exchanges
from builtin_recipe.skills.tables import draw_table, table_exchanges
from builtin_recipe.wording import Draw, Wordings, loosened

NUM_DRAWS = 300
REQUEST = "Please write this list in reverse order:\n{items}"


def loose_texts(pattern: str, keywords: str) -> set[str]:
    rng = random.Random(1)
    return {loosened(rng, pattern, keywords) for _ in range(NUM_DRAWS)}


def test_fields_marks_and_keywords_stay() -> None:
    texts = loose_texts(REQUEST, "reverse order")
    assert len(texts) > NUM_DRAWS // 2
    for text in texts:
        assert text.endswith(":\n{items}")
        assert "reverse" in text
        assert "order" in text
    assert not all("list" in text for text in texts)


@pytest.mark.parametrize(
    "pattern",
    [
        "Repeat {items}",  # nothing tells where the list begins
        "Turn this list around: {items}",  # said without a keyword
    ],
)
def test_some_requests_are_left_alone(pattern: str) -> None:
    assert loose_texts(pattern, "reverse repeat") == {pattern}


def test_other_words_never_decide_what_is_asked() -> None:
    words = {word for text in loose_texts("say this: {items}", "") for word in text.split()}
    assert len(words) > 50
    assert not words & {"last", "first", "how", "many", "next", "after", "line", "number", "your"}


def test_wordings_without_keywords_are_never_changed() -> None:
    wordings = Wordings(trained=("hello there",), held_out=("hi",))
    draw = Draw(random.Random(2), looseness=1.0)
    assert {draw.pattern(wordings) for _ in range(20)} == {"hello there"}


def loose_exchanges() -> list[Exchange]:
    draw = Draw(random.Random(3), 0.2, looseness=1.0)
    found = []
    for _ in range(NUM_DRAWS):
        found += copy_exchanges(draw) + reverse_exchanges(draw)
        found += table_exchanges(draw, draw_table(draw.rng, 4), 1, (0.0, 0.0))
    return found


def test_what_the_answer_is_made_of_is_in_every_question() -> None:
    for exchange in loose_exchanges():
        for word in exchange.answer.replace(",", " ").split():
            assert word in exchange.question
