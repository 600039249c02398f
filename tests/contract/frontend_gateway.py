"""The HTTP side of a frontend before a scripted scheduler, and clients for it."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import openai
from contract.frontend_peers import WAIT_SECONDS, attached_frontend


@asynccontextmanager
async def gateway(checkpoint, **settings):
    """Yield (client, attach, frontend)."""
    async with (
        attached_frontend(checkpoint, **settings) as (frontend, attach),
        httpx.AsyncClient(base_url=frontend.http_url, timeout=WAIT_SECONDS) as client,
    ):
        await frontend.status.wait("ready")
        yield client, attach, frontend


@asynccontextmanager
async def openai_gateway(checkpoint, **settings):
    """Yield (OpenAI client, attach)."""
    async with (
        gateway(checkpoint, **settings) as (_, attach, frontend),
        openai.AsyncOpenAI(
            base_url=f"{frontend.http_url}/v1", api_key="none", max_retries=0
        ) as client,
    ):
        yield client, attach


def post(client, path, body, **kwargs):
    return asyncio.create_task(client.post(path, json=body, **kwargs))
