"""Stores sampling parameters per slot, as arrays from which a step picks its rows."""

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.sampling.fields import NUMBERS
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.backend.device_copy import rows_to_device
from pagewire_worker.sampling.penalties import NO_PENALTIES, PenaltyRows
from pagewire_worker.sampling.token_history import TokenHistory
from pagewire_worker.sampling.token_rules import RowRules, TokenRules, make_rules

NO_LOGPROBS = -1
LOWEST_TEMPERATURE = 1e-5
"""Lower temperatures are greedy, as in vLLM: dividing logits by them may overflow."""
NO_IDS: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRows:
    """Sampling parameters of each row; tensors are on the device, arrays on the host.

    Attributes:
        temperature: [rows] float32, 0 is greedy.
        min_p, top_p: [rows] float32.
        top_k: [rows] int64, 0 keeps all.
        seed_low, seed_high: [rows] int64, halves of the 64-bit seeds.
        choice: [rows] int64.
        position: [rows] int64, index of the token in the output of its choice.
        is_plain: Every row takes its most likely token and needs nothing else; the other fields
            are then empty.
        num_logprobs: [rows] int64 on the host; NO_LOGPROBS for rows that want none.
        banned: Ids that may not be sampled now, as (row, ids), for rows that have any.
        rules: Tokens that are allowed, banned or biased.
        history: The tokens of the rows; None if no rule needs them.
    """

    is_plain: bool
    temperature: npt.NDArray[np.float32]
    min_p: npt.NDArray[np.float32]
    top_p: npt.NDArray[np.float32]
    top_k: npt.NDArray[np.int64]
    seed_low: Tensor
    seed_high: Tensor
    choice: Tensor
    position: Tensor
    num_logprobs: npt.NDArray[np.int64]
    banned: tuple[tuple[int, npt.NDArray[np.int64]], ...]
    rules: RowRules
    penalties: PenaltyRows
    history: TokenHistory | None


_ROW_NUMBERS: Final = {f.name for f in fields(SamplingRows)} & {f.name for f in NUMBERS}
_NO_NUMBERS: npt.NDArray[Any] = np.zeros(0, dtype=np.float32)
_NO_TENSOR = torch.zeros(0, dtype=torch.int64)

PLAIN_ROWS = SamplingRows(
    is_plain=True,
    **dict.fromkeys(_ROW_NUMBERS, _NO_NUMBERS),
    seed_low=_NO_TENSOR,
    seed_high=_NO_TENSOR,
    choice=_NO_TENSOR,
    position=_NO_TENSOR,
    num_logprobs=NO_IDS,
    banned=(),
    rules=RowRules(),
    penalties=NO_PENALTIES,
    history=None,
)
"""Any number of rows that take their most likely tokens."""


@dataclass(frozen=True, slots=True)
class SavedSampling:
    """A copy of the sampling parameters of some slots; every column is [slots]."""

    columns: tuple[npt.NDArray[np.generic], ...]
    stop_ids: tuple[npt.NDArray[np.int64], ...]
    rules: tuple[TokenRules | None, ...]


