"""The methods of vLLM's LLM that do not exist here, with what to use instead."""

from typing import Final

REFUSED: Final[dict[str, str]] = {
    "apply_model": "no code of a user runs in a worker",
    "collective_rpc": "no code of a user runs in a worker; LLM.cluster.pids() names the processes",
    "reward": "reward models are not served; classify and score are for classification heads",
    "set_tokenizer": "name the tokenizer when the model starts: LLM(tokenizer=...)",
    "start_profile": "there is no profiler yet; usage.timeline and the metrics say where time went",
    "stop_profile": "there is no profiler yet; usage.timeline and the metrics say where time went",
}
"""Method to the sentence of its error."""
