"""Faults drawn at random over every process and link of a deployment under load: no stream is
hurt. `make chaos` injects more of them."""

import asyncio
import random
from pathlib import Path

import pytest
from chaos.__main__ import drawn
from chaos.clients import Clients
from chaos.deployment import deployed
from chaos.faults import CELLS
from chaos.outcomes import Cell, Outcomes
from chaos.run import Run

from support.tools import tool


def injected(folder: Path, flavour: str, count: int, seed: int) -> Outcomes:
    """Return what came of faults; fail where a stream was hurt."""

    async def run() -> Outcomes:
        dice, outcomes = random.Random(seed), Outcomes()
        with deployed(folder, flavour) as deployment:
            cluster = deployment.cluster
            address = cluster.local.grpc_address
            async with Clients(cluster.http_url, address, cluster.model) as clients:
                one = Run(deployment, outcomes, dice, clients)
                cells: list[Cell] = drawn(list(CELLS), count, dice)
                await one.inject(cells)
                # Which process met what.
                faults = [line for line in cluster.log.splitlines() if "Error" in line]
                assert one.problems == [], "\n".join(faults[-40:])
        return outcomes

    tool("redis-server", "make tools")
    tool("g++", "apt-get install g++")
    return asyncio.run(run())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("flavour", "count"),
    [("plain", 16), pytest.param("speculative", 10, marks=pytest.mark.long)],
)
def test_no_stream_is_hurt(tmp_path: Path, flavour: str, count: int) -> None:
    outcomes = injected(tmp_path, flavour, count, seed=11)
    assert sum(one.faults for one in outcomes.cells.values()) == count
    assert sum(one.streams for one in outcomes.cells.values()) >= 4 * count
