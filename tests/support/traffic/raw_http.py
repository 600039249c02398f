"""HTTP as bytes on a socket, for what no client library would send."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

WAIT_SECONDS = 10.0
LINE = b"\r\n"


@dataclass
class RawResponse:
    """One response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error of the envelope, which must be whole."""
        assert self.headers["content-type"] == "application/json", self
        error = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert all(value is None or isinstance(value, str) for value in error.values())
        return error


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; that the server has closed shows in what it answers."""
        self.writer.write(data)
        try:
            await asyncio.wait_for(self.writer.drain(), WAIT_SECONDS)
        except ConnectionError:
            return

    async def response(
        self, *, is_head: bool = False, seconds: float = WAIT_SECONDS
    ) -> RawResponse:
        """Read one response, which must come within `seconds`."""
        async with asyncio.timeout(seconds):
            head = await self.reader.readuntil(LINE * 2)
            status, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
            pairs = [line.split(": ", 1) for line in lines]
            headers = {name.lower(): value for name, value in pairs}
            body = b""
            if headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
            elif not is_head:
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return RawResponse(int(status.split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Wait until the server ends the connection; False when it does not."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while await self.reader.read(65536):
                    continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    async def close(self) -> None:
        """Leave."""
        self.writer.close()


async def connect(port: int) -> RawClient:
    """Return a new connection."""
    return RawClient(*await asyncio.open_connection("127.0.0.1", port))


def request(
    method: str = "GET", target: str = "/version", *headers: str, body: bytes = b""
) -> bytes:
    """Return a request with a Host and, for a body, its length unless `headers` say it."""
    lines = [f"{method} {target} HTTP/1.1", "Host: test", *headers]
    if body and not any(header.lower().startswith(("content-l", "transf")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + LINE * 2 + body
