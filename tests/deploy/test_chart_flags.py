"""The command lines and environments of the chart, read by the settings of the roles themselves."""

import json
import re
from dataclasses import fields

import pytest

from pagewire.config import ServeConfig
from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.group.membership import parse_membership
from pagewire_frontend.models.model_registry import parse_specs
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.kv_events.events_config import check_reach, parse_kv_events
from pagewire_shared.identity.api_key import parse_api_key
from pagewire_shared.pair.addresses import parse_schedulers
from pagewire_shared.process.settings import load_config
from pagewire_shared.rpc.address import parse_address
from pagewire_worker.config import WorkerConfig
from support.charts.chart_variants import BUILTIN, EVERYTHING, VARIANTS
from support.charts.charts import CHART, Release, named, pods_of, render

CONFIGS = {
    "frontend": FrontendConfig,
    "scheduler": SchedulerConfig,
    "worker": WorkerConfig,
    "kvstore": KvStoreConfig,
}
POD_IP = "10.1.2.3"
VARIABLE = re.compile(r"\$\(([A-Z_]+)\)")


@pytest.fixture(params=VARIANTS)
def objects(request, helm):
    return render(helm, VARIANTS[request.param])


def environ_of(pods, number=0):
    """Return what a container sees; the text of Secrets is another matter."""
    from_field = {"status.podIP": POD_IP, "metadata.name": f"{pods.name}-{number}"}
    environ = {}
    for entry in pods.container["env"]:
        source = entry.get("valueFrom", {})
        path = source.get("fieldRef", {}).get("fieldPath")
        environ[entry["name"]] = entry.get("value") or from_field.get(path, "redis://secret")
    assert len(environ) == len(pods.container["env"]), "a variable is there twice"
    return environ


def config_of(pods, number=0):
    """Return the settings of a process, as it would read them itself."""
    assert "command" not in pods.container, "the entrypoint of the image is `pagewire ROLE`"
    environ = environ_of(pods, number)
    args = [VARIABLE.sub(lambda m: environ[m[1]], arg) for arg in pods.container["args"]]
    config = CONFIGS[pods.role]
    return load_config(config, args, environ, prog=pods.name, description="").config


def test_roles_take_their_flags_and_listen_where_their_ports_are(objects):
    for pods in pods_of(objects, *CONFIGS):
        config = config_of(pods)
        assert config.metrics_port == pods.ports["metrics"] == 9090
        assert config.log_format == "json"
        if pods.role == "frontend":
            assert (config.port, config.grpc_port) == (pods.ports["http"], pods.ports["grpc"])
            assert config.host == "0.0.0.0"
        else:
            assert config.listen == f"0.0.0.0:{pods.ports['grpc']}"


@pytest.mark.parametrize(("name", "port"), [("everything", 5557), ("elsewhere", 6557)])
def test_the_scheduler_publishes_where_the_service_leads(helm, name, port):
    objects = render(helm, VARIANTS[name])
    (scheduler,) = pods_of(objects, "scheduler")
    events = parse_kv_events(config_of(scheduler).kv_events_config)
    assert events.is_on
    ports = named(objects, "Service", f"{scheduler.name}".replace("scheduler", "kv-events"))["spec"]
    offered = {f"tcp://*:{one['port']}" for one in ports["ports"]}
    assert offered == set(events.listened.values())
    assert events.endpoint == f"tcp://*:{port}"
    open_ones = check_reach(events, is_insecure=False)
    assert set(open_ones) == (set() if name == "elsewhere" else offered)
    mounts = [one["mountPath"] for one in scheduler.container["volumeMounts"]]
    assert (events.curve_client_keys in mounts) == (name == "elsewhere")


def test_no_flag_is_given_twice_unless_it_is_a_list(objects):
    lists = {"--model", "--kvstore", "--tenant", "--peer"}
    lists |= {"--tool-call-parser", "--reasoning-parser"}
    for pods in pods_of(objects, *CONFIGS):
        flags = [arg.partition("=")[0] for arg in pods.container["args"]]
        repeated = {flag for flag in flags if flags.count(flag) > 1}
        assert repeated <= lists


def test_no_flag_holds_a_secret(objects):
    for pods in pods_of(objects, *CONFIGS):
        for arg in pods.container["args"]:
            assert not arg.startswith(("--api-key=", "--redis"))
            assert "token=" not in arg


def test_addresses_are_those_of_services(objects):
    def check(address, role):
        found = parse_address(address, setting="x")
        service = found.host.split(".")[-1]
        (port,) = named(objects, "Service", service)["spec"]["ports"]
        assert (port["port"], service.rpartition("-")[2]) == (found.port, role)
        if "." in found.host:
            store = found.host.split(".")[0].rpartition("-")
            assert store[0] == service
            replicas = named(objects, "StatefulSet", service)["spec"]["replicas"]
            assert 0 <= int(store[2]) < replicas

    def check_schedulers(text):
        addresses = parse_schedulers(text, setting="x")
        for address in addresses:
            check(str(address), "scheduler")
        (pods,) = pods_of(objects, "scheduler")
        assert len(addresses) == pods.owner["spec"]["replicas"]

    for pods in pods_of(objects, "worker"):
        config = config_of(pods)
        check_schedulers(config.scheduler)
        assert config.advertise_address == f"{POD_IP}:8300"
    for pods in pods_of(objects, "frontend"):
        for address in config_of(pods).scheduler:
            check_schedulers(address)
    (scheduler,) = pods_of(objects, "scheduler")
    stores = config_of(scheduler).kvstore
    for address in stores:
        check(address, "kvstore")
    for pods in pods_of(objects, "frontend"):
        frontend = config_of(pods)
        assert frontend.kvstore == (stores if frontend.enable_lora else ())
    replicas = [pods.owner["spec"]["replicas"] for pods in pods_of(objects, "kvstore")]
    assert len(stores) == sum(replicas)
    copies = [arg for arg in scheduler.container["args"] if arg.startswith("--kvstore-copies=")]
    assert copies == (["--kvstore-copies=2"] if len(stores) > 1 else [])


