"""Prompts computed on other workers than their tokens, in real processes: the answers are those of
a single worker, and an operator sees whether blocks move, and why not."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pagewire.cli import main
from pagewire.client.topology_client import CellTopology, topology
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import ask, ask_all, prompt_of
from support.cells.more_workers import MoreWorker, scheduler_address
from support.processes.processes import wait_until
from support.traffic.mixed_requests import Answer, Mixed, ask_mixed, assert_equal, make_requests
from support.traffic.streams import eventually_clean

NUM_REQUESTS = 200
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def requests() -> list[Mixed]:
    return make_requests(NUM_REQUESTS, seed=1)


@pytest.fixture(scope="module")
def of_one_worker(cluster: Cluster, requests: Sequence[Mixed]) -> list[Answer]:
    """What comes where a single worker does everything."""
    assert len(cluster.processes["worker"]) == 1
    answers = asyncio.run(ask_mixed(cluster, requests))
    assert not any(line["is_handed_off"] for answer in answers for line in answer.timelines)
    return answers


@pytest.fixture(scope="module")
def apart(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """Two workers for prompts and two for tokens, and a store."""
    cluster = start_cluster(tiny_checkpoint, prefill_workers=2, decode_workers=2, handoff="always")
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def small(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """One worker of each role. Tests add others that do not fit, and take them away."""
    cluster = start_cluster(
        tiny_checkpoint, prefill_workers=1, decode_workers=1, handoff="auto", kv_offload="off"
    )
    yield cluster
    cluster.local.stop()


def cell_of(cluster: Cluster) -> CellTopology:
    """Return the workers and pairs of the only cell."""
    [cell] = asyncio.run(topology(cluster.grpc_address))
    return cell


def admin(*words: str, server: str) -> int:
    return main(["admin", *words, "--server", server])


def test_the_answers_are_those_of_a_single_worker(
    apart: Cluster, requests: Sequence[Mixed], of_one_worker: Sequence[Answer]
) -> None:
    answers = asyncio.run(ask_mixed(apart, requests))
    assert_equal(requests, answers, of_one_worker)
    long = [
        answer.timelines[0]
        for request, answer in zip(requests, answers, strict=True)
        if request.is_fresh and answer.timelines
    ]
    handed_off = [timeline for timeline in long if timeline["is_handed_off"]]
    # On a busy machine some may be given up; most must not.
    assert len(handed_off) > len(long) / 2 > 20
    assert all(timeline["transfer_bytes"] > 0 for timeline in handed_off)
    assert {timeline["transport"] for timeline in handed_off} == {"shared_memory"}
    cell = cell_of(apart)
    assert cell.warnings == ()
    assert len(cell.pairs) == 4
    # Not every pair need have had a turn, but every worker.
    used = [pair for pair in cell.pairs if pair.num_transfers]
    assert len({pair.prefill for pair in used}) == len({pair.decode for pair in used}) == 2
    asyncio.run(eventually_clean(apart.grpc_address, 4, PATIENCE_SECONDS))


def test_what_pays_gives_the_same_answers(
    small: Cluster, requests: Sequence[Mixed], of_one_worker: Sequence[Answer]
) -> None:
    assert cell_of(small).handoff == "auto"
    assert_equal(requests, asyncio.run(ask_mixed(small, requests)), of_one_worker)
    asyncio.run(eventually_clean(small.grpc_address, 2, PATIENCE_SECONDS))


def test_a_self_test_of_what_is_well(apart: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for server in (apart.grpc_address, scheduler_address(apart)):
        assert admin("selftest", server=server) == 0, capsys.readouterr().out
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[-1] for line in lines[2:-1]] == ["equal"] * 4
        assert lines[-1] == "blocks moved intact between 4 pairs of workers"
    # Neither keeps what it moved.
    asyncio.run(eventually_clean(apart.grpc_address, 4, PATIENCE_SECONDS))


def test_a_worker_with_other_numerics_is_never_half_of_a_pair(
    small: Cluster,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {worker.worker for worker in cell_of(small).workers}
    prompts = [prompt_of(number, 133) for number in range(20)]
    flags = {"roles": "prefill", "attention_backend": "reference"}
    with MoreWorker(small, tmp_path, **flags) as odd:
        odd.wait_ready()
        cell = cell_of(small)
        [name] = {worker.worker for worker in cell.workers} - names
        [refused] = [pair for pair in cell.pairs if pair.prefill == name]
        assert refused.refusal == "their cache layouts or numerics differ"
        assert admin("topology", server=small.grpc_address) == 0
        shown = capsys.readouterr().out
        assert shown.count("refused: their cache layouts or numerics differ") == 1
        # The other pair works.
        assert admin("selftest", server=small.grpc_address) == 0, capsys.readouterr().out
        found, wanted = (asyncio.run(ask_all(one, prompts)) for one in (small, cluster))
        assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
        [after] = [pair for pair in cell_of(small).pairs if pair.prefill == name]
        assert (after.num_transfers, after.num_failures) == (0, 0)
    until_left(small, names)


def test_a_cell_in_which_no_block_moves_is_broken(
    small: Cluster,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [able] = [one.worker for one in cell_of(small).workers if one.roles == ("prefill",)]
    names = {worker.worker for worker in cell_of(small).workers}
    server = small.grpc_address
    with MoreWorker(small, tmp_path, roles="prefill", kv_transport="off") as mute:
        mute.wait_ready()
        assert admin("roles", able[:8], "decode", server=server) == 0
        capsys.readouterr()
        reason = "the first hands out no blocks: it has no --listen, or --kv-transport off"
        for address in (server, scheduler_address(small)):
            assert admin("selftest", server=address) == 1
            shown = capsys.readouterr().out
            assert f"BROKEN: no pair of workers exchanges KV blocks of {small.model}" in shown
            assert reason in shown
        cell = cell_of(small)
        assert {pair.refusal for pair in cell.pairs} == {reason}
        [warning] = cell.warnings
        assert warning.endswith("are for prompts only, and none can hand them off")
        # It serves nevertheless.
        prompt = prompt_of(50, 133)
        assert ask(small, prompt).token_ids == ask(cluster, prompt).token_ids
        assert admin("roles", able[:8], "prefill", server=server) == 0
    until_left(small, names)
    assert admin("selftest", server=server) == 0, capsys.readouterr().out


def until_left(cluster: Cluster, names: set[str]) -> None:
    """Wait until only these workers are attached."""

    def is_so() -> bool:
        return {worker.worker for worker in cell_of(cluster).workers} == names

    wait_until(is_so, PATIENCE_SECONDS, "the worker has left")


def test_another_block_size_is_refused_at_the_door(small: Cluster, tmp_path: Path) -> None:
    with MoreWorker(small, tmp_path, block_size="8") as misfit:
        assert misfit.finish() == 1
        assert f"block_size of model {small.model} is 8; attached workers have 16" in misfit.log


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("roles", "zz", "decode"), 1, "no attached worker is called 'zz'; there are: "),
        (("roles", "", "decode"), 1, "worker must name a worker by its id in hex"),
    ],
)
def test_an_operators_slip_is_told(
    apart: Cluster,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    status: int,
    told: str,
) -> None:
    assert admin(*words, server=apart.grpc_address) == status
    assert told in capsys.readouterr().err
    assert admin(*words, server=scheduler_address(apart)) == status
    assert told in capsys.readouterr().err


def test_a_role_that_is_none_is_told(apart: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    name = cell_of(apart).workers[0].worker
    with pytest.raises(SystemExit) as ended:
        admin("roles", name, "prefil", server=apart.grpc_address)
    assert ended.value.code == 2
    assert "'prefil' is no role; there are: prefill, decode" in capsys.readouterr().err
