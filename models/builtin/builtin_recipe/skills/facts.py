"""Conversations in which a user tells facts and asks for them later; the answer is in the earlier
turns, and the latest telling counts.
"""

from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.skills.fact_forms import Fact
from builtin_recipe.skills.talk import REFUSAL, REMEMBERED, small_talk_exchanges
from builtin_recipe.skills.user_facts import FACTS
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized

_FACTS: Final = tuple(FACTS.values())

# Before and after what is told; {told} is one clause or several.
_MESSAGES: Final = Wordings(
    trained=(
        *("{told}.",) * 18,
        *("[Hello|Hi|Hey|Good morning][!|.] {told}.", "[Hello|Hi], {told}."),
        "[Please remember|Remember][| this]: {told}.",
        "[Remember|Please remember|Do not forget] that {told}.",
        "{told}. [Remember that|Please remember that|Do not forget it].",
        *("[Listen|So|Well], {told}.", "{told}!", "I [want to|must] tell you something. {told}."),
        "[Let me|I will|I would like to] tell you [something|a fact|one thing]: {told}.",
        "[You should know|I want you to know|You need to know][| this]: {told}.",
        "[Write down|Know|Learn|Save][| this]: {told}.",
        "{told}. [Note that|Keep it|Save that|I will ask you later|That is all|OK?]",
        "{told}, [you know|as you may know|just so you know].",
        "[Just so you know|For later|For your notes|First of all|One thing], {told}.",
        "[About me|My facts|Some facts|A fact on me|A fact for you]: {told}.",
        "[Oh|OK|Right|Also|And], {told}.",
        "[Today|Now] I tell you [something|a fact] about me. {told}.",
        *("{told}. Can you remember that?", "Please note[| this]: {told}."),
        *("Here is something about me: {told}.", "Keep this in mind: {told}."),
        *("By the way, {told}.", "[Store|Memorize|Keep][| this| that| it][:| for me:] {told}."),
        *("[Did you know|Guess what]? {told}.", "[Nice|Good] to meet you[!|.] {told}."),
        *("[A note|Information|Info|A memo]: {told}.", "This is important: {told}."),
        *("{told}. Got it?", "So that you know me better: {told}.", "Fun fact: {told}."),
        *("I hope you can keep this for me: {told}.", "Here are my notes for you: {told}."),
        *("It may be of use later that {told}.", "I am going to ask you about this later. {told}."),
        "I will ask about it in a moment: {told}.",
        "There is something I want to share with you. {told}.",
        *("What you must not forget: {told}.", "Before we start, {told}."),
        *("Put this in your memory: {told}.", "Add this to your notes: {told}."),
        *("Make a note of this for me. {told}.", "{told}. You will need that later."),
        *("{told}. Please put that down.", "{told}. It is good to know that, right?"),
        *("{told}. I thought I would tell you that.", "{told}. Will you remember that?"),
        *("{told}. Don't forget.", "{told}, and that is good to know."),
        *("{told}, if you want to know.", "I think you should know a bit about me. {told}."),
        *("We should get to know each other. {told}.", "A little about me: {told}."),
        *("Information about the user: {told}.", "My data: {told}.", "Note to self: {told}."),
        *("For the record: {told}.", "It is a fact that {told}.", "I can tell you that {told}."),
        *("Try to remember this for me: {told}.", "Could you remember something for me? {told}."),
        *("Can you hold on to this? {told}.", "Will you save this for later? {told}."),
        *("Now listen well: {told}.", "Pay attention: {told}."),
        *("Let us start with a fact: {told}.", "I'm new here. {told}."),
        *("The following is true: {told}.", "It would be nice if you remembered this: {told}."),
        "I don't want you to forget this: {told}.",
        *("As you are my assistant, you should know this: {told}.", "Take this down: {told}."),
        *("Read this and remember it: {told}.", '"{told}." Remember these words of mine.'),
    ),
    held_out=(
        *("Hey there! {told}.", "A bit about me: {told}.", "Before we begin, {told}."),
        *("Something about me: {told}.", "Let me introduce myself. {told}."),
        *("{told}. I'll ask you about it later.", "I have something to tell you. {told}."),
        *("{told}. Just thought you should know.", "{told}. Please keep [that|this] in mind."),
        "Let's talk about me for a moment. {told}.",
        "{told}. [Will|Can] you remember that [for me|for later]?",
        "[I should mention that|I'd like you to know that] {told}.",
    ),
)
_CORRECTIONS: Final = Wordings(
    trained=(
        *("[Actually|No|No, wait|Sorry|Wait], {told}.", "Correction: {told}."),
        *("[Sorry|No], that was wrong[.|:] {told}.", "I was wrong[.|:] {told}."),
        *("It changed: now {told}.", "[Things|That] changed[.|:] [Now |]{told}."),
        *("[That is|It is] not true any more[.|:] {told}.", "[Change|New|Update|Not so]: {told}."),
        "[I have to|I must|I want to] [change|correct] something[.|:] {told}.",
        "[Now|From now on|Today|Since today] {told}.",
        "[Forget|Change] what I said[.|:] {told}.",
        "[I said it wrong|I told you the wrong thing|That was not right][.|:] {told}.",
        *("[Well|Hm|Oh no|No no|Oh], {told}.", "I made a mistake: {told}."),
        *("Oh, that is not right. {told}.", "Let me correct that: {told}.", "In fact, {told}."),
        "[Oops|My mistake|My bad|Pardon][,|:|.] {told}.",
        "[Scratch that|Strike that|Not any more][.|:] {told}.",
        "[Let me|I need to] [update|fix|replace] [that|it|this][:|.] {told}.",
        "[It is no longer so|That was before|That was once|That is over][.|:] {told}.",
        *("I meant to say that {told}.", "It is different now: {told}."),
        *("Sorry, I mixed that up. {told}.", "Please use this instead: {told}."),
        *("That is old news: {told}.", "What I said before is wrong. {told}."),
        *("Please change your notes: {told}.", "Please correct your notes: {told}."),
        *("You have it wrong because of me. {told}.", "One thing is different now. {told}."),
        *("I must take that back. {told}.", "I take it back: {told}.", "Something new: {told}."),
        *("There is news: {told}.", "I have news for you. {told}."),
        "Do not use what I told you before. {told}.",
        *("Do not believe what I said first. {told}.", "The right answer is this: {told}."),
        *("To be correct, {told}.", "Now that I think of it, {told}."),
        *("I looked again, and {told}.", "I checked it: {told}.", "Wrong! {told}."),
        *("I lied to you. {told}.", "It was a joke. In truth, {told}."),
        *("My first message was not right. {told}.", "Replace the old fact with this one: {told}."),
        *("Remember this in place of the old one: {told}.", "This is what is true now: {told}."),
        *("You can forget the old one, as now {told}.", "I thought about it again. {told}."),
        *("{told}, not what I said before.", "{told}. The other thing I said was wrong."),
        "{told} now, so please change it.",
    ),
    held_out=(
        *("Hold on, {told}.", "Small update: {told}.", "Let me correct myself. {told}."),
        *("Something has changed: {told}.", "Oops, I got that wrong. {told}."),
        *("Hold on, that's not right. {told}.", "That's not true anymore. [Now |]{told}."),
        "I made a mistake [earlier|before]. {told}.",
        "Forget what I said [before|earlier], {told}.",
        "I need to change something I told you. {told}.",
    ),
)


