"""Random updates of weights and kills of a running cell, while requests stream.

    cd tests && python -m support.sleep.random_updates --rounds 100

Every stream must have, from its first to its last token, the tokens of the version that it names,
or end with an error that says that its weights are gone. At the end an audit must be clean.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import pytest

from pagewire.client.topology_client import topology
from pagewire.client.weights_client import update_weights
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.weights.version import UpdateMode
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.sleep.random_sleeps import requests_of
from support.traffic.streams import Stream, eventually_clean, follow_all

NUM_WORKERS = 2
NUM_VERSIONS = 3
ROUND_SECONDS = 90.0
KINDS = (*("wait",) * 5, *("abort",) * 2, "bad folder", "kill worker", "kill scheduler", "pause")


@dataclass
class Versions:
    """A cell under random updates.

    Attributes:
        paths: Folder by version; that of the start is empty.
        expected: Tokens of each request, by version.
        counts: What happened, by kind.
        refused: Updates that ended with an error, by its text.
        newest: What was ordered last.
        served: Streams that ended well, by version; "" for those that ended with an error.
    """

    cluster: Cluster
    dice: random.Random
    paths: dict[str, str]
    requests: list[inference_pb2.CompleteRequest]
    expected: dict[str, list[list[int]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    newest: str = "v0"

    async def learn(self) -> None:
        """Compute the requests with each version, undisturbed; end with that of the start."""
        # Without a label, as after the loss of all processes, versions have fingerprints.
        cells = await topology(self.cluster.grpc_address)
        fingerprint = cells[0].workers[0].weights_version
        for version, path in [*list(self.paths.items())[1:], ("v0", "")]:
            await self._update(version, path, UpdateMode.WAIT)
            streams = await follow_all(self.cluster.grpc_address, self.requests)
            assert [one.version for one in streams] == [version] * len(streams)
            self.expected[version] = [one.token_ids for one in streams]
        assert len({str(tokens) for tokens in self.expected.values()}) == NUM_VERSIONS
        self.expected[fingerprint] = self.expected["v0"]

    async def act(self) -> None:
        """Let one thing happen."""
        kind = self.dice.choice(KINDS)
        self.counts[kind] += 1
        try:
            if kind in ("wait", "abort"):
                others = [one for one in self.paths if one != self.newest]
                version = self.newest = self.dice.choice(others)
                await self._update(version, self.paths[version], UpdateMode(kind))
                self.counts["updated"] += 1
            elif kind == "bad folder":
                await self._bad_folder()
            elif kind.startswith("kill"):
                pids = self.cluster.processes[kind.removeprefix("kill ")]
                if pids:
                    os.kill(self.dice.choice(pids), signal.SIGKILL)
            else:
                await asyncio.sleep(self.dice.random() * 0.3)
        except PagewireError as error:
            self.refused[f"{kind}: {error.message[:60]}"] += 1

    async def _update(self, version: str, path: str, mode: UpdateMode) -> None:
        await update_weights(
            self.cluster.grpc_address, path, version=version, mode=mode, timeout_seconds=30.0
        )

    async def _bad_folder(self) -> None:
        with pytest.raises(PagewireError) as caught:
            await self._update("bad", "/nowhere", UpdateMode.WAIT)
        if not isinstance(caught.value, InvalidRequestError):
            raise caught.value  # its scheduler was lost
        assert caught.value.field == "path"

    async def round(self, num_acts: int) -> None:
        """Follow all requests under some acts."""
        async with grpc.aio.insecure_channel(self.cluster.grpc_address) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            streams = [Stream(request) for request in self.requests]
            followers = []
            for stream in streams:
                followers.append(asyncio.create_task(stream.follow(stub)))
                await asyncio.sleep(self.dice.random() * 0.02)
            async with asyncio.timeout(ROUND_SECONDS):
                for _ in range(num_acts):
                    await self.act()
                await asyncio.gather(*followers)
        for index, stream in enumerate(streams):
            self._check(index, stream)

    def _check(self, index: int, stream: Stream) -> None:
        if stream.error:
            assert "weights" in stream.error, stream.error
            begun = len(stream.token_ids)
            known = [tokens[index][:begun] for tokens in self.expected.values()]
            assert stream.token_ids in known, f"stream {index} is of two versions"
            self.served[""] += 1
        else:
            assert stream.token_ids == self.expected[stream.version][index], (
                f"stream {index} is not of {stream.version}"
            )
            self.served[stream.version] += 1


async def run_rounds(
    cluster: Cluster, paths: dict[str, str], num_rounds: int, seed: int
) -> Versions:
    """Raise AssertionError if a stream is of two versions or the audit has findings."""
    requests = requests_of(cluster.model, random.Random(seed + 1))
    versions = Versions(cluster, random.Random(seed), paths, requests)
    await versions.learn()
    for _ in range(num_rounds):
        await versions.round(versions.dice.randrange(1, 4))
    await eventually_clean(cluster.grpc_address, NUM_WORKERS, timeout_seconds=60)
    return versions


def make_versions(folder: Path) -> dict[str, str]:
    """Write checkpoints that differ in their weights; return their folders."""
    versions = range(NUM_VERSIONS)
    return {
        f"v{seed}": str(make_checkpoint(folder / f"v{seed}", hidden=128, seed=seed + 1))
        for seed in versions
    }


def start(paths: dict[str, str], **settings: object) -> Cluster:
    """Start a cell with the first of the versions, which is called by no path from now on."""
    first = Path(paths["v0"])
    paths["v0"] = ""
    return start_cluster(first, num_workers=NUM_WORKERS, max_model_len=256, **settings)


def shown(versions: Versions, names: Sequence[str]) -> str:
    """What happened, in one line."""
    return ", ".join(f"{name}: {dict(getattr(versions, name))}" for name in names)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = make_versions(Path(folder))
        cluster = start(paths)
        began = time.monotonic()
        try:
            versions = asyncio.run(run_rounds(cluster, paths, options.rounds, options.seed))
        finally:
            cluster.local.stop()
    print(f"{options.rounds} rounds in {time.monotonic() - began:.0f} s")
    print(shown(versions, ("counts", "refused", "served")))
    print("every stream was of one version; the audit is clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
