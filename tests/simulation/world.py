"""A whole cell in one process: schedulers, workers, frontends and clients, with a clock that only
events move. Owns the processes and the order in which messages arrive."""

from collections.abc import Callable
from typing import Any

from simulation.checks.excuses import Excuses
from simulation.checks.loss_watch import LossWatch
from simulation.checks.message_watch import MessageWatch
from simulation.checks.stream_watch import StreamWatch
from simulation.clock import Clock
from simulation.configuration import ADAPTERS, Configuration
from simulation.coverage import Coverage
from simulation.model.answers import Answer, Killed
from simulation.model.naive import EMBEDDING_SIZE, VOCAB_SIZE
from simulation.processes.cell import Cell, Hooks
from simulation.processes.client import Ask, Client
from simulation.processes.frontend import MODEL, TOKENIZER, Frontend
from simulation.processes.replica import Replica
from simulation.processes.stores import BYTES_PER_BLOCK, News, Store, StorePort
from simulation.processes.streams import Stream
from simulation.processes.worker_process import WorkerProcess

from pagewire_scheduler.core.data.settings import OverloadLimits
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, ModelInfo, Role, WorkerInfo
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.weights.version import STARTED

TURN_SECONDS = 0.002
PROBE_SALT = b"probe"
MODEL_FINGERPRINT, LAYOUT, DTYPE = b"m" * 32, b"l" * 16, "float32"
TENANT_WEIGHTS = {"a": 1.0, "b": 2.0}
Move = tuple[Callable[..., None], Any]


