"""What a run says while it trains: a bar for a terminal, plain lines for everything else and for
the log file.
"""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from builtin_recipe.training.run_state import Counters


@dataclass(frozen=True, slots=True)
class StepResult:
    """One finished step; `accuracy` is the share of labelled tokens guessed right."""

    loss: float
    accuracy: float
    num_tokens: int
    seconds: float


class Progress:
    """Shows the mean of the last `num_recent` steps; call `close` at the end.

    Notices reach `report`; the lines of steps do so only where no terminal shows the bar.
    """

    def __init__(
        self,
        log: Path,
        report: Callable[[str], None],
        num_recent: int,
        num_steps: int,
        num_done: int,
    ) -> None:
        self._log = log
        self._report = report
        self._num_recent = num_recent
        self._recent: deque[StepResult] = deque(maxlen=num_recent)
        self._has_bar = sys.stderr.isatty()
        self._bar = tqdm(
            total=num_steps,
            initial=num_done,
            disable=not self._has_bar,
            unit="step",
            dynamic_ncols=True,
        )

    def notice(self, line: str) -> None:
        """Report a line and write it to the log."""
        self._write(line)
        with tqdm.external_write_mode():
            self._report(line)

    def account(self, result: StepResult, counters: Counters) -> None:
        """Show one finished step, already part of `counters`."""
        self._recent.append(result)
        self._bar.set_postfix_str(self._means(), refresh=False)
        self._bar.update()
        if counters.num_steps % self._num_recent == 0:
            line = self.line(counters)
            self._write(line)
            if not self._has_bar:
                self._report(line)

    def line(self, counters: Counters) -> str:
        """Return one line for the log."""
        return (
            f"step {counters.num_steps}  {counters.seconds / 60:.2f} min  {self._means()}  "
            f"tokens {counters.num_tokens / 1e6:.2f}M  "
            f"labelled {counters.num_labels / max(1, counters.num_tokens):.2f}"
        )

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def _means(self) -> str:
        count = max(1, len(self._recent))
        loss = sum(one.loss for one in self._recent) / count
        accuracy = sum(one.accuracy for one in self._recent) / count
        seconds = sum(one.seconds for one in self._recent)
        rate = sum(one.num_tokens for one in self._recent) / max(1e-9, seconds)
        return f"loss {loss:.3f}  accuracy {accuracy:.3f}  {rate:.0f} tokens/s"

    def _write(self, line: str) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
