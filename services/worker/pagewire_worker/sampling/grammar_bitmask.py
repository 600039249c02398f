"""Grammar bitmasks: the tokens that rows of a step may sample, one bit per token."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.plan.plan_error import PlanError

WORD_BITS = 32
NO_ROWS: Int64Array = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GrammarBitmask:
    """Allowed tokens of some rows.

    Attributes:
        rows: [n] rows of the sampler's logits, each at most once; other rows may sample any token.
        bits: [n, ceil(vocab / 32)]; bit i % 32 of word i // 32 is set if token i is allowed.
            Tokens beyond the bits are not allowed.
        late: [m] rows whose masks did not come in time, or never will: they must not sample.
        given_up: Late rows that will never have a mask, with the reason.
    """

    rows: Int64Array
    bits: npt.NDArray[np.int32]
    late: Int64Array = field(default_factory=lambda: NO_ROWS)
    given_up: Mapping[int, str] = field(default_factory=dict)


def unpack_bits(masks: GrammarBitmask, vocab_size: int, device: torch.device) -> Tensor:
    """Return the allowed tokens as [n, vocab_size] bool on `device`."""
    # Bits may be a view of another library's memory, which torch takes only when it is writable.
    words = np.require(masks.bits, np.int32, ["C", "W"])
    bits = to_device(words, device)
    shifts = torch.arange(WORD_BITS, dtype=torch.int32, device=device)
    is_allowed = ((bits.unsqueeze(2) >> shifts) & 1).bool().flatten(1)
    missing = vocab_size - is_allowed.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(is_allowed, (0, missing))
    return is_allowed[:, :vocab_size]


def require_tokens(masks: GrammarBitmask, slots: Int64Array, vocab_size: int) -> None:
    """Raise PlanError with the `slots` [rows] whose masks allow no token at all."""
    last_word, num_bits = divmod(vocab_size, WORD_BITS)
    is_empty = ~masks.bits[:, :last_word].any(axis=1)
    if num_bits and masks.bits.shape[1] > last_word:
        is_empty &= masks.bits[:, last_word] & ((1 << num_bits) - 1) == 0
    if is_empty.any():
        culprits = tuple(slots[masks.rows[is_empty]].tolist())
        raise PlanError(f"slots {list(culprits)}: their grammars allow no token", culprits)


def apply_masks(logits: Tensor, masks: GrammarBitmask) -> None:
    """Set the logits [rows, vocab] of tokens that `masks` excludes to -inf, in place."""
    index = to_device(masks.rows, logits.device)
    is_allowed = unpack_bits(masks, logits.shape[1], logits.device)
    masked = logits.index_select(0, index).masked_fill_(~is_allowed, float("-inf"))
    logits.index_copy_(0, index, masked)
