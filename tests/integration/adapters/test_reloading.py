"""Adapters that are loaded again under their old names while requests use them and workers die."""

import asyncio
from pathlib import Path

import pytest

from support.adapters.reloading import NUM_NAMES, reloading_cell

NUM_REQUESTS = 1000


@pytest.mark.long
@pytest.mark.whole
def test_no_answer_is_stale(tmp_path: Path) -> None:
    with reloading_cell(tmp_path) as reloading:
        asyncio.run(reloading.run(NUM_REQUESTS))
    found = reloading.verdicts
    assert (found.texts, found.right) == ([], NUM_REQUESTS)
    assert found.num_reloads > 2 * NUM_NAMES
    assert found.num_kills > 0
    assert found.num_cached > 0
