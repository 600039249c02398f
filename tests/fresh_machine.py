"""Does what a newcomer does, on a machine that has next to nothing: `make run`, then `make test`.

A clone of the newest commit, an empty HOME, an ordinary user, and a PATH with coreutils, make, a
Python and a C++ compiler; then again without the compiler. What this process was told about the
package index (PIP_*, npm_config_*, proxies, certificates) is passed on.

Run: python tests/fresh_machine.py [--sample] [--keep]

With --sample only a few tests run each time; .ci/run does that.
"""

import argparse
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# fmt: off
COREUTILS = (
    "basename", "cat", "chgrp", "chmod", "chown", "cp", "cut", "date", "dd", "df", "dirname",
    "du", "echo", "env", "expr", "false", "head", "id", "install", "join", "link", "ln", "ls",
    "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "nl", "nproc", "od", "paste", "printenv",
    "printf", "pwd", "readlink", "realpath", "rm", "rmdir", "seq", "sha256sum", "sleep", "sort",
    "split", "stat", "stty", "sync", "tail", "tee", "test", "timeout", "touch", "tr", "true",
    "truncate", "tty", "uname", "uniq", "unlink", "wc", "whoami", "yes",
)
# fmt: on
# What is compiled is tried, not timed; with all optimizations it takes minutes.
QUICKER = ("g++", "c++")
COMPILER = ("g++", "gcc", "c++", "cc", "as", "ld", "ar")
KEPT = ("PIP_", "npm_config_", "NODE_EXTRA_CA_CERTS", "SSL_CERT_", "REQUESTS_CA_BUNDLE")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
SAMPLE = (
    "tests/unit/kvstore/tiers/test_redis_tier.py",
    "tests/unit/worker/cpu_kernels/test_build.py",
    "tests/deploy/test_chart_renders.py",
    "tests/deploy/test_monitoring_files.py",
    "tests/integration/kvstore/test_kvstore.py",
    "tests/integration/clients/test_node_client.py",
    "tests/integration/handoff/test_namespaces.py",
    "tests/integration/faults/test_version_compatibility.py",
)
READY_SECONDS = 180.0
END_SECONDS = 30.0
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "python3.13", "python3.12", "python3.11")
NOBODY = "nobody"


