"""The KV stores in `pagewire admin topology`."""

from pagewire.cli.operators.topology import describe_topology
from pagewire.client.topology_client import CellTopology, StoreFacts


def cell(*stores: StoreFacts) -> CellTopology:
    return CellTopology(
        generation=7, handoff="auto", workers=(), pairs=(), warnings=(), stores=stores
    )


def test_stores_are_shown_with_their_share_of_the_blocks() -> None:
    text = describe_topology(
        cell(StoreFacts("kv-0:8200", True, 300), StoreFacts("kv-1:8200", False, 100))
    )
    rows = [line.split() for line in text.splitlines()[1:]]
    assert rows == [
        ["KV", "store", "state", "blocks", "share"],
        ["kv-0:8200", "up", "300", "75", "%"],
        ["kv-1:8200", "out", "of", "reach", "100", "25", "%"],
    ]


def test_without_stores_nothing_is_said_of_them() -> None:
    assert "store" not in describe_topology(cell())
    assert "0 %" in describe_topology(cell(StoreFacts("kv-0:8200", True, 0)))
