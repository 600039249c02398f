"""llama.cpp's server, by its path and that of a GGUF file of the same model."""

import json
from dataclasses import dataclass
from pathlib import Path

from compare.cases import MOST_STREAMS
from compare.peers import http_server
from compare.peers.http_server import HOST, MODEL, HttpServer
from compare.peers.protocol import KV_BYTES, MAX_LENGTH, Setup

_BYTES_PER_VALUE = 2  # KV is f16.


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """One build with one file.

    Attributes:
        label: Its column.
        program: Path of llama-server.
        gguf: The model's file.
        arguments: More arguments.
    """

    label: str
    program: Path
    gguf: Path
    arguments: tuple[str, ...] = ()

    def settings(self, setup: Setup) -> str:
        """How it is set up."""
        more = f" {' '.join(self.arguments)}" if self.arguments else ""
        length = slot_length(setup.model)
        return (
            f"{self.gguf.name}{more}; {setup.num_threads} threads, "
            f"{MOST_STREAMS} slots of {length} tokens, f16 KV"
        )

    def start(self, setup: Setup) -> HttpServer:
        """Return it when it answers. Raises NotStartedError."""
        port = http_server.free_port()
        threads = str(setup.num_threads)
        command = [str(self.program), "-m", str(self.gguf), "-t", threads, "-tb", threads]
        command += ["--host", HOST, "--port", str(port), "--alias", MODEL]
        command += ["-np", str(MOST_STREAMS), "-c", str(MOST_STREAMS * slot_length(setup.model))]
        command += ["-b", "2048", "-ub", "512", *self.arguments]
        return http_server.start(
            command,
            {},
            port=port,
            log=setup.logs / f"{self.label}.log",
            start_seconds=setup.start_seconds,
        )


def slot_length(model: Path) -> int:
    """Return the tokens of each slot: the KV budget is divided among them."""
    config = json.loads((model / "config.json").read_text())
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    per_token = config.get("num_key_value_heads", heads) * head_dim * 2 * _BYTES_PER_VALUE
    per_token *= config["num_hidden_layers"]
    fitting: int = KV_BYTES // per_token // MOST_STREAMS
    return min(fitting // 256 * 256, MAX_LENGTH)
