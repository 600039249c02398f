"""A scheduler core over an executor that is as random as a day in production: batch sizes, chunks,
prefix hits, preemptions, and workers that die with all they hold or leave their blocks to the next,
as whole blocks or layer by layer."""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from pagewire_protos.scheduler.v1 import worker_attach_pb2
from pagewire_scheduler.convert.worker import worker_info
from pagewire_scheduler.core.data.events import (
    Event,
    FinishedEvent,
    PromptLogprobsEvent,
    RejectedEvent,
    TokensEvent,
)
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.token_logprobs import PackedLogprobs, PromptPiece
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.convert import (
    plan_from_message,
    plan_to_message,
    result_from_message,
    result_to_message,
)
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.config import WorkerConfig
from pagewire_worker.link.convert import hello_to_message
from pagewire_worker.loading.loader import Replica, load_replica
from support.cells.moved_blocks import BlocksTaken, load_blocks, take_blocks

MAX_TOKENS = 512
NUM_BLOCKS = 400
_FRONTEND = b"exact---frontend"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how it goes on; with the adapter of a slot that is filled already.

    Attributes:
        eos_token_ids: End-of-sequence ids of the model.
        predicted: Tokens that the client expects the output to be.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    adapter_slot: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    predicted: tuple[int, ...] = ()


@dataclass(slots=True)
class Answer:
    """What came of a request: its first choice, and the further ones.

    Attributes:
        ending: Why it ended, the stop token, and the tokens that count as usage.
        prompt_logprobs: Log-probabilities and ranks of the prompt, with its alternatives.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PackedLogprobs] = field(default_factory=list)
    ending: tuple[str, int | None, int] | None = None
    prompt_logprobs: list[tuple[float | int, ...]] = field(default_factory=list)
    further: list["Answer"] = field(default_factory=list)

    @property
    def choices(self) -> "list[Answer]":
        return [self, *self.further]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What happens while requests run.

    Attributes:
        num_at_once: Most requests that are open.
        max_num_batched_tokens: Most tokens of a step.
        num_blocks: Blocks there are.
        is_caching: Whether prefixes are shared.
        steps_in_flight: Steps that are planned ahead.
        deaths: Steps after which the worker dies, and another one comes with an empty cache.
        moves: Steps after which another worker comes, which has loaded the blocks with names.
    """

    num_at_once: int
    max_num_batched_tokens: int
    num_blocks: int
    is_caching: bool
    steps_in_flight: int
    deaths: frozenset[int] = frozenset()
    moves: frozenset[int] = frozenset()


SOLO = Weather(
    num_at_once=1,
    max_num_batched_tokens=MAX_TOKENS,
    num_blocks=NUM_BLOCKS,
    is_caching=False,
    steps_in_flight=1,
)


