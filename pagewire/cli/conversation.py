"""The state of `pagewire chat`: turns, sampling and the commands that change them. No terminal."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pagewire.client.events import Closed, Message
from pagewire_shared.sampling.params import SamplingParams, field_names


class UnknownCommandError(Exception):
    """A line that begins with a slash and is no command."""


class Conversation:
    """Turns and sampling of one conversation.

    Args:
        sampling: Sampling parameters by name; the server adds the model's defaults.
        system: Instructions for the model; None for none.
    """

    def __init__(self, sampling: Mapping[str, Any], system: str | None) -> None:
        self.sampling = dict(sampling)
        self.turns: list[Message] = []
        self.last: Closed | None = None
        self.is_over = False
        self._system = system
        self._clear("")

    def ask(self, text: str) -> None:
        """Add a turn of the user."""
        self.turns.append(Message("user", text))

    def answered(self, text: str) -> None:
        """Add the answer of the model."""
        self.turns.append(Message("assistant", text))

    def take_back(self) -> None:
        """Take the last turn out, which was refused."""
        self.turns.pop()

    def command(self, line: str) -> str:
        """Carry out a line such as "/set temperature 0", and return the text to show.

        Raises:
            UnknownCommandError: It is no command.
            InvalidRequestError: A parameter has no such value.
            OSError: A file cannot be read or written.
        """
        name, _, rest = line.partition(" ")
        found = COMMANDS.get(name)
        if found is None:
            raise UnknownCommandError(f"{name} is no command; /help shows them")
        return found[0](self, rest.strip())

    def _help(self, rest: str) -> str:
        shown = {"/exit": COMMANDS["/exit"], **COMMANDS}
        lines = [f"  {name:<8} {text}" for name, (_, text) in shown.items() if text]
        return "\n".join([*lines, '  """      begins and ends a turn of several lines'])

    def _clear(self, rest: str) -> str:
        self.turns = [Message("system", self._system)] if self._system else []
        return ""

    def _end(self, rest: str) -> str:
        self.is_over = True
        return ""

    def _set_system(self, rest: str) -> str:
        self._system = rest or None
        turns = [turn for turn in self.turns if turn.role != "system"]
        self.turns = [*([Message("system", rest)] if rest else []), *turns]
        return ""

    def _set(self, rest: str) -> str:
        name, _, text = rest.partition(" ")
        if name not in field_names():
            raise UnknownCommandError(f"there is no parameter {name!r}; /show has those in use")
        if not text:
            self.sampling.pop(name, None)
            return f"{name}: the model's own"
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        # A wrong value is refused here, not at the next turn.
        SamplingParams(**{**self.sampling, name: value})
        self.sampling[name] = value
        return f"{name}: {value}"

    def _show(self, rest: str) -> str:
        lines = [f"  {name}: {value}" for name, value in sorted(self.sampling.items())]
        return "\n".join([f"{len(self.turns)} turns; set are:", *lines])

    def _statistics(self, rest: str) -> str:
        if self.last is None:
            return "nothing is answered yet"
        usage, timings = self.last.usage, self.last.timings
        seconds = max(timings.total_seconds - timings.time_to_first_token_seconds, 1e-6)
        rate = max(usage.completion_tokens - 1, 0) / seconds
        return (
            f"{usage.prompt_tokens} prompt tokens, {usage.cached_tokens} of them cached;"
            f" {usage.completion_tokens} answered; first after"
            f" {timings.time_to_first_token_seconds:.3f} s, then {rate:.1f} a second;"
            f" {timings.num_recoveries} recoveries"
        )

    def _save(self, rest: str) -> str:
        turns = [{"role": turn.role, "content": turn.content} for turn in self.turns]
        Path(rest).expanduser().write_text(json.dumps(turns, indent=1, ensure_ascii=False) + "\n")
        return f"saved {len(turns)} turns to {rest}"

    def _load(self, rest: str) -> str:
        try:
            found = json.loads(Path(rest).expanduser().read_text())
            turns = [Message(str(one["role"]), str(one["content"])) for one in found]
        except (ValueError, KeyError, TypeError) as error:
            raise UnknownCommandError(f"{rest} holds no conversation") from error
        self.turns = turns
        return f"{len(turns)} turns"


COMMANDS: Final[dict[str, tuple[Callable[[Conversation, str], str], str]]] = {
    "/help": (Conversation._help, "show this"),
    "/clear": (Conversation._clear, "forget the conversation"),
    "/exit": (Conversation._end, "end the conversation; so does Ctrl-D"),
    "/quit": (Conversation._end, ""),
    "/bye": (Conversation._end, ""),
    "/system": (Conversation._set_system, "TEXT: other instructions for the model"),
    "/set": (Conversation._set, "NAME VALUE: set a sampling parameter; without VALUE unset it"),
    "/show": (Conversation._show, "show the parameters that are set"),
    "/stats": (Conversation._statistics, "tokens and times of the last answer"),
    "/save": (Conversation._save, "FILE: write the conversation as JSON"),
    "/load": (Conversation._load, "FILE: go on with a conversation that was saved"),
}
"""Commands, and their line of help; "" for other names of a command."""
