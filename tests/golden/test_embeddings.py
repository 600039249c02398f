"""Vectors through `LLM`, in processes of their own, equal transformers' hidden states pooled alike,
however long the prompt is, whatever a cache holds of it and whoever generates beside it."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pagewire import LLM, EmbeddingRequestOutput, PoolingParams, SamplingParams
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import MAX_POSITIONS, VOCAB, make_served_checkpoint
from support.oracles.vectors import PlainEmbedder

BUDGET = 32
LENGTHS = (1, 2, 7, 8, 9, 31, 33, 64, 100, 129, 200, MAX_POSITIONS)
NUM_SHARED = 60
KINDS = [
    PoolingParams(),
    PoolingParams(pooling="mean"),
    PoolingParams(normalize=False),
    PoolingParams(pooling="mean", normalize=False),
    PoolingParams(dimensions=5),
    PoolingParams(pooling="mean", dimensions=5, normalize=False),
]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def make_prompts() -> list[list[int]]:
    """Return a prompt of each length; the long ones begin alike."""
    generator = random.Random(5)
    prompts = [[generator.randrange(3, VOCAB) for _ in range(length)] for length in LENGTHS]
    for prompt in prompts:
        if len(prompt) > NUM_SHARED:
            prompt[:NUM_SHARED] = prompts[-1][:NUM_SHARED]
    assert max(map(len, prompts)) > 2 * BUDGET, "some are computed in chunks"
    return prompts


def make_llama(folder: Path) -> Path:
    return make_checkpoint(folder / "llama", max_position_embeddings=MAX_POSITIONS)


def make_opt(folder: Path) -> Path:
    """Vectors of this one are narrower than its hidden states."""
    return make_served_checkpoint(folder, "opt", with_tokenizer=True)


@contextmanager
def generating(llm: LLM) -> Iterator[None]:
    """Generate all the while; the tokens must be those of an undisturbed run."""
    prompts = [{"prompt_token_ids": [9 * n + 3, 5, 7]} for n in range(4)]

    def generate() -> list[list[int]]:
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]

    alone = generate()
    rounds: list[list[list[int]]] = []
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            rounds.append(generate())

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert rounds
    assert all(tokens == alone for tokens in rounds)


def check(
    outputs: list[EmbeddingRequestOutput],
    prompts: list[list[int]],
    kinds: list[PoolingParams],
    plain: PlainEmbedder,
) -> None:
    assert [output.prompt_token_ids for output in outputs] == prompts
    for output, prompt, params in zip(outputs, prompts, kinds, strict=True):
        expected = plain.embed(prompt, params)
        found = np.array(output.outputs.embedding)
        text = f"{len(prompt)} tokens, {params}"
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0, err_msg=text)
        if params.is_normalized:
            assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("make", "kinds"), [(make_llama, KINDS), (make_opt, KINDS[:1])])
def test_vectors_equal_transformers_states(
    tmp_path: Path, make: Callable[[Path], Path], kinds: list[PoolingParams]
) -> None:
    folder = make(tmp_path)
    prompts = make_prompts()
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    plain = PlainEmbedder(folder)
    settings = {"block_size": 8, "max_num_batched_tokens": BUDGET, "max_model_len": MAX_POSITIONS}
    with (
        LLM(str(folder), dtype="float32", kv_cache_memory="16MiB", **settings) as llm,
        generating(llm),
    ):
        for params in kinds:
            outputs = llm.embed(requests, params, use_tqdm=False)
            check(outputs, prompts, [params] * len(prompts), plain)
            cached = [output.num_cached_tokens for output in outputs]
            assert any(cached) == (params.kind == "last"), "a mean reads no cache"
        mixed = [KINDS[place % len(KINDS)] for place in range(len(prompts))]
        check(llm.embed(requests, mixed, use_tqdm=False), prompts, mixed, plain)
        cut = [PoolingParams(pooling=kind, truncate_prompt_tokens=3) for kind in ("last", "mean")]
        for params in cut:
            [output] = llm.embed("hello world", params, use_tqdm=False)
            check([output], [output.prompt_token_ids], [params], plain)
            assert len(output.prompt_token_ids) == 3
