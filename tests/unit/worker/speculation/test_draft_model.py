"""A draft model: what it reads and when, what it shares and forgets, and what is refused."""

import json

import numpy as np
import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.cpu_kernels import backend
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.speculation import draft_model
from pagewire_worker.speculation.proposer import DraftRequest
from support.cells.worker_driver import GREEDY, Driver, Running, load, request
from support.kernels.fused_kernels import needs_kernels
from support.speculated.targets import Target, write_target

SAMPLED = SamplingParams(seed=1, temperature=1.0, top_p=0.9, max_tokens=None)
LONG = [(7 * at) % 500 for at in range(150)]


def config(**settings):
    return json.dumps({"num_speculative_tokens": 3, "adaptive": False, **settings})


@pytest.fixture
def driver(checkpoint):
    """A model that drafts for itself."""
    itself = config(model=str(checkpoint("qwen3")))
    return Driver.of(load(checkpoint("qwen3"), cpu_backend="torch", speculative_config=itself))


def model_of(driver):
    return driver.model_runner._speculator._proposer.other


def run(driver, prompts, sampling=GREEDY, **fields):
    sequences = [
        Running(slot, prompt, sampling, 20, **fields) for slot, prompt in enumerate(prompts)
    ]
    driver.finish(sequences, budget=256)
    return [one.output for one in sequences]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_the_same_noise_chooses_the_same_tokens(driver, sampling):
    """Drafts of sampled tokens are sampled: the model itself is always right."""
    run(driver, [LONG[:10], LONG[3:30]], sampling)
    counts = driver.model_runner._speculator.counts
    assert counts.right_at[0] == counts.num_verified > 8
    blocks = model_of(driver).blocks
    assert blocks.num_free < blocks.capacity
    driver.run([])  # the sequences are freed
    assert blocks.num_free == blocks.capacity


FILTERS = (
    {},
    {"top_k": 7},
    {"min_p": 0.2},
    {"top_p": 0.6},
    {"top_k": 9, "top_p": 0.7, "min_p": 0.01},
)


@needs_kernels
@pytest.mark.parametrize("call_seconds", [1e9, 0.0])
@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_drafts_of_one_call_are_those_of_many(tmp_path, monkeypatch, family, call_seconds):
    """Greedy and sampled ones together, some sequences with fewer drafts than others."""
    monkeypatch.setattr(backend, "CALL_SECONDS", call_seconds)
    folder = write_target(tmp_path, Target(family))
    itself = config(model=str(folder))
    driver = Driver.of(load(folder, cpu_backend="fused", speculative_config=itself))
    model, table = model_of(driver), driver.model_runner._slots
    hot = [SamplingParams(temperature=1.5, seed=seed, **one) for seed, one in enumerate(FILTERS)]
    every = [GREEDY, *hot]
    slots = np.arange(len(every))
    for slot, sampling in enumerate(every):
        table.sampling.set(request(slot, sampling=sampling))
        model.blocks.tokens[slot, :20] = LONG[slot : slot + 20]
        assert model.blocks.reserve(slot, 40, set(slots.tolist()))
    ends, counts = np.full(len(every), 20), np.array([5, 5, 3, 5, 4, 1])

    def drafts(which):
        model.blocks.tokens[:, 20:] = 0
        model._draft(slots[which], np.zeros_like(ends)[which], ends[which], counts[which])
        model._draft(slots[which], ends[which] - 1, ends[which], counts[which])
        done = (ends + counts - 1)[which]
        assert np.array_equal(model.blocks.num_computed[slots[which]], done)
        return model.blocks.tokens[slots[which], 20:25].copy()

    with torch.inference_mode():
        for which in (slots, slots[:1], slots[1:]):
            found = drafts(which)
            with monkeypatch.context() as apart:
                apart.setattr(draft_model, "DraftsAtOnce", type(None))
                assert np.array_equal(drafts(which), found)
            assert np.array_equal((found > 0).sum(axis=1), counts[which])
            assert len(np.unique(found[:, 0])) > len(which) / 2
    table.clear()


