"""Runs transformers' model for `driver_process`, under a Python that has it: all requests as one
batch, a forward pass a token, nothing kept from one batch to the next.

    python run_transformers.py MODEL DTYPE NUM_THREADS

Imports nothing of this project: the environment of transformers need not have it.
"""

import inspect
import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM


@torch.inference_mode()
def complete(model: Any, requests: list[tuple[list[int], int]]) -> list[list[tuple[float, int]]]:
    """Generate greedily; prompts of a batch have one length, and so have outputs."""
    ids = torch.tensor([prompt for prompt, _ in requests])
    # transformers before 5.24 has the older name only.
    names = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    cache, times = None, []
    for _ in range(requests[0][1]):
        output = model(ids, use_cache=True, logits_to_keep=1, **{name: cache})
        cache, ids = output[name], output.logits[:, -1:].argmax(-1)
        times.append((time.perf_counter(), ids.shape[1]))
    return [times for _ in requests]


def main() -> None:
    """Answer lines until there are no more."""
    folder, dtype, num_threads = sys.argv[1:]
    torch.set_num_threads(int(num_threads))
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    model.eval()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"arrivals": complete(model, json.loads(line))}
        except (RuntimeError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
