"""Limits of the stream to one worker: messages under way, and the parts of one plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Credits of the stream to one worker, and the parts of a plan.

    A message has at most 8 MiB (`rpc.send_queue`). `new_bytes` of a plan are for new sequences.
    The rest stays below 2 MiB: 81 bytes for each of `max_slots`, 28 for each of `max_step_blocks`
    that get a name or enter a table, 24 for each of `max_void_names`, and the ids of released
    grammars. See ADR 19.

    Attributes:
        max_grammars: Grammars requested and not answered.
        max_grammar_bytes: Bytes of their sources together; a single larger one is allowed.
        new_bytes: Bytes of the new sequences of a plan.
        max_condition_bytes: Bytes of one request besides tokens and blocks.
        min_prefix_tokens: A shorter prefix in common with a sequence of the worker is sent.
        max_slots: Sequences that run at once on a worker, even if it offers more.
        max_step_blocks: Blocks of all cache groups that a step fills at most, even if the worker
            offers more.
        max_void_names: Names in one plan that no content has.
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

    def longest_sequence(self, block_size: int, num_groups: int = 1) -> int:
        """Return the tokens of the longest sequence that fits in a plan with all its blocks."""
        num_bytes = self.new_bytes - self.max_condition_bytes
        return num_bytes * block_size // (4 * block_size + 4 * num_groups)
