"""`pagewire chat`: a conversation on the terminal with streamed answers."""

import sys
from collections.abc import Sequence

from pagewire.cli.conversation import Conversation, UnknownCommandError
from pagewire.cli.generation import Connection, GenerationConfig, connected, sampling_of, say
from pagewire.cli.settings import add_model, load, make_parser
from pagewire.client.events import Closed, Delta, Finished
from pagewire_shared.errors import InvalidRequestError

DESCRIPTION = "Talk to a model. Ctrl-C ends an answer, Ctrl-D or /exit the conversation; /help."

DEFAULT_MAX_TOKENS = 512
QUOTES = '"""'
"""Begins and ends a turn of several lines."""


def run(name: str, argv: Sequence[str]) -> int:
    """Read turns from standard input until it ends."""
    parser = make_parser(name, GenerationConfig, DESCRIPTION)
    add_model(parser)
    parser.add_argument("--system", help="instructions for the model")
    # Not a setting, so that the environment of a shell never changes a model's instructions.
    loaded, extra = load(parser, GenerationConfig, argv)
    sampling = sampling_of(loaded.config, DEFAULT_MAX_TOKENS)
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        # The import gives input() editing and history.
        import readline  # noqa: F401
    with connected(loaded, name) as connection:
        conversation = Conversation(sampling, extra["system"])
        if is_terminal:
            say("/help shows the commands, Ctrl-D ends the conversation")
        _converse(connection, conversation, is_terminal)
    return 0


def _converse(connection: Connection, conversation: Conversation, is_terminal: bool) -> None:
    while not conversation.is_over and (text := _read_turn(is_terminal)) is not None:
        if not text:
            continue
        if text.startswith("/") and QUOTES not in text:
            try:
                shown = conversation.command(text)
            except (UnknownCommandError, InvalidRequestError, OSError) as error:
                shown = f"pagewire chat: {error}"
            if shown:
                say(shown)
            continue
        conversation.ask(text)
        try:
            conversation.answered(_answer(connection, conversation))
        except InvalidRequestError as error:
            # Usually the conversation no longer fits the context; /clear starts anew.
            conversation.take_back()
            say(f"pagewire chat: {error}")
            if error.field == "messages" and "no chat template" in error.message:
                return


def _read_turn(is_terminal: bool) -> str | None:
    """Return the next turn, of several lines between triple quotes; None at the end."""
    try:
        text = input("> " if is_terminal else "").strip()
        if text.startswith(QUOTES):
            lines = [text.removeprefix(QUOTES)]
            while not lines[-1].rstrip().endswith(QUOTES):
                lines.append(input(". " if is_terminal else ""))
            text = "\n".join(lines).rstrip().removesuffix(QUOTES).strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        print()
        return ""
    return text


def _answer(connection: Connection, conversation: Conversation) -> str:
    """Print an answer while it is generated and return it; Ctrl-C ends it early."""
    texts: list[str] = []
    events = connection.client.chat(
        conversation.turns, conversation.sampling, model=connection.model
    )
    try:
        for event in events:
            if isinstance(event, Delta | Finished):
                texts.append(event.text)
                sys.stdout.write(event.text)
                sys.stdout.flush()
            elif isinstance(event, Closed):
                conversation.last = event
    except KeyboardInterrupt:
        sys.stdout.write(" [ended]")
    print()
    return "".join(texts)
