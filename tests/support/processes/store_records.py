"""The records of a store's tiers below its memory, to be read and replaced from outside."""

from collections.abc import Mapping
from pathlib import Path

import redis

from pagewire_kvstore.tiers.record_codec import decode_header
from support.processes.kv_stores import RedisServer


class Files:
    """The records of a disk tier."""

    def __init__(self, folder: Path) -> None:
        self.flags = ("--disk-path", str(folder))
        self._folder = folder / "blocks"

    def read(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self._folder.glob("*/*.kv")}

    def write(self, where: str, data: bytes) -> None:
        Path(where).write_bytes(data)


class Values:
    """The records in a Redis."""

    def __init__(self, server: RedisServer) -> None:
        self.flags = ("--redis", server.url)
        self._client = redis.Redis(unix_socket_path=str(server.socket))

    def read(self) -> dict[str, bytes]:
        names = [name.decode() for name in self._client.scan_iter("*", count=1000)]
        values = {name: self._client.get(name) for name in names if "quarantine" not in name}
        return {name: value for name, value in values.items() if isinstance(value, bytes)}

    def write(self, where: str, data: bytes) -> None:
        self._client.set(where, data)


def by_name(records: Mapping[str, bytes]) -> dict[bytes, tuple[str, bytes]]:
    """Return place and content of every record by the name of its block."""
    return {decode_header(data).key.name: (where, data) for where, data in records.items()}
