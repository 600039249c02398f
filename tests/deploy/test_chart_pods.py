"""What holds for every pod of the chart, whatever is switched on."""

import re

import pytest
from cryptography import x509

from pagewire_shared.security.roles import LINK_HOST, LinkRole
from pagewire_shared.security.tls_files import TlsPaths, read_files
from support.charts.chart_variants import BUILTIN, EVERYTHING, VARIANTS
from support.charts.charts import Release, bytes_of, named, pods_of, render

ROLES = {"frontend", "scheduler", "worker", "kvstore"}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.fixture(params=VARIANTS)
def objects(request, helm):
    return render(helm, VARIANTS[request.param])


def test_processes_have_three_probes_at_ports_that_they_have(objects):
    asked = pods_of(objects, *ROLES, "redis")
    assert {pods.role for pods in asked} >= {"frontend", "scheduler", "worker"}
    for pods in asked:
        for probe in PROBES:
            description = pods.container[probe]
            (how,) = {"grpc", "httpGet", "tcpSocket", "exec"} & description.keys()
            # A command would start a Python each time.
            assert how != "exec" or pods.role == "redis"
            if how != "exec":
                port = description[how]["port"]
                # The probe of gRPC takes no names.
                allowed = pods.ports.values() if how == "grpc" else pods.ports.keys()
                assert port in allowed, (pods.name, probe)
            assert {"periodSeconds", "failureThreshold"} <= description.keys()


def service_asked(probe):
    """Return the health service that a probe asks, beside the metrics where gRPC has TLS."""
    if "grpc" in probe:
        return probe["grpc"]["service"]
    assert probe["httpGet"]["port"] == "metrics"
    return probe["httpGet"]["path"].removeprefix("/health/")


def test_roles_have_certificates_or_say_that_they_have_none(objects):
    with_tls = "--tls-dir=/etc/pagewire/tls"
    for pods in pods_of(objects, *ROLES):
        arguments = pods.container["args"]
        # The port of ranks has no TLS, beside ports that have it.
        has_ranks = pods.owner["kind"] == "LeaderWorkerSet"
        assert ("--insecure" in arguments) == (has_ranks or with_tls not in arguments), pods.name
        mounts = {one["name"]: one["mountPath"] for one in pods.container["volumeMounts"]}
        assert (mounts.get("tls") == "/etc/pagewire/tls") == (with_tls in arguments)


def test_certificates_have_the_names_of_their_role(helm):
    objects = render(helm, VARIANTS["tls"])
    made = {
        item["spec"]["dnsNames"][0]: item["spec"]
        for item in objects
        if item["kind"] == "Certificate"
    }
    assert made.keys() == {f"{role}.pagewire" for role in ROLES}
    secrets = {
        pods.role: volume["secret"]["secretName"]
        for pods in pods_of(objects, *ROLES)
        for volume in pods.spec["volumes"]
        if volume["name"] == "tls"
    }
    assert secrets == {role: made[f"{role}.pagewire"]["secretName"] for role in ROLES}
    assert secrets["worker"] == "mine"
    for spec in made.values():
        assert spec["dnsNames"][1] == "link.pagewire"
        assert spec["issuerRef"] == {"name": "ours", "kind": "Issuer"}


