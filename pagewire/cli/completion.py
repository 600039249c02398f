"""`pagewire completion`: prints a script that completes commands, actions, flags and choices.

The words come from the parsers of the commands, so that a new flag needs no change here.
"""

import contextlib
import importlib
import io
import json
from collections.abc import Mapping, Sequence

from pagewire.cli.commands import COMMANDS
from pagewire.config import ROLE_CONFIGS
from pagewire_shared.process.flags import PRINT_WORDS, HintingParser
from pagewire_shared.process.settings import add_settings

Flags = Mapping[str, list[str] | None]
"""Flag -> choices; an empty list after which no value comes, None for any value."""

_DESCRIPTION = """Print a completion script. Load it with
  bash: source <(pagewire completion bash)
  zsh:  source <(pagewire completion zsh)
  fish: pagewire completion fish | source"""


def run(name: str, argv: Sequence[str]) -> int:
    """Print the script of one shell."""
    parser = HintingParser(prog=f"pagewire {name}", description=_DESCRIPTION)
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell that reads the script")
    options = parser.parse_args(argv)
    print(_SCRIPTS[options.shell](all_words()))
    return 0


def all_words() -> dict[str, Flags]:
    """Return the flags of every command, by its words: "serve" or "admin audit"."""
    found: dict[str, Flags] = {}
    for name, command in COMMANDS.items():
        if name in ROLE_CONFIGS:
            parser = HintingParser()
            add_settings(parser, ROLE_CONFIGS[name])
            found[name] = parser.words
            continue
        module = f"pagewire.cli.{command.module}"
        words = _printed(module, name, [])
        actions = [word for word in words if not word.startswith("-")]
        for action in actions:
            found[f"{name} {action}"] = _printed(module, name, [action])
        if not actions:
            found[name] = words
    return found


def _printed(module: str, name: str, words: list[str]) -> Flags:
    """Return what a command says about its words; nothing for one that has no such parser."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        importlib.import_module(module).run(name, [*words, PRINT_WORDS])
    try:
        flags: Flags = json.loads(output.getvalue())
    except ValueError:
        return {}
    return flags


def _actions(commands: Mapping[str, Flags]) -> dict[str, list[str]]:
    """Return the actions of the commands that have some."""
    actions: dict[str, list[str]] = {}
    for words in commands:
        name, _, action = words.partition(" ")
        if action:
            actions.setdefault(name, []).append(action)
    return actions


def _cases(commands: Mapping[str, Flags], add: str) -> list[str]:
    """Return the branches for choices and flags, the same in bash and zsh but for `add`."""
    lines = ['  case "$key $previous" in']
    for name, flags in commands.items():
        lines += [
            f'    "{name} {flag}") {add.format(" ".join(choices))}; return ;;'
            for flag, choices in flags.items()
            if choices
        ]
    lines += ["  esac", '  [[ "$current" == -* ]] || { others; return; }', '  case "$key" in']
    lines += [f'    "{name}") {add.format(" ".join(flags))} ;;' for name, flags in commands.items()]
    return [*lines, "  esac"]


def _script(commands: Mapping[str, Flags], head: Sequence[str], add: str, others: str) -> list[str]:
    names = add.format(" ".join(COMMANDS))
    lines = [*head, f"  if (( position == 1 )); then {names}; return; fi", '  case "$key" in']
    for name, actions in _actions(commands).items():
        shown = add.format(" ".join(actions))
        lines.append(f"    {name}) if (( position == 2 )); then {shown}; return; fi")
        lines.append('      key="$key $second" ;;')
    lines += ["  esac", *_cases(commands, add), "}"]
    return [line.replace("others;", f"{others};") for line in lines]


def _bash(commands: Mapping[str, Flags]) -> str:
    head = [
        "_pagewire() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local key="${COMP_WORDS[1]}" second="${COMP_WORDS[2]}" position=$COMP_CWORD',
        "  COMPREPLY=()",
    ]
    add = 'COMPREPLY=($(compgen -W "{}" -- "$current"))'
    # Without a reply, bash completes names of files.
    lines = _script(commands, head, add, "true")
    return "\n".join([*lines, "complete -o default -F _pagewire pagewire"])


def _zsh(commands: Mapping[str, Flags]) -> str:
    head = [
        "#compdef pagewire",
        "_pagewire() {",
        '  local current="$words[CURRENT]" previous="$words[CURRENT-1]"',
        '  local key="$words[2]" second="$words[3]" position=$((CURRENT - 1))',
    ]
    lines = _script(commands, head, "compadd -- {}", "_files")
    return "\n".join([*lines, "compdef _pagewire pagewire"])


def _fish(commands: Mapping[str, Flags]) -> str:
    first = '"__fish_is_nth_token 1"'
    lines = [f'complete -c pagewire -n {first} -f -a "{" ".join(COMMANDS)}"']
    lines += [
        f'complete -c pagewire -n "__fish_seen_subcommand_from {name}; and __fish_is_nth_token 2"'
        f' -f -a "{" ".join(actions)}"'
        for name, actions in _actions(commands).items()
    ]
    for name, flags in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for flag, choices in flags.items():
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = f' -x -a "{" ".join(choices)}"' if choices else " -r" if choices is None else ""
            lines.append(f'complete -c pagewire -n "{seen}" {kind}{value}')
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
