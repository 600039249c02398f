"""Keeps what fits into the workers of a deployment, as they report it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCapacity:
    """What fits into one worker, as it says itself when it is ready.

    Attributes:
        model: Served name of its model.
        max_model_len: Longest sequence in tokens.
        num_tokens: Tokens that its KV cache holds.
        max_num_seqs: Sequences that may run at once.
    """

    model: str
    max_model_len: int
    num_tokens: int
    max_num_seqs: int


class Capacities:
    """The capacity of one worker of each model, in the order in which they became ready."""

    def __init__(self) -> None:
        self._by_model: dict[str, WorkerCapacity] = {}

    def __iter__(self) -> Iterator[WorkerCapacity]:
        return iter(self._by_model.values())

    def note(self, status: Mapping[str, object]) -> None:
        """Take the status of a role that is ready; only those of workers have a capacity."""
        found = {key: status.get(key) for key in ("max_model_len", "num_tokens", "max_num_seqs")}
        numbers = {key: value for key, value in found.items() if isinstance(value, int)}
        if len(numbers) == len(found):
            model = str(status.get("model", ""))
            self._by_model.setdefault(model, WorkerCapacity(model=model, **numbers))
