"""Opens the ZMQ sockets of the publisher, encrypted by CURVE where keys are given."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from pagewire_scheduler.kv_events.events_config import KvEventsConfig, is_bound
from pagewire_shared.errors import StartupError

_FIELD: Final = "kv_events_config"
MAX_REQUEST_BYTES: Final = 1024
_MAX_REQUESTS: Final = 64

_logger = logging.getLogger(__name__)


class EventSockets:
    """The sockets of one publisher, which are used by its thread alone once they are open.

    Attributes:
        publisher: Sends batches to all who subscribe.
        replay, snapshot: Answer requests; None without an endpoint.
    """

    def __init__(self, config: KvEventsConfig) -> None:
        """Raises StartupError naming the endpoint or the key file at fault."""
        self._context = zmq.Context()
        self._guard: ThreadAuthenticator | None = None
        try:
            self._keys = _curve_keys(config)
            if config.curve_client_keys:
                self._guard = _start_guard(self._context, config.curve_client_keys)
            self.publisher = self._open(zmq.PUB, config.hwm)
            self._listen(self.publisher, "endpoint", config.endpoint)
            self.replay = self._router("replay_endpoint", config.replay_endpoint, config)
            self.snapshot = self._router("snapshot_endpoint", config.snapshot_endpoint, config)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close everything; what was not sent is lost."""
        if self._guard is not None:
            self._guard.stop()
        self._context.destroy(linger=0)

    def _router(
        self, key: str, endpoint: str, config: KvEventsConfig
    ) -> "zmq.Socket[bytes] | None":
        if not endpoint:
            return None
        # A replay has at most so many messages; a peer that reads none gets no more.
        router = self._open(zmq.ROUTER, config.buffer_steps + 8)
        router.setsockopt(zmq.RCVHWM, _MAX_REQUESTS)
        self._listen(router, key, endpoint)
        return router

    def _open(self, kind: int, send_hwm: int) -> "zmq.Socket[bytes]":
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, 0)
        opened.setsockopt(zmq.SNDHWM, send_hwm)
        opened.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
        if self._keys is not None:
            opened.curve_publickey, opened.curve_secretkey = self._keys
            opened.curve_server = True
        return opened

    def _listen(self, opened: "zmq.Socket[bytes]", key: str, endpoint: str) -> None:
        try:
            if is_bound(endpoint):
                if "::" in endpoint:
                    opened.setsockopt(zmq.IPV6, 1)
                opened.bind(endpoint)
            else:
                opened.connect(endpoint)
        except zmq.ZMQError as error:
            raise StartupError(
                f"--kv-events-config: {key} {endpoint}: {error}", field=_FIELD
            ) from error
        if is_bound(endpoint):
            _logger.info("KV events: %s listens on %s", key, bound_endpoint(opened))


def bound_endpoint(opened: "zmq.Socket[bytes]") -> str:
    """Return where a socket listens, with the port that was picked for port 0."""
    endpoint = opened.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.decode().rstrip("\0")


def _curve_keys(config: KvEventsConfig) -> tuple[bytes, bytes] | None:
    path = config.curve_secret_key_file
    if not path:
        return None
    if not zmq.has("curve"):
        raise StartupError("--kv-events-config: this ZMQ has no CURVE", field=_FIELD)
    with _named("curve_secret_key_file", path):
        public, secret = zmq.auth.load_certificate(path)
    if secret is None:
        raise StartupError(
            f"--kv-events-config: curve_secret_key_file {path} has no secret key", field=_FIELD
        )
    return public, secret


def _start_guard(context: "zmq.Context[zmq.Socket[bytes]]", folder: str) -> ThreadAuthenticator:
    """Let in only who has a key of the folder; it is read once."""
    with _named("curve_client_keys", folder):
        if not any(Path(folder).glob("*.key")):
            raise OSError("the folder has no *.key")
        guard = ThreadAuthenticator(context)
        guard.start()
        guard.configure_curve(domain="*", location=folder)
    return guard


@contextlib.contextmanager
def _named(key: str, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise StartupError(f"--kv-events-config: {key} {path}: {error}", field=_FIELD) from error
