"""Exchanges about numbers and fixed orders: sums, counting, sequences; one sum in ten is held out
of training.
"""

import zlib
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_length
from builtin_recipe.wording import Draw
from builtin_recipe.wordings.numbers import COUNT_UP, SUM
from builtin_recipe.wordings.sequences import AMOUNT, CONTINUE, NEIGHBOR, NEXT_ONE
from builtin_recipe.words import DAYS, LETTERS, MONTHS

_STEPS: Final = (1, 1, 2, 2, 3, 5, 10, -1, -2)
_ORDERS: Final = (("day", DAYS), ("month", MONTHS))
MAX_OPERAND: Final = 20


def is_held_out(a: int, b: int, sign: str) -> bool:
    """Whether a sum belongs to the tenth that training never sees."""
    return zlib.crc32(f"{a}{sign}{b}".encode()) % 10 == 0


def sum_exchange(draw: Draw, is_held_out_sum: bool) -> Exchange:
    """Return one sum or difference of two numbers below 20, from one side of the hold-out."""
    rng = draw.rng
    while True:
        sign = rng.choice("+-")
        a, b = rng.randrange(MAX_OPERAND), rng.randrange(MAX_OPERAND)
        if sign == "-" and a < b:
            a, b = b, a
        if is_held_out(a, b, sign) == is_held_out_sum:
            break
    word = "plus" if sign == "+" else "minus"
    question = draw.request(SUM).format(a=a, b=b, sign=sign, word=word)
    return Exchange(question, str(a + b if sign == "+" else a - b))


def arithmetic_exchanges(draw: Draw) -> list[Exchange]:
    """Return one to five sums of the training side."""
    return [sum_exchange(draw, is_held_out_sum=False) for _ in range(draw.rng.randint(1, 5))]


def _count_up(draw: Draw) -> Exchange:
    first = draw.rng.randrange(1, 80)
    last = first + draw_length(draw.rng, 2, 40, draw.size)
    numbers = ", ".join(str(number) for number in range(first, last + 1))
    return Exchange(draw.request(COUNT_UP).format(first=first, last=last), numbers)


def _neighbor(draw: Draw) -> Exchange:
    unit, order = draw.rng.choice(_ORDERS)
    index = draw.rng.randrange(len(order))
    side, step = draw.rng.choice((("after", 1), ("after", 1), ("before", -1)))
    question = draw.request(NEIGHBOR).format(unit=unit, side=side, item=order[index])
    return Exchange(question, order[(index + step) % len(order)])


def _series(draw: Draw, total: int) -> tuple[str, list[str]]:
    """Return what a sequence is made of and `total` items of it."""
    rng, form = draw.rng, draw.rng.random()
    if form < 0.45:
        step = rng.choice(_STEPS)
        start = rng.randrange(1, 60) if step > 0 else rng.randrange(30, 90)
        return "number", [str(start + step * index) for index in range(total)]
    if form < 0.8:
        unit, order = rng.choice(_ORDERS)
        start = rng.randrange(len(order))
        return unit, [order[(start + index) % len(order)] for index in range(total)]
    letters = rng.choice((LETTERS, LETTERS.upper()))
    start = rng.randrange(len(letters) - total + 1)
    return "letter", list(letters[start : start + total])


def sequence_exchanges(draw: Draw) -> list[Exchange]:
    """Return a sequence of numbers, days, months or letters to continue, a range to count, or a
    question for the day or month next to another.
    """
    form, rng = draw.rng.random(), draw.rng
    if form < 0.28:
        return [_count_up(draw)]
    if form < 0.40:
        return [_neighbor(draw)]
    num_shown = rng.randint(3, 5)
    num_asked = 1 if form < 0.55 else rng.randint(2, 4)
    unit, items = _series(draw, num_shown + num_asked)
    shown = ", ".join(items[:num_shown])
    if num_asked == 1:
        question = draw.request(NEXT_ONE).format(unit=unit, shown=shown)
    else:
        amount = draw.pattern(AMOUNT).format(count=num_asked)
        question = draw.request(CONTINUE).format(shown=shown, amount=amount)
    return [Exchange(question, ", ".join(items[num_shown:]))]
