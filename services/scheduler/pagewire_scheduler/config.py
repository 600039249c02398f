"""Settings of the scheduler role, and the checks of their values."""

from dataclasses import dataclass

from pagewire_scheduler.kv_events.events_config import kv_events_text
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import DEFAULT_CELL, check_cell_name, parse_tenant_weight
from pagewire_shared.kv.copies import MAX_STORES
from pagewire_shared.process.settings import ProcessConfig, setting
from pagewire_shared.rpc.address import parse_address


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(ProcessConfig):
    """The settings of `pagewire scheduler`."""

    listen: str = setting(
        "127.0.0.1:8100", "Where workers and frontends dial: host:port, unix:path"
    )
    cell: str = setting(
        DEFAULT_CELL,
        "Name of this cell: the same at every start, another one than other cells have",
    )
    paired: bool = setting(
        False,
        "The cell has two schedulers, both with this setting: one is active, the other stands by",
    )
    kvstore: tuple[str, ...] = setting(
        (), "KV store that is watched and told to workers: host:port, unix:path; repeatable"
    )
    kvstore_copies: int = setting(
        2,
        "KV stores that keep a block once it was loaded from one of them, where there are so many",
    )
    kv_load: str = setting(
        "auto",
        "When blocks come from KV stores: where that is sooner than computing them (auto), whenever"
        " a store has them, or never",
        choices=("auto", "always", "never"),
    )
    handoff: str = setting(
        "auto",
        "When prompts are computed on another worker than their tokens: where that pays (auto),"
        " wherever a pair of workers can, or never",
        choices=("auto", "always", "never"),
    )
    kv_events_config: str = setting(
        "",
        "JSON object that publishes over ZMQ what the caches hold, with vLLM's names, such as"
        ' {"enable_kv_cache_events": true}',
        parse=kv_events_text,
    )
    enable_prefix_caching: bool = setting(True, "Share KV blocks between equal prefixes")
    share_prefixes_between_tenants: bool = setting(
        False, "Let tenants find each other's cached prefixes; a cache_salt still parts them"
    )
    queue_policy: str = setting(
        "fair",
        "Who is served first: fairly between tenants, or by arrival and priority alone",
        choices=("fcfs", "fair"),
    )
    tenant_weight: tuple[tuple[str, float], ...] = setting(
        (),
        "TENANT=WEIGHT, its share under the fair policy, 1 by default; repeatable",
        parse=parse_tenant_weight,
    )
    max_num_waiting: int = setting(
        4096,
        "Sequences that may wait for one model; more are refused, but for a quarter more of tenants"
        " that have few, here and below",
    )
    max_waiting_tokens: int = setting(16 * 2**20, "Tokens of those; more are refused")
    max_request_bytes: int = setting(
        2**31,
        "Memory that live requests take in the scheduler beyond which more are refused; they may"
        " grow to four times that",
    )
    lease_seconds: float = setting(5.0, "How long requests outlive their frontend's stream")

    def __post_init__(self) -> None:
        check_cell_name(self.cell)
        for address in self.kvstore:
            parse_address(address, setting="--kvstore")
        if len(set(self.kvstore)) < len(self.kvstore):
            raise StartupError("--kvstore: an address is there twice", field="kvstore")
        if len(self.kvstore) > MAX_STORES:
            raise StartupError(f"--kvstore: at most {MAX_STORES} stores", field="kvstore")
        for name, low in (
            ("kvstore_copies", 1),
            ("max_num_waiting", 1),
            ("max_waiting_tokens", 1),
            ("max_request_bytes", 1),
            ("lease_seconds", 0),
        ):
            if getattr(self, name) < low:
                raise StartupError(f"--{name.replace('_', '-')} must be at least {low}", field=name)
