"""Channel and server options of gRPC, in one place, because several defaults do harm.

By default a blackholed peer is never noticed (keepalive off), a server kills clients that ping
(too_many_pings), and two servers share one port silently (SO_REUSEPORT). Messages end at 4 MiB, and
BDP probing lets stalled streams buffer hundreds of MiB.
"""

CONTROL_MESSAGE_BYTES = 16 * 1024 * 1024
KV_MESSAGE_BYTES = 5 * 1024 * 1024

MAX_PENDING_CALLS = 16 * 1024
"""Most calls that wait for a server, which accepts one per turn of its event loop. gRPC's default
is 1,000; it cancels some calls above that at random, without a reason that a client could read."""

PENDING_CALL_BYTES = 64 * 1024
"""Bytes that a server takes of a call before the call is accepted. A larger message waits at its
sender until a handler reads it."""

Options = list[tuple[str, int]]

_KEEPALIVE: Options = [
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 5000),
    # Newer gRPC uses this in place of the line above; the default is 60 s.
    ("grpc.http2.ping_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def _sizes(message_bytes: int) -> Options:
    return [
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_receive_message_length", message_bytes),
    ]


def control_channel_options() -> Options:
    """Options of a channel that carries steps or tokens: small windows, quick reconnects."""
    return [*_KEEPALIVE, *_responsive()]


def public_channel_options() -> Options:
    """Options of a client's channel to the public API.

    A proxy may count frequent pings as abuse (too_many_pings), so pings are rare, and are sent only
    during calls.
    """
    return [
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        *_responsive(),
    ]


def _responsive() -> Options:
    return [
        *_sizes(CONTROL_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 50),
        # Also the connect timeout: below one second, connects fail under load.
        ("grpc.min_reconnect_backoff_ms", 2000),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 1024 * 1024),
        # A channel to a restarted peer must not reuse a dead subchannel's backoff.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def kv_channel_options() -> Options:
    """Options of a channel that carries KV blocks: BDP probing stays on for long links."""
    return [*_KEEPALIVE, *_sizes(KV_MESSAGE_BYTES)]


def server_options(*, is_port_shared: bool = False) -> Options:
    """Options of every server; `is_port_shared` only for several frontends on one port."""
    return [
        *_patient(),
        *_sizes(CONTROL_MESSAGE_BYTES),
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        ("grpc.so_reuseport", int(is_port_shared)),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", PENDING_CALL_BYTES),
    ]


def kv_server_options() -> Options:
    """Options of a server whose streams carry KV blocks: the other side of kv_channel_options.

    Credits bound the data of a stream under way, not the transport's windows.
    """
    return [*_patient(), *_sizes(KV_MESSAGE_BYTES), ("grpc.so_reuseport", 0)]


def _patient() -> Options:
    """Return options that send keepalive pings and accept frequent pings of peers."""
    return [
        *_KEEPALIVE,
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
        ("grpc.http2.max_ping_strikes", 0),
    ]
