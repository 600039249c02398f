"""Serves the pages and their files. They hold no data, so that they need no key."""

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse

from pagewire_frontend.http.page.files import load_files
from pagewire_frontend.http.server.errors import json_response
from pagewire_shared.process.metrics import package_version


def make_router(*, are_keys_required: bool) -> APIRouter:
    """Return the endpoints; `are_keys_required` makes the pages ask for an API key."""
    router = APIRouter(include_in_schema=False)
    files = load_files()
    about = {
        "name": "Pagewire",
        "version": package_version(),
        "is_key_required": are_keys_required,
        "docs": "/docs",
    }

    @router.get("/")
    async def index(request: Request) -> Response:
        """Return the page to a browser, and a line of text or JSON to other programs."""
        accept = request.headers.get("accept", "")
        if "text/html" in accept:
            return files["index.html"].answer(request.headers.get("if-none-match"))
        headers = {"vary": "accept", "cache-control": "no-cache"}
        if "application/json" in accept:
            return json_response(about, headers=headers)
        line = f"Pagewire {about['version']} is running; {about['docs']} describes its API\n"
        return PlainTextResponse(line, headers=headers)

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        """Return the page that describes the API."""
        return files["docs.html"].answer(request.headers.get("if-none-match"))

    @router.get("/page/{name}")
    async def page_file(name: str, request: Request) -> Response:
        """Return a file that the pages load."""
        file = files.get(name)
        if file is None:
            raise HTTPException(404, "Not Found")
        return file.answer(request.headers.get("if-none-match"))

    return router
