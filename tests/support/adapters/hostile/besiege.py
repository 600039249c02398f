"""Loads hundreds of broken adapters into a running cell, while good requests stream.

    cd tests && python -m support.adapters.hostile.besiege

Each adapter must be refused with one clear error of the client, over HTTP and over gRPC; good
streams must keep their tokens; and memory, threads and files of all processes must come back.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import torch

from pagewire_protos.frontend.v1 import adapters_pb2 as pb
from pagewire_protos.frontend.v1 import adapters_pb2_grpc
from support.adapters.hostile.case import GoodAdapter, HostileCase
from support.adapters.hostile.configs import hostile_configs
from support.adapters.hostile.places import hostile_places
from support.adapters.hostile.weights import hostile_weights
from support.adapters.model_adapters import make_adapter
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint

SECONDS = 10.0
MAX_MESSAGE = 2000
MARGIN_MIB = 96.0
"""Headers of 15 MiB stay in an allocator for a while."""
MARGIN_FILES = 3
"""Connections of the streams come and go."""
GOOD = "good"
CLIENT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_BODY = {
    "prompt": list(range(10, 60)),
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
    "max_tokens": 48,
}


@dataclass(frozen=True, slots=True)
class Besieged:
    """A cell, and the folders of its adapters.

    Attributes:
        root: The folder below which calls may load.
        outside: A good adapter that is not below it.
    """

    cluster: Cluster
    root: Path
    outside: Path

    def cases(self) -> list[HostileCase]:
        """Return all hostile adapters for it."""
        good = GoodAdapter.read(self.root / GOOD)
        return [
            *hostile_configs(good),
            *hostile_weights(good),
            *hostile_places(good, self.root, self.outside, self.cluster.model),
        ]


@dataclass(slots=True)
class GoodStreams:
    """Streams of the model and of a good adapter, again and again; what was wrong is in `faults`.

    Attributes:
        num_whole: Streams that had the tokens of the first one.
        longest_wait: Seconds between two events, at most.
    """

    cluster: Cluster
    faults: list[str] = field(default_factory=list)
    num_whole: int = 0
    longest_wait: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Stream until the end of the block."""
        models = (self.cluster.model, GOOD)
        threads = [threading.Thread(target=self._follow, args=(one,)) for one in models]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(SECONDS)

    def _follow(self, model: str) -> None:
        expected = None
        with httpx.Client(timeout=SECONDS) as client:
            while not self._is_over.is_set():
                lines = self._lines(client, model)
                expected = expected or lines
                if lines != expected or not lines:
                    self.faults.append(f"{model}: {str(lines)[:300]} after {str(expected)[:300]}")
                    return
                self.num_whole += 1

    def _lines(self, client: httpx.Client, model: str) -> list[str]:
        found = []
        url = f"{self.cluster.http_url}/v1/completions"
        last = time.monotonic()
        body = {**_BODY, "model": model, "stream": True}
        try:
            with client.stream("POST", url, json=body) as response:
                for line in response.iter_lines():
                    now = time.monotonic()
                    self.longest_wait, last = max(self.longest_wait, now - last), now
                    for part in line.split('"token_ids":[')[1:]:
                        found += part.partition("]")[0].split(",")
        except httpx.HTTPError as error:
            return [repr(error)]
        return found


