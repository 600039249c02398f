"""What stands still beside a step of the scheduler, and what it costs: many workers, tenants,
waiting requests and long cached prompts. Rows of `scheduler_core.py`: the real step loop and core,
with streams that only count. CPU time of this process in milliseconds."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import submission
from pagewire_scheduler.core.data.settings import OverloadLimits
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import ModelInfo, WorkerInfo
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_scheduler.peers.peers import FrontendInfo
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv import block_hash
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult

BLOCK_SIZE = 16
MODEL = ModelInfo(
    name="bench",
    model_fingerprint=b"m" * 32,
    tokenizer_fingerprint=b"t" * 32,
    max_model_len=1_000_000,
    vocab_size=32_000,
    block_size=BLOCK_SIZE,
)
LAYOUT, DTYPE = b"l" * 16, "bfloat16"
LONG = SamplingParams(seed=1, max_tokens=10_000, ignore_eos=True)
LEAST_SECONDS, MOST_SECONDS = 0.3, 3.0
NUMBERS = (1, 8, 32, 128, 512, 1024)


@dataclass
class Stream:
    """Of a worker or a frontend: keeps plans, and drops what else is sent."""

    info: Any
    watch: ProgressWatch = field(default_factory=lambda: ProgressWatch(0.0))
    is_drained: bool = False
    plans: list[StepPlan] = field(default_factory=list)

    def send_plan(self, plan: StepPlan) -> None:
        """Keep it until it is answered."""
        self.plans.append(plan)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith(("send_", "close")):
            raise AttributeError(name)
        return lambda *_: None

    def answer(self) -> StepResult:
        """Return a token per sampled slot of the oldest plan."""
        plan = self.plans.pop(0)
        slots = [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]
        tokens = [7] * len(slots)
        identity = plan.generation, plan.incarnation, plan.step_id
        return StepResult(*identity, slots=slots, counts=[1] * len(slots), token_ids=tokens)


class Cell:
    """A step loop with some workers and a frontend."""

    def __init__(self, num_workers: int, *, policy: Any = "fcfs", **changes: Any) -> None:
        limits = OverloadLimits(
            max_num_waiting=10**9, max_waiting_tokens=10**12, max_request_bytes=10**15
        )
        self.loop = StepLoop(
            is_caching=True, lease_seconds=5.0, clock=time.monotonic, limits=limits, policy=policy
        )
        info = FrontendInfo(
            frontend_id=bytes(16),
            cell="",
            tokenizers={},
            held_generation=None,
            held=(),
        )
        self.frontend = Stream(info)
        self.loop.attach_frontend(self.frontend)  # type: ignore[arg-type]
        self.workers = []
        for number in range(num_workers):
            values: dict[str, Any] = {
                "num_blocks": 1_000,
                "max_num_seqs": 256,
                "max_num_batched_tokens": 8_192,
                **changes,
            }
            worker = Stream(
                WorkerInfo(
                    worker_id=number.to_bytes(16, "big"),
                    incarnation=1,
                    model=MODEL,
                    layout_fingerprint=LAYOUT,
                    dtype=DTYPE,
                    steps_in_flight=2,
                    **values,
                )
            )
            self.workers.append(worker)
            self.loop.attach_worker(worker)  # type: ignore[arg-type]
        self.num_requests = 0

    def submit(self, prompt: Sequence[int], **fields: Any) -> None:
        """Submit a request."""
        self.num_requests += 1
        number = self.num_requests
        values: dict[str, Any] = {"sampling": LONG, **fields}
        request = Submission(
            request_id=RequestId(number.to_bytes(16, "little")),
            epoch=0,
            handle=number,
            model="bench",
            prompt_token_ids=tuple(prompt),
            emitted=((),),
            is_finished=(False,),
            **values,
        )
        self.loop.submit(self.frontend, request)  # type: ignore[arg-type]

    async def settle(self) -> None:
        """Let the loop plan what is due."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def step(self, worker: Stream) -> None:
        """Answer a worker's oldest plan, and let the loop plan."""
        self.loop.apply(worker, worker.answer())  # type: ignore[arg-type]
        await asyncio.sleep(0)


async def per_call(call: Callable[[], Any]) -> float:
    """Return the mean CPU milliseconds of a call, over a third of a second of them at least."""
    # As in the process; what full collections cost is another matter.
    gc.collect()
    gc.freeze()
    began, num_calls, seconds = time.monotonic(), 0, 0.0
    while (seconds < LEAST_SECONDS and time.monotonic() - began < MOST_SECONDS) or not num_calls:
        start = time.process_time()
        for _ in range(5):
            result = call()
            if result is not None:
                await result
        seconds += time.process_time() - start
        num_calls += 5
    return 1000 * seconds / num_calls


async def many_workers(num_workers: int) -> list[float]:
    """Return the cost of a result, the others idle, or all busy, and of a submit."""
    cell = Cell(num_workers)
    cell.submit([1, 2, 3])
    await cell.settle()
    (busy,) = [worker for worker in cell.workers if worker.plans]
    idle = await per_call(lambda: cell.step(busy))

    async def submit() -> None:
        cell.submit([*range(100)], sampling=SamplingParams(seed=1, max_tokens=1))
        await asyncio.sleep(0)

    submitted = await per_call(submit)
    cell = Cell(num_workers)
    for number in range(4 * num_workers):
        cell.submit([number % 32_000, 2, 3])
    await cell.settle()
    turn = iter(range(10**9))

    async def step() -> None:
        worker = cell.workers[next(turn) % num_workers]
        if worker.plans:
            await cell.step(worker)

    return [idle, await per_call(step), submitted]


