"""Blocks in a Redis behind TLS with certificates on both sides, by the URL alone."""

import asyncio
import random
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagewire.cli.certs.authority import Authority
from pagewire_shared.security.roles import LinkRole
from support.cells.kv_cells import PATIENCE_SECONDS
from support.processes.damaged_wire import AT_A_TIME, LAYOUT, NUM_BYTES, Peer, make_blocks
from support.processes.kv_stores import KvStore, RedisServer, tier_stats

NUM_IN_MEMORY = 16


@contextmanager
def tls_in_front(socket: Path, own: Path) -> Iterator[int]:
    """Yield the port of a server that wants a client's certificate and passes bytes on."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(own / "ca.crt"))
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(socket))
        pumps = (pump(reader, inner_writer), pump(inner_reader, writer))
        await asyncio.gather(*pumps, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    begun = asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    server = asyncio.run_coroutine_threadsafe(begun, loop).result(PATIENCE_SECONDS)
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def kept_by_redis(folder: Path, url: str, wanted: int) -> tuple[int, str]:
    """Put more blocks than fit into the memory, until `wanted` come back one after the other.

    Returns how many came back at last, and the fault of the tier.
    """
    with KvStore(folder, "--redis", url, "--memory-size", str(NUM_IN_MEMORY * NUM_BYTES)) as store:
        peer, blocks = Peer(store.address), make_blocks(2 * NUM_IN_MEMORY, random.Random(1))
        await peer.connector.register(LAYOUT, [store.address])
        found: set[bytes] = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found) < wanted or not found:
                # What was not written before it left the memory is put again.
                left = [block for block in blocks if block.name not in found]
                for begin in range(0, len(left), AT_A_TIME):
                    await peer.connector.put(left[begin : begin + AT_A_TIME])
                found = {block.name for block in blocks if await peer.get([block.name])}
        fault = (await tier_stats(store.address))["redis"].fault
        await peer.connector.close()
    return len(found), fault


def test_the_url_names_certificates(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "cell", 10.0)
    authority.issue_public(tmp_path / "redis", ["127.0.0.1"], days=1.0)
    own = tmp_path / "own"
    authority.issue(own, LinkRole.KVSTORE, cell="cell", instance="1", days=1.0)
    num = 2 * NUM_IN_MEMORY
    with (
        RedisServer(tmp_path) as server,
        tls_in_front(server.socket, tmp_path / "redis") as port,
    ):
        url = f"rediss://127.0.0.1:{port}/0"
        trusting = f"ssl_ca_certs={own / 'ca.crt'}"
        named = f"{trusting}&ssl_certfile={own / 'tls.crt'}&ssl_keyfile={own / 'tls.key'}"
        assert asyncio.run(kept_by_redis(tmp_path, f"{url}?{named}", num)) == (num, "")
        found, fault = asyncio.run(kept_by_redis(tmp_path, url, 0))
        assert found <= NUM_IN_MEMORY
        assert "certificate verify failed" in fault
