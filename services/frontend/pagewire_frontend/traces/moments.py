"""Makes spans below the stages of a request from its moments inside cells: what its workers and KV
stores did. Pure.

Workers and stores measure how long something took; instants are those at which the scheduler heard
of it. So no clock of another host places a span, and a lost worker loses only what it had not
reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.metrics.moments import CellMoment
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord
from pagewire_frontend.traces.stages import CHOICE, MAX_CHOICES, Attributes

CELL_SPANS: Final = ("prefill_chunk", "kv_get", "kv_pull", "store_get", "paused", "decode_run")
"""Names of the spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSpan:
    """One span.

    Attributes:
        stage, choice: The stage that it lies under.
        began_at, ended_at: Seconds of the record's clock, within the request.
        epoch: The run that it belongs to: the first of a later one links to the last before.
        parts: Spans below it.
    """

    name: str
    stage: str
    choice: int
    began_at: float
    ended_at: float
    attributes: Attributes
    epoch: int
    parts: tuple["CellSpan", ...] = ()


def cell_spans(record: RequestRecord) -> list[CellSpan]:
    """Return the spans of the first choices, in the order in which they ended."""
    spans: list[CellSpan] = []
    for number, choice in enumerate(record.choices[:MAX_CHOICES]):
        if choice.cell is not None and choice.cell.moments:
            spans += _spans_of(record, number, choice, choice.cell.moments)
    return spans


def _spans_of(
    record: RequestRecord, number: int, choice: ChoiceRecord, moments: tuple[CellMoment, ...]
) -> Iterator[CellSpan]:
    for index, moment in enumerate(moments):
        ended_at = moment.ended_at
        if moment.kind == "prefill":
            name, stage, attributes = "prefill_chunk", "prefill", _prefill(moment)
        elif moment.kind == "load":
            name = "kv_pull" if moment.source else "kv_get"
            stage, attributes = "kv_load", _load(moment)
        elif moment.kind == "pause":
            name, stage, attributes = "paused", _stage_at(choice, moment), _pause(moment)
        else:
            name, stage, attributes = "decode_run", "decode", _worker(moment)
            ended_at = _end_of_run(record, choice, moments[index + 1 :])
        yield CellSpan(
            name=name,
            stage=stage,
            choice=number,
            began_at=_within(record, moment.began_at),
            ended_at=_within(record, max(moment.began_at, ended_at)),
            attributes={CHOICE: number, **attributes},
            epoch=moment.epoch,
            parts=tuple(_parts(record, number, moment)),
        )


def _stage_at(choice: ChoiceRecord, moment: CellMoment) -> str:
    is_decoding = choice.first_at is not None and moment.began_at >= choice.first_at
    return "decode" if is_decoding else "prefill"


def _end_of_run(
    record: RequestRecord, choice: ChoiceRecord, later: tuple[CellMoment, ...]
) -> float:
    """Return when a worker stopped generating: at the next pause, or where another one began."""
    for moment in later:
        if moment.kind in ("pause", "decode"):
            return moment.began_at
    return record.ended_at if choice.last_at is None else choice.last_at


def _parts(record: RequestRecord, number: int, moment: CellMoment) -> Iterator[CellSpan]:
    """Yield what each store did: it was asked when the load began."""
    for store in moment.stores:
        yield CellSpan(
            name="store_get",
            stage="kv_load",
            choice=number,
            began_at=_within(record, moment.began_at),
            ended_at=_within(record, moment.began_at + min(store.seconds, moment.seconds)),
            attributes={
                "pagewire.role": "kvstore",
                "server.address": store.address,
                "pagewire.kv_load.bytes": store.num_bytes,
            },
            epoch=moment.epoch,
        )


def _within(record: RequestRecord, at: float) -> float:
    """Return an instant within the request: a message takes a while from the scheduler."""
    return min(max(at, record.arrived_at), record.ended_at)


def _worker(moment: CellMoment) -> Attributes:
    return {"pagewire.role": "worker", "pagewire.worker": moment.worker}


def _prefill(moment: CellMoment) -> Attributes:
    return _worker(moment) | {"pagewire.prefill.tokens": moment.num_tokens}


def _load(moment: CellMoment) -> Attributes:
    found = _worker(moment) | {
        "pagewire.kv_load.bytes": moment.num_bytes,
        "pagewire.kv_load.blocks": moment.num_blocks,
    }
    if moment.source:
        found["pagewire.kv_load.source"] = moment.source
    if moment.transport is not None:
        found["pagewire.kv_load.transport"] = moment.transport
    for tier, num_blocks in moment.tiers.items():
        found[f"pagewire.kv_load.blocks.{tier}"] = num_blocks
    return found


def _pause(moment: CellMoment) -> Attributes:
    cause: Attributes = {"pagewire.cause": moment.cause} if moment.cause else {}
    return {"pagewire.role": "scheduler", **cause}
