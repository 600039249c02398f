"""What a run keeps on disk and how it stops: checkpoints that training resumes from exactly, and
requests to stop; it trains nothing.
"""

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from builtin_recipe.model.network import Decoder, Shape
from builtin_recipe.training.optimizers import Optimizers

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class CheckpointMismatchError(Exception):
    """A checkpoint belongs to another run than the one asked for; the message says how."""


@dataclass(slots=True)
class Counters:
    """What a run has done so far; `seconds` are those spent in steps, over all its processes."""

    num_steps: int = 0
    num_tokens: int = 0
    num_labels: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        """Return the counters for a checkpoint file."""
        return {
            "num_steps": self.num_steps,
            "num_tokens": self.num_tokens,
            "num_labels": self.num_labels,
            "train_minutes": self.seconds / 60,
            "seconds": self.seconds,
        }


@dataclass(slots=True)
class RunState:
    """Everything that changes while a run trains; `settings` are what must not change."""

    network: Decoder
    optimizers: Optimizers
    settings: dict[str, int | float]
    counters: Counters = field(default_factory=Counters)

    def save(self, path: Path, num_planned_steps: int) -> None:
        """Write a checkpoint; a reader never sees half a file."""
        scratch = path.with_suffix(".partial")
        content: dict[str, Any] = {
            "shape": self.network.shape.as_dict(),
            "settings": self.settings,
            "weights": self.network.state_dict(),
            "optimizers": self.optimizers.state(),
            "random": _random_states(),
            "num_planned_steps": num_planned_steps,
            **self.counters.as_dict(),
        }
        torch.save(content, scratch)
        scratch.replace(path)

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint and return the number of steps it was planned for.

        Raises `CheckpointMismatchError`, before anything changes, when the checkpoint has another
        shape or other settings.
        """
        content = torch.load(path, map_location="cpu", weights_only=True)
        self._check(content, path)
        self.network.load_state_dict(content["weights"])
        self.optimizers.restore(content["optimizers"])
        _restore_random_states(content["random"])
        self.counters = Counters(
            content["num_steps"], content["num_tokens"], content["num_labels"], content["seconds"]
        )
        return int(content["num_planned_steps"])

    def _check(self, content: dict[str, Any], path: Path) -> None:
        there = {**content["shape"], **content.get("settings", {"settings": "none"})}
        here = {**self.network.shape.as_dict(), **self.settings}
        differences = [
            f"{name} {there.get(name, 'none')} there, {here.get(name, 'none')} here"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        if differences:
            raise CheckpointMismatchError(f"{path} is of another run: {'; '.join(differences)}")


def load_checkpoint(path: Path) -> tuple[Decoder, dict[str, Any]]:
    """Return the network of a checkpoint, on the CPU, and the counters beside it."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    network = Decoder(Shape(**content["shape"]))
    network.load_state_dict(content["weights"])
    return network, {name: content[name] for name in Counters().as_dict()}


@contextmanager
def unchanged_random_states() -> Iterator[None]:
    """Give the block random numbers of its own: afterwards the states are as before."""
    states = _random_states()
    try:
        yield
    finally:
        _restore_random_states(states)


@dataclass(slots=True)
class StopRequest:
    """Whether somebody asked the run to stop."""

    is_set: bool = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request that the loop answers after its step."""
    request = StopRequest()

    def set_request(_signal: int, _frame: object) -> None:
        request.is_set = True

    before = {number: signal.signal(number, set_request) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _random_states() -> dict[str, Any]:
    return {"python": random.getstate(), "torch": torch.get_rng_state()}


def _restore_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
