"""A core with a worker that loads blocks and a store that has what a test says."""

from collections.abc import Sequence

from unit.scheduler.cell import Cell

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.state.request import Sequence as CoreSequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.identity.ids import BlockName, RequestId
from pagewire_shared.kv.block_hash import block_name, root_name
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome

STORE = "store:1"
PROMPT = list(range(1, 18))  # four full blocks, and a token


class LoadingCell(Cell):
    """One worker that can load; nothing is known of the store's blocks at first."""

    def __init__(self, *, is_up: bool = True, **changes: object) -> None:
        super().__init__(**{"loads_blocks": True, "bytes_per_block": 1000, **changes})
        self.core.stores.set_up(STORE, is_up=is_up)

    @property
    def worker(self) -> WorkerState:
        return self.core.workers[self.info.worker_id]

    def names(self, tokens: Sequence[int], salt: bytes = b"") -> list[BlockName]:
        """Return the names of the full blocks of `tokens`."""
        info = self.info
        name = root_name(
            model_fingerprint=info.model.model_fingerprint,
            layout_fingerprint=info.layout_fingerprint,
            dtype=info.dtype,
            salt=salt,
        )
        size, named = info.model.block_size, []
        for start in range(0, len(tokens) - size + 1, size):
            name = block_name(name, list(tokens[start : start + size]))
            named.append(name)
        return named

    def store(self, tokens: Sequence[int]) -> None:
        """Let the store have all full blocks of `tokens`."""
        self.core.stores.stored(STORE, self.names(tokens))

    def sequence(self, number: int) -> CoreSequence:
        request_id = RequestId(number.to_bytes(16, "little"))
        return self.core.requests[request_id].sequences[0]

    def orders(self) -> list[LoadOrder]:
        """Take a step, if there is one, and return the loads ordered."""
        plan = self.plan()
        orders = self.core.kv_caches.take_loads(self.info.worker_id)
        if plan is not None:
            self.answer(plan)
        return orders

    def order(self) -> LoadOrder:
        (order,) = self.orders()
        return order

    def cancelled(self) -> list[int]:
        return self.core.kv_caches.take_cancelled_loads(self.info.worker_id)

    def finish(
        self,
        order: LoadOrder,
        num_blocks: int | None = None,
        outcome: LoadOutcome = LoadOutcome.COMPLETE,
        **fields: object,
    ) -> None:
        """Answer a load: with all blocks from memory unless told otherwise."""
        num = len(order.blocks) if num_blocks is None else num_blocks
        values = {"tiers": (("memory", num),) if num else (), "num_bytes": 1000 * num}
        values |= {"seconds": 0.01, **fields}
        answer = LoadAnswer(order.load_id, num, outcome, **values)  # type: ignore[arg-type]
        self.core.kv_caches.note_load(self.info.worker_id, answer)
        check_integrity(self.core)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)
        check_integrity(self.core)
