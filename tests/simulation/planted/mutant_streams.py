"""Bugs planted in what bounds the streams to workers."""

from simulation.planted.mutant import CORE, Mutant, mutant

STREAMS: list[Mutant] = [
    mutant(
        "plans_without_end",
        "Sequences are started whatever a plan can hold.",
        CORE + "planning.plan_builder",
        "        if num_bytes > self.num_bytes_left:\n",
        "        if num_bytes < 0:\n",
        "messages_fit",
    ),
    mutant(
        "grammars_without_credit",
        "A worker is asked for all grammars at once.",
        CORE + "state.grammars",
        "len(self._under_way) < self._limits.max_grammars",
        "len(self._under_way) >= 0",
        "messages_within_credit",
    ),
    mutant(
        "credit_never_returned",
        "A grammar that was answered counts as under way.",
        CORE + "state.grammars",
        "        if self._under_way.pop(grammar_id, None) is None:\n",
        "        if self._under_way.get(grammar_id) is None:\n",
        "everything_ends",
    ),
    mutant(
        "prefix_too_long",
        "A worker copies one token more than two prompts have in common.",
        CORE + "planning.known_prefix",
        "KnownPrefix(slot, best * block_size)",
        "KnownPrefix(slot, min(best * block_size + 1, sequence.num_prompt))",
        "tokens_of_the_model",
        "plans_are_possible",
        "prompts_are_scored",
        "vectors_of_the_model",
        "names_say_content",
    ),
]