def test_a_long_prompt_is_read_in_chunks_without_drafts_meanwhile(driver, monkeypatch):
    monkeypatch.setattr(draft_model, "MOST_CHUNK", 16)
    model, sizes = model_of(driver), []
    forward = model._backend.forward

    def counted(batch):
        sizes.append(len(batch.token_ids))
        return forward(batch)

    model._backend.forward = counted
    run(driver, [LONG])
    assert sizes[:9] == [16] * 9
    assert max(sizes) == 16
    counts = driver.model_runner._speculator.counts
    assert 0 < counts.num_verified < 12


def test_choices_of_one_request_share_the_blocks_of_its_prompt(driver):
    model, table = model_of(driver), driver.model_runner._slots
    asked = []
    for slot in (0, 1, 2):
        table.request_ids[slot] = b"other" if slot == 2 else b"same"
        asked.append(DraftRequest(slot, np.array([*LONG[:40], slot], dtype=np.int32)))
    for _ in range(5):
        ready = model.prepare(asked, 3, 10.0)
    assert ready == [3, 3, 3]
    tables = model.blocks.tables
    assert tables[0, :2].tolist() == tables[1, :2].tolist()
    assert not {*tables[0, :2].tolist()} & {*tables[2, :2].tolist()}
    model.release(0)
    assert len(model.propose(asked[1:], [3, 2])[1]) == 2
    table.clear()


def test_a_model_that_fails_ends_drafts_for_a_while_and_no_step(driver, caplog, monkeypatch):
    expected = run(driver, [LONG[:20]])
    model, counts = model_of(driver), driver.model_runner._speculator.counts

    def fail(batch):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(model._backend, "forward", fail)
        assert run(driver, [LONG[:20]]) == expected
        assert caplog.text.count("there are no drafts for 10 s") == 1
        num_verified = counts.num_verified
        model._work._rests_until = 0.0
        assert run(driver, [LONG[:20]]) == expected
        assert caplog.text.count("there are no drafts for 20 s") == 1
    assert run(driver, [LONG[:20]]) == expected
    assert counts.num_verified == num_verified, "it rests"
    model._work._rests_until = 0.0
    assert run(driver, [LONG[:20]]) == expected
    assert counts.num_verified > num_verified


def test_sequences_beyond_the_context_of_the_draft_go_on_without(checkpoint, tmp_path):
    folder = checkpoint("qwen3")
    for one in folder.iterdir():
        if one.name != "config.json":
            (tmp_path / one.name).symlink_to(one)
    changed = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    drafted = Driver.of(load(folder, speculative_config=config(model=str(tmp_path))))
    assert run(drafted, [LONG[:50]]) == run(Driver.of(load(folder)), [LONG[:50]])
    assert 0 < drafted.model_runner._speculator.counts.num_tokens < 14 + 3


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "draft_model"}, "the draft model: model is needed"),
        ({"model": "./nowhere/at/all"}, "the draft model: there is no folder"),
        ({"model": "", "quantization": "int3"}, "quantization 'int3' is none of"),
        ({"model": "", "kv_cache_memory": 100}, "100 B hold no block"),
        ({"model": "pagewire-builtin-draft"}, "vocabulary has 3072 tokens, that of the model 512"),
    ],
)
def test_what_cannot_draft_is_refused_by_name(checkpoint, settings, reason):
    folder = checkpoint("qwen3")
    settings = {"num_speculative_tokens": 3, **settings}
    if settings.get("model") == "":
        settings["model"] = str(folder)
    with pytest.raises(StartupError, match=reason) as found:
        load(folder, speculative_config=json.dumps(settings))
    assert found.value.field == "speculative_config"


def test_the_built_in_model_has_a_draft_by_default():
    from pagewire_worker.config import WorkerConfig

    replica = load_replica(
        WorkerConfig(
            model="pagewire-builtin",
            device="cpu",
            max_num_seqs=4,
            kv_cache_memory=8 * 1024**2,
            max_num_batched_tokens=256,
            speculative_config=config(method="draft_model"),
        )
    )
    assert replica.info.max_drafts == 3
    run(Driver.of(replica), [[5, 6, 7, 8] * 5])
    assert replica.speculator.counts.num_verified > 0
