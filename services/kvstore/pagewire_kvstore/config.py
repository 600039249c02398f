"""Settings of the KV store's process. Reads nothing itself."""

from dataclasses import dataclass

from pagewire_shared.process import ProcessConfig
from pagewire_shared.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class KvStoreConfig(ProcessConfig):
    """Flags of `pagewire kvstore`."""

    listen: str = setting("127.0.0.1:8200", "Address to serve on: host:port or unix:path")
