"""Exchanges about lists and sentences: copy, reverse, pick and count; what is shown decides every
answer.
"""

from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import (
    ItemKind,
    draw_distinct,
    draw_item,
    draw_kind,
    draw_length,
    draw_separator,
)
from builtin_recipe.skills.sentences import draw_sentence
from builtin_recipe.wording import Draw, Wordings

_COPY: Final = Wordings(
    trained=(
        "[copy|repeat] [this list|these words|this|the following|the list|the words]: {items}",
        "[copy|repeat|echo|write|print|say]: {items}",
        "[copy|repeat|write|type] [exactly|word for word|again]: {items}",
        "[copy|repeat] the following [list|words|line|items|text|sentence]:[ |\n]{items}",
        "[copy|repeat|say|write] [this|the] [sentence|phrase|line][| again| back to me]: {items}",
        "[repeat|say|write this] after me: {items}",
        "repeat [what I say|what I write|what follows|my words]: {items}",
        "say [this|it|these words|the following] [back to me|again|once more]: {items}",
        "write [the same list|the same words|this list|this|these words] [again|once more|out]"
        ": {items}",
        "[can|could] you [copy|repeat|write out] [this|this list|these words|the following]"
        " [for me]?[ |\n]{items}",
        "I [want|need|would like] you to [copy|repeat] [this|this list|these words]:[ |\n]{items}",
        "[echo|print|type|return|output] [this|the following|this list|these words]"
        "[| exactly| back| to me]: {items}",
        "answer with [the same words|the same list|the same text|exactly this]: {items}",
        "your answer [is|should be] [the same|this] [list|text|line]: {items}",
        "make a copy of [this|this list|the following list|these items]: {items}",
        "give me [the same list|this list|these words|this] [back|again]: {items}",
        "[here is|this is] [a list|some text|a line|my list]. [Copy|Repeat] it.[ |\n]{items}",
        "{items}\n[copy|repeat|write] the [list|text|words|line|sentence] above[| again].",
        "{items}\n\n[Copy|Repeat] [that|this|it|the above][| exactly| word for word|, please].",
        "{items}\nSay [that|it] again.",
        '[copy|repeat|echo|say] "{items}"',
        "[quote|restate|rewrite|retype|duplicate|transcribe] [this|the following|this list|it]: "
        "{items}",
        "[read|give|send|say|write] [this|it|the following] back[| to me| again]: {items}",
        "[write|type|print|say] [what you see|what you read|this text] [here|below|again]: {items}",
        "I [say|write|give you] [this|something], you [repeat|say|copy] it: {items}",
        "[the same|the same text|exactly the same], [please|once more|again]: {items}",
        "what does [this|it|the text] say? Repeat it: {items}",
        "{items}\n[Give|Show|Send|Tell] me [that|this|it] [again|back|once more].",
        "{items}\nI [want|need] [a copy of that|that again|the same text back].",
        "{items}\n[Type|Print|Quote|Echo] [that|it|the line|the text].",
        "[copy|repeat]\n{items}",
        "[list|words|text]: {items}\n[copy|repeat] [it|them|this] [here|exactly|word for word].",
        "[please|just] repeat the words that follow: {items}",
        "copy this text word for word: {items}",
        "write out exactly what is here: {items}",
        "could you say these words once more for me? {items}",
        "I would like to see this list again: {items}",
        "reproduce this: {items}",
        "type the following words again: {items}",
        "recite this list: {items}",
        "print a copy of the list: {items}",
        "{items}\nPlease write that once more.",
        "{items}\n\nGive me the same text again.",
        "this is my list, say it back: {items}",
        "[say|repeat|echo|copy] {items}",
        "[say|repeat|echo]: {items}",
        'say "{items}"',
        '[say|repeat|echo|copy|write|print|type][|:] "{items}"',
        "[say|repeat|echo|copy|write|print] [this|that|it][:|,] {items}",
        "act [like|as] [an echo|a parrot]: {items}",
        "this [text|list] [goes|comes] [back to me|again]: {items}",
        "[one copy|a copy] of [this|the following|the list][, please|]: {items}",
    ),
    held_out=(
        "reply with this and nothing else: {items}",
        "I want to hear these words from you: {items}",
        "show me this text just as it is: {items}",
        "respond with these exact words: {items}",
        "say the same as me: {items}",
        "put this text in your answer: {items}",
        "do not change a word, just write this again: {items}",
        "repeat every word of this text: {items}",
        "can I have the same text back? {items}",
        "{items}\nWhat did I just write?",
        "{items}\nLet me read that one more time.",
        "{items}\nNow you say it.",
    ),
)
_REVERSE: Final = Wordings(
    trained=(
        "reverse[| this| this list| the list| the order| these words| the following]: {items}",
        "[write|say|give me|repeat|print] [this list|these words|the words] "
        "[in reverse order|backwards|in the opposite order|from last to first]: {items}",
        "[write|print|say] [backwards|in reverse order|in reverse]: {items}",
        "[can|could] you [reverse|turn around] [this list|these words|the order]? {items}",
        "{items}\n[Write|Say|Print] the [list|words] above [backwards|in reverse order].",
        "{items}\nReverse [the list|the words|it|that|the order].",
        "put [these words|this list|the words] in [reverse|the opposite] order: {items}",
        "turn [this list|the list|these words] around: {items}",
        "what is [this list|the list] [backwards|in reverse]? {items}",
        "[list|name|give me] [these|the words|the items] in [reverse|opposite|backward] order: "
        "{items}",
        "[write|say] [the last first|it from the end|from the end to the start]: {items}",
        "{items}\n[Now|And now] [the same|this|that] [backwards|in reverse].",
        "from [the end|back] to [the start|front]: {items}",
        "please give me the list backwards: {items}",
        "start with the last word and end with the first: {items}",
        "reverse the order of these words for me: {items}",
        "{items}\nNow say the words in the opposite order.",
        "I need this list in reverse: {items}",
        "list these from last to first: {items}",
        "[swap|invert|mirror] [the order|this list|these words]: {items}",
        "read [this|the list|these words] from [right to left|the bottom up]: {items}",
        "[the reverse|the opposite order] of [this|these words|the list][, please|]: {items}",
        "[change|switch] the order to [last to first|reverse]: {items}",
    ),
    held_out=(
        "flip the order of these words: {items}",
        "begin at the end of this list and go back to the start: {items}",
        "how does this list read from the end? {items}",
        "write these words so that the last one comes first: {items}",
        "I want the words the other way around: {items}",
        "{items}\nGo through them from the last to the first.",
    ),
)
_PICK: Final = Wordings(
    trained=(
        "what is the {place} [item|word|one|entry] [of|in] this list? {items}",
        "what is the {place} [item|word]: {items}",
        "[give me|tell me|name|write|show me|say] the {place} [word|item|entry]"
        "[| of the list| of this list| in the list]: {items}",
        "which [word|item|one] [is|comes|stands] {place}[?|:] {items}",
        "[name|pick|choose|find|copy|repeat] the {place} [item|word|one]: {items}",
        "{items}\nWhat is the {place} [word|item][| of the list| above]?",
        "{items}\n[Give me|Write|Name|Tell me|Repeat] the {place} [word|item|one].",
        "list: {items}\n[what|which word] is {place}?",
        "[can|could] you [tell me|give me|name] the {place} [word|item] [of|in] "
        "[this list|the list|the following]? {items}",
        "[I need|I want|I would like] [only |]the {place} [word|item|one] [of|from] "
        "[this list|these|the list]: {items}",
        "answer with the {place} [word|item][| only]: {items}",
        "the {place} [word|item|entry] of this list[, please|]: {items}",
        "from this list, [take|pick|give me|write] the {place} [word|item]: {items}",
        "[what|which one] [is|comes] {place} [here|in this list|in the list]? {items}",
        "[find|show|return|print] [only |just |]the {place} [word|item|entry][:| here:] {items}",
        "the list is: {items}\n[Say|Name|Write|What is] the {place} [one|word|item][.|?]",
        "{items}\nWhich [one|word|item] [is|comes|stands] {place}?",
        "{items}\n[Only|Just] the {place} [word|one|item].",
        "look at this list: {items}\nWhich item is {place}?",
        "only the {place} word, please: {items}",
        "what do you find in {place} place? {items}",
        "tell me which of these is the {place} one: {items}",
        "here are some words: {items}\nName the {place} one.",
        "say the {place} entry of the following list: {items}",
        "{items}\nI need the {place} word of that.",
        "return the {place} item in the list: {items}",
        "[extract|select|fetch|take out] the {place} [word|item] of [this|my list]: {items}",
        "my {place} [word|item] [is|was] which? {items}",
        "{items}\n[And|So] the {place}[| one]?",
        "{items}\nThe {place} [word|item|one] [is|was]?",
    ),
    held_out=(
        "I wrote this list: {items}\nTell me what comes {place} in it.",
        "which of these words do I read {place}? {items}",
        "get me the {place} thing in this list: {items}",
        "please look for the {place} word: {items}",
        "if you read this list, what is the {place} word? {items}",
        "which item is in the {place} position? {items}",
        "{items}\nWhat did I write {place}?",
        "{items}\nCan you say which word is the {place}?",
    ),
)
_COUNT: Final = Wordings(
    trained=(
        "how many [words|items|things|entries] are [in this list|there|here]? {items}",
        "count [the items|the words|these words|this list|these items]: {items}",
        "how many [items|words]: {items}",
        "{items}\nHow many [words|items|things] are [above|in the list|there|that]?",
        "{items}\nCount [the words|the items|them].",
        "[can|could] you count [the words|these words|the items]? {items}",
        "what is the number of [words|items] in [this list|the list]? {items}",
        "how long is [this list|the list]? {items}",
        "[tell me|give me] [how many words there are|the number of words|the number of items]"
        ": {items}",
        "how many [of them|are they|are these|do I have|are listed]? {items}",
        "[find|say|write] the number of [items|words|things] [here|in this list]: {items}",
        "{items}\n[How many|What number of words|Number of words]?",
        "{items}\n[Say|Write] how many [there are|words these are].",
        "how many things do you see here? {items}",
        "count the entries of the following list: {items}",
        "{items}\nTell me how many items that is.",
        "give me the count of these words: {items}",
        "this list has how many words? {items}",
        "please say how long the list is: {items}",
        "[check|work out|see] how many [words|items] [there are|I have|this is]: {items}",
        "[word count|count|amount of words|size of the list]: {items}",
        "{items}\n[Do the count|Make a count|Count, please].",
        "this is a list of how many [words|items|things]? {items}",
    ),
    held_out=(
        "what is the length of this list? {items}",
        "how many things did I list? {items}",
        "what do you get when you count these? {items}",
        "how big is this list? {items}",
        "{items}\nHow many did I name?",
        "{items}\nWhat is the total number of items?",
    ),
)
_PLACES_OF_PICK: Final = {"first": 0, "second": 1, "last": -1}
# Items of several tokens make long lists, which the model masters less: they stay shorter.
_MAX_COPY: Final = {ItemKind.WORD: 40, ItemKind.NAME: 30}
_MAX_COPY_OTHER: Final = 15
_MAX_REVERSE: Final = 6
_MAX_COUNT: Final = 6
_SENTENCE_SHARE: Final = 0.25


