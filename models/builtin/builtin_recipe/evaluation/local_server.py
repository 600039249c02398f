"""A `pagewire serve` of its own for the time of an evaluation."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STOP_SECONDS: Final = 20.0
_URL: Final = re.compile(r"http://[^\s/]+")


class ServerError(Exception):
    """The server did not start; what it said is on the error output."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve `folder` on ports that are free and yield the OpenAI URL; ends it afterwards.

    Raises `ServerError` if it ends before it is ready.
    """
    command = [sys.executable, "-m", "pagewire", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(
        [*command, "--grpc-port", "0", "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = _URL.search(process.stdout.readline())
            if found is None:
                raise ServerError(f"pagewire serve {folder} did not start")
            yield f"{found.group()}/v1"
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
