"""Bugs planted in journal, links and loop."""

from simulation.planted.mutant import CORE, FRONTEND, Mutant, mutant

LINKS: list[Mutant] = [
    mutant(
        "old_incarnation_heard",
        "A late result of an earlier attach is applied when its step id fits.",
        CORE + "scheduler_core",
        "if identity != (worker.generation, worker.info.incarnation, expected):",
        "if result.step_id != expected:",
        "foreign_results_change_nothing",
    ),
    mutant(
        "old_epoch_heard",
        "A submit of an older epoch replaces the newer one.",
        CORE + "routing.resubmit",
        "    if submission.epoch < known.submission.epoch:\n",
        "    if submission.epoch < 0:\n",
        "everything_ends",
        "tokens_of_the_model",
        "one_end_each",
        "cancel_frees",
    ),
    mutant(
        "lease_without_end",
        "Requests of a frontend that is gone run for ever.",
        CORE + "scheduler_core",
        "if f.lease_end <= now]",
        "if f.lease_end < 0]",
        "everything_ends",
    ),
    mutant(
        "journal_skips_gaps",
        "A chunk that begins behind the next position is taken.",
        FRONTEND + "session.journal",
        "        if num_known < 0:\n",
        "        if num_known < -99:\n",
        "tokens_of_the_model",
    ),
    mutant(
        "journal_keeps_epoch",
        "A request that is submitted again keeps its epoch.",
        FRONTEND + "session.journal",
        "        self.epoch += 1\n",
        "        self.epoch = max(self.epoch, 0)\n",
        "tokens_of_the_model",
    ),
    mutant(
        "journal_ends_early",
        "An end is believed although tokens before it are missing.",
        FRONTEND + "session.journal",
        "        if journal.next_position != num_tokens or",
        "        if journal.next_position > num_tokens or",
        "tokens_of_the_model",
    ),
    Mutant(
        "link_forgets_to_ask_again",
        "A gap is noticed and nothing is done about it.",
        (
            (
                FRONTEND + "scheduler.link_sessions",
                "            if verdict is not ACCEPTED and verdict is ReceiveOutcome.GAP:\n",
                "            if verdict is None:\n",
            ),
            (
                FRONTEND + "scheduler.link_sessions",
                "            if self._alone(session, end) is ReceiveOutcome.GAP:\n",
                "            if self._alone(session, end) is None:\n",
            ),
        ),
        frozenset({"everything_ends"}),
    ),
    mutant(
        "link_believes_all_resumed",
        "After a re-attach what the scheduler does not know is waited for.",
        FRONTEND + "scheduler.link_sessions",
        "        for handle in resumed & asked.keys():\n",
        "        for handle in asked.keys():\n",
        "everything_ends",
    ),
    mutant(
        "link_keeps_old_handles",
        "Handles of a broken stream stay in use.",
        FRONTEND + "scheduler.link_sessions",
        "        self._by_handle.clear()\n",
        "",
        "one_end_each",
    ),
    mutant(
        "link_drops_cancel",
        "The scheduler is not told that a client has gone.",
        FRONTEND + "scheduler.link_sessions",
        "        self.forget(session)\n        if handle is not None:\n",
        "        self.forget(session)\n        if handle is None:\n",
        "cancel_frees",
    ),
]
