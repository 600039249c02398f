"""Values that the chart refuses, and that what it says names the key."""

import pytest

from support.charts.chart_variants import AUTOSCALING, BUILTIN, ON
from support.charts.charts import Release, refusal, run

HOSTS = {"tensor": 2, "hosts": 2}
KEDA = {**ON, "serverAddress": "http://p"}


def pool(**settings):
    return {"workers": [{**BUILTIN, **settings}]}


BY_SCHEMA = [
    ({"replicas": 1}, "additional properties 'replicas' not allowed"),
    ({"scheduler": {"replicas": 3}}, "/scheduler/replicas': maximum: got 3, want 2"),
    ({"scheduler": {"queuePolicy": "lifo"}}, "/scheduler/queuePolicy"),
    ({"frontend": {"replicas": 0}}, "/frontend/replicas"),
    ({"frontend": {"replicas": "2"}}, "/frontend/replicas': got string, want integer"),
    ({"frontend": {"drainSeconds": -1}}, "/frontend/drainSeconds"),
    ({"frontend": {"preStopSeconds": -1}}, "/frontend/preStopSeconds"),
    ({"frontend": {"service": {"type": "External"}}}, "/frontend/service/type"),
    ({"frontend": {"service": {"httpPort": 70000}}}, "/frontend/service/httpPort"),
    ({"frontend": {"extraArgs": ["--api-key=secret"]}}, "/frontend/extraArgs/0"),
    ({"frontend": {"extraArgs": ["max-waiting"]}}, "/frontend/extraArgs/0"),
    ({"frontend": {"resources": {"limits": {"memory": None}}}}, "/frontend/resources/limits"),
    ({"frontend": {"podDisruptionBudget": {"maxUnavailable": 0}}}, "podDisruptionBudget"),
    ({"workers": []}, "/workers': minItems"),
    ({"workers": [{"name": "a"}]}, "missing property 'model'"),
    ({"workers": [{"model": "pagewire-builtin"}]}, "missing property 'name'"),
    (pool(name="Big"), "/workers/0/name"),
    (pool(name="a" * 21), "/workers/0/name"),
    (pool(model="relative/path/model"), "/workers/0/model"),
    (pool(model="org/name@main"), "/workers/0/model"),
    (pool(model="name"), "/workers/0/model"),
    (pool(roles=[]), "/workers/0/roles"),
    (pool(roles=["generate"]), "/workers/0/roles/0"),
    (pool(device="cuda"), "/workers/0/device': value must be one of 'cpu', 'gpu'"),
    (pool(dtype="int4"), "/workers/0/dtype"),
    (pool(drainSeconds=-1), "/workers/0/drainSeconds"),
    (pool(replicas=-1), "/workers/0/replicas"),
    (pool(maxModelLen=0), "/workers/0/maxModelLen"),
    (pool(kvCacheMemory="2 Gi"), "/workers/0/kvCacheMemory"),
    (pool(shmSize="2GiB"), "/workers/0/shmSize"),
    (pool(parallelism={"tensor": 17}), "/workers/0/parallelism/tensor"),
    (pool(parallelism={"nodes": 2}), "/workers/0/parallelism"),
    (pool(kvOffload="maybe"), "/workers/0/kvOffload"),
    (pool(keda={"threshold": 0}), "/workers/0/keda/threshold"),
    (pool(gpus=2), "additional properties 'gpus' not allowed"),
    ({"workerDefaults": {"name": "a"}}, "/workerDefaults/name"),
    ({"kvstore": {"replicas": 0}}, "/kvstore/replicas"),
    ({"kvstore": {"memorySize": "2Gi"}}, "/kvstore/memorySize"),
    ({"kvstore": {"disk": {"path": "/x"}}}, "additional properties 'path' not allowed"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"frontend": {"image": {"digest": "sha256:1"}}}, "/frontend/image/digest"),
    ({"log": {"level": "loud"}}, "/log/level"),
    ({"modelVolume": {"mountPath": "models"}}, "/modelVolume/mountPath"),
    ({"modelVolume": {"accessModes": ["Any"]}}, "/modelVolume/accessModes/0"),
    ({"ingress": {"hosts": []}}, "/ingress/hosts"),
    ({"inferencePool": {"endpointPicker": {"failureMode": "x"}}}, "endpointPicker/failureMode"),
]

