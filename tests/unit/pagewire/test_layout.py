"""Which processes a deployment has, and what each is told."""

import dataclasses
from pathlib import Path
from typing import get_type_hints

import pytest

from pagewire.config import ServeConfig, config_from_keywords
from pagewire.local.cluster import LocalCluster
from pagewire.local.frontend_group import mint_names
from pagewire.local.layout import (
    ChildSpec,
    Endpoints,
    child_environment,
    plan_children,
    threads_per_worker,
)
from pagewire.models import ServedModel
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.frontend_tag import slot_of

FOLDER = Path("/run/x")
ON_PORTS = Endpoints("0.0.0.0", 80, 81, "")
ON_SOCKET = Endpoints("", 8000, 8001, "/run/x/grpc.sock")


def plan(config: ServeConfig, *paths: str, endpoints: Endpoints = ON_PORTS) -> dict[str, ChildSpec]:
    models = [ServedModel(f"m{index}", path) for index, path in enumerate(paths)]
    return {spec.name: spec for spec in plan_children(config, models, FOLDER, endpoints)}


def value(spec: ChildSpec, flag: str) -> str:
    return spec.arguments[spec.arguments.index(flag) + 1]


def test_one_process_per_role(tmp_path: Path) -> None:
    specs = plan(ServeConfig(), str(tmp_path))
    assert list(specs) == ["kvstore", "scheduler", "worker-0", "frontend"]
    assert value(specs["scheduler"], "--kvstore") == value(specs["kvstore"], "--listen")
    for dialler in ("worker-0", "frontend"):
        assert value(specs[dialler], "--scheduler") == value(specs["scheduler"], "--listen")
    assert value(specs["frontend"], "--model") == f"m0={tmp_path}"
    assert value(specs["frontend"], "--host") == "0.0.0.0"
    assert value(specs["worker-0"], "--served-model-name") == "m0"
    assert specs["frontend"].starts_after == ()
    for spec in specs.values():
        assert spec.command[-1] == "--exit-with-parent"
        assert f"pagewire_{spec.role}" in spec.command


def test_workers_share_the_cores(tmp_path: Path) -> None:
    config = ServeConfig(num_workers=2)
    specs = plan(config, str(tmp_path), "org/b")
    workers = [spec for spec in specs.values() if spec.role == "worker"]
    assert [value(spec, "--model") for spec in workers] == [str(tmp_path)] * 2 + ["org/b"] * 2
    assert {value(spec, "--cpu-threads") for spec in workers} == {str(threads_per_worker(4))}
    assert len({value(spec, "--listen") for spec in workers}) == 4
    assert threads_per_worker(1) >= threads_per_worker(1000) == 1


def test_the_frontend_waits_for_files_that_a_worker_fetches() -> None:
    specs = plan(ServeConfig(num_workers=2), "org/a")
    assert specs["frontend"].starts_after == ("worker-0", "worker-1")


def test_a_given_store_replaces_the_started_one(tmp_path: Path) -> None:
    specs = plan(ServeConfig(kvstore=("a:1", "b:2")), str(tmp_path))
    assert "kvstore" not in specs
    arguments = specs["scheduler"].arguments
    assert [arguments[i + 1] for i, word in enumerate(arguments) if word == "--kvstore"] == [
        "a:1",
        "b:2",
    ]


def test_frontends_write_adapters_to_the_stores(tmp_path: Path) -> None:
    started = plan(ServeConfig(enable_lora=True), str(tmp_path))
    assert value(started["frontend"], "--kvstore") == value(started["kvstore"], "--listen")
    assert "--kvstore" not in plan(ServeConfig(), str(tmp_path))["frontend"].arguments


def test_the_started_store_gets_its_settings(tmp_path: Path) -> None:
    given = {
        "kvstore_memory": "2MiB",
        "kvstore_disk_path": str(tmp_path),
        "kvstore_disk_size": "1GiB",
        "kvstore_redis": "redis://:secret@host/0",
        "kvstore_adapter_bytes": "3MiB",
    }
    config = config_from_keywords(given, {}).config
    specs = plan(config, str(tmp_path))
    store = specs["kvstore"]
    assert value(store, "--memory-size") == str(2**21)
    assert value(store, "--disk-path") == str(tmp_path)
    assert value(store, "--disk-size") == str(2**30)
    assert value(store, "--adapter-bytes") == str(3 * 2**20)
    assert dict(store.environ) == {"PAGEWIRE_REDIS": "redis://:secret@host/0"}
    assert not any(spec.environ for spec in specs.values() if spec is not store)
    assert "secret" not in repr(list(specs.values())) + repr(config) + " ".join(store.command)


