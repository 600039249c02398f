"""Sequences of one length that decode a token per step, planned by hand."""

from collections import deque
from collections.abc import Callable

import torch
from steps import begin_step

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.loading.loader import Replica

CHUNK = 256
"""Blocks that are filled at a time."""


@torch.inference_mode()
def fill_cache(cache: KvCache) -> None:
    """Put random keys and values into all blocks: zeros draw less power, and are read faster."""
    generator = torch.Generator(cache.layers[0].key.device).manual_seed(0)
    for layer in cache.layers:
        for tensor in (layer.key, layer.value):
            for begin in range(0, len(tensor), CHUNK):
                part = tensor[begin : begin + CHUNK]
                numbers = torch.randn(part.shape, device=part.device, generator=generator)
                part.copy_(numbers.to(part.dtype))


class Decodes:
    """Sequences in one replica whose prompts count as computed.

    Where the cache is too small for all of them, some share blocks: far enough apart that no cache
    of the device still has what the other one has read.

    Args:
        replica: Runs them.
        batch: How many.
        context: Tokens of each at the beginning.
        num_steps: Tokens that each will decode at most.
        temperature: 0 takes the most likely token.
    """

    def __init__(
        self, replica: Replica, batch: int, context: int, num_steps: int, temperature: float
    ) -> None:
        self._executor = replica.model_runner
        self._executor.drop_slots()
        self._slots = list(range(batch))
        self._length = context
        self._step_id = 1
        self._in_flight: deque[Callable[[], StepResult]] = deque()
        num_blocks = replica.info.num_blocks
        each = -(-(context + num_steps + 1) // replica.info.cache_groups[0].block_size)
        self.shares_blocks = batch * each > num_blocks
        self._new = [
            NewSequence(
                slot=slot,
                request_id=slot.to_bytes(16, "big"),
                choice=0,
                prompt_token_ids=[3 + slot] * (context + 1),
                emitted_token_ids=[],
                sampling=SamplingParams(temperature=temperature, seed=slot, max_tokens=None),
                block_ids=[(slot * each + n) % num_blocks for n in range(each)],
            )
            for slot in self._slots
        ]

    def run(self, num_steps: int, steps_in_flight: int) -> None:
        """Decode so many tokens of each; at most `steps_in_flight` are begun at a time."""
        for _ in range(num_steps):
            self._in_flight.append(begin_step(self._executor, self._plan()))
            if len(self._in_flight) >= steps_in_flight:
                self._in_flight.popleft()()
        while self._in_flight:
            self._in_flight.popleft()()

    def _plan(self) -> StepPlan:
        self._step_id += 1
        new, self._new = self._new, []
        batch = len(self._slots)
        plan = StepPlan(
            generation=0,
            incarnation=0,
            step_id=self._step_id,
            new_sequences=new,
            slots=self._slots,
            starts=[self._length] * batch,
            num_new_tokens=[1] * batch,
            samples=[1] * batch,
            num_new_blocks=[0] * batch,
        )
        self._length += 1
        return plan
