"""The memory of a worker: owns the replica, gives it back for sleep and makes it anew.

Weights, KV cache and whatever else belongs to a replica exist for as long as this object, and
those that it hands the replica to, refer to them. Before `drop` all others must have let go.
A wake makes the same replica again: the content of the checkpoint, the size of the cache and the
steps are those of before, or the wake fails and may be tried again (docs/adr/0047-sleep.md).
An update makes one with other weights, and else the same (docs/adr/0060-new-weights.md).
"""

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Final

from pagewire_shared.errors import PagewireError, StartupError, UnavailableError
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, MemoryTag, SleepOrder, WorkerSleep
from pagewire_shared.weights.version import STARTED, UpdateOrder
from pagewire_worker.adapters.warm import WarmAdapters
from pagewire_worker.checkpoint.dtypes import dtype_name
from pagewire_worker.config import WorkerConfig
from pagewire_worker.host.process_memory import give_back, resident_bytes
from pagewire_worker.loading.loader import (
    EarlierReplica,
    LoadedWeights,
    Progress,
    Replica,
    load_weights,
    make_replica,
    no_progress,
)
from pagewire_worker.loading.ranks import drop_ranks
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.loading.replica_shape import (
    ReplicaShape,
    config_of,
    hashed_again,
    resolve_shape,
)
from pagewire_worker.parallel.rank_group import RankGroup

_OWN_FACTS: Final = {"worker_id", "kv_endpoints", "roles"}
"""Of a ReplicaInfo: what the process has, and no loaded replica."""


