"""Says in words where the time of a request went. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.reasons import Reason, length, parts_of, reasons_of
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord
from pagewire_frontend.traces.stages import MAX_CHOICES, Stage, stages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where the time went.

    Attributes:
        summary: One sentence about the largest part.
        notes: One sentence each about what else has cost time.
        cause: The largest part, as the summary has it; None where nothing was measured.
        reasons: All parts by what took their time, the longest first.
        stages: All parts in their order.
    """

    summary: str
    notes: tuple[str, ...]
    cause: Reason | None
    reasons: tuple[Reason, ...]
    stages: tuple[Stage, ...]


def explain(record: RequestRecord) -> Explanation:
    """Explain a request by the stages of its slowest choice."""
    stages = stages_of(record)
    cause = _cause(record, stages)
    return Explanation(
        summary=_summary(record, cause),
        notes=tuple(_notes(record)),
        cause=cause,
        reasons=tuple(reasons_of(record, stages)),
        stages=tuple(stages),
    )


def _cause(record: RequestRecord, stages: list[Stage]) -> Reason | None:
    """Return the largest part of the longest stage."""
    if not stages or record.seconds <= 0:
        return None
    parts = parts_of(record, stages, max(stages, key=length))
    return max(parts, key=lambda part: part.seconds)


def _summary(record: RequestRecord, cause: Reason | None) -> str:
    total = record.seconds
    if cause is None:
        return f"{total:.3f} s, nothing of it measured"
    share = 100 * cause.seconds / total
    ended = f"It failed after {total:.3f} s" if record.error else f"It took {total:.3f} s"
    if not record.error and not record.is_finished:
        ended = f"Its client left after {total:.3f} s"
    return f"{ended}, of which {cause.seconds:.3f} s ({share:.0f} %) went into {cause.words}."


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
    if cell.queue_waits:
        waits = sorted(cell.queue_waits.items(), key=lambda wait: -wait[1])
        shown = ", ".join(f"{seconds:.3f} s {reason}" for reason, seconds in waits)
        yield f"{name} waited in the queue by reason: {shown}."
    if cell.paused_seconds:
        yield f"{name} was paused for {cell.paused_seconds:.3f} s after it had begun."
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
        yield (
            f"{name} had {choice.num_tokens} tokens, {each:.1f} ms apart,"
            f" {1000 * choice.longest_gap:.1f} ms at most."
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
