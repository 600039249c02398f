"""The recipe: tokenizer training repeats, circuits are seeded, a run leaves what exports."""

import random

import pytest
import torch
from builtin_recipe.batches import CURRICULUM, BatchSource
from builtin_recipe.chat_tokenizer import encode_conversation, train_tokenizer
from builtin_recipe.circuits import seed_circuits
from builtin_recipe.conversation import Turn, chat_text
from builtin_recipe.evaluation import score_chat
from builtin_recipe.exporting import export, load_export
from builtin_recipe.network import IGNORED_LABEL, Decoder, Shape
from builtin_recipe.optimizers import orthogonalized
from builtin_recipe.story_evaluation import score_answers
from builtin_recipe.training import TrainingPlan, load_checkpoint, rate_factor, train
from tokenizers import Tokenizer

CHAT = (Turn("user", "Copy: apple, river"), Turn("assistant", "apple, river"))


@pytest.fixture(scope="module")
def tokenizer(model_folder):
    return Tokenizer.from_file(str(model_folder / "tokenizer.json"))


def test_tokenizer_training_repeats():
    first, second = train_tokenizer(400), train_tokenizer(400)
    assert first.to_str() == second.to_str()
    for text in ("Tell me a story about Lila.", "ünïcode 東京\n"):
        assert first.decode(first.encode(text).ids) == text


def test_only_answers_are_labelled(tokenizer):
    ids, labels = encode_conversation(tokenizer, CHAT)
    assert tokenizer.decode(ids, skip_special_tokens=False) == chat_text(CHAT)
    kept = [token for token in labels if token != IGNORED_LABEL]
    assert tokenizer.decode(kept, skip_special_tokens=False) == "apple, river<|im_end|>"


def test_batches_have_the_lengths_of_their_phase(tokenizer):
    source = BatchSource(tokenizer, random.Random(1), num_tokens=1024)
    for progress in (0.0, 0.5, 0.9):
        lengths = {plan.length for phase in CURRICULUM for plan in phase.plans}
        batch = source.draw(progress)
        assert batch.ids.shape == batch.labels.shape
        assert batch.ids.shape[1] in lengths
        labelled = batch.labels.ne(IGNORED_LABEL)
        assert labelled.any()
        # Shifted by one: a label is the next input.
        rows, columns = labelled[:, :-1].nonzero(as_tuple=True)
        assert torch.equal(batch.labels[rows, columns], batch.ids[rows, columns + 1])


def test_seeded_circuits_copy_before_any_training(tokenizer):
    torch.manual_seed(0)
    network = Decoder(Shape())
    seed_circuits(network, tokenizer.get_vocab())
    once = torch.randperm(1500)[:40] + 300
    ids = torch.cat((once, once))[None]
    with torch.no_grad():
        ranks = network(ids)[0, 40:79].argsort(-1, descending=True)
    best = (ranks[:, :20] == ids[0, 41:80, None]).any(-1).float().mean()
    assert best > 0.5


def test_answers_are_judged_as_stories():
    vocabulary = {"the", "fox", "slept"}
    long = "the fox slept " * 7
    answers = [(long, True), (long, False), ("the fox slept", True), (long + "xyz", True)]
    score = score_answers(answers, [["fox"], ["bear"], ["fox"], ["fox"]], vocabulary)
    assert (score.num_stopped, score.num_long_enough, score.num_known_words) == (3, 3, 3)
    assert (score.num_all_three, score.num_on_topic) == (1, 3)


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


def test_a_run_leaves_a_network_that_exports(tokenizer, tmp_path):
    plan = TrainingPlan(
        minutes=0.003, directory=tmp_path, num_tokens_per_step=256, is_compiled=False
    )
    lines = []
    network, counters = load_checkpoint(train(plan, tokenizer, lines.append))
    assert counters["num_steps"] >= 2
    assert "loss" in lines[-1]
    export(network, tokenizer, tmp_path / "exported")
    loaded, _ = load_export(tmp_path / "exported")
    ids = torch.arange(300, 320)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids), network(ids), atol=0.3, rtol=0.1)
