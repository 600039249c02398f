"""How users tell facts about themselves and ask for them later: the common wordings, and what
builds facts from them; it lists no fact.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.wording import Wordings
from builtin_recipe.words import CITIES, NAMES, capitalized


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the user; `{value}` stands for what differs from user to user.

    What is told is a clause without its full stop, so that several make one sentence.
    """

    told: Wordings
    asked: Wordings
    answer: str
    draw_value: Callable[[random.Random], str]


# {thing} is what the user calls it: "lucky number", "brother's name".
_TOLD: Final = Wordings(
    trained=(
        "my {thing} is {value}",
        "my {thing} is {value}",
        "my {thing} is [now|really|simply] {value}",
        "{value} is my {thing}",
        "[I want you to know|you should know|note] that my {thing} is {value}",
        "everyone knows that my {thing} is {value}",
        "my {thing}[:| =] {value}",
        "my {thing} [has always been|will always be|stays|is still|is and stays] {value}",
        "[let me tell you|let me say|I tell you|I must say|I believe] that my {thing} is {value}",
        "{value} [has always been|is still|will be] my {thing}",
        "[about|a word on] my {thing}: it is {value}",
        "I have {value} as my {thing}",
        "you [need to|must|should] know my {thing}, it is {value}",
        "[people|my friends|they] know that my {thing} is {value}",
        "as for my {thing}, it is {value}",
        "[it is true|I can tell you] that my {thing} is {value}",
        *("{value}, that is my {thing}", "my own {thing} is {value}"),
        "my {thing}? [It is|That is|It's] {value}",
        "[remember|save|store] {value} as my {thing}",
        "[of course|naturally|sure], my {thing} is {value}",
    ),
    held_out=(
        "my {thing} happens to be {value}",
        "when people ask for my {thing}, I say {value}",
        "if you want to know my {thing}, it is {value}",
    ),
)
_ASKED: Final = Wordings(
    trained=(
        "what is my {thing}?",
        "what is my {thing}?",
        "what is my {thing}[ again| please|, do you know]?",
        "do you [know|remember|still know] my {thing}?",
        "[can|could] you tell me my {thing}?",
        "tell me my {thing}.",
        "what did I say my {thing} is?",
        "what was my {thing}[| again]?",
        "do you [know|remember] what my {thing} is?",
        "say my {thing}.",
        "which {thing} did I tell you?",
        "and what is my {thing}?",
        "what's my {thing}?",
        "my {thing} is what?",
        "[name|repeat|show] my {thing}.",
        "[so|now|well|quick|first], what is my {thing}?",
        "I [want to|need to|would like to] know my {thing}.",
        "my {thing}[|, please][?|.]",
        "[will|would] you [tell me|say|repeat|name] my {thing}?",
        "[can|could] you [say|name|repeat] my {thing}?",
        "I told you my {thing}. What [is|was] it?",
        "what have I told you about my {thing}?",
        "[tell me|say] [|again |once more ]what my {thing} is.",
        "what do you know about my {thing}?",
        "what is the {thing} I [told you|gave you|named]?",
        "[which|what] {thing} did I [name|give you]?",
        "let me [know|hear] my {thing}.",
        "I do not [know|remember] my {thing}, do you?",
        "what [would|do] you say my {thing} is?",
        "one [more |]question: what is my {thing}?",
        *("[can|could] you remember my {thing}?", "I forgot my {thing}. What is it?"),
        *("give me my {thing}.", "what {thing} did I tell you?"),
        "[can|could] you tell me what my {thing} is?",
        "remind me, what is my {thing}?",
        "[recall|state|type|write|print|confirm] my {thing}.",
        *("[how|what] about my {thing}?", "[quiz|memory test|check]: my {thing}[?|.]"),
        "[earlier|before] I [told you|gave you|said] my {thing}. [What is it?|Say it.]",
    ),
    held_out=(
        *("any idea what my {thing} is?", "are you able to tell me my {thing}?"),
        *("look up my {thing} for me.", "someone asks for my {thing}. What do I say?"),
        *("let's see if you remember my {thing}.", "would you happen to know my {thing}?"),
    ),
)


def draw_person(rng: random.Random) -> str:
    """Return a first name, one in five invented."""
    return rng.choice(NAMES) if rng.random() < 0.8 else capitalized(draw_invented_word(rng))


def draw_city(rng: random.Random) -> str:
    """Return a city, some invented."""
    return rng.choice(CITIES) if rng.random() < 0.85 else capitalized(draw_invented_word(rng))


def draw_number(rng: random.Random) -> str:
    """Return a number of one to three digits."""
    return str(rng.randrange(2, rng.choice((20, 100, 1000))))


def one_of(pool: tuple[str, ...]) -> Callable[[random.Random], str]:
    """Return a draw from `pool`."""
    return lambda rng: rng.choice(pool)


def _joined(first: Wordings, second: Wordings) -> Wordings:
    return Wordings(first.trained + second.trained, first.held_out + second.held_out)


def _named(wordings: Wordings, thing: str) -> Wordings:
    trained = tuple(one.replace("{thing}", thing) for one in wordings.trained)
    return Wordings(trained, tuple(one.replace("{thing}", thing) for one in wordings.held_out))


def own(
    thing: str,
    draw_value: Callable[[random.Random], str],
    told: Wordings | None = None,
    asked: Wordings | None = None,
) -> Fact:
    """Return the fact of `thing`, told and asked for in the common ways and in its own."""
    none = Wordings((), ())
    return Fact(
        told=_joined(_named(_TOLD, thing), told or none),
        asked=_joined(_named(_ASKED, thing), asked or none),
        answer=f"Your {thing} is {{value}}.",
        draw_value=draw_value,
    )


