"""What a write to a socket costs when other work lies between it and the next: its reader falls
asleep in between and has to be woken.

    python benchmarks/spaced_writes.py [--sockets 256] [--rounds 200]

Prints CPU of the writing thread per write, without the work in between.
"""

import argparse
import asyncio
import multiprocessing
import selectors
import socket
import time

import uvloop

BODY = b"x" * 260
GAPS_US = (0, 2, 4, 6, 10)
PAUSE_SECONDS = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sockets", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    print("| work between two writes, us | CPU of a write, us |")
    print("| --- | --- |")
    for gap_us in GAPS_US:
        cost = uvloop.run(measure(arguments.sockets, arguments.rounds, gap_us / 1e6))
        print(f"| {gap_us} | {cost * 1e6:.1f} |", flush=True)


async def measure(num_sockets: int, num_rounds: int, gap_seconds: float) -> float:
    """Return CPU seconds per write."""
    loop = asyncio.get_running_loop()
    server = socket.create_server(("127.0.0.1", 0))
    clients, transports = [], []
    for _ in range(num_sockets):
        clients.append(socket.create_connection(server.getsockname()))
        accepted, _ = server.accept()
        accepted.setblocking(False)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=accepted)
        transports.append(transport)
    reader = multiprocessing.get_context("fork").Process(target=read, args=(clients,))
    reader.start()
    cpu = 0.0
    for _ in range(num_rounds):
        await asyncio.sleep(PAUSE_SECONDS)
        began = time.thread_time()
        for transport in transports:
            due = time.perf_counter() + gap_seconds
            while time.perf_counter() < due:
                pass
            transport.write(BODY)
        cpu += time.thread_time() - began
    reader.kill()
    reader.join()
    return cpu / num_sockets / num_rounds - gap_seconds


def read(clients: list[socket.socket]) -> None:
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            ready.recv(65536)


if __name__ == "__main__":
    main()
