"""What may be under way to one worker at a time, and what one plan may hold; plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Credits of the stream to one worker, and the parts of a plan.

    A message has at most 8 MiB (`rpc.send_queue`). Of a plan, `new_bytes` are for new
    sequences. All that it tells besides is bounded by arithmetic, below 2 MiB: 81 bytes for each of
    `max_slots`, 28 for each of `max_step_blocks` that get a name or enter a table, 24 for each of
    `max_void_names`, and the ids of released grammars. See ADR 19.

    Attributes:
        max_grammars: Grammars asked for and not answered.
        max_grammar_bytes: Bytes of their sources together, unless one alone has more.
        new_bytes: Bytes of the new sequences of a plan.
        max_condition_bytes: Those of one request that are neither tokens nor blocks.
        min_prefix_tokens: Fewer tokens in common with a sequence that a worker holds are told.
        max_slots: Sequences that run at once on a worker, whatever it offers.
        max_step_blocks: Blocks that a step fills at most, whatever the worker offers.
        max_void_names: Names that no content has, of one plan.
        max_load_blocks: Blocks of one load.
    """

    max_grammars: int = 16
    max_grammar_bytes: int = 2 * 1024 * 1024
    new_bytes: int = 6 * 1024 * 1024
    max_condition_bytes: int = 1024 * 1024
    min_prefix_tokens: int = 256
    max_slots: int = 4096
    max_step_blocks: int = 32768
    max_void_names: int = 8192
    max_load_blocks: int = 262144

    def longest_sequence(self, block_size: int) -> int:
        """Return the tokens of the longest sequence that a plan can tell, with all its blocks."""
        num_bytes = self.new_bytes - self.max_condition_bytes
        return num_bytes * block_size // (4 * block_size + 4)