def test_several_stores_have_folders_of_their_own(tmp_path: Path) -> None:
    given = {"num_kvstores": "3", "kvstore_copies": "3", "kvstore_disk_path": str(tmp_path / "kv")}
    specs = plan(config_from_keywords(given, {}).config, str(tmp_path))
    stores = [spec for spec in specs.values() if spec.role == "kvstore"]
    assert [store.name for store in stores] == ["kvstore", "kvstore-1", "kvstore-2"]
    arguments = specs["scheduler"].arguments
    assert [arguments[i + 1] for i, word in enumerate(arguments) if word == "--kvstore"] == [
        value(store, "--listen") for store in stores
    ]
    assert value(specs["scheduler"], "--kvstore-copies") == "3"
    folders = [value(store, "--disk-path") for store in stores]
    assert folders == [str(tmp_path / "kv" / store.name) for store in stores]


def test_forwarded_settings_have_the_types_of_their_roles() -> None:
    hints = get_type_hints(ServeConfig)
    for item in dataclasses.fields(ServeConfig):
        # A tenant's weight is passed on as text.
        if "owner" in item.metadata and item.name != "tenant_weight":
            own = get_type_hints(item.metadata["owner"])[item.metadata["owner_name"]]
            assert hints[item.name] in (own, own | None), item.name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kvstore_memory": "1GiB", "kvstore": ["a:1"]}, "^--kvstore-memory: .*--kvstore names"),
        ({"num_kvstores": 2, "kvstore": ["a:1"]}, "^--num-kvstores: .*--kvstore names"),
        ({"kvstore_redis": "redis://h", "kvstore": ["a:1"]}, "^--kvstore-redis: "),
        ({"kvstore_disk_path": "/x", "kv_offload": "off"}, "^--kvstore-disk-path: .*off"),
        ({"kvstore_disk_size": "1GiB"}, "^--kvstore-disk-size: needs --kvstore-disk-path"),
    ],
)
def test_settings_of_a_store_that_is_not_started_are_refused(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        config_from_keywords(given, {})


def test_without_offloading_no_store_is_started(tmp_path: Path) -> None:
    specs = plan(ServeConfig(kv_offload="off"), str(tmp_path))
    assert list(specs) == ["scheduler", "worker-0", "frontend"]
    assert "--kvstore" not in specs["scheduler"].arguments
    given = plan(ServeConfig(kv_offload="off", kvstore=("a:1",)), str(tmp_path))
    assert value(given["scheduler"], "--kvstore") == "a:1"


def test_without_http_the_frontend_listens_on_a_socket_only(tmp_path: Path) -> None:
    arguments = plan(ServeConfig(), str(tmp_path), endpoints=ON_SOCKET)["frontend"].arguments
    assert "--no-http" in arguments
    assert "unix:/run/x/grpc.sock" in arguments
    assert "--port" not in arguments


def test_every_engine_setting_reaches_the_worker(tmp_path: Path) -> None:
    given = {
        "device": "cpu",
        "dtype": "float32",
        "model_impl": "native",
        "cpu_backend": "torch",
        "attention_backend": "sdpa",
        "load_format": "dummy",
        "linear_backend": "torch",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e4m3",
        "max_model_len": 64,
        "block_size": 8,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "kv_cache_memory": "1MiB",
        "gpu_memory_utilization": 0.75,
        "seed": 3,
        "steps_in_flight": 1,
        "kv_offload": "writeback",
        "log_level": "debug",
        "log_format": "json",
    }
    config = config_from_keywords(given, {}).config
    worker = plan(config, str(tmp_path))["worker-0"]
    for name, expected in {**given, "kv_cache_memory": 2**20}.items():
        assert value(worker, "--" + name.replace("_", "-")) == str(expected)
    assert "--no-enforce-eager" in worker.arguments
    eager = plan(ServeConfig(enforce_eager=True), str(tmp_path))["worker-0"]
    assert "--enforce-eager" in eager.arguments
    scheduler = plan(ServeConfig(enable_prefix_caching=False), str(tmp_path))["scheduler"]
    assert "--no-enable-prefix-caching" in scheduler.arguments


def test_children_get_no_setting_twice() -> None:
    environ = {
        "PAGEWIRE_PORT": "1",
        "PAGEWIRE_CONFIG": "x.yaml",
        "PAGEWIRE_MODEL": "m",
        "PAGEWIRE_STUCK_SECONDS": "9",
        "HOME": "h",
    }
    assert child_environment(environ) == {"PAGEWIRE_STUCK_SECONDS": "9", "HOME": "h"}


def test_keywords_are_the_flags_of_serve() -> None:
    loaded = config_from_keywords({"max_num_seqs": 4}, {"PAGEWIRE_BLOCK_SIZE": "8"})
    assert (loaded.config.max_num_seqs, loaded.config.block_size) == (4, 8)
    with pytest.raises(TypeError, match=r"'max_seqs'; did you mean max_num_seqs\?"):
        config_from_keywords({"max_seqs": 4}, {})


def test_tenant_weights_reach_the_scheduler_unchanged(tmp_path: Path) -> None:
    config = config_from_keywords({"tenant_weight": ["a=2", "b=0.50"]}, {}).config
    arguments = plan(config, str(tmp_path))["scheduler"].arguments
    assert [arguments[i + 1] for i, w in enumerate(arguments) if w == "--tenant-weight"] == [
        "a=2",
        "b=0.50",
    ]
    with pytest.raises(StartupError, match="--tenant-weight: 'foo'"):
        config_from_keywords({"tenant_weight": ["foo"]}, {})


def test_frontends_share_the_ports_and_are_peers(tmp_path: Path) -> None:
    endpoints = Endpoints("0.0.0.0", 80, 81, "", mint_names(3))
    specs = plan(ServeConfig(metrics_port=9000), str(tmp_path), endpoints=endpoints)
    frontends = [spec for spec in specs.values() if spec.role == "frontend"]
    assert [spec.name for spec in frontends] == ["frontend-0", "frontend-1", "frontend-2"]
    listening = {value(s, "--frontend-name"): value(s, "--peer-listen") for s in frontends}
    assert tuple(listening) == endpoints.names
    assert len(set(listening.values())) == 3
    for spec in frontends:
        assert "--shared-ports" in spec.arguments
        assert (value(spec, "--port"), value(spec, "--grpc-port")) == ("80", "81")
        peers = [spec.arguments[i + 1] for i, w in enumerate(spec.arguments) if w == "--peer"]
        own = value(spec, "--frontend-name")
        assert peers == [f"{n}={address}" for n, address in listening.items() if n != own]
    ports = [value(specs[name], "--metrics-port") for name in ("frontend-2", "scheduler")]
    assert ports == ["9002", "9003"]
    hosts = {value(spec, "--metrics-host") for spec in specs.values()}
    assert hosts == {ServeConfig().host}
    specs = plan(ServeConfig(metrics_port=9000, host="0.0.0.0", metrics_host="::1"), str(tmp_path))
    assert {value(spec, "--metrics-host") for spec in specs.values()} == {"::1"}


def test_a_single_frontend_has_no_peers(tmp_path: Path) -> None:
    arguments = plan(ServeConfig(), str(tmp_path))["frontend"].arguments
    assert {"--shared-ports", "--peer-listen", "--peer"} & set(arguments) == set()


@pytest.mark.parametrize("count", ["0", "65", "two"])
def test_the_number_of_frontends_is_bounded(count: str) -> None:
    with pytest.raises(StartupError, match="--frontends"):
        config_from_keywords({"frontends": count}, {})


def test_without_ports_there_is_one_frontend(tmp_path: Path) -> None:
    config = config_from_keywords({"frontends": 2, "model": (str(tmp_path),)}, {}).config
    with pytest.raises(StartupError, match="--frontends"):
        LocalCluster(config, has_http=False)


def test_names_of_frontends_have_different_slots() -> None:
    names = mint_names(64)
    assert len({slot_of(name) for name in names}) == 64
