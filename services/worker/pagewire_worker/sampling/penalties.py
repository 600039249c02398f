"""Penalties on tokens that occurred: repetition, frequency, presence, in this order.

The formulas are vLLM's (`apply_penalties`); repetition is that of Keskar et al., 2019, "CTRL",
frequency and presence are OpenAI's.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.sampling.token_history import TokenHistory

Floats = npt.NDArray[np.float32]

LARGEST_LOGIT = 1e30
"""Upper bound of a logit: a tiny repetition penalty divides logits to infinity, for which no
softmax exists. This value stays finite when it is divided by the lowest temperature."""
NO_ROWS: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class PenaltyRows:
    """The penalties of each row, [rows] float32 each, or [0] where no row has any.

    Attributes:
        repetition: Divides positive and multiplies other logits of tokens that occurred; 1 is
            neutral.
        frequency: Subtracted once per occurrence in the output; 0 is neutral.
        presence: Subtracted once from tokens that occur in the output; 0 is neutral.
    """

    repetition: Floats
    frequency: Floats
    presence: Floats

    def affected(self) -> npt.NDArray[np.intp]:
        """Return the rows that have a penalty."""
        if not len(self.repetition):
            return NO_ROWS
        is_neutral = (self.repetition == 1) & (self.frequency == 0) & (self.presence == 0)
        return np.flatnonzero(~is_neutral)


NO_PENALTIES = PenaltyRows(*(np.zeros(0, dtype=np.float32),) * 3)


def apply_penalties(logits: Tensor, penalties: PenaltyRows, history: TokenHistory) -> None:
    """Apply the penalties to `logits` [rows, vocab], float32, in place, in the affected rows."""
    rows = penalties.affected()
    if len(rows) == 0:
        return
    device = logits.device
    counts = history.counts(rows, logits.shape[1])
    columns = np.stack((penalties.repetition, penalties.frequency, penalties.presence))[:, rows]
    values = to_device(columns, device).unsqueeze(2)
    repetition, frequency, presence = values
    index = to_device(rows, device)
    picked = logits.index_select(0, index)
    repeated = torch.where(picked > 0, picked / repetition, picked * repetition)
    picked = torch.where(counts.occurs, repeated, picked)
    picked -= frequency * counts.in_output
    picked -= presence * (counts.in_output > 0)
    logits.index_copy_(0, index, picked.clamp_(max=LARGEST_LOGIT))
