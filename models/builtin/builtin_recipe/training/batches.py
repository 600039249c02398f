"""Training batches: the curriculum by share of the run and first-fit packing of chats into rows of
fixed length. A batch depends on the seed and its step alone, never on the batches before it.
"""

import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from builtin_recipe.conversation import END_OF_TEXT, Conversation
from builtin_recipe.corpus import EARLY_MIX, LONG_MIX, MAIN_MIX, MIDDLE_MIX, Mix, draw_conversation
from builtin_recipe.model.chat_tokenizer import PAD, encode_conversation
from builtin_recipe.model.network import IGNORED_LABEL

_EARLY_SHARE: Final = 0.15
_MAX_WAITING: Final = 64
_MAX_DRAWS_PER_ROW: Final = 12
_SMALLEST_GAP: Final = 24
_NUM_BATCHES_AHEAD: Final = 4


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
    Phase(0.0, (RowPlan(1.0, 192, 0.0, 0.3),)),
    Phase(0.12, (RowPlan(1.0, 192, 0.0, 0.45),)),
    Phase(0.25, (RowPlan(0.65, 192, 0.1, 0.6), RowPlan(0.35, 384, 0.2, 0.6, MIDDLE_MIX))),
    Phase(
        0.45,
        (
            RowPlan(0.5, 192, 0.1, 0.9),
            RowPlan(0.35, 384, 0.3, 0.75, MIDDLE_MIX),
            RowPlan(0.15, 1024, 0.5, 0.85, LONG_MIX),
        ),
    ),
    Phase(
        0.6,
        (
            RowPlan(0.46, 192, 0.1, 1.0),
            RowPlan(0.3, 384, 0.3, 0.9, MIDDLE_MIX),
            RowPlan(0.24, 2048, 0.6, 1.0, LONG_MIX),
        ),
    ),
    # Values of several tokens in long tables are learnt last: each token of one has to be found
    # again among hundreds that look alike.
    Phase(
        0.8,
        (
            RowPlan(0.35, 192, 0.1, 1.0),
            RowPlan(0.2, 384, 0.3, 0.9, MIDDLE_MIX),
            RowPlan(0.45, 2048, 0.7, 1.0, LONG_MIX),
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
class Packer:
    """Fills the rows of one batch with chats from `draw_chat`; chats that did not fit wait for its
    next row.
    """

    tokenizer: Tokenizer
    draw_chat: Callable[[], Conversation]
    _waiting: list[Encoded] = field(default_factory=list)

    def pack(self, num_tokens: int, length: int) -> Batch:
        """Return rows of `length` tokens, `num_tokens` in all but at least one row."""
        num_rows = max(1, num_tokens // length)
        ids = torch.full((num_rows, length), self._special(PAD))
        labels = torch.full((num_rows, length), IGNORED_LABEL)
        for row in range(num_rows):
            self._fill(ids[row], labels[row])
        shifted = torch.full_like(labels, IGNORED_LABEL)
        shifted[:, :-1] = labels[:, 1:]
        return Batch(ids, shifted)

    def _special(self, token: str) -> int:
        token_id = self.tokenizer.token_to_id(token)
        assert token_id is not None
        return int(token_id)

    def _fill(self, ids: Tensor, labels: Tensor) -> None:
        position = num_draws = 0
        end, length = self._special(END_OF_TEXT), len(ids)
        while position < length - _SMALLEST_GAP and num_draws < _MAX_DRAWS_PER_ROW:
            chat, is_new = self._next_chat(length - position - 1, length)
            num_draws += is_new
            if chat is None:
                continue
            stop = position + len(chat[0])
            ids[position:stop] = torch.tensor(chat[0])
            labels[position:stop] = torch.tensor(chat[1])
            ids[stop] = end
            position = stop + 1

    def _next_chat(self, room: int, length: int) -> tuple[Encoded | None, bool]:
        """Return a chat of at most `room` tokens, or None when the drawn one has to wait."""
        for index, chat in enumerate(self._waiting):
            if len(chat[0]) <= room:
                return self._waiting.pop(index), False
        chat = encode_conversation(self.tokenizer, self.draw_chat())
        if len(chat[0]) <= room:
            return chat, True
        if len(chat[0]) < length and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(chat)
        return None, True


@dataclass(frozen=True, slots=True)
class BatchSource(Dataset[Batch]):
    """The batches of a run by step number."""

    tokenizer: Tokenizer
    seed: int
    num_tokens: int
    num_steps: int

    def __getitem__(self, step: int) -> Batch:
        """Draw the batch of `step`, at least one row; equal arguments give equal batches."""
        rng, progress = random.Random(f"{self.seed} {step}"), step / self.num_steps
        phase = [phase for phase in CURRICULUM if phase.start <= progress][-1]
        plan = rng.choices(phase.plans, [plan.weight for plan in phase.plans])[0]
        mix = plan.mix or (EARLY_MIX if progress < _EARLY_SHARE else MAIN_MIX)

        def draw_chat() -> Conversation:
            return draw_conversation(rng, rng.uniform(plan.low_size, plan.high_size), mix)

        return Packer(self.tokenizer, draw_chat).pack(self.num_tokens, plan.length)

    def batches_from(self, step: int, num_workers: int) -> Iterator[Batch]:
        """Yield the batches of `step` and after; worker processes, if any, draw ahead in order."""
        loader: DataLoader[Batch] = DataLoader(
            self,
            batch_size=None,
            sampler=range(step, self.num_steps),
            num_workers=num_workers,
            prefetch_factor=_NUM_BATCHES_AHEAD if num_workers else None,
            multiprocessing_context="spawn" if num_workers else None,
            worker_init_fn=_ignore_interrupts,
            # Its own generator: the loader draws from one, and the run's must not notice.
            generator=torch.Generator(),
        )
        return iter(loader)


def _ignore_interrupts(_worker: int) -> None:
    """Leave Ctrl-C to the process that trains, which ends its workers after a last checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