@dataclass(frozen=True)
class Machine:
    """The folders of the pretended machine, and who works there.

    Attributes:
        folder: Holds all others.
        user: Name of the user; None for the one who runs this.
    """

    folder: Path
    user: str | None

    @property
    def tree(self) -> Path:
        """The clone."""
        return self.folder / "pagewire"

    def environ(self, *, has_compiler: bool) -> dict[str, str]:
        """Return all that a process there is told."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(KEPT) or name in PROXIES
        }
        path = [self.folder / "bin"]
        if has_compiler:
            path.append(self.folder / "compiler")
        return {
            **kept,
            "PATH": os.pathsep.join(map(str, path)),
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
        }

    def start(self, words: Sequence[str], *, has_compiler: bool) -> "subprocess.Popen[str]":
        """Start a command in the clone."""
        return subprocess.Popen(
            words,
            cwd=self.tree,
            env=self.environ(has_compiler=has_compiler),
            executable=shutil.which(words[0]),
            text=True,
            user=self.user,
            group=pwd.getpwnam(self.user).pw_gid if self.user else None,
            extra_groups=[] if self.user else None,
            start_new_session=True,
        )

    def run(self, *words: str, has_compiler: bool) -> int:
        """Run a command in the clone; return its status."""
        print(f"-- {' '.join(words)}", flush=True)
        return self.start(words, has_compiler=has_compiler).wait()


def build(folder: Path) -> Machine:
    """Lay out the machine in `folder`."""
    python, is_for_all = find_python()
    machine = Machine(folder, NOBODY if os.geteuid() == 0 and is_for_all else None)
    for name in ("home", "bin", "compiler"):
        (folder / name).mkdir()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(machine.tree)], check=True)
    for place, names in (("bin", (*COREUTILS, "make")), ("compiler", COMPILER)):
        for name in names:
            found = shutil.which(name)
            if found is not None and name in QUICKER:
                _write_script(folder / place / name, f'exec {os.path.realpath(found)} "$@" -O1')
            elif found is not None:
                (folder / place / name).symlink_to(os.path.realpath(found))
    # No links: a Python looks for its library beside the name that it was started by.
    _write_script(folder / "bin" / "python3", f'exec {python} "$@"')
    folder.chmod(0o755)
    if machine.user is not None:
        account = pwd.getpwnam(machine.user)
        for path in (folder / "home", machine.tree):
            _give(path, account.pw_uid, account.pw_gid)
    return machine


def _write_script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def find_python() -> tuple[str, bool]:
    """Return a Python, and whether every user may run it, as one below /root may not be."""
    suitable = (
        "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    )
    for candidate in (os.path.realpath(sys.executable), *PYTHONS):
        path = shutil.which(candidate)
        if path is None or subprocess.run([path, "-c", suitable], capture_output=True).returncode:
            continue
        if all(parent.stat().st_mode & 0o001 for parent in Path(path).resolve().parents):
            return path, True
    return os.path.realpath(sys.executable), False


def _give(path: Path, user: int, group: int) -> None:
    os.chown(path, user, group)
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(Path(parent, name), user, group, follow_symlinks=False)


def check_run(machine: Machine, *, has_compiler: bool) -> None:
    """`make run`: it gets ready, answers, and leaves nothing behind when it is told to end."""
    port, grpc_port = _free_port(), _free_port()
    words = ["make", "run", f"ARGS=--port {port} --grpc-port {grpc_port}"]
    print(f"-- {' '.join(words)}", flush=True)
    # The first time this installs everything.
    process = machine.start(words, has_compiler=has_compiler)
    url = f"http://127.0.0.1:{port}"
    _wait_ready(process, url)
    body = {"prompt": "2+3=", "max_tokens": 4, "temperature": 0, "model": _model(url)}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = json.load(answer)["choices"][0]["text"]
    print(f"answered {text!r}", flush=True)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(END_SECONDS)
    end = time.monotonic() + END_SECONDS
    while _is_group_alive(process.pid):
        assert time.monotonic() < end, "processes are left behind"
        time.sleep(0.1)


def _wait_ready(process: "subprocess.Popen[str]", url: str) -> None:
    end: float | None = None
    while True:
        assert process.poll() is None, f"make run ended with status {process.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=10):
                return
        except urllib.error.HTTPError:
            # It listens: the installation is over.
            end = end or time.monotonic() + READY_SECONDS
        except OSError:
            pass
        assert end is None or time.monotonic() < end, "it does not get ready"
        time.sleep(0.2)


def _model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
        return str(json.load(answer)["data"][0]["id"])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", action="store_true", help="run a few tests, not all")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    options = parser.parse_args()
    tests = [f"TESTS={' '.join(SAMPLE)}"] if options.sample else []
    folder = Path(tempfile.mkdtemp(prefix="pagewire-fresh-", dir="/var/tmp"))
    failures = []
    try:
        machine = build(folder)
        for has_compiler in (True, False):
            what = f"with{'' if has_compiler else 'out'} a compiler"
            print(f"== {what}, as {machine.user or 'this user'}", flush=True)
            if not has_compiler:
                # As if it had been installed without one.
                for kernels in machine.tree.glob(
                    "services/worker/pagewire_worker/cpu_kernels/*.so"
                ):
                    kernels.unlink()
                (machine.tree / "pyproject.toml").touch()
            check_run(machine, has_compiler=has_compiler)
            if machine.run("make", "test", *tests, has_compiler=has_compiler):
                failures.append(what)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"fresh machine: {', '.join(failures) or 'nothing'} failed")
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
