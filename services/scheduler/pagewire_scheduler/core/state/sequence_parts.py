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
class Progress:
    """How far a sequence has been computed, and its steps under way.

    Attributes:
        num_computed: Positions whose keys and values are in the cache or written by a step under
            way.
        num_in_flight: Samples of steps under way that will be applied.
        num_outstanding: Steps under way that name the sequence, void ones included.
        last_step: Step id of the newest plan that names the sequence.
        fast_path_until: Position up to which one token more needs no block, no name and no copy.
        is_tail_shared: Whether the last, partly written block may be in other tables, too.
        is_timeline_due: Whether the timeline is reported with the next token.
        reports_prompt_logprobs: Whether the worker reports log-probabilities of the prompt.
    """

    num_computed: int = 0
    num_in_flight: int = 0
    num_outstanding: int = 0
    last_step: int = 0
    fast_path_until: int = 0
    is_tail_shared: bool = False
    is_timeline_due: bool = True
    reports_prompt_logprobs: bool = False

    def stop(self) -> None:
        """Forget the computed positions: the blocks are given back."""
        self.num_computed = self.fast_path_until = 0
        self.is_tail_shared = False


@dataclass(slots=True)
class Fairness:
    """What a sequence was denied so far.

    Attributes:
        num_skipped: Later sequences started while there was no room for this one.
        num_preemptions: How often the sequence was preempted.
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
        load_look: When a load for the sequence was last thought of.
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
    """

    logprobs: OutputLogprobs | None = None
    vector: bytes | None = None
    stop_token_id: int | None = None
    error: PagewireError | None = None
