"""The loop of a rank behind the first: it follows rank 0, and loads its part of the model first."""

import contextlib
import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pagewire_shared.errors import InternalError, PagewireError, UnavailableError
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.backend.state_tap import TapsStates
from pagewire_worker.config import WorkerConfig
from pagewire_worker.extension.worker_extension import RankFacts, WorkerExtension
from pagewire_worker.host.process_memory import give_back, resident_bytes
from pagewire_worker.inspection.rank_profile import RankProfile
from pagewire_worker.inspection.step_clock import StepClock
from pagewire_worker.inspection.worker_inspection import CALL_EXTENSION
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.loading.cache_sizing import count_blocks
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.loader import cache_settings
from pagewire_worker.loading.ranks import rank_blocks, rank_source, topology_of
from pagewire_worker.loading.replica_shape import ReplicaShape, resolve_shape
from pagewire_worker.parallel.group_adapters import fill_slot
from pagewire_worker.parallel.group_blocks import RankBlocks
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.messages import (
    RankCommand,
    RankMessage,
    adapter_rows,
    decode,
    decode_batch,
)
from pagewire_worker.parallel.rank_group import STEP_SECONDS
from pagewire_worker.parallel.rank_links import answer_requests
from pagewire_worker.parallel.rank_model import RankModel, from_bits
from pagewire_worker.parallel.rank_task import RankTask, decode_config
from pagewire_worker.parallel.replies import gather_replies
from pagewire_worker.parallel.shared_collectives import SharedCollectives


def serve_task(task: RankTask) -> int | None:
    """Serve rank 0 until a rank is lost; return that rank. Raises StartupError."""
    config = task.config
    topology = topology_of(config, task.rank)
    stages = topology.num_stages
    memory = GroupMemory(config.num_ranks, task.fd, task.slot_bytes, num_stages=stages)
    collectives = SharedCollectives(memory, topology, int(STEP_SECONDS * 1000))
    collectives.use_spare_cores(config.ranks_here * (config.cpu_threads or 1))
    for host in task.host_links:
        collectives.join_host(host.fd, range(host.first, host.first + host.size), host.peer)
    link = socket.socket(fileno=task.link)
    return serve_rank(config, collectives, link, host=task.host)