class ReplicaMemory:
    """Makes and drops one replica. Its methods run in the model thread, one at a time.

    Args:
        config: The settings of the worker.
        on_layer: Called after each layer of each step, warm-up included.

    Attributes:
        started: The settings of the first load, with the type that it chose.
        source: Where the weights are from.
        failed_update: Serial and error of the newest update if it failed.
    """

    def __init__(
        self, config: WorkerConfig, *, on_layer: Callable[[], None] = lambda: None
    ) -> None:
        self._config = config
        self._on_layer = on_layer
        self._state = MemoryState.WAKING
        self._level = 0
        self._wakes_on_request = False
        self._num_bytes = self._num_bytes_before = 0
        self._error: PagewireError | None = None
        self._awake: frozenset[MemoryTag] = frozenset()
        self._replica: Replica | None = None
        self._weights: LoadedWeights | None = None
        self._group: RankGroup | None = None
        self._shape: ReplicaShape | None = None
        self._info: ReplicaInfo | None = None
        self._warm: WarmAdapters | None = None
        self.started = config
        self.source = STARTED
        self.failed_update: tuple[int, PagewireError] | None = None

    @property
    def sleep(self) -> WorkerSleep | None:
        """The sleep of the worker; None while it is awake."""
        if self._state is MemoryState.AWAKE:
            return None
        return WorkerSleep(
            state=self._state,
            level=self._level,
            awake=self._awake,
            num_bytes=self._num_bytes,
            wakes_on_request=self._wakes_on_request,
            error=self._error,
        )

    @property
    def replica(self) -> Replica:
        """The replica of a worker that is awake."""
        assert self._replica is not None, "no replica while a worker sleeps"
        return self._replica

    def load(self, on_progress: Progress = no_progress) -> Replica:
        """Load the replica for the first time. Raises StartupError."""
        on_progress(0.0, "finding the model")
        self._shape = resolve_shape(self._config)
        if self._config.enable_sleep_mode and self._shape.device.type != "cpu":
            raise StartupError(
                "--enable-sleep-mode: only workers on CPUs sleep; on CUDA end the worker and start "
                "it again",
                field="enable_sleep_mode",
            )
        self._load_weights(self._shape, on_progress)
        # Of other weights, too, whatever type they are published in.
        self.started = replace(self._config, dtype=dtype_name(self._shape.dtype))
        return self._make(on_progress)

    def begin_sleep(self) -> None:
        """Note that all others begin to let go of the replica."""
        self._state = self._state.require_move(MemoryState.DRAINING)
        self._num_bytes_before = resident_bytes()

    def drop(self, order: SleepOrder) -> int:
        """Drop the replica; return the bytes by which the process, and those of its other ranks,
        became smaller.

        Level 1 keeps what is known of the checkpoint, and the content of adapters. Level 2 keeps
        the identity only, which a wake compares.

        Raises:
            RankLostError: A rank is lost, or could not drop its part.
        """
        self._state = self._state.require_move(MemoryState.ASLEEP)
        self._level, self._wakes_on_request = order.level, order.wakes_on_request
        self._awake, self._error = frozenset(), None
        replica, self._replica = self._replica, None
        assert replica is not None
        replica.model_runner.backend.kv_cache.stop_touching()
        adapters = replica.adapters
        self._warm = adapters.warm if adapters is not None and order.level == 1 else None
        if order.level > 1:
            self._shape = None
        del replica, adapters
        self._weights = None
        give_back()
        self._num_bytes = max(0, self._num_bytes_before - resident_bytes())
        self._num_bytes += drop_ranks(self._group)
        return self._num_bytes

    def begin_wake(self) -> None:
        """Note that a wake begins."""
        self._state = self._state.require_move(MemoryState.WAKING)

    def wake(self, tags: Collection[MemoryTag]) -> Replica | None:
        """Make these parts of the memory; return the replica once it is whole, else None.

        A KV cache that is asked for before the weights is made with them, whose shapes it has.

        Raises:
            PagewireError: It cannot be made; the worker is asleep as before.
        """
        wanted = self._awake | frozenset(tags)
        whole: Replica | None = None

        def load() -> None:
            nonlocal whole
            if MemoryTag.WEIGHTS in wanted and self._weights is None:
                self._load_again()
            if wanted == ALL_TAGS:
                whole = self._make(self._advance)

        failure = _failure_of(load, "the worker cannot wake")
        if failure is not None:
            self._fall_back(failure)
            raise failure
        self._error = None
        if whole is None:
            self._awake = wanted
            self._state = self._state.require_move(MemoryState.ASLEEP)
        return whole

    def update(self, order: UpdateOrder) -> Replica:
        """Make the replica with other weights, or with those of before if that fails.

        `failed_update` says afterwards whether it failed.

        Raises:
            PagewireError: Neither can be made; the worker is asleep.
        """
        before = self._config
        self._config = config_of(self.started, order.source)
        self.failed_update = None
        failure = _failure_of(lambda: self._load_other(order), "the weights cannot be loaded")
        if failure is None:
            self.source = order.source
        else:
            self.failed_update = order.source.serial, failure
            self._config = before
            self._weights = None
            give_back()
            self.wake(ALL_TAGS)
        return self.replica

    def _load_other(self, order: UpdateOrder) -> None:
        assert self._info is not None
        shape = resolve_shape(self._config)
        if order.fingerprint and shape.fingerprint != order.fingerprint:
            raise StartupError(
                f"{self._config.model} is not what it was when it was checked", field="path"
            )
        self._load_weights(shape, self._advance)
        known = self._info
        self._info = replace(known, model_fingerprint=shape.fingerprint)
        try:
            self._make(self._advance)
        except BaseException:
            self._info = known
            raise
        self._shape, self._error = shape, None

    def _load_again(self) -> None:
        """Load the weights of the replica that there was; at level 2 the folder is found anew."""
        shape = self._shape
        shape = resolve_shape(self._config) if shape is None else hashed_again(self._config, shape)
        self._load_weights(shape, self._advance)
        self._shape = shape

    def _advance(self, fraction: float, detail: str) -> None:
        """Show progress, so that a long wake is not taken for a hung worker."""
        self._on_layer()

    def _load_weights(self, shape: ReplicaShape, on_progress: Progress) -> None:
        self._weights = load_weights(
            self._config,
            shape,
            group=self._group,
            on_progress=on_progress,
            on_layer=self._on_layer,
        )
        self._group = self._weights.ranked.group

    def _make(self, on_progress: Progress) -> Replica:
        assert self._weights is not None
        known = self._info
        replica = make_replica(
            self._weights,
            earlier=None if known is None else EarlierReplica(known, self._warm),
            on_progress=on_progress,
            on_layer=self._on_layer,
        )
        if known is not None:
            check_same(known, replica.info, self._config.model)
            replica = replace(replica, info=replace(replica.info, worker_id=known.worker_id))
        self._info, self._warm = replica.info, None
        self._replica = replica
        self._awake, self._level, self._num_bytes = frozenset(), 0, 0
        self._wakes_on_request = False
        self._state = self._state.require_move(MemoryState.AWAKE)
        return replica

    def _fall_back(self, failure: PagewireError) -> None:
        """Be asleep as before a wake that failed, with all parts dropped."""
        self._error = failure
        self._weights, self._awake = None, frozenset()
        self._shape = self._shape if self._level == 1 else None
        give_back()
        self._state = self._state.require_move(MemoryState.ASLEEP)
        drop_ranks(self._group)


def _failure_of(call: Callable[[], None], what: str) -> UnavailableError | None:
    """Return the error that `call` meets, None for none. Its frames, which would keep what was
    loaded, are gone."""
    try:
        call()
    except PagewireError as error:
        return UnavailableError(f"{what}: {error}", field=error.field)
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        return UnavailableError(f"{what}: {error}")
    return None


def check_same(known: ReplicaInfo, found: ReplicaInfo, model: str) -> None:
    """Raise StartupError unless a replica that was made again is the one that there was."""
    if found.model_fingerprint != known.model_fingerprint:
        raise StartupError(
            f"the checkpoint {model} has changed: start the worker again to serve its new content",
            field="model",
        )
    for one in fields(ReplicaInfo):
        if one.name not in _OWN_FACTS and getattr(found, one.name) != getattr(known, one.name):
            raise StartupError(
                f"{one.name} of the replica is not what it was: start the worker again",
                field=one.name,
            )
