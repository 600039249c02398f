"""Faults that users of other systems met, planted here: named after the report of each."""

from simulation.planted.mutant import CORE, Mutant, mutant

REAL: list[Mutant] = [
    mutant(
        "vllm_45388_never_promoted",
        "A sequence that gave way is not queued again when its last step has returned.",
        CORE + "results.apply",
        "    if worker.aside.returning:\n",
        "    if False:\n",
        "progress",
        "everything_ends",
    ),
    mutant(
        "vllm_37164_foreign_block",
        "A block given out anew is still found under its old name.",
        CORE + "blocks.block_pool",
        "        self.unname(block)\n        self.ref_counts[block] = 1",
        "        self.ref_counts[block] = 1",
        "names_say_content",
        "tokens_of_the_model",
        "one_writer",
    ),
    Mutant(
        "vllm_49674_preemption_cascade",
        "Who is short evicts all others at once, freed blocks or not, and nobody is ever safe.",
        (
            (
                CORE + "planning.schedule_running",
                "if worker.num_releasing_blocks or victim",
                "if victim",
            ),
            (
                CORE + "planning.schedule_waiting",
                "    if sequence.fairness.num_preemptions >= MAX_PREEMPTIONS:\n        guarantee(",
                "    if sequence.fairness.num_preemptions < 0:\n        guarantee(",
            ),
            (
                CORE + "planning.schedule_waiting",
                "    is_guaranteed = sequence.fairness.num_preemptions >= MAX_PREEMPTIONS\n",
                "    is_guaranteed = False\n",
            ),
        ),
        frozenset({"bounded_preemption"}),
    ),
    mutant(
        "vllm_31731_head_of_line",
        "A request too large for the free blocks stops all behind it.",
        CORE + "planning.schedule_waiting",
        "            blocked.append(sequence)\n",
        "            break\n",
        "order_of_service",
    ),
    mutant(
        "vllm_ascend_14055_no_fence",
        "Blocks come free while a step under way may still write them.",
        CORE + "state.worker",
        "        if sequence.num_outstanding:\n",
        "        if False:\n",
        "no_reissue_under_a_step",
    ),
]
