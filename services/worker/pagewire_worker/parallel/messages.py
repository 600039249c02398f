"""Messages of rank 0 to the other ranks: what to do, and arrays of numbers for it.

A message begins with three little-endian u32: kind, bytes of text, number of arrays. Behind them is
the text in UTF-8, then for each array its type, its dimensions and its numbers; each of them begins
at a multiple of eight bytes. Tables of blocks are int32.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagewire_worker.backend.adapters import NO_ADAPTER, AdapterRows
from pagewire_worker.backend.attention import AttentionMetadata, Int64Array
from pagewire_worker.backend.backend import GroupBatch, StepBatch

Array = npt.NDArray[Any]


class RankCommand(IntEnum):
    """What the other ranks do with a message."""

    FORWARD = 0
    """Run a step; the arrays are those of a batch."""
    LOGITS = 1
    """Compute the logits of hidden states."""
    COPY_BLOCKS = 2
    """Copy blocks of the KV cache."""
    CALL = 3
    """Call a function by its name, and reply."""
    READ_BLOCKS = 4
    """Give this rank's part of some layers of blocks."""
    WRITE_BLOCKS = 5
    """Write this rank's part of some layers of blocks."""


@dataclass(frozen=True, slots=True)
class RankMessage:
    """One message, decoded."""

    command: RankCommand
    text: str
    arrays: tuple[Array, ...]


_HEADER = struct.Struct("<III")
_ARRAY = struct.Struct("<II")
_TYPES = tuple(map(np.dtype, (np.int64, np.int32, np.float32, np.int16, np.uint8)))
_ALIGNMENT = 8


def encode(command: RankCommand, arrays: Sequence[Array] = (), text: str = "") -> bytes:
    """Return the bytes of a message."""
    encoded = text.encode()
    parts: list[Any] = [_HEADER.pack(command, len(encoded), len(arrays)), encoded]
    parts.append(bytes(-(_HEADER.size + len(encoded)) % _ALIGNMENT))
    for array in arrays:
        parts.append(_ARRAY.pack(_TYPES.index(array.dtype), array.ndim))
        parts.append(struct.pack(f"<{array.ndim}q", *array.shape))
        parts.append(np.ascontiguousarray(array))
        parts.append(bytes(-array.nbytes % _ALIGNMENT))
    return b"".join(parts)


def decode(message: bytes | bytearray) -> RankMessage:
    """Return a message that `encode` made; its arrays lie in `message`."""
    command, text_size, num_arrays = _HEADER.unpack_from(message)
    place = _HEADER.size + text_size
    text = bytes(message[_HEADER.size : place]).decode()
    arrays = []
    for _ in range(num_arrays):
        place += -place % _ALIGNMENT
        kind, num_dims = _ARRAY.unpack_from(message, place)
        place += _ARRAY.size
        shape = struct.unpack_from(f"<{num_dims}q", message, place)
        place += 8 * num_dims
        array = np.frombuffer(message, _TYPES[kind], math.prod(shape), place)
        place += array.nbytes
        arrays.append(array.reshape(shape))
    return RankMessage(RankCommand(command), text, tuple(arrays))


def encode_batch(batch: StepBatch, block_size: int) -> bytes:
    """Return the message of a step. Of block tables it has the entries that are read."""
    attention = batch.attention
    adapters = adapter_arrays(batch.adapters)
    facts = [batch.is_decode, batch.faults is not None, len(adapters)]
    flags = np.array(facts, dtype=np.int64)
    longest = int(attention.seq_lens.max(initial=0))
    num_blocks = -(-longest // block_size)
    mappings = (group.slot_mapping for group in batch.groups)
    tensors = (batch.token_ids, batch.positions, batch.output_rows, *mappings)
    numbers = (attention.query_starts, attention.seq_lens, *(one.numpy() for one in tensors))
    lengths = np.array([len(flags), *map(len, numbers)], dtype=np.int64)
    tables = (
        group.attention.block_tables[:, :num_blocks].astype(np.int32) for group in batch.groups
    )
    # An array by itself takes some microseconds on either side, so all numbers are in one.
    arrays: list[Array] = [lengths, np.concatenate((flags, *numbers)), *adapters, *tables]
    return encode(RankCommand.FORWARD, arrays)


def decode_batch(message: RankMessage) -> StepBatch:
    """Return the batch of a step. Its arrays lie in the message."""
    lengths, numbers, *tables = message.arrays
    ends = list(accumulate(lengths.tolist(), initial=0))
    flags, query_starts, seq_lens, *parts = (numbers[begin:end] for begin, end in pairwise(ends))
    is_decode, has_faults, num_adapters = flags.tolist()
    adapters, tables = tables[:num_adapters], tables[num_adapters:]
    token_ids, positions, output_rows, *mappings = map(torch.from_numpy, parts)
    groups = [
        GroupBatch(slots, AttentionMetadata(query_starts, seq_lens, blocks.astype(np.int64)))
        for slots, blocks in zip(mappings, tables, strict=True)
    ]
    return StepBatch(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=groups[0].slot_mapping,
        output_rows=output_rows,
        attention=groups[0].attention,
        is_decode=bool(is_decode),
        faults=torch.zeros(len(token_ids), dtype=torch.int64) if has_faults else None,
        further_groups=tuple(groups[1:]),
        adapters=adapter_rows(adapters),
    )


def adapter_arrays(rows: AdapterRows | None) -> list[Array]:
    """Return the arrays of a message for the adapters of rows: none for no adapter."""
    return [] if rows is None else [rows.slots.numpy()]


def adapter_rows(arrays: Sequence[Array]) -> AdapterRows | None:
    """Return the adapters of `adapter_arrays`."""
    if not arrays:
        return None
    (slots,) = arrays
    return AdapterRows(_tensor(slots), tuple(np.unique(slots[slots != NO_ADAPTER]).tolist()))


def _tensor(array: Int64Array) -> torch.Tensor:
    return torch.tensor(array)
