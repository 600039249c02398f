"""What the objects of the chart say of each other: who is selected, what is referred to, who may
reach whom, and that releases do not meet."""

import itertools

import pytest
import yaml

from support.charts.chart_variants import BUILTIN, EVERYTHING, VARIANTS
from support.charts.charts import (
    CHART,
    Release,
    named,
    of_kind,
    pods_of,
    references,
    refusal,
    render,
    selects,
)

# Secrets and claims that a variant says are there already.
EXTERNAL = {
    "gpu": {"pagewire-keys", "hub-token"},
    "elsewhere": {"keys", "hub", "models", "redis", "test-key", "kv-events"},
    "disaggregated": {"models"},
    "keda": {"models"},
    "public-tls": {"public"},
    "metrics-tls": {"readers"},
    "hosts-bare": {"ours"},
    # cert-manager makes them.
    "tls": {"mine", *(f"pw-pagewire-{role}-tls" for role in ("frontend", "scheduler", "kvstore"))},
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture
def objects(variant, helm):
    return render(helm, VARIANTS[variant])


def test_names_are_said_once_and_fit(objects):
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)
    for kind, name in names:
        # A Service is a label of DNS; a StatefulSet's name and a digest are the value of a label.
        longest = {"StatefulSet": 52}.get(kind, 63)
        assert len(name) <= longest, (kind, name)


def test_everything_is_labelled_as_the_releases(objects, variant):
    chart_version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for item in objects:
        if item["metadata"]["name"] in ("text", "pw-more"):
            continue
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == VARIANTS[variant].name
        # Another tag of the images is another version.
        version = labels["app.kubernetes.io/version"]
        assert version == chart_version or variant != "default"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert item["metadata"]["namespace"] == "serving"


def test_services_select_pods_with_their_ports(objects):
    services = of_kind(objects, "Service")
    assert len(services) >= 3
    for service in services:
        chosen = [p for p in pods_of(objects) if selects(service["spec"]["selector"], p.labels)]
        (role,) = {pods.role for pods in chosen}
        assert service["metadata"]["name"].split("-")[-1] in (role, "grpc", "peers", "events")
        for port in service["spec"]["ports"]:
            assert all(port["targetPort"] in pods.ports for pods in chosen)


def test_owners_select_their_own_pods_and_no_others(objects):
    for pods in pods_of(objects, "frontend", "scheduler", "worker", "kvstore", "redis"):
        if pods.owner["kind"] == "LeaderWorkerSet":
            continue  # it labels its pods itself
        selector = pods.owner["spec"]["selector"]["matchLabels"]
        assert [p.name for p in pods_of(objects) if selects(selector, p.labels)] == [pods.name]


def test_disruption_budgets_select_one_pool_each(objects, variant):
    budgets = of_kind(objects, "PodDisruptionBudget")
    chosen = [
        pods.name
        for budget in budgets
        for pods in pods_of(objects)
        if selects(budget["spec"]["selector"]["matchLabels"], pods.labels)
    ]
    roles = ["frontend", "worker", *([] if variant == "bare" else ["kvstore"])]
    (scheduler,) = pods_of(objects, "scheduler")
    if scheduler.owner["spec"]["replicas"] == 2:
        roles.append("scheduler")
    wanted = [pods.name for pods in pods_of(objects, *roles)]
    kept = {"bare": [pods.name for pods in pods_of(objects, "kvstore")]}
    assert sorted(chosen) == sorted(kept.get(variant, wanted))


def test_scalers_and_routes_lead_to_what_is_there(objects):
    for scaler in of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        owner = named(objects, target.get("kind", "Deployment"), target["name"])
        assert owner["metadata"]["name"] == scaler["metadata"]["name"]
        assert "replicas" not in owner["spec"]
    for ingress in of_kind(objects, "Ingress"):
        for backend in references(ingress, "service"):
            ports = named(objects, "Service", backend["name"])["spec"]["ports"]
            assert backend["port"]["name"] in [port["name"] for port in ports]
    for route in of_kind(objects, "HTTPRoute"):
        (backend,) = route["spec"]["rules"][0]["backendRefs"]
        found = named(objects, backend.get("kind", "Service"), backend["name"])
        if found["kind"] == "Service":
            assert backend["port"] in [port["port"] for port in found["spec"]["ports"]]
    for pool in of_kind(objects, "InferencePool"):
        (frontend,) = pods_of(objects, "frontend")
        assert selects(pool["spec"]["selector"]["matchLabels"], frontend.labels)
        assert pool["spec"]["targetPorts"] == [{"number": frontend.ports["http"]}]


def test_what_pods_refer_to_exists(objects, variant):
    made = {
        item["metadata"]["name"]: item
        for item in of_kind(objects, "Secret", "ConfigMap", "PersistentVolumeClaim")
    }
    external = EXTERNAL.get(variant, set())
    for pods in pods_of(objects):
        for claim in references(pods.spec, "claimName"):
            assert claim in made or claim in external
        for volume in references(pods.spec, "secret"):
            name = volume["secretName"]
            if name not in external:
                assert volume["items"][0]["key"] in made[name]["stringData"]
        for reference in references(pods.spec, "secretKeyRef"):
            name = reference["name"]
            assert name in external or reference["key"] in made[name]["stringData"]
        account = pods.spec["serviceAccountName"]
        assert account == "default" or named(objects, "ServiceAccount", account)


