"""The layer behind those of DeepSeek V3 and GLM-4.5 drafts, as transformers computes its parts."""

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.models.draft_head import DraftHead
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.mtp_checkpoints import let_the_last_token_decide, make_mtp_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

PROMPT = [(7 * at) % 200 for at in range(30)]
CONFIG = json.dumps({"method": "deepseek_mtp", "num_speculative_tokens": 3, "adaptive": False})


class PlainMtp:
    """The layer by transformers' parts, over a whole sequence."""

    def __init__(self, folder, tensors):
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, num_hidden_layers=3, dtype=torch.float32
        )
        self.model, self.tensors = model.eval(), tensors

    def states(self, tokens):
        """The states of the target after its last norm."""
        found = self.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[2]
        return self.model.model.norm(found)[0]

    def __call__(self, tokens, states):
        embedded = self.model.model.embed_tokens(torch.tensor(tokens))
        both = (self._norm("enorm", embedded), self._norm("hnorm", states))
        merged = torch.cat(both, dim=1) @ self.tensors["model.layers.2.eh_proj.weight"].T
        length = len(tokens)
        positions = torch.arange(length)[None]
        rotation = self.model.model.rotary_emb(merged[None], positions)
        mask = torch.full((1, 1, length, length), -torch.inf).triu(1)
        found = self.model.model.layers[2](
            merged[None], attention_mask=mask, position_ids=positions, position_embeddings=rotation
        )
        found = found[0] if isinstance(found, tuple) else found
        return self._norm("shared_head.norm", found.view(length, -1))

    def _norm(self, name, x):
        scale = (x.pow(2).mean(dim=1, keepdim=True) + self.model.config.rms_norm_eps).rsqrt()
        return x * scale * self.tensors[f"model.layers.2.{name}.weight"]


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("deepseek-v3", "torch"),
        pytest.param("glm4-moe", "fused", marks=needs_kernels),
    ],
)
def test_the_logits_of_drafts_are_those_of_its_parts(tmp_path, monkeypatch, name, backend):
    folder, tensors = make_mtp_checkpoint(tmp_path / name, name)
    driver = Driver.of(load(folder, cpu_backend=backend, speculative_config=CONFIG))
    found, logits_of = [], DraftHead.logits

    def kept(head, hidden, target):
        found.append(logits_of(head, hidden, target).clone())
        return found[-1]

    monkeypatch.setattr(DraftHead, "logits", kept)
    sequence = Running(0, PROMPT, GREEDY, 12)
    while not sequence.output:
        driver.step([sequence], 16)
    driver.model_runner.propose_drafts()
    plain = PlainMtp(folder, tensors)
    tokens, states = [*PROMPT, *sequence.output], plain.states(PROMPT)
    for logits in found[:3]:
        own = plain(tokens[1:], states)
        expected = own[-1:] @ tensors["lm_head.weight"].T
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
        tokens.append(int(expected.argmax()))
        states = torch.cat((states, own[-1:]))
    assert len(found) == 3
    driver.finish([sequence], budget=64)
    without = Driver.of(load(folder, cpu_backend=backend))
    assert without.generate([PROMPT], max_tokens=12) == [sequence.output]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=1, max_tokens=None)])
def test_a_layer_that_knows_the_model_is_right(tmp_path, sampling):
    folder, tensors = make_mtp_checkpoint(tmp_path, "glm4-moe")
    let_the_last_token_decide(folder, tensors)
    driver = Driver.of(load(folder, cpu_backend="torch", speculative_config=CONFIG))
    plain, prompts = Driver.of(load(folder, cpu_backend="torch")), [PROMPT, PROMPT[3:20]]
    assert driver.generate(prompts, sampling) == plain.generate(prompts, sampling)
    counts = driver.model_runner._speculator.counts
    assert counts.right_at.sum() > 0.9 * counts.num_tokens > 4


def test_a_checkpoint_without_the_layer_is_refused(tmp_path, checkpoint):
    reason = r"the mtp head: config.json: num_nextn_predict_layers is missing"
    with pytest.raises(StartupError, match=reason):
        load(checkpoint("llama"), speculative_config=CONFIG)
    # Published without it: config.json has the field, and the tensors were left out.
    with pytest.raises(StartupError, match=r"the mtp head: .* lacks the tensor model.layers.2."):
        load(make_family_checkpoint(tmp_path, "deepseek-v3"), speculative_config=CONFIG)
