"""Computes vectors from hidden states: one of them, all, or their mean, chunk by chunk; and class
scores, with the head of the model.

Reads the sums of earlier chunks and returns new sums; PoolingTable stores them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import NO_FLOATS, F32Array, Int64Array
from pagewire_shared.sampling.pooling import PoolingKind, PoolingParams
from pagewire_worker.batch.pooling_table import EMPTY_SUM, StateSum
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingChunk:
    """A part of one slot's sequence whose states count towards its vector.

    Attributes:
        kind: How its states become a vector; never "scores".
        before: Sum of the states before the chunk; for a mean.
        num_states: Number of its states in the outputs of the step: one, or all of the chunk.
        end: Position behind the chunk.
        is_due: Whether the vector is returned in this step.
    """

    slot: int
    params: PoolingParams
    kind: PoolingKind
    before: StateSum
    num_states: int
    end: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class PoolingRows:
    """The states of a step that count towards vectors.

    Attributes:
        chunks: In the order of the plan.
        rows: Indices of their states in the flat batch, in the order of the chunks.
    """

    chunks: tuple[PoolingChunk, ...]
    rows: Int64Array


@dataclass(frozen=True, slots=True)
class Pooled:
    """Results of pooling in one step.

    Attributes:
        vectors: Vectors and class scores one after the other, in the order of the plan; float32
            on the host.
        sums: Sums by slot, to store once the step has succeeded.
        broken_slots: Slots with numbers that are not finite.
    """

    vectors: F32Array
    sums: dict[int, StateSum]
    broken_slots: tuple[int, ...] = ()


Head = Callable[[Tensor], Tensor]
"""Maps vectors [n, hidden] to class scores [n, labels], each row by itself."""

NO_ROWS = PoolingRows((), np.zeros(0, dtype=np.int64))


def pooling_rows(
    table: SlotTable,
    slots: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    first_rows: Int64Array,
    is_due: npt.NDArray[np.bool_],
) -> PoolingRows:
    """Return the rows of a step that computes `starts` to `ends` of `slots`, [scheduled] each.

    `first_rows` are their first rows in the flat batch.

    Raises:
        PlanError: States of all tokens are needed, and some were not computed here.
    """
    which = np.flatnonzero(table.pooling.is_pooling(slots)).tolist()
    if not which:
        return NO_ROWS
    last_rows = first_rows + (ends - starts) - 1
    chunks: list[PoolingChunk] = []
    rows: list[Int64Array] = []
    for index in which:
        slot, start, end = int(slots[index]), int(starts[index]), int(ends[index])
        params = table.pooling.params(slot)
        assert params is not None
        kind = table.pooling.kind_of(params)
        is_mean = kind == "mean"
        if not (is_mean or is_due[index]):
            continue
        before = table.pooling.sum_of(slot) if start > 0 and is_mean else EMPTY_SUM
        if is_mean and before.num_positions != start:
            text = f"a mean from position {start} on, {before.num_positions} states are summed"
            raise PlanError(f"slot {slot}: {text}", (slot,))
        if kind in ("cls", "tokens") and start > 0:
            raise PlanError(f"slot {slot}: {kind} pooling from position {start} on", (slot,))
        num_states = 1 if kind == "last" else end - start
        chunks.append(
            PoolingChunk(
                slot=slot,
                params=params,
                kind=kind,
                before=before,
                num_states=num_states,
                end=end,
                is_due=bool(is_due[index]),
            )
        )
        rows.append(np.arange(num_states) + last_rows[index] + 1 - num_states)
    return PoolingRows(tuple(chunks), np.concatenate(rows)) if chunks else NO_ROWS


def pool(asked: PoolingRows, hidden: Tensor, head: Head | None = None) -> Pooled:
    """Return what is due and the new sums for the states `hidden` [rows, hidden].

    Args:
        asked: Which states count towards what.
        head: Makes class scores of a vector; needed where they are asked for.
    """
    due: list[tuple[PoolingChunk, Tensor]] = []
    sums: dict[int, StateSum] = {}
    states_of = hidden.split([chunk.num_states for chunk in asked.chunks]) if asked.chunks else ()
    for chunk, states in zip(asked.chunks, states_of, strict=True):
        rows = states if chunk.kind == "tokens" else states[:1] if chunk.kind == "cls" else None
        rows = states[-1:].double() if rows is None else rows.double()
        if chunk.kind == "mean":
            # float64: the chunks of a prompt must not change any digit of its vector.
            values = states.sum(dim=0, dtype=torch.float64)
            if chunk.before.values is not None:
                values += chunk.before.values
            sums[chunk.slot] = StateSum(chunk.end, values)
            rows = (values / chunk.end)[None]
        if chunk.is_due:
            if chunk.params.kind == "scores":
                assert head is not None, "a model without a head is asked for no scores"
                rows = head(rows.to(hidden.dtype))
            due.append((chunk, rows))
    vectors, broken_slots = _vectors(due)
    return Pooled(vectors, sums, broken_slots)


def _vectors(due: list[tuple[PoolingChunk, Tensor]]) -> tuple[F32Array, tuple[int, ...]]:
    """Return the rows [n, size] of every chunk in one array on the host, normalized on request, and
    the slots of those that are not finite."""
    if not due:
        return NO_FLOATS, ()
    flat = torch.cat([rows.double().reshape(-1) for _, rows in due]).cpu().numpy()
    vectors: F32Array = np.empty(len(flat), dtype=np.float32)
    broken: list[int] = []
    end = 0
    for chunk, rows in due:
        begin, end = end, end + rows.numel()
        values = flat[begin:end].reshape(rows.shape)
        if chunk.params.is_normalized:
            lengths = np.linalg.norm(values, axis=1)
            # Zero vectors have no direction and stay zero.
            lengths[lengths == 0] = 1.0
            values = values / lengths[:, None]
        vectors[begin:end] = values.reshape(-1)
        if not np.isfinite(vectors[begin:end]).all():
            broken.append(chunk.slot)
    return vectors, tuple(broken)
