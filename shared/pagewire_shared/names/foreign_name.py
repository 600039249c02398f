"""One row of the table of vLLM's names: a name, and what it does here.

`meaning_of` applies a row to a value. The rows of flags are in `pagewire.vllm_names`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

ANY: Final = ("*",)
"""Neutral values of a name without effect, whatever its value."""


class NameState(Enum):
    """Outcome of a name."""

    WORKS = "works"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class RefusedNameError(ValueError):
    """A name of vLLM with a value that cannot be had here; the text says what to use instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignName:
    """A name of vLLM.

    Attributes:
        name: The keyword; the flag has dashes.
        here: The name here of a setting that works; "" for names without effect or refused.
        text: One sentence: the difference, why there is no effect, or what to use instead.
        neutral: Values that change nothing, in the form of `shown`; ANY for all.
        meanings: Value to the value here, where they differ.
        takes: Values that work; empty for all that the setting here takes.
        convert: From a value that works to the value here.
        is_neutral: Says of further values that they change nothing.
    """

    name: str
    here: str = ""
    text: str = ""
    neutral: tuple[str, ...] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None
    is_neutral: Callable[[str], bool] | None = None

    @property
    def state(self) -> NameState:
        """Outcome of the name where its value is not a neutral one."""
        if self.here:
            return NameState.WORKS
        return NameState.NO_EFFECT if self.neutral == ANY else NameState.REFUSED


@dataclass(frozen=True, slots=True)
class Meaning:
    """A value in the words used here.

    Attributes:
        name: Name here; "" when nothing is to be set.
        value: Value here.
        note: One line for the user; "" for none.
    """

    name: str = ""
    value: Any = None
    note: str = ""


def shown(value: object) -> str:
    """Return a value as rows write it: lower case, JSON for objects, 4 for 4.0."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Mapping | list | tuple):
        try:
            return json.dumps(value)
        except TypeError:
            return str(value)
    text = str(value).strip().removeprefix("torch.").lower()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def meaning_of(row: ForeignName, value: object, spelled: str) -> Meaning:
    """Return what `value` means here.

    Args:
        spelled: The name as the user wrote it, for messages.

    Raises:
        RefusedNameError: The value cannot be had here.
    """
    if value is None:
        return Meaning()
    text = shown(value)
    if row.here and (not row.takes or text in row.takes or text in row.meanings):
        if text in row.meanings:
            return Meaning(row.here, row.meanings[text])
        try:
            return Meaning(row.here, row.convert(value) if row.convert else value)
        except RefusedNameError as error:
            raise RefusedNameError(f"{spelled}: {error}") from None
    if row.neutral == ANY:
        return Meaning(note=f"{spelled} has no effect: {row.text}")
    if text in row.neutral or (row.is_neutral is not None and row.is_neutral(text)):
        return Meaning()
    long = "" if text == "true" else f" {text[:60]}"
    raise RefusedNameError(f"{spelled}{long}: {row.text}")


def works(here: str = "", text: str = "", /, **names: str) -> tuple[ForeignName, ...]:
    """Return rows of names that work: name="" for its own name here, or the name here."""
    return tuple(
        ForeignName(name=name, here=own or here or name, text=text) for name, own in names.items()
    )


def no_effect(text: str, names: str) -> tuple[ForeignName, ...]:
    """Return rows of names, separated by blanks, that have no effect whatever their value."""
    return tuple(ForeignName(name=name, text=text, neutral=ANY) for name in names.split())


def refused(text: str, /, **names: str) -> tuple[ForeignName, ...]:
    """Return rows of names that are refused but for neutral values: name="false|none"."""
    return tuple(
        ForeignName(name=name, text=text, neutral=tuple(filter(None, neutral.split("|"))))
        for name, neutral in names.items()
    )
