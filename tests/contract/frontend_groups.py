"""A group of frontends before one scripted scheduler, and a client for each."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from contract.frontend_peers import (
    WAIT_SECONDS,
    Attach,
    RunningFrontend,
    ScriptedScheduler,
    listening,
    running_frontend,
    served,
)


@dataclass
class GroupedFrontend:
    """A member of a group; `stop` ends it."""

    frontend: RunningFrontend
    client: httpx.AsyncClient
    attach: Attach
    stack: AsyncExitStack

    async def stop(self) -> None:
        await self.stack.aclose()


@asynccontextmanager
async def frontend_group(
    checkpoint: Path, folder: Path, names: str = "ab", *, is_exact: bool = True, **settings: Any
) -> AsyncIterator[list[GroupedFrontend]]:
    """Yield frontends that know each other, on one scheduler."""
    models = served(checkpoint)
    models.models[0].is_exact = is_exact
    models.models[0].namings.add(layout_fingerprint=bytes(16), dtype="float32", block_size=16)
    scheduler = ScriptedScheduler(models)
    peers = tuple(f"{name}=unix:{folder}/{name}.sock" for name in names)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(scheduler))
        members = []
        for name in names:
            own = await stack.enter_async_context(AsyncExitStack())
            running = running_frontend(
                checkpoint,
                [port],
                frontend_name=name,
                peer_listen=f"unix:{folder}/{name}.sock",
                peer=peers,
                **settings,
            )
            frontend = await own.enter_async_context(running)
            await frontend.status.wait("ready")
            attach = await scheduler.attached()
            client = httpx.AsyncClient(base_url=frontend.http_url, timeout=WAIT_SECONDS)
            await own.enter_async_context(client)
            members.append(GroupedFrontend(frontend, client, attach, own))
        yield members
