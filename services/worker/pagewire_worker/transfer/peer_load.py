"""A load of blocks from another worker, layer by layer; LoadRun has the common part."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol

import torch
from torch import Tensor

from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.offload.load_run import LoadRun, Submit
from pagewire_worker.transfer.holder_link import HolderLink
from pagewire_worker.transfer.incoming_layers import ArrivedLayers, IncomingLayers
from pagewire_worker.transfer.pull_client import PullClient

MAX_JOB_BYTES = 4 * 1024 * 1024
"""Bytes written in about a millisecond."""


class LayerPool(Protocol):
    """Blocks that layers are written into; called in the model thread."""

    def begin_load(self, blocks: Sequence[int]) -> None:
        """See BlockHolder."""
        ...

    def load_layers(
        self, blocks: Sequence[int], first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        """See BlockHolder."""
        ...

    def name_loaded(self, blocks: Sequence[int], names: Sequence[bytes]) -> None:
        """See BlockHolder."""
        ...


class PeerLoad(LoadRun):
    """One order until its answer.

    Args:
        submit: See Submit.
        bytes_per_layer: Bytes of one layer of one block.
    """

    def __init__(
        self,
        order: LoadOrder,
        link: HolderLink,
        submit: Submit,
        pool: LayerPool,
        *,
        num_layers: int,
        bytes_per_layer: int,
    ) -> None:
        super().__init__(order, submit)
        self._link = link
        self._pool = pool
        num_blocks = len(order.names)
        self._incoming = IncomingLayers(num_blocks, num_layers, bytes_per_layer)
        self._written = IncomingLayers(num_blocks, num_layers, bytes_per_layer)
        self._arrived: deque[ArrivedLayers] = deque()
        self._client: PullClient | None = None
        self._transport: KvTransport | None = None
        self._first_byte: float | None = None
        self._last_byte = 0.0
        self._is_begun = False

    @property
    def _has_arrived(self) -> bool:
        return bool(self._arrived)

    def _answer(self, outcome: LoadOutcome) -> LoadAnswer:
        first = self._last_byte if self._first_byte is None else self._first_byte
        return LoadAnswer(
            load_id=self._order.load_id,
            num_blocks=self._num_written,
            outcome=outcome,
            num_bytes=self._num_bytes,
            seconds=self._seconds,
            transport=self._transport,
            transfer_seconds=self._last_byte - first,
        )

    async def _read(self) -> None:
        order = self._order
        layers = self._link.pull(
            order.names, order.timeout_seconds, self._incoming, self._take_client
        )
        async with aclosing(layers):
            async for one in layers:
                self._last_byte = time.monotonic()
                if self._first_byte is None:
                    # The time before the first message is not part of the transfer.
                    self._first_byte = self._last_byte
                self._arrived.append(one)
                self._note_bytes(len(one.payload))

    def _take_client(self, client: PullClient, transport: KvTransport) -> None:
        self._client = client
        self._transport = transport

    def _write_some(self) -> int:
        count, num_bytes = 0, 0
        while self._arrived and num_bytes < MAX_JOB_BYTES:
            one = self._arrived.popleft()
            self._write(one)
            count += 1
            num_bytes += len(one.payload)
        begin = self._num_written
        end = begin + self._written.num_complete(begin)
        if end > begin:
            # Only a prefix of the blocks is named: a gap makes the blocks behind it useless.
            self._pool.name_loaded(self._order.blocks[begin:end], self._order.names[begin:end])
            self._num_written = end
        return count

    def _write(self, one: ArrivedLayers) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._pool.begin_load(self._order.blocks)
        covered = one.range
        blocks = self._order.blocks[covered.first_block : covered.first_block + covered.num_blocks]
        payload = torch.from_numpy(one.payload)
        self._pool.load_layers(blocks, covered.first_layer, covered.num_layers, payload)
        self._written.add(covered)

    def _after_write(self, count: int) -> None:
        if self._client is not None:
            self._client.grant(count)
