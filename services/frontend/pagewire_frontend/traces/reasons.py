"""Divides the stages of a request by what took their time, under stable codes and in words. Pure.

docs/observability/explain.md lists the codes, which programs read.
"""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord
from pagewire_frontend.traces.stages import CHOICE, Stage
from pagewire_shared.kv.tier import WORKER_TIER

PHRASES: Final = {
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
"""Words for a stage of which nothing more is known; its code is its name."""

WAITS: Final = {
    "capacity": "a slot or blocks, which others held",
    "worker": "a worker that serves its model",
    "sleep": "a worker to wake, since all of its model slept",
    "tenants": "its turn among tenants: others were served first",
    "step": "its turn in the steps of its worker",
    "adapter": "its adapter to be in a slot",
    "grammar": "its grammar to be compiled",
    "trial": "trials of others, of which one made a step fail",
}
"""What it waited for in the queue, by the scheduler's reason. The code is `queue.` and the
reason."""

RESUBMIT: Final = "resubmit"
_LOST_SCHEDULER: Final = "getting to a scheduler again, after its own was lost"

INTERRUPTIONS: Final = {
    "worker_lost": "its worker was lost",
    "scheduler_lost": "its scheduler was lost",
    "preempted": "it gave way to others for want of KV blocks or its turn",
    "moved": "it was moved, or its worker slept",
}
"""What makes it wait after it has begun. The code is `paused.` or `gap.` and the first that is
known to have happened."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of the time.

    Attributes:
        code: Stable name; a stage, or with a dot a part of it.
        words: The same in words, behind "went into".
        choice: Index of the choice; None for the request.
    """

    code: str
    seconds: float
    words: str
    choice: int | None


def reasons_of(record: RequestRecord, stages: list[Stage]) -> list[Reason]:
    """Return the reasons of all stages, the longest first."""
    found = [reason for stage in stages for reason in parts_of(record, stages, stage)]
    return sorted(found, key=lambda reason: -reason.seconds)


def parts_of(record: RequestRecord, stages: list[Stage], stage: Stage) -> list[Reason]:
    """Return what took the time of a stage, which the parts add up to."""
    seconds, number = length(stage), stage.attributes.get(CHOICE)
    if not isinstance(number, int):
        return [Reason(stage.name, seconds, PHRASES[stage.name], None)]
    choice = record.choices[number]
    known: list[tuple[str, float, str]] = []
    name, words = stage.name, PHRASES[stage.name]
    cell = choice.cell
    if cell is None:
        pass
    elif stage.name == "queue":
        known = _waits(cell, seconds)
    elif stage.name == "kv_load":
        name, words = _load(cell)
    # What no scheduler has measured, though one was asked: the time until another one was.
    elif stage.name == "first_token" and record.num_resubmits:
        name, words = RESUBMIT, _LOST_SCHEDULER
    elif stage.name in ("prefill", "decode"):
        is_longer = stage is max(_computing(stages, number), key=length)
        known = _interruption(record, choice, cell, stage, is_longer=is_longer)
    rest = seconds - sum(part for _, part, _ in known)
    if rest > 0 or not known:
        known.append((name, rest, words))
    return [Reason(code, part, said, number) for code, part, said in known]


def _computing(stages: list[Stage], choice: int) -> list[Stage]:
    return [
        one
        for one in stages
        if one.name in ("prefill", "decode") and one.attributes.get(CHOICE) == choice
    ]


def _waits(cell: CellTimeline, seconds: float) -> list[tuple[str, float, str]]:
    found, left = [], seconds
    for reason, waited in sorted(cell.queue_waits.items(), key=lambda wait: -wait[1]):
        part = min(waited, left)
        if part > 0:
            found.append((f"queue.{reason}", part, f"waiting for {WAITS.get(reason, reason)}"))
            left -= part
    return found


def _load(cell: CellTimeline) -> tuple[str, str]:
    tiers = [tier for tier, count in cell.cached_tiers.items() if count and tier != WORKER_TIER]
    if tiers:
        return "kv_load.store", f"waiting for KV blocks that it found in {', '.join(tiers)}"
    if cell.is_handed_off:
        return "kv_load.handoff", "waiting for KV blocks of the worker that computed its prompt"
    return "kv_load", PHRASES["kv_load"]


def _interruption(
    record: RequestRecord,
    choice: ChoiceRecord,
    cell: CellTimeline,
    stage: Stage,
    *,
    is_longer: bool,
) -> list[tuple[str, float, str]]:
    """Return the pause or the gap that was most of a stage. A scheduler does not say on which side
    of the first token a pause was: it counts to the longer one."""
    seconds, causes = length(stage), _causes(record, cell)
    ending = f".{causes[0]}" if causes else ""
    if is_longer and 2 * cell.paused_seconds > seconds:
        words = f"waiting to go on {_after(causes)}"
        return [(f"paused{ending}", min(cell.paused_seconds, seconds), words)]
    if stage.name == "decode" and 2 * choice.longest_gap > seconds:
        return [_gap(causes, choice.longest_gap)]
    return []


def _gap(causes: list[str], seconds: float) -> tuple[str, float, str]:
    if causes == ["scheduler_lost"]:
        return RESUBMIT, seconds, _LOST_SCHEDULER
    if causes:
        return f"gap.{causes[0]}", seconds, f"a gap between its tokens {_after(causes)}"
    words = "one gap between its tokens, in a step that took so long or that came late"
    return "gap", seconds, words


def _causes(record: RequestRecord, cell: CellTimeline) -> list[str]:
    """Return what made it wait after it had begun, as far as it is known."""
    counts = {
        "worker_lost": cell.num_recoveries,
        "scheduler_lost": record.num_resubmits,
        "preempted": cell.num_preemptions,
        "moved": cell.num_migrations,
    }
    return [cause for cause, count in counts.items() if count]


def _after(causes: list[str]) -> str:
    if causes:
        return f"after {', or '.join(INTERRUPTIONS[cause] for cause in causes)}"
    return "after it had begun, while others had their turn"


def length(stage: Stage) -> float:
    """Return the seconds of a stage."""
    return stage.ended_at - stage.began_at
