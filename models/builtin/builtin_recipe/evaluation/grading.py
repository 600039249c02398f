"""How answers are judged: exactly, or as a story; shares per cell, their floors and differences.

It is pure: it neither asks nor prints.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from builtin_recipe.corpus import text_words
from builtin_recipe.evaluation.exam import NUM_PER_CELL, vocabulary
from builtin_recipe.evaluation.questions import Cell, Floor, Question

TOPIC_ROW: Final = "story names what was asked for"
_MAX_DIFFERENCE: Final = 0.01
# Shares are quotients of whole numbers: this is only room for their binary fractions.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text and whether it ended by itself, or the name of the error."""

    text: str
    is_stopped: bool
    error: str = ""


@dataclass(slots=True)
class Tally:
    """Right answers and failed requests among those asked."""

    num_right: int = 0
    num_asked: int = 0
    num_errors: int = 0

    @property
    def share(self) -> float:
        """The share of right answers; 0 where nothing was asked."""
        return self.num_right / max(1, self.num_asked)

    def add(self, is_right: bool, is_error: bool) -> None:
        """Count one answer."""
        self.num_right += is_right
        self.num_asked += 1
        self.num_errors += is_error


@dataclass(slots=True)
class Row:
    """The result of one cell on both sides of the hold-out; the total skips what is not counted."""

    name: str
    floor: Floor | None = None
    is_counted: bool = True
    trained: Tally = field(default_factory=Tally)
    held_out: Tally = field(default_factory=Tally)

    def side(self, is_held_out: bool) -> Tally:
        """Return the tally of one side."""
        return self.held_out if is_held_out else self.trained

    def lowest_share(self, is_held_out: bool) -> float | None:
        """Return the share that one side has to reach, or None without a floor or answers."""
        num_asked = self.side(is_held_out).num_asked
        if self.floor is None or num_asked == 0:
            return None
        return lowered_floor(self.floor.of_side(is_held_out), num_asked)

    def is_below(self, is_held_out: bool) -> bool:
        """Whether one side misses its floor."""
        lowest = self.lowest_share(is_held_out)
        return lowest is not None and self.side(is_held_out).share < lowest - _ROUNDING


@dataclass(frozen=True, slots=True)
class Wrong:
    """A question that was not answered rightly, and the answer."""

    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one evaluation; `errors` counts failed requests by what went wrong."""

    rows: tuple[Row, ...]
    wrong: tuple[Wrong, ...]
    errors: Counter[str]

    def total(self) -> Row:
        """Return the sum over all counted rows."""
        total = Row("total")
        for row in self.rows:
            for is_held_out in (False, True):
                if row.is_counted:
                    mine, all_of_them = row.side(is_held_out), total.side(is_held_out)
                    all_of_them.num_right += mine.num_right
                    all_of_them.num_asked += mine.num_asked
                    all_of_them.num_errors += mine.num_errors
        return total

    def cells_below(self) -> list[str]:
        """Return the names of the cells that miss a floor."""
        return [row.name for row in self.rows if row.is_below(False) or row.is_below(True)]

    def has_answers(self) -> bool:
        """Whether any request was answered at all."""
        total = self.total()
        num_asked = total.trained.num_asked + total.held_out.num_asked
        return self.errors.total() < num_asked


def two_standard_errors(share: float, num_asked: int) -> float:
    """Return twice the standard error of a share measured on `num_asked` answers."""
    return 2.0 * math.sqrt(share * (1.0 - share) / num_asked)


def lowered_floor(floor: float, num_asked: int) -> float:
    """Return `floor`, lowered by two standard errors for samples smaller than the full number."""
    if num_asked >= NUM_PER_CELL:
        return floor
    return floor - two_standard_errors(floor, num_asked)


def is_sound_story(answer: Answer, min_words: int) -> bool:
    """Whether an answer ends by itself, is long enough and holds only words of the vocabulary."""
    words = text_words(answer.text)
    return answer.is_stopped and len(words) >= min_words and vocabulary().issuperset(words)


def is_right(question: Question, answer: Answer) -> bool:
    """Whether `answer` is the wanted one up to outer white space, or a sound story."""
    if answer.error:
        return False
    if question.topic is not None:
        return is_sound_story(answer, question.min_words)
    return answer.is_stopped and answer.text.strip() == question.wanted.strip()


def names_topic(question: Question, answer: Answer) -> bool:
    """Whether a story holds a word of what was asked for."""
    return not set(question.topic or ()).isdisjoint(text_words(answer.text))


def grade(
    cells: Iterable[Cell], questions: Sequence[Question], answers: Sequence[Answer]
) -> Report:
    """Judge `answers`, one per question in the same order; requests that failed are wrong."""
    rows = {cell.name: Row(cell.name, cell.floor) for cell in cells}
    topics = Row(TOPIC_ROW, is_counted=False)
    wrong: list[Wrong] = []
    errors: Counter[str] = Counter()
    for question, answer in zip(questions, answers, strict=True):
        is_error, verdict = bool(answer.error), is_right(question, answer)
        rows[question.cell].side(question.is_held_out).add(verdict, is_error)
        if question.topic:
            side = topics.side(question.is_held_out)
            side.add(not is_error and names_topic(question, answer), is_error)
        if is_error:
            errors[answer.error] += 1
        if not verdict:
            wrong.append(Wrong(question, answer))
    found = [*rows.values(), *([topics] if topics.trained.num_asked else [])]
    return Report(tuple(found), tuple(wrong), errors)


def allowed_difference(ours: Tally, theirs: Tally) -> float:
    """Return how far two shares of one cell may lie apart: 0.01, on small samples more."""
    num_asked = min(ours.num_asked, theirs.num_asked)
    if num_asked >= NUM_PER_CELL or num_asked == 0:
        return _MAX_DIFFERENCE
    share = (ours.share + theirs.share) / 2.0
    return max(_MAX_DIFFERENCE, two_standard_errors(share, num_asked))


def differs(ours: Tally, theirs: Tally) -> bool:
    """Whether two measurements of one cell lie further apart than is allowed."""
    return abs(ours.share - theirs.share) > allowed_difference(ours, theirs) + _ROUNDING
