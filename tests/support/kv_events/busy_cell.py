"""A real scheduler core whose workers and KV store are played: prompts share prefixes, blocks are
evicted, steps fail, workers come and go, prefixes are reset, and the scheduler starts anew."""

import random
from collections import Counter, deque
from dataclasses import replace

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.blocks.block_pool import BlockState
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import ModelInfo, WorkerInfo
from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from pagewire_scheduler.kv_events.feed import KvEventFeed
from pagewire_scheduler.links.driven_core import DrivenCore
from pagewire_shared.identity.ids import BlockName, RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult

FRONTEND = b"f" * 16
STORE = "store:8400"
BLOCK_SIZE = 4
MODEL = ModelInfo(
    name="tiny",
    model_fingerprint=b"m" * 32,
    tokenizer_fingerprint=b"t" * 32,
    max_model_len=128,
    vocab_size=1000,
    block_size=BLOCK_SIZE,
)


def worker_info(number: int, num_blocks: int) -> WorkerInfo:
    return WorkerInfo(
        worker_id=bytes([number]) * 16,
        incarnation=1,
        model=MODEL,
        layout_fingerprint=b"l" * 16,
        dtype="float32",
        num_blocks=num_blocks,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        steps_in_flight=1,
        kv_endpoint=f"10.0.0.{number}:8300",
    )