class World:
    """Everything that lives, and everything that is known to be true of it.

    Attributes:
        excuses: Why requests may fail.
        updates: Updates of weights under way.
        messages: What goes over the streams of workers.
        late_answers: Results whose streams were cut before they arrived.
    """

    def __init__(self, configuration: Configuration, coverage: Coverage, clock: Clock) -> None:
        self.configuration = configuration
        self.coverage = coverage
        self.clock = clock
        self.asks: dict[bytes, Ask] = {}
        self.excuses = Excuses(configuration, lambda: clock.now)
        self.messages = MessageWatch(configuration, coverage, self.excuses, self.root_salt_of)
        self.late_answers: list[Answer] = []
        self.workers: list[WorkerProcess] = []
        self.frontends: list[Frontend] = []
        self.num_requests = self.num_workers = self.num_incarnations = self.num_lives = 0
        self.dice = 1
        self.updates: list[Any] = []
        watch = LossWatch(coverage, self.excuses)
        self.stores = [
            Store(f"store{number}:1", self._tell) for number in range(configuration.num_stores)
        ]
        hooks = Hooks(
            self.messages.planned,
            self.messages.answered,
            watch.lost,
            self.messages.ordered,
            self.messages.loaded,
            lambda: [news for store in self.stores for news in store.everything()],
            StreamWatch(configuration, coverage),
        )
        self.cells: list[Cell] = []
        self.cells = [
            Cell(number, self.clock, self._settings(), hooks, configuration.stream_limits)
            for number in range(configuration.num_cells)
        ]
        for cell in self.cells:
            cell.start()
        for number in range(configuration.num_frontends):
            self.start_frontend(number)
        for number in range(configuration.num_workers):
            self.start_worker(self.cells[number % len(self.cells)])

    def _settings(self) -> dict[str, Any]:
        configuration = self.configuration
        return {
            "is_caching": configuration.is_caching,
            "limits": OverloadLimits(max_num_waiting=configuration.max_num_waiting),
            "lease_seconds": 5.0,
            "policy": configuration.policy,
            "tenant_weights": TENANT_WEIGHTS,
            "handoff": configuration.handoff,
            "num_stores": configuration.num_stores,
            "num_copies": max(1, configuration.num_copies),
            "notes_cache_changes": True,
        }

    # Stores.

    def _tell(self, news: News) -> None:
        for cell in self.cells:
            cell.news.append(news)

    def _find_store(self, address: str) -> Store | None:
        return next((store for store in self.stores if store.address == address), None)

    def _find_blocks(self, worker_id: bytes) -> dict[bytes, list[int]] | None:
        """The blocks that a worker would hand out; None for one that is gone."""
        for worker in self.workers:
            if worker.worker_id == worker_id:
                size, memory = self.configuration.block_size, worker.replica.memory
                held = worker.replica.names.held().items()
                return {name: memory[block * size : (block + 1) * size] for block, name in held}
        return None

    def _offload(self, name: bytes, cells: list[int]) -> None:
        """Most blocks reach a store; what a queue had no room for does not."""
        if self.stores and self.roll(8):
            self.stores[self.roll(len(self.stores))].put(name, cells)

    # Processes.

    def start_frontend(self, number: int) -> None:
        self.num_lives += 1
        self.frontends.append(
            Frontend(number, self.num_lives % 256, self.cells, self.clock, self.coverage)
        )

    def start_worker(self, cell: Cell, *, is_small: bool = False) -> None:
        self.num_workers += 1
        number, configuration = self.num_workers, self.configuration
        model = ModelInfo(
            name=MODEL,
            model_fingerprint=MODEL_FINGERPRINT,
            tokenizer_fingerprint=TOKENIZER,
            max_model_len=configuration.max_model_len,
            vocab_size=VOCAB_SIZE,
            block_size=configuration.block_size,
            embedding_size=EMBEDDING_SIZE,
        )
        info = WorkerInfo(
            worker_id=number.to_bytes(16, "big"),
            incarnation=0,
            model=model,
            layout_fingerprint=LAYOUT,
            dtype=DTYPE,
            num_blocks=configuration.num_small_blocks if is_small else configuration.num_blocks,
            max_num_seqs=configuration.max_num_seqs,
            max_num_batched_tokens=configuration.max_num_batched_tokens,
            steps_in_flight=configuration.steps_in_flight,
            shared_step_tokens=configuration.shared_step_tokens,
            groups=configuration.groups,
            bytes_per_block=BYTES_PER_BLOCK,
            loads_blocks=configuration.num_stores > 0 and number % 5 > 0,
            places_copies=configuration.num_copies > 0 and number % 4 > 0,
            roles=roles_of(configuration.roles, number),
            kv_endpoint=f"unix:/w{number}" if number % 7 else "",
            kv_transports=(KvTransport.GRPC,),
            pull_transports=(KvTransport.GRPC,),
            host_id="host",
            takes_prefixes=number % 6 > 0,
            max_adapters=configuration.num_adapter_slots(number),
            warm_adapters=ADAPTERS[: number % 3],
            max_drafts=configuration.max_drafts if number % 4 else 0,
            can_sleep=True,
            sleep_after=2.0 if number % 3 == 1 else 0.0,
            source=STARTED,
        )
        replica = Replica(info, self.salt_of, self.is_poison, self.is_deadly, self._offload)
        port = StorePort(self._find_store, self._find_blocks)
        self.workers.append(WorkerProcess(number, replica, cell, port, is_small=is_small))
        self.excuses.has_small |= is_small

    def salt_of(self, request_id: bytes) -> bytes:
        request_compile = self.asks.get(request_id)
        return PROBE_SALT + request_id if request_compile is None else request_compile.salt

    def root_salt_of(self, request_id: bytes) -> bytes:
        request_compile = self.asks.get(request_id)
        return self.salt_of(request_id) + (request_compile.adapter if request_compile else b"")

    def is_poison(self, request_id: bytes) -> bool:
        request_compile = self.asks.get(request_id)
        return request_compile is not None and request_compile.is_poison

    def is_deadly(self, request_id: bytes, num_computed: int) -> bool:
        request_compile = self.asks.get(request_id)
        after = request_compile.deadly_after if request_compile is not None else None
        return (
            request_compile is not None
            and after is not None
            and num_computed >= len(request_compile.prompt) + after
        )

    def clients(self) -> list[Client]:
        return [client for frontend in self.frontends for client in frontend.clients]

    # Turns.

    def roll(self, sides: int) -> int:
        """A number below `sides`, drawn from what the event brought."""
        self.dice = (self.dice * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        return (self.dice >> 33) % sides

    def moves(self) -> list[Move]:
        """Everything that could happen next by itself."""
        now = self.clock.now
        moves: list[Move] = []
        for cell in self.cells:
            moves += [(self._up, stream) for stream in cell.streams if stream.has_up(now)]
            if cell.is_up and cell.news:
                moves.append((self._hear, cell))
        for worker in self.workers:
            stream = worker.stream
            if stream is None:
                if worker.cell.is_up:
                    moves.append((self._dial_worker, worker))
            elif stream.has_down(now):
                moves.append((self._down, worker))
            if worker.queue and now >= worker.frozen_until:
                moves.append((self._run, worker))
            if worker.compiling:
                moves.append((self._compile, worker))
            if worker.adapting:
                moves.append((self._adapt, worker))
            if worker.port.is_ready(now):
                moves.append((self._load, worker))
        for frontend in self.frontends:
            for end in frontend.ends:
                if end.stream is None:
                    if end.cell.is_up:
                        moves.append((self._dial_frontend, end))
                elif end.stream.has_down(now):
                    moves.append((self._down, end))
        return moves

    def turn(self) -> bool:
        """Let one thing happen; False when nothing can."""
        moves = self.moves()
        if not moves:
            return False
        self.clock.now += TURN_SECONDS
        move, argument = moves[self.roll(len(moves))]
        move(argument)
        return True

    def finish_turn(self) -> None:
        """Let all event loops run what is ready."""
        self.updates = [update for update in self.updates if not update.go_on()]
        for cell in self.cells:
            cell.turn()
        for frontend in self.frontends:
            frontend.turn()

    def _up(self, stream: Stream) -> None:
        cell = stream.cell
        cell.receive(stream)
        if self.roll(4):
            cell.turn()

    def _down(self, dialer: Any) -> None:
        if isinstance(dialer, WorkerProcess):
            dialer.receive(self.clock.now)
            if dialer.has_left:
                self.workers.remove(dialer)
                self.coverage.facts["workers drained"] += 1
            return
        if dialer.stream.down:
            self.messages.log.update(repr(dialer.stream.down[0]).encode())
        dialer.receive()
        dialer.frontend.turn()
        if self.roll(2):
            dialer.frontend.read()

    def _run(self, worker: WorkerProcess) -> None:
        try:
            worker.run()
        except Killed:
            self.coverage.facts["workers killed by a request"] += 1
            self.kill_worker(worker)

    def _hear(self, cell: Cell) -> None:
        cell.hear()

    def _load(self, worker: WorkerProcess) -> None:
        answer = worker.load(self.clock.now, self.roll)
        kind = "loads" if answer.transport is None else "pulls"
        self.coverage.facts[f"{kind} {answer.outcome.value}"] += 1
        self.coverage.facts[f"blocks of {kind}"] += answer.num_blocks

    def _compile(self, worker: WorkerProcess) -> None:
        worker.compile(self.roll(len(worker.compiling)))

    def _adapt(self, worker: WorkerProcess) -> None:
        worker.adapt(self.roll(len(worker.adapting)))
        self.coverage.facts["adapters loaded"] += 1

    def kill_worker(self, worker: WorkerProcess) -> None:
        """End a worker; what it has sent still arrives. Another one takes its place."""
        self.workers.remove(worker)
        worker.lose()
        self.start_worker(worker.cell, is_small=worker.is_small)

    def _dial_worker(self, worker: WorkerProcess) -> None:
        self.num_incarnations += 1
        worker.dial(self.num_incarnations)

    def _dial_frontend(self, end: Any) -> None:
        end.dial()

    def pass_time(self, seconds: float, *, lateness: float = 0.0) -> None:
        """Move the clock and let everybody notice."""
        self.clock.now += seconds
        for frontend in self.frontends:
            frontend.turn()
            for end in frontend.ends:
                end.give_up()
        for cell in self.cells:
            cell.tick(lateness)


def roles_of(kind: str, number: int) -> frozenset[Role]:
    """What the worker of a number is used for at first."""
    if kind == "both" or (kind == "mixed" and number % 3 == 0):
        return ALL_ROLES
    return frozenset({Role.PREFILL if number % 2 else Role.DECODE})
