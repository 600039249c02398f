"""The methods of vLLM's LLM that do not exist here, with what to use instead."""

from typing import Final

REFUSED: Final[dict[str, str]] = {
    "apply_model": "no function is sent to a worker; LLM.collective_rpc calls methods of"
    " worker_extension_cls",
    "reward": "reward models are not served; classify and score are for classification heads",
    "set_tokenizer": "name the tokenizer when the model starts: LLM(tokenizer=...)",
}
"""Method to the sentence of its error."""
