"""Flags and files choose a connector and its settings; what is wrong is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagewire.config import config_from_keywords
from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.connectors import mooncake_client
from pagewire_worker.connectors.lmcache import LmcacheConnector
from pagewire_worker.connectors.lmcache_settings import LmcacheSettings, read_lmcache_settings
from pagewire_worker.connectors.making import connector_of, outside_store_of
from pagewire_worker.connectors.mooncake_settings import read_mooncake_settings
from pagewire_worker.connectors.transfer_config import choice_of
from pagewire_worker.offload.sealed_connector import SealedConnector

MASTER = {"master_server_address": "h:1"}
LMCACHE = {
    "kv_connector": "LMCacheConnectorV1",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"lmcache.remote_url": "lm://h:65"},
}


def config(**settings: str) -> WorkerConfig:
    return WorkerConfig(model="m", **settings)  # type: ignore[arg-type]


def test_names_of_both_projects_choose_a_connector() -> None:
    assert choice_of(config()).name == "pagewire"
    assert choice_of(config(kv_connector="mooncake")).name == "mooncake"
    given = json.dumps({"kv_connector": "MooncakeStoreConnector", "kv_rank": 3})
    assert choice_of(config(kv_transfer_config=given)).name == "mooncake"
    choice = choice_of(config(kv_transfer_config=json.dumps(LMCACHE), kv_connector="lmcache"))
    assert (choice.name, choice.settings) == ("lmcache", {"lmcache.remote_url": "lm://h:65"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ({"connector": "x"}, "connector is unknown; there are kv_connector"),
        ({"kv_connector": "FooConnector"}, "FooConnector is unknown; there are MooncakeStore"),
        ({"kv_connector": "NixlConnector"}, "workers move blocks themselves: --prefill-workers"),
        ({"kv_connector": "OffloadingConnector"}, "--kvstore-memory"),
        ({"kv_connector": 3}, "kv_connector is a text"),
        ({**LMCACHE, "kv_role": "kv_producer"}, "kv_role: kv_both is served"),
        ({**LMCACHE, "kv_connector_extra_config": []}, None),
        ({**LMCACHE, "kv_connector_extra_config": [1]}, "kv_connector_extra_config an object"),
        ({"kv_connector": "a:B", "kv_connector_extra_config": {"c": 1}}, "a:B takes no settings"),
    ],
)
def test_a_wrong_object_is_refused_by_name(given: Any, said: str | None) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    if said is None:
        choice_of(config(kv_transfer_config=text))
        return
    with pytest.raises(StartupError, match=said) as caught:
        choice_of(config(kv_transfer_config=text))
    assert caught.value.field == "kv_transfer_config"


def test_flags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(StartupError, match="names lmcache, and --kv-connector mooncake"):
        choice_of(config(kv_transfer_config=json.dumps(LMCACHE), kv_connector="mooncake"))
    keywords = {"model": "m", "kv_connector": "lmcache"}
    assert not config_from_keywords(keywords, {}).config.starts_store
    with pytest.raises(StartupError, match="reach another store"):
        config_from_keywords({**keywords, "kvstore": ["h:1"]}, {})
    with pytest.raises(StartupError, match="another --kv-connector"):
        config_from_keywords({**keywords, "kvstore_memory": "1GiB"}, {})


def test_mooncake_takes_its_own_names_from_flag_file_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    values = {**MASTER, "global_segment_size": "2gb", "enable_ssd_offload": True, "device_name": ""}
    path.write_text(json.dumps(values))
    settings = read_mooncake_settings({}, {"MOONCAKE_CONFIG_PATH": str(path)})
    assert (settings.master_server_address, settings.global_segment_size) == ("h:1", 2 * 1024**3)
    assert settings.store_name == "mooncake:h:1"
    given = {"replica_num": 2, "master_server_address": "o:2"}
    settings = read_mooncake_settings(given, {"MOONCAKE_CONFIG_PATH": str(path)})
    assert (settings.master_server_address, settings.replica_num) == ("o:2", 2)
    assert read_mooncake_settings({}, {"MOONCAKE_MASTER": "e:3"}).master_server_address == "e:3"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "where is the master"),
        ({**MASTER, "replicas": 2}, "replicas is unknown"),
        ({**MASTER, "replica_num": 0}, "replica_num is 1 to 16"),
        ({**MASTER, "replica_num": True}, "replica_num is 1 to 16"),
        ({**MASTER, "global_segment_size": "much"}, "global_segment_size: 'much' is not a size"),
        ({**MASTER, "protocol": 3}, "protocol is a text"),
    ],
)
def test_wrong_settings_of_mooncake_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        read_mooncake_settings(given, {})


@pytest.mark.parametrize("text", [None, "no json", "[]"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "file"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StartupError, match="MOONCAKE_CONFIG_PATH"):
        read_mooncake_settings({}, {"MOONCAKE_CONFIG_PATH": str(path)})


def test_lmcache_takes_its_own_names() -> None:
    given = {"lmcache.remote_url": "lm://h:65", "lmcache.remote_serde": "naive"}
    assert read_lmcache_settings(given, {}) == LmcacheSettings("h", 65)
    assert read_lmcache_settings({}, {"LMCACHE_REMOTE_URL": "lm://[::1]:65"}).host == "::1"
    assert read_lmcache_settings(given, {}).store_name == "lmcache:h:65"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "where is the server"),
        ({"remote_url": "redis://h:1"}, "is not lm://host:port"),
        ({"remote_url": "lm://h"}, "is not lm://host:port"),
        ({"remote_url": "lm://h:99999"}, "is not lm://host:port"),
        ({"remote_url": "lm://h:1", "remote_serde": "cachegen"}, "remote_serde is naive"),
        ({"remote_url": "lm://h:1", "chunk_size": 256}, "chunk_size is unknown"),
    ],
)
def test_wrong_settings_of_lmcache_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        read_lmcache_settings(given, {})


def test_a_worker_says_which_store_it_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMCACHE_REMOTE_URL", "lm://h:65")
    assert outside_store_of(config()) == ""
    assert outside_store_of(config(kv_connector="lmcache")) == "lmcache:h:65"
    assert outside_store_of(config(kv_connector="lmcache", kv_offload="off")) == ""
    keys = tmp_path / "keys"
    keys.write_text("ab" * 32)
    sealed = connector_of(config(kv_connector="lmcache", kv_key_file=str(keys)))
    assert isinstance(sealed, SealedConnector)
    assert sealed.outside_store == "lmcache:h:65"
    assert isinstance(connector_of(config(kv_connector="lmcache")), LmcacheConnector)


def test_a_library_that_is_not_there_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOONCAKE_MASTER", "h:1")
    monkeypatch.setattr(mooncake_client, "LIBRARY", "no_such_library")
    with pytest.raises(StartupError, match=r"pip install 'pagewire\[mooncake\]'") as caught:
        connector_of(config(kv_connector="mooncake"))
    assert "\n" not in str(caught.value)
