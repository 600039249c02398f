"""The evaluation: the questions are fixed and kept apart from training, answers are judged and
floors hold.
"""

import hashlib
import os
import random
import re
import subprocess
import sys

import pytest
from builtin_recipe.conversation import Exchange, make_conversation
from builtin_recipe.evaluation.exam import (
    CELLS,
    CONTEXT_TOKENS,
    NUM_PER_CELL,
    chosen_cells,
    draw_examples,
    draw_questions,
)
from builtin_recipe.evaluation.grading import (
    TOPIC_ROW,
    Answer,
    Row,
    Tally,
    differs,
    grade,
    is_right,
    lowered_floor,
)
from builtin_recipe.evaluation.questions import MIN_STORY_WORDS, Floor, Question
from builtin_recipe.evaluation.teacher_forcing import examine
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.exporting import load_export
from builtin_recipe.wording import Draw
from tokenizers import Tokenizer

DIGEST = """
import hashlib, sys
import evaluate
from builtin_recipe.evaluation.exam import CELLS, draw_questions
text = repr(draw_questions(CELLS, 5))
print(hashlib.sha256(text.encode()).hexdigest(), "torch" in sys.modules)
"""
STORY = " ".join(["the"] * MIN_STORY_WORDS)


def row_of(trained, held_out, num_asked):
    return Row(
        "one",
        Floor(0.95, 0.85),
        trained=Tally(round(trained * num_asked), num_asked),
        held_out=Tally(round(held_out * num_asked), num_asked),
    )


def question_of(wanted, topic=None):
    turns = make_conversation([Exchange("Copy: a", wanted)])[:-1]
    return Question("story" if topic is not None else "json", False, turns, wanted, 64, topic)


def test_a_floor_holds_as_it_is_for_a_full_cell_only():
    assert lowered_floor(0.95, NUM_PER_CELL) == 0.95
    assert lowered_floor(0.95, 100) == pytest.approx(0.95 - 2 * (0.95 * 0.05 / 100) ** 0.5)
    exact = row_of(0.95, 0.85, NUM_PER_CELL)
    assert not exact.is_below(False)
    assert not exact.is_below(True)
    assert row_of(0.948, 0.85, NUM_PER_CELL).is_below(False)
    assert row_of(0.95, 0.848, NUM_PER_CELL).is_below(True)
    assert not row_of(0.91, 0.78, 100).is_below(False)
    assert row_of(0.90, 0.77, 100).is_below(False)
    assert row_of(0.90, 0.77, 100).is_below(True)


def test_no_floor_is_never_missed():
    row = Row("one", None, trained=Tally(0, 10), held_out=Tally(0, 10))
    assert not row.is_below(False)
    assert row.lowest_share(True) is None


def test_an_answer_is_right_only_word_for_word_and_ended_by_itself():
    question = question_of("a, b")
    assert is_right(question, Answer("  a, b\n", True))
    assert not is_right(question, Answer("a, b", False))
    assert not is_right(question, Answer("a,  b", True))
    assert not is_right(question, Answer("a, b", True, error="HTTP 500"))


def test_a_story_is_judged_by_its_length_words_and_end():
    question = question_of("", ("fox",))
    assert is_right(question, Answer(STORY, True))
    assert not is_right(question, Answer(STORY, False))
    assert not is_right(question, Answer("the", True))
    assert not is_right(question, Answer(f"{STORY} qqzz", True))
    answers = [Answer(STORY, True), Answer(f"the fox {STORY}", True)]
    report = grade(chosen_cells(["story"]), [question, question], answers)
    story, topic = report.rows
    assert (story.trained.num_right, topic.name) == (2, TOPIC_ROW)
    assert (topic.trained.num_right, topic.trained.num_asked) == (1, 2)
    assert report.total().trained.num_asked == 2


def test_two_measurements_may_differ_by_a_hundredth_or_two_standard_errors():
    assert not differs(Tally(495, 500), Tally(490, 500))
    assert differs(Tally(495, 500), Tally(489, 500))
    assert not differs(Tally(18, 20), Tally(16, 20))
    assert differs(Tally(18, 20), Tally(10, 20))


def test_the_questions_are_the_same_in_every_process_and_need_no_torch(recipe_folder):
    wanted = hashlib.sha256(repr(draw_questions(CELLS, 5)).encode()).hexdigest()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(recipe_folder)}
        printed = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, check=True, capture_output=True
        ).stdout.decode()
        assert printed.split() == [wanted, "False"]


def test_a_smaller_exam_is_the_start_of_a_larger_one():
    for cell in CELLS:
        small, large = draw_questions([cell], 2), draw_questions([cell], 4)
        assert small == large[:2] + large[4:6]


def test_questions_end_with_the_user_and_fit_the_context(model_folder):
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    for question in draw_questions(CELLS, 12):
        assert question.turns[-1].role == "user"
        assert question.topic is not None or question.wanted
        ids, _ = encode_conversation(tokenizer, question.turns)
        assert len(ids) + 4 + question.max_tokens <= CONTEXT_TOKENS
        answer = tokenizer.encode(question.wanted).ids
        assert len(answer) < question.max_tokens


def expansions(patterns):
    """Every settled form of patterns, in lower case, except those that are nothing but a field."""
    found, waiting = set(), list(patterns)
    while waiting:
        pattern = waiting.pop()
        brackets = re.search(r"\[([^\[\]]*)\]", pattern)
        if brackets is None:
            found.add(pattern.lower().rstrip(".?!"))
            continue
        before, after = pattern[: brackets.start()], pattern[brackets.end() :]
        waiting += [before + one + after for one in brackets[1].split("|")]
    return {one for one in found if re.search("[a-z]", re.sub(r"\{\w+\}", "", one))}


def test_held_out_questions_use_no_trained_pattern(monkeypatch):
    used = set()
    drawn_sides = set()
    pattern = Draw.pattern

    def recorded(self, wordings):
        drawn_sides.add(self.is_held_out)
        used.add(wordings)
        return pattern(self, wordings)

    monkeypatch.setattr(Draw, "pattern", recorded)
    for cell in CELLS:
        for is_held_out in (False, True):
            drawn_sides.clear()
            draw_examples(cell, is_held_out, 30)
            assert drawn_sides == {is_held_out}, cell.name
    for wordings in used:
        both = expansions(wordings.trained) & expansions(wordings.held_out)
        assert not both


def test_fixed_questions_are_on_one_side_only():
    for cell in chosen_cells(["small talk", "open question", "sequence", "sum"]):
        asked = [
            {
                re.sub(r"\W+", " ", one.conversation[0].text).strip().lower()
                for one in draw_examples(cell, is_held_out, 300)
            }
            for is_held_out in (False, True)
        ]
        assert asked[0].isdisjoint(asked[1])


def test_a_network_in_training_is_examined_and_left_as_it_was(model_folder):
    network, tokenizer = load_export(model_folder)
    network.train()
    state = random.getstate()
    line = examine(network, tokenizer, 1)
    assert "\n" not in line
    assert re.search(r"json \d\.\d\d/\d\.\d\d", line)
    assert network.training
    assert random.getstate() == state
    assert examine(network, tokenizer, 1) == line
