"""Profiles of all workers: POST /start_profile and /stop_profile, in vLLM's form. A key needs the
scope `admin`. The traces become files in --profiler-dir, which vLLM's workers write themselves."""

import asyncio
import contextlib

from fastapi import APIRouter, Response

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.scheduler.inspection_link import ProfileCalls
from pagewire_shared.inspection.trace_files import require_folder, write_trace


def make_router(calls: ProfileCalls, profiler_dir: str) -> APIRouter:
    """Return the two endpoints."""
    router = APIRouter()

    @router.post("/start_profile")
    async def start_profile() -> Response:
        """Begin to profile all workers, for ten minutes and 1000 steps at most."""
        with noted("StartProfile", {}):
            require_folder(profiler_dir)
            await calls.start_all()
        return Response()

    @router.post("/stop_profile")
    async def stop_profile() -> Response:
        """End the profiles, and write a file for each worker."""
        written = []
        with noted("ReadProfile", {}):
            folder = require_folder(profiler_dir)
            async with contextlib.aclosing(calls.end_all()) as traces:
                async for worker, trace in traces:
                    path = await asyncio.to_thread(write_trace, folder, worker, trace)
                    written.append({"worker": worker, "path": str(path)})
        return json_response({"traces": written})

    return router
