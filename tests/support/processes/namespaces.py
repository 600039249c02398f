"""Network namespaces on one machine: processes that reach each other only over links that a test
cuts, slows and restores. Needs root and iproute2; `why_not` says what is missing.

Each namespace is joined by a veth pair to a bridge in a namespace of its own, the hub, so that no
rule of the machine's own firewall is in the way. This process has a link to the hub, too. What runs
in a namespace has a /dev/shm of its own: no memory is shared with anybody.
"""

import contextlib
import functools
import itertools
import json
import os
import signal
import subprocess
from pathlib import Path

from support.processes.processes import wait_until

PREFIX = "pagewire-test"
# Set aside for tests between networks: RFC 2544.
NUM_SUBNETS = 512
# A burst holds two of the largest packets that a veth passes on whole.
BURST_BYTES = 128 * 1024
QUEUE_MILLISECONDS = 200
END_SECONDS = 20.0

_OWN_SHM = ("sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
_numbers = itertools.count()


@functools.cache
def why_not() -> str:
    """Return why there can be no namespaces here; empty when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network() as network:
            space = network.add("probe")
            subprocess.run([*space.command, "true"], check=True, capture_output=True, text=True)
            space.slow(1e6)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    except FileNotFoundError as error:
        return f"no network namespaces without {error.filename}: apt-get install iproute2"
    return ""


class Namespace:
    """One namespace with one link; made by `Network.add`.

    Attributes:
        name: Of its link at the hub, too.
        host: Its IPv4 address.
    """

    def __init__(self, name: str, host: str, path: str, hub: str) -> None:
        self.name = name
        self.host = host
        self._path = path
        self._hub = hub

    @property
    def command(self) -> tuple[str, ...]:
        """Runs in here what follows it, as the same process."""
        return ("ip", "netns", "exec", self._path, *_OWN_SHM)

    def cut(self) -> None:
        """Lose every packet from and to it; nobody is told."""
        _run("ip", "-n", self._hub, "link", "set", "dev", self.name, "down")

    def restore(self) -> None:
        """Undo `cut`."""
        _run("ip", "-n", self._hub, "link", "set", "dev", self.name, "up")

    def slow(self, bytes_per_second: float) -> None:
        """Let no more through in either direction, from now on; what does not fit is queued for up
        to QUEUE_MILLISECONDS, then lost."""
        for path, device in self._ends:
            _run(
                *("tc", "-n", path, "qdisc", "replace", "dev", device, "root", "tbf"),
                *("rate", f"{round(bytes_per_second * 8)}bit"),
                *("burst", str(BURST_BYTES), "latency", f"{QUEUE_MILLISECONDS}ms"),
            )

    @property
    def num_sent_bytes(self) -> int:
        """Bytes that have come out of it so far, with all headers."""
        [link] = json.loads(
            _run("ip", "-n", self._hub, "-s", "-j", "link", "show", "dev", self.name)
        )
        return int(link["stats64"]["rx"]["bytes"])

    def at_full_speed(self) -> None:
        """Undo `slow`."""
        for path, device in self._ends:
            _run("tc", "-n", path, "qdisc", "del", "dev", device, "root")

    @property
    def _ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self._path, "eth0"), (self._hub, self.name)


class Network:
    """Namespaces around a hub; a context manager that removes them and what runs in them, and on
    entering also those of runs that did not come to that."""

    def __init__(self) -> None:
        self._stem = f"{PREFIX}-{os.getpid()}-{_start_ticks(os.getpid())}-{next(_numbers)}"
        self._hub = f"{self._stem}-hub"
        self._spaces: dict[str, Namespace] = {}

    def add(self, name: str) -> Namespace:
        """Make a namespace; `name` has at most 15 characters."""
        path, host = f"{self._stem}-{name}", self._host(len(self._spaces) + 2)
        _run("ip", "netns", "add", path)
        _run(
            *("ip", "link", "add", "eth0", "netns", path, "type", "veth"),
            *("peer", "name", name, "netns", self._hub),
        )
        _run("ip", "-n", path, "address", "add", f"{host}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", path, "link", "set", "dev", device, "up")
        self._plug(name)
        self._spaces[name] = Namespace(name, host, path, self._hub)
        return self._spaces[name]

    def __getitem__(self, name: str) -> Namespace:
        return self._spaces[name]

    def part(self, *names: str) -> None:
        """Lose every packet between these; each of them and the others still reach one another.
        Those of an earlier call stay parted, also from these."""
        self._isolate(names, "on")

    def join(self, *names: str) -> None:
        """Undo `part`."""
        self._isolate(names, "off")

    def _isolate(self, names: tuple[str, ...], state: str) -> None:
        for name in names:
            port = ("ip", "-n", self._hub, "link", "set", "dev", name, "type", "bridge_slave")
            _run(*port, "isolated", state)

    def _plug(self, name: str) -> None:
        _run("ip", "-n", self._hub, "link", "set", "dev", name, "master", "bridge")
        _run("ip", "-n", self._hub, "link", "set", "dev", name, "up")

    def _host(self, number: int) -> str:
        return f"198.{18 + self._subnet // 256}.{self._subnet % 256}.{number}"

    def __enter__(self) -> "Network":
        remove_stale()
        try:
            _run("ip", "netns", "add", self._hub)
            _run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._hub, "link", "set", "dev", "bridge", "up")
            self._subnet = _free_subnet()
            own = f"pw{os.getpid()}n{self._stem.rpartition('-')[2]}"
            _run(
                *("ip", "link", "add", own, "type", "veth"),
                *("peer", "name", "outside", "netns", self._hub),
            )
            _run("ip", "address", "add", f"{self._host(1)}/24", "dev", own)
            _run("ip", "link", "set", "dev", own, "up")
            self._plug("outside")
        except BaseException:
            _remove(self._stem)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        _remove(self._stem)


def namespaces() -> list[str]:
    """Return the names of all namespaces that tests have made."""
    listed = json.loads(_run("ip", "-j", "netns", "list") or "[]")
    return [entry["name"] for entry in listed if entry["name"].startswith(f"{PREFIX}-")]


def remove_stale() -> None:
    """Remove the namespaces of processes that are gone, with whatever still runs in them."""
    for path in namespaces():
        _, pid, ticks, _ = path.removeprefix(PREFIX).split("-", 3)
        if _start_ticks(int(pid)) != int(ticks):
            _remove(path)


def _remove(stem: str) -> None:
    for path in namespaces():
        if path == stem or path.startswith(f"{stem}-"):
            _kill_in(path)
            _run("ip", "netns", "del", path)


def _kill_in(path: str) -> None:
    def is_empty() -> bool:
        pids = _run("ip", "netns", "pids", path).split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not pids

    wait_until(is_empty, END_SECONDS, f"nothing runs in {path}")


def _free_subnet() -> int:
    """Return the number of a subnet that this machine has no address in; other processes that look
    at the same time begin elsewhere."""
    addresses = [
        address["local"]
        for link in json.loads(_run("ip", "-j", "-4", "address"))
        for address in link["addr_info"]
    ]
    for number in range(os.getpid(), os.getpid() + NUM_SUBNETS):
        index = number % NUM_SUBNETS
        begin = f"198.{18 + index // 256}.{index % 256}."
        if not any(address.startswith(begin) for address in addresses):
            return index
    raise AssertionError("all subnets for tests are taken")


def _start_ticks(pid: int) -> int:
    """When a process began, in ticks since the machine did; -1 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[19])


def _run(*command: str) -> str:
    """Run a command; return what it prints. Raises CalledProcessError."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr)
        raise error
    return done.stdout
