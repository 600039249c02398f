"""`--kv-events-config`: vLLM's keys, errors that name the key, and who may listen where."""

import json
import sys

import pytest

from pagewire.config import config_from_keywords
from pagewire_scheduler.kv_events.events_config import check_reach, is_bound, parse_kv_events
from pagewire_scheduler.kv_events.start import start_kv_events
from pagewire_shared.errors import StartupError

ON = '{"enable_kv_cache_events": true}'


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        ("", False),
        ("{}", False),
        (ON, True),
        ('{"enable_kv_cache_events": true, "publisher": "null"}', False),
        ('{"enable_kv_cache_events": true, "publisher": null, "replay_endpoint": null}', True),
        ('{"publisher": "zmq"}', False),
    ],
)
def test_events_are_on_as_in_vllm(text, is_on):
    assert parse_kv_events(text).is_on is is_on


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "not a JSON object"),
        ("{", "not JSON"),
        ('{"endpont": "a"}', "'endpont'"),
        ('{"hwm": true}', "hwm: True is not a valid int"),
        ('{"hwm": 0}', "hwm: 0 is not between"),
        ('{"buffer_steps": "9"}', "buffer_steps: '9' is not a valid int"),
        ('{"publisher": "kafka"}', "publisher: 'kafka' is none of"),
        ('{"endpoint": "tcp://a"}', "endpoint: 'tcp://a' is not"),
        ('{"endpoint": "inproc://a"}', "endpoint: 'inproc://a' is not"),
        ('{"endpoint": "tcp://*:70000"}', "endpoint: 'tcp://*:70000' is not"),
        ('{"replay_endpoint": "tcp://10.0.0.1:9"}', "replay_endpoint: tcp://10.0.0.1:9"),
        ('{"replay_endpoint": "tcp://127.0.0.1:5557"}', "must differ"),
        ('{"curve_secret_key_file": "a"}', "come together"),
        ('{"topic": "kv@{pod}"}', "topic: only {worker} and {model}"),
        (json.dumps({"topic": "a" * 300}), "topic has more than"),
        (
            '{"endpoint": "tcp://10.0.0.1:1", "curve_secret_key_file": "a",'
            ' "curve_client_keys": "b"}',
            "endpoint is dialled",
        ),
    ],
)
def test_a_fault_is_named(text, said):
    with pytest.raises(StartupError, match=r"(?s).*") as caught:
        parse_kv_events(text)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("endpoint", "bound", "insecure"),
    [
        ("tcp://*:5557", True, True),
        ("tcp://0.0.0.0:5557", True, True),
        ("tcp://[::]:5557", True, True),
        ("tcp://127.0.0.1:5557", True, False),
        ("tcp://localhost:5557", True, False),
        ("ipc:///tmp/a", True, False),
        ("tcp://indexer:5557", False, True),
    ],
)
def test_what_others_reach_has_to_be_allowed(endpoint, bound, insecure):
    config = parse_kv_events(json.dumps({"endpoint": endpoint}))
    assert is_bound(endpoint) is bound
    assert check_reach(config, is_insecure=True) == ([endpoint] if insecure else [])
    if insecure:
        with pytest.raises(StartupError, match="token ids of prompts"):
            check_reach(config, is_insecure=False)
    allowed = parse_kv_events(json.dumps({"endpoint": endpoint, "insecure": True}))
    check_reach(allowed, is_insecure=False)


def test_serve_and_llm_hand_it_on():
    given = {"enable_kv_cache_events": True, "topic": "kv@{worker}@{model}"}
    config = config_from_keywords({"kv_events_config": given}, {}).config
    assert json.loads(config.kv_events_config) == given
    with pytest.raises(StartupError, match="kv-events-config: unknown key 'a'"):
        config_from_keywords({"kv_events_config": {"a": 1}}, {})


def test_without_the_packages_one_line_names_the_extra(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("pagewire_scheduler.kv_events")]:
        if module.rpartition(".")[2] not in ("kv_events", "events_config", "start"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(
        StartupError, match=r"zmq is not installed; pip install 'pagewire\[events\]'"
    ):
        start_kv_events(parse_kv_events(ON), None, is_insecure=False, is_caching=True)


def test_without_prefix_caching_there_is_nothing_to_publish():
    with pytest.raises(StartupError, match="no-enable-prefix-caching"):
        start_kv_events(parse_kv_events(ON), None, is_insecure=False, is_caching=False)
