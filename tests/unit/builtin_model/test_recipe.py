"""The recipe: tokenizer training repeats, circuits are seeded, a run leaves what exports."""

import os
import signal
from dataclasses import replace

import pytest
import torch
from builtin_recipe.conversation import Turn, chat_text
from builtin_recipe.evaluation.teacher_forcing import score_chat
from builtin_recipe.model.chat_tokenizer import encode_conversation, train_tokenizer
from builtin_recipe.model.circuits import seed_circuits
from builtin_recipe.model.exporting import export, load_export
from builtin_recipe.model.network import IGNORED_LABEL, SHAPES, Decoder, Shape, attend
from builtin_recipe.training.batches import CURRICULUM, BatchSource
from builtin_recipe.training.loop import StoppedError, TrainingPlan, rate_factor, train
from builtin_recipe.training.optimizers import orthogonalized
from builtin_recipe.training.run_state import CheckpointMismatchError, load_checkpoint
from tokenizers import Tokenizer

CHAT = (Turn("user", "Copy: apple, river"), Turn("assistant", "apple, river"))


@pytest.fixture(scope="module")
def tokenizer(model_folder):
    return Tokenizer.from_file(str(model_folder / "tokenizer.json"))


def test_tokenizer_training_repeats():
    first, second = train_tokenizer(200), train_tokenizer(200)
    assert first.to_str() == second.to_str()
    for text in ("Tell me a story about Lila.", "ünïcode 東京\n"):
        assert first.decode(first.encode(text).ids) == text


def test_only_answers_are_labelled(tokenizer):
    ids, labels = encode_conversation(tokenizer, CHAT)
    assert tokenizer.decode(ids, skip_special_tokens=False) == chat_text(CHAT)
    kept = [token for token in labels if token != IGNORED_LABEL]
    assert tokenizer.decode(kept, skip_special_tokens=False) == "apple, river<|im_end|>"


def test_batches_have_the_lengths_of_their_phase(tokenizer):
    source = BatchSource(tokenizer, seed=1, num_tokens=1024, num_steps=10)
    for step in (0, 5, 9):
        lengths = {plan.length for phase in CURRICULUM for plan in phase.plans}
        batch = source[step]
        assert batch.ids.shape == batch.labels.shape
        assert batch.ids.shape[1] in lengths
        labelled = batch.labels.ne(IGNORED_LABEL)
        assert labelled.any()
        # Shifted by one: a label is the next input.
        rows, columns = labelled[:, :-1].nonzero(as_tuple=True)
        assert torch.equal(batch.labels[rows, columns], batch.ids[rows, columns + 1])


def test_a_batch_depends_on_its_step_alone(tokenizer):
    source = BatchSource(tokenizer, seed=1, num_tokens=512, num_steps=100)
    second = list(zip(range(2), source.batches_from(4, num_workers=0), strict=False))[1][1]
    assert torch.equal(source[5].ids, second.ids)
    assert not torch.equal(source[5].ids, source[6].ids)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_seeded_circuits_copy_before_any_training(tokenizer, name):
    torch.manual_seed(0)
    network = Decoder(replace(SHAPES[name], vocab_size=tokenizer.get_vocab_size()))
    seed_circuits(network, tokenizer.get_vocab())
    once = torch.randperm(1500)[:40] + 300
    ids = torch.cat((once, once))[None]
    with torch.no_grad():
        ranks = network(ids)[0, 40:79].argsort(-1, descending=True)
    best = (ranks[:, :20] == ids[0, 41:80, None]).any(-1).float().mean()
    # By chance it would be one in a hundred; the draft has one matching head instead of two.
    assert best > {"chat": 0.5, "draft": 0.3}[name]


@pytest.mark.parametrize("length", [100, 300])
def test_attention_in_chunks_equals_the_library_kernel(length):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, length, 8) for heads in (4, 2, 2))
    wide = [one.repeat_interleave(2, dim=1) for one in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, *wide, is_causal=True)
    torch.testing.assert_close(attend(query.requires_grad_(), key, value), expected)


