"""Masks that come late change no token: a scheduler core over a real executor, in bfloat16."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.grammars.bitmask_source import NoBitmasks
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from support.cells.exact_cells import SOLO, ExactCell, Request, draw_weather
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import CHECKPOINTS, VOCAB

pytestmark = [needs_kernels, pytest.mark.long]


class LateMasks(NoBitmasks):
    """Allows a set of tokens per output position; some masks are late, some more than once."""

    def __init__(self, share_late: float, seed: int) -> None:
        self.share_late, self.dice = share_late, random.Random(seed)
        self.followed: set[int] = set()
        self.num_late = 0

    def install(self, request) -> None:  # type: ignore[no-untyped-def]
        self.followed.discard(request.slot)
        if request.grammar_id is not None:
            self.followed.add(request.slot)

    def free(self, slot: int) -> None:
        self.followed.discard(slot)

    def clear(self) -> None:
        self.followed.clear()

    def follows(self, slots: Int64Array) -> bool:
        return any(slot in self.followed for slot in slots.tolist())

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        rows = [row for row, slot in enumerate(slots.tolist()) if slot in self.followed]
        late = [row for row in rows if self.dice.random() < self.share_late]
        self.num_late += len(late)
        kept = [row for row in rows if row not in late]
        bits = [self._mask(int(positions[row])) for row in kept]
        words = np.array(bits, dtype=np.int32).reshape(len(kept), -(-VOCAB // 32))
        masks = GrammarBitmask(
            np.array(kept, dtype=np.int64), words, np.array(late, dtype=np.int64)
        )
        return lambda: masks if rows else None

    def _mask(self, position: int) -> np.ndarray:
        return np.random.default_rng(position).integers(
            -(2**31), 2**31, -(-VOCAB // 32), dtype=np.int32
        )


def draw_requests(generator: random.Random, number: int) -> list[Request]:
    requests = []
    shared = [generator.randrange(3, VOCAB) for _ in range(40)]
    for index in range(number):
        prompt = shared[: generator.choice([0, 16, 32])]
        prompt = [*prompt, *(generator.randrange(3, VOCAB) for _ in range(1 + index % 33))]
        outputs = StructuredOutputsParams(regex="a") if index % 3 else None
        sampling = SamplingParams(
            temperature=generator.choice([0.0, 1.0]),
            seed=index,
            max_tokens=generator.randrange(12, 32),
            ignore_eos=True,
            logprobs=generator.choice([None, 0, 3]),
            structured_outputs=outputs,
        )
        requests.append(Request(tuple(prompt), sampling))
    return requests


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_outputs_are_those_of_masks_in_time(tmp_path: Path, name: str) -> None:
    folder = make_checkpoint(tmp_path / "model", vocab=VOCAB, layers=1, **CHECKPOINTS[name])
    cell = ExactCell(folder, num_threads=1)
    generator = random.Random(5)
    requests = draw_requests(generator, 8)
    model_runner = cell.replica.model_runner
    model_runner._grammars = LateMasks(0.0, 0)
    alone = [cell.run([request], SOLO)[0] for request in requests]
    longest = max(len(one.prompt) + (one.sampling.max_tokens or 0) for one in requests)
    num_late = 0
    for seed, share_late in enumerate((0.3, 0.8)):
        masks = model_runner._grammars = LateMasks(share_late, seed)
        weather = draw_weather(generator, longest)
        if seed % 2:  # too few blocks for all that run at once
            num_blocks = -(-longest // 16) + 4
            weather = replace(weather, num_blocks=num_blocks, num_at_once=8, steps_in_flight=2)
        assert cell.run(requests, weather) == alone, weather
        num_late += masks.num_late
    assert num_late > 20
