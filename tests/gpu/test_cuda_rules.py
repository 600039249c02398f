"""Everything a request can ask of the sampler, on a CUDA device: as on the CPU."""

from pathlib import Path
from typing import Any

import pytest

from pagewire import LLM, SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from support.oracles.golden_cases import make_golden_checkpoint, make_prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

RULES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.5},
    {"logit_bias": {5: 4.0, 7: -100.0}},
    {"allowed_token_ids": tuple(range(10, 60))},
    {"bad_token_sequences": ((9,), (10, 11)), "min_tokens": 8},
    {"temperature": 0.8, "seed": 5, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"logprobs": 3, "prompt_logprobs": 2},
]


def outcomes(folder: Path, device: str) -> tuple[list[Any], list[list[float]]]:
    prompts = [{"prompt_token_ids": prompt} for prompt in make_prompts()[: len(RULES)]]
    params = [SamplingParams(**{"temperature": 0.0, "max_tokens": 16, **rule}) for rule in RULES]
    with LLM(
        str(folder), device=device, dtype="float32", max_model_len=720, kv_cache_memory="256MiB"
    ) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        vectors = llm.embed(prompts, PoolingParams(pooling="mean"), use_tqdm=False)
    return outputs, [one.outputs.embedding for one in vectors]


def test_rules_on_cuda_choose_the_tokens_of_the_cpu(tmp_path: Path) -> None:
    folder = make_golden_checkpoint(tmp_path, "llama")
    (cpu, cpu_vectors), (cuda, cuda_vectors) = (outcomes(folder, d) for d in ("cpu", "cuda"))
    for rule, one, other in zip(RULES, cpu, cuda, strict=True):
        assert other.outputs[0].token_ids == one.outputs[0].token_ids, rule
    scored = [outputs[-1].outputs[0].cumulative_logprob for outputs in (cpu, cuda)]
    assert scored[1] == pytest.approx(scored[0], abs=1e-3)
    for one, other in zip(cpu_vectors, cuda_vectors, strict=True):
        assert other == pytest.approx(one, abs=1e-4)
