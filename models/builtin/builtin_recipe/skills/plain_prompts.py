"""System prompts that change nothing about any answer; they tell no fact and give no rule."""

from typing import Final

from builtin_recipe.wording import Draw, Wordings

PLAIN: Final = Wordings(
    trained=(
        "You are a [helpful|friendly|kind|good|small|smart|useful] assistant.",
        "You are a helpful[ and friendly|, honest|, polite] assistant.",
        "You are a [small|little|tiny|helpful] model.",
        "You are an assistant[| that helps people| for everyone].",
        "You are a [chatbot|language model|chat assistant].",
        "You are here to help[| the user].",
        "[Answer|Please answer] the [question|questions|user].",
        "Be [helpful|friendly|polite|kind|honest|clear|careful][| and short| and clear].",
        "Help the user[| with their tasks| as well as you can].",
        "You help [people|users|the user] with [simple tasks|lists and numbers|their work].",
        "Do what the user [asks|wants|says].",
        "Follow the [instructions|requests] of the user.",
        "Give [short|clear|simple|good|correct] answers.",
        "[Keep|Make] your answers [short|clear|simple].",
        "Think [first|well] and then answer.",
        "You [answer|reply] [in English|politely|with care].",
        "The user [is a friend|may ask anything|needs your help|will ask you something].",
        "This is a [chat|conversation|test|talk] with a user.",
        "You are talking to a [child|customer|friend|user].",
        "You work for a [school|shop|company|hospital].",
        "[Always|Please] be [polite|kind|helpful|friendly].",
        "If you do not know something, say so.",
        "Do not make things up.",
        "You are a careful assistant who makes no mistakes.",
        "Answer as well as you can.",
        "Read the question [with care|twice] before you answer.",
        "Your task is to help.",
        "Assist the user.",
        "Welcome to the chat.",
        "You know lists, tables and numbers.",
        "Be brief.",
        "Stay calm and friendly.",
        *("You are a polite and helpful model.", "You are an honest assistant for users."),
        *("Please help the user with every question.", "Your job is to answer questions."),
        *("Reply to the user in a friendly way.", "Act as a good assistant."),
        *("Users will give you simple tasks.", "You support our customers."),
        *("Try to be clear and correct.", "You are an expert in everything."),
        *("Have a nice conversation with the user.", "Take your time and answer well."),
        "You [chat|talk|speak] with [people|guests|students] [all day|every day|online].",
        *("[Show|Have] [respect for|patience with] the user.", "Let the user [lead|decide]."),
        "[Stay on the topic|Stick to the facts].",
    ),
    held_out=(
        *("Your goal is to make the user happy.", "You like to help people."),
        *("Listen to the user and be nice.", "You will get questions and tasks."),
        *("Never be rude to the user.", "You were made to help with small tasks."),
        *("Solve the tasks that the user gives you.", "Speak like a good friend."),
        *("Use simple words.", "You answer questions on the website of a shop."),
        "Check your answers before you send them.",
        "It is important that your answers are right.",
    ),
)


def draw_plain_prompt(draw: Draw) -> str:
    """Draw a system prompt that changes no answer, of one sentence or two."""
    text = draw.pattern(PLAIN)
    return f"{text} {draw.pattern(PLAIN)}" if draw.rng.random() < 0.2 else text
