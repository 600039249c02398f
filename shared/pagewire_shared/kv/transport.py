"""How KV blocks move between two workers."""

import enum


class KvTransport(enum.Enum):
    """Values are what metrics, usage and reports call them."""

    GRPC = "grpc"
    SHARED_MEMORY = "shared_memory"
