"""Bugs planted in the exchange of weights."""

from simulation.planted.mutant import CORE, FRONTEND, Mutant, mutant

HISTORIES = "simulation.update_histories"

UPDATES: list[Mutant] = [
    mutant(
        "weights_forgotten",
        "A frontend does not say which weights the output of a request has.",
        FRONTEND + "session.journal",
        "            weights=self.weights,\n",
        "",
        "tokens_of_the_model",
        histories=HISTORIES,
    ),
    mutant(
        "names_without_weights",
        "Blocks of two versions of the weights have one name.",
        CORE + "state.worker",
        "                model_fingerprint=fingerprint,\n",
        "                model_fingerprint=bytes(32),\n",
        "names_say_content",
        histories=HISTORIES,
    ),
]
