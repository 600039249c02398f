"""The seam to grammars: which tokens a row may have next, as bits, and who says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.device_copy import to_device
from pagewire_worker.slots import Int64Array, PlanError, SlotTable
from pagewire_worker.step import NewRequest

WORD_BITS = 32
NO_ROWS: Int64Array = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """The tokens that some rows may sample.

    Attributes:
        rows: [n] rows of the sampler's logits, each at most once; rows not named may sample all.
        bits: [n, ceil(vocab / 32)]; bit i % 32 of word i // 32 is set where token i is allowed.
            Tokens beyond the bits are not allowed.
        late: [m] rows whose masks are not there yet, or never: nothing may be sampled for them.
        given_up: Those of them that never will have one, and why.
    """

    rows: Int64Array
    bits: npt.NDArray[np.int32]
    late: Int64Array = field(default_factory=lambda: NO_ROWS)
    given_up: Mapping[int, str] = field(default_factory=dict)


class MaskSource(Protocol):
    """Follows the output of slots whose requests name a grammar, and computes their masks.

    All calls come from the model thread; only those that say so raise. When a step fails nothing
    is taken back here: what is held for a slot must be rebuilt from its tokens where its position
    is not the one expected.
    """

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Wait for nothing that is late any longer once `is_hurried`: there is other work."""
        ...

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop compiled grammars that no sequence needs any more; the first change of a plan."""
        ...

    def free(self, slot: int) -> None:
        """Forget a slot, which may hold nothing."""
        ...

    def install(self, request: NewRequest) -> None:
        """Begin to follow the slot of a new request, or to ignore it where it names no grammar.

        Called for every new request; what the slot held before is gone. Raises PlanError naming
        the slot when its grammar is not here.
        """
        ...

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Make `slots` [n] follow what `sources` [n] do; all sources are read before any slot is
        written."""
        ...

    def clear(self) -> None:
        """Forget all slots."""
        ...

    def follows(self, slots: Int64Array) -> bool:
        """Return whether any of `slots` [n] has a grammar."""
        ...

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], TokenMasks | None]:
        """Start to compute the masks of a step on the host.

        Args:
            slots: The slots that sample, [rows], with or without a grammar.
            positions: Index in the output of the token that each is about to sample, [rows].
            table: Holds the tokens of the slots.

        Returns:
            A function that is called after the forward pass, waits for the masks, though not for
            long, and returns them; None when no row has one. It may raise PlanError naming the
            slots at fault.
        """
        ...

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Take what a step sampled, both [rows], those left out excepted; the step may still fail.
        Raises PlanError, where no other step was launched since."""
        ...


class NoMasks:
    """A MaskSource for workers without grammars: refuses requests that name one."""

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Nothing is waited for."""

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Nothing is held."""

    def free(self, slot: int) -> None:
        """Nothing is held."""

    def install(self, request: NewRequest) -> None:
        """Refuse a grammar. Raises PlanError."""
        if request.grammar_id is not None:
            text = f"slot {request.slot}: this worker follows no grammars"
            raise PlanError(text, (request.slot,))

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Nothing is held."""

    def clear(self) -> None:
        """Nothing is held."""

    def follows(self, slots: Int64Array) -> bool:
        """Return that none has one."""
        return False

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], TokenMasks | None]:
        """Return a function that returns no masks."""
        return lambda: None

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Nothing is held."""


def unpack_bits(masks: TokenMasks, vocab_size: int, device: torch.device) -> Tensor:
    """Return which tokens are allowed, [n, vocab_size] bool on `device`."""
    # Bits may be a view of another library's memory, which torch takes only when it is writable.
    words = np.require(masks.bits, np.int32, ["C", "W"])
    bits = to_device(words, device)
    shifts = torch.arange(WORD_BITS, dtype=torch.int32, device=device)
    is_allowed = ((bits.unsqueeze(2) >> shifts) & 1).bool().flatten(1)
    missing = vocab_size - is_allowed.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(is_allowed, (0, missing))
    return is_allowed[:, :vocab_size]


def require_tokens(masks: TokenMasks, slots: Int64Array, vocab_size: int) -> None:
    """Raise PlanError naming those of `slots` [rows] whose mask allows no token at all."""
    last_word, num_bits = divmod(vocab_size, WORD_BITS)
    is_empty = ~masks.bits[:, :last_word].any(axis=1)
    if num_bits and masks.bits.shape[1] > last_word:
        is_empty &= masks.bits[:, last_word] & ((1 << num_bits) - 1) == 0
    if is_empty.any():
        culprits = tuple(slots[masks.rows[is_empty]].tolist())
        raise PlanError(f"slots {list(culprits)}: their grammars allow no token", culprits)


def apply_masks(logits: Tensor, masks: TokenMasks) -> None:
    """Set the logits [rows, vocab] of tokens that `masks` excludes to -inf, in place."""
    index = to_device(masks.rows, logits.device)
    is_allowed = unpack_bits(masks, logits.shape[1], logits.device)
    masked = logits.index_select(0, index).masked_fill_(~is_allowed, float("-inf"))
    logits.index_copy_(0, index, masked)