def _message(draw: Draw, wordings: Wordings, told: list[str]) -> str:
    """Return the clauses of `told` in one message."""
    form = draw.rng.random()
    if form < 0.5 and len(told) > 1:
        clauses = ". ".join((told[0], *map(capitalized, told[1:])))
    else:
        clauses = ", ".join(told[:-1]) + " and " + told[-1] if len(told) > 1 else told[0]
    message = capitalized(draw.pattern(wordings).replace("{told}", clauses))
    # A clause that follows a full stop opens a sentence.
    for mark in (". ", "! "):
        message = mark.join(capitalized(part) for part in message.split(mark))
    return message


def _told(draw: Draw, fact: Fact, value: str) -> str:
    pattern = draw.pattern(fact.told)
    # A clause may open a sentence, and a value in lower case must not get a capital there.
    while pattern.startswith("{value}") and value[:1].islower():
        pattern = draw.pattern(fact.told)
    return pattern.replace("{value}", value)


def _told_exchanges(draw: Draw, chosen: list[tuple[Fact, str]]) -> list[Exchange]:
    """Return the messages that tell the chosen facts, one to three in each."""
    exchanges: list[Exchange] = []
    rest = list(chosen)
    while rest:
        count = draw.rng.choices((1, 2, 3), (7, 3, 1))[0]
        clauses = [_told(draw, fact, value) for fact, value in rest[:count]]
        exchanges.append(Exchange(_message(draw, _MESSAGES, clauses), REMEMBERED))
        rest = rest[count:]
    return exchanges