def _about(draw: Draw, wordings: Wordings, items: str, **fields: str) -> str:
    return draw.request(wordings).format(items=items, **fields)


def copy_exchanges(
    draw: Draw, kind: ItemKind | None = None, count: int | None = None
) -> list[Exchange]:
    """Return a request to repeat a list of up to 40 items."""
    kind = kind or draw_kind(draw.rng)
    if count is None:
        # Short lists alone teach no copying: the shortest upper end is 15 items.
        limit = _MAX_COPY.get(kind, _MAX_COPY_OTHER)
        count = draw_length(draw.rng, 1, limit, max(draw.size, 0.35))
    if draw.rng.random() < 0.15:
        items = [draw_item(draw.rng, kind) for _ in range(count)]
    else:
        items = draw_distinct(draw.rng, count, kind)
    text = draw_separator(draw.rng).join(items)
    return [Exchange(_about(draw, _COPY, text), text)]


def copy_sentence_exchanges(draw: Draw) -> list[Exchange]:
    """Return a request to repeat one or two sentences."""
    sentences = [draw_sentence(draw.rng) for _ in range(1 if draw.rng.random() < 0.8 else 2)]
    text = " ".join(sentences)
    return [Exchange(_about(draw, _COPY, text), text)]


def any_copy_exchanges(draw: Draw) -> list[Exchange]:
    """Return a request to repeat a list or, in one of four cases, a sentence."""
    if draw.rng.random() < _SENTENCE_SHARE:
        return copy_sentence_exchanges(draw)
    return copy_exchanges(draw)


