"""Scheduler core, wire and executor in one process: the whole step path without sockets.

Every plan and every result is serialized and parsed as between processes.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagewire_protos.scheduler.v1 import worker_attach_pb2
from pagewire_scheduler.convert.worker import worker_info
from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.scheduler_core import CoreSettings, SchedulerCore
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.convert import (
    plan_from_message,
    plan_to_message,
    result_from_message,
    result_to_message,
)
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.config import WorkerConfig
from pagewire_worker.link.convert import hello_to_message
from pagewire_worker.loading.loader import Replica, load_replica
from pagewire_worker.runner.step_in_flight import StepInFlight
from support.kernels.held_readback import HeldReadback

FRONTEND = b"golden-frontend-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way of running the same requests.

    `reads_late`: results are read when the plans behind them are launched, as from a GPU.
    """

    num_at_once: int = 32
    block_size: int = 16
    max_num_batched_tokens: int = 2048
    num_blocks: int = 4096
    is_caching: bool = False
    steps_in_flight: int = 2
    reads_late: bool = False
    cpu_backend: str = "auto"


@dataclass(slots=True)
class Engine:
    """One scheduler core over one executor."""

    folder: Path
    setup: Setup
    on_step: Callable[["Engine", StepPlan], None] | None = None
    outputs: dict[int, list[int]] = field(default_factory=dict)
    num_open: int = 0
    replica: Replica = field(init=False)
    core: SchedulerCore = field(init=False)
    info: WorkerInfo = field(init=False)
    _launched: deque[StepInFlight] = field(default_factory=deque)

    def __post_init__(self) -> None:
        config = json.loads((self.folder / "config.json").read_text())
        per_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]
        block_bytes = per_token * config["head_dim"] * 4 * self.setup.block_size
        self.replica = load_replica(
            WorkerConfig(
                model=str(self.folder),
                dtype="float32",
                device="cpu",
                block_size=self.setup.block_size,
                kv_cache_memory=block_bytes * self.setup.num_blocks,
                max_num_seqs=max(1, self.setup.num_at_once),
                max_num_batched_tokens=self.setup.max_num_batched_tokens,
                max_model_len=720,
                cpu_threads=1,
                steps_in_flight=self.setup.steps_in_flight,
                cpu_backend=self.setup.cpu_backend,
            )
        )
        if self.setup.reads_late:
            self.replica.model_runner._readback = HeldReadback()
        self.core = SchedulerCore(CoreSettings(generation=1, is_caching=self.setup.is_caching))
        hello = hello_to_message(self.replica.info, incarnation=7, highest_generation=0, held={})
        parsed = worker_attach_pb2.WorkerHello.FromString(hello.SerializeToString())
        self.info = worker_info(parsed)
        self.core.attach_worker(self.info)
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[SamplingParams] | SamplingParams,
        *,
        num_at_once: int | None = None,
    ) -> list[list[int]]:
        """Run all prompts, at most `num_at_once` open at a time, and return their tokens in
        order."""
        limit = num_at_once or self.setup.num_at_once
        each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else list(sampling)
        base = len(self.outputs)
        waiting = deque(range(len(prompts)))
        while waiting or self.num_open:
            while waiting and self.num_open < limit:
                index = waiting.popleft()
                self._submit(base + index, prompts[index], each[index])
            self._turn()
        check_integrity(self.core)
        return [self.outputs[base + index] for index in range(len(prompts))]

    def _submit(self, handle: int, prompt: Sequence[int], sampling: SamplingParams) -> None:
        self.outputs[handle] = []
        self.num_open += 1
        submission = Submission(
            request_id=RequestId(handle.to_bytes(16, "little")),
            epoch=0,
            handle=handle,
            model=self.info.model.name,
            prompt_token_ids=tuple(prompt),
            emitted=((),),
            is_finished=(False,),
            sampling=sampling,
        )
        self._take(self.core.submit(FRONTEND, submission, 0.0))

    def _turn(self) -> None:
        """Plan as far ahead as allowed and launch the plans, then read the oldest one."""
        while (plan := self.core.plan(self.info.worker_id)) is not None:
            if self.on_step is not None:
                self.on_step(self, plan)
            data = plan_to_message(plan).SerializeToString()
            received = plan_from_message(worker_attach_pb2.StepPlan.FromString(data))
            self._launched.append(self.replica.model_runner.launch(received))
        collected = self.replica.model_runner.collect(self._launched.popleft())
        answer = result_to_message(collected).SerializeToString()
        result: StepResult = result_from_message(worker_attach_pb2.StepResult.FromString(answer))
        assert result.failure is None, result.failure
        self._take(self.core.apply(self.info.worker_id, result))

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            assert not isinstance(event, RejectedEvent), event.error
            if isinstance(event, TokensEvent):
                assert event.first_position == len(self.outputs[event.handle])
                self.outputs[event.handle].extend(event.token_ids)
            elif isinstance(event, FinishedEvent):
                assert event.error is None, event.error
                self.num_open -= 1
