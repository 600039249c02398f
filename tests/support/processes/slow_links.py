"""A link to a KV store whose rate a test changes: a proxy process between two Unix sockets."""

import signal
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "parts" / "throttled_proxy.py"
UNBOUNDED = 1e12


class SlowLink:
    """A context manager; `set_rate` cuts what is connected and goes on at another rate."""

    def __init__(self, folder: Path, address: str, bytes_per_second: float = UNBOUNDED) -> None:
        self._socket = folder / "link.sock"
        self._to = address.removeprefix("unix:")
        self._process: subprocess.Popen[str] | None = None
        self.set_rate(bytes_per_second)

    @property
    def address(self) -> str:
        """What to dial instead of the store."""
        return f"unix:{self._socket}"

    def set_rate(self, bytes_per_second: float) -> None:
        """Start anew."""
        self._stop()
        command = [sys.executable, str(_PROGRAM), "--listen", str(self._socket), "--to", self._to]
        command += ["--bytes-per-second", str(bytes_per_second)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"

    def cut(self) -> None:
        """Let nothing through, as a network that drops all packets; connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        """Let everything through that came meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> "SlowLink":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()