def test_orthogonalized_updates_have_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((2, 64, 32), (2, 32, 64)):
        values = torch.linalg.svdvals(orthogonalized(torch.randn(shape)))
        assert values.min() > 0.7
        assert values.max() < 1.3


def test_the_rate_warms_up_holds_and_falls():
    assert rate_factor(0, 0.0) < 0.05
    assert rate_factor(1000, 0.5) == 1.0
    assert rate_factor(1000, 1.0) == pytest.approx(0.02)


def test_a_wrong_token_makes_only_its_answer_wrong(tokenizer, model_folder):
    network, _ = load_export(model_folder)
    ids, labels = encode_conversation(tokenizer, (*CHAT, *CHAT))
    assert score_chat(network, ids, labels) == [True, True]
    place = next(index for index, token in enumerate(labels) if token != IGNORED_LABEL)
    labels[place] = (labels[place] + 1) % network.shape.vocab_size
    assert score_chat(network, ids, labels) == [False, True]


def small_plan(directory, num_steps):
    shape = Shape(hidden_size=160, num_layers=2, num_heads=2, num_kv_heads=1, mlp_size=64)
    return TrainingPlan(
        num_steps, directory, shape, num_tokens_per_step=256, report_steps=2, is_compiled=False
    )


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def stop_after(step, lines):
    """Return a report that sends SIGTERM when the line of `step` comes."""

    def report(line):
        lines.append(line)
        if line.startswith(f"step {step} "):
            os.kill(os.getpid(), signal.SIGTERM)

    return report


@pytest.mark.usefixtures("one_thread")
def test_a_resumed_run_equals_an_uninterrupted_one(tokenizer, tmp_path):
    def examine(network):
        return f"drew {torch.rand(1).item()}"

    expected, _ = load_checkpoint(
        train(small_plan(tmp_path / "one", 8), tokenizer, [].append, examine)
    )
    plan = replace(small_plan(tmp_path / "two", 8), checkpoint_minutes=0.0)
    lines = []
    with pytest.raises(StoppedError, match="after step 4"):
        train(plan, tokenizer, stop_after(4, lines), examine)
    path = train(plan, tokenizer, lines.append, examine)
    network, counters = load_checkpoint(path)
    assert counters["num_steps"] == 8
    assert any("going on after step 4" in line for line in lines)
    for name, weight in expected.state_dict().items():
        assert torch.equal(network.state_dict()[name], weight), name
    logged = (plan.directory / "log.txt").read_text().splitlines()
    assert any(line.startswith("step 8") and "accuracy" in line for line in logged)
    assert any(line.startswith("step 3  drew") for line in logged)


def test_a_checkpoint_of_another_shape_is_refused(tokenizer, tmp_path):
    plan = small_plan(tmp_path, 1)
    before = train(plan, tokenizer, [].append).read_bytes()
    other = replace(plan, shape=replace(plan.shape, mlp_size=32))
    with pytest.raises(CheckpointMismatchError, match="mlp_size 64 there, 32 here"):
        train(other, tokenizer, [].append)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    with pytest.raises(CheckpointMismatchError, match="seed"):
        train(replace(plan, seed=5), tokenizer, [].append)
    train(replace(other, is_fresh=True), tokenizer, [].append)


def test_a_run_may_be_given_more_steps(tokenizer, tmp_path):
    lines = []
    train(small_plan(tmp_path, 1), tokenizer, lines.append)
    _, counters = load_checkpoint(train(small_plan(tmp_path, 2), tokenizer, lines.append))
    assert counters["num_steps"] == 2
    assert "planned for 1 steps before, for 2 now" in lines


def test_a_run_leaves_a_network_that_exports(tokenizer, tmp_path):
    plan = replace(small_plan(tmp_path, 2), shape=SHAPES["chat"])
    lines = []
    network, counters = load_checkpoint(train(plan, tokenizer, lines.append))
    assert counters["num_steps"] == 2
    assert "loss" in lines[-1]
    export(network, tokenizer, tmp_path / "exported")
    loaded, _ = load_export(tmp_path / "exported")
    ids = torch.arange(300, 320)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids), network(ids), atol=0.3, rtol=0.1)
