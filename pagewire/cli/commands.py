"""The table of subcommands and their shared code: error lines, exit statuses, choice of actions."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from pagewire.vllm_names.other_programs import COMMAND_HINTS
from pagewire_shared.errors import AuthenticationError, PagewireError
from pagewire_shared.process.flags import EXIT_MISUSE, PRINT_WORDS, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

import argparse
from typing import Final


def choose_action(
    command: str, argv: Sequence[str], actions: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the action and the words after it; exit with 0 after --help and 2 after misuse."""
    width = max(map(len, actions))
    shown = "\n".join(f"  {name:<{width}}  {text}" for name, text in actions.items())
    usage = f"usage: pagewire {command} ACTION [...]\n\n{shown}"
    word = argv[0] if argv else ""
    if word in actions:
        return word, list(argv[1:])
    if word == PRINT_WORDS:
        print(json.dumps(dict.fromkeys(actions)))
        sys.exit(0)
    if word in ("-h", "--help"):
        print(usage)
        sys.exit(0)
    wanted = f"unknown action {word!r}{did_you_mean(word, actions)}" if word else "no action given"
    print(f"pagewire {command}: error: {wanted} (see pagewire {command} --help)", file=sys.stderr)
    sys.exit(EXIT_MISUSE)


Report = TypeVar("Report", bound="DataclassInstance")


def print_cells(
    cells: Sequence[Report], describe: Callable[[Report], str], *, as_json: bool
) -> None:
    """Print the reports of all cells, as text by `describe` or as a JSON array of their fields."""
    if as_json:
        print(json.dumps([asdict(cell) for cell in cells], indent=2))
    else:
        print("\n\n".join(describe(cell) for cell in cells))


LONGEST_SECONDS: Final = 3600.0


def waiting_seconds(text: str) -> float:
    """Return the longest wait for an answer in seconds, from a millisecond to an hour.

    Raises:
        argparse.ArgumentTypeError: The text is not a number in that range.
    """
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    # The wire has milliseconds; the comparison also refuses nan.
    if not 0.001 <= seconds <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and {LONGEST_SECONDS:g}")
    return seconds


EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
"""Exit status that shells report for a program ended by SIGINT."""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: the module with its `run(name, argv) -> exit status`, and its line of help."""

    module: str
    help: str


COMMANDS: dict[str, Command] = {
    "serve": Command("serve", "serve a model on this machine: one process per role"),
    "generate": Command("generate", "continue a prompt and print the text as it comes"),
    "chat": Command("chat", "talk to a model"),
    "run": Command("chat", "the same"),
    "demo": Command("demo", "demo kill: kill a process under a stream; the answer stays the same"),
    "bench": Command("bench", "measure TTFT, ITL and throughput of any OpenAI-compatible URL"),
    "frontend": Command("role", "start one frontend"),
    "scheduler": Command("role", "start one scheduler"),
    "worker": Command("role", "start one worker"),
    "kvstore": Command("role", "start one KV store"),
    "admin": Command("admin", "of a running deployment: audit, topology, roles, selftest, ..."),
    "explain": Command("explain", "say where the time of a recent request went"),
    "certs": Command("certs.command", "make and renew the certificates of TLS between the roles"),
    "keys": Command("keys.command", "make an API key, and its line for --api-key-file"),
    "top": Command("live.top", "show workers, queues, KV blocks and streams, again and again"),
    "health": Command("health", "ask one process whether it serves: exit status 0 or 1"),
    "config": Command("config", "show the effective configuration: config show"),
    "models": Command("models", "list the models on this machine"),
    "pull": Command("models", "fetch a model from the hub"),
    "size": Command("size", "compute what memory a model takes, and how many sequences fit"),
    "doctor": Command("doctor", "check this machine: CPU, compiler, devices, memory, ports"),
    "convert": Command("convert", "turn a checkpoint of pickles (.bin) into safetensors"),
    "completion": Command("completion", "print the script that completes words in a shell"),
}


def overview() -> str:
    """Return the text of `pagewire --help`."""
    lines = [f"  {name:<10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: pagewire COMMAND [...]",
            "",
            "LLM serving split by role: frontend, scheduler, worker and KV store.",
            "",
            *lines,
            "",
            "pagewire COMMAND --help shows the flags of a command, pagewire --version the version.",
            "Every flag is also PAGEWIRE_<FLAG> in the environment and a key in --config FILE.",
        ]
    )


def _cure(error: PagewireError) -> str:
    """Return what a command line can do about an error, or ""."""
    if isinstance(error, AuthenticationError) and "--api-key" not in error.message:
        return "; give it with --server-api-key or PAGEWIRE_SERVER_API_KEY"
    return ""


def run_command(name: str, argv: Sequence[str]) -> int:
    """Run one subcommand; an error of the user becomes one line on standard error."""
    if name not in COMMANDS:
        kind = "flag" if name.startswith("-") else "command"
        hint = f"; {COMMAND_HINTS[name]}" if name in COMMAND_HINTS else did_you_mean(name, COMMANDS)
        message = f"pagewire: error: unknown {kind} {name!r}{hint} (see pagewire --help)"
        print(message, file=sys.stderr)
        return EXIT_MISUSE
    module = importlib.import_module(f"pagewire.cli.{COMMANDS[name].module}")
    try:
        status: int = module.run(name, argv)
    except PagewireError as error:
        message = " ".join(error.message.split()) + _cure(error)
        print(f"pagewire {name}: error: {message}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output left, as `| head` does; the flush at exit would fail again.
        sys.stdout = None
        return EXIT_FAILED
    return status
