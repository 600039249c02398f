"""That a tier stops or starts working is said once, wherever an operator looks."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from pagewire_kvstore.blocks.types import TierState
from pagewire_kvstore.store.watch import TierWatch

DISK = TierState(
    tier="disk", num_blocks=3, used_bytes=30, capacity_bytes=100, num_hits=5, num_misses=6
)


class Tiers:
    def __init__(self):
        self.state = DISK

    def states(self):
        return [self.state]

    def faults(self):
        return {} if self.state.fault is None else {"disk": self.state.fault}


def test_a_tier_that_stops_and_recovers_is_reported_once_each(caplog):
    tiers, told = Tiers(), []
    watch = TierWatch(tiers, lambda event, **details: told.append((event, details)))
    watch.look()
    assert told == []
    tiers.state = replace(DISK, fault="ENOSPC", num_faults=1)
    watch.look()
    tiers.state = replace(DISK, fault="ENOSPC again", num_faults=2)
    watch.look()
    assert told == [("degraded", {"tier": "disk", "reason": "ENOSPC"})]
    tiers.state = DISK
    watch.look()
    watch.look()
    assert told[1:] == [("recovered", {"tier": "disk"})]
    assert [record.message for record in caplog.records] == [
        "the disk tier does not work: ENOSPC",
        "the disk tier works again",
    ]


def test_metrics_are_those_of_the_last_look():
    tiers = Tiers()
    watch = TierWatch(tiers, lambda event, **details: None)
    registry = CollectorRegistry()
    registry.register(watch)
    tiers.state = replace(DISK, fault="broken", num_faults=7, num_corrupt=2)
    assert 'pagewire_kvstore_tier_works{tier="disk"} 1.0' in shown(registry)
    watch.look()
    for line in (
        'pagewire_kvstore_tier_works{tier="disk"} 0.0',
        'pagewire_kvstore_blocks{tier="disk"} 3.0',
        'pagewire_kvstore_used_bytes{tier="disk"} 30.0',
        'pagewire_kvstore_capacity_bytes{tier="disk"} 100.0',
        'pagewire_kvstore_hits_total{tier="disk"} 5.0',
        'pagewire_kvstore_misses_total{tier="disk"} 6.0',
        'pagewire_kvstore_corrupt_total{tier="disk"} 2.0',
        'pagewire_kvstore_faults_total{tier="disk"} 7.0',
    ):
        assert line in shown(registry)


def shown(registry):
    return generate_latest(registry).decode().splitlines()
