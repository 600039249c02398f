"""Computes vectors from hidden states: the last state, or the mean of all, chunk by chunk.

Reads the sums of earlier chunks and returns new sums; PoolingTable stores them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import NO_FLOATS, F32Array, Int64Array
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.batch.pooling_table import EMPTY_SUM, StateSum
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingChunk:
    """A part of one slot's sequence whose states count towards its vector.

    Attributes:
        before: Sum of the states before the chunk; for a mean.
        num_states: Number of its states in the outputs of the step: one, or all for a mean.
        end: Position behind the chunk.
        is_due: Whether the vector is returned in this step.
    """

    slot: int
    params: PoolingParams
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
        vectors: [vectors * hidden] float32 on the host, in the order of the plan.
        sums: Sums by slot, to store once the step has succeeded.
    """

    vectors: F32Array
    sums: dict[int, StateSum]


NO_ROWS = PoolingRows((), np.zeros(0, dtype=np.int64))


def pooling_rows(
    table: SlotTable,
    slots: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    is_due: npt.NDArray[np.bool_],
) -> PoolingRows:
    """Return the rows of a step that computes `starts` to `ends` of `slots`, [scheduled] each.

    The slots lie one after the other in the flat batch.

    Raises:
        PlanError: A mean over states of which some were not computed here.
    """
    which = np.flatnonzero(table.pooling.is_pooling(slots)).tolist()
    if not which:
        return NO_ROWS
    last_rows = np.cumsum(ends - starts) - 1
    chunks: list[PoolingChunk] = []
    rows: list[Int64Array] = []
    for index in which:
        slot, start, end = int(slots[index]), int(starts[index]), int(ends[index])
        params = table.pooling.params(slot)
        assert params is not None
        is_mean = params.pooling == "mean"
        if not (is_mean or is_due[index]):
            continue
        before = table.pooling.sum_of(slot) if start > 0 and is_mean else EMPTY_SUM
        if is_mean and before.num_positions != start:
            text = f"a mean from position {start} on, {before.num_positions} states are summed"
            raise PlanError(f"slot {slot}: {text}", (slot,))
        num_states = end - start if is_mean else 1
        chunks.append(
            PoolingChunk(
                slot=slot,
                params=params,
                before=before,
                num_states=num_states,
                end=end,
                is_due=bool(is_due[index]),
            )
        )
        rows.append(np.arange(num_states) + last_rows[index] + 1 - num_states)
    return PoolingRows(tuple(chunks), np.concatenate(rows)) if chunks else NO_ROWS


def pool(asked: PoolingRows, hidden: Tensor) -> Pooled:
    """Return the vectors that are due and the new sums for the states `hidden` [rows, hidden]."""
    due: list[Tensor] = []
    sums: dict[int, StateSum] = {}
    states_of = hidden.split([chunk.num_states for chunk in asked.chunks]) if asked.chunks else ()
    for chunk, states in zip(asked.chunks, states_of, strict=True):
        state = states[-1].double()
        if chunk.params.pooling == "mean":
            # float64: the chunks of a prompt must not change any digit of its vector.
            values = states.sum(dim=0, dtype=torch.float64)
            if chunk.before.values is not None:
                values += chunk.before.values
            sums[chunk.slot] = StateSum(chunk.end, values)
            state = values / chunk.end
        if chunk.is_due:
            due.append(state)
    is_normalized = [chunk.params.normalize for chunk in asked.chunks if chunk.is_due]
    return Pooled(_vectors(due, is_normalized), sums)


def _vectors(states: list[Tensor], is_normalized: list[bool]) -> F32Array:
    """Return `states`, [hidden] float64 each, as one array on the host, normalized on request."""
    if not states:
        return NO_FLOATS
    values = torch.stack(states).cpu().numpy()
    lengths = np.linalg.norm(values, axis=1)
    # Zero vectors have no direction and stay zero.
    lengths[~np.array(is_normalized) | (lengths == 0)] = 1.0
    vectors: F32Array = (values / lengths[:, None]).astype(np.float32).reshape(-1)
    return vectors
