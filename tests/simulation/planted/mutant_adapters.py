"""Bugs planted in adapters and their slots."""

from simulation.planted.mutant import CORE, FRONTEND, Mutant, mutant

ADAPTERS: list[Mutant] = [
    mutant(
        "adapter_forgotten_in_names",
        "Blocks of one adapter are found by requests with another one.",
        CORE + "state.worker",
        "adapter=submission.adapter,\n            )\n            chain",
        'adapter=b"",\n            )\n            chain',
        "names_say_content",
        "tokens_of_the_model",
    ),
    mutant(
        "adapter_slot_given_away_too_soon",
        "An adapter is replaced while steps that use it are under way.",
        CORE + "state.worker",
        "        self.adapters.end_use(release.adapter)\n",
        "",
        "everything_is_free",
        "everything_ends",
        "progress",
    ),
    mutant(
        "adapter_users_unseen",
        "A slot is given away while sequences run with its adapter.",
        CORE + "queueing.adapter_slots",
        "    if slot.num_users or slot.state is SlotState.LOADING:\n",
        "    if slot.state is SlotState.LOADING:\n",
        "no_crash",
        "tokens_of_the_model",
    ),
    mutant(
        "starts_without_adapter",
        "A sequence starts although its adapter has left since it was queued.",
        CORE + "queueing.adapter_slots",
        "        _set_aside(worker, evicted)\n",
        "",
        "no_crash",
        "plans_are_possible",
    ),
    mutant(
        "adapter_lost_in_resubmit",
        "A request that is submitted again has no adapter any more.",
        FRONTEND + "session.journal",
        "            adapter=self.adapter,\n",
        "            adapter=self.adapter if self.epoch == 0 else None,\n",
        "no_crash",
        "tokens_of_the_model",
        "one_end_each",
    ),
]
