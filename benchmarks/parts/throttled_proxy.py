"""A proxy between a Unix socket and another that lets through a number of bytes a second.

    python benchmarks/parts/throttled_proxy.py --listen a.sock --to b.sock --bytes-per-second 125000

Each direction of each connection has the whole rate. It prints a line when it listens.
"""

import argparse
import asyncio
import contextlib
import time

PIECE_BYTES = 16 * 1024


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_per_second: float
) -> None:
    """Pass bytes on until one side ends, each piece not before its time."""
    due = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(PIECE_BYTES):
            due = max(due, time.monotonic()) + len(data) / bytes_per_second
            await asyncio.sleep(due - time.monotonic())
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(listen: str, to: str, bytes_per_second: float) -> None:
    """Serve until cancelled."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            pump(reader, back, bytes_per_second), pump(there, writer, bytes_per_second)
        )

    server = await asyncio.start_unix_server(connect, listen)
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--bytes-per-second", type=float, default=125_000.0)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.listen, options.to, options.bytes_per_second))


if __name__ == "__main__":
    main()
