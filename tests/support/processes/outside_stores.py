"""Servers of Mooncake Store and LMCache as processes that tests kill, stop and start again.

They are from the environment of `make kv-ecosystem`, whose Python runs the tests."""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from support.processes.kv_stores import _Process
from support.processes.processes import free_port, wait_until

START_SECONDS = 30.0
_REUSING = """
import socket
import sys
from lmcache.v1.server import __main__ as server

class Reusing(socket.socket):
    def bind(self, address):
        # The server does not; for a minute after its end no other could take its port.
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super().bind(address)

socket.socket = Reusing
server.main()
"""
LENT_BYTES = 64 * 1024 * 1024


class _Server(_Process, ABC):
    """A server with a log that says when it has started.

    Attributes:
        tier: What usage calls blocks that come from it.
        transfer_config: The flag that lets workers use it.
    """

    tier: str
    port: int

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / f"{self.tier}-{self.port}.log"
        self.start()

    @property
    @abstractmethod
    def transfer_config(self) -> dict[str, Any]: ...

    @abstractmethod
    def arguments(self) -> list[str]: ...

    @property
    @abstractmethod
    def has_started(self) -> bool: ...

    def start(self) -> None:
        """Start it, on the port that it has had from the beginning."""
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self.arguments(), stdout=log, stderr=subprocess.STDOUT, env=_environment()
            )
        wait_until(lambda: self.has_started, START_SECONDS, f"{self.tier}: {self._log.read_text()}")


class MooncakeMaster(_Server):
    """A master of Mooncake Store with its metadata server; clients lend the memory."""

    tier = "mooncake"

    def __init__(self, folder: Path) -> None:
        self.admin_port = free_port()
        self.metadata_port = free_port()
        super().__init__(folder)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def transfer_config(self) -> dict[str, Any]:
        return self.config_at(self.address)

    def config_at(self, address: str, **settings: Any) -> dict[str, Any]:
        """The flag for workers that reach the master at another address, such as a proxy's."""
        return {
            "kv_connector": "MooncakeStoreConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "master_server_address": address,
                "metadata_server": f"http://127.0.0.1:{self.metadata_port}/metadata",
                "global_segment_size": 0,  # another process lends memory, unless a test says so
                "local_buffer_size": 16 * 1024 * 1024,
                **settings,
            },
        }

    def arguments(self) -> list[str]:
        import mooncake

        (folder,) = mooncake.__path__
        return [
            str(Path(folder) / "mooncake_master"),
            *("-rpc_address=127.0.0.1", f"-rpc_port={self.port}"),
            *("-metrics_host=127.0.0.1", f"-metrics_port={self.admin_port}"),
            *("-enable_http_metadata_server=true", "-http_metadata_server_host=127.0.0.1"),
            f"-http_metadata_server_port={self.metadata_port}",
            *("-default_kv_lease_ttl=200", "-client_ttl=3"),
        ]

    @property
    def has_started(self) -> bool:
        return "admin server started" in self._log.read_text(errors="replace")


class LmcacheServer(_Server):
    """A server of LMCache that keeps entries in its memory."""

    tier = "lmcache"

    @property
    def transfer_config(self) -> dict[str, Any]:
        return self.config_at(f"127.0.0.1:{self.port}")

    def config_at(self, address: str) -> dict[str, Any]:
        """The flag for workers that reach the server at another address, such as a proxy's."""
        return {
            "kv_connector": "LMCacheConnectorV1",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"lmcache.remote_url": f"lm://{address}"},
        }

    def arguments(self) -> list[str]:
        return [sys.executable, "-c", _REUSING, "127.0.0.1", str(self.port), "cpu"]

    @property
    def has_started(self) -> bool:
        return "Server started" in self._log.read_text(errors="replace")


class MooncakeLender(_Process):
    """A client of a Mooncake master that only lends memory: blocks outlive all workers in it."""

    def __init__(self, master: MooncakeMaster, num_bytes: int = LENT_BYTES) -> None:
        given = master.transfer_config["kv_connector_extra_config"]
        lines = (
            "import sys, threading",
            "from mooncake.store import MooncakeDistributedStore",
            "store = MooncakeDistributedStore()",
            f"status = store.setup('127.0.0.1', {given['metadata_server']!r},"
            f" {num_bytes}, 1 << 24, 'tcp', '', {master.address!r})",
            "print('status', status, flush=True)",
            "threading.Event().wait()",
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said == "status 0\n", said


def _environment() -> dict[str, str]:
    # LMCache reports its use to its makers unless it is asked not to.
    return {**os.environ, "LMCACHE_TRACK_USAGE": "false", "GLOG_minloglevel": "0"}
