"""vLLM on a CPU, by a Python that has it; with zentorch's folder it takes its path for AMD Zen."""

import os
import shlex
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from compare.peers import http_server
from compare.peers.http_server import HOST, MODEL, HttpServer
from compare.peers.protocol import KV_BYTES, MAX_LENGTH, MAX_STREAMS, Setup

_TCMALLOC = "libtcmalloc_minimal.so.4"
_OPENMP = "libiomp5.so"


@dataclass(frozen=True, slots=True)
class Vllm:
    """One installation.

    Attributes:
        label: Its column.
        python: Of the environment that has it.
        zentorch: Folder to put in front of its packages, or None.
        arguments: More arguments; they win over the common ones.
    """

    label: str
    python: Path
    zentorch: Path | None = None
    arguments: tuple[str, ...] = ()

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        path = ", zentorch" if self.zentorch else ""
        more = f" {shlex.join(self.arguments)}" if self.arguments else ""
        preloaded = ", ".join(Path(name).name for name in self._preloaded())
        return (
            f"api_server{more}{path}; {setup.dtype}, {setup.num_threads} threads, "
            f"KV {KV_BYTES >> 20} MiB; preloaded: {preloaded or 'nothing'}"
        )

    def start(self, setup: Setup) -> HttpServer:
        """Return it when it answers. Raises NotStartedError."""
        port = http_server.free_port()
        command = [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(setup.model), "--served-model-name", MODEL]
        command += ["--host", HOST, "--port", str(port), "--dtype", setup.dtype]
        command += ["--max-model-len", str(MAX_LENGTH), "--max-num-seqs", str(MAX_STREAMS)]
        command += self.arguments
        return http_server.start(
            command,
            self._environment(setup),
            port=port,
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )

    def _environment(self, setup: Setup) -> dict[str, str]:
        cores = sorted(os.sched_getaffinity(0))[: setup.num_threads]
        return {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(KV_BYTES >> 30),
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in cores),
            "OMP_NUM_THREADS": str(setup.num_threads),
            "LD_PRELOAD": ":".join(self._preloaded()),
            # What is on this process's path is none of its business.
            "PYTHONPATH": str(self.zentorch.resolve()) if self.zentorch else "",
        }

    def _preloaded(self) -> list[str]:
        """Return the libraries that its authors advise to preload, as far as they are installed."""
        folder = sysconfig.get_config_var("MULTIARCH") or ""
        places = [Path("/usr/lib", folder, _TCMALLOC), Path("/usr/lib", _TCMALLOC)]
        openmp = self.python.absolute().parent.parent / "lib" / _OPENMP
        found = [str(place) for place in places if place.exists()][:1]
        return found + ([str(openmp)] if openmp.exists() else [])
