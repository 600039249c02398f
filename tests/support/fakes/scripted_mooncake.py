"""A client of Mooncake whose store is a dictionary, and that fails as a test says."""

import threading
from collections.abc import Callable, Sequence

from pagewire_worker.connectors.mooncake_settings import MooncakeSettings


class ScriptedStore:
    """What all clients share.

    Attributes:
        entries: Values by key.
        error: What every call answers while it is set.
        room: Entries that fit.
        gate: Calls wait for it.
        refuses_clients: How many further clients are refused.
    """

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.error = 0
        self.room = 1_000_000
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[tuple[str, int]] = []
        self.num_clients = 0
        self.num_closed = 0
        self.refusal: Callable[[], Exception] | None = None

    def client(self, settings: MooncakeSettings, buffer_bytes: int) -> "ScriptedClient":
        if self.refusal is not None:
            raise self.refusal()
        self.num_clients += 1
        return ScriptedClient(self, buffer_bytes)


class ScriptedClient:
    """See MooncakeClient."""

    def __init__(self, store: ScriptedStore, buffer_bytes: int, num_buffers: int = 3) -> None:
        self._store = store
        self.buffers: Sequence[memoryview] = [
            memoryview(bytearray(buffer_bytes)) for _ in range(num_buffers)
        ]

    def _begin(self, what: str, num_keys: int) -> None:
        self._store.calls.append((what, num_keys))
        self._store.gate.wait(20)

    def put(self, buffer: int, keys: Sequence[str], slot: int, sizes: Sequence[int]) -> list[int]:
        self._begin("put", len(keys))
        store, statuses = self._store, []
        for index, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            if store.error or (key not in store.entries and len(store.entries) >= store.room):
                statuses.append(store.error or -200)
                continue
            data = self.buffers[buffer][index * slot : index * slot + size]
            store.entries.setdefault(key, bytes(data))
            statuses.append(0)
        return statuses

    def get(self, buffer: int, keys: Sequence[str], slot: int) -> list[int]:
        self._begin("get", len(keys))
        sizes = []
        for index, key in enumerate(keys):
            data = self._store.entries.get(key)
            if self._store.error or data is None or len(data) > slot:
                sizes.append(self._store.error or (-704 if data is None else -600))
                continue
            self.buffers[buffer][index * slot : index * slot + len(data)] = data
            sizes.append(len(data))
        return sizes

    def exist(self, keys: Sequence[str]) -> list[int]:
        self._begin("exist", len(keys))
        return [self._store.error or int(key in self._store.entries) for key in keys]

    def remove(self, keys: Sequence[str]) -> None:
        self._begin("remove", len(keys))
        for key in keys:
            self._store.entries.pop(key, None)

    def close(self) -> None:
        self._store.num_closed += 1
