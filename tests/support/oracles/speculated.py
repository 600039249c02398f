"""Compares answers with speculation to answers without: the same tokens and log-probability bits.

`python -m support.oracles.speculated --tokens 1000000` in `tests` compares so many tokens.
"""

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewire_worker.grammars.mask_credit import Credit, MaskCredits
from pagewire_worker.grammars.mask_jobs import MaskJob
from pagewire_worker.grammars.mask_threads import MaskThreads
from pagewire_worker.speculation.draft_counts import DraftCounts
from pagewire_worker.speculation.lookups import DraftFinder, Lookups
from pagewire_worker.speculation.ngram import NgramFinder
from pagewire_worker.speculation.speculator import Speculator
from pagewire_worker.speculation.suffix import SHORTEST_MATCH, SuffixFinder, SuffixRule
from pagewire_worker.speculation.tenant_texts import TenantTexts
from support.adapters.model_adapters import MadeAdapter
from support.cells.exact_cells import SOLO, Answer, ExactCell, Request, draw_weather
from support.fakes.predicting_finder import PredictingFinder
from support.fakes.scripted_finder import ScriptedFinder
from support.oracles.exact_requests import draw_requests, make_exact_checkpoint
from support.oracles.grammars import LANGUAGES

ALWAYS = json.dumps({"method": "ngram", "num_speculative_tokens": 5, "adaptive": False})
ON_CPU: dict[str, Any] = {"device": "cpu", "cpu_backend": "fused"}


@dataclass
class SpeculatedCell:
    """Two cells of one checkpoint, and the answers of the one without speculation.

    Attributes:
        adapters: Those that requests have in turn, after one without any.
        alone: The answer to each request that runs alone, without speculation.
        num_tokens: Tokens compared so far.
    """

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    num_threads: int = 1
    num_tokens: int = 0
    config: str = ALWAYS
    adapters: Sequence[MadeAdapter] = ()

    def __post_init__(self) -> None:
        settings = {**ON_CPU, **self.settings}
        plain = ExactCell(self.folder, num_threads=self.num_threads, **settings)
        self._fill(plain)
        slots = (None, *range(len(self.adapters)))
        requests = draw_requests(self.seed)
        if (self.folder / "tokenizer.json").exists():
            requests = [_guided(request, number) for number, request in enumerate(requests)]
        self.requests = [
            replace(request, adapter_slot=slots[number % len(slots)])
            for number, request in enumerate(requests)
        ]
        self.alone = [plain.run([request], SOLO)[0] for request in self.requests]
        self.cell = ExactCell(
            self.folder, num_threads=self.num_threads, speculative_config=self.config, **settings
        )
        seen = futures(self.requests, self.alone)
        # The last ones have seen the answers, and err.
        self.finders: dict[str, DraftFinder] = {
            "ngram": NgramFinder(1, 3),
            "suffix": SuffixFinder(SuffixRule(), TenantTexts(SHORTEST_MATCH, 100)),
            "prediction": PredictingFinder(seen, 7),
            "all right": ScriptedFinder(seen),
            "half wrong": ScriptedFinder(seen, 2),
            "some wrong": ScriptedFinder(seen, 5),
        }
        self.num_compared = Counter[str]()
        # Steps of a small model are so short that masks would take more than the share of a tenant.
        self._table._credits = Boundless()
        self._fill(self.cell)

    def _fill(self, cell: ExactCell) -> None:
        for slot, adapter in enumerate(self.adapters):
            adapter.fill(cell.replica.model_runner, slot)

    @property
    def _table(self) -> Any:
        return self.cell.replica.model_runner._grammars

    @property
    def speculator(self) -> Speculator:
        found = self.cell.replica.speculator
        assert found is not None
        return found

    @property
    def counts(self) -> DraftCounts:
        """Drafts that were verified, and those that were right."""
        return self.speculator.counts

    def check(self, num_tokens: int) -> None:
        """Compare random batches until so many tokens more have been compared."""
        dice = random.Random(self.num_tokens + self.seed)
        longest = max(len(one.prompt) + (one.sampling.max_tokens or 0) for one in self.requests)
        end = self.num_tokens + num_tokens
        while self.num_tokens < end:
            name = self.set_proposer(dice)
            chosen = dice.choices(range(len(self.requests)), k=dice.choice([1, 2, 4, 8, 16]))
            weather = draw_weather(dice, longest)
            self.set_patience(dice)
            answers = self.cell.run([self.requests[index] for index in chosen], weather)
            for index, answer in zip(chosen, answers, strict=True):
                assert answer == self.alone[index], (index, weather, name)
                self.num_tokens += len(answer.token_ids)
                self.num_compared[name] += len(answer.token_ids)

    def set_proposer(self, dice: random.Random) -> str:
        """Let one of the finders guess, and return its name."""
        name = dice.choice(list(self.finders))
        self.speculator._proposer = Lookups([self.finders[name]])
        return name

    def set_patience(self, dice: random.Random) -> None:
        """Let some steps not wait for masks, which then are late."""
        threads, share = self._table._threads, dice.choice([0.0, 0.0, 0.3])

        def wait(jobs: Sequence[MaskJob], until: float, *, has_others: bool) -> None:
            if dice.random() >= share:
                MaskThreads.wait(threads, jobs, until, has_others=has_others)

        threads.wait = wait


class LoneCredit(Credit):
    """That of a tenant without others."""

    def has_others(self, now: float) -> bool:
        return False


class Boundless(MaskCredits):
    """Lets masks take any time."""

    def of(self, tenant: str) -> Credit:
        return LoneCredit()


def _guided(request: Request, number: int) -> Request:
    """Return every third request with a grammar, and half of those ending with it."""
    if number % 3 != 1:
        return request
    language = LANGUAGES[number % len(LANGUAGES)]
    sampling = replace(
        request.sampling, structured_outputs=language.params, ignore_eos=number % 2 == 0
    )
    return replace(request, sampling=sampling)


def futures(requests: Sequence[Request], answers: Sequence[Answer]) -> list[list[int]]:
    """The whole sequences of `requests`, prompt and output."""
    return [
        [*request.prompt, *answer.token_ids]
        for request, answer in zip(requests, answers, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--checkpoint", default="qwen3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quantization", default="none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_exact_checkpoint(Path(place), arguments.checkpoint)
        settings = {"quantization": arguments.quantization}
        cell = SpeculatedCell(folder, settings, arguments.seed)
        while cell.num_tokens < arguments.tokens:
            cell.check(min(20_000, arguments.tokens - cell.num_tokens))
            counts = cell.counts
            print(
                f"{cell.num_tokens} tokens are the same; {int(counts.right_at.sum())} of "
                f"{counts.num_tokens} drafts were right, {cell.cell.num_preemptions} preemptions, "
                f"{cell.cell.num_deaths} deaths, {cell.cell.num_cached_tokens} cached tokens; "
                f"{dict(cell.num_compared)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
