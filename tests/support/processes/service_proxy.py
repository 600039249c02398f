"""What a cluster does for a Service with an address of its own: passes each connection to one of
the pods behind it, in turns. Run as a program.

    service_proxy.py ENDPOINTS PORT=TARGET...

ENDPOINTS is a JSON file with a list of hosts, read for every connection: those of pods that are
ready and are not told to end. Connections that are open stay where they are. Without a host a
connection is reset, as a cluster refuses it.
"""

import asyncio
import itertools
import json
import socket
import struct
import sys
from pathlib import Path

_READ_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _serve(endpoints: Path, port: int, target: int) -> None:
    turns = itertools.count()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hosts = json.loads(endpoints.read_text())  # noqa: ASYNC240 - a line of a local file
        if not hosts:
            _reset(writer)
            return
        try:
            there = await asyncio.open_connection(hosts[next(turns) % len(hosts)], target)
        except OSError:
            _reset(writer)
            return
        try:
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
        finally:
            writer.close()
            there[1].close()

    server = await asyncio.start_server(connect, "0.0.0.0", port)
    await server.serve_forever()


async def main(endpoints: str, *ports: str) -> None:
    """Serve until killed."""
    pairs = [port.partition("=") for port in ports]
    await asyncio.gather(
        *(_serve(Path(endpoints), int(port), int(target)) for port, _, target in pairs)
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