def draw_weather(generator: random.Random, longest: int) -> Weather:
    """Return any; the pool holds a sequence of `longest` tokens."""
    least = -(-longest // 16) + 1
    return Weather(
        num_at_once=generator.choice([2, 3, 5, 8, 16, 24]),
        max_num_batched_tokens=generator.choice([16, 33, 64, 100, 256, MAX_TOKENS]),
        num_blocks=generator.choice([least, 2 * least, 4 * least, NUM_BLOCKS]),
        is_caching=generator.random() < 0.7,
        steps_in_flight=generator.choice([1, 2]),
        deaths=frozenset(generator.sample(range(60), generator.choice([0, 0, 0, 1, 2]))),
        moves=frozenset(generator.sample(range(60), generator.choice([0, 0, 1, 2]))),
    )


class ExactCell:
    """A replica, under one scheduler core after the other.

    Args:
        folder: Of the checkpoint.
        dtype: What it computes in.
        num_threads: Of the kernels.
        settings: What computes it; the kernels for CPUs by default.
    """

    def __init__(
        self, folder: Path, dtype: str = "bfloat16", num_threads: int = 2, **settings: Any
    ) -> None:
        self.replica = load_replica(
            WorkerConfig(
                model=str(folder),
                dtype=dtype,
                kv_cache_memory=6 * 1024**2,
                max_num_seqs=24,
                max_num_batched_tokens=MAX_TOKENS,
                max_model_len=MAX_TOKENS,
                cpu_threads=num_threads,
                **(settings or {"device": "cpu", "cpu_backend": "fused"}),
            )
        )
        self.num_preemptions = 0
        self.num_deaths = 0
        self.num_moved_blocks = 0
        self.num_cached_tokens = 0
        self.num_predicted = 0

    def run(self, requests: Sequence[Request], weather: Weather) -> list[Answer]:
        """Return the answers to all requests, in order."""
        run = _Run(self.replica, weather)
        answers = run.answer(requests)
        self.num_preemptions += run.core.counts.num_preemptions
        self.num_deaths += run.num_deaths
        self.num_moved_blocks += run.num_moved_blocks
        self.num_cached_tokens += run.num_cached_tokens
        self.num_predicted += run.num_predicted
        return answers


class _Run:
    def __init__(self, replica: Replica, weather: Weather) -> None:
        self._replica = replica
        self._weather = weather
        self._plans: deque[StepPlan] = deque()
        self._answers: list[Answer] = []
        self._adapters: dict[RequestId, int | None] = {}
        self._num_open = 0
        self._num_steps = 0
        self._num_workers = 1
        self.num_deaths = 0
        self.num_moved_blocks = 0
        self.num_cached_tokens = 0
        self.num_predicted = 0
        self.core = SchedulerCore(CoreSettings(generation=1, is_caching=weather.is_caching))
        self._info = self._attach(1)
        self.core.attach_frontend(_FRONTEND, [], is_same_generation=False)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        self._answers = [
            Answer(further=[Answer() for _ in range(1, one.sampling.n)]) for one in requests
        ]
        waiting = deque(range(len(requests)))
        while waiting or self._num_open:
            while waiting and self._num_open < self._weather.num_at_once:
                handle = waiting.popleft()
                self._submit(handle, requests[handle])
            self._step()
        return self._answers

    def _attach(self, incarnation: int, taken: BlocksTaken | None = None) -> WorkerInfo:
        """Attach a worker that holds what it has `taken`: all else in its cache is NaN."""
        runner = self._replica.model_runner
        runner.drop_slots()
        with torch.inference_mode():
            for layer in runner.backend.kv_cache.layers:
                for part in layer.parts:
                    part.view(torch.uint8).fill_(255)  # NaN in every type, scales of int8 too
        runner.blocks.overwrite(list(runner.blocks.held_names()))
        if taken is not None:
            load_blocks(self._replica, taken)
        held = runner.blocks.held_names()
        hello = hello_to_message(
            self._replica.info, incarnation=incarnation, highest_generation=0, held=held
        )
        parsed = worker_attach_pb2.WorkerHello.FromString(hello.SerializeToString())
        weather, told = self._weather, worker_info(parsed)
        block_size = told.model.block_size
        longest = -(-told.model.max_model_len // block_size)
        # Pools are tight for one cache group; further ones need blocks of their own.
        num_more = max(0, told.groups.most_blocks(longest, block_size) - longest)
        info = replace(
            told,
            worker_id=incarnation.to_bytes(16, "big"),
            num_blocks=weather.num_blocks + num_more,
            max_num_batched_tokens=weather.max_num_batched_tokens,
            steps_in_flight=weather.steps_in_flight,
        )
        self.core.attach_worker(info)
        return info

    def _submit(self, handle: int, request: Request) -> None:
        num_choices = request.sampling.n
        self._num_open += num_choices
        request_id = RequestId(handle.to_bytes(16, "little"))
        self._adapters[request_id] = request.adapter_slot
        submission = Submission(
            request_id=request_id,
            epoch=0,
            handle=handle,
            model=self._info.model.name,
            prompt_token_ids=request.prompt,
            emitted=((),) * num_choices,
            is_finished=(False,) * num_choices,
            sampling=request.sampling,
            eos_token_ids=request.eos_token_ids,
            predicted_token_ids=request.predicted,
            # Blocks of an adapter are its own.
            salt=b"" if request.adapter_slot is None else bytes([request.adapter_slot]),
        )
        self._take(self.core.submit(_FRONTEND, submission, 0.0))

    def _step(self) -> None:
        for worker_id in list(self.core.workers):
            for grammar_id, params in self.core.workers[worker_id].grammars.pop_requests():
                asyncio.run(self._replica.grammars.compile(grammar_id, params))
                self._take(self.core.note_grammar(worker_id, grammar_id, None))
        while (plan := self.core.plan(self._info.worker_id)) is not None:
            self._plans.append(plan)
        data = plan_to_message(self._adapted(self._plans.popleft())).SerializeToString()
        received = plan_from_message(worker_attach_pb2.StepPlan.FromString(data))
        answer = result_to_message(self._replica.model_runner.run(received)).SerializeToString()
        result = result_from_message(worker_attach_pb2.StepResult.FromString(answer))
        assert result.failure is None, result.failure
        self._num_steps += 1
        if self._num_steps in self._weather.moves:
            taken = take_blocks(self._replica, is_layered=self._num_steps % 2 == 0)
            self.num_moved_blocks += len(taken.names)
            self._die(taken)
        elif self._num_steps in self._weather.deaths:
            self.num_deaths += 1
            self._die()
        else:
            self._take(self.core.apply(self._info.worker_id, result))

    def _adapted(self, plan: StepPlan) -> StepPlan:
        """Return a plan whose new sequences have their adapter slots."""
        new = [
            replace(one, adapter_slot=self._adapters[RequestId(one.request_id)])
            for one in plan.new_sequences
        ]
        return replace(plan, new_sequences=new)

    def _die(self, taken: BlocksTaken | None = None) -> None:
        """Lose the worker, and the result it was about to send; go on with another one."""
        self._plans.clear()
        self._take(self.core.detach_worker(self._info.worker_id))
        self._num_workers += 1
        self._info = self._attach(self._num_workers, taken)

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            assert not isinstance(event, RejectedEvent), event.error
            if isinstance(event, TokensEvent):
                answer = self._answers[event.handle].choices[event.choice]
                assert event.first_position == len(answer.token_ids)
                answer.token_ids.extend(event.token_ids)
                answer.logprobs.extend(event.token_logprobs)
                self.num_cached_tokens += event.num_cached_tokens
            elif isinstance(event, PromptLogprobsEvent):
                self._take_prompt(self._answers[event.handle].prompt_logprobs, event.piece)
            elif isinstance(event, FinishedEvent):
                assert event.error is None, event.error
                answer = self._answers[event.handle].choices[event.choice]
                answer.ending = (event.state.value, event.stop_token_id, event.num_tokens)
                self.num_predicted += event.num_accepted_predicted
                self._num_open -= 1

    def _take_prompt(self, kept: list[tuple[float | int, ...]], piece: PromptPiece) -> None:
        """Keep what a piece says of the prompt, whose first token has no log-probability."""
        assert piece.first_position == 1 + len(kept)
        for at, (logprob, rank) in enumerate(zip(piece.logprobs, piece.ranks, strict=True)):
            top = slice(at * piece.num_top, (at + 1) * piece.num_top)
            kept.append((logprob, rank, *piece.top_token_ids[top], *piece.top_logprobs[top]))