@torch.inference_mode()
def serve_rank(
    config: WorkerConfig, collectives: SharedCollectives, link: socket.socket, *, host: int = 0
) -> int | None:
    """Serve rank 0 until a rank is lost; return that rank.

    Args:
        link: For requests beside steps; see RankLinks.
        host: Host of the rank; the first rank of another host than rank 0's hashes its weights.

    Raises:
        PagewireError: A step failed in this rank; it is lost then.
    """
    rank = _Rank(config, collectives, host)
    beside = threading.Thread(
        target=answer_requests, args=(link, rank.fill), name="rank-requests", daemon=True
    )
    beside.start()
    try:
        while True:
            rank.follow(decode(collectives.receive()))
    except RankLostError:
        return collectives.lost
    except PagewireError:
        collectives.lose(collectives.topology.rank)
        raise
    except Exception as error:
        collectives.lose(collectives.topology.rank)
        raise PagewireError(f"{type(error).__name__}: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What a rank has loaded."""

    shape: ReplicaShape
    model: LoadedReplicaModel


class _Rank:
    def __init__(self, config: WorkerConfig, collectives: SharedCollectives, host: int) -> None:
        self._config = config
        self._collectives = collectives
        per_host = config.num_ranks // config.rank_hosts
        # Rank 0 reports which weights these are, and compares those of other hosts.
        self._is_hashed = host > 0 and collectives.topology.rank % per_host == 0
        self._part: _Part | None = None
        self._model: RankModel | None = None
        self._blocks: RankBlocks | None = None
        self._layers = LayerCalls(_ignore)
        self._clock: StepClock | None = None
        self._functions: dict[str, Callable[..., object]] = {
            "load": self._load,
            "count_blocks": self._count_blocks,
            "fingerprint": lambda: self._loaded.shape.fingerprint.hex(),
            "open_cache": self._open_cache,
            "tap": self._tap,
            "drop": self._drop,
        }

    def follow(self, message: RankMessage) -> None:
        """Do what one message says. Raises RankLostError."""
        if message.command is RankCommand.CALL:
            call = json.loads(message.text)
            # Rank 0 raises what a function raised.
            with contextlib.suppress(InternalError):
                gather_replies(self._collectives, self._functions, call)
            self._collectives.set_timeout(STEP_SECONDS)
            return
        clock = self._clock
        if clock is not None:
            clock.begin_step(message.command.name.lower())
        self._compute(message)
        if clock is not None:
            clock.end()

    def _compute(self, message: RankMessage) -> None:
        model, blocks = self._model, self._blocks
        assert model is not None, "rank 0 asks for no step while it sleeps"
        arrays = message.arrays
        if message.command is RankCommand.FORWARD:
            model.forward(decode_batch(message))
            self._collectives.check()
        elif message.command is RankCommand.LOGITS:
            if self._collectives.topology.is_last:
                states = from_bits(arrays[0], self._loaded.shape.dtype)
                model.logits(states, adapter_rows(arrays[1:]))
        elif message.command is RankCommand.COPY_BLOCKS:
            model.copy_blocks(*(torch.tensor(array) for array in arrays))
        else:
            assert blocks is not None, "rank 0 puts no blocks together"
            blocks.follow(message.command, arrays)

    def fill(self, request: Mapping[str, Any], file: int) -> None:
        """Fill an adapter slot beside steps; see GroupAdapters. Raises AdapterError."""
        slots = self._loaded.model.adapters
        assert slots is not None, "without adapters there are no slots"
        fill_slot(slots, request, file)

    @property
    def _loaded(self) -> "_Part":
        if self._part is None:
            raise UnavailableError("it sleeps")
        return self._part

    def _load(self, config: dict[str, Any]) -> None:
        """Load the part of this rank, in the place of another one if there is any."""
        self._drop()
        self._config = decode_config(config)
        shape = resolve_shape(self._config, is_hashed=self._is_hashed)
        settings = load_settings(self._config, shape, lambda fraction, detail: None)
        settings = dataclasses.replace(settings, collectives=self._collectives)
        source = rank_source(shape, self._collectives.topology)
        self._part = _Part(shape, source.load(settings))
        self._functions |= self._inspected(shape)

    def _inspected(self, shape: ReplicaShape) -> dict[str, Callable[..., object]]:
        """Return what operators call in this rank."""
        config, place = self._config, self._collectives.topology
        profile = RankProfile(
            name=f"rank {place.rank}",
            follow=self._follow_by,
            layers=self._layers,
            device=shape.device,
            uses_torch=config.cpu_backend != "fused",
        )
        functions = dict(profile.functions)
        if config.worker_extension_cls:
            folder, sizes = shape.files.folder, {"rank": place.rank, "num_ranks": place.size}
            facts = RankFacts.of(folder, shape.device, shape.dtype, **sizes)
            functions[CALL_EXTENSION] = WorkerExtension(config.worker_extension_cls, facts).call
        return functions

    def _drop(self) -> int:
        """Drop the part; return the bytes by which the process became smaller."""
        before = resident_bytes()
        if self._model is not None:
            self._model.model.kv_cache.stop_touching()
        self._part = self._model = self._blocks = None
        give_back()
        return max(0, before - resident_bytes())

    def _count_blocks(self) -> int:
        part = self._loaded
        settings = cache_settings(self._config, part.shape, part.model)
        return count_blocks(part.model, settings, LayerCalls(_ignore))

    def _open_cache(self, num_blocks: int) -> str:
        """Make the cache, and return the kernels that use it."""
        part = self._loaded
        cache = KvCache(
            shape=part.model.cache_shape,
            num_blocks=num_blocks,
            block_size=self._config.block_size,
            device=part.shape.device,
            dtype=part.shape.cache_dtype,
        )
        # In the background, as rank 0 does it once it is attached.
        cache.touch()
        self._blocks = rank_blocks(self._config, part.shape, cache, self._collectives)
        model = part.model.backend(cache, self._layers)
        self._model = RankModel(model, self._collectives, part.shape.model.vocab_size)
        return model.kernel_set

    def _follow_by(self, clock: StepClock | None) -> None:
        self._clock = clock

    def _tap(self, layers: list[int]) -> None:
        assert self._model is not None
        assert isinstance(self._model.model, TapsStates)
        self._model.model.tap(layers)


def _ignore() -> None:
    pass
