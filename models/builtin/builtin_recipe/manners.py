"""The small liberties that users take with any request: greetings, politeness, what they say before
they come to the point and after it, case and full stops; it knows no skill and holds nothing out.
"""

import random
import re
from typing import Final

_GREETINGS: Final = (
    *("Hi! ", "Hello, ", "Hey, ", "Hello! ", "Hi, ", "Good morning. ", "OK, ", "Now "),
    *("Hi there. ", "Good evening. ", "Hey there, ", "Dear assistant, ", "Assistant, "),
)
_THANKS: Final = (" Thanks!", " Thank you.", " Thanks.", " Thank you!", " Thanks a lot.")
# Before anything.
_OPENERS: Final = (
    *("So, ", "Well, ", "Then ", "And ", "Also, ", "Next: ", "Next task: ", "Task: ", "First: "),
    *("A task: ", "Here is a task. ", "I have a task for you. ", "Do this: ", "Do the following. "),
    *("Let us go on. ", "Let's try something. ", "Another one. ", "Another one: ", "Once more: "),
    *("Last one: ", "Good. ", "Great. ", "Fine. ", "Right. ", "Thanks. ", "Nice. ", "Very good. "),
    *("I need help. ", "Help me. ", "Help me with this: ", "Can you help? ", "Can you help me? "),
    *("Excuse me. ", "Excuse me, ", "If you can, ", "When you can: ", "It is easy: ", "Listen. "),
    *("This is a test. ", "I have something to do. ", "Let me ask you something. ", "For me: "),
    *("Please help me. ", "Please: ", "My request: ", "User: ", "Here we go. ", "Attention: "),
)
_BEFORE_QUESTIONS: Final = (
    *("Question: ", "A question: ", "Quick question: ", "One question: ", "My question: "),
    *("My question is: ", "I have a question. ", "I want to know: ", "I would like to know: "),
    *("Tell me: ", "Tell me, ", "Say, ", "Please tell me: ", "Please answer: ", "Answer this: "),
    *("I wonder: ", "I ask you: ", "Do you know? ", "Can you tell me? ", "I am not sure: "),
    *("Let me ask: ", "May I ask? ", "Answer the question. ", "Please answer the question: "),
)
# They and a command in lower case make one sentence.
_BEFORE_COMMANDS: Final = (
    *("your task is to ", "your job is to ", "I want you to ", "I need you to ", "I ask you to "),
    *("I would like you to ", "I'd like you to ", "you should ", "you must ", "you have to "),
    *("now please ", "just ", "now ", "kindly ", "try to ", "go ahead and ", "then please "),
    *("could you please ", "can you please ", "would you please ", "can you ", "could you "),
    *("would you ", "will you ", "we need you to ", "it is time to ", "the task is to "),
    *("what I need: ", "here is what to do: ", "the next task: ", "help me to "),
)
_CLOSERS: Final = (
    *(" Please answer.", " Please.", " Thanks in advance.", " That is all.", " I am waiting."),
    *(" Be exact.", " Answer only.", " Nothing else.", " Only the answer.", " No explanation."),
    *(" Keep it short.", " Do it now.", " It is easy.", " I need it now.", " Can you do that?"),
    *(" Take your time.", " Do not say anything else.", " Just the answer.", " Go!", " OK?"),
)
# Words that open a command.
_IMPERATIVES: Final = frozenset(
    (
        *("Add", "Answer", "Begin", "Calculate", "Choose", "Complete", "Compute", "Continue"),
        *("Convert", "Copy", "Count", "Create", "Echo", "Extract", "Fill", "Find", "Finish", "Get"),
        *("Give", "Invent", "Keep", "List", "Look", "Make", "Name", "Output", "Pick", "Print"),
        *("Put", "Read", "Remember", "Repeat", "Return", "Reverse", "Say", "Show", "Solve"),
        *("Start", "Take", "Tell", "Turn", "Type", "Use", "Write", "Translate", "Explain"),
        *("Describe", "Parse", "Order", "Call", "Open", "Play", "Send", "Book", "Guess"),
    )
)


def _uncapitalized(text: str) -> str:
    """Return `text` with a small first letter, unless it opens with "I" or an abbreviation."""
    first = re.split(r"\W", text)[0]
    return text if len(first) < 2 or first[:2].isupper() else text[:1].lower() + text[1:]


def _opened(rng: random.Random, text: str) -> str:
    """Return `text` behind words that only lead to it."""
    is_command = re.split(r"\W", text)[0] in _IMPERATIVES
    if is_command and rng.random() < 0.6:
        opener = rng.choice(_BEFORE_COMMANDS)
        return (opener[:1].upper() + opener[1:]) + _uncapitalized(text)
    is_question = text.rstrip().endswith("?")
    opener = rng.choice(_BEFORE_QUESTIONS if is_question and rng.random() < 0.6 else _OPENERS)
    keeps_capital = opener.endswith((". ", "! ", "? ")) or rng.random() < 0.3
    return opener + (text if keeps_capital else _uncapitalized(text))


def as_typed(rng: random.Random, text: str) -> str:
    """Return `text`, which opens with a capital or a field in braces, as a user would type it.

    More than half of the time it stays as it is.
    """
    form = rng.random()
    opens_with_words = not text.startswith("{")
    ends_with_words = not text.endswith("}")
    is_polite = "lease" in text or "an you" in text or "ould you" in text
    if form < 0.09 and opens_with_words:
        return _uncapitalized(text)
    if form < 0.14 and ends_with_words:
        return text.rstrip(".?!")
    if form < 0.19 and not is_polite and re.split(r"\W", text)[0] in _IMPERATIVES:
        return f"Please {_uncapitalized(text)}"
    if form < 0.24 and opens_with_words:
        greeting = rng.choice(_GREETINGS)
        return greeting + (text if greeting.endswith(("! ", ". ")) else _uncapitalized(text))
    if form < 0.28 and ends_with_words:
        return text + rng.choice(_THANKS)
    if form < 0.39 and opens_with_words and not is_polite:
        return _opened(rng, text)
    if form < 0.44 and ends_with_words:
        return text + rng.choice(_CLOSERS)
    return text
