"""`pagewire chat`: a conversation on the terminal with streamed answers, which is not stored."""

import sys
from collections.abc import Sequence

from pagewire.cli.generation import Connection, GenerationConfig, connected, sampling_of
from pagewire.cli.settings import load, make_parser
from pagewire.client.events import Delta, Finished, Message
from pagewire_shared.errors import InvalidRequestError

DESCRIPTION = "Talk to a model. Ctrl-C ends an answer, Ctrl-D or /exit the conversation."
HELP = "/clear forgets the conversation, /exit ends it, Ctrl-C ends an answer early"

DEFAULT_MAX_TOKENS = 512


def run(name: str, argv: Sequence[str]) -> int:
    """Read turns from standard input until it ends."""
    parser = make_parser(name, GenerationConfig, DESCRIPTION)
    parser.add_argument("--system", help="instructions for the model")
    # Not a setting, so that the environment of a shell never changes a model's instructions.
    loaded, extra = load(parser, GenerationConfig, argv)
    system = extra["system"]
    start = [Message("system", system)] if system else []
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        # The import gives input() editing and history.
        import readline  # noqa: F401
    sampling = sampling_of(loaded.config, DEFAULT_MAX_TOKENS)
    with connected(loaded) as connection:
        if is_terminal:
            print(HELP, file=sys.stderr)
        _converse(connection, start, sampling, is_terminal)
    return 0


def _converse(
    connection: Connection, start: list[Message], sampling: dict[str, object], is_terminal: bool
) -> None:
    turns = list(start)
    while (text := _read_turn(is_terminal)) is not None:
        match text:
            case "":
                continue
            case "/exit" | "/quit":
                return
            case "/clear":
                turns = list(start)
                continue
            case "/help":
                print(HELP, file=sys.stderr)
                continue
        turns.append(Message("user", text))
        try:
            turns.append(Message("assistant", _answer(connection, turns, sampling)))
        except InvalidRequestError as error:
            # Usually the conversation no longer fits the context; /clear starts anew.
            turns.pop()
            print(f"pagewire chat: {error}", file=sys.stderr)


def _read_turn(is_terminal: bool) -> str | None:
    try:
        return input("> " if is_terminal else "").strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        print()
        return ""


def _answer(connection: Connection, turns: list[Message], sampling: dict[str, object]) -> str:
    """Print an answer while it is generated and return it; Ctrl-C ends it early."""
    texts: list[str] = []
    events = connection.client.chat(turns, sampling, model=connection.model)
    try:
        for event in events:
            if isinstance(event, Delta | Finished):
                texts.append(event.text)
                sys.stdout.write(event.text)
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.write(" [ended]")
    print()
    return "".join(texts)
