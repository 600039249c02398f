"""Profiles the workers of an LLM, and calls the methods of their extension."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagewire.client.inspection_client import collective_rpc, read_profile, start_profile
from pagewire.client.topology_client import topology
from pagewire_shared.inspection.trace_files import require_folder, write_trace

LONGEST_SECONDS = 600.0


async def begin_profiles(address: str, profiler_dir: str) -> None:
    """Begin to profile all workers, for ten minutes and 1000 steps at most.

    Raises:
        InvalidRequestError: There is no folder for the traces.
    """
    require_folder(profiler_dir)
    await start_profile(address, timeout_seconds=LONGEST_SECONDS)


async def end_profiles(address: str, profiler_dir: str) -> list[Path]:
    """End the profiles of all workers; return the files with their traces."""
    folder = require_folder(profiler_dir)
    files = []
    for cell in await topology(address):
        for worker in cell.workers:
            trace = await read_profile(address, worker.worker, ends_profile=True)
            files.append(await asyncio.to_thread(write_trace, folder, worker.worker, trace))
    return files


async def call_ranks(
    address: str,
    method: str,
    timeout: float | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
) -> list[Any]:
    """Return what a method of the extension returns, of all ranks of all workers."""
    results = await collective_rpc(
        address, method, args=args, kwargs=kwargs, timeout_seconds=timeout
    )
    return [result for each in results.values() for result in each]
