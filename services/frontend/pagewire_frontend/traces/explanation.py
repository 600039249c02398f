"""Says in words where the time of a request went. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord
from pagewire_frontend.traces.stages import MAX_CHOICES, Stage, stages_of

CHOICE: Final = "pagewire.choice"

_PHRASES: Final = {
    "grammar": "checking its grammar, or waiting behind the grammars of others",
    "tokenize": "rendering and tokenizing its prompt, or waiting for a thread that does",
    "admit": "waiting for a worker that serves its model",
    "queue": "waiting at the scheduler for a slot, blocks, its adapter or its turn among tenants",
    "kv_load": "waiting for KV blocks of a store or another worker",
    "prefill": "computing its prompt",
    "first_token": "between its computed prompt and its first token",
    "decode": "generating its tokens",
    "deliver": "waiting for the client to take the answer",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time went.

    Attributes:
        summary: One sentence about the largest part.
        notes: One sentence each about what else has cost time.
        stages: All parts.
    """

    summary: str
    notes: tuple[str, ...]
    stages: tuple[Stage, ...]


def explain(record: RequestRecord) -> Explanation:
    """Explain a request by the stages of its slowest choice."""
    stages = stages_of(record)
    notes = tuple(_notes(record))
    return Explanation(_summary(record, stages), notes, tuple(stages))


def _summary(record: RequestRecord, stages: list[Stage]) -> str:
    total = record.seconds
    if not stages or total <= 0:
        return f"{total:.3f} s, nothing of it measured"
    largest = max(stages, key=_length)
    share = 100 * _length(largest) / total
    ended = f"It failed after {total:.3f} s" if record.error else f"It took {total:.3f} s"
    if not record.error and not record.is_finished:
        ended = f"Its client left after {total:.3f} s"
    return (
        f"{ended}, of which {_length(largest):.3f} s ({share:.0f} %) went into"
        f" {_PHRASES[largest.name]}."
    )


def _notes(record: RequestRecord) -> Iterator[str]:
    if record.error:
        yield f"It was broken off: {record.error}."
    if record.num_resubmits:
        yield (
            f"Its scheduler was lost {_times(record.num_resubmits)}; the times are those of all"
            " its runs together."
        )
    for number, choice in enumerate(record.choices[:MAX_CHOICES]):
        name = f"Choice {number}" if len(record.choices) > 1 else "It"
        yield from _choice_notes(record, name, choice, choice.cell or CellTimeline())


def _choice_notes(
    record: RequestRecord, name: str, choice: ChoiceRecord, cell: CellTimeline
) -> Iterator[str]:
    if cell.num_recoveries:
        yield f"{name} lost its worker {_times(cell.num_recoveries)}, and went on elsewhere."
    if cell.num_preemptions:
        yield f"{name} gave way to others {_times(cell.num_preemptions)}, for want of KV blocks."
    if cell.num_migrations:
        yield f"{name} was moved to another worker {_times(cell.num_migrations)}."
    if cell.is_handed_off:
        yield f"{name} had its prompt computed by another worker."
    if cell.transfer_bytes:
        by = f" by {cell.transport}" if cell.transport else ""
        yield f"{name} got {cell.transfer_bytes} bytes of KV blocks{by}."
    tiers = {tier: count for tier, count in cell.cached_tiers.items() if count}
    if tiers:
        shown = ", ".join(f"{count} in {tier}" for tier, count in tiers.items())
        yield f"{name} found {sum(tiers.values())} of {record.num_prompt} prompt tokens: {shown}."
    if choice.first_at is not None and choice.last_at is not None and choice.num_tokens > 1:
        each = 1000 * (choice.last_at - choice.first_at) / (choice.num_tokens - 1)
        yield f"{name} had {choice.num_tokens} tokens, {each:.1f} ms apart."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _length(stage: Stage) -> float:
    return stage.ended_at - stage.began_at
