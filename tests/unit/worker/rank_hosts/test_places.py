"""Where hosts and ranks are: layouts, the environment of LeaderWorkerSet, and what is refused."""

from dataclasses import replace

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.rank_hosts.layout import HostLayout
from pagewire_worker.rank_hosts.leader import reached_at
from pagewire_worker.rank_hosts.lws import (
    PodPlace,
    is_followed,
    leader_address,
    place_of,
    with_hosts,
)
from pagewire_worker.rank_hosts.security import open_address, rank_key
from support.processes.rank_pods import pod_environ

CONFIG = WorkerConfig(model="m", tensor_parallel_size=2)
ENV = replace(CONFIG, distributed_executor_backend="env")


def test_neighbours_share_a_host() -> None:
    layout = HostLayout(6, 3)
    assert [list(layout.ranks_of(host)) for host in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [layout.host_of(rank) for rank in range(6)] == [0, 0, 1, 1, 2, 2]


def test_ranks_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(StartupError, match=r"--rank-hosts: 4 ranks .* between 3 hosts"):
        HostLayout(4, 3)


def test_a_pod_knows_its_place() -> None:
    place = place_of(CONFIG, pod_environ(1, 2, "group-0.svc"))
    assert place == PodPlace("group-0.svc", 2, 1)
    config = with_hosts(CONFIG, place)
    assert (config.rank_hosts, config.distributed_executor_backend) == (2, "env")
    assert str(leader_address(config, place)) == "group-0.svc:8400"
    assert is_followed(pod_environ(1))
    assert not is_followed(pod_environ(0))
    assert not is_followed({})


def test_without_pods_a_worker_is_alone() -> None:
    assert place_of(CONFIG, {}) is None
    assert place_of(replace(CONFIG, distributed_executor_backend="mp"), pod_environ(1)) is None
    assert with_hosts(CONFIG, None) == CONFIG


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({}, "env needs LWS_LEADER_ADDRESS"),
        ({"LWS_GROUP_SIZE": "2"}, "LWS_LEADER_ADDRESS is missing"),
        (pod_environ(2), "LWS_WORKER_INDEX must be a number from 0 to 1, got '2'"),
        (pod_environ(0, 17), "LWS_GROUP_SIZE must be a number from 1 to 16"),
        ({**pod_environ(0), "LWS_WORKER_INDEX": "-1"}, "LWS_WORKER_INDEX must be"),
    ],
)
def test_environments_that_make_no_sense_are_refused(environ: dict[str, str], reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        place_of(ENV, environ)


def test_hosts_without_a_way_to_start_them_are_refused() -> None:
    with pytest.raises(StartupError, match="--rank-hosts: no environment"):
        with_hosts(replace(CONFIG, rank_hosts=2), None)
    with pytest.raises(StartupError, match="--rank-hosts: 3, and LWS_GROUP_SIZE is 2"):
        with_hosts(replace(CONFIG, rank_hosts=3), PodPlace("a", 2, 0))
    with pytest.raises(StartupError, match="mp has one"):
        replace(CONFIG, rank_hosts=2, distributed_executor_backend="mp")


@pytest.mark.parametrize(
    ("listen", "reached"),
    [
        ("10.0.0.7:8400", "10.0.0.7:8400"),
        ("0.0.0.0:8400", "10.0.0.9:8400"),
        ("[::]:8400", "10.0.0.9:8400"),
        ("", ""),
    ],
)
def test_a_host_is_reached_where_it_listens(listen: str, reached: str) -> None:
    assert reached_at({"listen": listen}, "10.0.0.9") == reached


def test_a_port_that_others_reach_needs_a_word() -> None:
    """Also with certificates: states pass it in the clear."""
    open_one = replace(CONFIG, rank_listen="10.0.0.1:8400", tls_dir="certs")
    with pytest.raises(StartupError, match=r"--rank-listen 10.0.0.1:8400: .*--insecure"):
        open_address(open_one)
    assert str(open_address(replace(open_one, insecure=True))) == "10.0.0.1:8400"
    with pytest.raises(StartupError, match="--rank-key-file is needed"):
        rank_key(CONFIG)
