"""The table of subcommands and what all of them share: errors as one line, exit statuses."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pagewire_shared.errors import PagewireError
from pagewire_shared.process.flags import EXIT_MISUSE, did_you_mean

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
"""What shells report for a program ended by SIGINT."""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: the module with its `run(name, argv) -> exit status`, and its line of help."""

    module: str
    help: str


COMMANDS: dict[str, Command] = {
    "serve": Command("serve", "serve a model on this machine: one process per role"),
    "generate": Command("generate", "continue a prompt and print the text as it comes"),
    "chat": Command("chat", "talk to a model"),
    "bench": Command("bench", "measure TTFT, ITL and throughput of any OpenAI-compatible URL"),
    "frontend": Command("role", "start one frontend"),
    "scheduler": Command("role", "start one scheduler"),
    "worker": Command("role", "start one worker"),
    "kvstore": Command("role", "start one KV store"),
    "admin": Command("admin", "of a running deployment: audit, topology, roles, selftest, ..."),
    "health": Command("health", "ask one process whether it serves: exit status 0 or 1"),
    "config": Command("config", "show the effective configuration: config show"),
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


def run_command(name: str, argv: Sequence[str]) -> int:
    """Run one subcommand; an error of the user becomes one line on standard error."""
    if name not in COMMANDS:
        kind = "flag" if name.startswith("-") else "command"
        hint = did_you_mean(name, COMMANDS)
        message = f"pagewire: error: unknown {kind} {name!r}{hint} (see pagewire --help)"
        print(message, file=sys.stderr)
        return EXIT_MISUSE
    module = importlib.import_module(f"pagewire.cli.{COMMANDS[name].module}")
    try:
        status: int = module.run(name, argv)
    except PagewireError as error:
        message = " ".join(error.message.split())
        print(f"pagewire {name}: error: {message}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `| head` does; the flush at exit would fail again.
        sys.stdout = None
        return EXIT_FAILED
    return status
