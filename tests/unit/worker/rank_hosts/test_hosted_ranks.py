"""Ranks on two hosts, here two processes: they compute the bits of one host, and end together.

The pod behind the first stays through all tests: it dials again after each end.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.loading.loader import Replica
from pagewire_worker.rank_hosts.connections import HostListener
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import children_of, free_port, is_running, wait_until
from support.processes.rank_pods import RankPod

pytestmark = needs_kernels

PROMPTS = [[5, 6, 7], list(range(30, 120))]
SMALL = {"max_num_batched_tokens": 128, "kv_cache_memory": 1 << 22}
DIVIDED, STAGED = {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}
LOST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Group:
    """A checkpoint, the settings of a group on two hosts, and the pod behind the first."""

    folder: Path
    settings: dict[str, Any]
    pod: RankPod

    def load(self, **changes: Any) -> Replica:
        return load(self.folder, **SMALL, **{**self.settings, **changes})


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    place = tmp_path_factory.mktemp("hosts")
    folder = make_checkpoint(place / "m", architecture="Qwen3ForCausalLM")
    (place / "key").write_text("ab" * 32)
    settings = {
        "rank_listen": f"127.0.0.1:{free_port()}",
        "rank_key_file": str(place / "key"),
    }
    with RankPod(1, {"model": folder, **settings}, place / "log") as pod:
        own = {**settings, "distributed_executor_backend": "env", "rank_hosts": 2}
        yield Group(folder, own, pod)


def tokens(replica: Replica) -> list[list[int]]:
    try:
        return Driver.of(replica).generate(PROMPTS)
    finally:
        end_ranks(replica)


@pytest.mark.parametrize("ranks", [DIVIDED, STAGED], ids=["divided", "staged"])
def test_hosts_compute_what_one_host_does_and_end_with_a_rank(
    group: Group, monkeypatch: pytest.MonkeyPatch, ranks: dict[str, int]
) -> None:
    """Killed, or standing still: the other host has ended within two seconds, by name."""
    with monkeypatch.context() as patched:
        use_threads(patched)
        expected = tokens(load(group.folder, **SMALL, **ranks))
    own = set(children_of(os.getpid()))
    replica = group.load(**ranks)
    try:
        driver = Driver.of(replica)
        assert driver.generate(PROMPTS) == expected
        (rank,) = group.pod.ranks()
        number = signal.SIGKILL if ranks is DIVIDED else signal.SIGSTOP
        how = "its process ended with SIGKILL on host 1" if ranks is DIVIDED else "did not answer"
        os.kill(rank, number)
        began = time.monotonic()
        with pytest.raises(RankLostError, match=f"rank 1 of 2 is lost: .*{how}"):
            while True:
                driver.generate(PROMPTS)
        assert time.monotonic() - began < LOST_SECONDS
    finally:
        end_ranks(replica)
    group.pod.await_no_ranks()
    assert set(children_of(os.getpid())) == own


def test_another_group_forms_with_the_same_pod_until_that_is_killed(group: Group) -> None:
    replica = group.load(**DIVIDED)
    (rank,) = group.pod.ranks()
    driver = Driver.of(replica)
    driver.generate(PROMPTS)
    os.kill(group.pod.pid, signal.SIGKILL)
    with pytest.raises(RankLostError, match=r"rank 1 of 2 is lost: .*host 1 \(127.0.0.1\)"):
        while True:
            driver.generate(PROMPTS)
    end_ranks(replica)
    # The system has ended its ranks.
    wait_until(lambda: not is_running(rank), 5, "the rank of a pod that was killed is gone")


@pytest.mark.long
def test_several_ranks_of_a_host(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands still is named, though others of its host do not hear rank 0 any more."""
    both = {**DIVIDED, **STAGED}
    with monkeypatch.context() as patched:
        use_threads(patched)
        expected = tokens(load(group.folder, **SMALL, **both))
    listen = {"rank_listen": f"127.0.0.1:{free_port()}"}
    mine = {"rank_key_file": group.settings["rank_key_file"], **listen}
    with RankPod(1, {"model": group.folder, **mine}, group.folder / "log") as pod:
        replica = group.load(**both, **listen)
        try:
            driver = Driver.of(replica)
            assert driver.generate(PROMPTS) == expected
            first, _ = pod.ranks()
            os.kill(first, signal.SIGSTOP)
            with pytest.raises(RankLostError, match="rank 2 of 4 is lost"):
                while True:
                    driver.generate(PROMPTS)
        finally:
            end_ranks(replica)
        pod.await_no_ranks()


def test_a_pod_with_another_key_ends_by_name_and_others_wait_until_they_are_told(
    tmp_path: Path,
) -> None:
    """Neither needs a model."""
    (tmp_path / "key").write_text("ab" * 32)
    listener = HostListener(Address("127.0.0.1", 0), b"o" * 32)
    flags = {"model": "m", "rank_key_file": tmp_path / "key"}
    there = {**flags, "rank_listen": str(listener.address)}
    nowhere = {**flags, "rank_listen": f"127.0.0.1:{free_port()}"}
    with (
        RankPod(1, there, tmp_path / "refused") as refused,
        RankPod(1, nowhere, tmp_path / "waiting") as waiting,
    ):
        assert listener.next_host(30) is None
        assert refused.process.wait(10) == 1
        assert "it has another key of ranks (--rank-key-file)" in refused.log
        wait_until(lambda: "is not there yet" in waiting.log, 30, "the pod waits")
        waiting.process.terminate()
        assert waiting.process.wait(10) == 0
    listener.close()


@pytest.mark.long
def test_a_host_with_other_weights_is_refused(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find a model under the name that the worker was given."""
    make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM", layers=3)
    settings = {**group.settings, "rank_listen": f"127.0.0.1:{free_port()}"}
    mine = {name: settings[name] for name in ("rank_listen", "rank_key_file")}
    monkeypatch.chdir(group.folder.parent)
    with (
        RankPod(1, {"model": "m", **mine}, tmp_path / "log", folder=tmp_path),
        pytest.raises(StartupError, match="--model: host 1 of the group has other files"),
    ):
        load(Path("m"), **SMALL, **settings, **DIVIDED)
