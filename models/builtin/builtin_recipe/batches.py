"""Training batches: the curriculum by share of the run and first-fit packing of chats into rows of
fixed length.
"""

import random
from dataclasses import dataclass, field
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from builtin_recipe.chat_tokenizer import PAD, encode_conversation
from builtin_recipe.conversation import END_OF_TEXT
from builtin_recipe.corpus import EARLY_MIX, LONG_MIX, MAIN_MIX, Mix, draw_conversation
from builtin_recipe.network import IGNORED_LABEL

_EARLY_SHARE: Final = 0.3
_MAX_WAITING: Final = 64
_MAX_DRAWS_PER_ROW: Final = 12
_SMALLEST_GAP: Final = 24


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One kind of batch: how often, how long its rows are, how large its lists get."""

    weight: float
    length: int
    low_size: float
    high_size: float
    mix: Mix | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """What is drawn from `start` (share of the run) on."""

    start: float
    plans: tuple[RowPlan, ...]


# Short rows are cheap and teach most; long rows come when copying works. There are few lengths
# because each is compiled.
CURRICULUM: Final = (
    Phase(0.0, (RowPlan(1.0, 128, 0.0, 0.3),)),
    Phase(0.25, (RowPlan(1.0, 128, 0.0, 0.45),)),
    Phase(0.4, (RowPlan(0.6, 128, 0.1, 0.6), RowPlan(0.4, 384, 0.2, 0.6))),
    Phase(
        0.6,
        (
            RowPlan(0.4, 128, 0.1, 0.9),
            RowPlan(0.4, 384, 0.3, 0.75),
            RowPlan(0.2, 1024, 0.5, 0.85, LONG_MIX),
        ),
    ),
    Phase(
        0.75,
        (
            RowPlan(0.45, 128, 0.1, 1.0),
            RowPlan(0.3, 384, 0.3, 0.9),
            RowPlan(0.25, 2048, 0.6, 1.0, LONG_MIX),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Ids and shifted labels, both [rows, length] int64."""

    ids: Tensor
    labels: Tensor


Encoded = tuple[list[int], list[int]]


@dataclass(slots=True)
class BatchSource:
    """Draws batches; chats that did not fit wait for the next row of their length."""

    tokenizer: Tokenizer
    rng: random.Random
    num_tokens: int
    _waiting: dict[int, list[Encoded]] = field(default_factory=dict)

    def draw(self, progress: float) -> Batch:
        """Draw the next batch at `progress` (share of the run, 0 to 1)."""
        phase = [phase for phase in CURRICULUM if phase.start <= progress][-1]
        plan = self.rng.choices(phase.plans, [plan.weight for plan in phase.plans])[0]
        mix = plan.mix or (EARLY_MIX if progress < _EARLY_SHARE else MAIN_MIX)
        num_rows = max(1, self.num_tokens // plan.length)
        ids = torch.full((num_rows, plan.length), self._special(PAD))
        labels = torch.full((num_rows, plan.length), IGNORED_LABEL)
        for row in range(num_rows):
            self._fill(ids[row], labels[row], plan, mix)
        shifted = torch.full_like(labels, IGNORED_LABEL)
        shifted[:, :-1] = labels[:, 1:]
        return Batch(ids, shifted)

    def _special(self, token: str) -> int:
        token_id = self.tokenizer.token_to_id(token)
        assert token_id is not None
        return int(token_id)

    def _fill(self, ids: Tensor, labels: Tensor, plan: RowPlan, mix: Mix) -> None:
        position = num_draws = 0
        end = self._special(END_OF_TEXT)
        while position < plan.length - _SMALLEST_GAP and num_draws < _MAX_DRAWS_PER_ROW:
            chat, is_new = self._next_chat(plan, mix, plan.length - position - 1)
            num_draws += is_new
            if chat is None:
                continue
            stop = position + len(chat[0])
            ids[position:stop] = torch.tensor(chat[0])
            labels[position:stop] = torch.tensor(chat[1])
            ids[stop] = end
            position = stop + 1

    def _next_chat(self, plan: RowPlan, mix: Mix, room: int) -> tuple[Encoded | None, bool]:
        """Return a chat of at most `room` tokens, or None when the drawn one has to wait."""
        waiting = self._waiting.setdefault(plan.length, [])
        for index, chat in enumerate(waiting):
            if len(chat[0]) <= room:
                return waiting.pop(index), False
        size = self.rng.uniform(plan.low_size, plan.high_size)
        chat = encode_conversation(self.tokenizer, draw_conversation(self.rng, size, mix))
        if len(chat[0]) <= room:
            return chat, True
        if len(chat[0]) < plan.length and len(waiting) < _MAX_WAITING:
            waiting.append(chat)
        return None, True
