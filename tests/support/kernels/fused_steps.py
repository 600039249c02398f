"""One checkpoint behind the kernels and behind torch, and the same steps for both."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.backend.source import LoadedReplicaModel, LoadSettings
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.cpu_kernels.decoder import load_decoder
from pagewire_worker.cpu_kernels.fused_model import FusedModel
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.loading.native_source import NativeSource
from pagewire_worker.models.registry import read_plan

CPU = torch.device("cpu")
MAX_LEN = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions of one sequence that a step computes."""

    sequence: int
    begin: int
    end: int


@dataclass(slots=True)
class Follower:
    """Takes layers one by one, or does not, and counts them."""

    is_following: bool
    num_layers: int = 0

    def on_layer(self) -> None:
        self.num_layers += 1


@dataclass(slots=True)
class Calls:
    """What a backend told of its layers: how often it said that it gets on, and a follower."""

    follower: Follower
    num_advances: int = 0

    def advance(self) -> None:
        self.num_advances += 1

    @property
    def watch(self) -> LayerCalls:
        return LayerCalls(self.advance, self.follower)


def silent() -> LayerCalls:
    """Return a watch that nobody listens to."""
    return LayerCalls(lambda: None)


def fused_model(folder: Path, pool: KernelPool, dtype: torch.dtype) -> FusedModel:
    """Load a checkpoint for the kernels of one instruction set."""
    config = read_plan(folder)
    reader = SafetensorsReader(folder, CPU, dtype)
    decoder = load_decoder(config, reader, pool, dtype, "none", MAX_LEN)
    reader.finish()
    return FusedModel(decoder, pool, None)


def torch_model(folder: Path, dtype: torch.dtype, block_size: int) -> LoadedReplicaModel:
    """Load a checkpoint for torch's ops."""
    settings = LoadSettings(
        device=CPU,
        dtype=dtype,
        max_model_len=MAX_LEN,
        block_size=block_size,
        attention_backend="reference",
        linear_backend="torch",
        cpu_backend="torch",
        on_progress=lambda fraction: None,
    )
    return NativeSource(folder, read_plan(folder)).load(settings)


def over_cache(
    model: LoadedReplicaModel,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    watch: LayerCalls,
) -> ModelBackend:
    """Return `model` over a cache whose blocks hold what no step may read."""
    cache = KvCache(
        shape=model.cache_shape,
        num_blocks=num_blocks,
        block_size=block_size,
        device=CPU,
        dtype=dtype,
    )
    for layer in cache.layers:
        layer.key.fill_(float("nan"))
        layer.value.fill_(float("nan"))
    return model.backend(cache, watch)


@dataclass(slots=True)
class Sequences:
    """Token ids of some sequences, and their blocks, which lie anywhere in the pool."""

    lengths: Sequence[int]
    block_size: int
    vocab: int
    seed: int = 0
    token_ids: list[torch.Tensor] = field(init=False)
    tables: list[np.ndarray] = field(init=False)
    num_blocks: int = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        counts = [-(-length // self.block_size) for length in self.lengths]
        self.num_blocks = sum(counts) + 2
        blocks = torch.randperm(self.num_blocks, generator=generator).numpy()
        self.tables = np.split(blocks, np.cumsum(counts))[: len(counts)]
        self.token_ids = [
            torch.randint(0, self.vocab, (length,), generator=generator) for length in self.lengths
        ]

    def batch(self, chunks: Sequence[Chunk]) -> StepBatch:
        """Return a step that computes `chunks` and gives the states of all their tokens."""
        lengths = [chunk.end - chunk.begin for chunk in chunks]
        ids = [self.token_ids[c.sequence][c.begin : c.end] for c in chunks]
        positions = [torch.arange(c.begin, c.end) for c in chunks]
        slots = [self._slots(c.sequence)[c.begin : c.end] for c in chunks]
        tables = np.zeros((len(chunks), max(map(len, self.tables))), dtype=np.int64)
        for row, chunk in zip(tables, chunks, strict=True):
            row[: len(self.tables[chunk.sequence])] = self.tables[chunk.sequence]
        return StepBatch(
            token_ids=torch.cat(ids),
            positions=torch.cat(positions),
            slot_mapping=torch.cat(slots),
            output_rows=torch.arange(sum(lengths)),
            attention=AttentionMetadata(
                np.concatenate(([0], np.cumsum(lengths))), np.array([c.end for c in chunks]), tables
            ),
        )

    def _slots(self, sequence: int) -> torch.Tensor:
        starts = torch.from_numpy(self.tables[sequence]) * self.block_size
        return (starts[:, None] + torch.arange(self.block_size)).flatten()


def run(backend: ModelBackend, batches: Sequence[StepBatch]) -> list[torch.Tensor]:
    """Return the hidden states of every step."""
    with torch.inference_mode():
        return [backend.forward(batch).clone() for batch in batches]
