"""The interface of a format of tool calls, which plug-ins implement as well."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagewire_frontend.message.pieces import MessageReader

Marker = Callable[[str], str]
"""From a marker's text to its Lark expression: a token of its own, or its letters."""


@dataclass(frozen=True, slots=True)
class HeldTool:
    """A tool in a grammar; `schema` of its arguments, an object."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """The grammar of a message of calls, for llguidance.

    Attributes:
        first: Lark expression of the first call, without the marker in front.
        further: Lark expression of each further call, with the separator before it.
        marker: Lark expression of the marker in front of calls; empty for none.
        lead: Beginning of a message of calls that needs no marker: any other answer begins
            differently. Empty where the format always needs a marker.
        end: Lark expression of the text behind the last call.
        rules: Rules that these refer to; their names begin with call_.
    """

    first: str
    further: str
    marker: str = ""
    lead: str = ""
    end: str = ""
    rules: Sequence[str] = ()


class CallFormat(Protocol):
    """A format in which models write tool calls.

    Attributes:
        name: Its name in flags.
        markers: Texts that must not be hidden although they may be special tokens.
    """

    name: str
    markers: tuple[str, ...]

    def new_reader(self, names: Collection[str], *, max_calls: int | None) -> MessageReader:
        """Return a reader for one choice.

        Args:
            names: The tools that may be called.
            max_calls: Calls beyond are dropped; None for any number.
        """
        ...

    def rules(self, tools: Sequence[HeldTool], marker: Marker) -> CallRules | None:
        """Return the grammar of calls, or None for a format without one.

        Raises:
            InvalidRequestError: A schema cannot be followed in this format; names tools.
        """
        ...
