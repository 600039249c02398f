"""Bugs planted in sleep and wake."""

from simulation.planted.mutant import CORE, Mutant, mutant

SLEEP: list[Mutant] = [
    mutant(
        "sleeper_takes_sequences",
        "Sequences are placed on workers that sleep.",
        CORE + "data.duty",
        "self.sleep_order is None and self.sleep is None",
        "self.sleep_order is None",
        "sleepers_hold_nothing",
    ),
    mutant(
        "sleep_during_a_step",
        "A worker is sent to sleep while steps of it are under way.",
        CORE + "routing.sleeping",
        "        return not worker.outstanding\n",
        "        return True\n",
        "no_crash",
    ),
]
