"""The services of a worker beside its attach: KV blocks and contents of adapters."""

import asyncio
from dataclasses import dataclass

from pagewire_worker.link.adapter_service import AdapterContentService
from pagewire_worker.link.service import KvTransferService
from pagewire_worker.transfer_engines.engine import TransferEngine


@dataclass(frozen=True, slots=True)
class WorkerPorts:
    """The services of one worker; they outlive its replicas.

    Attributes:
        transfer: Hands out KV blocks.
        adapters: Hands out contents of adapters.
        attached: Set while a scheduler has the worker.
        engine: The library by which blocks move between workers; None for none.
    """

    transfer: KvTransferService
    adapters: AdapterContentService
    attached: asyncio.Event
    engine: TransferEngine | None = None