@dataclass(slots=True)
class Siege:
    """Sends hostile adapters, and notes what was wrong with the answers.

    Attributes:
        answers: Statuses of loads, with their numbers.
    """

    besieged: Besieged
    faults: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def send(self, cases: Sequence[HostileCase]) -> None:
        """Load each case over HTTP and over gRPC."""
        cluster = self.besieged.cluster
        folder = self.besieged.root / "hostile"
        with (
            httpx.Client(base_url=cluster.http_url, timeout=SECONDS) as client,
            grpc.insecure_channel(cluster.grpc_address) as channel,
        ):
            stub: Any = adapters_pb2_grpc.AdapterServiceStub(channel)  # type: ignore[arg-type]
            for case in cases:
                folder.mkdir()
                case.write(folder)
                try:
                    self._send_http(client, case, folder)
                except httpx.HTTPError as error:
                    self.faults.append(f"{case.title}: HTTP {error!r}")
                self._send_grpc(stub, case, folder)
                shutil.rmtree(folder)

    def _send_http(self, client: httpx.Client, case: HostileCase, folder: Path) -> None:
        name, path = _named(case, folder)
        answer = client.post(
            "/v1/load_lora_adapter",
            content=_escaped({"lora_name": name, "lora_path": path}),
            headers={"content-type": "application/json"},
        )
        self.answers[f"load {answer.status_code}"] += 1
        self._check(case, answer)
        if answer.status_code == 200:
            body = _escaped({"lora_name": name})
            client.post("/v1/unload_lora_adapter", content=body)

    def _check(self, case: HostileCase, answer: httpx.Response) -> None:
        text = answer.text
        try:
            error = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            error = {}
        message = error.get("message", "")
        is_clear = 0 < len(message) <= MAX_MESSAGE and "Traceback" not in text
        if not (400 <= answer.status_code < 500 and is_clear):
            self.faults.append(f"{case.title}: HTTP {answer.status_code} {text[:300]}")

    def _send_grpc(self, stub: Any, case: HostileCase, folder: Path) -> None:
        name, path = _named(case, folder)
        try:
            request = pb.LoadRequest(name=name, path=path)
        except (ValueError, UnicodeEncodeError):
            return  # no message can carry it
        try:
            stub.Load(request, timeout=SECONDS)
        except grpc.RpcError as error:
            code, text = error.code(), error.details() or ""
            self.answers[f"gRPC {code.name}"] += 1
            if code not in CLIENT_CODES or not 0 < len(text) <= MAX_MESSAGE:
                self.faults.append(f"{case.title}: gRPC {code.name} {text[:300]}")
            return
        self.answers["gRPC OK"] += 1
        self.faults.append(f"{case.title}: gRPC OK")
        stub.Unload(pb.UnloadRequest(name=name), timeout=SECONDS)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a process holds."""

    resident_mib: float
    num_threads: int
    num_files: int

    @classmethod
    def of(cls, pid: int) -> "Holdings":
        """Return what a process holds now."""
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        files = list(Path(f"/proc/{pid}/fd").iterdir())
        resident = int(status["VmRSS"].split()[0]) / 1024
        return cls(resident, int(status["Threads"]), len(files))


def holdings(cluster: Cluster) -> dict[str, Holdings]:
    """Return what each process of a cell holds, by role."""
    return {role: Holdings.of(pids[0]) for role, pids in cluster.processes.items() if pids}


@contextlib.contextmanager
def besieged_cell(folder: Path, **settings: Any) -> Iterator[Besieged]:
    """Start a cell with one good adapter."""
    checkpoint = make_checkpoint(folder / "tiny", hidden=64, layers=2)
    root = folder / "adapters"
    make_adapter(root / GOOD, checkpoint, scale=3.0)
    shutil.copytree(root / GOOD, folder / "outside")
    cluster = start_cluster(
        checkpoint,
        enable_lora=True,
        lora_roots=[str(root)],
        lora_modules=[f"{GOOD}={root / GOOD}"],
        served_model_name=("model",),
        max_loras=2,
        **settings,
    )
    try:
        yield Besieged(cluster, root.resolve(), (folder / "outside").resolve())
    finally:
        cluster.local.stop()


def grown(before: dict[str, Holdings], after: dict[str, Holdings]) -> list[str]:
    """Return what processes hold that they did not hold before, beyond a margin."""
    found = []
    for role, now in after.items():
        was = before[role]
        if now.resident_mib - was.resident_mib > MARGIN_MIB:
            found.append(f"{role}: {was.resident_mib:.1f} -> {now.resident_mib:.1f} MiB")
        if now.num_threads > was.num_threads or now.num_files > was.num_files + MARGIN_FILES:
            found.append(f"{role}: {was} -> {now}")
    return found


def show(before: dict[str, Holdings], after: dict[str, Holdings]) -> None:
    """Print what processes hold before and after."""
    for role, now in after.items():
        was = before[role]
        print(
            f"{role}: {was.resident_mib:.1f} -> {now.resident_mib:.1f} MiB, "
            f"{was.num_threads} -> {now.num_threads} threads, "
            f"{was.num_files} -> {now.num_files} files"
        )


def _named(case: HostileCase, folder: Path) -> tuple[str, str]:
    name = case.title[:200] if case.name is None else case.name
    return name, str(folder) if case.path is None else case.path


def _escaped(body: dict[str, str]) -> bytes:
    return json.dumps(body).encode()


def main() -> None:
    """Besiege a cell twice: the first time fills its caches, the second must leave no trace."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=2, help="the first one warms up")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, besieged_cell(Path(folder)) as besieged:
        cases = besieged.cases()
        streams, siege = GoodStreams(besieged.cluster), Siege(besieged)
        print(f"{len(cases)} hostile adapters, {len({one.title for one in cases})} titles")
        with streams.running():
            siege.send(cases)
            before = now = holdings(besieged.cluster)
            for _ in range(options.rounds - 1):
                siege.send(cases)
                now = holdings(besieged.cluster)
                show(before, now)
        print(", ".join(f"{what}: {count}" for what, count in sorted(siege.answers.items())))
        print(f"{streams.num_whole} good streams, longest wait {streams.longest_wait:.2f} s")
        faults = list(dict.fromkeys(siege.faults)) + streams.faults + grown(before, now)
        print("\n".join(f"FAULT {one}" for one in faults))
        sys.exit(bool(faults))


if __name__ == "__main__":
    main()
