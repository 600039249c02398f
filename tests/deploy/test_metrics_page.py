"""docs/metrics.md names every metric that a role has, and none that no role has."""

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

import pagewire_frontend.serve
import pagewire_frontend.traces.exporter
import pagewire_kvstore.store_process
import pagewire_scheduler.metrics.kv_events
import pagewire_scheduler.service
import pagewire_worker.server
from pagewire_frontend.group.metrics import MISSING, PROCESSES
from pagewire_frontend.metrics.vllm_names import CACHE_CONFIG, NAMES
from pagewire_kvstore.store import watch as tier_watch
from pagewire_shared.process.loop_watch import held_histogram
from pagewire_shared.process.metrics import show_build
from pagewire_shared.rpc.links import open_ports
from pagewire_shared.security.expiry import certificate_ends

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROLES = (
    pagewire_frontend.serve,
    # Imported where traces are sent.
    pagewire_frontend.traces.exporter,
    pagewire_kvstore.store_process,
    # Imported with --kv-events-config.
    pagewire_scheduler.metrics.kv_events,
    pagewire_scheduler.service,
    pagewire_worker.server,
)
LEFT_OUT: set[str] = set()
"""Named as such."""

_NAME = re.compile(r"`((?:pagewire|vllm)[_:][a-z0-9_]+)[`{]")


def named() -> set[str]:
    """Return the names on the page, without what a histogram's series end in."""
    names = set(_NAME.findall(PAGE.read_text()))
    return {name.removesuffix("_count").removesuffix("_bucket") for name in names}


def measured() -> set[str]:
    """Return the names of all roles, as they are shown."""
    show_build("test")
    held_histogram()
    open_ports()
    certificate_ends()
    families = [(family.name, family.type) for family in REGISTRY.collect()]
    families += [(renaming.name, kind_of(renaming.source)) for renaming in NAMES]
    families += [(name, "gauge") for name in (CACHE_CONFIG, PROCESSES, MISSING)]
    families += [(name, "counter") for name, _ in tier_watch._COUNTERS.values()]
    families += [(name, "gauge") for name, _ in tier_watch._GAUGES.values()]
    families.append(("pagewire_kvstore_tier_works", "gauge"))
    own = [(name, kind) for name, kind in families if name.startswith(("pagewire_", "vllm:"))]
    return {f"{name}_total" if kind == "counter" else name for name, kind in own}


def kind_of(source: str) -> str:
    return next(family.type for family in REGISTRY.collect() if family.name == source)


def test_every_metric_is_on_the_page() -> None:
    assert all(ROLES)
    assert measured() - named() == set()


def test_the_page_names_no_other() -> None:
    assert named() - measured() == LEFT_OUT


@pytest.mark.parametrize("role", ["frontend", "scheduler", "worker", "kv-store"])
def test_links_find_their_heading(role: str) -> None:
    heading = role.replace("kv-store", "kv store")
    assert f"\n## {heading}\n" in PAGE.read_text().lower()
