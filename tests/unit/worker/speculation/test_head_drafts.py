"""Heads over the target's hidden states: what they compute, what they change, what is refused."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.models.draft_head import DraftHead
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.draft_heads import (
    PlainHead,
    head_config,
    knowing_head,
    make_chained,
    random_head,
    write_head,
)
from support.kernels.fused_kernels import needs_kernels

METHODS = ("eagle3", "eagle")
BACKENDS = ("torch", pytest.param("fused", marks=needs_kernels))
SAMPLED = SamplingParams(
    seed=1, temperature=1.0, top_p=0.9, repetition_penalty=1.1, max_tokens=None
)
PROMPT = [(7 * at) % 500 for at in range(45)]


def config(method, folder, **settings):
    given = {"method": method, "model": str(folder), "num_speculative_tokens": 3}
    return json.dumps({**given, "adaptive": False, **settings})


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A target of 6 layers, whose states between layers differ."""
    folder = tmp_path_factory.mktemp("target")
    return make_checkpoint(folder, layers=6, with_tokenizer=False)


def driver_of(target, method, head, backend="torch", **settings):
    spoken = config(method, head, **settings)
    return Driver.of(load(target, cpu_backend=backend, speculative_config=spoken))


def counts_of(driver):
    return driver.model_runner._speculator.counts


def run(driver, prompts, sampling=GREEDY, budget=256):
    sequences = [Running(slot, prompt, sampling, 20) for slot, prompt in enumerate(prompts)]
    driver.finish(sequences, budget=budget)
    return [one.output for one in sequences]


def states_of(target, tokens, layers):
    """The states of transformers' model that come into `layers`, side by side."""
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    with torch.no_grad():
        found = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return torch.cat([found[layer][0] for layer in layers], dim=1), model.lm_head.weight.detach()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [256, 16])
def test_the_logits_of_drafts_are_those_of_a_plain_head(
    target, tmp_path, monkeypatch, method, backend, budget
):
    tensors = random_head(method)
    driver = driver_of(target, method, write_head(tmp_path, head_config(method), tensors), backend)
    found = []
    logits_of = DraftHead.logits

    def kept(head, hidden, logits):
        found.append(logits_of(head, hidden, logits))
        return found[-1]

    monkeypatch.setattr(DraftHead, "logits", kept)
    sequence = Running(0, PROMPT, GREEDY, 20)
    while not sequence.output:
        driver.step([sequence], budget)
    driver.model_runner.propose_drafts()
    plain = PlainHead(method, tensors)
    tokens = [*PROMPT, *sequence.output]
    states, output = states_of(target, PROMPT, (2, 3, 3) if method == "eagle3" else (6,))
    if method == "eagle3":
        states = states @ tensors["fc.weight"].T
    for logits in found[:3]:
        own = plain(torch.tensor(tokens[1:]), states)
        expected = plain.logits(own[-1:], output)
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
        draft = int(expected.argmax())
        tokens.append(draft + int(tensors["d2t"][draft]) if method == "eagle3" else draft)
        states = torch.cat((states, own[-1:]))
    assert len(found) == 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_head_that_knows_the_target_is_right(tmp_path, method, backend):
    folder = make_checkpoint(tmp_path / "target", layers=6, with_tokenizer=False)
    head = knowing_head(method, make_chained(folder))
    head = write_head(tmp_path / "head", head_config(method), head)
    driver = driver_of(folder, method, head, backend)
    plain = Driver.of(load(folder, cpu_backend=backend))
    prompts = [PROMPT, PROMPT[3:20]]
    assert run(driver, prompts) == run(plain, prompts)
    counts = counts_of(driver)
    # EAGLE-3 knows 400 of the 512 tokens.
    assert counts.right_at.sum() > (0.95 if method == "eagle" else 0.5) * counts.num_tokens > 10
    proposer = driver.model_runner._speculator._proposer.other
    assert proposer.blocks.num_free < proposer.blocks.capacity
    driver.run([])  # the sequences are freed
    assert proposer.blocks.num_free == proposer.blocks.capacity


