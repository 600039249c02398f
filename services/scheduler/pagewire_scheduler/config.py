"""Settings of the scheduler role. Reads nothing itself."""

from dataclasses import dataclass

from pagewire_shared.errors import StartupError
from pagewire_shared.process import ProcessConfig
from pagewire_shared.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(ProcessConfig):
    """What `pagewire scheduler` takes."""

    listen: str = setting(
        "127.0.0.1:8100", "Where workers and frontends dial: host:port, unix:path"
    )
    kvstore: tuple[str, ...] = setting((), "Address of a KV store, told to workers; repeatable")
    enable_prefix_caching: bool = setting(True, "Share KV blocks between equal prefixes")
    max_num_waiting: int = setting(4096, "Sequences that may wait; more are refused")
    lease_seconds: float = setting(5.0, "How long requests outlive their frontend's stream")

    def __post_init__(self) -> None:
        for name, low in (("max_num_waiting", 1), ("lease_seconds", 0)):
            if getattr(self, name) < low:
                raise StartupError(f"--{name.replace('_', '-')} must be at least {low}", field=name)
