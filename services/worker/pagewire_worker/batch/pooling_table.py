"""Stores the pooling parameters of slots, and the sums of slots that take a mean."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.sampling.pooling import PoolingKind, PoolingParams
from pagewire_shared.steps.plan import NewSequence


@dataclass(frozen=True, slots=True)
class StateSum:
    """Sum of the hidden states of the first `num_positions` tokens, [hidden] float64 on the device.

    The sum of no tokens has None as `values`.
    """

    num_positions: int
    values: Tensor | None = None


EMPTY_SUM = StateSum(0)


class PoolingTable:
    """Pooling parameters of all slots that pool, and the sums of those that take a mean.

    A sum is replaced only after its step has succeeded, so a failed step can be repeated.

    Attributes:
        scored_kind: The vector that the classification head of the model takes.
    """

    def __init__(self) -> None:
        self.scored_kind: PoolingKind = "last"
        self._params: dict[int, PoolingParams] = {}
        self._sums: dict[int, StateSum] = {}

    def set(self, request: NewSequence) -> None:
        """Store the parameters of a new sequence under its slot."""
        self.free(request.slot)
        if request.pooling is not None:
            self._params[request.slot] = request.pooling

    def free(self, slot: int) -> None:
        """Forget a slot."""
        self._params.pop(slot, None)
        self._sums.pop(slot, None)

    def params(self, slot: int) -> PoolingParams | None:
        """Return the pooling parameters of `slot`; None when it samples."""
        return self._params.get(slot)

    def kind_of(self, params: PoolingParams) -> PoolingKind:
        """Return the vector that is made of the states; never "scores"."""
        return self.scored_kind if params.kind == "scores" else params.kind

    def token_types(self, slots: Int64Array, positions: Int64Array) -> Int64Array | None:
        """Return 1 for each token [tokens] of a second text of a pair, else 0; None for no pair."""
        starts = {slot: one.second_start for slot, one in self._params.items() if one.second_start}
        if not starts:
            return None
        begins = np.array([starts.get(slot, -1) for slot in slots.tolist()], dtype=np.int64)
        return ((begins >= 0) & (positions >= begins)).astype(np.int64)

    def is_pooling(self, slots: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which of `slots` [n] pool."""
        if not self._params:
            return np.zeros(len(slots), dtype=bool)
        return np.array([slot in self._params for slot in slots.tolist()], dtype=bool)

    def sum_of(self, slot: int) -> StateSum:
        """Return the sum of `slot` after the last step that succeeded."""
        return self._sums.get(slot, EMPTY_SUM)

    def commit(self, sums: dict[int, StateSum]) -> None:
        """Store the sums, by slot, of a step that succeeded."""
        self._sums.update(sums)