def _told_name(who: str) -> Wordings:
    """How users tell the name of somebody who belongs to them."""
    return Wordings(
        trained=(
            f"my {who} is [called|named] {{value}}",
            f"I have a {who} [named|called] {{value}}",
            f"the name of my {who} is {{value}}",
            f"{{value}} is the name of my {who}",
            f"[everybody calls|people call|we all call|we call] my {who} {{value}}",
            f"my {who} is {{value}}",
            f"{{value}} is [my {who}|what my {who} is called|what we call my {who}]",
            f"my {who}, [named|called] {{value}}, is [nice|great|here|at home]",
            f"my {who} [answers|listens] to the name {{value}}",
            f"I [love|like|know|see] my {who}, [named|called] {{value}}",
            *(f"I call my {who} {{value}}", f"my {who} has the name {{value}}"),
            f"my {who} [was given|got|bears] the name {{value}}",
            f"[say hello to|meet] my {who} {{value}}",
            f"I [met|saw|talked to|visited] my {who} {{value}} [today|again]",
        ),
        held_out=(
            f"my {who} goes by the name {{value}}",
            *(f"everyone knows my {who} as {{value}}", f"this is my {who}, {{value}}"),
        ),
    )


def _asked_name(who: str) -> Wordings:
    """How they ask for it."""
    return Wordings(
        trained=(
            *(f"what is my {who} called?", f"what is the name of my {who}?"),
            *(f"what is my {who} named?", f"do you remember the name of my {who}?"),
            f"who is my {who}?",
            f"what do [I|we|people|you] call my {who}?",
            f"[tell me|say|repeat] the name of my {who}.",
            f"tell me [what my {who} is called|what my {who} is named|who my {who} is].",
            f"do you [know|remember] [what my {who} is called|who my {who} is]?",
            *(f"do you know the name of my {who}?", f"my {who} is [called|named] what?"),
            f"what did I say my {who} is [called|named]?",
            *(f"by what name do [I|we] call my {who}?", f"the name of my {who} is what?"),
            f"I have a {who}. What is the name?",
            *(f"how is my {who} called?", f"which name does my {who} have?"),
            f"what name [should|do] I use for my {who}?",
            f"[write|recall|give me|state] the name of my {who}.",
            *(
                f"how do [I|you|people] [address|call] my {who}?",
                f"my {who} [has|got] which name?",
            ),
        ),
        held_out=(
            *(f"can you name my {who}?", f"which name belongs to my {who}?"),
            f"I forgot what my {who} is called, can you help?",
        ),
    )


def bearer(who: str) -> Fact:
    """Return the fact of the name of somebody who belongs to the user."""
    return own(f"{who}'s name", draw_person, _told_name(who), _asked_name(who))


def liked(thing: str, pool: tuple[str, ...]) -> Fact:
    """Return the fact of the user's favorite of a kind."""
    return own(
        f"favorite {thing}",
        one_of(pool),
        Wordings(
            trained=(
                f"the {thing} I like [best|most] is {{value}}",
                f"{{value}} is the {thing} I like [best|most]",
                f"I like {{value}} more than any other {thing}",
                f"[there is no|I know no] {thing} I like more than {{value}}",
                f"the {thing} [I prefer|I would choose|I would pick] is {{value}}",
                f"{{value}} is the {thing} [I prefer|I would choose|I would pick|that I like]",
                f"the best {thing} [for me|of all|to me] is {{value}}",
                f"{{value}} is [for me|to me] the best {thing}",
                f"if I must [choose|pick] a {thing}, I take {{value}}",
                *(f"{{value}} is the {thing} I love most", f"no {thing} is better than {{value}}"),
                f"I [love|adore|enjoy] {{value}} above every other {thing}",
                f"my [top|preferred|best loved] {thing} is {{value}}",
                f"{{value}} is my [top|preferred] {thing}",
            ),
            held_out=(
                f"my number one {thing} is {{value}}",
                f"if you ask me for the best {thing}, I say {{value}}",
                f"{{value}} is the {thing} for me",
            ),
        ),
        Wordings(
            trained=(
                f"which {thing} do I like [best|most]?",
                f"what {thing} do I like [best|most]?",
                f"[which|what] {thing} [do I prefer|would I choose|would I pick|would I take]?",
                f"[which|what] {thing} is [the best for me|best for me|the one I like best]?",
                f"[tell me|say] [which|what] {thing} I [like best|like most|prefer].",
                f"do you [know|remember] [which|what] {thing} I [like best|like most|prefer]?",
                f"what is the [best {thing} for me|{thing} I like best|{thing} I like most]?",
                f"name the {thing} I [like best|like most|prefer].",
                f"[which|what] {thing} do I like more than any other?",
                f"the {thing} I like [best|most] is [what|which]?",
                f"of every {thing}, which do I like [best|most]?",
                *(f"what is the {thing} I love most?", f"which {thing} is my favorite?"),
                f"what is my [top|preferred|best loved] {thing}?",
                f"which {thing} do I [enjoy|value|love] [above all|the most]?",
                f"[guess|recall|write] which {thing} I like [best|most].",
            ),
            held_out=(
                *(f"what is my number one {thing}?", f"what would I say is the best {thing}?"),
                f"if I could have only one {thing}, which would it be?",
            ),
        ),
    )
