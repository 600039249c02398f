"""`pagewire generate`: continues one prompt and prints the text while it is generated."""

import sys
from collections.abc import Sequence

from pagewire.cli.generation import GenerationConfig, connected, sampling_of
from pagewire.cli.settings import load, make_parser
from pagewire.client.events import Delta, Finished
from pagewire_shared.errors import InvalidRequestError

DESCRIPTION = "Continue a prompt. Standard output gets the text and nothing else."

DEFAULT_MAX_TOKENS = 128


def run(name: str, argv: Sequence[str]) -> int:
    """Print the continuation."""
    parser = make_parser(name, GenerationConfig, DESCRIPTION)
    parser.add_argument(
        "PROMPT", nargs="?", help='the prompt; read from standard input for "-", or without one'
    )
    loaded, positionals = load(parser, GenerationConfig, argv)
    prompt = positionals["PROMPT"]
    if prompt is None and sys.stdin.isatty():
        parser.error("PROMPT is needed, or a text on standard input")
    if prompt in (None, "-"):
        prompt = sys.stdin.read()
    if not prompt:
        raise InvalidRequestError("the prompt is empty", field="prompt")
    sampling = sampling_of(loaded.config, DEFAULT_MAX_TOKENS)
    with connected(loaded, name) as connection:
        for event in connection.client.complete(prompt, sampling, model=connection.model):
            if isinstance(event, Delta | Finished):
                sys.stdout.write(event.text)
                sys.stdout.flush()
    print()
    return 0
