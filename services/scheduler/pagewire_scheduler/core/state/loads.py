"""The KV loads of one worker: loads under way, sequences that wait for them, and links to their
sources. A load holds its destination blocks until the answer. `core.transfers` decides about loads
and orders them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.costs.load_cost import PrefillSpeed, StoreLink
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.load import LoadOrder

if TYPE_CHECKING:
    from pagewire_scheduler.core.state.handoff import Handoff
    from pagewire_scheduler.core.state.request import Sequence

LOOK_SECONDS: Final = 0.05

Look = tuple[int, int, int, int]
"""When a sequence was looked at: the index, loads ordered and under way, and the time."""


@dataclass(slots=True, eq=False, kw_only=True)
class KvLoad:
    """A load that was ordered and not answered.

    Attributes:
        first: Index of its first block among those of the sequences.
        table: The blocks it goes to, behind the cached ones that it continues: these must not be
            evicted meanwhile, or what comes would be of no use.
        num_bytes: Of all its blocks.
        num_bytes_ahead: Of the loads that were under way from that store when it was ordered.
        overdue_at: Instant from which no sequence waits for it.
        ordered_at: When it was ordered.
        sequences: Who waits for it, and some who did.
        handoff: What brings its blocks from another worker; None for those of a store.
        is_cancelled: Whether the worker is sent a cancel.
        is_overdue: Whether its answer did not come in time.
        is_forgotten: Whether its blocks get no names: cached prefixes were forgotten meanwhile.
    """

    order: LoadOrder
    first: int
    table: BlockTable
    num_bytes: int
    num_bytes_ahead: int
    overdue_at: float
    ordered_at: float
    sequences: list["Sequence"] = field(default_factory=list)
    handoff: "Handoff | None" = None
    is_cancelled: bool = False
    is_overdue: bool = False
    is_forgotten: bool = False

    @property
    def waiting(self) -> list["Sequence"]:
        """Who waits for it, by age."""
        waiting = [one for one in self.sequences if one.load is self and one.queue is not None]
        return sorted(waiting, key=lambda sequence: sequence.key)

    @property
    def is_joinable(self) -> bool:
        """Whether another sequence may wait for it."""
        return not (self.is_cancelled or self.is_overdue or self.is_forgotten)


class Loads:
    """What is known of the loads of one worker.

    Attributes:
        under_way: Loads by id, also without waiting sequences, because they hold blocks.
        prefill: What its prompts cost.
        is_forced: Whether speeds decide nothing.
    """

    __slots__ = (
        "_by_name",
        "_links",
        "_num_ordered",
        "_to_cancel",
        "_to_order",
        "is_forced",
        "prefill",
        "under_way",
    )

    def __init__(self, *, is_forced: bool) -> None:
        self.under_way: dict[int, KvLoad] = {}
        self.prefill = PrefillSpeed()
        self.is_forced = is_forced
        self._links: dict[str, StoreLink] = {}
        self._by_name: dict[BlockName, KvLoad] = {}
        self._to_order: list[LoadOrder] = []
        self._to_cancel: list[int] = []
        self._num_ordered = 0

    @property
    def num_blocks(self) -> int:
        """Blocks that loads go to."""
        return sum(len(load.order.blocks) for load in self.under_way.values())

    def num_under_way(self, *, of_workers: bool) -> int:
        """Return how many loads come from other workers, or from stores."""
        return sum((one.handoff is not None) == of_workers for one in self.under_way.values())

    @property
    def num_bytes(self) -> int:
        """Bytes that all links count as under way."""
        return sum(link.num_bytes_under_way for link in self._links.values())

    @property
    def names(self) -> dict[BlockName, KvLoad]:
        """Which load brings a name, for audits."""
        return self._by_name

    def link(self, store: str) -> StoreLink:
        """Return what is known of the way from `store`."""
        return self._links.setdefault(store, StoreLink())

    def forget_link(self, store: str) -> None:
        """Nothing will be ordered from there again; answers may still come."""
        link = self._links.get(store)
        if link is not None and not link.num_bytes_under_way:
            del self._links[store]

    def find(self, name: BlockName) -> KvLoad | None:
        """Return the load that brings `name` and may be waited for, or None."""
        load = self._by_name.get(name)
        return load if load is not None and load.is_joinable else None

    def look(self, version: int, now: float) -> Look:
        """Return what a second look in the same state need not be taken for.

        What sequences lost of their cached blocks meanwhile is noticed after LOOK_SECONDS.
        """
        return version, self._num_ordered, len(self.under_way), int(now / LOOK_SECONDS)

    def next_id(self) -> int:
        """Return an id that no load of this attach had."""
        self._num_ordered += 1
        return self._num_ordered

    def enter(self, load: KvLoad) -> None:
        """A load is ordered."""
        self.under_way[load.order.load_id] = load
        self._by_name.update(dict.fromkeys(load.order.names, load))
        self._to_order.append(load.order)

    def leave(self, load: KvLoad) -> None:
        """A load was answered: give its blocks back."""
        del self.under_way[load.order.load_id]
        for name in load.order.names:
            if self._by_name.get(name) is load:
                del self._by_name[name]
        self.link(load.order.store).num_bytes_under_way -= load.num_bytes
        load.table.release()

    def cancel(self, load: KvLoad) -> None:
        """Cancel the load on the worker, once."""
        if not load.is_cancelled:
            load.is_cancelled = True
            self._to_cancel.append(load.order.load_id)

    def forget_names(self) -> None:
        """What is under way gets no names, so it need not come."""
        for load in self.under_way.values():
            load.is_forgotten = True
            self.cancel(load)

    def take_orders(self) -> list[LoadOrder]:
        """Return the load orders to send to the worker now."""
        taken, self._to_order = self._to_order, []
        return taken

    def take_cancelled(self) -> list[int]:
        """Return the ids of the loads to cancel on the worker."""
        for load in self.under_way.values():
            if not load.is_cancelled and not load.waiting:
                self.cancel(load)
        taken, self._to_cancel = self._to_cancel, []
        return taken
