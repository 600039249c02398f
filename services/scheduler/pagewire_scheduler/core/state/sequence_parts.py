"""Components of a sequence that know no other sequence. `tests/architecture/test_owners.py` says
which modules assign their fields."""

from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs
from pagewire_scheduler.core.state.kv_load import KvLoad, Look
from pagewire_scheduler.core.state.lack import Lack
from pagewire_shared.errors import PagewireError

LOADS_PER_STAY: Final = 2


@dataclass(slots=True)
class Fairness:
    """Refusals and pauses of a sequence.

    Attributes:
        num_skipped: Later sequences started while there was no room for this one.
        num_preemptions: Number of preemptions.
        lack: The blocks that were missing when the sequence last could not start.
        is_left_out: Whether the last token is to be computed again; see `left_out`.
        pauses_until: Steps before this one pass over the sequence where others can go on.
    """

    num_skipped: int = 0
    num_preemptions: int = 0
    lack: Lack | None = None
    is_left_out: bool = False
    pauses_until: int = 0


@dataclass(slots=True)
class Remote:
    """KV blocks of a sequence that come from stores and other workers.

    Attributes:
        load: The load that the sequence waits for.
        load_look: State of the loads when one was last considered for the sequence.
        num_loads_left: Loads that the sequence may still wait for in this stay on its worker.
        loaded: The tier of each loaded block, by index.
        handed_off: (first, end) of the tokens that another worker computed.
    """

    load: KvLoad | None = None
    load_look: Look | None = None
    num_loads_left: int = LOADS_PER_STAY
    loaded: dict[int, str] = field(default_factory=dict)
    handed_off: tuple[int, int] = (0, 0)

    def begin_stay(self) -> None:
        """Forget the loads of an earlier stay on a worker."""
        self.load, self.loaded = None, {}
        self.allow_loads()

    def allow_loads(self) -> None:
        """Let the sequence, which was preempted, wait for loads again."""
        self.num_loads_left, self.load_look = LOADS_PER_STAY, None


@dataclass(slots=True)
class Outcome:
    """The outcome of a sequence beside its tokens.

    Attributes:
        logprobs: Log-probabilities of the output; None when they were not asked for.
        vector: The vector of a pooling request, as little-endian f32.
        stop_token_id: The stop token that ended the sequence.
        error: The reason why the sequence failed.
        num_accepted_predicted, num_rejected_predicted: Tokens predicted by the client that were
            computed ahead, right and wrong ones.
    """

    logprobs: OutputLogprobs | None = None
    vector: bytes | None = None
    stop_token_id: int | None = None
    error: PagewireError | None = None
    num_accepted_predicted: int = 0
    num_rejected_predicted: int = 0

    def note_predicted(self, num_verified: int, num_right: int) -> None:
        """Count predicted tokens that a step has verified."""
        self.num_accepted_predicted += num_right
        self.num_rejected_predicted += num_verified - num_right