def test_metrics_are_read_with_tls_and_a_token(helm):
    objects = render(helm, VARIANTS["metrics-tls"])
    for pods in pods_of(objects, *ROLES):
        assert "--metrics-tls" in pods.container["args"], pods.name
        assert pods.flags("metrics-token-file") == ["/etc/pagewire/metrics/token"]
        mounts = {one["mountPath"]: one["name"] for one in pods.container["volumeMounts"]}
        (volume,) = [
            one for one in pods.spec["volumes"] if one["name"] == mounts["/etc/pagewire/metrics"]
        ]
        assert volume["secret"]["secretName"] == "readers"
        assert volume["secret"]["items"] == [{"key": "token", "path": "token"}]
        annotations = pods.owner["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/scheme"] == "https"
        for probe in PROBES:
            asked = pods.container[probe].get("httpGet", {})
            assert asked.get("port") != "metrics" or asked["scheme"] == "HTTPS", (pods.name, probe)
    (monitor,) = [one for one in objects if one["kind"] == "PodMonitor"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"] == {"name": "readers", "key": "token"}
    assert endpoint["tlsConfig"]["serverName"] == LINK_HOST
    authority = endpoint["tlsConfig"]["ca"]["secret"]
    secrets = {
        volume["secret"]["secretName"]
        for pods in pods_of(objects, *ROLES)
        for volume in pods.spec["volumes"]
        if volume["name"] == "tls"
    }
    assert authority["key"] == "ca.crt"
    assert authority["name"] in secrets


def test_grpc_roles_are_asked_three_questions(objects):
    for pods in pods_of(objects, "scheduler", "worker", "kvstore"):
        services = [service_asked(pods.container[probe]) for probe in PROBES]
        assert services == ["startup", "readiness", "liveness"]
    (frontend,) = pods_of(objects, "frontend")
    paths = [frontend.container[probe]["httpGet"]["path"] for probe in PROBES]
    assert paths == ["/live", "/ready", "/live"]


def test_a_model_may_take_ten_minutes(helm):
    for name, release in VARIANTS.items():
        for pods in pods_of(render(helm, release), "worker"):
            startup = pods.container["startupProbe"]
            budget = startup["periodSeconds"] * startup["failureThreshold"]
            assert budget >= 600, name
            # Else the Deployment has failed before its pods have.
            if pods.owner["kind"] == "Deployment":
                assert pods.owner["spec"]["progressDeadlineSeconds"] > budget


def test_resources_are_asked_for_and_memory_is_bounded(objects):
    for pods in pods_of(objects):
        resources = pods.container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), pods.name
        assert bytes_of(resources["limits"]["memory"]) >= bytes_of(resources["requests"]["memory"])


def test_a_store_has_the_memory_that_it_takes(objects):
    for pods in pods_of(objects, "kvstore"):
        (size,) = pods.flags("memory-size")
        limit = bytes_of(pods.container["resources"]["limits"]["memory"])
        assert limit >= bytes_of(size.removesuffix("B")) + bytes_of("256Mi")