class BusyCell:
    """A core, its feed and the work that they get; to be made on an event loop."""

    def __init__(
        self, config: KvEventsConfig, seed: int, num_workers: int = 3, *, is_noting: bool = True
    ) -> None:
        self.config = config
        self._is_noting = is_noting
        self.random = random.Random(seed)
        self.infos = {n: worker_info(n, 96) for n in range(1, num_workers + 1)}
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._stored: set[BlockName] = set()
        self._plans: dict[bytes, deque[StepPlan]] = {}
        self._documents = [self._tokens(80) for _ in range(12)]
        self.start(self.infos)

    def start(self, infos: dict[int, WorkerInfo]) -> None:
        """Start a scheduler, to which the workers attach with what they have."""
        settings = CoreSettings(generation=3, notes_cache_changes=self._is_noting)
        self.driven = DrivenCore(settings, lambda: 0.0, {})
        self.core = self.driven.core
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self._plans = {}
        self.feed = KvEventFeed(self.core, self.config)
        self.driven.store_watcher = self.feed.stores
        self.feed.open()
        for number, info in infos.items():
            self.attach(number, info)
        if self._stored:
            self.driven.note_stored(STORE, list(self._stored))
        self.feed.flush()

    def attach(self, number: int, info: WorkerInfo) -> None:
        self.core.attach_worker(info)
        self._plans[info.worker_id] = deque()

    def restart(self) -> None:
        """Lose the scheduler with its publisher, and start another."""
        held = {number: replace(info, held=self.held(number)) for number, info in self.live.items()}
        self.feed.close()
        self.start(held)
        self.counts["restarts"] += 1

    @property
    def live(self) -> dict[int, WorkerInfo]:
        return {n: i for n, i in self.infos.items() if i.worker_id in self.core.workers}

    def held(self, number: int) -> tuple[tuple[BlockName, int], ...]:
        pool = self.core.workers[self.infos[number].worker_id].pool
        named = [(name, block) for name, block in pool.cache.items()]
        return tuple(one for one in named if pool.state(one[1]) is BlockState.VALID)

    def turn(self) -> None:
        """One turn: some requests, the plans and answers, and now and then a fault."""
        for _ in range(self.random.randrange(4)):
            self._submit()
        for worker_id in list(self._plans):
            while (plan := self.core.plan(worker_id)) is not None:
                self._plans[worker_id].append(plan)
        self.feed.flush()
        for worker_id, plans in list(self._plans.items()):
            while plans:
                self._answer(worker_id, plans.popleft())
        self._touch_store()
        self._fault()
        self.feed.flush()

    def check(self) -> None:
        check_integrity(self.core)

    def expected(self) -> "dict[tuple[int, str], dict[int, tuple[int, ...]]]":
        """What the caches hold: (rank, medium) -> hash -> token ids, none where they are unknown.

        The hashes come from the pools themselves.
        """
        found = {}
        for worker_id, worker in self.core.workers.items():
            contents = worker.pool.changes.contents
            names = worker.pool.cache.blocks
            if names:
                found[self.feed.rank_of(worker_id), "GPU"] = {
                    _hash(name): _ids(contents[name].tokens) for name in names
                }
        if self._stored and self.feed.stores is not None:
            (rank,) = self.feed.stores.ranks
            found[rank, "CPU"] = {_hash(name): () for name in self._stored}
        return found

    def orphans(self) -> set[tuple[int, int]]:
        """(rank, hash) of blocks that follow one whose tokens are unknown or that was evicted."""
        found = set()
        for worker_id, worker in self.core.workers.items():
            contents, rank = worker.pool.changes.contents, self.feed.rank_of(worker_id)
            for name, content in contents.items():
                while content is not None and content.parent is not None and content.tokens:
                    content = contents.get(content.parent)
                if content is None or not content.tokens:
                    found.add((rank, _hash(name)))
        return found

    def _tokens(self, num: int) -> list[int]:
        return [self.random.randrange(1000) for _ in range(num)]

    def _submit(self) -> None:
        self._number += 1
        document = self.random.choice(self._documents)
        prompt = document[: self.random.randrange(8, 64)] + self._tokens(self.random.randrange(24))
        if self.random.random() < 0.05:
            self._documents[self.random.randrange(12)] = self._tokens(80)
        submission = Submission(
            request_id=RequestId(self._number.to_bytes(16, "little")),
            epoch=0,
            handle=self._number,
            model="tiny",
            prompt_token_ids=tuple(prompt),
            emitted=((),),
            is_finished=(False,),
            sampling=SamplingParams(max_tokens=self.random.randrange(1, 12)),
        )
        self.core.submit(FRONTEND, submission, 0.0)

    def _answer(self, worker_id: bytes, plan: StepPlan) -> None:
        slots = [s for s, is_one in zip(plan.slots, plan.samples, strict=True) if is_one]
        self.core.apply(
            worker_id,
            StepResult(
                3,
                plan.incarnation,
                plan.step_id,
                slots=slots,
                counts=[1] * len(slots),
                token_ids=self._tokens(len(slots)),
            ),
        )

    def _touch_store(self) -> None:
        draw = self.random.random()
        if draw < 0.3:
            names = [self.random.randbytes(16) for _ in range(self.random.randrange(1, 20))]
            self.driven.note_stored(STORE, [*map(BlockName, names)])
            self._stored.update(map(BlockName, names))
        elif draw < 0.5 and self._stored:
            gone = [name for name in self._stored if self.random.random() < 0.3]
            self.driven.note_removed(STORE, gone)
            self._stored.difference_update(gone)
        elif draw < 0.502:
            self.driven.note_cleared(STORE)
            self._stored.clear()

    def _fault(self) -> None:
        draw, number = self.random.random(), self.random.choice(list(self.infos))
        info = self.infos[number]
        is_live = info.worker_id in self.core.workers
        if draw < 0.003 and is_live and len(self.live) > 1:
            self.core.detach_worker(info.worker_id)
            del self._plans[info.worker_id]
            self.counts["detached"] += 1
        elif draw < 0.006 and not is_live:
            self.attach(number, replace(info, incarnation=1))
            self.counts["attached"] += 1
        elif draw < 0.009 and is_live:
            held = self.held(number)
            self.core.detach_worker(info.worker_id)
            self.feed.flush()
            self.attach(number, replace(info, held=held))
            self.counts["reattached"] += 1
        elif draw < 0.012:
            self.core.kv_caches.reset(None)
            self.counts["reset"] += 1


def _hash(name: BlockName) -> int:
    return int.from_bytes(name[-8:], "big")


def _ids(packed: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4))
