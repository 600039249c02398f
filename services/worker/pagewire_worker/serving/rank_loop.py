"""The loop of a rank behind the first: it loads its part of the model, then follows rank 0."""

import contextlib
import dataclasses
import json
from collections.abc import Callable

import torch

from pagewire_shared.errors import InternalError, PagewireError
from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.backend.state_tap import TapsStates
from pagewire_worker.config import WorkerConfig
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.loading.cache_sizing import count_blocks
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.loader import cache_settings
from pagewire_worker.loading.ranks import rank_source
from pagewire_worker.loading.replica_shape import ReplicaShape, resolve_shape
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.messages import RankCommand, RankMessage, decode, decode_batch
from pagewire_worker.parallel.rank_group import STEP_SECONDS
from pagewire_worker.parallel.rank_model import RankModel, from_bits
from pagewire_worker.parallel.rank_task import RankTask
from pagewire_worker.parallel.replies import gather_replies
from pagewire_worker.parallel.shared_collectives import SharedCollectives


def serve_task(task: RankTask) -> int | None:
    """Serve rank 0 until a rank is lost; return that rank. Raises StartupError."""
    memory = GroupMemory(task.size, task.fd, task.slot_bytes)
    topology = RankTopology(task.rank, task.size)
    collectives = SharedCollectives(memory, topology, int(STEP_SECONDS * 1000))
    return serve_rank(task.config, collectives)


@torch.inference_mode()
def serve_rank(config: WorkerConfig, collectives: SharedCollectives) -> int | None:
    """Load the part of a rank and serve rank 0 until a rank is lost; return that rank.

    Raises:
        PagewireError: The part cannot be loaded, or a step failed in this rank; it is lost then.
    """
    try:
        rank = _Rank(config, collectives)
        while True:
            rank.follow(decode(collectives.receive()))
    except RankLostError:
        return collectives.lost
    except PagewireError:
        collectives.lose(collectives.topology.tp_rank)
        raise
    except Exception as error:
        collectives.lose(collectives.topology.tp_rank)
        raise PagewireError(f"{type(error).__name__}: {error}") from error


class _Rank:
    def __init__(self, config: WorkerConfig, collectives: SharedCollectives) -> None:
        self._config = config
        self._collectives = collectives
        # Rank 0 reports which weights these are.
        self._shape: ReplicaShape = resolve_shape(config, is_hashed=False)
        settings = load_settings(config, self._shape, lambda fraction, detail: None)
        settings = dataclasses.replace(settings, collectives=collectives)
        self._source = rank_source(self._shape, collectives.topology)
        self._loaded = self._source.load(settings)
        self._model: RankModel | None = None
        self._functions: dict[str, Callable[..., object]] = {
            "count_blocks": self._count_blocks,
            "open_cache": self._open_cache,
            "tap": self._tap,
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
        model = self._model
        assert model is not None
        arrays = message.arrays
        if message.command is RankCommand.FORWARD:
            model.forward(decode_batch(message))
            self._collectives.check()
        elif message.command is RankCommand.LOGITS:
            model.logits(from_bits(arrays[0], self._shape.dtype))
        else:
            model.copy_blocks(*(torch.tensor(array) for array in arrays))

    def _count_blocks(self) -> int:
        settings = cache_settings(self._config, self._shape, self._loaded)
        return count_blocks(self._loaded, settings, LayerCalls(_ignore))

    def _open_cache(self, num_blocks: int) -> None:
        cache = KvCache(
            shape=self._loaded.cache_shape,
            num_blocks=num_blocks,
            block_size=self._config.block_size,
            device=self._shape.device,
            dtype=self._shape.cache_dtype,
        )
        # In the background, as rank 0 does it once it is attached.
        cache.touch()
        model = self._loaded.backend(cache, LayerCalls(_ignore))
        self._model = RankModel(model, self._collectives, self._shape.model.vocab_size)

    def _tap(self, layers: list[int]) -> None:
        assert self._model is not None
        assert isinstance(self._model.model, TapsStates)
        self._model.model.tap(layers)


def _ignore() -> None:
    pass