def test_nothing_is_privileged(objects):
    for pods in pods_of(objects):
        own, shared = pods.container["securityContext"], pods.spec["securityContext"]
        assert own["readOnlyRootFilesystem"] is own["runAsNonRoot"] is True
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert (own["runAsUser"], own["runAsGroup"], shared["fsGroup"]) == (10001, 10001, 10001)
        assert own["seccompProfile"] == shared["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pods.spec["automountServiceAccountToken"] is False
        assert pods.spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pods.spec.keys()
        assert not any("hostPath" in volume for volume in pods.spec["volumes"])


def test_what_is_mounted_exists_and_tmp_can_be_written(objects):
    for pods in pods_of(objects):
        volumes = {volume["name"]: volume for volume in pods.spec["volumes"]}
        assert len(volumes) == len(pods.spec["volumes"])
        claims = pods.owner["spec"].get("volumeClaimTemplates", [])
        names = {*volumes, *(claim["metadata"]["name"] for claim in claims)}
        mounts = {mount["mountPath"]: mount for mount in pods.container["volumeMounts"]}
        assert {mount["name"] for mount in mounts.values()} == names
        assert "emptyDir" in volumes[mounts["/tmp"]["name"]]
        assert not mounts["/tmp"].get("readOnly")
        if pods.role == "worker":
            assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["medium"] == "Memory"


def test_there_is_time_to_end(objects):
    for pods in pods_of(objects, *ROLES):
        drains = [*pods.flags("drain-seconds"), "2"]
        command = pods.container.get("lifecycle", {}).get("preStop", {}).get("exec", {})
        waits = int(command.get("command", ["sleep", "0"])[1])
        assert pods.spec["terminationGracePeriodSeconds"] >= waits + int(drains[0]) + 10


def test_frontends_wait_for_load_balancers_and_are_never_fewer(objects):
    (frontend,) = pods_of(objects, "frontend")
    if frontend.owner["kind"] == "Deployment":
        strategy = frontend.owner["spec"]["strategy"]
        assert strategy["rollingUpdate"]["maxUnavailable"] == 0
    (scheduler,) = pods_of(objects, "scheduler")
    if scheduler.owner["kind"] == "Deployment":
        assert scheduler.owner["spec"]["replicas"] == 1
        assert scheduler.owner["spec"]["strategy"] == {"type": "Recreate"}
    is_pair = scheduler.owner["spec"]["replicas"] == 2
    assert is_pair is (scheduler.owner["kind"] == "StatefulSet")
    assert ("--paired" in scheduler.container["args"]) is is_pair


def test_pods_of_a_role_are_spread(objects):
    for pods in pods_of(objects, *ROLES):
        constraints = pods.spec["topologySpreadConstraints"]
        assert constraints
        for constraint in constraints:
            labels = constraint["labelSelector"]["matchLabels"]
            assert labels.items() <= pods.labels.items()
            assert labels["app.kubernetes.io/component"] == pods.role


def test_images_are_those_of_the_role(objects):
    for pods in pods_of(objects):
        image = pods.container["image"]
        assert not image.endswith((":latest", ":"))
        wanted = {"redis": "docker.io/library/redis:7"}.get(pods.role)
        role = "frontend" if pods.role == "test" else pods.role
        assert image == wanted or re.search(rf"(^|/)pagewire/{role}:\d", image), image


def test_registries_tags_and_digests(helm):
    def image(values):
        objects = render(helm, Release(values))
        return pods_of(objects, "scheduler")[0].container["image"]

    digest = "sha256:" + "a" * 64
    everywhere = {"registry": "r.example.org:5000/", "tag": "2"}
    assert image({"image": everywhere}) == "r.example.org:5000/pagewire/scheduler:2"
    own = {"image": everywhere, "scheduler": {"image": {"registry": "s", "tag": "3"}}}
    assert image(own) == "s/pagewire/scheduler:3"
    pinned = {"scheduler": {"image": {"repository": "mine/s", "digest": digest}}}
    assert image(pinned) == f"mine/s@{digest}"


def test_a_pool_on_gpu_has_one_device_and_none_to_spare(helm):
    gpu = {**BUILTIN, "device": "gpu", "gpuResource": "amd.com/gpu"}
    (pods,) = pods_of(render(helm, Release({"workers": [gpu]})), "worker")
    assert pods.container["resources"]["limits"] == {"memory": "8Gi", "amd.com/gpu": 1}
    assert pods.owner["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    (pods,) = pods_of(render(helm, Release({"workers": [BUILTIN]})), "worker")
    assert pods.container["resources"]["limits"] == {"memory": "8Gi"}
    assert pods.owner["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_pools_say_only_what_differs(helm):
    other = {"name": "b", "drainSeconds": 0, "replicas": 0, "startup": {"failureThreshold": 90}}
    other["resources"] = {"limits": {"memory": "9Gi"}}
    values = {"workerDefaults": {"drainSeconds": 7}, "workers": [BUILTIN, {**BUILTIN, **other}]}
    first, second = pods_of(render(helm, Release(values)), "worker")
    assert (first.flags("drain-seconds"), second.flags("drain-seconds")) == (["7"], ["0"])
    assert second.owner["spec"]["replicas"] == 0
    resources = second.container["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "9Gi"}}
    assert second.container["startupProbe"]["periodSeconds"] == 10
    assert second.container["startupProbe"]["failureThreshold"] == 90


def test_replicas_are_left_to_who_scales(helm):
    objects = render(helm, VARIANTS["everything"])
    with_replicas = {pods.name for pods in pods_of(objects) if "replicas" in pods.owner["spec"]}
    assert "pw-pagewire-worker-small-2" in with_replicas
    scaled = {"frontend", "worker-large", "worker-small"}
    assert not with_replicas & {f"pw-pagewire-{name}" for name in scaled}


def test_extras_reach_their_pods(helm):
    objects = render(helm, Release(EVERYTHING))
    for pods in pods_of(objects, *ROLES):
        environment = {entry["name"] for entry in pods.container["env"]}
        assert "EVERYWHERE" in environment
        assert pods.spec["imagePullSecrets"] == [{"name": "registry"}]
        assert pods.template["metadata"]["annotations"]["example.org/all"] == "y"
        assert pods.template["metadata"]["annotations"]["prometheus.io/port"] == "9090"
        has_extras = pods.name != "pw-pagewire-worker-small" and pods.name[-2:] != "-2"
        assert ("EXTRA" in environment) is has_extras
        assert pods.spec["priorityClassName"] == ("high" if has_extras else "low")
        assert ("affinity" in pods.spec) is has_extras
        assert pods.labels["team"] == "other"


def test_another_token_of_the_hub_starts_pods_again(helm):
    def annotations(token):
        objects = render(helm, Release({"hubToken": {"value": token}}))
        return {
            pods.role: pods.template["metadata"].get("annotations") for pods in pods_of(objects)
        }

    one, two = annotations("a"), annotations("b")
    assert {role for role in one if one[role] != two[role]} == {"frontend", "worker"}


def test_only_models_on_a_volume_are_read_only(helm):
    objects = render(helm, VARIANTS["elsewhere"])
    for pods in pods_of(objects, "frontend", "worker"):
        (mount,) = [m for m in pods.container["volumeMounts"] if m["mountPath"] == "/models"]
        assert mount["readOnly"]
        environment = {entry["name"]: entry.get("value") for entry in pods.container["env"]}
        assert environment["HF_HUB_OFFLINE"] == "1"
        assert environment["HF_HUB_CACHE"] == "/models/hub"
    claim = named(
        render(helm, VARIANTS["everything"]), "PersistentVolumeClaim", "pw-pagewire-models"
    )
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_process_that_hangs_is_found_and_ended_within_15_s(objects):
    for pods in pods_of(objects, "scheduler", "worker", "frontend", "kvstore"):
        probe = pods.container["livenessProbe"]
        budget = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
        assert budget <= 15, pods.name
        # Not so fast that one slow answer kills it.
        assert probe["failureThreshold"] >= 3
        assert probe["terminationGracePeriodSeconds"] <= 5
        assert "terminationGracePeriodSeconds" not in pods.container["readinessProbe"]


def test_the_chart_makes_certificates_of_its_own_authority(helm, tmp_path):
    objects = render(helm, VARIANTS["default"])
    secrets = {
        item["metadata"]["name"].removeprefix("pw-pagewire-"): item["stringData"]
        for item in objects
        if item["kind"] == "Secret"
    }
    assert secrets.pop("authority").keys() == {"ca.crt", "ca.key"}
    assert secrets.keys() == {f"{role}-tls" for role in LinkRole}
    for role in LinkRole:
        for name, text in secrets[f"{role}-tls"].items():
            (tmp_path / name).write_text(text)
        files = read_files(TlsPaths.in_folder(tmp_path))
        certificate = x509.load_pem_x509_certificate(files.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files.authority))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [role.host, LINK_HOST]


def test_public_ports_have_the_certificate_that_is_named(helm):
    (pods,) = pods_of(render(helm, VARIANTS["public-tls"]), "frontend")
    assert "--ssl-certfile=/etc/pagewire/public/tls.crt" in pods.container["args"]
    assert {pods.container[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
    (plain,) = pods_of(render(helm, VARIANTS["default"]), "frontend")
    assert {plain.container[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTP"}
