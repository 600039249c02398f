"""Cells whose workers keep blocks in a store of another project."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cells.clusters import Cluster
from support.cells.kv_cells import BLOCK_SIZE, Answer, prompt_of, running

NUM_BLOCKS = 8
NUM_LOADED = NUM_BLOCKS * BLOCK_SIZE
NUM_TOKENS = NUM_LOADED + 5
PROMPTS = [prompt_of(number, NUM_TOKENS) for number in range(6)]


@contextmanager
def cell_with(checkpoint: Path, config: dict[str, Any], **settings: Any) -> Iterator[Cluster]:
    """Yield a cell whose workers have that --kv-transfer-config."""
    with running(checkpoint, kv_transfer_config=json.dumps(config), **settings) as cluster:
        assert not cluster.processes["kvstore"], "no store of our own is started"
        yield cluster


def tokens(answers: Sequence[Answer]) -> list[list[int]]:
    """Return the tokens of answers."""
    return [answer.token_ids for answer in answers]
