"""Pools whose ranks are on several hosts: groups of pods that find and believe each other."""

import pytest

from pagewire_worker.config import WorkerConfig
from pagewire_worker.rank_hosts.lws import place_of, with_hosts
from pagewire_worker.rank_hosts.security import open_address
from support.charts.chart_variants import BUILTIN, VARIANTS
from support.charts.charts import Release, named, pods_of, render, selects
from support.processes.rank_pods import pod_environ

NAME = "pw-pagewire-worker-builtin"


@pytest.mark.parametrize(("variant", "size"), [("hosts", 2), ("hosts-bare", 3)])
def test_a_replica_is_a_group_of_pods(helm, variant, size):
    group = named(render(helm, VARIANTS[variant]), "LeaderWorkerSet", NAME)["spec"]
    assert group["replicas"] == 1
    template = group["leaderWorkerTemplate"]
    assert template["size"] == size
    # The worker of a group is gone with any of its ranks.
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    # Each pod finds its place in the environment.
    assert template.keys() == {"size", "restartPolicy", "workerTemplate"}


@pytest.mark.parametrize("variant", ["hosts", "hosts-bare"])
def test_pods_of_a_group_have_settings_of_ranks(helm, variant):
    objects = render(helm, VARIANTS[variant])
    (pods,) = [one for one in pods_of(objects, "worker") if one.name == NAME]
    flags = {
        word.removeprefix("--").replace("-", "_"): value.replace("$(POD_IP)", "10.1.2.3")
        for word, _, value in (argument.partition("=") for argument in pods.container["args"])
    }
    ranks = {
        name: int(flags.get(name, 1)) for name in ("tensor_parallel_size", "pipeline_parallel_size")
    }
    names = ("rank_listen", "rank_key_file", "distributed_executor_backend")
    given = {name: flags[name] for name in names}
    config = WorkerConfig(model="m", insecure="insecure" in flags, **ranks, **given)
    size = pods.owner["spec"]["leaderWorkerTemplate"]["size"]
    config = with_hosts(config, place_of(config, pod_environ(0, size)))
    assert config.num_ranks % config.rank_hosts == 0
    assert open_address(config).port == pods.ports["ranks"]
    mounts = {one["name"]: one["mountPath"] for one in pods.container["volumeMounts"]}
    assert config.rank_key_file == f"{mounts['ranks']}/key"


def test_only_the_pool_reaches_its_port_of_ranks(helm):
    objects = render(helm, VARIANTS["hosts"])
    policy = named(objects, "NetworkPolicy", "pw-pagewire-ranks-builtin")["spec"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8400}]
    (source,) = rule["from"]
    for selector in (policy["podSelector"], source["podSelector"]):
        chosen = [
            one.name for one in pods_of(objects) if selects(selector["matchLabels"], one.labels)
        ]
        assert chosen == [NAME]


def test_ranks_of_one_pod_need_no_group(helm):
    objects = render(helm, Release({"workers": [{**BUILTIN, "parallelism": {"tensor": 2}}]}))
    (pods,) = pods_of(objects, "worker")
    assert pods.owner["kind"] == "Deployment"
    assert pods.flags("tensor-parallel-size") == ["2"]
    assert not pods.flags("rank-listen")
    assert not any("rank-key" in item["metadata"]["name"] for item in objects)


def test_a_key_that_the_chart_makes_is_one(helm):
    objects = render(helm, VARIANTS["hosts"])
    key = named(objects, "Secret", "pw-pagewire-rank-key")["stringData"]["key"]
    assert len(bytes.fromhex(key)) == 32