class SamplingTable:
    """Sampling parameters of all slots."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self._device = device
        self._numbers: dict[str, npt.NDArray[Any]] = {
            field.name: np.full(
                num_slots,
                field.beam[0] if field.beam else 0,
                dtype=np.float32 if field.kind is float else np.int64,
            )
            for field in NUMBERS
        }
        self._seed = np.zeros(num_slots, dtype=np.uint64)
        self._choice = np.zeros(num_slots, dtype=np.int64)
        self._num_logprobs = np.full(num_slots, NO_LOGPROBS, dtype=np.int64)
        self._num_prompt_logprobs = np.full(num_slots, NO_LOGPROBS, dtype=np.int64)
        self._is_plain = np.zeros(num_slots, dtype=np.bool_)
        self._has_penalties = np.zeros(num_slots, dtype=np.bool_)
        self._stop_ids: dict[int, npt.NDArray[np.int64]] = {}
        self._rules: dict[int, TokenRules] = {}

    def set(self, request: NewSequence) -> None:
        """Keep the parameters of a new sequence under its slot."""
        slot, sampling = request.slot, request.sampling
        is_greedy = sampling.temperature < LOWEST_TEMPERATURE
        for name, column in self._numbers.items():
            column[slot] = getattr(sampling, name)
        if is_greedy:
            self._numbers["temperature"][slot] = 0.0
        self._seed[slot] = sampling.seed or 0
        self._choice[slot] = request.choice
        wanted = sampling.logprobs if request.num_candidates is None else request.num_candidates
        self._num_logprobs[slot] = NO_LOGPROBS if wanted is None else wanted
        wanted = sampling.prompt_logprobs
        self._num_prompt_logprobs[slot] = NO_LOGPROBS if wanted is None else wanted
        stop_ids = {*map(int, request.eos_token_ids), *sampling.stop_token_ids}
        self._stop_ids[slot] = np.array(sorted(stop_ids), dtype=np.int64)
        self._set_rules(slot, make_rules(sampling, self._device))
        self._has_penalties[slot] = sampling.has_penalties
        wants_logprobs = self._num_logprobs[slot] != NO_LOGPROBS
        has_rules = sampling.has_penalties or slot in self._rules
        self._is_plain[slot] = is_greedy and not has_rules and not wants_logprobs

    def free(self, slot: int) -> None:
        """Forget the rules of a slot; its numbers are not read until they are set again."""
        self._stop_ids.pop(slot, None)
        self._rules.pop(slot, None)

    def num_prompt_logprobs(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return per slot the alternatives wanted per prompt token; NO_LOGPROBS for none."""
        return self._num_prompt_logprobs[slots]

    def save(self, slots: npt.NDArray[np.int64]) -> SavedSampling:
        """Return a copy of the parameters of `slots` [n]."""
        stop_ids = tuple(self._stop_ids.get(slot, NO_IDS) for slot in slots.tolist())
        rules = tuple(self._rules.get(slot) for slot in slots.tolist())
        return SavedSampling(tuple(column[slots] for column in self._columns()), stop_ids, rules)

    def restore(self, slots: npt.NDArray[np.int64], saved: SavedSampling) -> None:
        """Store `saved` under `slots` [n]."""
        for column, values in zip(self._columns(), saved.columns, strict=True):
            column[slots] = values
        self._stop_ids.update(zip(slots.tolist(), saved.stop_ids, strict=True))
        for slot, rules in zip(slots.tolist(), saved.rules, strict=True):
            self._set_rules(slot, rules)

    def set_choices(self, slots: npt.NDArray[np.int64], choices: npt.NDArray[np.int64]) -> None:
        """Make `slots` draw the noise of `choices`, both [n]."""
        self._choice[slots] = choices

    def _set_rules(self, slot: int, rules: TokenRules | None) -> None:
        if rules is None:
            self._rules.pop(slot, None)
        else:
            self._rules[slot] = rules

    def _columns(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (
            *self._numbers.values(),
            self._seed,
            self._choice,
            self._num_logprobs,
            self._num_prompt_logprobs,
            self._is_plain,
            self._has_penalties,
        )

    def rows(
        self,
        slots: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        history: TokenHistory | None = None,
    ) -> SamplingRows:
        """Return the parameters of `slots` for tokens at output `positions`, both [rows].

        `history` covers these rows; penalties and bad sequences need it.
        """
        is_early = positions < self._numbers["min_tokens"][slots]
        if self._is_plain[slots].all() and not is_early.any():
            return PLAIN_ROWS
        numbers = self._numbers
        seeds = self._seed[slots]
        early_rows = np.flatnonzero(is_early).tolist()
        banned = ((row, self._stop_ids[int(slots[row])]) for row in early_rows)
        low, high, choice, position = rows_to_device(
            (
                (seeds & np.uint64(0xFFFFFFFF)).astype(np.int64),
                (seeds >> np.uint64(32)).astype(np.int64),
                self._choice[slots],
                positions,
            ),
            self._device,
        )
        return SamplingRows(
            is_plain=False,
            **{name: numbers[name][slots] for name in _ROW_NUMBERS},
            seed_low=low,
            seed_high=high,
            choice=choice,
            position=position,
            num_logprobs=self._num_logprobs[slots],
            banned=tuple((row, ids) for row, ids in banned if len(ids)),
            rules=self._row_rules(slots),
            penalties=self._penalties(slots),
            history=history,
        )

    def _penalties(self, slots: npt.NDArray[np.int64]) -> PenaltyRows:
        if not self._has_penalties[slots].any():
            return NO_PENALTIES
        numbers = self._numbers
        return PenaltyRows(
            numbers["repetition_penalty"][slots],
            numbers["frequency_penalty"][slots],
            numbers["presence_penalty"][slots],
        )

    def _row_rules(self, slots: npt.NDArray[np.int64]) -> RowRules:
        if not self._rules:
            return RowRules()
        found = ((row, self._rules.get(slot)) for row, slot in enumerate(slots.tolist()))
        return RowRules(tuple((row, rules) for row, rules in found if rules is not None))
