"""Exchanges about numbers and fixed orders: sums, counting, sequences; one sum in ten is held out
of training.
"""

import random
import zlib
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_length
from builtin_recipe.words import DAYS, LETTERS, MONTHS

_SUM: Final = (
    "What is {a} {sign} {b}?",
    "{a} {sign} {b} =",
    "{a} {sign} {b}",
    "Calculate {a} {sign} {b}.",
    "Compute: {a} {sign} {b}",
    "What is {a} {word} {b}?",
    "How much is {a} {word} {b}?",
)
_COUNT_UP: Final = (
    "Count from {} to {}.",
    "Write the numbers from {} to {}.",
    "Please count from {} to {}.",
)
_CONTINUE: Final = (
    "Continue the sequence: {}",
    "What comes next: {}",
    "Finish: {}",
)
_STEPS: Final = (1, 1, 2, 2, 3, 5, 10, -1, -2)
_ORDERS: Final = (DAYS, MONTHS)
MAX_OPERAND: Final = 20


def is_held_out(a: int, b: int, sign: str) -> bool:
    """Whether a sum belongs to the tenth that training never sees."""
    return zlib.crc32(f"{a}{sign}{b}".encode()) % 10 == 0


def draw_sum(rng: random.Random, held_out: bool) -> Exchange:
    """Draw one sum or difference of two numbers below 20, from one side of the hold-out."""
    while True:
        sign = rng.choice("+-")
        a, b = rng.randrange(MAX_OPERAND), rng.randrange(MAX_OPERAND)
        if sign == "-" and a < b:
            a, b = b, a
        if is_held_out(a, b, sign) == held_out:
            break
    word = "plus" if sign == "+" else "minus"
    question = rng.choice(_SUM).format(a=a, b=b, sign=sign, word=word)
    return Exchange(question, str(a + b if sign == "+" else a - b))


def arithmetic_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return one to five sums of the training side."""
    del size  # the range of the operands is fixed
    return [draw_sum(rng, held_out=False) for _ in range(rng.randint(1, 5))]


def _count_up(rng: random.Random, size: float) -> Exchange:
    first = rng.randrange(1, 80)
    last = first + draw_length(rng, 3, 40, size)
    numbers = ", ".join(str(number) for number in range(first, last + 1))
    return Exchange(rng.choice(_COUNT_UP).format(first, last), numbers)


def sequence_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return a sequence of numbers, days, months or letters to continue, or a range to count."""
    form = rng.random()
    if form < 0.35:
        return [_count_up(rng, size)]
    num_shown, num_asked = rng.randint(3, 5), rng.randint(2, 4)
    total = num_shown + num_asked
    if form < 0.65:
        step = rng.choice(_STEPS)
        start = rng.randrange(1, 60) if step > 0 else rng.randrange(30, 90)
        items = [str(start + step * index) for index in range(total)]
    elif form < 0.85:
        order = rng.choice(_ORDERS)
        start = rng.randrange(len(order))
        items = [order[(start + index) % len(order)] for index in range(total)]
    else:
        letters = rng.choice((LETTERS, LETTERS.upper()))
        start = rng.randrange(len(letters) - total + 1)
        items = list(letters[start : start + total])
    shown = ", ".join(items[:num_shown])
    question = rng.choice(_CONTINUE).format(shown)
    question += rng.choice((f" ({num_asked} more)", f". Give {num_asked} items."))
    return [Exchange(question, ", ".join(items[num_shown:]))]
