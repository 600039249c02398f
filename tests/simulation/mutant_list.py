"""Planted bugs as patches of source text: which module, what it says, what it says instead."""

from simulation.mutant import CORE, Mutant, mutant
from simulation.mutant_links import LINKS

REAL: list[Mutant] = [
    mutant(
        "vllm_45388_never_promoted",
        "A sequence that gave way is not queued again when its last step has returned.",
        CORE + "apply",
        "    if worker.returning:\n",
        "    if False:\n",
    ),
    mutant(
        "vllm_37164_foreign_block",
        "A block given out anew is still found under its old name.",
        CORE + "block_pool",
        "        self.unname(block)\n        self.ref_counts[block] = 1",
        "        self.ref_counts[block] = 1",
    ),
    Mutant(
        "vllm_49674_preemption_cascade",
        "Who is short evicts all others at once, freed blocks or not, and nobody is ever safe.",
        (
            (CORE + "growth", "if worker.num_releasing_blocks or victim", "if victim"),
            (CORE + "starting", ".num_preemptions >= MAX_PREEMPTIONS", ".num_preemptions < 0"),
        ),
    ),
    mutant(
        "vllm_31731_head_of_line",
        "A request too large for the free blocks stops all behind it.",
        CORE + "starting",
        "            blocked.append(sequence)\n",
        "            break\n",
    ),
    mutant(
        "vllm_ascend_14055_no_fence",
        "Blocks come free while a step under way may still write them.",
        CORE + "worker_state",
        "        if sequence.num_outstanding:\n",
        "        if False:\n",
    ),
]

BLOCKS: list[Mutant] = [
    mutant(
        "missing_increment",
        "A cached block is shared without counting the new holder.",
        CORE + "block_table",
        "            self._pool.acquire(block)\n",
        "",
    ),
    mutant(
        "missing_decrement",
        "The table of a sequence that leaves is never given back.",
        CORE + "worker_state",
        "        release.table.release()\n",
        "",
    ),
    mutant(
        "double_free",
        "A table gives each of its blocks back twice.",
        CORE + "block_table",
        "            self._pool.release(block)\n        self.blocks = []",
        "            self._pool.release(block)\n            self._pool.release(block)\n"
        "        self.blocks = []",
    ),
    mutant(
        "slot_given_back_twice",
        "A slot enters the free list twice.",
        CORE + "worker_state",
        "        heapq.heappush(self.free_slots, release.slot)\n",
        "        heapq.heappush(self.free_slots, release.slot)\n"
        "        heapq.heappush(self.free_slots, release.slot)\n",
    ),
    mutant(
        "freed_slots_untold",
        "The worker is not told of slots that came free.",
        CORE + "worker_state",
        "untold, self.untold_slots = self.untold_slots, []",
        "untold, self.untold_slots = [], []",
    ),
    mutant(
        "salt_forgotten",
        "Tenants share blocks.",
        CORE + "worker_state",
        "salt=sequence.request.submission.salt,",
        'salt=b"",',
    ),
    mutant(
        "whole_prompt_from_cache",
        "A hit may cover the last token, too: off by one.",
        CORE + "prefix_cache",
        "range((len(tokens) - 1) // chain.block_size)",
        "range(len(tokens) // chain.block_size)",
    ),
    mutant(
        "no_copy_on_write",
        "A sequence writes into a block that others hold.",
        CORE + "growth",
        "if offset and table.is_shared(index):",
        "if offset < 0:",
    ),
    mutant(
        "fork_without_sharing",
        "A forked table does not count as a holder.",
        CORE + "block_table",
        "                self._pool.share(block)\n",
        "                pass\n",
    ),
    mutant(
        "window_off_by_one",
        "A block is given back while the window still reaches into it.",
        CORE + "apply",
        "first = (chunk.end - window + 1) // block_size",
        "first = (chunk.end - window + 1) // block_size + 1",
    ),
]

STEPS: list[Mutant] = [
    mutant(
        "failed_steps_believed",
        "Steps planned on top of a failed one count.",
        CORE + "worker_state",
        "            step.is_void = True\n",
        "            step.is_void = False\n",
    ),
    mutant(
        "fork_as_the_same_choice",
        "A fork samples with the choice of its source.",
        CORE + "draft",
        "fork_choices.append(follower.choice)",
        "fork_choices.append(leader.choice)",
    ),
    mutant(
        "one_token_too_many",
        "A sequence ends one token too late.",
        CORE + "admission",
        "return len(submission.prompt_token_ids) + (",
        "return 1 + len(submission.prompt_token_ids) + (",
    ),
    mutant(
        "budget_off_by_one",
        "A step may hold one token more than the worker takes.",
        CORE + "planner",
        "worker.info.max_num_batched_tokens)",
        "worker.info.max_num_batched_tokens + 1)",
    ),
    mutant(
        "one_step_too_many",
        "One plan more than the credit is sent.",
        CORE + "worker_state",
        "len(self.outstanding) < self.info.steps_in_flight",
        "len(self.outstanding) <= self.info.steps_in_flight",
    ),
    mutant(
        "unfair_pop",
        "The youngest in the queue is served first.",
        CORE + "waiting_queue",
        "self._members[self._keys[index]]",
        "self._members[self._keys[-1 - index]]",
    ),
    mutant(
        "dropped_cancel",
        "A request that is cancelled as a whole runs on.",
        CORE + "scheduler_core",
        "if choice in (None, sequence.choice) and not",
        "if choice == sequence.choice and not",
    ),
    mutant(
        "deadlines_ignored",
        "Nothing ends at its deadline.",
        CORE + "deadlines",
        "while self._heap and self._heap[0][0] <= now:",
        "while self._heap and self._heap[0][0] < 0:",
    ),
    mutant(
        "neighbours_fail_too",
        "A step that fails takes all its sequences with it.",
        CORE + "apply",
        "culprits = {alone} if alone is not None else set()",
        "culprits = {unit_of(chunk.sequence) for chunk in live}",
    ),
    mutant(
        "beam_score_off_by_one",
        "A hypothesis is scored as if it had one token more.",
        CORE + "beam_search",
        "branch.score / num_tokens**",
        "branch.score / (num_tokens + 1)**",
    ),
    mutant(
        "beam_forked_from_itself",
        "The worker is told the wrong source of a beam.",
        CORE + "beam_group",
        "moves.forks.append((child.slot, parent.slot, child.choice))",
        "moves.forks.append((child.slot, live[0].slot or 0, child.choice))",
    ),
]

MUTANTS: list[Mutant] = [*REAL, *BLOCKS, *STEPS, *LINKS]
SHORT = (
    "vllm_37164_foreign_block",
    "vllm_ascend_14055_no_fence",
    "missing_decrement",
    "no_copy_on_write",
    "journal_skips_gaps",
)
"""A handful for every test run."""