@needs_kernels
def test_the_head_of_a_narrow_target_may_be_wide(tmp_path, monkeypatch):
    """Where the processor does not multiply bfloat16, torch computes the head in float32."""
    monkeypatch.setattr("pagewire_worker.layers.linear._can_pack", lambda *where: False)
    folder = make_checkpoint(tmp_path / "target", layers=6, with_tokenizer=False)
    head = knowing_head("eagle", make_chained(folder))
    head = write_head(tmp_path / "head", head_config("eagle"), head)
    spoken = config("eagle", head)
    driver = Driver.of(load(folder, dtype="bfloat16", speculative_config=spoken))
    (found,) = run(driver, [PROMPT])
    assert [found] == run(Driver.of(load(folder, dtype="bfloat16")), [PROMPT])
    counts, proposer = counts_of(driver), driver.model_runner._speculator._proposer.other
    assert counts.right_at.sum() > 0.5 * counts.num_tokens > 0
    assert proposer._head.embedding.dtype == torch.float32


def test_sampled_tokens_are_drafted_with_their_seeds(tmp_path):
    folder = make_checkpoint(tmp_path / "target", layers=6, with_tokenizer=False)
    head = knowing_head("eagle", make_chained(folder))
    driver = driver_of(folder, "eagle", write_head(tmp_path / "head", head_config("eagle"), head))
    run(driver, [PROMPT[:10]], SamplingParams(seed=1, temperature=0.2, max_tokens=None))
    assert counts_of(driver).right_at.sum() > 0


def test_a_head_that_knows_nothing_changes_no_token(target, tmp_path):
    """Its cache holds a part of the sequences."""
    head = write_head(tmp_path, head_config("eagle3"), random_head("eagle3"))
    driver = driver_of(target, "eagle3", head, kv_cache_memory="32KiB")
    plain = Driver.of(load(target, cpu_backend="torch"))
    prompts = [PROMPT[:30], PROMPT[:12], PROMPT[5:25]]
    assert run(driver, prompts, SAMPLED, 24) == run(plain, prompts, SAMPLED, 24)
    assert counts_of(driver).num_verified > 5


def test_a_head_that_fails_ends_drafts_for_a_while_and_no_step(
    target, tmp_path, caplog, monkeypatch
):
    driver = driver_of(
        target, "eagle3", write_head(tmp_path, head_config("eagle3"), random_head("eagle3"))
    )
    expected = run(driver, [PROMPT])

    def fail(*arguments):
        raise ValueError("out of order")

    with monkeypatch.context() as broken:
        broken.setattr(DraftHead, "forward", fail)
        assert run(driver, [PROMPT]) == expected
    assert caplog.text.count("there are no drafts for 10 s") == 1
    num_verified = counts_of(driver).num_verified
    assert run(driver, [PROMPT]) == expected
    assert counts_of(driver).num_verified == num_verified, "it rests"
    driver.model_runner._speculator._proposer.other._work._rests_until = 0.0
    assert run(driver, [PROMPT]) == expected
    assert counts_of(driver).num_verified > num_verified


@pytest.mark.parametrize(
    ("method", "fields", "reason"),
    [
        ("eagle3", {"hidden_size": 32}, "hidden_size is 32, and the model asks for 64"),
        ("eagle3", {"vocab_size": 500}, "vocab_size is 500, and the model asks for 512"),
        ("eagle", {"num_hidden_layers": 2}, "num_hidden_layers is 2, and the model asks for 1"),
        ("eagle3", {"architectures": ["X"]}, "architectures .'X'., eagle3 needs one of Llama"),
        ("eagle3", {"norm_before_fc": True}, "norm_before_fc is not supported here"),
        ("eagle3", {"draft_vocab_size": 300}, "lm_head.weight has shape .400, 64., config.json"),
        ("eagle3", {"intermediate_size": 80}, "midlayer.mlp.gate_proj.weight has shape .96, 64."),
        ("eagle3", {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "must be 3 numbers, got .1, 2."),
        (
            "eagle3",
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}},
            "states .2, 3, 6. of a model of 6 layers",
        ),
    ],
)
def test_what_cannot_draft_is_refused_by_name(target, tmp_path, method, fields, reason):
    head = write_head(tmp_path, head_config(method, **fields), random_head(method))
    with pytest.raises(StartupError, match=f"the {method} head: .*{reason}") as found:
        driver_of(target, method, head)
    assert found.value.field == "speculative_config"


def test_a_backend_without_states_is_refused(target, tmp_path):
    head = write_head(tmp_path, head_config("eagle"), random_head("eagle"))
    with pytest.raises(StartupError, match=r"triton.* does not hand out the hidden states"):
        load(target, attention_backend="triton", speculative_config=config("eagle", head))