def reverse_exchanges(
    draw: Draw, kind: ItemKind | None = None, count: int | None = None
) -> list[Exchange]:
    """Return a request to reverse a list of up to 6 items."""
    kind = kind or draw.rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    count = count or draw_length(draw.rng, 2, _MAX_REVERSE, max(draw.size, 0.3))
    items = draw_distinct(draw.rng, count, kind)
    separator = draw.rng.choices((", ", " "), (6, 4))[0]
    question = _about(draw, _REVERSE, separator.join(items))
    return [Exchange(question, separator.join(reversed(items)))]


def pick_exchanges(draw: Draw, kind: ItemKind | None = None) -> list[Exchange]:
    """Return a question for the first, second or last item of a list."""
    count = draw_length(draw.rng, 3, 12, draw.size)
    items = draw_distinct(draw.rng, count, kind or draw_kind(draw.rng))
    place = draw.rng.choice(list(_PLACES_OF_PICK))
    question = _about(draw, _PICK, draw_separator(draw.rng).join(items), place=place)
    return [Exchange(question, items[_PLACES_OF_PICK[place]])]


def count_exchanges(draw: Draw) -> list[Exchange]:
    """Return a question for the length of a list of at most 6 items."""
    kind = draw.rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    count = draw_length(draw.rng, 1, _MAX_COUNT, max(draw.size, 0.6))
    text = draw_separator(draw.rng).join(draw_distinct(draw.rng, count, kind))
    return [Exchange(_about(draw, _COUNT, text), str(count))]
