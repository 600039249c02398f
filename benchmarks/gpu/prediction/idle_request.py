"""What a first token takes at an idle server beside the model: HTTP, frontend, scheduler, worker,
with a model that computes next to nothing, on a CPU."""

import http.client
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from shapes import TOY, write_checkpoint
from ttft import first_token_seconds

PROMPT, NUM_WARM_UPS, NUM_REQUESTS = 128, 20, 200
SETTINGS = {
    "device": "cpu",
    "dtype": "float32",
    "load-format": "dummy",
    "kv-cache-memory": "16MiB",
    "kv-offload": "off",
    "port": "0",
    "grpc-port": "0",
    "log-level": "warning",
}


def least_first_token() -> float:
    """Return the seconds of the fastest of many requests: others had to wait for a core."""
    dice = random.Random(0)
    flags = [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]
    with tempfile.TemporaryDirectory() as parent:
        folder = write_checkpoint(TOY, Path(parent))
        command = [sys.executable, "-m", "pagewire", "serve", str(folder), *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", _port(process), timeout=60)
            seconds = []
            for _ in range(NUM_WARM_UPS + NUM_REQUESTS):
                prompt = [dice.randrange(TOY.vocab - 2) for _ in range(PROMPT)]
                seconds.append(first_token_seconds(connection, TOY.name, prompt))
        finally:
            process.terminate()
            process.wait(30)
    return min(seconds)


def _port(process: "subprocess.Popen[str]") -> int:
    """Return the port that a server names once it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if "ready" not in line:
        raise SystemExit(f"serve did not start: {line}")
    return int(line.split("127.0.0.1:", 1)[1].split()[0].rstrip("/,;)"))
