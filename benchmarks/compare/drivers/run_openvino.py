"""Runs OpenVINO GenAI's continuous batching for `driver_process`, under a Python that has it.

    python run_openvino.py MODEL DTYPE KV_GIB MAX_STREAMS NUM_THREADS BATCHED_TOKENS

Imports nothing of this project: the environment of OpenVINO does not have it.
"""

import json
import sys
import time
from typing import Any

import numpy
import openvino  # type: ignore[import-not-found]
import openvino_genai  # type: ignore[import-not-found]

PRECISIONS = {"bfloat16": "bf16", "float32": "f32", "float16": "f16"}


def make_pipeline(arguments: list[str]) -> Any:
    """Load the model."""
    model, dtype, kv_gib, max_streams, num_threads, batched_tokens = arguments
    scheduling = openvino_genai.SchedulerConfig()
    scheduling.cache_size = int(kv_gib)
    scheduling.max_num_seqs = int(max_streams)
    if int(batched_tokens):
        scheduling.max_num_batched_tokens = int(batched_tokens)
    scheduling.enable_prefix_caching = True
    properties = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[dtype],
        "INFERENCE_NUM_THREADS": int(num_threads),
    }
    return openvino_genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)


def complete(pipeline: Any, requests: list[tuple[list[int], int]]) -> list[list[tuple[float, int]]]:
    """Add all requests, step until none is left, and return when tokens of each came."""
    handles = []
    for number, (prompt, max_tokens) in enumerate(requests):
        settings = openvino_genai.GenerationConfig(max_new_tokens=max_tokens, ignore_eos=True)
        settings.do_sample = False
        ids = openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        handles.append(pipeline.add_request(number, ids, settings))
    arrivals: list[list[tuple[float, int]]] = [[] for _ in handles]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter()
        for handle, times in zip(handles, arrivals, strict=True):
            while handle.can_read():
                times.append((now, sum(len(out.generated_ids) for out in handle.read().values())))
    return [[one for one in times if one[1]] for times in arrivals]


def main() -> None:
    """Answer lines until there are no more."""
    pipeline = make_pipeline(sys.argv[1:])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"arrivals": complete(pipeline, json.loads(line))}
        except RuntimeError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
