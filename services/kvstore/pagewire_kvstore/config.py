"""Settings of the KV store's process; pagewire_shared.process.settings parses them."""

from dataclasses import dataclass

from pagewire_kvstore.blocks.tenants import Tenants, parse_tenant
from pagewire_shared.errors import StartupError
from pagewire_shared.process.settings import ProcessConfig, setting
from pagewire_shared.process.sizes import parse_size

MIB = 1024 * 1024
GIB = 1024 * MIB

_MINIMUMS = {"memory_size": MIB // 16, "disk_size": MIB, "put_buffer_size": MIB, "tenant_quota": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvStoreConfig(ProcessConfig):
    """Flags of `pagewire kvstore`."""

    listen: str = setting("127.0.0.1:8200", "Address to serve on: host:port or unix:path")
    memory_size: int = setting(
        256 * MIB, "Bytes of blocks in memory, such as 2GiB; taken at the start", parse=parse_size
    )
    disk_path: str | None = setting(None, "Folder for blocks on disk; none if unset")
    disk_size: int = setting(8 * GIB, "Most bytes of blocks on disk", parse=parse_size)
    redis: str | None = setting(
        None,
        "URL of one Redis, no cluster, that several KV stores may share; none if unset",
        is_secret=True,
    )
    shared_memory_path: str | None = setting(
        None,
        "Folder in memory through which workers of this host share --memory-size; off for none"
        " (/dev/shm if unset and large enough)",
    )
    tenant_quota: int | None = setting(
        None,
        "Most bytes per tenant in memory and on disk each; no bound if unset",
        parse=parse_size,
    )
    tenant: tuple[str, ...] = setting(
        (), "NAME=BYTES: a tenant with a quota of its own; may be repeated"
    )
    known_tenants_only: bool = setting(False, "Refuse tenants that --tenant does not name")
    stall_seconds: float = setting(
        10.0, "How long a stream may wait for a peer that sends or takes nothing"
    )
    put_buffer_size: int = setting(
        128 * MIB, "Most bytes of blocks on their way in, over all streams", parse=parse_size
    )

    adapter_bytes: int | None = setting(
        None,
        "Most bytes of the content of adapters, on the disk where there is one; 0 for none"
        " (default: 4GiB on disk, 256MiB in memory)",
        parse=parse_size,
    )

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} must be at least {minimum}, got {value}", field=name)
        # Written so that NaN is refused, too.
        if not 0 < self.stall_seconds < float("inf"):
            raise StartupError(
                f"--stall-seconds must be more than 0, got {self.stall_seconds}",
                field="stall_seconds",
            )
        self.tenants()

    @property
    def max_adapter_bytes(self) -> int:
        """Most bytes of the content of adapters."""
        if self.adapter_bytes is not None:
            return self.adapter_bytes
        return 256 * MIB if self.disk_path is None else 4 * GIB

    def tenants(self) -> Tenants:
        """Return the tenants that are served. Raises StartupError."""
        quotas: dict[str, int] = {}
        for text in self.tenant:
            name, quota = parse_tenant(text)
            if name in quotas:
                raise StartupError(f"--tenant: {name!r} is named twice", field="tenant")
            quotas[name] = quota
        return Tenants(self.tenant_quota, quotas, known_only=self.known_tenants_only)