BY_TEMPLATE = [
    (
        {"workers": [BUILTIN, {**BUILTIN, "name": "b", "model": "/m/pagewire-builtin"}]},
        'workers: "pagewire-builtin" names two models',
    ),
    (pool(autoscaling=AUTOSCALING, keda=KEDA), 'workers: "builtin" has autoscaling and keda'),
    (pool(keda=ON), 'keda.serverAddress of "builtin" is needed'),
    (pool(keda={**KEDA, "minReplicas": 0}), "keda.minReplicas is 0 for every pool"),
    (pool(keda={**KEDA, "minReplicas": 9}), 'minReplicas of "builtin" is above'),
    (pool(autoscaling=ON), 'autoscaling of "builtin" needs metrics'),
    ({"frontend": {"autoscaling": {**ON, "minReplicas": 99}}}, "frontend.autoscaling.minReplicas"),
    (
        {"frontend": {"autoscaling": {**ON, "targetCPUUtilizationPercentage": 0}}},
        "frontend.autoscaling needs metrics",
    ),
    ({"apiKeys": {"existingSecret": "a", "lines": ["b"]}}, "apiKeys: existingSecret or lines"),
    ({"hubToken": {"existingSecret": "a", "value": "b"}}, "hubToken: existingSecret or value"),
    ({"modelVolume": {"existingClaim": "a", "create": True}}, "modelVolume: existingClaim or"),
    ({"modelVolume": {"readOnly": True}}, "modelVolume.readOnly needs existingClaim"),
    ({"redis": {**ON, "existingSecret": "a"}}, "redis: existingSecret or enabled"),
    ({"redis": ON, "kvstore": {"enabled": False}}, "it needs kvstore.enabled"),
    ({"inferencePool": ON}, "inferencePool.endpointPicker.name is needed"),
    ({"httpRoute": ON}, "httpRoute.parentRefs is needed"),
    ({"kvEvents": ON}, "kvEvents needs curveSecret, or insecure"),
    ({"kvEvents": {**ON, "insecure": True}}, "kvEvents.insecure needs kvEvents.from"),
    ({"kvEvents": {"config": {"endpoint": "a"}}}, "kvEvents.config: endpoint follows"),
    (
        {"metrics": {"tls": True, "tokenSecret": "a"}, "tls": {"enabled": False}},
        "metrics.tls needs tls.enabled",
    ),
    ({"metrics": {"tls": True}}, "metrics.tls needs metrics.tokenSecret"),
    (pool(parallelism={"tensor": 8, "pipeline": 4}), 'parallelism of "builtin" has 32 ranks'),
    (pool(parallelism={"tensor": 4, "hosts": 3}), "4 ranks (tensor times pipeline), which 3 hosts"),
    (pool(parallelism={"tensor": 2}, device="gpu"), 'parallelism of "builtin" is for CPUs'),
    (pool(parallelism=HOSTS, keda=KEDA), '"builtin" has parallelism.hosts, whose groups'),
    (
        {**pool(parallelism=HOSTS), "networkPolicy": {"enabled": False}},
        'parallelism.hosts of "builtin" needs networkPolicy.enabled',
    ),
]


@pytest.mark.parametrize(("values", "message"), BY_SCHEMA, ids=[m for _, m in BY_SCHEMA])
def test_the_schema_names_the_key(helm, values, message):
    said = refusal(helm, values)
    assert "values don't meet the specifications of the schema" in said
    assert message in said


@pytest.mark.parametrize(("values", "message"), BY_TEMPLATE, ids=[m for _, m in BY_TEMPLATE])
def test_what_contradicts_itself_is_one_clear_line(helm, values, message):
    assert message in refusal(helm, values)


def test_keys_are_not_shown(helm):
    said = refusal(helm, {"apiKeys": {"existingSecret": "a", "lines": ["k-e-y"]}})
    assert "k-e-y" not in said


def test_kubernetes_is_new_enough(helm):
    done = run(helm, Release(flags=["--kube-version", "1.26.0"]), "template")
    assert done.returncode != 0
    assert "kubeVersion: >=1.27" in done.stderr
