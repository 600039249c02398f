"""Reads `--kv-events-config`, vLLM's JSON object, and decides which endpoints may be opened."""

import ipaddress
import json
from dataclasses import dataclass, fields
from typing import Any, Final

from pagewire_shared.errors import StartupError

MAX_ENDPOINT_BYTES: Final = 256
_FLAG: Final = "--kv-events-config"
_COUNTS: Final = {
    "buffer_steps": (1, 10_000_000),
    "hwm": (1, 10_000_000),
    "max_queue_size": (1, 10_000_000),
    "snapshot_max_blocks": (1, 100_000_000),
    "snapshot_max_response_bytes": (1 << 16, 1 << 31),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventsConfig:
    """The object's keys: vLLM's, and those behind them, which are Pagewire's own.

    Attributes:
        endpoint: Where batches are published; a wildcard or a loopback address is listened on,
            any other is dialled, as in vLLM.
        replay_endpoint, snapshot_endpoint: Where past batches and snapshots are asked for.
        buffer_steps: Batches kept for replays.
        hwm: Batches that wait for one subscriber; further ones are not sent to it.
        max_queue_size: Batches that wait for the publishing thread; further ones are dropped.
        topic: Text in front of each batch; {worker} and {model} stand for their names.
        snapshot_max_blocks: Blocks beyond which no snapshot is made.
        snapshot_max_response_bytes: Largest snapshot.
        stores: Whether KV stores are published, too.
        salted_tokens: Whether token ids of blocks with a tenant or a cache_salt are published.
        insecure: Listen in the clear on addresses that other machines reach.
        curve_secret_key_file: Certificate with the secret key of this publisher, for CURVE.
        curve_client_keys: Folder with the public keys of the subscribers that may connect.
    """

    enable_kv_cache_events: bool = False
    publisher: str = "zmq"
    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str = ""
    buffer_steps: int = 10_000
    hwm: int = 4_096
    max_queue_size: int = 10_000
    topic: str = "kv@{worker}@{model}"
    snapshot_endpoint: str = ""
    snapshot_max_blocks: int = 1_000_000
    snapshot_max_response_bytes: int = 256 * 2**20
    stores: bool = True
    salted_tokens: bool = False
    insecure: bool = False
    curve_secret_key_file: str = ""
    curve_client_keys: str = ""

    @property
    def is_on(self) -> bool:
        """Whether events are published."""
        return self.enable_kv_cache_events and self.publisher == "zmq"

    @property
    def listened(self) -> dict[str, str]:
        """The endpoints in use, by their keys."""
        named = {
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "snapshot_endpoint": self.snapshot_endpoint,
        }
        return {key: endpoint for key, endpoint in named.items() if endpoint}


def kv_events_text(text: str) -> str:
    """Return `text`, which goes on to the scheduler as it is. Raises StartupError."""
    parse_kv_events(text)
    return text


def parse_kv_events(text: str) -> KvEventsConfig:
    """Return the configuration in a JSON object, or in "". Raises StartupError naming the key."""
    if not text.strip():
        return KvEventsConfig()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{text[:100]!r} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise StartupError(f"{text[:100]!r} is not a JSON object")
    known = {item.name: type(item.default).__name__ for item in fields(KvEventsConfig)}
    for key, value in given.items():
        if key not in known:
            raise StartupError(f"unknown key {str(key)[:100]!r}; known are {', '.join(known)}")
        _check_type(key, value, known[key])
    config = KvEventsConfig(**{key: value for key, value in given.items() if value is not None})
    _check(config)
    return config


def is_bound(endpoint: str) -> bool:
    """Whether an endpoint is listened on, and not dialled."""
    host = _host_of(endpoint)
    return endpoint.startswith("ipc://") or host in ("*", "::", "0.0.0.0") or _is_loopback(host)


def is_local(endpoint: str) -> bool:
    """Whether only this machine reaches an endpoint."""
    return endpoint.startswith("ipc://") or _is_loopback(_host_of(endpoint))


def check_reach(config: KvEventsConfig, *, is_insecure: bool) -> list[str]:
    """Return the endpoints that others reach in the clear, which the operator has allowed.

    Raises:
        StartupError: An endpoint is reached by other machines without CURVE, and neither the
            object nor the process says that it may be.
    """
    if config.curve_secret_key_file:
        return []
    open_ones = [one for one in config.listened.items() if not is_local(one[1])]
    if open_ones and not (config.insecure or is_insecure):
        key, endpoint = open_ones[0]
        raise StartupError(
            f"{_FLAG}: {key} {endpoint} is reached by other machines, and token ids of prompts"
            " would go there in the clear: give curve_secret_key_file and curve_client_keys,"
            ' --insecure, or "insecure": true',
            field="kv_events_config",
        )
    return [endpoint for _, endpoint in open_ones]


def _check_type(key: str, value: Any, kind: str) -> None:
    if value is None:
        return
    if type(value).__name__ != kind:
        raise StartupError(f"{key}: {value!r} is not a valid {kind}")
    if isinstance(value, str) and len(value.encode()) > MAX_ENDPOINT_BYTES:
        raise StartupError(f"{key} has more than {MAX_ENDPOINT_BYTES} bytes")


def _check(config: KvEventsConfig) -> None:
    if config.publisher not in ("zmq", "null"):
        raise StartupError(f"publisher: {config.publisher!r} is none of zmq, null")
    for key, (low, high) in _COUNTS.items():
        if not low <= getattr(config, key) <= high:
            raise StartupError(f"{key}: {getattr(config, key)} is not between {low} and {high}")
    for key, endpoint in config.listened.items():
        _check_endpoint(key, endpoint)
        if key != "endpoint" and not is_bound(endpoint):
            raise StartupError(
                f"{key}: {endpoint} is not an address to listen on; write tcp://*:PORT"
            )
    if len(set(config.listened.values())) < len(config.listened):
        raise StartupError("endpoint, replay_endpoint and snapshot_endpoint must differ")
    if bool(config.curve_secret_key_file) != bool(config.curve_client_keys):
        raise StartupError("curve_secret_key_file and curve_client_keys come together")
    if config.curve_secret_key_file and not is_bound(config.endpoint):
        raise StartupError(
            "curve_secret_key_file: endpoint is dialled; CURVE needs one to listen on"
        )
    try:
        config.topic.format(worker="", model="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise StartupError("topic: only {worker} and {model} may stand in braces") from error


def _check_endpoint(key: str, endpoint: str) -> None:
    if endpoint.startswith("ipc://") and len(endpoint) > len("ipc://"):
        return
    host, port = _host_of(endpoint), endpoint.rpartition(":")[2]
    if not endpoint.startswith("tcp://") or not host or not port.isdigit() or int(port) > 65535:
        raise StartupError(f"{key}: {endpoint!r} is not tcp://HOST:PORT or ipc://PATH")


def _host_of(endpoint: str) -> str:
    return endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
