"""Finds the values of a chat request that its model's template does not read."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pagewire_frontend.chat.effort import effort_arguments
from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.models.template_reads import TemplateReads

NOTHING = TemplateReads(frozenset(), frozenset())


def unread_effort(effort: str | None, template: ChatTemplate | None) -> bool:
    """Return whether an effort is given that the template makes nothing of."""
    arguments = effort_arguments(effort)
    return bool(arguments) and _reads(template).values.isdisjoint(arguments)


def unread_arguments(
    arguments: Mapping[str, Any] | None, template: ChatTemplate | None
) -> Iterator[str]:
    """Yield the names of the values for the template that it does not read."""
    values = _reads(template).values
    return (name for name in arguments or () if name not in values)


def unread_name(names: Iterable[str | None], template: ChatTemplate | None) -> bool:
    """Return whether a turn has a name, and the template does not read names."""
    return any(names) and not _reads(template).has_turn_field("name")


def _reads(template: ChatTemplate | None) -> TemplateReads:
    return NOTHING if template is None else template.reads
