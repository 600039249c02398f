"""Answers with speculation compared with answers without: every choice of every request, its
tokens, bits of log-probabilities, and its end."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagewire_worker.grammars.mask_credit import Credit, MaskCredits
from pagewire_worker.grammars.mask_jobs import MaskJob
from pagewire_worker.grammars.mask_threads import MaskThreads
from pagewire_worker.speculation.draft_counts import DraftCounts
from pagewire_worker.speculation.lookups import DraftFinder, Lookups
from pagewire_worker.speculation.speculator import Speculator
from support.adapters.model_adapters import MadeAdapter
from support.cells.exact_cells import SOLO, ExactCell, draw_weather
from support.fakes.scripted_finder import ScriptedFinder
from support.speculated.mixed_requests import draw_mixed, predicted

ON_CPU: dict[str, Any] = {"device": "cpu", "cpu_backend": "fused"}
NGRAM = json.dumps(
    {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
        "adaptive": False,
    }
)
PREDICTED_SHARE = 0.3
"""Of requests, that come with a prediction."""


class PlainAnswers:
    """The answers of a checkpoint without speculation, to each request alone.

    Args:
        folder: Of the checkpoint, with a tokenizer.
        settings: Of the worker, beside those of a CPU.
        seed: Of the requests.
        adapters: Those that requests have in turn, after one without any.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        seed: int = 1,
        *,
        num_threads: int = 1,
        adapters: Sequence[MadeAdapter] = (),
    ) -> None:
        self.folder = folder
        self.settings = {**ON_CPU, **(settings or {})}
        self.seed = seed
        self.num_threads = num_threads
        self.adapters = adapters
        self.requests = draw_mixed(seed, len(adapters))
        self.longest = max(
            len(one.prompt) + (one.sampling.max_tokens or 0) for one in self.requests
        )
        plain = self.cell()
        self.alone = [plain.run([request], SOLO)[0] for request in self.requests]

    def cell(self, **settings: Any) -> ExactCell:
        """Return a cell of the checkpoint, with its adapters."""
        cell = ExactCell(self.folder, num_threads=self.num_threads, **{**self.settings, **settings})
        for slot, adapter in enumerate(self.adapters):
            adapter.fill(cell.replica.model_runner, slot)
        return cell

    def futures(self) -> list[list[int]]:
        """The whole sequences, prompt and output, of all choices."""
        return [
            [*request.prompt, *choice.token_ids]
            for request, answer in zip(self.requests, self.alone, strict=True)
            for choice in answer.choices
        ]

    def scripts(self) -> dict[str, DraftFinder]:
        """Finders that have seen the answers, and err."""
        seen = self.futures()
        return {
            "all right": ScriptedFinder(seen),
            "half wrong": ScriptedFinder(seen, 2),
            "some wrong": ScriptedFinder(seen, 5),
        }


class SpeculatedCell:
    """A cell with speculation.

    Args:
        plain: What it has to answer.
        config: Its settings of speculation.
        finders: Guess in turn, in place of the method's own; none for that.
        predicted_share: Of requests, that come with a prediction.
        name: Other names give other batches.

    Attributes:
        num_tokens: Tokens compared so far.
    """

    def __init__(
        self,
        plain: PlainAnswers,
        config: str = NGRAM,
        finders: Mapping[str, DraftFinder] | None = None,
        predicted_share: float = PREDICTED_SHARE,
        name: str = "",
    ) -> None:
        self.plain = plain
        self.num_tokens = 0
        self._dice = random.Random(f"{plain.seed} {name}")
        self.cell = plain.cell(speculative_config=config)
        self._finders = list((finders or {}).values())
        self._predicted_share = predicted_share
        self._costs = self.speculator._costs
        # Steps of a small model are so short that masks would take more than the share of a tenant.
        self._table._credits = Boundless()

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
        plain, dice = self.plain, self._dice
        end = self.num_tokens + num_tokens
        while self.num_tokens < end:
            chosen = dice.choices(range(len(plain.requests)), k=dice.choice([1, 4, 8, 12]))
            weather = draw_weather(dice, plain.longest)
            self._set_proposer(dice)
            self._set_patience(dice)
            requests = [plain.requests[index] for index in chosen]
            requests = [
                predicted(request, plain.alone[index], dice)
                if dice.random() < self._predicted_share
                else request
                for index, request in zip(chosen, requests, strict=True)
            ]
            answers = self.cell.run(requests, weather)
            for index, answer in zip(chosen, answers, strict=True):
                assert answer == plain.alone[index], (plain.seed, index, weather)
                for choice in answer.choices:
                    assert choice.ending is not None
                    assert choice.ending[2] == len(choice.token_ids)
                    self.num_tokens += len(choice.token_ids)

    def _set_proposer(self, dice: random.Random) -> None:
        """Let one of the finders guess; where costs are known, verify all drafts at times."""
        speculator, own = self.speculator, self.speculator._proposer
        if self._finders:
            assert isinstance(own, Lookups)
            assert speculator._predictions is not None
            finders = [speculator._predictions, dice.choice(self._finders)]
            speculator._proposer = Lookups(finders, own._grammars)
        speculator._costs = dice.choice([self._costs, None, None, None])

    def _set_patience(self, dice: random.Random) -> None:
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
