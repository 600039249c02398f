"""Transports of KV blocks between two workers."""

import enum


class KvTransport(enum.Enum):
    """A transport; its value is its name in metrics, usage and reports."""

    GRPC = "grpc"
    SHARED_MEMORY = "shared_memory"
    NIXL = "nixl"
    MOONCAKE = "mooncake"