def test_frontends_know_the_models_of_the_workers(objects):
    workers = [config_of(pods) for pods in pods_of(objects, "worker")]
    (frontend,) = [config_of(pods) for pods in pods_of(objects, "frontend")]
    specs = parse_specs(frontend.model, frontend.served_model_name)
    assert {(spec.name, spec.path) for spec in specs} == {
        (worker.served_model_name, worker.model) for worker in workers
    }


@pytest.mark.parametrize(("name", "size"), [("group", 3), ("scaled-group", 4)])
def test_frontends_of_a_group_know_each_other(helm, name, size):
    objects = render(helm, VARIANTS[name])
    (pods,) = pods_of(objects, "frontend")
    assert pods.owner["kind"] == "StatefulSet"
    peers = named(objects, "Service", pods.owner["spec"]["serviceName"])
    names = {f"{pods.name}-{number}" for number in range(size)}
    for number in range(size):
        config = config_of(pods, number)
        assert config.peer_address.port == pods.ports["peers"]
        membership = parse_membership(config.frontend_name, config.peer)
        assert membership.name == f"{pods.name}-{number}"
        assert membership.peers.keys() == names - {membership.name}
        for peer, address in membership.peers.items():
            assert address.host == f"{peer}.{peers['metadata']['name']}"
            assert address.port == peers["spec"]["ports"][0]["port"]


def test_without_a_group_frontends_have_no_peers(helm):
    (pods,) = pods_of(render(helm, Release()), "frontend")
    config = config_of(pods)
    assert (config.peer, config.peer_address) == ((), None)
    assert "peers" not in pods.ports


def test_settings_of_a_pool_arrive(helm):
    objects = render(helm, VARIANTS["everything"])
    workers = {pods.name.rpartition("worker-")[2]: pods for pods in pods_of(objects, "worker")}
    large = config_of(workers["large"])
    assert (large.device, large.dtype, large.max_model_len) == ("cuda", "bfloat16", 1048576)
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (128, 4096)
    assert (large.kv_cache_memory, large.seed) == (20 * 1024**3, 1)
    small = config_of(workers["small-2"])
    assert (small.device, small.roles, small.served_model_name) == ("cpu", ("decode",), "small")
    assert small.max_model_len is small.kv_cache_memory is None
    frontend = config_of(pods_of(objects, "frontend")[0])
    assert frontend.tool_call_parser == ("large=hermes",)
    assert frontend.reasoning_parser == ("large=deepseek_r1",)
    store = config_of(pods_of(objects, "kvstore")[0])
    assert (store.disk_path, store.disk_size) == ("/var/lib/pagewire", 90 * 1024**3)
    assert store.max_adapter_bytes == 4 * 1024**3
    assert (store.shared_memory_path, store.tenant) == ("off", ("team-a=1GiB",))


def test_redis_is_told_by_the_environment(helm):
    for name, url in (
        ("disaggregated", "redis://pw-pagewire-redis:6379/0"),
        ("elsewhere", "redis://secret"),
        ("default", None),
    ):
        (pods,) = pods_of(render(helm, VARIANTS[name]), "kvstore")
        assert config_of(pods).redis == url


def test_without_a_store_nothing_is_offloaded(helm):
    for name, offload in (("bare", "off"), ("default", "writethrough")):
        (pods,) = pods_of(render(helm, VARIANTS[name]), "worker")
        assert config_of(pods).kv_offload == offload


def test_choices_of_the_chart_are_those_of_the_flags():
    schema = json.loads((CHART / "values.schema.json").read_text())
    parts = schema["properties"] | schema["definitions"]
    found = set()
    for part, prefix, config in (
        ("scheduler", "", SchedulerConfig),
        ("pool", "", WorkerConfig),
        ("log", "log_", ServeConfig),
    ):
        choices = {item.name: item.metadata["choices"] for item in fields(config)}
        for key, value in parts[part]["properties"].items():
            name = prefix + re.sub("[A-Z]", r"_\g<0>", key).lower()
            # Devices of the chart are resources of Kubernetes.
            if "enum" in value and name != "device":
                assert tuple(value["enum"]) == choices[name], name
                found.add(name)
    assert found >= {"queue_policy", "handoff", "dtype", "kv_offload", "log_level", "log_format"}


def test_keys_in_values_are_keys():
    for line in EVERYTHING["apiKeys"]["lines"]:
        parse_api_key(line, may_be_named=True)


def test_a_wrong_flag_is_found(helm):
    wrong = {**BUILTIN, "extraArgs": ["--no-such-flag"]}
    (pods,) = pods_of(render(helm, Release({"workers": [wrong]})), "worker")
    with pytest.raises(SystemExit):
        config_of(pods)
