"""Numbers that are not finite: they fail the request that has them, and touch nobody else. Nothing
that was computed with them gets a name."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, load, request
from support.kernels.captured_decodes import capture_decodes
from support.kernels.fused_kernels import has_kernels
from support.products import WHOLE

BAD = 500
"""The token whose embedding is broken."""

pytestmark = [
    pytest.mark.usefixtures("poisoned_kernels"),
    # Of the interpreter of Triton.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SETTINGS = {"max_model_len": 64, "max_num_seqs": 3, "kv_cache_memory": 2**20}
NEIGHBOUR = PROMPT[:21]
NAN, INFINITY = float("nan"), float("inf")
FUSED = {"cpu_backend": "fused"}
needs_kernels = pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this CPU")

BACKENDS = [
    pytest.param((NAN, FUSED), marks=needs_kernels),
    pytest.param((INFINITY, FUSED), marks=needs_kernels),
    (NAN, {"cpu_backend": "torch"}),
    (INFINITY, {"cpu_backend": "torch", "attention_backend": "reference"}),
    pytest.param((NAN, {"attention_backend": "triton", "captured": True}), marks=WHOLE),
    (NAN, {"model_impl": "transformers"}),
]


@pytest.fixture(scope="module")
def broken(checkpoint, tmp_path_factory):
    """Return a function to a checkpoint one token of which has such a value in its embedding."""
    made = {}

    def get(value):
        if value not in made:
            made[value] = folder = tmp_path_factory.mktemp("broken") / "model"
            shutil.copytree(checkpoint("llama"), folder)
            (path,) = folder.glob("*.safetensors")
            weights = load_file(path)
            weights["model.embed_tokens.weight"][BAD, 3] = value
            save_file(weights, path, {"format": "pt"})
        return made[value]

    return get


@pytest.fixture(params=BACKENDS, ids=str)
def make(request, broken):
    """Return a function that loads the checkpoint on one of the backends."""
    value, backend = request.param

    def made():
        settings = {**SETTINGS, **backend}
        is_captured = settings.pop("captured", False)
        replica = load(broken(value), **settings)
        if is_captured:
            capture_decodes(replica.model_runner)
        return Driver.of(replica)

    return made


def run(one, *prompts, max_tokens=2, sampling=GREEDY):
    """Run prompts together; return their tokens, and the slots that failed, without their own."""
    sequences = [Running(slot, prompt, sampling, max_tokens) for slot, prompt in enumerate(prompts)]
    failed = set()
    while running := [one_of for one_of in sequences if not one_of.is_done]:
        running = [one_of for one_of in running if one_of.slot not in failed]
        if not running:
            break
        result = one.step(running, 64)
        failed |= set(result.failed_slots)
        if len(result.failed_slots):
            assert "not finite" in result.failed_reason
    for sequence in sequences:
        one.release(sequence)
    return [sequence.output for sequence in sequences], failed


@pytest.mark.parametrize("place", [5, 20])
def test_a_broken_row_fails_its_own_request_only(make, place):
    one = make()
    (expected,), _ = run(one, NEIGHBOUR)
    bad = PROMPT[:21]
    bad[place] = BAD
    (_, found, again), failed = run(one, bad, NEIGHBOUR, NEIGHBOUR)
    assert failed == {0}
    assert found == again == expected
    # Blocks that the broken request left behind hold nothing that hurts.
    (found,), failed = run(one, NEIGHBOUR)
    assert (found, failed) == (expected, set())


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(seed=1, top_p=0.9, max_tokens=None),
        SamplingParams(temperature=0.0, logprobs=2, max_tokens=None),
    ],
)
def test_whatever_is_sampled(make, sampling):
    one = make()
    (expected,), _ = run(one, NEIGHBOUR, sampling=sampling)
    (bad, found), failed = run(one, [BAD], NEIGHBOUR, sampling=sampling)
    assert failed == {0}
    assert found == expected
    assert all(0 <= token < 512 for token in bad)


def test_blocks_with_broken_values_get_no_name(make):
    one = make()
    bad = [*PROMPT[:20], BAD, *PROMPT[:11]]
    named = {"named_blocks": [0, 1, 3], "names": [b"a" * 16, b"b" * 16, b"c" * 16]}
    requests = [request(0, prompt=bad, blocks=[0, 1]), request(1, prompt=PROMPT[:16], blocks=[3])]
    result = one.run_well(
        [(0, 0, 32, 0, 0), (1, 0, 16, 0, 0)],
        new_sequences=requests,
        named_slots=[0, 0, 1],
        **named,
    )
    assert list(result.failed_slots) == [0]
    assert one.model_runner.blocks.held_names() == {3: b"c" * 16}
    # Nor later on, though what follows is finite: the sequence is broken for good.
    later = one.run_well([(0, 31, 1, 0, 0)], named_blocks=[1], names=[b"d" * 16], named_slots=[0])
    assert list(later.failed_slots) == [0]
    # A name of a plan that does not say whose blocks it names is given to none of them.
    nameless = one.run_well([(0, 31, 1, 0, 0)], named_blocks=[4], names=[b"e" * 16])
    assert list(nameless.failed_slots) == [0]
    assert one.model_runner.blocks.held_names() == {3: b"c" * 16}
    # The slot is as good as any for the next request.
    fresh = request(0, prompt=PROMPT[:16], blocks=[0])
    result = one.run_well(
        [(0, 0, 16, 1, 0)],
        freed_slots=[0],
        new_sequences=[fresh],
        named_blocks=[0],
        names=[b"f" * 16],
        named_slots=[0],
    )
    assert len(result.failed_slots) == 0
    assert one.model_runner.blocks.held_names() == {0: b"f" * 16, 3: b"c" * 16}


def test_tokens_before_a_broken_one_keep_their_bits(make):
    """Whether they share a chunk with it or not."""
    one = make()
    cache = one.model_runner.backend.kv_cache

    def stored(prompt, block):
        one.run_well(
            [(0, 0, len(prompt), 0, 0)],
            freed_slots=[0],
            new_sequences=[request(0, prompt=prompt, blocks=[block])],
        )
        both = [(layer.key[block], layer.value[block]) for layer in cache.layers]
        flat = torch.stack([side.clone() for sides in both for side in sides])
        assert flat.isfinite().all()
        return flat

    clean = stored(PROMPT[:16], 0)
    bad = stored([*PROMPT[:9], BAD, *PROMPT[10:16]], 1)
    if one.model_runner.backend.kernel_set.startswith("fused"):
        # [block_size / 16][head_dim][16 tokens] of keys; values are [head_dim / 16][16][16].
        clean, bad = (x.flatten(3).unflatten(2, (1, -1)) for x in (clean, bad))
        is_same = clean == bad
        assert 0.5 < is_same.float().mean() < 1
    else:
        assert torch.equal(clean[:, :9], bad[:, :9])


def test_forks_of_a_broken_sequence_are_broken(make):
    one = make()
    one.run_well(
        [(0, 0, 17, 1, 0)],
        new_sequences=[request(0, prompt=[*PROMPT[:16], BAD], blocks=[0, 1])],
    )
    result = one.run_well(
        [(0, 17, 1, 1, 0), (1, 17, 1, 1, 0)],
        fork_slots=[1],
        fork_sources=[0],
        fork_choices=[1],
        copy_slots=[1],
        copy_sources=[1],
        copy_destinations=[2],
    )
    assert sorted(result.failed_slots) == [0, 1]


def test_vectors_and_log_probabilities_of_prompts(make):
    one = make()
    pooled = Running(0, [3, BAD, 5], GREEDY, 1, pooling=PoolingParams(pooling="mean"))
    told = Running(1, [3, 5, BAD], SamplingParams(prompt_logprobs=1, max_tokens=None, seed=0), 2)
    fine = Running(2, PROMPT[:5], GREEDY, 1, pooling=PoolingParams(pooling="last"))
    result = one.step([pooled, told, fine], 64)
    assert sorted(result.failed_slots) == [0, 1]
    assert np.isfinite(fine.vector).all()
