"""Flags in place of what a model's files say: tokenizer, template, defaults, names and bounds."""

import json

import pytest

from pagewire_frontend.config import FrontendConfig, sampling_defaults
from pagewire_frontend.engine.request_fit import check_model_limits
from pagewire_frontend.models.model_options import ModelOptions, parse_aliases
from pagewire_frontend.models.model_registry import ModelRegistry, ModelSpec, load_model
from pagewire_frontend.prompts.generation_request import GenerationRequest, TextPrompt
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.model_files.template import template_text
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.checkpoints.text_models import make_text_model

SPEC = ModelSpec("m", "nowhere")
TURN = [{"role": "user", "content": "hi"}]


@pytest.fixture
def folder(tmp_path):
    made = make_text_model(tmp_path / "model")
    advice = {"temperature": 0.5, "top_k": 5, "do_sample": False, "eos_token_id": 7}
    (made / "generation_config.json").write_text(json.dumps(advice))
    return made


def load(folder, **options):
    return load_model(SPEC, None, ModelOptions(**options), ModelFiles.of_folder(folder))


def test_another_tokenizer_brings_its_template_and_fingerprint(folder, tmp_path):
    other = make_text_model(tmp_path / "other", vocab=300)
    (other / "config.json").unlink()
    (other / "chat_template.jinja").write_text("other")
    model = load_model(SPEC, None, ModelOptions(), ModelFiles(folder, other))
    own = load(folder)
    assert model.chat_template.source == "other"
    assert model.tokenizer_fingerprint != own.tokenizer_fingerprint
    assert (model.vocab_size, model.eos_token_ids[0]) == (own.vocab_size, 7)


def test_overrides_replace_values_of_the_configuration(folder):
    files = ModelFiles(folder, folder, {"max_position_embeddings": 99, "vocab_size": 200})
    model = load_model(SPEC, None, ModelOptions(), files)
    assert (model.context_length, model.vocab_size) == (99, 200)


def test_a_template_comes_from_a_file_or_is_the_text_itself(folder, tmp_path):
    text = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    file = tmp_path / "t.jinja"
    file.write_text(text)
    for given in (text, str(file)):
        template = load(folder, chat_template=given).chat_template
        assert template.render(TURN, add_generation_prompt=False) == "[hi]"
    with pytest.raises(StartupError, match=r"--chat-template: .*No such file"):
        template_text(str(tmp_path / "none.jinja"))
    with pytest.raises(StartupError, match="does not compile"):
        load(folder, chat_template="{% for %}")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"temperature": 0.0}),
        ({"generation_config": "vllm"}, {}),
        ({"generation_overrides": {"temperature": 0.25}}, {"temperature": 0.25}),
        (
            {"generation_config": "none", "generation_overrides": {"top_p": 0.5}},
            {"top_p": 0.5},
        ),
        ({"generation_config": "FOLDER"}, {"min_p": 0.125}),
    ],
)
def test_sampling_defaults(folder, tmp_path, options, expected):
    (tmp_path / "generation_config.json").write_text('{"min_p": 0.125, "eos_token_id": 9}')
    if options.get("generation_config") == "FOLDER":
        options["generation_config"] = str(tmp_path)
    model = load(folder, **options)
    assert model.defaults == SamplingParams(max_tokens=None, **expected)
    assert model.eos_token_ids[0] == 7


def test_a_folder_without_sampling_defaults_is_refused(folder, tmp_path):
    with pytest.raises(StartupError, match="--generation-config"):
        load(folder, generation_config=str(tmp_path / "nope"))
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(StartupError, match="no JSON object"):
        load(folder, generation_config=str(tmp_path))


def test_overrides_out_of_bounds_are_refused(folder):
    with pytest.raises(StartupError, match="--override-generation-config: temperature"):
        load(folder, generation_overrides={"temperature": 9})
    with pytest.raises(StartupError, match="'max_new_tokens' is none of temperature"):
        sampling_defaults('{"max_new_tokens": 5}')
    assert sampling_defaults("") == ""


def test_aliases_find_the_model(folder):
    aliases = parse_aliases(["m=b", "m=c"], ["m"])
    model = load(folder, aliases=aliases)
    registry = ModelRegistry([model])
    assert [registry.find(name) for name in ("m", "b", "c", None)] == [model] * 4
    for texts in (["x=b"], ["b"], ["m="], ["m=b", "m=b"], ["m=m"], ["m=" + "x" * 300]):
        with pytest.raises(StartupError, match="--model-alias"):
            parse_aliases(texts, ["m"])


def request(model, **params):
    return GenerationRequest(model=model, prompt=TextPrompt("x"), params=SamplingParams(**params))


def test_log_probabilities_are_bounded(folder):
    model = load(folder, max_logprobs=3)
    check_model_limits(request(model, logprobs=3, prompt_logprobs=3))
    for name in ("logprobs", "prompt_logprobs"):
        with pytest.raises(InvalidRequestError, match="at most 3") as caught:
            check_model_limits(request(model, **{name: 4}))
        assert caught.value.field == name


def test_without_a_tokenizer_there_are_ids_only(folder):
    (folder / "tokenizer.json").unlink()
    model = load(folder, has_tokenizer=False)
    assert (model.has_text, model.vocab_size) == (False, 259)
    assert model.tokenizer.decode([5, 6], skip_special_tokens=False) == ""
    step = model.tokenizer.open_stream([1], skip_special_tokens=False)
    assert not step(5)
    with pytest.raises(InvalidRequestError, match="give token ids"):
        model.tokenizer.encode("x", add_special_tokens=True)
    check_model_limits(request(model))
    outputs = StructuredOutputsParams(regex="a")
    for refused in ({"stop": "a"}, {"bad_words": ["a"]}, {"structured_outputs": outputs}):
        with pytest.raises(InvalidRequestError, match="--skip-tokenizer-init"):
            check_model_limits(request(model, **refused))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_logprobs": 21}, "--max-logprobs"),
        ({"model": ("a", "b"), "tokenizer": "t"}, "--tokenizer: several models"),
        ({"model": ("a", "b"), "hf_overrides": '{"a": 1}'}, "--hf-overrides: several models"),
    ],
)
def test_settings_that_do_not_go_together(settings, error):
    with pytest.raises(StartupError, match=error):
        FrontendConfig(scheduler=("h:1",), **settings)
