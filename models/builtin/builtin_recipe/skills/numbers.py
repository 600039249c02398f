"""Exchanges about numbers and fixed orders: sums, counting, sequences; one sum in ten is held out
of training.
"""

import zlib
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_length
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import DAYS, LETTERS, MONTHS

_SUM: Final = Wordings(
    trained=(
        "what is {a} {sign} {b}?",
        "what's {a} {sign} {b}?",
        "{a} {sign} {b} =",
        "{a} {sign} {b} = ?",
        "{a} {sign} {b}",
        "[|what is |what's |calculate |compute: ]{a}{sign}{b}[|=|?| =]",
        "[calculate|compute|solve][|:] {a} {sign} {b}[.|]",
        "[what is|how much is] {a} {word} {b}?",
        "what does {a} {word} {b} make?",
        "[how much is|what is the result of] {a} {sign} {b}?",
        "[can|could] you [add this|calculate|tell me what is] {a} {sign} {b}?",
        "[tell me|give me|I need] the [result|answer] of {a} {sign} {b}.",
        "[find|get|write] the [result|value|answer] of {a} {sign} {b}.",
        "{a} {word} {b} [is|makes|=][ what?|?|]",
        "[what|how much] do you get [for|from] {a} {sign} {b}?",
        "if I [take|have] {a} {word} {b}, how much [is it|do I have]?",
        "please solve {a} {sign} {b} for me.",
        "what do I get for {a} {sign} {b}?",
        "{a} {word} {b} is how much?",
        "tell me how much {a} {word} {b} is.",
        "work out {a} {sign} {b}.",
        "[evaluate|determine|do] {a} {sign} {b}[.|]",
        "{a} {sign} {b} [gives|comes to|makes] [what|how much]?",
        "[say|show|name] the [value|result] of {a} {word} {b}.",
        "[quick|easy one|my sum|homework]: {a} {sign} {b}",
    ),
    held_out=(
        "I want to know what {a} {sign} {b} is.",
        "{a} {word} {b} equals what?",
        "do you know the answer to {a} {sign} {b}?",
        "how much would {a} {word} {b} be?",
        "can you figure out {a} {sign} {b}?",
    ),
)
_COUNT_UP: Final = Wordings(
    trained=(
        "[count|count up] from {first} to {last}.",
        "[write|list|give me|show|print] [the|all] numbers from {first} to {last}.",
        "[can|could] you count from {first} to {last}?",
        "[what are|which are] the numbers from {first} to {last}?",
        "[I want you to|I need you to] count from {first} to {last}.",
        "[all numbers|numbers|the numbers] from {first} to {last}:",
        "[start at|start with|begin at] {first} and count to {last}.",
        "count: {first} to {last}",
        "[say|name|type|show me|tell me] the numbers from {first} [to|up to|until] {last}.",
        "[write|list|say] {first} to {last}.",
        "numbers {first} [-|to|up to] {last}",
        "from {first} to {last}, [list|write|give me|say] [all|the|all the] numbers.",
        "count [on|upwards] from {first} [until|up to|to] {last}.",
        "I want [to see|to have|to read] [all|the|all the] numbers from {first} to {last}.",
        "which numbers [come|are there|do you see] from {first} to {last}?",
        "[let us|let's] count from {first} to {last}.",
        "the list of [all|the] numbers from {first} to {last}[, please|]:",
        "start counting at {first} and stop at {last}.",
        "please write the numbers {first} to {last}.",
        "begin with {first} and go on to {last}.",
        "say every number from {first} to {last}.",
        "I would like to see the numbers from {first} to {last}.",
        "list the numbers between {first} and {last}, both included.",
        "[recite|output|return|print out] the numbers from {first} to {last}.",
        "{first}, ..., {last}: [write|give me|say] [all of them|all the numbers].",
        "I count from {first} to {last}[. How does that go|, how does that look]?",
        "in steps of one, [count|write|say] {first} to {last}.",
    ),
    held_out=(
        "go from {first} to {last}, one number at a time.",
        "make a list of numbers that goes from {first} to {last}.",
        "can you give me every number starting at {first} and ending at {last}?",
        "show me how you count up to {last} when you start at {first}.",
        "the first number is {first} and the last is {last}, write them all.",
    ),
)
_CONTINUE: Final = Wordings(
    trained=(
        "[continue|finish|go on with|extend] [the|this] [sequence|series|list][:|, please:] {shown}"
        " {amount}",
        "[what comes|what follows] next: {shown} {amount}",
        "[continue|finish|complete|go on]: {shown} {amount}",
        "{shown}\n[Continue.|Go on.|What comes next?] {amount}",
        "[here is|this is] a [sequence|series]: {shown}. [Continue it.|Go on.|What comes next?]"
        " {amount}",
        "[can|could] you [continue|finish|complete] this [sequence|series]? {shown} {amount}",
        "how does this [sequence|series] [go on|continue]? {shown} {amount}",
        "[write|give me|say|show] what [comes|follows] [next|after this]: {shown} {amount}",
        "[extend|lengthen|complete] this: {shown} {amount}",
        "{shown}\n[Write|Say|Tell me] what follows. {amount}",
        "{shown}\nWhat [are|is] the rest? {amount}",
        "[the sequence|the series|a list] [is|starts with|begins with] {shown}. [Go on.|Continue.]"
        " {amount}",
        "[keep going|go ahead|carry on][:| with] {shown} {amount}",
        "after {shown} [comes what|what comes]? {amount}",
        "[my list|the list] is {shown}. What [follows|comes then]? {amount}",
        "please go on with these: {shown} {amount}",
        "which ones come next after {shown}? {amount}",
        "look at this series and continue: {shown} {amount}",
        "add to this sequence: {shown} {amount}",
        "{shown}\nHow does it go on? {amount}",
        "[carry|take] [this|the series|the list] [on|further]: {shown} {amount}",
        "[append|supply] the [next ones|ones that follow]: {shown} {amount}",
        "{shown} [and so on|etc.|...] {amount}",
        "make the [list|series|sequence] longer: {shown} {amount}",
    ),
    held_out=(
        "how would you go on from here? {shown} {amount}",
        "I started a list, now finish it: {shown} {amount}",
        "write more of these: {shown} {amount}",
        "follow the pattern: {shown} {amount}",
        "{shown}\nWhat would you write next? {amount}",
    ),
)
_AMOUNT: Final = Wordings(
    trained=(
        "({count} more)",
        "([give|write|show] {count} [more|items])",
        "[Give|Write|Show] {count} [items|more].",
        "[Give|Show] me {count} more.",
        "[Only|The next] {count}.",
        "([{count} items|only {count}|{count} of them|next {count}])",
        "[I want|We need|Tell me] [{count} of them|the next {count}].",
        "How about {count} more?",
        "Write the next {count}.",
        "I need {count} more.",
        "(the next {count})",
        "[Add|List|Name] {count} [more|items].",
        "({count}, please)",
        "It should be {count} [more|items].",
    ),
    held_out=(
        "{count} more would be good.",
        "({count} are enough)",
        "Stop after {count} more.",
    ),
)
_NEXT_ONE: Final = Wordings(
    trained=(
        "[what is|what's|which is|tell me|give me|say] the next [one|item]: {shown}",
        "[what is|tell me|give me|write] the next {unit}[:| after] {shown}",
        "which {unit} comes [next|after this]: {shown}",
        "{shown}. [What|Which {unit}] [is next|comes next]?",
        "only the next [one|{unit}]: {shown}",
        "{shown}, ... [next|what is next|next {unit}]?",
        "{shown}, [and then|and next|...]?",
        "what [is|will be] the following {unit}? {shown}",
        "after {shown} [comes which|what comes as] {unit}?",
        "[guess|find|write] the [next|following] {unit}: {shown}",
        "which {unit} [goes|belongs|stands|follows] [next|behind these|at the end]: {shown}",
        "{shown}\n[Give me|Tell me|Write] the next {unit}.",
        "{shown}\nWhich {unit} follows?",
        "{shown}\nWhich {unit} is next?",
        "name the {unit} that comes next: {shown}",
        "what {unit} follows here: {shown}",
        "the [next|following] {unit}[, please|]: {shown}",
        "[work out|predict|determine] the [next|following] {unit}: {shown}",
        "{shown} and [which|what] {unit}?",
        "{shown}\nThe [next|following] {unit} [is|is which]?",
    ),
    held_out=(
        "which {unit} should I write next? {shown}",
        "look at these and tell me which {unit} should come now: {shown}",
        "{shown}\nOne more {unit}, please.",
    ),
)
_NEIGHBOR: Final = Wordings(
    trained=(
        "[what|which] {unit} [comes|is|comes right] {side} {item}?",
        "[tell me|name|say|give me] the {unit} {side} {item}.",
        "what is the {unit} {side} {item}?",
        "[which is|what is] [directly|right] {side} {item}?",
        "{unit} {side} {item}?",
        "which {unit} do we have {side} {item}?",
        "[find|write|show me] the {unit} {side} {item}.",
        "{side} {item} [comes|is] [which|what] {unit}?",
        "[do you know|can you say|can you tell me] the {unit} {side} {item}?",
        "{item} is [the|a] {unit}. What [is|comes] {side} it?",
        "do you know which {unit} comes {side} {item}?",
        "please name the {unit} that is {side} {item}.",
        "the {unit} {side} {item} is called what?",
        "[guess|work out|pick|type] the {unit} [|that comes ]{side} {item}.",
        "{side} {item}, [which|what] {unit} [is it|do we get]?",
        "the {unit} [right|directly|just] {side} {item}[?| is?| is what?]",
    ),
    held_out=(
        "I need to know the {unit} {side} {item}.",
        "which {unit} do you find {side} {item}?",
        "the {unit} {side} {item}, which one is it?",
    ),
)
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
    question = draw.request(_SUM).format(a=a, b=b, sign=sign, word=word)
    return Exchange(question, str(a + b if sign == "+" else a - b))


def arithmetic_exchanges(draw: Draw) -> list[Exchange]:
    """Return one to five sums of the training side."""
    return [sum_exchange(draw, is_held_out_sum=False) for _ in range(draw.rng.randint(1, 5))]


def _count_up(draw: Draw) -> Exchange:
    first = draw.rng.randrange(1, 80)
    last = first + draw_length(draw.rng, 2, 40, draw.size)
    numbers = ", ".join(str(number) for number in range(first, last + 1))
    return Exchange(draw.request(_COUNT_UP).format(first=first, last=last), numbers)


def _neighbor(draw: Draw) -> Exchange:
    unit, order = draw.rng.choice(_ORDERS)
    index = draw.rng.randrange(len(order))
    side, step = draw.rng.choice((("after", 1), ("after", 1), ("before", -1)))
    question = draw.request(_NEIGHBOR).format(unit=unit, side=side, item=order[index])
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
        question = draw.request(_NEXT_ONE).format(unit=unit, shown=shown)
    else:
        amount = draw.pattern(_AMOUNT).format(count=num_asked)
        question = draw.request(_CONTINUE).format(shown=shown, amount=amount)
    return [Exchange(question, ", ".join(items[num_shown:]))]
