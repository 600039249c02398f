"""Divides the time of a request into stages that follow each other. Pure: the exporter makes spans
from them.

A scheduler reports how long a choice waited, loaded and computed, and not when. So these stages
stand in that order behind the submit, as long as they were.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord

CHOICE: Final = "pagewire.choice"

MAX_CHOICES: Final = 8
"""Choices with stages of their own, so that the spans of a request are bounded."""

AttributeValue = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the time; seconds of the record's clock."""

    name: str
    began_at: float
    ended_at: float
    attributes: Attributes = field(default_factory=dict)


def stages_of(record: RequestRecord) -> list[Stage]:
    """Return the stages before the submit, and then those of each of the first choices."""
    tokenized_at = record.tokenize_began_at + record.tokenize_seconds
    stages = [
        Stage("grammar", record.arrived_at, record.tokenize_began_at),
        Stage("tokenize", record.tokenize_began_at, tokenized_at),
        Stage("admit", tokenized_at, record.submitted_at),
    ]
    for number, choice in enumerate(record.choices[:MAX_CHOICES]):
        stages += _choice_stages(record, number, choice)
    return [stage for stage in stages if stage.ended_at > stage.began_at]


def _choice_stages(record: RequestRecord, number: int, choice: ChoiceRecord) -> Iterator[Stage]:
    which: Attributes = {CHOICE: number}
    first_at = choice.first_at
    if choice.cell is None:
        # No scheduler has reported: it waits until its first token, or was broken off.
        yield Stage("queue", record.submitted_at, first_at or record.ended_at, which)
    else:
        now, end = record.submitted_at, first_at or record.ended_at
        for name, seconds, attributes in _reported(record, choice.cell):
            # Over several runs they add up to more: what follows the first token is in decode.
            until = min(now + seconds, end)
            yield Stage(name, now, until, which | attributes)
            now = until
        # Sampling, streams between processes, detokenizing; or the rest of a broken request.
        yield Stage("first_token", now, end, which)
    if first_at is not None and choice.last_at is not None:
        yield Stage("decode", first_at, choice.last_at, which | _decoded(choice))
        yield Stage("deliver", choice.last_at, record.ended_at, which)


def _reported(record: RequestRecord, cell: CellTimeline) -> Iterator[tuple[str, float, Attributes]]:
    waits: Attributes = {
        f"pagewire.queue_seconds.{reason}": seconds for reason, seconds in cell.queue_waits.items()
    }
    yield "queue", cell.queue_seconds, waits
    loaded: Attributes = {"pagewire.kv_load.bytes": cell.transfer_bytes}
    if cell.transport is not None:
        loaded["pagewire.kv_load.transport"] = cell.transport
    for tier, num_tokens in cell.cached_tiers.items():
        loaded[f"pagewire.cached_tokens.{tier}"] = num_tokens
    yield "kv_load", cell.transfer_seconds, loaded
    num_computed = max(0, record.num_prompt - record.num_cached)
    computed: Attributes = {
        "pagewire.prefill.tokens": num_computed,
        "pagewire.is_handed_off": cell.is_handed_off,
    }
    yield "prefill", cell.prefill_seconds, computed


def _decoded(choice: ChoiceRecord) -> Attributes:
    cell = choice.cell or CellTimeline()
    return {
        "pagewire.decode.tokens": choice.num_tokens,
        "pagewire.decode.longest_gap": choice.longest_gap,
        "pagewire.paused_seconds": cell.paused_seconds,
        "pagewire.preemptions": cell.num_preemptions,
        "pagewire.migrations": cell.num_migrations,
        "pagewire.recoveries": cell.num_recoveries,
    }