def _told_and_asked(draw: Draw) -> list[Exchange]:
    """Return one message that tells a fact or two and asks for one of them."""
    rng = draw.rng
    chosen = [(fact, fact.draw_value(rng)) for fact in rng.sample(_FACTS, rng.randint(1, 2))]
    told = _message(draw, _MESSAGES, [_told(draw, fact, value) for fact, value in chosen])
    fact, value = rng.choice(chosen)
    asked = capitalized(draw.pattern(fact.asked))
    return [Exchange(f"{told} {asked}", fact.answer.format(value=value))]


def _corrected(
    draw: Draw, chosen: list[tuple[Fact, str]]
) -> tuple[list[Exchange], list[tuple[Fact, str]]]:
    """Return a message that tells one of the facts anew, and the facts that hold after it."""
    place = draw.rng.randrange(len(chosen))
    fact, _ = chosen[place]
    value = fact.draw_value(draw.rng)
    message = _message(draw, _CORRECTIONS, [_told(draw, fact, value)])
    held = [*chosen[:place], (fact, value), *chosen[place + 1 :]]
    return [Exchange(message, REMEMBERED)], held


def _asked_exchanges(draw: Draw, chosen: list[tuple[Fact, str]]) -> list[Exchange]:
    """Return the questions for the facts in another order, now and then one for an untold fact."""
    rng = draw.rng
    asked = [
        Exchange(draw.request(fact.asked), fact.answer.format(value=value))
        for fact, value in chosen
    ]
    if rng.random() < 0.05:
        known = [fact for fact, _ in chosen]
        untold = rng.choice([fact for fact in _FACTS if fact not in known])
        asked.append(Exchange(draw.request(untold.asked), REFUSAL))
    rng.shuffle(asked)
    return asked


def fact_exchanges(draw: Draw) -> list[Exchange]:
    """Return one to three facts told by the user and, in another order, the questions for them."""
    rng = draw.rng
    if rng.random() < 0.12:
        return _told_and_asked(draw)
    count = rng.choices((1, 2, 3, 4), (4, 4, 3, 1))[0]
    chosen = [(fact, fact.draw_value(rng)) for fact in rng.sample(_FACTS, count)]
    exchanges = _told_exchanges(draw, chosen)
    if rng.random() < 0.2:
        exchanges += small_talk_exchanges(draw)
    if rng.random() < 0.12:
        correction, chosen = _corrected(draw, chosen)
        exchanges += correction
    asked = _asked_exchanges(draw, chosen)
    if len(asked) > 1 and rng.random() < 0.15:
        asked[1:1] = small_talk_exchanges(draw)
    return exchanges + asked
