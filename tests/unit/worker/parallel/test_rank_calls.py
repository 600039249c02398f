"""Calls in ranks that are processes: one reply, errors of one rank, futures, time-outs, stacks."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from pagewire_shared.errors import InternalError
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.loading.loader import Replica
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.parallel.rank_stacks import parse_stacks
from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import children_of

MODULE = """
import time


class Sleeper:
    def facts(self):
        return [self.rank, self.num_ranks, self.model_config["hidden_size"]]

    def fail_in(self, rank):
        if self.rank == rank:
            raise ValueError("only here")
        return self.rank

    def sleep_in(self, rank, seconds):
        if self.rank == rank:
            time.sleep(seconds)
        return self.rank
"""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """One of two ranks, the second of which has an extension."""
    folder = tmp_path_factory.mktemp("called")
    (folder / "sleeper_module.py").write_text(MODULE)
    checkpoint = make_checkpoint(folder / "m", architecture="Qwen3ForCausalLM")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        replica = load(
            checkpoint,
            tensor_parallel_size=2,
            max_num_batched_tokens=64,
            kv_cache_memory=1 << 22,
            worker_extension_cls="sleeper_module.Sleeper",
        )
    assert replica.group is not None
    # Rank 0 has no extension here, but a function of the name.
    replica.group.functions = {**replica.group.functions, "call_extension": lambda *_: "own"}
    yield replica
    replica.group.close()


@pytest.fixture(scope="module")
def driver(replica: Replica) -> Driver:
    return Driver.of(replica)


@pytest.fixture
def group(replica: Replica) -> RankGroup:
    assert replica.group is not None
    return replica.group


def extension(method: str, *args: object) -> tuple[object, ...]:
    return (method, list(args), {})


@needs_kernels
def test_one_rank_replies_alone(group: RankGroup):
    args = extension("facts")
    both = group.collective_rpc("call_extension", args=args)
    assert both[0] == "own"
    assert both[1][:2] == [1, 2]
    assert group.collective_rpc("call_extension", args=args, unique_reply_rank=1) == both[1:]
    assert group.collective_rpc("call_extension", args=args, unique_reply_rank=0) == ["own"]


@needs_kernels
def test_an_error_of_one_rank_names_it_and_all_go_on(group: RankGroup, driver: Driver):
    for wanted in (None, 0, 1):
        with pytest.raises(InternalError, match="rank 1: call_extension: ValueError: only here"):
            group.collective_rpc(
                "call_extension", args=extension("fail_in", 1), unique_reply_rank=wanted
            )
    assert group.collective_rpc("call_extension", args=extension("fail_in", 0)) == ["own", 1]
    assert driver.generate([[5, 6, 7]])


@needs_kernels
def test_a_future_waits_for_the_thread_and_may_be_cancelled(
    group: RankGroup, monkeypatch: pytest.MonkeyPatch
):
    jobs: list[object] = []
    monkeypatch.setattr(group, "post", jobs.append)
    args = extension("facts")
    first = group.collective_rpc("call_extension", args=args, non_block=True)
    second = group.collective_rpc("call_extension", args=args, non_block=True)
    third = group.collective_rpc("nothing_such", non_block=True)
    assert not first.done()
    assert second.cancel()
    for job in jobs:
        job()  # type: ignore[operator]
    assert first.result(0)[1][0] == 1
    with pytest.raises(CancelledError):
        second.result(0)
    with pytest.raises(InternalError, match="there is no such function"):
        third.result(0)


@needs_kernels
def test_a_rank_that_hangs_shows_its_stacks(group: RankGroup, driver: Driver):
    (waiting,) = group.stacks()
    assert waiting.rank == 1
    assert waiting.pid in children_of(os.getpid())
    functions = [frame.function for thread in waiting.threads for frame in thread.frames]
    assert "receive" in functions
    assert all(frame.line for thread in waiting.threads for frame in thread.frames[:3])
    # Rank 1 sleeps in the extension, and nothing but its signal handler runs.
    args = ("call_extension", 20.0, extension("sleep_in", 1, 1.0))
    caller = threading.Thread(target=group.collective_rpc, args=args)
    caller.start()
    seen: list[str] = []
    ends_at = time.monotonic() + 10
    while "sleep_in" not in seen and time.monotonic() < ends_at:
        (found,) = group.stacks()
        seen = [frame.function for thread in found.threads for frame in thread.frames]
    assert "sleep_in" in seen
    caller.join(20)
    os.kill(waiting.pid, signal.SIGSTOP)
    try:
        (stopped,) = group.stacks()
        assert stopped.threads == ()
    finally:
        os.kill(waiting.pid, signal.SIGCONT)
    assert driver.generate([[5, 6, 7]])


@needs_kernels
def test_a_rank_that_takes_longer_is_lost(group: RankGroup):
    """The last test: it ends the group."""
    took = time.monotonic()
    with pytest.raises(RankLostError, match="rank 1 of 2 is lost"):
        group.collective_rpc("call_extension", 0.3, extension("sleep_in", 1, 30.0))
    assert time.monotonic() - took < 20


def test_a_text_of_faulthandler_is_read():
    text = (
        "Thread 0x00007f0000000001 [model] (most recent call first):\n"
        '  File "/a/b.py", line 12 in run\n'
        '  File "/a/c.py", line ??? in <module>\n'
        "\n"
        "Current thread 0x00007f0000000002 (most recent call first):\n"
        "  <no Python frame>\n"
    )
    first, second = parse_stacks(text)
    assert first.name == "model"
    assert [(one.file, one.line, one.function) for one in first.frames] == [
        ("/a/b.py", 12, "run"),
        ("/a/c.py", 0, "<module>"),
    ]
    assert (second.name, second.frames) == ("", ())
