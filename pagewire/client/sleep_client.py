"""Client of the AdminService: sleep and wake of workers."""

from collections.abc import Collection

from pagewire.client.admin_client import ANSWER_MARGIN_SECONDS, admin_stub, key_metadata
from pagewire.client.topology_client import WorkerFacts, topology, worker_facts
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.sleep.convert import mode_to_message, tags_to_message
from pagewire_shared.sleep.state import MemoryTag, SleepMode, check_level

SLEEP_SECONDS = 60.0
WAKE_SECONDS = 300.0


async def sleep(
    address: str,
    *,
    level: int = 1,
    mode: SleepMode = SleepMode.KEEP,
    model: str | None = None,
    worker: str | None = None,
    timeout_seconds: float = SLEEP_SECONDS,
    api_key: str | None = None,
) -> list[WorkerFacts]:
    """Let workers give their memory back; return them once they have.

    Args:
        address: gRPC address of a frontend or scheduler.
        level: 1 keeps what is known of the checkpoint and the content of adapters, 2 nothing.
        mode: What becomes of the requests that run there.
        model: Served name; None for all.
        worker: Id of one worker in hex, or its beginning; None for all.
        timeout_seconds: Longest time for the workers.
        api_key: Key for frontends that require one.

    Raises:
        InvalidRequestError: A worker was started without sleep mode, or the level does not exist.
        UnavailableError: Not all sleep after that time.
    """
    request = admin_pb2.SleepRequest(
        level=check_level(level),
        mode=mode_to_message(mode),
        model=model,
        worker=worker,
        timeout_ms=int(timeout_seconds * 1000),
    )
    async with admin_stub(address) as stub:
        response = await stub.Sleep(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [worker_facts(one) for one in response.workers]


async def wake_up(
    address: str,
    *,
    tags: Collection[MemoryTag] = (),
    model: str | None = None,
    worker: str | None = None,
    timeout_seconds: float = WAKE_SECONDS,
    api_key: str | None = None,
) -> list[WorkerFacts]:
    """Let workers make parts of their memory anew, all for no `tags`; return them once they have.

    Raises:
        UnavailableError: A worker cannot, and stays asleep; or not all have after that time.
    """
    request = admin_pb2.WakeUpRequest(
        tags=tags_to_message(tags),
        model=model,
        worker=worker,
        timeout_ms=int(timeout_seconds * 1000),
    )
    async with admin_stub(address) as stub:
        response = await stub.WakeUp(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [worker_facts(one) for one in response.workers]


async def is_sleeping(address: str, *, api_key: str | None = None) -> bool:
    """Return whether there are workers, and none is awake."""
    cells = await topology(address, api_key=api_key)
    workers = [worker for cell in cells for worker in cell.workers]
    return bool(workers) and all(worker.memory != "awake" for worker in workers)