async def many_tenants(num_tenants: int) -> list[float]:
    """Return the cost of a step that ends and starts 8 sequences, each of another tenant."""
    cell = Cell(1, policy="fair", max_num_seqs=8, num_blocks=100)

    def submit(number: int) -> None:
        one = SamplingParams(seed=1, max_tokens=1, ignore_eos=True)
        cell.submit([number % 32_000, 2], tenant=f"tenant {number % num_tenants}", sampling=one)

    for number in range(num_tenants):
        submit(number)
    await cell.settle()

    async def step() -> None:
        await cell.step(cell.workers[0])
        for _ in range(8):
            submit(cell.num_requests)
        await asyncio.sleep(0)

    return [await per_call(step)]


async def many_waiting(num_waiting: int) -> list[float]:
    """Return the cost of a step of 256 sequences, and of a heartbeat, beside many that wait."""
    cell = Cell(1, max_num_seqs=256, num_blocks=100_000)
    for number in range(256 + num_waiting):
        cell.submit([number % 32_000, 2, 3])
    await cell.settle()
    step = await per_call(lambda: cell.step(cell.workers[0]))
    return [step, await per_call(lambda: cell.loop.driven.beat(1))]


async def blocked_prefixes(num_prefix: int) -> list[float]:
    """Return the cost of a step while 53 wait for blocks behind a cached prefix, 8 run."""
    num_blocks = num_prefix // BLOCK_SIZE + 8 * 40
    cell = Cell(1, max_num_seqs=64, num_blocks=num_blocks, max_num_batched_tokens=200_000)
    some = SamplingParams(seed=1, max_tokens=2_000, ignore_eos=True)
    prefix = [at % 31_000 for at in range(num_prefix)]
    for number in range(8):
        cell.submit([*prefix, *[number + at for at in range(100)]], sampling=some)
        await cell.settle()
        await cell.step(cell.workers[0])
    for number in range(53):
        own = [1_000 + number + at for at in range(1_000)]
        cell.submit([*prefix, *own], sampling=some)
    await cell.settle()
    return [await per_call(lambda: cell.step(cell.workers[0]))]


async def cached_prompt(num_tokens: int) -> list[float]:
    """Return the cost of turning the message of a cached prompt into plain data, and of submitting
    it to 8 workers that have it."""
    cell = Cell(8, num_blocks=num_tokens // BLOCK_SIZE + 10)
    token_ids = pack_u32([(31 * at) % 32_000 for at in range(num_tokens)])
    message = pb.Submit(model="bench", prompt_token_ids=token_ids, generate=pb.GenerateKind())
    message.sampling.max_tokens, message.sampling.seed = 100, 1
    root = block_hash.root_name(
        model_fingerprint=MODEL.model_fingerprint, layout_fingerprint=LAYOUT, dtype=DTYPE
    )
    names = _names(root, token_ids)
    if hasattr(message, "prompt_blocks"):  # not before 0.11
        named = {"root": root, "block_size": BLOCK_SIZE, "names": b"".join(names)}
        message.prompt_blocks.CopyFrom(pb.PromptBlocks(**named))
    for worker in cell.loop.core.workers.values():
        for block, name in enumerate(names):
            worker.pool.adopt(block, name)
    convert = submit = 0.0
    most = 20
    for number in range(1, most + 1):
        message.request_id, message.handle = number.to_bytes(16, "little"), number
        start = time.process_time()
        request = submission(message, 0.0)
        converted = time.process_time()
        cell.loop.submit(cell.frontend, request)  # type: ignore[arg-type]
        submit += time.process_time() - converted
        convert += converted - start
        cell.loop.abort(cell.frontend, number, None)  # type: ignore[arg-type]
        await cell.settle()
    return [1000 * convert / most, 1000 * submit / most]


def _names(root: Any, token_ids: bytes) -> list[Any]:
    names, ids = [], memoryview(token_ids).cast("I")
    for start in range(0, len(ids), BLOCK_SIZE):
        root = block_hash.block_name(root, list(ids[start : start + BLOCK_SIZE]))
        names.append(root)
    return names


async def print_rows() -> None:
    """Print all tables."""
    await _table("workers | result, others idle; all busy; submit", many_workers, NUMBERS)
    await _table("tenants | step that starts 8", many_tenants, (100, 1_000, 10_000))
    counts = (0, 1_000, 10_000, 100_000)
    await _table("waiting | step of 256; heartbeat", many_waiting, counts)
    await _table("prefix of 53 that lack blocks | step", blocked_prefixes, (1_600, 16_000, 64_000))
    lengths = (8_000, 32_000, 100_000)
    await _table("cached prompt | message; submit to 8 workers", cached_prompt, lengths)


async def _table(title: str, row: Callable[[int], Any], numbers: Iterable[int]) -> None:
    print(f"\n{title}, ms of CPU")
    for number in numbers:
        values = " ".join(f"{value:9.3f}" for value in await row(number))
        print(f"{number:8,d} | {values}", flush=True)
