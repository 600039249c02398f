"""Drives an Executor with hand-made plans: the least scheduler that fills every kind of batch."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import F32, F32Array
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.plan import GroupTable, NewSequence, StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import Replica, load_replica
from pagewire_worker.runner.model_runner import ModelRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=None)
PROMPT = list(range(30, 70))
GIVEN_BACK = -1
"""In place of a block that fell out of a window."""


@dataclass
class Running:
    """One sequence under way."""

    slot: int
    prompt: Sequence[int]
    sampling: SamplingParams
    max_tokens: int
    choice: int = 0
    pooling: PoolingParams | None = None
    grammar_id: bytes | None = None
    adapter_slot: int | None = None
    num_values: int | None = None
    vector: npt.NDArray[np.float32] | None = None
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    further_blocks: list[list[int]] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    num_offered: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def is_done(self) -> bool:
        if self.pooling is not None:
            return self.vector is not None
        return len(self.output) >= self.max_tokens


class Driver:
    """Makes plans: chunked prefill within a budget, decodes beside it, blocks in random order.

    Blocks that fall out of the window of a further cache group are given out again at once.
    """

    def __init__(self, model_runner: ModelRunner, *, num_blocks: int, block_size: int) -> None:
        self.model_runner = model_runner
        self.block_size = block_size
        self.free_blocks = list(range(num_blocks))
        random.Random(5).shuffle(self.free_blocks)
        self.further_windows = model_runner._slots.limits.windows[1:]
        self.step_id = 0
        self.freed: list[int] = []

    @classmethod
    def of(cls, replica: Replica) -> "Driver":
        """Return one that uses the whole cache of `replica`."""
        info = replica.info
        block_size = info.cache_groups[0].block_size
        return cls(replica.model_runner, num_blocks=info.num_blocks, block_size=block_size)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[SamplingParams] | SamplingParams = GREEDY,
        *,
        max_tokens: int = 8,
        budget: int = 64,
        slots: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Return the tokens of all prompts, run together."""
        each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else sampling
        names = slots or range(len(prompts))
        sequences = [
            Running(slot, prompt, params, max_tokens)
            for slot, prompt, params in zip(names, prompts, each, strict=True)
        ]
        self.finish(sequences, budget=budget)
        return [s.output for s in sequences]

    def finish(self, sequences: Sequence[Running], *, budget: int) -> list[StepResult]:
        """Run `sequences` together to their ends, free them, and return all results."""
        results = []
        while running := [s for s in sequences if not s.is_done]:
            results.append(self.step(running, budget))
        for sequence in sequences:
            self.release(sequence)
        return results

    def release(self, sequence: Running) -> None:
        """Free a sequence's slot and blocks."""
        self.freed.append(sequence.slot)
        for blocks in (sequence.blocks, *sequence.further_blocks):
            self.free_blocks.extend(block for block in blocks if block != GIVEN_BACK)

    def preempt(self, sequence: Running) -> None:
        """Free a sequence's slot and blocks; its next step computes all it has once more."""
        self.release(sequence)
        sequence.blocks = []
        sequence.further_blocks = []
        sequence.num_computed = sequence.num_offered = 0

    def step(self, sequences: Sequence[Running], budget: int) -> StepResult:
        """Run one step over as many of `sequences` as the budget allows."""
        rows, new_sequences, new_blocks, drafts = [], [], [], []
        left = budget
        for sequence in sequences:
            num_new = min(left, sequence.num_tokens - sequence.num_computed)
            if num_new == 0:
                continue
            left -= num_new
            end = sequence.num_computed + num_new
            samples = int(end == sequence.num_tokens)
            num_drafts = min(left, self._num_drafts(sequence)) if samples else 0
            left -= num_drafts
            drafts.append(num_drafts)
            needed = -(-(end + num_drafts) // self.block_size) - len(sequence.blocks)
            is_new = sequence.num_computed == 0
            if is_new:
                sequence.further_blocks = [[] for _ in self.further_windows]
            tables = (sequence.blocks, *sequence.further_blocks)
            own = [[self.free_blocks.pop() for _ in range(max(0, needed))] for _ in tables]
            blocks, *further = own
            if is_new:
                new_sequences.append(self.new_request(sequence, blocks, further))
            else:
                new_blocks.extend(block for part in own for block in part)
            for table, part in zip(tables, own, strict=True):
                table.extend(part)
            count = 0 if is_new else len(blocks)
            rows.append((sequence.slot, sequence.num_computed, num_new, samples, count))
            sequence.num_computed = end
        granted = {"num_drafts": drafts} if any(drafts) else {}
        result = self.run_well(
            rows, new_sequences=new_sequences, new_block_ids=new_blocks, **granted
        )
        for sequence in sequences:
            self._give_back(sequence)
        self._take(result, {s.slot: s for s in sequences})
        return result

    def _num_drafts(self, sequence: Running) -> int:
        """Drafts to grant: as many as the worker has offered, and tokens are left."""
        return max(0, min(sequence.num_offered, sequence.max_tokens - len(sequence.output) - 1))

    def _give_back(self, sequence: Running) -> None:
        for blocks, window in zip(sequence.further_blocks, self.further_windows, strict=False):
            first = (
                0 if window is None else max(0, sequence.num_computed - window) // self.block_size
            )
            self.free_blocks.extend(block for block in blocks[:first] if block != GIVEN_BACK)
            blocks[:first] = [GIVEN_BACK] * first

    def _take(self, result: StepResult, by_slot: dict[int, Running]) -> None:
        tokens = iter(result.token_ids)
        num_vectors = sum(by_slot[int(slot)].pooling is not None for slot in result.slots)
        sizes = [by_slot[int(slot)].num_values for slot in result.slots]
        if num_vectors and all(sizes):
            ends = np.cumsum(sizes)
            assert len(result.vectors) == 4 * ends[-1]
            vectors = iter(np.split(np.frombuffer(result.vectors, F32), ends[:-1]))
        else:
            vectors = iter(vectors_of(result, num_vectors) if num_vectors else ())
        offered = result.num_drafts if len(result.num_drafts) else [0] * len(result.slots)
        for slot, count, num in zip(result.slots, result.counts, offered, strict=True):
            sequence = by_slot[int(slot)]
            sequence.results.append(result)
            sequence.num_offered = int(num)
            if count:
                sequence.output.extend(int(next(tokens)) for _ in range(count))
                sequence.num_computed += int(count) - 1
            elif sequence.pooling is not None:
                sequence.vector = next(vectors)
            else:  # left out: its mask is late
                sequence.num_computed -= 1

    def new_request(
        self, sequence: Running, blocks: Sequence[int], further: Sequence[Sequence[int]] = ()
    ) -> NewSequence:
        """Return the record of a sequence."""
        return NewSequence(
            slot=sequence.slot,
            request_id=bytes([sequence.slot]) * 16,
            choice=sequence.choice,
            prompt_token_ids=sequence.prompt,
            emitted_token_ids=tuple(sequence.output),
            sampling=sequence.sampling,
            block_ids=blocks,
            further_tables=tuple(map(GroupTable, further)),
            pooling=sequence.pooling,
            grammar_id=sequence.grammar_id,
            adapter_slot=sequence.adapter_slot,
        )

    def run(self, rows: Sequence[tuple[int, int, int, int, int]], **fields: object) -> StepResult:
        """Run a plan with `rows` of (slot, start, new tokens, samples, new blocks)."""
        return self.model_runner.run(self.plan(rows, **fields))

    def plan(self, rows: Sequence[tuple[int, int, int, int, int]], **fields: object) -> StepPlan:
        """Return the next plan, with `rows` as in `run`."""
        self.step_id += 1
        columns = list(zip(*rows, strict=True)) or [()] * 5
        freed, self.freed = self.freed, []
        return StepPlan(
            generation=1,
            incarnation=1,
            step_id=self.step_id,
            **{
                "freed_slots": freed,
                "slots": columns[0],
                "starts": columns[1],
                "num_new_tokens": columns[2],
                "samples": columns[3],
                "num_new_blocks": columns[4],
                **fields,
            },
        )

    def run_well(
        self, rows: Sequence[tuple[int, int, int, int, int]], **fields: object
    ) -> StepResult:
        """Run a plan that must not fail."""
        result = self.run(rows, **fields)
        assert result.failure is None, result.failure
        return result


def load(folder: Path, **settings: Any) -> Replica:
    """Load a replica with small defaults.

    The tokens of a step are given, since measuring them takes a minute in Triton's interpreter.
    """
    defaults = {"max_model_len": 256, "max_num_seqs": 40, "cpu_threads": 1, "dtype": "float32"}
    if "triton" in settings.values():
        defaults["max_num_batched_tokens"] = 128
    return load_replica(WorkerConfig(model=str(folder), **{**defaults, **settings}))


def request(
    slot: int, prompt: Sequence[int] = PROMPT, blocks: Sequence[int] = (0, 1, 2), **fields: Any
) -> NewSequence:
    """A greedy request for PROMPT unless told otherwise."""
    defaults: dict[str, Any] = {
        "slot": slot,
        "request_id": bytes([slot]) * 16,
        "choice": 0,
        "prompt_token_ids": prompt,
        "emitted_token_ids": [],
        "sampling": GREEDY,
        "block_ids": blocks,
    }
    return NewSequence(**{**defaults, **fields})


def vectors_of(result: StepResult, num_vectors: int = 1) -> F32Array:
    """Return the vectors of a result, [vectors, hidden]."""
    return np.frombuffer(result.vectors, F32).reshape(num_vectors, -1)


def start(driver: Driver, slot: int = 0, **fields: Any) -> StepResult:
    """Run the whole prompt of a new request in one step."""
    return driver.run([(slot, 0, len(PROMPT), 1, 0)], new_sequences=[request(slot, **fields)])
