"""This project, by the Python that runs the comparison; several variants differ in arguments."""

import shlex
import sys
from dataclasses import dataclass

from compare.peers import http_server
from compare.peers.http_server import HOST, MODEL, HttpServer
from compare.peers.protocol import KV_BYTES, MAX_LENGTH, MAX_STREAMS, Setup
from pagewire_worker.cpu_kernels.build import is_built


@dataclass(frozen=True, slots=True)
class Pagewire:
    """A variant of ours.

    Attributes:
        label: Its column.
        arguments: More arguments of `pagewire serve`; they win over the common ones.
    """

    label: str
    arguments: tuple[str, ...] = ()

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        more = f" {shlex.join(self.arguments)}" if self.arguments else ""
        kernels = "kernels compiled" if is_built() else "KERNELS NOT COMPILED: torch computes"
        return (
            f"serve{more}; {setup.dtype}, {setup.num_threads} threads, "
            f"KV {KV_BYTES >> 20} MiB; {kernels}"
        )

    def start(self, setup: Setup) -> HttpServer:
        """Return it when it answers. Raises NotStartedError."""
        port = http_server.free_port()
        command = [sys.executable, "-m", "pagewire", "serve", "--model", f"{MODEL}={setup.model}"]
        command += ["--host", HOST, "--port", str(port), "--grpc-port", "0"]
        command += ["--dtype", setup.dtype, "--max-model-len", str(MAX_LENGTH)]
        command += ["--kv-cache-memory", str(KV_BYTES), "--max-num-seqs", str(MAX_STREAMS)]
        command += ["--log-level", "warning", *self.arguments]
        return http_server.start(
            command,
            {"PAGEWIRE_CPU_THREADS": str(setup.num_threads)},
            port=port,
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )
