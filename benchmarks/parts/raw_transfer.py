"""What moving bytes costs at least: a copy in memory, a checksum, raw TCP to another process."""

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from pagewire_shared.kv.checksum import crc32c

REGION_BYTES = 256 * 2**20
_RECEIVER = """
import socket, sys
port, region, piece, rounds = map(int, sys.argv[1:])
view = memoryview(bytearray(b"x") * region)
connection = socket.create_connection(("127.0.0.1", port))
for _ in range(rounds):
    at = 0
    while at < region:
        at += connection.recv_into(view[at : at + piece])
    connection.sendall(b"k")
"""


def best_and_median(measure: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Return the least and the median of some seconds, as GB/s of one region."""
    seconds = [measure() for _ in range(repeats)]
    return (
        REGION_BYTES / min(seconds) / 1e9,
        REGION_BYTES / statistics.median(seconds) / 1e9,
    )


def memcpy(repeats: int) -> tuple[float, float]:
    """GB/s of one thread that copies from one region to another, both far beyond the caches."""
    source = np.ones(REGION_BYTES, np.uint8)
    target = np.ones(REGION_BYTES, np.uint8)

    def copy() -> float:
        begun = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - begun

    return best_and_median(copy, repeats)


def checksum(repeats: int, piece_bytes: int = 2**20) -> tuple[float, float]:
    """GB/s of CRC-32C over a region, piece by piece."""
    region = memoryview(np.ones(REGION_BYTES, np.uint8)).cast("B")

    def check() -> float:
        begun = time.perf_counter()
        for at in range(0, REGION_BYTES, piece_bytes):
            crc32c(region[at : at + piece_bytes])
        return time.perf_counter() - begun

    return best_and_median(check, repeats)


def tcp(repeats: int, piece_bytes: int = 2**20) -> tuple[float, float]:
    """GB/s of sendall and recv_into over loopback, from a region of one process to another's."""
    region = memoryview(np.ones(REGION_BYTES, np.uint8)).cast("B")
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = (server.getsockname()[1], REGION_BYTES, piece_bytes, repeats)
        receiver = subprocess.Popen([sys.executable, "-c", _RECEIVER, *map(str, arguments)])
        connection, _ = server.accept()

    def send() -> float:
        begun = time.perf_counter()
        for at in range(0, REGION_BYTES, piece_bytes):
            connection.sendall(region[at : at + piece_bytes])
        if connection.recv(1) != b"k":
            raise RuntimeError("the receiver ended")
        return time.perf_counter() - begun

    with connection:
        measured = best_and_median(send, repeats)
    receiver.wait()
    return measured
