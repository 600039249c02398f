"""Workers that pull blocks from each other: real executors, real gRPC, plans made by hand."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from pagewire_shared.kv.load import LoadOrder, WorkerSource
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.options import kv_server_options
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_worker.link.adapter_service import AdapterContentService
from pagewire_worker.link.service import SERVICE_NAMES, KvTransferService, register
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.transfer.block_source import BlockSource
from pagewire_worker.transfer.kv_transfer import KvTransfer
from pagewire_worker.transfer.layer_seals import seals_by
from pagewire_worker.transfer.staging import Staging
from pagewire_worker.transfer_engines.engine import TransferEngine
from support.cells.worker_driver import Driver, load, request

BLOCK_SIZE = 16
SECONDS = 20.0
PROMPT = [3 + (7 * index) % 490 for index in range(10 * BLOCK_SIZE + 5)]
NAMES = [bytes([65 + index]) * 16 for index in range(10)]
"""Of the full blocks of PROMPT."""
HELD_BLOCKS = [11, 3, 7, 0, 9, 14, 2, 6, 12, 5, 8]
"""Where PROMPT lies at the holder."""
LOADED_BLOCKS = [4, 13, 1, 15, 8, 10, 0, 3, 2, 12]
"""Where its full blocks go to at the receiver."""


class Peer:
    """One worker without a scheduler."""

    def __init__(self, replica: Any, thread: ModelThread, staging: Staging) -> None:
        self.replica = replica
        self.model_runner = replica.model_runner
        self.thread = thread
        self.staging = staging
        self.driver = Driver.of(replica)
        self.address = ""
        self.service = KvTransferService(is_off=False)
        self.transfer: Any = None

    @property
    def worker_id(self) -> bytes:
        return self.replica.info.worker_id

    async def run(self, rows: Sequence[Any], **fields: Any) -> Any:
        """Run one plan."""
        return await self.thread.submit(lambda: self.driver.run(rows, **fields))

    async def chunk(self, begin: int, end: int, slot: int = 0, **fields: Any) -> Any:
        """Compute tokens `begin` to `end` of PROMPT and name the blocks that they fill."""
        named = range(begin // BLOCK_SIZE, end // BLOCK_SIZE)
        blocks = HELD_BLOCKS[: -(-end // BLOCK_SIZE)]
        plan = {
            "named_blocks": [HELD_BLOCKS[index] for index in named],
            "names": [NAMES[index] for index in named],
            **fields,
        }
        if begin == 0:
            plan["new_sequences"] = [request(slot, PROMPT, blocks)]
            num_new_blocks = 0
        else:
            plan["new_block_ids"] = blocks[-(-begin // BLOCK_SIZE) :]
            num_new_blocks = len(plan["new_block_ids"])
        row = (slot, begin, end - begin, int(end == len(PROMPT)), num_new_blocks)
        return await self.run([row], **plan)

    async def prefill(self, size: int = 64) -> list[int]:
        """Compute PROMPT in chunks and return what is sampled after it."""
        for begin in range(0, len(PROMPT), size):
            result = await self.chunk(begin, min(begin + size, len(PROMPT)))
            assert result.failure is None, result.failure
        return list(result.token_ids)

    async def decode(self, count: int) -> list[int]:
        """Sample `count` more tokens."""
        tokens: list[int] = []
        for index in range(count):
            result = await self.run([(0, len(PROMPT) + index, 1, 1, 0)])
            tokens += list(result.token_ids)
        return tokens

    async def payloads(self, names: Sequence[bytes] = NAMES) -> dict[bytes, bytes]:
        """Return the payloads of blocks by name; those that are not there are left out."""
        staging = torch.empty((len(names), self.replica.info.layout.bytes_per_block)).byte()
        found = await self.thread.submit(lambda: self.model_runner.blocks.copy_out(names, staging))
        return {names[n]: bytes(row.numpy()) for n, row in zip(found, staging, strict=False)}

    def pull_from(self, holder: "Peer", **fields: Any) -> Any:
        """Begin to load the full blocks of PROMPT."""
        order = {
            "load_id": 1,
            "store": "",
            "worker": WorkerSource(holder.address, holder.worker_id),
            "names": NAMES,
            "blocks": LOADED_BLOCKS,
            "timeout_ms": int(1000 * SECONDS),
            **fields,
        }
        return self.transfer.begin_load(LoadOrder(**order))

    async def has_pull(self, count: int = 1) -> None:
        """Return when `count` pulls are open here and the model thread knows them."""
        sharer = self.replica.sharer
        await eventually(lambda: len(sharer._pulls) == count and not sharer._inbox)

    async def is_clean(self) -> None:
        """Return when nothing is staged and no pull is open.

        Most often that is at once. But gRPC may lose the end of a call, on a machine that is busy:
        then a pull is over with its deadline, and not before.
        """
        staging, sharer = self.staging, self.replica.sharer
        sharer.wake()
        try:
            await eventually(lambda: staging.num_free_bytes == staging.num_bytes, 2 * SECONDS)
            await eventually(lambda: not sharer._pulls)
        except TimeoutError:
            report = io.StringIO(f"{staging.num_free_bytes} of {staging.num_bytes} bytes free\n")
            report.seek(0, io.SEEK_END)
            for pull in sharer._pulls:
                report.write(f"open: {vars(pull)}\n")
            for task in asyncio.all_tasks():
                task.print_stack(file=report)
            raise AssertionError(report.getvalue()) from None


async def eventually(condition: Any, seconds: float = SECONDS) -> None:
    """Return when `condition()` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def _listen(made: Peer, address: str) -> RpcServer:
    return await start_server(
        parse_address(address, setting="--listen"),
        lambda grpc_server: register(made.service, AdapterContentService(), grpc_server),
        SERVICE_NAMES,
        setting="--listen",
        options=kv_server_options(),
    )


@asynccontextmanager
async def peer(
    folder: Path,
    address: str,
    *,
    transport: str = "auto",
    staging: int = 1 << 22,
    keys: Sequence[bytes] = (),
    engine: TransferEngine | None = None,
    **settings: Any,
) -> AsyncIterator[Peer]:
    """Yield a worker that hands out blocks at `address`, and pulls them."""
    settings = {"block_size": BLOCK_SIZE, "kv_offload": "off", **settings}
    replica = load(folder, listen=address, kv_transport=transport, **settings)
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    is_shared = transport == "auto"
    made = Peer(replica, thread, Staging(staging, is_shared=is_shared))
    replica.sharer.connect(thread.nudge)
    thread.add_low_priority(replica.sharer.turn)
    info = replica.info
    seals = seals_by(keys, info.layout)
    source = BlockSource(
        replica.sharer,
        made.staging,
        info.layout,
        worker_id=info.worker_id,
        num_blocks=info.num_blocks,
        seals=seals,
        engine=engine,
    )
    made.source = source
    made.service.serve(source)
    made.transfer = KvTransfer(
        replica.model_runner,
        thread,
        info.layout,
        num_blocks=info.num_blocks,
        may_share_memory=is_shared,
        seals=seals,
        engine=engine,
    )
    server = await _listen(made, address)
    made.address = str(server.address)
    try:
        yield made
    finally:
        await made.transfer.close()
        with suppress(asyncio.CancelledError):
            await server.stop(0.0)
        await asyncio.to_thread(thread.stop, 5)
        made.staging.close()