def test_secrets_are_only_in_secrets(helm):
    objects = render(helm, VARIANTS["everything"])
    for item in objects:
        text = repr(item)
        assert item["kind"] == "Secret" or "key-one" not in text
        assert item["kind"] == "Secret" or "hf_secret" not in text
    (frontend,) = pods_of(objects, "frontend")
    assert frontend.flags("api-key-file") == ["/etc/pagewire/keys/api-keys"]
    keys = named(objects, "Secret", "pw-pagewire-api-keys")["stringData"]["api-keys"]
    assert keys.splitlines() == EVERYTHING["apiKeys"]["lines"]


def may_reach(objects, caller, callee, port):
    """What the policies of the release say; None stands for a pod of nobody's."""
    policies = [
        policy["spec"]
        for policy in of_kind(objects, "NetworkPolicy")
        if selects(policy["spec"]["podSelector"]["matchLabels"], callee.labels)
    ]
    assert policies, f"nothing guards {callee.name}"
    rules = [rule for spec in policies for rule in spec.get("ingress", ())]
    return any(
        port in [allowed["port"] for allowed in rule["ports"]]
        and (
            "from" not in rule
            or any(
                caller is not None and selects(labels, caller.labels)
                for peer in rule["from"]
                if (labels := peer.get("podSelector", {}).get("matchLabels"))
            )
        )
        for rule in rules
    )


def test_policies_are_of_what_comes_in_and_cover_every_pod(objects, variant):
    policies = of_kind(objects, "NetworkPolicy")
    assert bool(policies) is (variant != "bare")
    # One that spoke of what goes out would let nothing out.
    assert all(policy["spec"]["policyTypes"] == ["Ingress"] for policy in policies)
    for policy in policies:
        labels = policy["spec"]["podSelector"]["matchLabels"]
        assert any(selects(labels, pods.labels) for pods in pods_of(objects))
    (nobody,) = [p for p in policies if "ingress" not in p["spec"]] or [None]
    for pods in pods_of(objects) if nobody else ():
        assert selects(nobody["spec"]["podSelector"]["matchLabels"], pods.labels)


CALLS = {
    ("frontend", "scheduler"): "grpc",
    ("worker", "scheduler"): "grpc",
    ("worker", "worker"): "grpc",
    ("worker", "kvstore"): "grpc",
    ("scheduler", "kvstore"): "grpc",
    ("kvstore", "redis"): "redis",
}


def test_only_who_has_to_may_reach_a_part_of_the_cell(helm):
    objects = render(helm, VARIANTS["disaggregated"])
    everybody = pods_of(objects)
    assert {pods.role for pods in everybody} >= {"kvstore", "redis", "test"}
    inner = [pods for pods in everybody if pods.role not in ("frontend", "test")]
    for caller, callee in itertools.product([None, *everybody], inner):
        for name, port in callee.ports.items():
            role = caller.role if caller else None
            wanted = CALLS.get((role, callee.role)) == name
            assert may_reach(objects, caller, callee, port) is wanted, (role, callee.name, name)


def test_frontends_reach_the_stores_where_there_are_adapters(helm):
    for name, is_writing in (("default", False), ("everything", True)):
        objects = render(helm, VARIANTS[name])
        (frontend,), (store,) = pods_of(objects, "frontend"), pods_of(objects, "kvstore")
        assert may_reach(objects, frontend, store, store.ports["grpc"]) is is_writing


def test_everybody_reaches_the_frontends_unless_some_are_named(helm):
    for name, is_open in (("default", True), ("everything", False)):
        objects = render(helm, VARIANTS[name])
        (frontend,) = pods_of(objects, "frontend")
        (test,) = pods_of(objects, "test")
        for port in ("http", "grpc"):
            assert may_reach(objects, None, frontend, frontend.ports[port]) is is_open
            assert may_reach(objects, test, frontend, frontend.ports[port])
        assert not may_reach(objects, None, frontend, frontend.ports["metrics"])


def test_only_frontends_reach_the_peers_of_a_group(helm):
    objects = render(helm, VARIANTS["group"])
    (frontend,) = pods_of(objects, "frontend")
    for caller in [None, *pods_of(objects)]:
        wanted = caller is not None and caller.role == "frontend"
        assert may_reach(objects, caller, frontend, frontend.ports["peers"]) is wanted


def test_metrics_are_for_one_namespace(helm):
    policy = named(render(helm, Release()), "NetworkPolicy", "pw-pagewire-metrics")
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 9090}]
    labels = {"kubernetes.io/metadata.name": "monitoring"}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": labels}}]


def test_two_releases_in_one_namespace_do_not_meet(helm):
    pairs = [("a", "b"), ("r" * 40 + "-one", "r" * 40 + "-two"), ("pagewire", "pagewire-2")]
    for pair in pairs:
        one, two = (
            [
                item
                for item in render(helm, Release({**EVERYTHING, "extraObjects": []}, name=name))
                if item["metadata"].get("annotations", {}).get("helm.sh/hook") != "test"
            ]
            for name in pair
        )
        names = [{(i["kind"], i["metadata"]["name"]) for i in objects} for objects in (one, two)]
        assert names[0] & names[1] == set()
        for mine, theirs in ((one, two), (two, one)):
            for selector in references(mine, "matchLabels"):
                if "app.kubernetes.io/name" in selector:
                    assert not any(selects(selector, pods.labels) for pods in pods_of(theirs))


def test_pools_may_not_share_a_name(helm):
    assert 'two pools are named "builtin"' in refusal(helm, {"workers": [BUILTIN, BUILTIN]})
