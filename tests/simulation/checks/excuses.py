"""What excuses the failure of a request: the sizes of the cell, the faults planted, a full queue.
Judges; causes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.configuration import BAD_ADAPTER, Configuration
from simulation.processes.client import Ask

from pagewire_shared.errors import PagewireError


@dataclass
class Excuses:
    """What is known of one world.

    Attributes:
        has_small: Whether a small worker ever joined: for a while there may have been no other.
        may_fail: Requests that a planted failure, or worker after worker lost, may have ended.
        overloaded: Requests that came when the queue was full.
        has_updates: Whether weights were ever exchanged.
    """

    configuration: Configuration
    now: Callable[[], float]
    has_small: bool = False
    may_fail: set[bytes] = field(default_factory=set)
    overloaded: set[bytes] = field(default_factory=set)
    has_updates: bool = False

    def allow(self, request_compile: Ask, error: PagewireError) -> bool:
        """Whether `request_compile` may end with `error`, now that its client learns of it."""
        if error.code == "deadline_exceeded":
            return (
                request_compile.deadline is not None
                and self.now() >= request_compile.deadline - 0.01
            )
        if error.code == "weights_changed":
            return self.has_updates
        if error.code == "rate_limit_exceeded":
            return request_compile.may_be_refused or request_compile.request_id in self.overloaded
        if error.code == "context_length_exceeded":
            return self.is_too_large(request_compile)
        if error.code == "invalid_value" and error.field == "structured_outputs":
            return request_compile.has_bad_grammar
        if error.code == "invalid_value" and error.field == "adapter":
            return request_compile.adapter == BAD_ADAPTER
        if error.code == "invalid_value":
            # Beams run together, so a search may be too wide for the workers there are.
            is_wide = request_compile.params.n > self.configuration.max_num_seqs
            return error.field == "n" and request_compile.params.use_beam_search and is_wide
        is_planted = (
            request_compile.is_poison
            or request_compile.deadly_after is not None
            or request_compile.request_id in self.may_fail
        )
        return error.code == "internal_error" and is_planted

    def is_too_large(self, request_compile: Ask) -> bool:
        """Whether the smallest worker that ever joined cannot hold `request_compile` to its end."""
        configuration = self.configuration
        size, num_prompt = configuration.block_size, len(request_compile.prompt)
        if num_prompt >= configuration.max_model_len:
            return True
        length = min(
            num_prompt + (request_compile.params.max_tokens or 0), configuration.max_model_len
        )
        # The last token is never an input.
        num_blocks = -(-(length - 1) // size)
        if request_compile.params.use_beam_search:
            num_common = min(num_blocks, num_prompt // size)
            num_blocks = num_common + request_compile.params.n * (num_blocks - num_common)
            num_blocks *= len(request_compile.windows)
        else:
            # One that a window has half left, and the one being written.
            num_blocks = sum(
                num_blocks if window is None else min(num_blocks, -(-window // size) + 2)
                for window in request_compile.windows
            )
        small, full = configuration.num_small_blocks, configuration.num_blocks
        return num_blocks > (small if self.has_small else full)
