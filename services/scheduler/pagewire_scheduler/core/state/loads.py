"""The KV loads of one worker: loads under way, sequences that wait for them, and links to their
sources. A load holds its destination blocks until the answer. `core.transfers` decides about loads
and orders them."""

from typing import Final

from pagewire_scheduler.core.costs.load_cost import PrefillSpeed, StoreLink
from pagewire_scheduler.core.state.kv_load import KvLoad, Look
from pagewire_scheduler.core.state.request import Sequence
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.load import LoadOrder

LOOK_SECONDS: Final = 0.05


class Loads:
    """The loads of one worker.

    Attributes:
        under_way: Loads by id, also without waiting sequences, because they hold blocks.
        prefill: Measured cost of prompts.
        is_forced: Whether speeds decide nothing.
        places_copies: Whether the worker places blocks by stripes, and there are several stores.
    """

    __slots__ = (
        "_by_name",
        "_links",
        "_num_ordered",
        "_to_cancel",
        "_to_order",
        "_waiting",
        "is_forced",
        "places_copies",
        "prefill",
        "under_way",
    )

    def __init__(self, *, is_forced: bool, places_copies: bool = False) -> None:
        self.under_way: dict[int, KvLoad] = {}
        self.prefill = PrefillSpeed()
        self.is_forced = is_forced
        self.places_copies = places_copies
        self._links: dict[str, StoreLink] = {}
        self._by_name: dict[BlockName, KvLoad] = {}
        self._to_order: list[LoadOrder] = []
        self._waiting: dict[KvLoad, list[Sequence]] = {}
        self._to_cancel: list[int] = []
        self._num_ordered = 0

    @property
    def num_blocks(self) -> int:
        """Blocks that loads go to."""
        return sum(len(load.order.blocks) for load in self.under_way.values())

    def num_under_way(self, *, of_workers: bool) -> int:
        """Return how many loads come from other workers, or from stores."""
        return sum(one.is_pull == of_workers for one in self.under_way.values())

    @property
    def num_bytes(self) -> int:
        """Bytes that all links count as under way."""
        return sum(link.num_bytes_under_way for link in self._links.values())

    @property
    def names(self) -> dict[BlockName, KvLoad]:
        """The load that brings each name, for audits."""
        return self._by_name

    def link(self, store: str) -> StoreLink:
        """Return the measurements of the way from `store`."""
        return self._links.setdefault(store, StoreLink())

    def forget_link(self, store: str) -> None:
        """Forget `store`, of which nothing is ordered again; answers may still come."""
        link = self._links.get(store)
        if link is not None and not link.num_bytes_under_way:
            del self._links[store]

    def find(self, name: BlockName) -> KvLoad | None:
        """Return the load that brings `name` and may be waited for, or None."""
        load = self._by_name.get(name)
        return load if load is not None and load.is_joinable else None

    def wait(self, sequence: Sequence, load: KvLoad) -> None:
        """Let `sequence` wait for `load`, which is under way."""
        sequence.remote.load = load
        self._waiting[load].append(sequence)

    def waiting_for(self, load: KvLoad) -> list[Sequence]:
        """Return the sequences that wait for a load under way, by age."""
        of_load = (one for one in self._waiting[load] if one.remote.load is load)
        waiting = (one for one in of_load if one.placement.queue is not None)
        return sorted(waiting, key=lambda sequence: sequence.key)

    def look(self, version: int, now: float) -> Look:
        """Return the state of the loads: a second look in the same state finds nothing new.

        Cached blocks that sequences lost meanwhile are noticed after LOOK_SECONDS.
        """
        return version, self._num_ordered, len(self.under_way), int(now / LOOK_SECONDS)

    def next_id(self) -> int:
        """Return an id that no load of this attach had."""
        self._num_ordered += 1
        return self._num_ordered

    def enter(self, load: KvLoad) -> None:
        """Begin a load: order it."""
        self.under_way[load.order.load_id] = load
        self._by_name.update(dict.fromkeys(load.order.names, load))
        self._to_order.append(load.order)
        self._waiting[load] = []

    def leave(self, load: KvLoad) -> None:
        """End a load that was answered: give its blocks back."""
        del self.under_way[load.order.load_id], self._waiting[load]
        for name in load.order.names:
            if self._by_name.get(name) is load:
                del self._by_name[name]
        for store, (num_bytes, _) in load.shares.items():
            self.link(store).num_bytes_under_way -= num_bytes
        load.table.release()

    def cancel(self, load: KvLoad) -> None:
        """Cancel the load on the worker, once."""
        if not load.is_cancelled:
            load.is_cancelled = True
            self._to_cancel.append(load.order.load_id)

    def forget_names(self) -> None:
        """Cancel all loads: their blocks would get no names."""
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
            if not load.is_cancelled and not self.waiting_for(load):
                self.cancel(load)
        taken, self._to_cancel = self._to_cancel, []
        return taken
